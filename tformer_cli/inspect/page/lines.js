// Lines from queries, on the left, to keys, on the right: the stronger the weight, the stronger the line.

const FAINTEST = .03; // smaller weights are left out
const MOST_LINES = 4000; // if there are more, the strongest are drawn

/**
 * Draws lines between tokens.
 *
 * spec: rows, columns (labels), room (pixels), title, least (the smallest weight with a line), and links: a list of {row, column, weight,
 * color, dash, shift}, of which the strongest are drawn; a shift of so many pixels keeps heads that agree from hiding each other.
 * Returns what `heatMap` returns.
 *
 * @param {FigureSpec & {title: string, links: Link[], least?: number}} spec
 * @returns {Figure}
 */
function lineFigure(spec) {
  const q = spec.rows.length, k = spec.columns.length, most = Math.max(q, k);
  const pitch = spec.type ? Math.max(1.2 * spec.type, Math.min(48, (spec.height - 24) / most)) : Math.max(12, Math.min(27, 600 / most));
  const size = spec.type ?? Math.min(13, Math.max(7, pitch * .72)), headings = spec.type ?? 10.5;
  const left = Math.ceil(Math.min(Math.max(44, widest(spec.rows.map(text => shortened(text)), size) + 10), spec.room * .4));
  const right = Math.ceil(Math.min(widest(spec.columns.map(text => shortened(text)), size) + 10, spec.room * .4));
  const width = Math.max(left + right + 90, Math.min(spec.room, left + right + 420)), height = Math.ceil(most * pitch + 24);
  const x1 = left, x2 = width - right, soft = styleColor("--soft"), ink = styleColor("--ink"), faint = styleColor("--faint");
  const yOf = n => 22 + (n + .5) * pitch;

  const svg = newFigure(width, height, spec.title);
  svg.append(draw("text", { x: x1 - 6, y: 8, "font-size": headings, "text-anchor": "end", "dominant-baseline": "central", fill: faint }, "query"),
    draw("text", { x: x2 + 6, y: 8, "font-size": headings, "dominant-baseline": "central", fill: faint }, "key"));
  const lines = spec.links.filter(link => link.weight >= (spec.least ?? FAINTEST)).sort((a, b) => a.weight - b.weight).slice(-MOST_LINES).map(link => {
    const shift = Math.max(-.35, Math.min(.35, link.shift / pitch)) * pitch, y1 = yOf(link.row) + shift, y2 = yOf(link.column) + shift, bend = (x2 - x1) * .42;
    const path = draw("path", { d: `M${x1} ${y1.toFixed(1)}C${(x1 + bend).toFixed(1)} ${y1.toFixed(1)} ${(x2 - bend).toFixed(1)} ${y2.toFixed(1)} ${x2} ${y2.toFixed(1)}`,
      stroke: link.color, "stroke-width": .7 + 2.6 * link.weight, "stroke-opacity": opacityOf(link.weight) });
    if (link.dash) path.setAttribute("stroke-dasharray", link.dash);
    return { ...link, path };
  });
  svg.append(draw("g", { fill: "none", "stroke-linecap": "round" }, ...lines.map(line => line.path)));
  const rowTexts = spec.rows.map((text, i) => tokenText(text, x1 - 6, yOf(i), size, { "text-anchor": "end", fill: soft }));
  const columnTexts = spec.columns.map((text, j) => tokenText(text, x2 + 6, yOf(j), size, { fill: soft }));
  svg.append(...rowTexts, ...columnTexts);

  return {
    svg,
    cellAt(event) {
      const [x, y] = pointIn(svg, event), n = Math.floor((y - 22) / pitch), isLeft = x < (x1 + x2) / 2;
      if (n < 0 || n >= (isLeft ? q : k)) return null;
      return isLeft ? { row: n } : { column: n };
    },
    mark(at) {
      const { row, column } = at ?? {}, isFree = row === undefined && column === undefined;
      // A token that is pointed at keeps its lines; those that touch none of them fade.
      const touches = line => isFree || (row !== undefined ? line.row === row : line.column === column);
      for (const line of lines) line.path.setAttribute("stroke-opacity", touches(line) ? opacityOf(line.weight, !isFree) : ".05");
      const read = new Set(isFree ? [] : lines.filter(touches).map(line => row === undefined ? line.row : line.column));
      rowTexts.forEach((text, i) => emphasize(text, i === row, row === undefined && read.has(i)));
      columnTexts.forEach((text, j) => emphasize(text, j === column, row !== undefined && read.has(j)));
    },
  };

  function emphasize(text, isChosen, isReached) {
    text.setAttribute("fill", isChosen || isReached ? ink : soft);
    text.setAttribute("font-weight", isChosen ? "700" : "400");
  }
}

/**
 * The opacity of a line; a token under the pointer makes its lines stronger.
 *
 * @param {number} weight
 */
function opacityOf(weight, isChosen = false) {
  return Math.min(1, (isChosen ? .3 : .12) + .85 * weight).toFixed(2);
}
