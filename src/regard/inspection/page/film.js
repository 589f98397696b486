// The film: the cross-attention of a few sentences at every validation, one frame after the other.
(() => {
  const holder = document.getElementById("film"), film = dataOf(holder), last = film.updates.length - 1;
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const PACE = 450;  // milliseconds a frame is shown
  const [sentenceLabel, sentenceList] = select("sentence", {}), [layerLabel, layerList] = select("layer", {}), [headLabel, headList] = select("head", {});
  const play = make("button", { type: "button", onclick: () => playing ? stop() : start() }, "Play");
  const range = make("input", { type: "range", min: 0, max: last, step: 1, "aria-label": "validation", oninput: () => { stop(); moment = +range.value; show(); } });
  const said = make("output", {}), place = make("div", { class: "slide" });
  let moment = last, playing = 0, before = 0, weights, map;
  film.sentences.forEach((sentence, number) => sentenceList.add(new Option(sentence.source.text, number)));
  holder.classList.add("rg");
  holder.append(make("div", { class: "controls" }, sentenceLabel, layerLabel, headLabel), make("div", { class: "time" }, play, range, said), make("section", { class: "box" }, place, heatScale("0", "1 weight")));

  const sentence = () => film.sentences[sentenceList.value];
  function choose() {
    const { source, target, layers, heads } = sentence();
    weights = bytes(sentence().weights);
    fill(layerList, layers, "mean of all", layerList.value && layerList.value < layers ? layerList.value : -1);
    fill(headList, heads, "mean of all", headList.value && headList.value < heads ? headList.value : -1);
    layerLabel.hidden = layers < 2;
    headLabel.hidden = heads < 2;
    map = heatMap({ rows: target, columns: source, values: matrix(Math.round(moment)), room: place.clientWidth });
    place.replaceChildren(map.table);
    show();
  }
  function matrix(frame) {  // the chosen layer and head, or the mean
    const { source, target, layers, heads } = sentence(), size = source.words.length * target.words.length;
    const sum = new Float32Array(size), layer = +layerList.value, head = +headList.value;
    let pictures = 0;
    for (let l = 0; l < layers; l++) for (let h = 0; h < heads; h++) {
      if ((layer >= 0 && l !== layer) || (head >= 0 && h !== head)) continue;
      const start = ((frame * layers + l) * heads + h) * size;
      for (let i = 0; i < size; i++) sum[i] += weights[start + i];
      pictures++;
    }
    return sum.map(value => value / pictures / 255);
  }
  function show(at = moment) {
    const whole = Math.floor(at), part = at - whole, one = matrix(whole), near = Math.round(at);
    const other = part ? matrix(whole + 1) : one;
    map.paint(one.map((value, i) => value + part * (other[i] - value)));
    range.value = near;
    said.textContent = "update " + film.updates[near].toLocaleString("en") + (film.scores[near] ? " · " + film.scores[near] : "");
  }
  function step(now) {
    moment = Math.min(moment + (now - before) / PACE, last);
    before = now;
    show(still.matches ? Math.floor(moment) : moment);
    if (moment >= last) stop(); else playing = requestAnimationFrame(step);
  }
  function start() {
    if (moment >= last) moment = 0;
    play.textContent = "Pause";
    before = performance.now();
    playing = requestAnimationFrame(step);
  }
  function stop() {
    cancelAnimationFrame(playing);
    playing = 0;
    play.textContent = "Play";
    moment = Math.round(moment);
    show();
  }
  sentenceList.onchange = choose;
  layerList.onchange = headList.onchange = () => show();
  addEventListener("resize", choose);
  choose();
})();
