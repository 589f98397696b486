// inspect(holder, data, number) draws a trace into an element. `data` comes from inspector.contents or film.page.
//
// One selection is shared by words, heat map, lines, steps and heads: { map, layer, head, frame, row, column }. `row` is a word that
// attends (of a translation: a step), `column` a word that is attended to; either may be null. change() is the only way to change it.
// It redraws what depends on it and writes it into the address of the page.

function inspect(holder, data, number) {
  const METHODS = { attention: "attention", rollout: "attention rollout", value: "value-weighted attention", gradient: "integrated gradients", ablation: "ablation" };
  const KINDS = { cross: "source → target", encoder: data.family === "bert" ? "text → text" : "source → source", decoder: data.family === "gpt" ? "before → written" : "target → target" };
  const NAMES = { cross: ["source", data.family === "film" ? "reference" : "translation"], encoder: ["read", data.family === "bert" ? "text" : "source"], decoder: data.family === "gpt" ? ["read", "continuation"] : ["before", "translation"] };
  const maps = data.maps.map(map => ({ ...map, numbers: map.bits === 8 ? bytes(map.values) : new Uint16Array(bytes(map.values).buffer) }));
  const steps = data.steps || [], tree = data.tree || [], frames = data.frames || [];
  const root = make("div", { class: "rg" }), said = make("p", { class: "aside", "aria-live": "polite" });
  const wide = matchMedia("(min-width: 60rem)"), still = matchMedia("(prefers-reduced-motion: reduce)");
  let now = { map: 0, layer: data.layer, head: data.head, frame: Math.max(frames.length - 1, 0), row: data.focus ?? null, column: null };
  let pointed = null;  // what the pointer or the focus is on, instead of the selection
  let writing = false;  // words after the current step are faint
  let cells = null, grid = null;  // the values of the picture shown, row after row; the heat map

  // Values

  const percent = share => share > 0 && share < .001 ? "<0.1\u00a0%" : (100 * share).toFixed(share < .0995 ? 1 : 0) + "\u00a0%";
  const map = () => maps[now.map];
  const rows = () => maps.length ? map().rows : data.target, columns = () => maps.length ? map().columns : data.source;
  const at = (row, column) => cells[row * columns().words.length + column];
  const figure = value => !maps.length || ["weight", "share"].includes(map().unit) ? value.toFixed(2) : Math.abs(value) < .005 ? "0" : value.toFixed(Math.abs(value) < 10 ? 2 : 1).replace("-", "−");
  const isWritten = () => data.family === "bert" || !maps.length || map().kind !== "encoder";
  const stepsOf = row => isWritten() ? steps.filter(step => step[0] === row) : [];
  const probability = row => { const own = stepsOf(row); return own.length ? Math.exp(own.reduce((sum, step) => sum + step[2], 0)) : null; };
  const strongest = (length, value, most = 4) => [...Array(length).keys()].sort((a, b) => Math.abs(value(b)) - Math.abs(value(a))).slice(0, most).filter(place => Math.abs(value(place)) >= .05 * (maps.length ? map().high : 1));

  function picture(shown, layer, head, frame = now.frame) {  // head -1: all heads combined, which come after the last one
    const size = shown.rows.words.length * shown.columns.words.length, pictures = shown.heads < 2 ? 1 : shown.heads + 1;
    const start = ((frame * shown.layers + layer) * pictures + (head < 0 ? pictures - 1 : head)) * size;
    const most = shown.bits === 8 ? 255 : 65535;
    return Float32Array.from(shown.numbers.subarray(start, start + size), value => shown.low + (shown.high - shown.low) * value / most);
  }

  // The selection

  function change(to, tell = true) {
    const before = now;
    now = { ...now, ...to };
    if (maps.length) {
      if (now.map !== before.map) {
        if (map().layers !== maps[before.map].layers) now.layer = map().layers - (map().layers > 2 ? 2 : 1);
        if (map().kind !== maps[before.map].kind) now.row = now.column = null;
      }
      now.layer = Math.min(Math.max(now.layer, 0), map().layers - 1);
      if (now.head >= map().heads) now.head = -1;
    }
    const clamp = (place, side) => place === null || place < 0 || place >= side.words.length ? null : place;
    now.row = clamp(now.row, rows());
    now.column = clamp(now.column, columns());
    pointed = null;
    const same = name => now[name] === before[name];
    if (!same("map") || !cells) drawAll();
    else if (!same("layer") || !same("head") || !same("frame")) repaint();
    show();
    if (tell) { remember(); said.textContent = sentenceAbout(now.row, now.column); }
  }
  function point(row, column) {
    pointed = row === null && column === null ? null : { row, column };
    show();
  }
  const active = () => pointed || now;

  function remember() {
    const { method, kind } = maps.length ? map() : {};
    const values = { t: number, method, kind, layer: now.layer, head: now.head, row: now.row, column: now.column, frame: frames.length ? now.frame : null };
    const hash = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== null && value !== undefined)).toString();
    try { history.replaceState(null, "", "#" + hash); } catch { /* a page inside another one has no address */ }
  }
  function recall() {
    const saved = new URLSearchParams(location.hash.slice(1)), to = {};
    if (+saved.get("t") !== number || !saved.has("t")) return false;
    for (const name of ["layer", "head", "row", "column", "frame"]) if (/^-?\d+$/.test(saved.get(name) ?? "")) to[name] = +saved.get(name);
    to.frame = Math.min(Math.max(to.frame ?? now.frame, 0), Math.max(frames.length - 1, 0));
    const found = maps.findIndex(one => one.method === saved.get("method") && one.kind === saved.get("kind"));
    if (found >= 0) change({ map: found }, false);
    change(to, false);
    return true;
  }

  // Sentences: the words that are attended to above the words that attend, with lines between them

  const lines = make("svg:svg", { class: "links", "aria-hidden": "true" }), tip = make("div", { class: "tip", role: "tooltip", hidden: true });
  const above = make("div", { class: "sentence", role: "group", dir: "auto" }), below = make("div", { class: "sentence", role: "group", dir: "auto" });
  const aboveName = make("span", { class: "name" }), belowName = make("span", { class: "name" });
  const pair = make("div", { class: "pair" }, aboveName, above, belowName, below, lines, tip), marks = make("p", { class: "soft" });

  function drawSentences() {
    const names = NAMES[maps.length ? map().kind : "cross"];
    aboveName.textContent = names[0];
    belowName.textContent = names[1];
    above.setAttribute("aria-label", names[0]);
    below.setAttribute("aria-label", names[1]);
    above.replaceChildren(...wordButtons(columns(), "column"));
    below.replaceChildren(...wordButtons(rows(), "row"));
    marks.textContent = [below.querySelector(".doubt") && "dotted: less than 50 % probable", above.querySelector(".uncovered") && "wavy: hardly any attention"].filter(Boolean).join(" · ");
  }
  function wordButtons(side, axis) {
    const parts = [];
    side.words.forEach((text, place) => {
      const share = axis === "row" ? probability(place) : null;
      const classes = [share !== null && share < .5 && !side.special[place] ? "doubt" : "", axis === "column" && map()?.kind === "cross" && (data.uncovered || []).includes(place) ? "uncovered" : ""];
      const button = word(side, place, "button", { type: "button", class: classes.join(" "), "aria-pressed": "false", tabindex: place ? -1 : 0 });
      button.dataset[axis] = place;
      if (place && !/^[\p{Pe}\p{Pf}.,;:!?…%]+$/u.test(text)) parts.push(" ");
      parts.push(button);
    });
    return parts;
  }
  const placeOf = button => button.dataset.row !== undefined ? { row: +button.dataset.row, column: null } : { row: null, column: +button.dataset.column };
  const buttonOf = event => event.target.closest(".sentence button");
  pair.addEventListener("pointerover", event => { const button = buttonOf(event); if (event.pointerType === "touch") return; const place = button && placeOf(button); if (place) point(place.row, place.column); else point(null, null); });
  pair.addEventListener("pointerleave", () => point(null, null));
  pair.addEventListener("focusin", event => { const button = buttonOf(event); if (button && button.matches(":focus-visible")) { const { row, column } = placeOf(button); writing = false; change({ row, column }); } });
  pair.addEventListener("click", event => {
    const button = buttonOf(event);
    writing = false;
    if (!button) return change({ row: null, column: null });
    const { row, column } = placeOf(button);
    if (now.row === row && now.column === column) change({ row: null, column: null }); else change({ row, column });
    sheet.classList.toggle("open", now.row !== null || now.column !== null);
  });
  pair.addEventListener("keydown", event => {
    const button = buttonOf(event), line = event.target.closest(".sentence");
    if (!button) return;
    const all = [...line.querySelectorAll("button")], place = all.indexOf(button), forward = getComputedStyle(line).direction === "rtl" ? -1 : 1;
    const other = line === above ? below : above;
    const next = { ArrowRight: all[place + forward], ArrowLeft: all[place - forward], Home: all[0], End: all.at(-1), ArrowDown: other === below && other.querySelector("[tabindex='0']"), ArrowUp: other === above && other.querySelector("[tabindex='0']") }[event.key];
    if (event.key === "Escape") { button.blur(); change({ row: null, column: null }); }
    if (!next) return;
    event.preventDefault();
    next.focus();
  });

  function showSentences() {
    const { row, column } = active(), high = maps.length ? map().high : 1;
    const share = value => Math.min(Math.abs(value) / high, 1);
    for (const button of pair.querySelectorAll(".sentence button")) {
      const { row: r, column: c } = placeOf(button);
      const chosen = r !== null ? r === row : c === column;
      const value = !cells || chosen || (row === null && column === null) ? 0 : c !== null && row !== null && column === null ? at(row, c) : r !== null && column !== null && row === null ? at(r, column) : 0;
      button.classList.toggle("chosen", chosen);
      button.classList.toggle("minus", value < 0);
      button.classList.toggle("strong", share(value) > .55);
      button.classList.toggle("unwritten", writing && now.row !== null && r !== null && r > now.row);
      button.style.setProperty("--v", share(value).toFixed(3));
      button.setAttribute("aria-pressed", String(r !== null ? r === now.row : c === now.column));
    }
    for (const [line, place] of [[above, now.column], [below, now.row]]) [...line.querySelectorAll("button")].forEach((button, index) => { button.tabIndex = index === (place ?? 0) ? 0 : -1; });
    drawLines(row, column, share);
    drawTip(row, column);
  }
  function drawLines(row, column, share) {
    const box = pair.getBoundingClientRect(), found = [];
    lines.setAttribute("viewBox", `0 0 ${box.width || 1} ${box.height || 1}`);
    if (cells) {
      const pairs = row !== null && column !== null ? [[row, column]] : row !== null ? columns().words.map((_, c) => [row, c]) : column !== null ? rows().words.map((_, r) => [r, column]) : [];
      for (const [r, c] of pairs) {
        const value = at(r, c);
        if (share(value) < .05) continue;
        const from = above.querySelector(`[data-column="${c}"]`).getBoundingClientRect(), to = below.querySelector(`[data-row="${r}"]`).getBoundingClientRect();
        const [x1, y1, x2, y2] = [from.x + from.width / 2 - box.x, from.bottom - box.y, to.x + to.width / 2 - box.x, to.y - box.y], middle = (y1 + y2) / 2;
        found.push(make("svg:path", { d: `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`, class: value < 0 ? "minus" : "", "stroke-width": (1 + 5 * share(value)).toFixed(2), opacity: (.25 + .75 * share(value)).toFixed(2) }));
      }
    }
    lines.replaceChildren(...found);
  }
  function drawTip(row, column) {
    tip.hidden = !pointed || !maps.length || (row !== null && column !== null);
    if (tip.hidden) return;
    tip.replaceChildren(...tipParts(row, column));
    const box = pair.getBoundingClientRect(), button = (row !== null ? below : above).querySelector(row !== null ? `[data-row="${row}"]` : `[data-column="${column}"]`).getBoundingClientRect();
    tip.style.left = Math.max(0, Math.min(button.x + button.width / 2 - box.x - tip.offsetWidth / 2, box.width - tip.offsetWidth)) + "px";
    tip.style.top = (row !== null ? button.bottom - box.y + 8 : button.y - box.y - tip.offsetHeight - 8) + "px";
  }
  function tipParts(row, column) {
    const axis = row !== null, own = axis ? rows() : columns(), other = axis ? columns() : rows();
    const value = place => axis ? at(row, place) : at(place, column);
    const parts = [make("b", {}, word(own, axis ? row : column)), make("span", {}, (axis ? " ← " : " → ") + (strongest(other.words.length, value, 3).map(place => `${other.words[place]} ${figure(value(place))}`).join(", ") || "nothing above 0.05"))];
    const share = axis ? probability(row) : null;
    if (share !== null) parts.push(make("p", {}, `probability ${percent(share)}`, ...alternatives(row).slice(0, 2).flatMap(([text, own], place) => [place ? ", " : "; instead: ", make("bdi", {}, text), " " + percent(own)])));
    return parts;
  }
  function alternatives(row) {  // [text, probability] of what could stand at the least probable token of a word
    const own = stepsOf(row);
    if (!own.length) return [];
    const least = own.reduce((low, step) => step[2] < low[2] ? step : low), before = own.slice(0, own.indexOf(least)).map(step => step[1]).join("").trim();
    const shares = new Map();  // all tokens that begin another word are one alternative: the word ends here
    for (const [text, log] of least[3]) {
      if (text === least[1] || log <= Math.log(.005)) continue;
      const whole = text === "</s>" ? before || "end" : before && /^\s/.test(text) ? before : before + text.trim() || "␣";
      shares.set(whole, (shares.get(whole) || 0) + Math.exp(log));
    }
    return [...shares].sort((one, other) => other[1] - one[1]);
  }
  function sentenceAbout(row, column) {
    if (row === null && column === null) return "";
    const one = row !== null && rows().words[row], other = column !== null && columns().words[column];
    if (!cells) return one || other;
    if (one && other) return `${one}, from ${other}: ${figure(at(row, column))} ${map().unit}`;
    const side = row !== null ? columns() : rows(), best = strongest(side.words.length, place => row !== null ? at(row, place) : at(place, column), 2);
    return `${one || other}: ${best.map(place => `${side.words[place]} ${figure(row !== null ? at(row, place) : at(place, column))}`).join(", ")}`;
  }

  // Players: a slider with a button that moves it along, for the steps of a sentence and the frames of a film

  function player(name, count, pace, set) {
    let timer = 0;
    const button = make("button", { type: "button", "aria-label": "play " + name, onclick: () => timer ? stop() : start() }, "▶");
    const range = make("input", { type: "range", min: 0, max: count - 1, step: 1, "aria-label": name, oninput: () => { stop(); set(+range.value); } });
    const label = make("output", {});
    function start() {
      if (+range.value >= count - 1) set(0);
      button.textContent = "❚❚";
      button.setAttribute("aria-label", "pause " + name);
      timer = setInterval(() => { if (+range.value >= count - 1) stop(); else set(+range.value + 1); }, pace);
    }
    function stop() {
      clearInterval(timer);
      timer = 0;
      button.textContent = "▶";
      button.setAttribute("aria-label", "play " + name);
      if (name === "step" && writing && +range.value >= count - 1) { writing = false; show(); }
    }
    return { stop, box: make("div", { class: "player" }, button, range, label), update: (value, text) => { range.value = value; label.textContent = text; range.setAttribute("aria-valuetext", text); } };
  }
  let stepPlayer = null;
  const stepHolder = make("div", {});
  const framePlayer = frames.length > 1 ? player("frame", frames.length, 450, frame => change({ frame })) : null;
  function drawStepPlayer() {
    const count = rows().words.length;
    stepPlayer?.stop();
    writing = false;
    stepPlayer = count > 1 ? player("step", count, still.matches ? 1200 : 700, row => { writing = isWritten() && data.family !== "bert"; change({ row, column: null }); }) : null;
    stepHolder.replaceChildren(...stepPlayer ? [stepPlayer.box] : []);
  }
  function showPlayers() {
    if (stepPlayer) stepPlayer.update(now.row ?? 0, now.row === null ? `${rows().words.length} words` : `${now.row + 1} of ${rows().words.length}: ${rows().words[now.row]}`);
    if (framePlayer) framePlayer.update(now.frame, frames[now.frame]);
  }

  // The heat map, its controls, and all heads as small pictures

  const [methodLabel, methodList] = select("method", { "data-control": "method" });
  const [kindLabel, kindList] = select("words", { "data-control": "kind" });
  const [layerLabel, layerList] = select("layer", { "data-control": "layer" });
  const [headLabel, headList] = select("head", { "data-control": "head" });
  const numbers = make("input", { type: "checkbox", onchange: () => grid.table.classList.toggle("figures", numbers.checked) });
  const meaning = make("p", { class: "soft" }), where = make("span", {}), place = make("div", { class: "slide", tabindex: 0, "aria-label": "heat map" }), legend = make("div", {}), heads = make("div", { class: "heads", role: "group", "aria-label": "layers and heads" });
  const controls = make("details", { class: "controls", open: wide.matches }, make("summary", {}, where), make("div", {}, methodLabel, kindLabel, layerLabel, headLabel, make("label", {}, numbers, "numbers")), meaning);
  methodList.onchange = () => change({ map: Math.max(maps.findIndex(one => one.method === methodList.value && one.kind === map().kind), maps.findIndex(one => one.method === methodList.value)) });
  kindList.onchange = () => change({ map: maps.findIndex(one => one.method === map().method && one.kind === kindList.value) });
  layerList.onchange = () => change({ layer: +layerList.value });
  headList.onchange = () => change({ head: +headList.value });

  function drawControls() {
    const shown = map(), put = (list, values) => list.replaceChildren(...values.map(([value, text]) => new Option(text, value)));
    put(methodList, [...new Set(maps.map(one => one.method))].map(name => [name, METHODS[name] || name]));
    put(kindList, maps.filter(one => one.method === shown.method).map(one => [one.kind, KINDS[one.kind]]));
    put(layerList, [...Array(shown.layers).keys()].map(layer => [layer, layer]));
    put(headList, [[-1, shown.method === "value" ? "together" : "mean of all"], ...[...Array(shown.heads).keys()].map(head => [head, head])]);
    methodLabel.hidden = methodList.length < 2;
    kindLabel.hidden = kindList.length < 2;
    layerLabel.hidden = shown.layers < 2;
    headLabel.hidden = shown.heads < 2;
    meaning.textContent = shown.meaning[0].toUpperCase() + shown.meaning.slice(1);
  }
  function showControls() {
    methodList.value = map().method;
    kindList.value = map().kind;
    layerList.value = now.layer;
    headList.value = now.head;
    where.textContent = [METHODS[map().method], maps.length > 1 && KINDS[map().kind], map().layers > 1 && "layer " + now.layer, map().heads > 1 && (now.head < 0 ? "mean of all heads" : "head " + now.head)].filter(Boolean).join(" · ");
  }
  function drawMap() {
    const shown = map();
    grid = heatMap({ rows: shown.rows, columns: shown.columns, values: cells, high: shown.high, room: place.clientWidth || root.clientWidth - 40 || 600, figure, label: "heat map", onpoint: point, onchoose: (row, column) => { writing = false; change({ row, column }); } });
    grid.table.classList.toggle("figures", numbers.checked);
    place.replaceChildren(grid.table);
    legend.replaceChildren(heatScale(shown.low < 0 ? "−" + figure(shown.high) : "0", `${figure(shown.high).replace(/\.00$/, "")} ${shown.unit}`));
  }
  function drawHeads() {
    const shown = map();
    heads.hidden = shown.layers * shown.heads < 2;
    if (heads.hidden) return;
    const colour = name => { const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true }); pen.fillStyle = getComputedStyle(root).getPropertyValue(name).trim(); pen.fillRect(0, 0, 1, 1); return [...pen.getImageData(0, 0, 1, 1).data]; };
    const low = colour("--low"), poles = [colour("--high"), colour("--minus")], parts = [];
    for (let layer = 0; layer < shown.layers; layer++) for (let head = 0; head < shown.heads; head++) {
      const values = picture(shown, layer, head), canvas = make("canvas", { width: shown.columns.words.length, height: shown.rows.words.length, "aria-hidden": "true" });
      const pen = canvas.getContext("2d"), image = pen.createImageData(canvas.width, canvas.height);
      values.forEach((value, i) => { const share = Math.min(Math.abs(value) / shown.high, 1), pole = poles[value < 0 ? 1 : 0]; for (let c = 0; c < 3; c++) image.data[4 * i + c] = low[c] + share * (pole[c] - low[c]); image.data[4 * i + 3] = 255; });
      pen.putImageData(image, 0, 0);
      const name = [shown.layers > 1 && "layer " + layer, shown.heads > 1 && "head " + head].filter(Boolean).join(", ");
      const button = make("button", { type: "button", "aria-pressed": "false", "aria-label": name, onclick: () => change(now.layer === layer && now.head === head ? { head: -1 } : { layer, head: shown.heads > 1 ? head : -1 }) }, canvas, make("span", {}, name));
      button.addEventListener("pointerenter", () => { button.title = `${name}: ${strongLinks(shown, values)}`; });
      button.dataset.place = `${layer} ${head}`;
      parts.push(button);
    }
    heads.style.setProperty("--many", Math.min(shown.heads > 1 ? shown.heads : shown.layers, 8));
    heads.replaceChildren(...parts);
  }
  function strongLinks(shown, values) {  // the words of the chosen row, else the strongest of the picture
    const width = shown.columns.words.length, inRow = now.row === null ? [...values.keys()] : [...Array(width).keys()].map(column => now.row * width + column);
    return inRow.sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, 3).map(i => `${shown.rows.words[Math.floor(i / width)]} ← ${shown.columns.words[i % width]} ${figure(values[i])}`).join(", ");
  }
  function showHeads() {
    for (const button of heads.children) button.setAttribute("aria-pressed", String(button.dataset.place === `${now.layer} ${map().heads > 1 ? now.head : 0}`));
  }

  // The chosen word: what it attended to, its probability and what else was probable. A sheet at the bottom of a phone

  const sheet = make("aside", { class: "box sheet", "aria-label": "the chosen word" });
  const close = make("button", { type: "button", class: "close", "aria-label": "close", onclick: () => { sheet.classList.remove("open"); change({ row: null, column: null }); } }, "×");
  function showSheet() {
    const { row, column } = active(), parts = [close];
    if (row === null && column === null) parts.push(make("p", { class: "soft" }, "Point at a word or a cell, or step through the sentence, to see what belongs together."));
    const list = (title, items) => { if (items.length) parts.push(make("h3", {}, title), make("ul", { class: "bars" }, ...items.map(([name, share, text, minus]) => { const bar = make("div", { class: "bar" + (minus ? " minus" : ""), "aria-hidden": "true" }); bar.style.setProperty("--v", Math.min(share, 1).toFixed(3)); return make("li", {}, name, bar, make("span", {}, text)); }))); };
    const links = (side, value, other) => strongest(side.words.length, value, 5).map(one => [make("b", {}, word(side, one), one === other ? " •" : ""), Math.abs(value(one)) / map().high, figure(value(one)), value(one) < 0]);
    if (row !== null) {
      parts.push(make("h2", {}, word(rows(), row)));
      if (cells) list(`from, ${map().unit}`, links(columns(), c => at(row, c), column));
      const own = stepsOf(row);
      list(own.length > 1 ? "probability of its tokens" : "probability", own.slice(0, 9).map(step => [make("bdi", {}, step[1] === "</s>" ? "end" : step[1].trim() || "␣"), Math.exp(step[2]), percent(Math.exp(step[2]))]));
      list("instead", alternatives(row).map(([text, share]) => [make("bdi", {}, text), share, percent(share)]));
    } else if (column !== null) {
      parts.push(make("h2", {}, word(columns(), column)));
      if (cells) list(`to, ${map().unit}`, links(rows(), r => at(r, column)));
      if ((data.uncovered || []).includes(column) && map()?.kind === "cross") parts.push(make("p", { class: "soft" }, "Hardly any attention went to it: it may be untranslated."));
    }
    sheet.replaceChildren(...parts);
  }

  // The beam: a tree of words from left to right

  const beam = make("div", { class: "slide", tabindex: 0, "aria-label": "beam search" });
  const spaced = tree.some(step => step.some(([, piece]) => /^\s/.test(piece)));
  const startsWord = piece => !spaced || /^\s/.test(piece) || piece === "</s>" || /^[\p{Pe}\p{Pf}.,;:!?…]/u.test(piece);
  const children = (depth, parent) => (tree[depth] || []).map((branch, index) => ({ depth, index, branch })).filter(one => one.branch[0] === parent);
  function wordsFrom(branches, log) {  // the words that begin with these branches, the written one first, then by probability
    const found = [];
    const complete = ({ depth, index, branch }, text, written) => {
      const [, piece, total, kept] = branch, after = kept ? children(depth + 1, index) : [];
      text += piece;
      written = written && data.chosen[depth] === index;
      const [inside, next] = [after.filter(one => !startsWord(one.branch[1])), after.filter(one => startsWord(one.branch[1]))];
      if (next.some(one => one.branch[3]) || !inside.some(one => one.branch[3])) found.push({ text: text.trim() || piece, total, share: Math.exp(total - log), kept, written, next: wordsFrom(next, total) });
      inside.forEach(one => complete(one, text, written));
    };
    branches.forEach(one => complete(one, "", true));
    const finished = node => (node.kept && node.text === "</s>") || node.next.some(finished);
    return found.filter(node => Math.exp(node.total) >= .01 || finished(node)).sort((a, b) => b.written - a.written || b.kept - a.kept || b.share - a.share);
  }
  function drawBeam() {
    const STEP = 26, GAP = 32, nodes = [], widths = [], floor = [], first = wordsFrom(children(0, -1), 0);  // floor: the first free line at each depth
    const free = (node, depth) => node ? Math.max(floor[depth] || 0, free(node.next[0], depth + 1)) : 0;
    const place = (node, depth, parent, line) => {
      Object.assign(node, { depth, parent, y: (line + .5) * STEP });
      floor[depth] = line + 1;
      node.shown = node.text === "</s>" ? "end" : node.text;
      node.width = textWidth(node.shown) * (node.written ? 1.1 : 1) + textWidth(percent(node.share)) * .82 + 12;
      widths[depth] = Math.max(widths[depth] || 0, node.width);
      nodes.push(node);
      node.next.forEach((one, index) => place(one, depth + 1, node, index ? free(one, depth + 1) : line));
    };
    first.forEach(one => place(one, 0, null, free(one, 0)));
    const starts = widths.reduce((list, width) => [...list, list.at(-1) + width + GAP], [4]);
    const width = starts.at(-1), height = Math.max(...floor, 0) * STEP + 4;
    const drawing = make("svg:svg", { class: width < 1400 ? "fits" : "", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `beam search: ${nodes.filter(one => one.kept && one.shown === "end").length} finished translations, ${nodes.filter(one => !one.kept).length} dropped words` });
    for (const node of nodes) {
      const x = starts[node.depth], classes = (node.written ? "written" : "") + (node.kept ? "" : " dropped");
      if (node.parent) {
        const from = starts[node.parent.depth] + node.parent.width, middle = (from + x) / 2;
        drawing.append(make("svg:path", { class: classes, d: `M${from} ${node.parent.y}C${middle} ${node.parent.y} ${middle} ${node.y} ${x - 4} ${node.y}`, "stroke-width": (1 + 5 * node.share).toFixed(2) }));
      }
      drawing.append(make("svg:text", { class: classes, x, y: node.y + 4, "data-depth": node.depth }, node.shown, make("svg:tspan", { dx: 5 }, percent(node.share))));
    }
    beam.replaceChildren(drawing);
  }
  function showBeam() {
    if (!tree.length || !isWritten()) return;
    const texts = [...beam.querySelectorAll("text.written")];
    beam.querySelectorAll("text").forEach(text => text.classList.toggle("now", +text.dataset.depth === now.row));
    const current = texts.find(text => +text.dataset.depth === now.row);
    if (current) beam.scrollTo({ left: Math.max(0, current.getAttribute("x") - beam.clientWidth / 3), behavior: still.matches ? "auto" : "smooth" });
  }

  // All together

  function drawAll() {
    if (maps.length) {
      cells = picture(map(), now.layer, now.head);
      drawControls();
      drawMap();
      drawHeads();
    }
    drawSentences();
    drawStepPlayer();
  }
  function repaint() {
    cells = picture(map(), now.layer, now.head);
    grid.paint(cells);
    if (frames.length) drawHeads();
  }
  function show() {
    const { row, column } = active();
    if (maps.length) {
      showControls();
      showHeads();
      grid.mark(row, column, !pointed);
      if (!pointed && (row !== null || column !== null)) grid.reveal(row ?? strongest(rows().words.length, r => at(r, column))[0] ?? 0, column ?? strongest(columns().words.length, c => at(row, c))[0] ?? 0);
    }
    showSentences();
    showPlayers();
    showSheet();
    showBeam();
  }

  root.append(make("section", { class: "box first", "aria-label": "sentence" },
    data.summary && holder.closest("details") ? make("p", { class: "summary", dir: "auto" }, data.summary) : null,
    data.warnings?.length ? make("ul", { class: "warnings", "aria-label": "warnings" }, ...data.warnings.map(message => make("li", { dir: "auto" }, message))) : null,
    framePlayer?.box, pair, marks, stepHolder));
  if (maps.length) root.append(make("div", { class: "columns" }, make("section", { class: "box", "aria-label": "attention" }, controls, place, legend, heads), sheet));
  else root.append(make("p", { class: "soft" }, "This model has no attention: an rnn with model.score = none reads the source into one vector. regard explain with --method gradient or ablation shows what its words depend on."), sheet);
  if (tree.length) root.append(make("section", { class: "box", "aria-label": "beam" }, make("h2", {}, "Beam search"), make("p", { class: "soft" }, "The words that were considered, with their probabilities after the words before them. Faint: dropped by the search."), beam));
  root.append(said);
  root.addEventListener("click", event => { if (!event.target.closest(".player")) stepPlayer?.stop(); }, true);  // what is chosen stays chosen
  holder.append(root);
  if (tree.length) drawBeam();
  if (!recall()) change({}, false);

  let width = root.clientWidth;
  new ResizeObserver(() => { if (Math.abs(root.clientWidth - width) < 4) return; width = root.clientWidth; if (maps.length) drawMap(); show(); }).observe(root);
  document.addEventListener("colours", () => { if (maps.length) { drawHeads(); showHeads(); } });
  addEventListener("hashchange", recall);
}

document.querySelectorAll(".inspector").forEach((holder, number) => {
  const details = holder.closest("details"), open = () => inspect(holder, dataOf(holder), number);
  if (details && new URLSearchParams(location.hash.slice(1)).get("t") === String(number)) details.open = true;
  if (details && !details.open) details.addEventListener("toggle", open, { once: true }); else open();
});
