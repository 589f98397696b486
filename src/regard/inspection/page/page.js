// What all pages need: elements made from words, the choice of colours, and sentences filtered by their kind.
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
const word = (side, place, tag, given) => make(tag || "bdi", { dir: "auto", ...given, class: ((given && given.class) || "") + (side.special[place] ? " special" : "") }, side.words[place]);
const dataOf = holder => JSON.parse(holder.querySelector("script").textContent);
const bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
function select(label, given) { const list = make("select", given); return [make("label", {}, label, list), list]; }
function fill(list, count, first, value) {
  list.length = 0;
  if (first) list.add(new Option(first, -1));
  for (let i = 0; i < count; i++) list.add(new Option(i, i));
  list.value = value;
}

const theme = document.querySelector("[data-control=theme]");
theme.onclick = () => {
  const page = document.documentElement, order = ["auto", "dark", "light"];
  page.dataset.theme = order[(order.indexOf(page.dataset.theme || "auto") + 1) % 3];
  theme.textContent = "◐ " + page.dataset.theme;
  theme.setAttribute("aria-label", "colours: " + page.dataset.theme);
  document.dispatchEvent(new Event("colours"));
};
theme.textContent = "◐ auto";
theme.setAttribute("aria-label", "colours: auto");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("colours")));

document.querySelector(".filters")?.addEventListener("change", event => {
  for (const row of document.querySelectorAll(".row")) row.hidden = event.target.value !== "all" && row.dataset.kind !== event.target.value;
});
