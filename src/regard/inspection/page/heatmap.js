// heatMap({ rows, columns, values, high, room, figure, label, chosen, onchoose }) gives a table of coloured cells: rows and columns
// are sides, values come row after row, high is the value of the strongest colour, room is the width in pixels. paint(values) colours
// them anew. With chosen = [row, column] one cell is chosen, by mouse or arrows; choose(row, column, focus) does so too.

function textWidth(text) {
  const pen = textWidth.pen = textWidth.pen || document.createElement("canvas").getContext("2d");
  pen.font = "13px system-ui, sans-serif";
  return pen.measureText(text).width;
}

function heatMap({ rows, columns, values, high = 1, room = 300, figure = value => value.toFixed(2), label = "attention", largest = 36, chosen = null, onchoose = null }) {
  const widest = side => Math.min(150, Math.max(8, ...side.words.map(textWidth)));
  const left = widest(rows) + 16, slope = widest(columns);
  const side = Math.max(15, Math.min(largest, Math.floor((room - left - slope * .62) / columns.words.length)));
  const table = make("table", { class: "map", role: "grid", "aria-label": label });
  table.style.setProperty("--cell", side + "px");
  table.style.setProperty("--letter", Math.max(10, Math.min(13, side * .72)) + "px");
  table.style.setProperty("--slope-height", Math.ceil(slope * Math.min(1, side / 17) * .84 + 14) + "px");
  table.style.paddingInlineEnd = Math.ceil(slope * .62) + "px";
  const top = make("tr", { role: "row" }, make("td", { role: "presentation", class: "corner" }));
  columns.words.forEach((_, column) => top.append(make("th", { scope: "col", role: "columnheader" }, word(columns, column, "span"))));
  const body = make("tbody", { role: "rowgroup" });
  rows.words.forEach((text, row) => body.append(make("tr", { role: "row" }, make("th", { scope: "row", role: "rowheader", title: text }, word(rows, row)),
    ...columns.words.map(() => make("td", { role: "gridcell", tabindex: chosen ? -1 : false }, make("span", {}))))));
  table.append(make("thead", { role: "rowgroup" }, top), body);
  const cellAt = (row, column) => table.rows[row + 1].cells[column + 1];

  function paint(values) {
    rows.words.forEach((_, row) => columns.words.forEach((_, column) => {
      const value = values[row * columns.words.length + column], share = Math.min(Math.abs(value) / high, 1), cell = cellAt(row, column), text = figure(value);
      if (cell.firstChild.textContent === text && cell.style.getPropertyValue("--v") === share.toFixed(2)) return;
      cell.className = (value < 0 ? "minus" : "") + (share > .55 ? " strong" : Math.abs(value) < .005 ? " nil" : "");
      cell.style.setProperty("--v", share.toFixed(2));
      cell.firstChild.textContent = text;
      if (!chosen) cell.title = text;
    }));
  }

  function choose(row, column, focus) {
    if (!chosen) return;
    const old = cellAt(...chosen), cell = cellAt(row, column);
    old.tabIndex = -1;
    old.setAttribute("aria-selected", false);
    chosen = [row, column];
    cell.tabIndex = 0;
    cell.setAttribute("aria-selected", true);
    table.querySelectorAll("th.chosen").forEach(head => head.classList.remove("chosen"));
    table.rows[0].cells[column + 1].classList.add("chosen");
    table.rows[row + 1].cells[0].classList.add("chosen");
    if (focus) cell.focus();
  }

  const pick = focus => event => { const cell = event.target.closest("tbody td"); if (cell) { choose(cell.parentElement.rowIndex - 1, cell.cellIndex - 1, focus); onchoose(...chosen); } };
  if (chosen) {
    table.addEventListener("click", pick(true));
    table.addEventListener("focusin", pick(false));
    table.addEventListener("keydown", event => {
      const [row, column] = chosen, last = [rows.words.length - 1, columns.words.length - 1], far = event.ctrlKey || event.metaKey;
      const next = {
        ArrowRight: [row, column + 1], ArrowLeft: [row, column - 1], ArrowDown: [row + 1, column], ArrowUp: [row - 1, column],
        Home: [far ? 0 : row, 0], End: [far ? last[0] : row, last[1]], PageUp: [0, column], PageDown: [last[0], column],
      }[event.key];
      if (!next) return;
      event.preventDefault();
      choose(Math.min(Math.max(next[0], 0), last[0]), Math.min(Math.max(next[1], 0), last[1]), true);
    });
    choose(...chosen, false);
  }
  paint(values);
  return { table, paint, choose };
}

function heatScale(low, high) { return make("div", { class: "scale" + (low.startsWith("−") ? " signed" : "") }, make("span", {}, low), make("i", { "aria-hidden": true }), make("span", {}, high)); }

for (const holder of document.querySelectorAll(".heat")) holder.append(heatMap({ ...dataOf(holder), room: holder.clientWidth, largest: 24 }).table);
