// The page of the server. It speaks to the API of the same server and keeps its history in the browser alone.

const view = document.getElementById("view"), bar = document.querySelector("form.bar"), status = document.querySelector(".status");
const stored = (name, otherwise) => { try { return JSON.parse(localStorage.getItem(name)) ?? otherwise; } catch { return otherwise; } };
const store = (name, value) => { try { localStorage.setItem(name, JSON.stringify(value)); } catch { /* no storage here */ } };
const inPercent = share => (100 * share).toFixed(share < .0995 ? 1 : 0) + " %";
const languages = new Intl.DisplayNames("en", { type: "language", fallback: "code" });
const nameOf = code => { try { return languages.of(code.replace("_", "-")); } catch { return code; } };
bar.addEventListener("submit", event => event.preventDefault());

const capital = text => text && text[0].toUpperCase() + text.slice(1);
const entitle = title => { document.querySelector("h1").textContent = title; };

function say(message) {
  status.textContent = message;
  status.hidden = !message;
}

// One request. Where the server is busy it is sent again after the time that the server names.
async function call(path, body, signal) {
  const headers = bar.elements.key.value ? { Authorization: "Bearer " + bar.elements.key.value } : {};
  if (body && !(body instanceof FormData)) { headers["Content-Type"] = "application/json"; body = JSON.stringify(body); }
  for (;;) {
    let answer;
    try {
      answer = await fetch(path, { method: body ? "POST" : "GET", headers, body, signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("The server cannot be reached.");
    }
    if (answer.ok) { say(""); return answer; }
    if (answer.status === 401) bar.querySelector(".key").hidden = false;
    if (answer.status !== 429) {
      const content = await answer.json().catch(() => ({}));
      throw new Error(content.error?.message || content.error || `The server answered ${answer.status}.`);
    }
    const seconds = +answer.headers.get("Retry-After") || 1;
    say(`The server is busy. Trying again in ${seconds} s.`);
    await new Promise(resolve => setTimeout(resolve, 1000 * seconds));
    if (signal?.aborted) throw new DOMException("", "AbortError");
  }
}
const failed = error => { if (error.name !== "AbortError") say(error.message); };

// The inspector of a trace, drawn when its details are opened.
function inspectorOf(trace, title, number, open) {
  const holder = make("div", { class: "inspector" }), details = make("details", { class: "more", open }, make("summary", { dir: "auto" }, title), holder);
  let drawn = false;
  const draw = () => { if (!drawn && details.open) { drawn = true; inspect(holder, trace, number); } };
  details.addEventListener("toggle", draw);
  queueMicrotask(draw);
  return details;
}

// A translator

function translatorView(model) {
  const source = make("textarea", { id: "source", dir: "auto", lang: model.source, "aria-describedby": "note", placeholder: "Write or paste a text" });
  const written = make("div", { class: "written", dir: "auto", lang: model.target, role: "group", "aria-label": "translation" });
  const read = make("p", { class: "aside", "aria-live": "polite" }), note = make("p", { class: "note", id: "note" });
  const others = make("ul", { class: "chips others", "aria-label": "other translations" });
  const glossary = make("textarea", { class: "small", placeholder: "bank = banque", "aria-label": "glossary: a term and its translation on each line" });
  const heads = make("ul", { class: "chips", "aria-label": "heads that are switched off" }), inspectors = make("div");
  const offHead = make("button", { type: "button" }, "Switch off the chosen head");
  const past = make("ul", { class: "history" }), menu = make("dialog", { "aria-label": "instead of this word" });
  const file = make("input", { type: "file", "aria-label": "a file to translate" }), result = make("p", { "aria-live": "polite" });
  const drop = make("div", { class: "drop" }, "Drop a text, XLIFF, PO or TMX file here, or choose one: ", file, result);
  const why = make("details", { class: "more" }, make("summary", {}, "Why: attention, probabilities and the beam"), make("div", { class: "tools" }, offHead, heads), inspectors);
  const linked = make("p", { class: "note linked" });
  let prefix = "", off = [], before = [], timer = 0, request = null, shown = null;

  const terms = () => Object.fromEntries(glossary.value.split("\n").map(line => line.split(/\s*[=\t]\s*/)).filter(parts => parts.length === 2 && parts[0].trim() && parts[1].trim()).map(([term, other]) => [term.trim(), other.trim()]));

  async function translate() {
    clearTimeout(timer);
    request?.abort();
    request = new AbortController();
    const { signal } = request, text = source.value;
    if (!text.trim()) { written.replaceChildren(); others.replaceChildren(); inspectors.replaceChildren(); note.textContent = linked.textContent = ""; shown = null; return; }
    written.setAttribute("aria-busy", "true");
    try {
      if (text.length > 2000) {
        const answer = await (await call("translate", { q: text, source: model.source, target: model.target, model: model.name, glossary: terms() }, signal)).json();
        written.replaceChildren(answer.translatedText);
        note.textContent = "Texts of over 2,000 characters are translated without attention and alternatives.";
        linked.textContent = "";
        others.replaceChildren();
        inspectors.replaceChildren();
      } else {
        const body = { q: text, source: model.source, target: model.target, model: model.name, alternatives: 3, prefix, without: off, glossary: terms(), view: "page" };
        show(await (await call("trace", body, signal)).json());
      }
      read.textContent = written.textContent;
    } catch (error) {
      failed(error);
    }
    if (!signal.aborted) written.removeAttribute("aria-busy");
  }

  // The translation as words. A click on one opens what else the model could have written there.
  function show(answer) {
    shown = answer;
    const words = [];
    let from = 0;
    for (const part of answer.parts) {
      const { target, steps } = part.trace;
      target.words.forEach((text, place) => {
        if (target.special[place]) return;
        const at = answer.translatedText.indexOf(text, from);
        if (at < 0) return;
        const own = steps.filter(step => step[0] === place);
        words.push({ from: attended(part.trace, place), text, at, share: Math.exp(own.reduce((sum, step) => sum + step[2], 0)), others: own.length ? own[0][3] : [], first: own.length ? own[0][1] : "" });
        from = at + text.length;
      });
    }
    const kept = common(before, words.map(word => word.text));
    const pieces = [];
    let end = 0;
    words.forEach((word, index) => {
      pieces.push(answer.translatedText.slice(end, word.at));
      const classes = [word.share < .3 ? "doubtful" : word.share < .6 ? "unsure" : "", before.length && !kept.has(index) ? "changed" : ""].join(" ").trim();
      const button = make("button", { type: "button", class: classes, title: inPercent(word.share), "aria-haspopup": "dialog" }, word.text);
      button.onclick = () => open(button, word);
      button.onmouseenter = button.onfocus = () => linked.replaceChildren(make("bdi", { lang: model.target }, make("b", {}, word.text)), word.from.length ? " attends to " : "", make("bdi", { lang: model.source }, word.from.join(", ")), ` and is ${inPercent(word.share)} probable.`);
      pieces.push(button);
      end = word.at + word.text.length;
    });
    written.replaceChildren(...pieces, answer.translatedText.slice(end));
    before = words.map(word => word.text);
    linked.textContent = words.some(word => word.share < .6) ? "Dotted words are less than 60 % probable, shaded ones less than 30 %." : "";
    const sure = answer.confidence === null ? "" : `Confidence ${inPercent(answer.confidence)}. `;
    note.replaceChildren(sure, prefix ? "It continues what you chose. " : "", ...answer.warnings.map(warning => make("span", { class: "warned" }, capital(warning.message) + ". ")));
    if (prefix) note.append(make("button", { type: "button", onclick: () => { prefix = ""; translate(); } }, "start over"));
    others.replaceChildren(...answer.alternatives.filter((text, place, all) => text !== answer.translatedText && all.indexOf(text) === place).map(text => make("li", {}, make("button", { type: "button", dir: "auto", lang: model.target, title: "use this translation", onclick: () => { prefix = text; translate(); } }, text))));
    inspectors.replaceChildren(...answer.parts.map((part, number) => inspectorOf({ ...part.trace, warnings: [] }, part.trace.target.text || part.text, number, answer.parts.length === 1)));
    remember(source.value, answer.translatedText);
  }

  // The source words that a word attends to: those with at least half of the largest weight, as a mean of the heads.
  function attended(trace, row) {
    const map = trace.maps.find(one => one.kind === "cross" && one.method === "attention");
    if (!map) return [];
    const numbers = map.bits === 8 ? bytes(map.values) : new Uint16Array(bytes(map.values).buffer);
    const columns = map.columns.words.length, pictures = map.heads < 2 ? 1 : map.heads + 1;
    const start = (((trace.layer + 1) * pictures - 1) * map.rows.words.length + row) * columns, weights = [...numbers.subarray(start, start + columns)];
    const most = Math.max(...weights);
    return map.columns.words.filter((_, column) => weights[column] >= most / 2 && !map.columns.special[column]);
  }

  // The places of the new words that were there before, by the longest common subsequence.
  function common(old, fresh) {
    const table = Array.from({ length: old.length + 1 }, () => new Uint16Array(fresh.length + 1)), kept = new Set();
    for (let i = old.length - 1; i >= 0; i--) for (let j = fresh.length - 1; j >= 0; j--) table[i][j] = old[i] === fresh[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    for (let i = 0, j = 0; i < old.length && j < fresh.length;) if (old[i] === fresh[j]) { kept.add(j++); i++; } else if (table[i + 1][j] >= table[i][j + 1]) i++; else j++;
    return kept;
  }

  function open(button, word) {
    const choose = text => { menu.close(); prefix = shown.translatedText.slice(0, word.at) + text; translate(); };
    const field = make("input", { "aria-label": "another word", placeholder: "another word", dir: "auto", lang: model.target });
    const options = word.others.filter(([piece]) => piece !== "</s>" && piece.trim() && piece !== word.first);
    menu.replaceChildren(
      make("h2", {}, "Instead of ", make("bdi", {}, word.text), make("small", {}, " " + inPercent(word.share))),
      make("ul", { class: "chips" }, ...options.map(([piece, log]) => make("li", {}, make("button", { type: "button", onclick: () => choose(piece.trim()) }, make("bdi", { lang: model.target }, piece.trim()), make("small", {}, inPercent(Math.exp(log))))))),
      make("form", { class: "tools", onsubmit: event => { event.preventDefault(); if (field.value.trim()) choose(field.value.trim()); } }, field, make("button", {}, "Use")),
      make("button", { type: "button", onclick: () => menu.close() }, "Close"));
    menu.show();
    const box = button.getBoundingClientRect();
    menu.style.left = Math.max(8, Math.min(box.left, innerWidth - menu.offsetWidth - 8)) + "px";
    menu.style.top = Math.max(8, Math.min(box.bottom + 6, innerHeight - menu.offsetHeight - 8)) + "px";
    menu.querySelector("button, input").focus();
    menu.onclose = () => button.isConnected && button.focus();
  }
  menu.addEventListener("keydown", event => { if (event.key === "Escape") menu.close(); });

  // Heads: the inspector writes its selection into the address of the page.
  offHead.onclick = () => {
    const chosen = new URLSearchParams(location.hash.slice(1)), head = +chosen.get("head");
    if (!chosen.has("head") || head < 0 || chosen.get("method") !== "attention") return say("Choose a single head below first: a picture in the strip under the heat map.");
    const one = { kind: chosen.get("kind"), layer: +chosen.get("layer"), head };
    if (!off.some(other => JSON.stringify(other) === JSON.stringify(one))) off.push(one);
    drawHeads();
    translate();
  };
  function drawHeads() {
    heads.replaceChildren(...off.map(one => make("li", {}, make("button", { type: "button", title: "switch on again", onclick: () => { off = off.filter(other => other !== one); drawHeads(); translate(); } }, `${one.kind}, layer ${one.layer}, head ${one.head} ×`))));
  }

  // Files
  async function send(chosen) {
    if (!chosen) return;
    const form = new FormData();
    form.append("file", chosen);
    form.append("source", model.source);
    form.append("target", model.target);
    form.append("model", model.name);
    result.textContent = `Translating ${chosen.name} …`;
    try {
      const answer = await (await call("translate_file", form)).json();
      result.replaceChildren(make("a", { href: new URL(answer.translatedFileUrl).pathname, download: "" }, `Download the translation of ${chosen.name}`));
    } catch (error) {
      result.textContent = "";
      failed(error);
    }
  }
  file.onchange = () => send(file.files[0]);
  drop.ondragover = event => { event.preventDefault(); drop.classList.add("over"); };
  drop.ondragleave = () => drop.classList.remove("over");
  drop.ondrop = event => { event.preventDefault(); drop.classList.remove("over"); send(event.dataTransfer.files[0]); };

  // History
  const key = "regard-history-" + model.name;
  function remember(text, translation) {
    const entries = stored(key, []).filter(([old]) => old !== text && !text.startsWith(old));
    store(key, [[text, translation], ...entries].slice(0, 20));
    drawHistory();
  }
  function drawHistory() {
    const entries = stored(key, []);
    past.replaceChildren(...entries.map(([text, translation]) => make("li", {}, make("button", { type: "button", dir: "auto", onclick: () => { source.value = text; prefix = ""; translate(); source.focus(); } }, `${text} → ${translation}`))));
    if (entries.length) past.append(make("li", { class: "tools" }, make("button", { type: "button", onclick: () => { store(key, []); drawHistory(); } }, "Clear the history")));
  }

  source.addEventListener("input", () => { prefix = ""; clearTimeout(timer); timer = setTimeout(translate, 400); });
  glossary.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(translate, 600); });
  view.replaceChildren(
    make("div", { class: "sides" },
      make("div", { class: "side" }, make("label", { for: "source" }, nameOf(model.source)), source),
      make("div", { class: "side" }, make("h2", {}, nameOf(model.target)), written)),
    note, linked, others, read, menu, why,
    make("details", { class: "more" }, make("summary", {}, "Glossary"), glossary),
    make("details", { class: "more" }, make("summary", {}, "A file"), drop),
    make("details", { class: "more" }, make("summary", {}, "History, kept in this browser alone"), past));
  drawHistory();
  entitle("Translate and see why");
  source.focus();
}

// A gpt

function writerView(model) {
  const prompt = make("textarea", { id: "prompt", dir: "auto", placeholder: "The beginning of a text" }), text = make("div", { class: "written", dir: "auto", role: "group", "aria-label": "continuation" });
  const tokens = make("input", { type: "number", min: 1, max: 4096, value: 100 }), temperature = make("input", { type: "number", min: 0, max: 2, step: .1, value: .8 });
  const go = make("button", { type: "button" }, "Continue"), stop = make("button", { type: "button", disabled: true }, "Stop"), trace = make("button", { type: "button" }, "Show attention");
  const inspectors = make("div"), read = make("p", { class: "aside", "aria-live": "polite" });
  let request = null;
  go.onclick = async () => {
    request = new AbortController();
    go.disabled = true;
    stop.disabled = false;
    text.replaceChildren(make("b", {}, prompt.value));
    try {
      const answer = await call("v1/completions", { model: model.name, prompt: prompt.value, max_tokens: +tokens.value, temperature: +temperature.value, stream: true }, request.signal);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        for (const event of events) if (!event.endsWith("[DONE]")) text.append(JSON.parse(event.slice(6)).choices[0].text);
      }
      read.textContent = text.textContent;
    } catch (error) {
      failed(error);
    }
    go.disabled = false;
    stop.disabled = true;
  };
  stop.onclick = () => request?.abort();
  trace.onclick = () => traceInto(inspectors, model, prompt.value);
  view.replaceChildren(
    make("div", { class: "sides" }, make("div", { class: "side" }, make("label", { for: "prompt" }, "prompt"), prompt), make("div", { class: "side" }, make("h2", {}, "continuation"), text)),
    make("div", { class: "tools" }, make("label", {}, "tokens ", tokens), make("label", {}, "temperature ", temperature), go, stop, trace), read, inspectors);
  entitle("Continue a text and see why");
  prompt.focus();
}

