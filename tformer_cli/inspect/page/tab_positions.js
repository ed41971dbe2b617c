// Positions: the vectors added to the embeddings, and their similarity by offset.

addTab({
  id: "positions",
  title: "Positions",
  holds: one => Boolean(viewOf(one, "positions")),
  show(panel, one) {
    const { kind, tables, facts, biases = [], scores = [], curves = [], sum } = viewOf(one, "positions");
    tables.forEach((table, n) => panel.append(...positionCards(table, kind, facts[n]), dimensionCard(table, curves.filter(({ stack }) => stack === table.stack))));
    if (sum) sum.dimensions.forEach((_, n) => panel.append(sumCard(sum, n)));
    biases.forEach(given => panel.append(biasCard(given, kind)));
    scores.forEach(given => panel.append(biasCard(given, kind)));
    if (!tables.length && !biases.length) panel.append(card("Positions", make("p", { class: "says" }, "This model has no position vectors.")));
  },
});

function positionCards(table, kind, named) {
  const whose = table.stack === "both" ? "encoder and decoder" : table.stack;
  const facts = make("table", { class: "plain" }, make("tbody", {}, ...named.map(([name, text]) => make("tr", {},
    make("th", { scope: "row" }, name), make("td", {}, text)))));
  const n = table.table.length, width = table.table[0].length, numbers = table.table.flat();
  const scale = numbers.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-30), values = numbers.map(value => value / scale);
  const similarity = new Float32Array(n * n);
  for (let p = 0; p < n; p++) {
    for (let r = 0; r < n; r++) {
      for (let d = 0; d < width; d++) similarity[p * n + r] += values[p * width + d] * values[r * width + d];
    }
  }
  const largest = similarity.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-30);
  const field = make("canvas", { class: "field", role: "img", "aria-label": `Position vectors: ${n} positions by ${width} dimensions`,
    style: `width:min(100%, ${Math.max(360, Math.min(720, 5 * width))}px);height:${Math.min(400, 6 * n)}px` });
  paintField(field, values, width, n, twoSided);
  const square = make("canvas", { class: "field", role: "img", "aria-label": "Similarity of every two positions", style: "width:300px;height:300px" });
  paintField(square, similarity.map(value => value / largest), n, n, twoSided);
  return [
    card(`${kind[0].toUpperCase()}${kind.slice(1)} positions, ${whose}`, facts),
    card("The vectors", make("p", { class: "says" }, `Row: position 0 to ${n - 1}, column: dimension 0 to ${width - 1}. Blue below 0, orange above; `
      + `full color is ±${scale.toPrecision(3)}, and values are stored in steps of 1/127 of it.`), field),
    card("Similarity of positions", make("p", { class: "says" }, "Left, PE·PEᵀ: row and column are positions. Right, the mean of PE(p)·PE(p+k) over p, by offset k."),
      make("div", { class: "row" }, square, curveOf([table.by_offset.map(one => one.mean)], table.by_offset.map((_, k) => k), "offset k")), offsetTable(table.by_offset)),
  ];
}

const DIMENSIONS = [4, 5, 6, 7]; // shown at first

/** Curves of chosen dimensions of the vectors by position. */
function dimensionCard(table, curves) {
  const width = table.table[0].length, places = table.table.map((_, p) => p), titles = new Map(curves.map(({ dimension, title }) => [dimension, title]));
  const first = curves.length ? [...titles.keys()] : DIMENSIONS.filter(dimension => dimension < width);
  const field = make("input", { value: first.join(", "), size: "24" }), drawn = make("div", {});
  const show = () => {
    const chosen = [...new Set(field.value.split(/[\s,]+/).filter(Boolean).map(Number))].filter(dimension => Number.isInteger(dimension) && dimension >= 0 && dimension < width);
    const names = chosen.map(dimension => titles.get(dimension) ?? `dimension ${dimension}`);
    drawn.replaceChildren(...(chosen.length ? [make("div", { class: "row" }, curveOf(chosen.map(dimension => table.table.map(row => row[dimension])), places, "position p", names), keyOf(names))]
      : [make("p", { class: "says" }, `Type numbers from 0 to ${width - 1}.`)]));
  };
  field.addEventListener("change", show);
  show();
  return card("Curves of dimensions", make("p", { class: "says" }, make("label", {}, `Dimensions (0 to ${width - 1}): `, field)), drawn);
}

/** What a text gets in one dimension: embedding, position and their sum. */
function sumCard(sum, place) {
  const names = ["embedding", "position", "sum"], lists = names.map(name => sum[name].map(row => row[place]));
  const rows = sum.pieces.map((piece, p) => [String(p), bidi(piece), ...lists.map(list => decimal(list[p]))]);
  return card(`Dimension ${sum.dimensions[place]}: embedding + position = sum`, make("p", { class: "says" }, bidi(sum.text)),
    make("div", { class: "row" }, curveOf(lists, sum.pieces.map((_, p) => p), "position p", names), keyOf(names), plainTable(["p", "token", ...names], rows, "Embedding, position and sum")));
}

