// A heat map: rows are queries, columns are keys.

/**
 * Draws a heat map.
 *
 * spec: rows, columns (labels), room (pixels), title, and shade(i, j), which returns the color of a
 * cell as [red, green, blue] or null for none, and optionally its number as a text.
 * Returns the svg, cellAt(event), and mark(cell), which shows what is pointed at.
 *
 * @param {FigureSpec & {title: string, shade(i: number, j: number): {color: number[], text?: string} | null}} spec
 * @returns {Figure}
 */
function heatMap(spec) {
  const q = spec.rows.length, k = spec.columns.length;
  const rows = spec.rows.map(text => shortened(text)), columns = spec.columns.map(text => shortened(text));
  const guess = Math.min(13, Math.max(7, 480 / Math.max(q, k)));
  // The last column's slanted label reaches beyond the map by about .6 of its length.
  const side = widest(rows, guess) + .62 * widest(columns, guess) + 26;
  const fitting = Math.max(7, Math.min(38, (spec.room - side) / k, Math.max(600, 11 * q) / q));
  const cell = spec.type ? projectedCell(spec, columns) : fitting;
  const slope = cell > 14 ? 52 : 90, turn = slope * Math.PI / 180;
  // Slanted lines of text are nearer to each other than columns are.
  const size = spec.type ?? Math.min(13, Math.max(6.5, cell * .82)), small = spec.type ?? Math.min(size, Math.max(6.5, cell * .9 * Math.sin(turn)));
  const left = Math.ceil(widest(rows, size) + 12), reach = widest(columns, small) + 4;
  const top = Math.ceil(reach * Math.sin(turn) + 12);
  const width = Math.ceil(left + k * cell + reach * Math.cos(turn) + 8), height = Math.ceil(top + q * cell + 4);
  const ink = styleColor("--ink"), soft = styleColor("--soft"), line = styleColor("--line"), strong = styleColor("--mark");

  const svg = newFigure(width, height, spec.title);
  const squares = new Map(); // from a color to the path of its cells, as thousands of elements would be slow
  const numbers = draw("g", { "font-size": spec.type ?? Math.min(11, cell * .36), "text-anchor": "middle" });
  const edge = cell.toFixed(2), leastOfNumbers = spec.type ? 2 * spec.type : 25;
  for (let i = 0; i < q; i++) {
    for (let j = 0; j < k; j++) {
      const shade = spec.shade(i, j);
      if (!shade) continue;
      const fill = hex(shade.color), square = `M${(left + j * cell).toFixed(2)} ${(top + i * cell).toFixed(2)}h${edge}v${edge}h-${edge}z`;
      squares.set(fill, (squares.get(fill) ?? "") + square);
      if (shade.text && cell >= leastOfNumbers) {
        numbers.append(draw("text", { x: left + (j + .5) * cell, y: top + (i + .5) * cell, "dominant-baseline": "central", fill: inkOn(shade.color) }, shade.text));
      }
    }
  }
  svg.append(draw("g", { "shape-rendering": "crispEdges" }, ...[...squares].map(([fill, d]) => draw("path", { fill, d }))));
  if (cell >= 12) svg.append(gridLines(left, top, cell, q, k));
  svg.append(draw("rect", { x: left, y: top, width: k * cell, height: q * cell, fill: "none", stroke: line }), numbers);
  const rowTexts = spec.rows.map((text, i) => tokenText(text, left - 7, top + (i + .5) * cell, size, { "text-anchor": "end", fill: soft }));
  const columnTexts = spec.columns.map((text, j) => {
    const x = left + (j + .5) * cell + (slope === 90 ? 0 : small * .2), y = top - 7;
    return tokenText(text, x, y, small, { transform: `rotate(${-slope} ${x.toFixed(2)} ${y})`, fill: soft });
  });
  const marks = draw("g", { class: "marks", fill: "none" });
  svg.append(...rowTexts, ...columnTexts, marks);

  const light = (texts, chosen) => texts.forEach((text, n) => {
    text.setAttribute("fill", n === chosen ? ink : soft);
    text.setAttribute("font-weight", n === chosen ? "700" : "400");
  });
  return {
    svg,
    cellAt(event) {
      const [x, y] = pointIn(svg, event), column = Math.floor((x - left) / cell), row = Math.floor((y - top) / cell);
      const inRows = row >= 0 && row < q, inColumns = column >= 0 && column < k;
      if (inRows && inColumns) return { row, column };
      if (inRows && x < left) return { row };
      return inColumns && y < top ? { column } : null;
    },
    mark(at) {
      const { row, column } = at ?? {};
      light(rowTexts, row);
      light(columnTexts, column);
      marks.replaceChildren();
      const band = { stroke: ink, "stroke-opacity": ".5" };
      if (row !== undefined) marks.append(draw("rect", { x: left, y: top + row * cell, width: k * cell, height: cell, ...band }));
      if (column !== undefined) marks.append(draw("rect", { x: left + column * cell, y: top, width: cell, height: q * cell, ...band }));
      if (row !== undefined && column !== undefined) {
        marks.append(draw("rect", { x: left + column * cell, y: top + row * cell, width: cell, height: cell, stroke: strong, "stroke-width": 2 }));
      }
    },
  };
}

/**
 * The width of a cell where letters have a given size: as large as there is room, but a row has its line of text.
 *
 * @param {FigureSpec} spec
 * @param {string[]} columns
 */
function projectedCell({ rows, room, type, height }, columns) {
  const above = .79 * widest(columns, type) + 20, beside = widest(rows.map(text => shortened(text)), type) + .62 * widest(columns, type) + 26;
  return Math.max(1.2 * type, Math.min(72, (room - beside) / columns.length, (height - above) / rows.length));
}

/** Thin lines between cells, in the color of the ground. */
function gridLines(left, top, cell, q, k) {
  let path = "";
  for (let j = 1; j < k; j++) path += `M${(left + j * cell).toFixed(2)} ${top}v${(q * cell).toFixed(2)}`;
  for (let i = 1; i < q; i++) path += `M${left} ${(top + i * cell).toFixed(2)}h${(k * cell).toFixed(2)}`;
  return draw("path", { d: path, stroke: styleColor("--panel"), "stroke-opacity": ".55", fill: "none" });
}
