// What all pages need: elements made from words, the choice of colours, hints, copied commands, and lists of sentences.
// Words only ever become text nodes: nothing in a sentence can become markup.

function make(tag, given, ...children) {
  const element = tag.startsWith("svg:") ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(given || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined && child !== ""));
  return element;
}
const word = (side, place, tag, given) => make(tag || "bdi", { dir: "auto", lang: side.language || null, ...given, class: ((given && given.class) || "") + (side.special[place] ? " special" : "") }, side.words[place]);
const dataOf = holder => JSON.parse(holder.querySelector("script").textContent);
const bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
function select(label, given) { const list = make("select", given); return [make("label", {}, label, list), list]; }

// Colours: those of the system, dark or light; the choice holds for all pages.
const themes = ["auto", "dark", "light"], theme = document.querySelector("[data-control=theme]");
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  theme.textContent = "◐ " + name;
  theme.setAttribute("aria-label", "colours: " + name);
  try { localStorage.setItem("regard-theme", name); } catch { /* no storage here */ }
  document.dispatchEvent(new Event("colours"));
}
theme.onclick = () => setTheme(themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % 3]);
setTheme(themes.find(name => name === document.documentElement.dataset.theme) || "auto");
for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", () => document.dispatchEvent(new Event("colours")));

// The value of the point of a chart under the pointer.
const hint = document.body.appendChild(make("div", { class: "hint-box", hidden: true, "aria-hidden": "true" }));
document.addEventListener("pointerover", event => {
  const point = event.target.closest(".chart [data-hint]");
  hint.hidden = !point;
  if (!point) return;
  const box = point.getBoundingClientRect();
  hint.textContent = point.dataset.hint;
  hint.style.left = Math.max(8, Math.min(box.x + box.width / 2 - hint.offsetWidth / 2, innerWidth - hint.offsetWidth - 8)) + "px";
  hint.style.top = Math.max(8, box.y - hint.offsetHeight - 8) + "px";
});
addEventListener("scroll", () => { hint.hidden = true; }, true);

// A command with a button that copies it.
for (const command of document.querySelectorAll(".command")) {
  const button = make("button", { type: "button", "aria-label": "copy the command" }, "copy");
  button.onclick = async () => {
    const text = command.querySelector("code").textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(command.querySelector("code"));
      button.textContent = "selected";
    }
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  };
  command.append(button);
}

// Sentences: searched and sorted, ten at a time.
const find = document.querySelector("form.find");
if (find) {
  const list = document.querySelector(".rows"), more = document.querySelector(".ten"), status = find.querySelector("[role=status]");
  const rows = [...list.children], texts = new Map(rows.map(row => [row, [...row.querySelectorAll("p")].map(line => line.textContent).join(" ").toLowerCase()]));
  let limit = 10;
  const show = () => {
    const { sort, search } = find.elements, wanted = search.value.trim().toLowerCase();
    const [, sign, key] = sort.value.match(/^(-?)(.*)$/), value = row => (sign ? -1 : 1) * row.dataset[key];
    const order = [...rows].sort((one, other) => value(one) - value(other));
    const fitting = order.filter(row => texts.get(row).includes(wanted));
    const shown = new Set(fitting.slice(0, limit));
    for (const row of rows) row.hidden = !shown.has(row);
    list.append(...order);
    more.hidden = fitting.length <= limit;
    try { sessionStorage.setItem(location.pathname, JSON.stringify(Object.fromEntries(new FormData(find)))); } catch { /* no storage here */ }
    status.textContent = fitting.length ? `${shown.size} of ${fitting.length} shown` : "no sentence fits";
  };
  find.addEventListener("submit", event => event.preventDefault());
  find.addEventListener("input", () => { limit = 10; show(); });
  more.onclick = () => {
    const before = new Set(rows.filter(row => !row.hidden));
    limit += 10;
    show();
    const next = [...list.children].find(row => !row.hidden && !before.has(row));
    next.tabIndex = -1;
    next.focus();
  };
  try {
    for (const [name, value] of Object.entries(JSON.parse(sessionStorage.getItem(location.pathname)))) find.elements[name].value = value;
  } catch { /* nothing was chosen before */ }
  show();
}