/** The names of curves, each after a piece of its line. */
function keyOf(names) {
  return make("p", { class: "says" }, ...names.flatMap((name, n) => {
    const { color, dash } = styleOf({ head: n }, "layer"), line = draw("svg", { width: 28, height: 9, "aria-hidden": "true" });
    line.append(draw("path", { d: "M0 5h24", stroke: color, "stroke-width": 2, ...(dash ? { "stroke-dasharray": dash } : {}) }));
    return [line, name, make("br")];
  }));
}

/** The biases of each head's scores by offset, or a layer's mean scores. */
function biasCard({ stack, layer, offsets, heads }, kind) {
  const numbers = heads.flat(), scale = numbers.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-30);
  const isBias = layer === undefined, what = isBias ? "Each bias is added to the score of key j for query i in all layers."
    : "Mean score of key j for query i on random tokens, minus its mean over offsets.";
  const field = make("canvas", { class: "field", role: "img", "aria-label": `${isBias ? "Biases" : "Mean scores"} of ${heads.length} heads at ${offsets.length} offsets`,
    style: `width:min(100%, ${Math.max(360, Math.min(720, 8 * offsets.length))}px);height:${14 * heads.length}px` });
  paintField(field, numbers.map(value => value / scale), offsets.length, heads.length, twoSided);
  const rows = offsets.map((offset, n) => [String(offset), ...heads.map(head => decimal(head[n], 3))]);
  const whole = card(`${kind[0].toUpperCase()}${kind.slice(1)} positions, ${stack}${isBias ? "" : `, layer ${layer}: scores by offset`}`,
    make("p", { class: "says" }, `${what} Row: head, column: offset j − i from ${offsets[0]} to ${offsets.at(-1)}. `
      + `Blue below 0, orange above; full color is ±${scale.toPrecision(3)}. The curves show the same heads.`),
    make("div", { class: "row" }, field, curveOf(heads, offsets, "j − i")),
    make("details", {}, make("summary", {}, `Table of ${isBias ? "biases" : "mean scores"} by offset`), plainTable(["j − i", ...heads.map((_, head) => `head ${head}`)], rows, isBias ? "Biases by offset" : "Mean scores by offset")));
  whole.classList.add("whole");
  return whole;
}

/** The similarity at each offset in numbers. */
function offsetTable(offsets) {
  const rows = offsets.map(({ offset, mean, smallest, largest }) => [String(offset), ...[mean, smallest, largest].map(value => decimal(value, 4))]);
  return make("details", {}, make("summary", {}, "Table of PE(p)·PE(p+k) by offset k"), plainTable(["k", "mean", "smallest", "largest"], rows, "Similarity by offset"));
}

/** Colors from −1 to 1: blue, the ground, orange. */
function twoSided(value) {
  const ground = isDark() ? [22, 27, 38] : [255, 255, 255];
  const end = value < 0 ? (isDark() ? [109, 158, 241] : [31, 90, 190]) : (isDark() ? [240, 160, 80] : [205, 100, 10]);
  const share = Math.min(1, Math.abs(value));
  return ground.map((channel, n) => Math.round(channel + (end[n] - channel) * share));
}

/** A curve for each of some lists of numbers, over the offsets that they are of. */
function curveOf(lists, offsets, name, names = lists.map((_, head) => `head ${head}`)) {
  const values = lists.flat(), width = 460, height = 300, left = 58, bottom = 34, low = Math.min(0, ...values), high = Math.max(0, ...values);
  const xOf = k => left + k / Math.max(1, offsets.length - 1) * (width - left - 14);
  const yOf = value => 12 + (high - value) / Math.max(1e-30, high - low) * (height - bottom - 24);
  const svg = newFigure(width, height, lists.length > 1 ? `Curves by ${name}: ${names.join(", ")}` : `Curve by ${name}`), soft = styleColor("--soft"), line = styleColor("--line");
  for (const value of new Set([low, 0, high / 2, high])) {
    svg.append(draw("line", { x1: left, x2: width - 14, y1: yOf(value), y2: yOf(value), stroke: line }),
      draw("text", { x: left - 8, y: yOf(value), "font-size": 11, "text-anchor": "end", "dominant-baseline": "central", fill: soft }, Number(value.toPrecision(3)).toString()));
  }
  for (const k of new Set([0, Math.floor((offsets.length - 1) / 2), offsets.length - 1])) {
    svg.append(draw("text", { x: xOf(k), y: height - 20, "font-size": 11, "text-anchor": "middle", fill: soft }, String(offsets[k])));
  }
  svg.append(draw("text", { x: (left + width) / 2, y: height - 4, "font-size": 11, "text-anchor": "middle", fill: soft }, name));
  lists.forEach((list, n) => {
    const { color, dash } = styleOf({ head: n }, "layer");
    const drawn = draw("polyline", { points: list.map((value, k) => `${xOf(k).toFixed(1)},${yOf(value).toFixed(1)}`).join(" "), fill: "none",
      stroke: color, "stroke-width": 2, ...(lists.length > 1 && dash ? { "stroke-dasharray": dash } : {}) });
    if (lists.length > 1) drawn.append(draw("title", {}, names[n]));
    svg.append(drawn);
  });
  svg.style.maxWidth = "100%";
  svg.style.height = "auto";
  return svg;
}
