// regardInspect(holder, data, alone) draws a trace into an element; data is what inspector.contents gave. Alone it also shows the
// source, which else stands beside it.
function regardInspect(holder, data, alone) {
  const root = make("div", { class: "rg" });
  holder.append(root);
  const percent = share => share > 0 && share < .001 ? "<0.1\u00a0%" : (100 * share).toFixed(share < .0995 ? 1 : 0) + "\u00a0%";
  const minus = value => (Math.abs(value) < .005 ? 0 : value).toFixed(2).replace("-", "−");
  const unique = "rg" + (regardInspect.count = (regardInspect.count || 0) + 1) + "-";
  const KINDS = { cross: "target ← source", encoder: data.family === "bert" ? "word ← word" : "source ← source", decoder: data.family === "gpt" ? "written ← all before" : "target ← target before" };
  const METHODS = { attention: "attention", rollout: "attention rollout", value: "value-weighted attention", gradient: "integrated gradients", ablation: "ablation" };

  const maps = data.maps.map(map => ({ ...map, numbers: new Uint16Array(bytes(map.values).buffer) }));
  const now = { map: 0, layer: data.layer, head: data.head, row: 0, column: 0, figures: false };
  const stepRows = [], redraw = [];
  const spaced = data.steps.some(([, piece]) => /^\s/.test(piece));
  let cells = null;  // Float32Array of the picture shown, row after row
  let shown = null;  // the heatmap

  // Numbers.

  function picture(map, layer, head) {  // head -1: all of them combined, which come after the last
    const size = map.rows.words.length * map.columns.words.length, pictures = map.heads < 2 ? 1 : map.heads + 1;
    const start = (layer * pictures + (head < 0 ? pictures - 1 : head)) * size;
    return Float32Array.from(map.numbers.subarray(start, start + size), number => map.low + (map.high - map.low) * number / 65535);
  }
  const current = () => maps[now.map];
  const at = (row, column) => cells[row * current().columns.words.length + column];
  const figure = value => current().unit === "weight" || current().unit === "share" ? value.toFixed(2) : Math.abs(value) < .005 ? "0" : value.toFixed(Math.abs(value) < 10 ? 2 : 1).replace("-", "−");
  const largest = () => cells.reduce((high, value) => Math.max(high, Math.abs(value)), 0) || 1;
  const probabilityOf = place => {  // of a word, all of its pieces
    const own = data.steps.filter(step => step[0] === place);
    return own.length ? Math.exp(own.reduce((sum, step) => sum + step[2], 0)) : null;
  };
  const written = data.family === "bert" ? data.source : data.target;
  const rowsAreWritten = map => data.family === "bert" ? true : map.kind !== "encoder";

  // The frame of the page.

  const said = make("p", { class: "hidden", "aria-live": "polite" });
  const sentence = make("div", { class: "sentence", dir: "auto" });
  header();

  const [methodLabel, methodList] = select("method", { "data-control": "method" });
  const [kindLabel, kindList] = select("words", { "data-control": "kind" });
  const [layerLabel, layerList] = select("layer", { "data-control": "layer" });
  const [headLabel, headList] = select("head", { "data-control": "head" });
  const figuresBox = make("input", { type: "checkbox" }), figuresLabel = make("label", { class: "soft" }, figuresBox, " numbers");
  const meaning = make("p", { class: "meaning" });
  const panels = { map: make("div", {}), lines: make("div", {}), heads: make("div", { class: "heads" }) };
  const tabs = {};
  const aside = make("aside", { class: "box", "aria-label": "the chosen words" });
  const mapBox = make("section", { class: "box", "aria-label": "what each word was written from" });
  if (maps.length) lookCard();
  else mapBox.append(make("h2", {}, "Attention"), make("p", { class: "soft" }, "This model has no attention to show: an rnn with score = \"none\" reads the source into one vector. Explain it with the model at hand (regard explain), and gradient and ablation tell what its words depend on."));
  root.append(make("div", { class: "columns" }, mapBox, maps.length || data.steps.length ? aside : null), said);
  if (data.steps.length) root.append(stepCard());
  if (data.tree.length) root.append(treeCard());
  if (data.hidden.length) root.append(hiddenCard());

  function header() {
    const pair = make("div", { class: "pair" });
    if (data.family === "bert") pair.append(make("span", {}, "text"), sentence);
    else {
      if (alone) pair.append(make("span", {}, data.family === "gpt" ? "prompt" : "source"), make("div", { class: "sentence", dir: "auto" }, data.source.text));
      pair.append(make("span", {}, data.family === "gpt" ? "continuation" : "translation"), sentence);
    }
    let doubts = 0;
    written.words.forEach((_, place) => {
      const share = probabilityOf(place), doubt = share !== null && share < .5 && !written.special[place];
      doubts += doubt;
      const button = word(written, place, "button", { type: "button", class: doubt ? "doubt" : "", title: share === null ? null : "probability " + percent(share), onclick: () => chooseWritten(place) });
      sentence.append(button, " ");
    });
    root.append(pair);
    const facts = [];
    if (data.family !== "bert") facts.push("score " + minus(data.score));
    if (!data.finished) facts.push("cut off at the maximum length");
    if (doubts) facts.push("dotted: less than 50\u00a0% probable");
    if (facts.length) pair.append(make("span", {}, ""), make("small", {}, facts.join(" · ")));
    if (data.warnings.length) root.append(make("ul", { class: "warnings", "aria-label": "warnings" }, ...data.warnings.map(message => make("li", { dir: "auto" }, message))));
  }

  // What words were written from: the map, lines, all heads.

  function lookCard() {
    const names = [...new Set(maps.map(map => map.method))];
    names.forEach(name => methodList.add(new Option(METHODS[name] || name, name)));
    methodLabel.hidden = names.length < 2;
    methodList.onchange = () => choose(maps.findIndex(map => map.method === methodList.value && map.kind === current().kind) , true);
    kindList.onchange = () => choose(maps.findIndex(map => map.method === current().method && map.kind === kindList.value), true);
    layerList.onchange = () => { now.layer = +layerList.value; draw(); };
    headList.onchange = () => { now.head = +headList.value; draw(); };
    figuresBox.onchange = () => { now.figures = figuresBox.checked; drawMap(); };
    const titles = { map: "Heatmap", lines: "Lines", heads: "All heads" };
    const list = make("div", { role: "tablist", "aria-label": "ways to look" });
    for (const [name, panel] of Object.entries(panels)) {
      tabs[name] = make("button", { type: "button", role: "tab", id: unique + name, "aria-controls": unique + name + "-panel", onclick: () => open(name) }, titles[name]);
      Object.entries({ role: "tabpanel", id: unique + name + "-panel", "aria-labelledby": unique + name }).forEach(pair => panel.setAttribute(...pair));
      list.append(tabs[name]);
    }
    list.addEventListener("keydown", event => {
      const order = Object.keys(tabs).filter(name => !tabs[name].hidden), place = order.findIndex(name => tabs[name].tabIndex === 0);
      const next = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: order.length - 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      const name = order[(next + order.length) % order.length];
      open(name);
      tabs[name].focus();
    });
    const none = maps.some(map => map.method === "attention") ? null : make("p", { class: "soft", style: "margin-bottom:.6rem" }, "This model has no attention: it reads the source into one vector.");
    mapBox.append(none || "", make("div", { class: "controls" }, methodLabel, kindLabel, layerLabel, headLabel), meaning, make("div", { class: "ways" }, list, figuresLabel), ...Object.values(panels));
    open("map");
    choose(0, false);
  }

  function open(name) {
    for (const other of Object.keys(panels)) {
      panels[other].hidden = other !== name;
      tabs[other].setAttribute("aria-selected", other === name);
      tabs[other].tabIndex = other === name ? 0 : -1;
    }
    figuresLabel.hidden = name !== "map";
    if (cells) draw();
  }

  function choose(index, reset) {
    const before = current();
    now.map = index < 0 ? maps.findIndex(map => map.method === methodList.value) : index;
    const map = current();
    if (reset) {
      const same = before.layers === map.layers;
      if (!same || map.layers === 1) now.layer = same ? now.layer : map.layers - (map.layers > 2 ? 2 : 1);
      if (now.head >= map.heads) now.head = -1;
      if (before.kind !== map.kind) now.row = now.column = 0;
    }
    methodList.value = map.method;
    kindList.length = 0;
    maps.filter(other => other.method === map.method).forEach(other => kindList.add(new Option(KINDS[other.kind], other.kind)));
    kindList.value = map.kind;
    kindLabel.hidden = kindList.length < 2;
    fill(layerList, map.layers, null, now.layer);
    fill(headList, map.heads, map.method === "value" ? "together" : "mean of all", now.head);
    layerLabel.hidden = map.layers < 2;
    headLabel.hidden = map.heads < 2;
    meaning.textContent = map.meaning[0].toUpperCase() + map.meaning.slice(1);
    tabs.heads.hidden = map.layers * map.heads < 2;
    if (tabs.heads.hidden && tabs.heads.getAttribute("aria-selected") === "true") open("map");
    draw();
  }

  function draw() {
    cells = picture(current(), now.layer, current().heads < 2 ? 0 : now.head);
    if (!panels.map.hidden) drawMap();
    if (!panels.lines.hidden) drawLines();
    if (!panels.heads.hidden) drawHeads();
    tell(false);
  }

  function drawMap() {
    const map = current(), high = largest(), held = shown && shown.table.contains(document.activeElement);
    const room = panels.map.clientWidth || mapBox.clientWidth - 34 || 600;
    shown = heatMap({
      rows: map.rows, columns: map.columns, values: cells, high, room, figure, chosen: [now.row, now.column], onchoose: (row, column) => move(row, column, false),
      label: METHODS[map.method] + ", " + KINDS[map.kind] + ", " + where(),
    });
    shown.table.classList.toggle("figures", now.figures);
    const slide = make("div", { class: "slide" }, shown.table), legend = heatScale(map.low < 0 ? "−" + figure(high) : "0", figure(high) + " " + map.unit);
    panels.map.replaceChildren(slide, legend);
    if (slide.scrollWidth > slide.clientWidth + 2) legend.append(make("span", { class: "hint" }, "scroll sideways for the rest"));
    if (held) shown.choose(now.row, now.column, true);
  }

  function move(row, column, mark = true) {
    const same = row === now.row && column === now.column;
    now.row = row;
    now.column = column;
    if (mark && shown && shown.table.isConnected) shown.choose(row, column, false);
    tell(!same);
  }

  function where() {
    const map = current(), head = now.head >= 0 ? "head " + now.head : map.method === "value" ? "heads combined" : "mean of all heads";
    return [map.layers > 1 ? "layer " + now.layer : "", map.heads > 1 ? head : ""].filter(Boolean).join(", ");
  }

  // Lines between words.

  function drawLines() {
    const { rows, columns } = current(), high = largest(), step = 26;
    const tall = step * Math.max(rows.words.length, columns.words.length);
    const drawing = make("svg:svg", { height: tall, "aria-hidden": "true", preserveAspectRatio: "none", viewBox: "0 0 100 " + tall });
    const paths = [];
    rows.words.forEach((_, row) => columns.words.forEach((_, column) => {
      const value = at(row, column), share = Math.abs(value) / high;
      if (share < .06) return;
      const from = (column + .5) * step, to = (row + .5) * step;
      const path = make("svg:path", { d: `M2 ${from} C 45 ${from}, 55 ${to}, 98 ${to}`, class: value < 0 ? "minus" : "", "stroke-width": (.6 + 4 * share).toFixed(2), opacity: (.1 + .8 * share).toFixed(2), "vector-effect": "non-scaling-stroke" });
      paths.push({ path, row, column, share });
      drawing.append(path);
    }));
    let lists;
    const highlight = (row, column) => {
      paths.forEach(line => line.path.setAttribute("opacity", row === null && column === null ? (.1 + .8 * line.share).toFixed(2) : line.row === row || line.column === column ? (.35 + .65 * line.share).toFixed(2) : ".04"));
      lists.forEach((list, which) => [...list.children].forEach((button, place) => button.classList.toggle("chosen", (which ? row : column) === place)));
    };
    const list = (side, which, label) => make("div", { role: "group", "aria-label": label }, ...side.words.map((_, place) => {
      const light = () => highlight(which ? place : null, which ? null : place);
      return word(side, place, "button", { type: "button", onmouseenter: light, onmouseleave: () => highlight(null, null), onfocus: () => { light(); which ? now.row = place : now.column = place; tell(true); }, onblur: () => highlight(null, null) });
    }));
    lists = [list(columns, 0, "words attended to"), list(rows, 1, "words that attend")];
    panels.lines.replaceChildren(make("div", { class: "threads" }, lists[0], drawing, lists[1]), make("p", { class: "soft", style: "text-align:center;margin-top:.6rem" }, "Left: what was looked at. Right: what looked. Point at a word to see its lines alone."));
  }

  // All heads as small pictures.

  function drawHeads() {
    const map = current(), style = getComputedStyle(root), { rows, columns } = map;
    if (!maps.length || panels.heads.hidden || map.layers * map.heads < 2) return;
    const old = panels.heads.contains(document.activeElement);
    const colour = name => { const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true }); pen.fillStyle = style.getPropertyValue(name).trim(); pen.fillRect(0, 0, 1, 1); return [...pen.getImageData(0, 0, 1, 1).data]; };
    const low = colour("--low"), poles = [colour("--high"), colour("--minus")];
    const found = [], buttons = [];
    for (let layer = 0; layer < map.layers; layer++) {
      const line = make("div", { class: "thumbs" });
      for (let head = 0; head < map.heads; head++) {
        const values = picture(map, layer, head), high = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0) || 1;
        const canvas = make("canvas", { width: columns.words.length, height: rows.words.length, "aria-hidden": "true" });
        canvas.style.aspectRatio = columns.words.length + " / " + rows.words.length;
        const pen = canvas.getContext("2d"), image = pen.createImageData(canvas.width, canvas.height);
        values.forEach((value, i) => { const share = Math.abs(value) / high, pole = poles[value < 0 ? 1 : 0]; for (let c = 0; c < 3; c++) image.data[4 * i + c] = low[c] + share * (pole[c] - low[c]); image.data[4 * i + 3] = 255; });
        pen.putImageData(image, 0, 0);
        const pressed = layer === now.layer && head === now.head;
        const button = make("button", { type: "button", "aria-pressed": pressed, tabindex: -1, "aria-label": `layer ${layer}, head ${head}: open`, onclick: () => { now.layer = layer; now.head = head; layerList.value = layer; headList.value = head; open("map"); tabs.map.focus(); } }, canvas, map.heads > 1 ? "head " + head : "layer " + layer);
        buttons.push(button);
        line.append(button);
      }
      line.style.setProperty("--many", map.heads);
      if (map.heads > 1) found.push(make("h3", {}, "layer " + layer));
      found.push(line);
    }
    const start = Math.max(0, buttons.findIndex(button => button.getAttribute("aria-pressed") === "true"));
    buttons[start].tabIndex = 0;
    panels.heads.onkeydown = event => {
      const place = buttons.indexOf(document.activeElement), step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: map.heads, ArrowUp: -map.heads }[event.key];
      if (step === undefined || place < 0 || !buttons[place + step]) return;
      event.preventDefault();
      buttons[place].tabIndex = -1;
      buttons[place + step].tabIndex = 0;
      buttons[place + step].focus();
    };
    panels.heads.replaceChildren(...found);
    if (old) buttons[start].focus();
  }

  // The words chosen.

  function tell(aloud) {
    if (!maps.length) return;
    const map = current(), { rows, columns } = map, value = at(now.row, now.column);
    if (aloud) said.textContent = `${rows.words[now.row]}, from ${columns.words[now.column]}: ${figure(value)} ${map.unit}`;
    const order = columns.words.map((_, column) => column).sort((a, b) => Math.abs(at(now.row, b)) - Math.abs(at(now.row, a))).slice(0, 5);
    const high = Math.abs(at(now.row, order[0])) || 1;
    const parts = [
      make("h2", {}, "Chosen"),
      make("p", { class: "told" }, make("b", {}, word(rows, now.row)), " ← ", make("b", {}, word(columns, now.column))),
      make("p", { class: "soft" }, `${figure(value)} ${map.unit} · ${METHODS[map.method]}` + (where() ? ", " + where() : "")),
      make("ul", { class: "bars", "aria-label": "largest of the row" }, ...order.map(column => bar(word(columns, column), Math.abs(at(now.row, column)) / high, figure(at(now.row, column)), at(now.row, column) < 0))),
    ];
    const steps = rowsAreWritten(map) ? data.steps.filter(step => step[0] === now.row) : [];
    if (steps.length) {
      parts.push(make("h2", {}, "Probability"), make("ul", { class: "bars", "aria-label": "tokens of the word" }, ...steps.slice(0, 9).map(step => bar(token(step[1], step), Math.exp(step[2]), percent(Math.exp(step[2]))))));
      const least = steps.reduce((low, step) => step[2] < low[2] ? step : low);
      const rest = least[3].filter(([text, own]) => text !== least[1] && own > Math.log(.001));
      if (rest.length) parts.push(make("h2", {}, "Instead of ", token(least[1], least)), make("ul", { class: "bars", "aria-label": "alternatives" }, ...rest.map(([text, own]) => bar(token(text, least), Math.exp(own), percent(Math.exp(own))))));
    }
    parts.push(make("p", { class: "keys" }, make("kbd", {}, "Tab"), " into the heatmap, ", make("kbd", {}, "←↑→↓"), " to move"));
    aside.replaceChildren(...parts);
    const place = rowsAreWritten(map) ? now.row : -1;
    [...sentence.children].forEach((button, other) => button.classList.toggle("chosen", other === place));
    stepRows.forEach(([row, own]) => row.classList.toggle("chosen", own === place));
  }
  function token(piece, step) {  // a part of a word begins with a dot
    const inside = step && spaced && step !== data.steps[0] && /^[\p{L}\p{N}]/u.test(piece);
    return make("bdi", { dir: "auto" }, (inside ? "·" : "") + (piece.trim() || "␣"));
  }
  function bar(name, share, text, minus) {
    const line = make("div", { class: "bar" + (minus ? " minus" : ""), "aria-hidden": "true" });
    line.style.setProperty("--v", Math.min(share, 1).toFixed(3));
    return make("li", {}, name, line, make("span", {}, text));
  }

  function chooseWritten(place) {
    if (!maps.length) return;
    if (!rowsAreWritten(current())) choose(maps.findIndex(map => rowsAreWritten(map)), true);
    let best = 0;
    current().columns.words.forEach((_, column) => { if (Math.abs(at(place, column)) > Math.abs(at(place, best))) best = column; });
    move(place, best);
  }

  // Steps.

  function stepCard() {
    const body = make("tbody", {});
    data.steps.forEach(step => {
      const [place, piece, log, others] = step, line = make("div", { class: "bar", "aria-hidden": "true" });
      line.style.setProperty("--v", Math.exp(log).toFixed(3));
      const chips = others.filter(([text, own]) => text !== piece && own > Math.log(.005)).map(([text, own]) => make("span", { class: "chip" + (own > log ? " likelier" : "") }, token(text, step), make("small", {}, percent(Math.exp(own)))));
      const row = make("tr", {}, make("td", { class: "piece" }, make("button", { type: "button", dir: "auto", onclick: () => chooseWritten(place) }, token(piece, step))),
        make("td", { class: "bars-cell" }, make("div", { class: "probability" }, line, make("span", {}, percent(Math.exp(log))))), make("td", {}, make("div", { class: "chips" }, ...chips)));
      stepRows.push([row, place]);
      body.append(row);
    });
    const notes = [data.family === "bert" ? "How probable each token is where it stands, and what else would be." : "How probable each token was, and what else was."];
    if (body.querySelector(".likelier")) notes.push("Framed: what was more probable.");
    if ([...body.querySelectorAll(".piece")].some(cell => cell.textContent.startsWith("·"))) notes.push("A dot begins a part of a word.");
    return make("section", { class: "box", "aria-label": "steps" }, make("h2", {}, data.family === "bert" ? "Predictions for every position" : "Step by step"),
      make("p", { class: "soft" }, notes.join(" ")),
      make("div", { class: "slide" }, make("table", { class: "steps" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "token"), make("th", { scope: "col" }, "probability"), make("th", { scope: "col" }, "instead"))), body)));
  }

  // The beam: chains of branches that did not part are one line.

  function treeCard() {
    const children = (depth, parent) => (data.tree[depth] || []).map((branch, place) => ({ branch, place })).filter(({ branch }) => branch[0] === parent);
    const boxes = [];
    function chain(depth, place) {
      let text = "", branch, taken = true;
      const gone = [];
      for (;;) {
        branch = data.tree[depth][place];
        text += branch[1];
        taken = taken && data.chosen[depth] === place;
        const after = children(depth + 1, place), kept = after.filter(one => one.branch[3]);
        after.filter(one => !one.branch[3]).forEach(one => gone.push(one.branch));
        if (kept.length === 1) { depth += 1; place = kept[0].place; continue; }
        return node(text, branch, taken, kept.map(one => chain(depth + 1, one.place)), gone);
      }
    }
    function node(text, branch, taken, inside, gone) {
      const ended = /<\/s>$/.test(text);
      const label = [make("bdi", { class: "text" + (inside.length || ended ? "" : " gone"), dir: "auto" }, text.replace(/<\/s>$/, "").trim() || "</s>"), " ", make("small", {}, (inside.length ? "" : ended ? "· ended " : "· given up ") + minus(branch[2]))];
      const dropped = gone.length ? make("div", { class: "chips", hidden: true }, ...gone.slice(0, 40).map(one => make("span", { class: "chip" }, token(one[1]), make("small", {}, minus(one[2]))))) : null;
      if (dropped) boxes.push(dropped);
      if (!inside.length) return make("div", { class: "leaf" + (taken ? " taken" : "") }, ...label, dropped);
      return make("details", { open: taken, class: taken ? "taken" : "" }, make("summary", {}, ...label), dropped, ...inside);
    }
    const box = make("input", { type: "checkbox", onchange: () => boxes.forEach(one => { one.hidden = !box.checked; }) });
    const all = make("button", { type: "button", onclick: () => { const closed = [...tree.querySelectorAll("details")].some(one => !one.open); tree.querySelectorAll("details").forEach(one => { one.open = closed; }); } }, "open or close all");
    const roots = children(0, -1);
    const tree = make("div", { class: "tree" }, ...roots.filter(one => one.branch[3]).map(one => chain(0, one.place)));
    return make("section", { class: "box", "aria-label": "beam search" }, make("h2", {}, "Beam search"), make("p", { class: "soft" }, "Kept and dropped branches with their log-probabilities so far."), make("div", { class: "controls" }, all, make("label", {}, box, "dropped branches")), tree);
  }

  // Hidden states as points.

  function hiddenCard() {
    const [label, list] = select("side", {});
    data.hidden.forEach((stack, place) => list.add(new Option(stack.stack === "encoder" ? "source" : "target", place)));
    label.hidden = data.hidden.length < 2;
    const range = make("input", { type: "range", min: 0, step: 1, "aria-label": "layer" }), name = make("output", {}), holder = make("div", {}), caption = make("p", { class: "soft" });
    let marks = null, shown = -1;
    let width = 640, height = 380;
    const edge = 46;
    const x = value => edge + (value + 1) / 2 * (width - 2 * edge), y = value => edge / 2 + (1 - value) / 2 * (height - edge);
    function build(stack) {
      width = Math.max(280, Math.min(720, root.clientWidth - 60));  // so that letters keep their size
      height = Math.round(Math.min(400, width * .8));
      const drawing = make("svg:svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "the words of a layer as points; near points are alike" });
      drawing.append(make("svg:line", { x1: x(0), x2: x(0), y1: 4, y2: height - 4 }), make("svg:line", { x1: 4, x2: width - 4, y1: y(0), y2: y(0) }));
      marks = stack.words.map((text, place) => {
        const dot = make("svg:circle", { r: 4 }), letters = make("svg:text", { class: stack.special[place] ? "special" : "", direction: "ltr" }, text), tip = make("svg:title");
        dot.append(tip);
        drawing.append(dot, letters);
        return { dot, letters, tip, wide: textWidth(text) };
      });
      holder.replaceChildren(drawing);
    }
    function settle(points) {  // every word beside, above or below its point, where nothing stands; how many found no room
      const taken = points.map(([left, top]) => [left - 4, top - 4, left + 4, top + 4]);
      let homeless = 0;
      marks.forEach(({ letters, wide }, place) => {
        const [left, top] = points[place];
        const free = [[8, 4, 0], [-8, 4, 1], [0, -8, .5], [0, 16, .5]].find(([across, down, share]) => {
          const box = [left + across - share * wide, top + down - 10, left + across + (1 - share) * wide, top + down + 3];
          if (box[0] < 0 || box[2] > width || taken.some((other, which) => which !== place && box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1])) return false;
          taken.push(box);
          return true;
        });
        letters.style.visibility = free ? "" : "hidden";
        if (!free) return void homeless++;
        letters.setAttribute("x", left + free[0]);
        letters.setAttribute("y", top + free[1]);
        letters.setAttribute("text-anchor", ["start", "middle", "end"][2 * free[2]]);
      });
      return homeless;
    }
    function show() {
      const stack = data.hidden[list.value || 0];
      if (shown !== list.value && list.value !== "") { range.max = stack.layers.length - 1; range.value = stack.layers.length - 1; build(stack); shown = list.value; }
      const layer = stack.layers[range.value];
      name.textContent = layer.name.replace(/^(\d+)\.hidden$/, "layer $1");
      range.setAttribute("aria-valuetext", name.textContent);
      layer.points.forEach(([a, b], place) => {
        const { dot, tip } = marks[place];
        dot.setAttribute("cx", x(a)); dot.setAttribute("cy", y(b));
        tip.textContent = stack.words[place];
      });
      const homeless = settle(layer.points.map(([a, b]) => [x(a), y(b)]));
      caption.textContent = `The two directions in which the states of the words differ most; they show ${percent(layer.share)} of the differences.` + (homeless ? ` Not labelled for lack of space: ${homeless}; see the table.` : "");
      const rows = stack.words.map((_, place) => make("tr", {}, make("th", { scope: "row" }, word(stack, place)), ...layer.points[place].map(value => make("td", {}, value.toFixed(2)))));
      body.replaceChildren(make("tr", {}, ...["word", "across", "up"].map(text => make("th", { scope: "col" }, text))), ...rows);
    }
    const body = make("tbody", {});
    list.onchange = range.oninput = show;
    const card = make("section", { class: "box plane", "aria-label": "hidden states" }, make("h2", {}, "Hidden states"), make("div", { class: "controls" }, label, make("label", {}, "layer", range), name), holder, caption, make("details", {}, make("summary", { class: "soft" }, "as a table"), make("table", {}, body)));
    show();
    redraw.push(() => { build(data.hidden[list.value || 0]); show(); });
    return card;
  }

  let wide = root.clientWidth;
  const resized = () => { if (Math.abs(root.clientWidth - wide) > 4) { wide = root.clientWidth; if (maps.length) draw(); redraw.forEach(again => again()); } };
  if (typeof ResizeObserver === "function") new ResizeObserver(resized).observe(root); else addEventListener("resize", resized);
  document.addEventListener("colours", drawHeads);
  if (maps.length) { draw(); chooseWritten(0); }
}

for (const holder of document.querySelectorAll(".inspector")) {
  const details = holder.closest("details"), open = () => regardInspect(holder, dataOf(holder), !details);
  if (details) details.addEventListener("toggle", open, { once: true }); else open();
}
