// heatMap({ rows, columns, values, low, high, ... }) gives { table, paint, mark, reveal }: a table of coloured cells. `rows` and `columns` are
// sides (words, special), `values` come row after row and are coloured from `low` (at most 0) to `high`. paint(values) colours the
// cells again; mark(row, column) shows a row, a column or a cell as chosen, null for none. With `onpoint` and `onchoose` the cells react
// to the pointer, to touch and to the arrow keys.

function textWidth(text) {
  const pen = textWidth.pen = textWidth.pen || document.createElement("canvas").getContext("2d");
  pen.font = "13px system-ui, sans-serif";
  return pen.measureText(text).width;
}

function heatMap({ rows, columns, values, high = 1, room = 300, figure = value => value.toFixed(2), label = "attention", smallest = 24, largest = 36, onpoint = null, onchoose = null }) {
  const widest = side => Math.min(150, Math.max(8, ...side.words.map(textWidth)));
  const left = widest(rows) + 16, slope = widest(columns);
  const side = Math.max(smallest, Math.min(largest, Math.floor((room - left - slope * .62) / columns.words.length)));
  const table = make("table", { class: "map", role: "grid", "aria-label": label });
  table.style.setProperty("--size", side + "px");
  table.style.setProperty("--columns", columns.words.length);
  table.style.setProperty("--slope-height", Math.ceil(slope * .84 + 14) + "px");
  table.style.paddingInlineEnd = Math.ceil(slope * .62) + "px";
  const top = make("tr", { role: "row" }, make("td", { class: "corner", role: "presentation" }));
  columns.words.forEach((_, column) => top.append(make("th", { scope: "col", role: "columnheader" }, word(columns, column, "span"))));
  const body = make("tbody", { role: "rowgroup" });
  rows.words.forEach((text, row) => body.append(make("tr", { role: "row" }, make("th", { scope: "row", role: "rowheader", title: text }, word(rows, row)),
    ...columns.words.map(() => make("td", { role: "gridcell", "aria-selected": onchoose ? "false" : null, tabindex: onchoose ? -1 : null }, make("span", {}))))));
  table.append(make("thead", { role: "rowgroup" }, top), body);
  const cellAt = (row, column) => table.rows[row + 1].cells[column + 1];
  const placeOf = cell => [cell.parentElement.rowIndex - 1, cell.cellIndex - 1];
  let entry = null;  // the cell that Tab reaches

  function paint(values) {
    rows.words.forEach((_, row) => columns.words.forEach((_, column) => {
      const value = values[row * columns.words.length + column], share = Math.min(Math.abs(value) / high, 1), cell = cellAt(row, column), text = figure(value);
      cell.className = (value < 0 ? "minus" : "") + (share > .55 ? " strong" : Math.abs(value) < .005 ? " nil" : "");
      cell.style.setProperty("--v", share.toFixed(3));
      cell.firstChild.textContent = text;
      if (!onchoose) cell.title = `${rows.words[row]} ← ${columns.words[column]}: ${text}`;
    }));
  }

  function mark(row, column, select = false) {
    table.querySelectorAll(".on").forEach(one => one.classList.remove("on"));
    if (row !== null) [...table.rows[row + 1].cells].forEach(cell => cell.classList.add("on"));
    if (column !== null) [...table.rows].forEach(line => line.cells[column + 1].classList.add("on"));
    if (!select) return;
    table.querySelectorAll("[aria-selected=true]").forEach(cell => cell.setAttribute("aria-selected", "false"));
    if (entry) entry.tabIndex = -1;
    entry = cellAt(row ?? 0, column ?? 0);
    entry.tabIndex = 0;
    if (row !== null && column !== null) entry.setAttribute("aria-selected", "true");
  }

  function reveal(row, column) {  // scrolls the map, not the page, to a cell that is outside it or under a header
    const box = table.parentElement, cell = cellAt(row, column), x = cell.offsetLeft - box.scrollLeft, y = cell.offsetTop - box.scrollTop;
    if (x < table.rows[0].cells[0].offsetWidth || x + cell.offsetWidth > box.clientWidth) box.scrollLeft = cell.offsetLeft - box.clientWidth / 2;
    if (y < table.tHead.offsetHeight || y + cell.offsetHeight > box.clientHeight) box.scrollTop = cell.offsetTop - box.clientHeight / 2;
  }

  const cellOf = event => event.target.closest("tbody td");
  table.addEventListener("pointerover", event => { const cell = cellOf(event); if (cell && event.pointerType !== "touch") (onpoint || mark)(...placeOf(cell)); });
  table.addEventListener("pointerleave", () => (onpoint || mark)(null, null));
  if (onchoose) {
    table.addEventListener("click", event => { const cell = cellOf(event); if (cell) { onchoose(...placeOf(cell)); cell.focus({ preventScroll: true }); } });
    table.addEventListener("keydown", event => {
      const cell = cellOf(event);
      if (!cell) return;
      const [row, column] = placeOf(cell), last = [rows.words.length - 1, columns.words.length - 1], far = event.ctrlKey || event.metaKey;
      const next = {
        ArrowRight: [row, column + 1], ArrowLeft: [row, column - 1], ArrowDown: [row + 1, column], ArrowUp: [row - 1, column],
        Home: [far ? 0 : row, 0], End: [far ? last[0] : row, last[1]], PageUp: [0, column], PageDown: [last[0], column], Enter: [row, column], " ": [row, column],
      }[event.key];
      if (!next) return;
      event.preventDefault();
      const place = next.map((number, axis) => Math.min(Math.max(number, 0), last[axis]));
      onchoose(...place);
      cellAt(...place).focus();
    });
  }
  paint(values);
  return { table, paint, mark, reveal };
}

function heatScale(low, high) { return make("div", { class: "scale" + (low.startsWith("−") ? " signed" : "") }, make("span", {}, low), make("i", { "aria-hidden": "true" }), make("span", {}, high)); }

for (const holder of document.querySelectorAll(".heat")) {
  const { table } = heatMap({ ...dataOf(holder), room: holder.clientWidth, smallest: 18, largest: 24 });
  holder.append(make("div", { class: "slide", tabindex: 0 }, table), heatScale("0", "1 attention weight"));
}