// A bert

function readerView(model) {
  const text = make("textarea", { id: "text", dir: "auto", placeholder: "Write [MASK] in place of a word" }), gaps = make("div", { "aria-live": "polite" });
  const go = make("button", { type: "button" }, "Fill in"), trace = make("button", { type: "button" }, "Show attention"), mask = make("button", { type: "button" }, "Insert [MASK]"), inspectors = make("div");
  mask.onclick = () => { text.setRangeText("[MASK]", text.selectionStart, text.selectionEnd, "end"); text.focus(); };
  go.onclick = async () => {
    try {
      const answer = await (await call("fill", { model: model.name, text: text.value, top: 8 })).json();
      gaps.replaceChildren(make("p", { class: "written filled", dir: "auto" }, answer.text), ...answer.gaps.map((guesses, number) => make("section", { class: "gap" }, make("h2", {}, `Gap ${number + 1}`), ...guesses.map(guess => { const bar = make("div", { class: "bar" }); bar.style.setProperty("--v", guess.probability); return make("div", { class: "guess" }, make("bdi", {}, guess.text), bar, make("span", {}, inPercent(guess.probability))); }))));
    } catch (error) {
      failed(error);
    }
  };
  trace.onclick = () => traceInto(inspectors, model, text.value);
  view.replaceChildren(make("div", { class: "side" }, make("label", { for: "text" }, "text with gaps"), text), make("div", { class: "tools" }, mask, go, trace), gaps, inspectors);
  entitle("Fill gaps and see why");
  text.focus();
}

async function traceInto(holder, model, text) {
  try {
    const answer = await (await call("trace", { model: model.name, q: text, view: "page" })).json();
    holder.replaceChildren(...answer.parts.map((part, number) => inspectorOf(part.trace, "Attention", number, true)));
  } catch (error) {
    failed(error);
  }
}

// The models of the server

async function begin() {
  try {
    const { data } = await (await call("v1/models")).json();
    const list = bar.elements.model;
    list.replaceChildren(...data.map(model => make("option", { value: model.id }, model.source ? `${model.id}: ${nameOf(model.source)} to ${nameOf(model.target)}` : model.id === model.family ? model.id : `${model.id}: ${model.family}`)));
    list.onchange = () => {
      const { id, ...model } = data.find(one => one.id === list.value);
      say("");
      ({ gpt: writerView, bert: readerView }[model.family] || translatorView)({ name: id, ...model });
    };
    list.onchange();
  } catch (error) {
    failed(error);
  }
}
bar.elements.key.onchange = begin;
begin();
