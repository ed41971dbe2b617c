// Shows the cell under the pointer in all places at once: tokens, both figures, tables.

/** @type {Cell | null} */
let hovered = null; // {row}, {column} or both, in the map of the selected head

/**
 * The cell under the pointer, else the clicked row.
 *
 * @returns {Cell | null}
 */
function pointedAt() {
  if (hovered) return hovered;
  const row = pinnedRow(rowsOf(chosenHead()).length), column = pinned("key", columnsOf(chosenHead()).length);
  if (row === null && column === null) return null;
  return { ...(row === null ? {} : { row }), ...(column === null ? {} : { column }) };
}

/**
 * Points at a cell, a row, a column, or nothing.
 *
 * @param {Cell | null} cell
 */
function hover(cell) {
  if (cell?.row === hovered?.row && cell?.column === hovered?.column) return;
  hovered = cell;
  if (!cell) byId("tip").style.display = "none";
  markAll();
}

/**
 * Pins a row, a column or a cell; a second call releases it.
 *
 * @param {Cell | null} cell
 */
function pin(cell) {
  if (!cell) return;
  const wanted = { ...(cell.row === undefined ? {} : { row: String(cell.row) }), ...(cell.column === undefined ? {} : { key: String(cell.column) }) };
  const isKept = Object.entries(wanted).every(([name, value]) => state[name] === value);
  update(isKept ? Object.fromEntries(Object.keys(wanted).map(name => [name, ""])) : wanted);
}

/** Marks the cell under the pointer. */
function markAll() {
  const at = pointedAt();
  markFigures(at);
  markStrips(at);
  [...byId("links").rows].forEach((line, i) => line.classList.toggle("on", at?.row === i));
  for (const line of elements("[data-position]")) {
    const isDecoder = chosenHead().kind !== "enc";
    line.classList.toggle("on", isDecoder && Number(line.dataset.position) === at?.row);
  }
  showProducts();
}

/**
 * Shows the weight of the cell under the pointer, for the head or for all heads next to it.
 *
 * @param {'one' | 'all'} figure
 * @param {Cell | null} at
 * @param {MouseEvent} event
 */
function showTip(figure, at, event) {
  const tip = byId("tip");
  if (at?.row === undefined || at.column === undefined) {
    tip.style.display = "none";
    return;
  }
  const { row, column } = at, head = chosenHead(), k = columnsOf(head).length;
  const isHidden = head.kind === "dec" && column > row;
  const heads = figure === "one" ? [head] : overlaidHeads().sort((a, b) => weightsOf(b)[row * k + column] - weightsOf(a)[row * k + column]).slice(0, 4);
  const numbers = isHidden ? [make("b", {}, "masked")]
    : heads.map(one => make("b", {}, `${figure === "one" ? "" : `${one.id} `}${written(weightsOf(one)[row * k + column], 4)}`));
  const from = make("span", { dir: "auto" }, rowsOf(head)[row]), to = make("span", { dir: "auto" }, columnsOf(head)[column]);
  const asks = data.weighting.isOfLayers ? "" : "query ";
  const does = { alpha: "attends to", norm: "takes from" }[data.weighting.name] ?? "is made of";
  tip.replaceChildren(...numbers, head.kind === "enc" ? asks : "predicting ", from,
    head.kind === "dec" ? ` ${does} the read ` : ` ${does} `, to);
  tip.style.display = "block";
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 16, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${Math.max(8, Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8))}px`;
}
