// Why a weight is as large as it is: the query times the key, dimension by dimension, and the scores of all keys.

const MOST_NAMED = 3; // dimensions that are named, of either sign
let shownPair = ""; // what the panel shows now

/** Queries and keys of a head, if the page has them: {queries, keys} of lists of vectors. */
function vectorsOf(head) {
  const text = sentence.vectors?.[head.id];
  if (!text) return null;
  if (head.vectors) return head.vectors;
  const packed = unpacked(text), q = rowsOf(head).length, count = q + columnsOf(head).length, width = packed.byteLength / 2 / count;
  const all = Array.from({ length: count }, (_, n) => Float32Array.from({ length: width }, (_, d) => half(packed.getUint16(2 * (n * width + d), true))));
  return head.vectors = { queries: all.slice(0, q), keys: all.slice(q) };
}

/** A float16 number from its bits. */
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = bits >> 10 & 31, fraction = bits & 1023;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : fraction * 2 ** -24);
}

/** The query and the key that are worked out: those pointed at or kept, else the ones that tell most. */
function pairOf(head) {
  const at = pointedAt() ?? {}, columns = columnsOf(head), values = weightsOf(head), k = columns.length;
  const row = at.row ?? tellingLink(head)?.rows.at(-1) ?? 0;
  const weights = values.subarray(row * k, (row + 1) * k);
  const column = at.column ?? weights.indexOf(Math.max(...weights));
  return { row, column };
}

/** Scores of a query with all keys it may see, and the softmax of them. */
function scoresOf(head, vectors, row) {
  const query = vectors.queries[row], scale = Math.sqrt(query.length);
  const scores = vectors.keys.slice(0, head.kind === "dec" ? row + 1 : undefined)
    .map(key => key.reduce((sum, value, d) => sum + value * query[d], 0) / scale);
  const most = Math.max(...scores), shares = scores.map(score => Math.exp(score - most)), total = shares.reduce((sum, one) => sum + one, 0);
  return { scores, weights: shares.map(share => share / total) };
}

/** Shows the panel for the pair that is pointed at, kept, or tells most. */
function showProducts() {
  const box = byId("qk"), head = chosenHead();
  box.hidden = !sentence.vectors;
  if (box.hidden || (state.tab !== "heads" && !isPrinting)) return;
  const { row, column } = pairOf(head), pair = [state.s, head.id, row, column, isDark(), byId("qk-body").clientWidth].join(" ");
  if (pair === shownPair) return;
  shownPair = pair;
  const vectors = vectorsOf(head);
  byId("qk-body").replaceChildren(...vectors ? productParts(head, vectors, row, column) : [make("p", { class: "says" },
    `The page has room for the queries and keys of ${Object.keys(sentence.vectors).length} of the ${sentence.heads.length} heads of this sentence, the clearest ones; ${head.id} is not among them. `,
    make("code", {}, `tformer inspect-step … --head ${head.id} --token ${row}`), " shows them.")]);
}

function productParts(head, vectors, row, column) {
  const isMasked = head.kind === "dec" && column > row, key = vectors.keys[column], query = vectors.queries[row];
  const choose = make("p", { class: "pick" }, "Query ", chooser("row", "Query", rowsOf(head), row), " Key ", chooser("key", "Key", columnsOf(head), column));
  const { scores, weights } = scoresOf(head, vectors, row);
  const keys = keyTable(head, scores, weights, column);
  if (isMasked) return [make("div", { class: "beside" }, make("div", {}, choose, make("p", { class: "says" }, "This key is masked: it comes after the query, so it has no score.")), keys)];
  const products = Array.from(query, (value, d) => value * key[d]), width = query.length;
  const sum = products.reduce((total, one) => total + one, 0), order = [...products.keys()].sort((a, b) => products[b] - products[a]);
  const named = list => list.map(d => `${d} (${signed(products[d], 2)})`).join(", ");
  const forIt = order.slice(0, MOST_NAMED).filter(d => products[d] > 0), against = order.slice(-MOST_NAMED).reverse().filter(d => products[d] < 0);
  const says = make("p", { class: "says", id: "qk-says" }, `The products of the ${width} dimensions sum to ${decimal(sum, 2)}. Divided by √${width} = ${decimal(Math.sqrt(width), 2)} that is the score, `,
    make("b", {}, decimal(sum / Math.sqrt(width), 2)), "; the softmax over all keys turns it into the weight ", make("b", {}, decimal(weights[column], 3)), ". ",
    forIt.length ? `Most for it: dimensions ${named(forIt)}. ` : "", against.length ? `Most against it: ${named(against)}.` : "");
  const figure = productFigure(query, key, products, `Query times key of ${head.id}, dimension by dimension`);
  const scale = make("p", { class: "fine" }, `Orange is above 0, blue below. Full color in query and key is ±${Math.max(...query.map(Math.abs), ...key.map(Math.abs)).toPrecision(2)}; `
    + `the tallest product is ${decimal(products.reduce((most, one) => Math.abs(one) > Math.abs(most) ? one : most, 0), 2)}.`);
  return [make("div", { class: "beside" }, make("div", {}, choose, make("div", { class: "scroll" }, figure), scale, says), keys)];
}

/** A choice of tokens that keeps the row or the key. */
function chooser(name, label, tokens, chosen) {
  const select = make("select", { "aria-label": label, id: `qk-${name}` }, ...tokens.map((text, n) => make("option", { value: String(n), ...(n === chosen ? { selected: "" } : {}) }, `${n}  ${clean(text)}`)));
  select.addEventListener("change", () => {
    const value = select.value;
    hovered = null;
    update({ [name]: value });
    byId(`qk-${name}`)?.focus();
  });
  return select;
}

/** Scores and weights of all keys that the query sees. */
function keyTable(head, scores, weights, column) {
  const names = columnsOf(head), lines = scores.map((score, j) => make("tr", j === column ? { class: "on" } : {}, make("th", { scope: "row", class: "text" }, bidi(names[j])),
    make("td", {}, decimal(score, 2)), make("td", {}, decimal(weights[j], 3)),
    make("td", { class: "text", "aria-hidden": "true" }, make("span", { class: "share", style: `width:${(90 * weights[j]).toFixed(1)}px;background:var(--${head.kind})` }))));
  return make("div", { class: "scroll keys-of-query" }, make("table", { class: "wide" }, make("caption", {}, "All keys that this query sees"),
    make("thead", {}, make("tr", {}, make("th", { scope: "col", class: "text" }, "key"), make("th", { scope: "col" }, "score"), make("th", { scope: "col" }, "weight"), make("th", { class: "text", "aria-hidden": "true" }))),
    make("tbody", {}, ...lines)));
}

/** Two strips, query and key, and below them their products as bars that sum to the score times √E. */
function productFigure(query, key, products, title) {
  const n = query.length, room = Math.max(280, Math.min(980, byId("qk-body").clientWidth - (byId("qk-body").clientWidth > 860 ? 340 : 10)));
  const left = 76, cell = Math.max(4, Math.min(26, (room - left - 8) / n)), width = Math.ceil(left + n * cell + 8), strip = 18, top = 6, barTop = top + 2 * strip + 18, tall = 120;
  const height = barTop + tall + 20, soft = styleColor("--soft"), line = styleColor("--line");
  const most = Math.max(...query.map(Math.abs), ...key.map(Math.abs), 1e-9), high = Math.max(0, ...products), low = Math.min(0, ...products), span = Math.max(1e-9, high - low);
  const yOf = value => barTop + (high - value) / span * tall, svg = newFigure(width, height, title);
  const name = (text, y) => draw("text", { x: left - 8, y, "font-size": 12, "text-anchor": "end", "dominant-baseline": "central", fill: soft }, text);
  svg.append(name("query", top + strip / 2), name("key", top + strip * 1.5 + 3), name("product", yOf(0)));
  for (const [place, values] of [[top, query], [top + strip + 3, key]]) {
    values.forEach((value, d) => svg.append(draw("rect", { x: left + d * cell, y: place, width: Math.max(1, cell - .6), height: strip, fill: hex(twoSided(value / most)) })));
    svg.append(draw("rect", { x: left, y: place, width: n * cell, height: strip, fill: "none", stroke: line }));
  }
  const [plus, minus] = [1, -1].map(sign => hex(twoSided(sign)));
  products.forEach((value, d) => {
    const bar = draw("rect", { x: left + d * cell + .3, y: Math.min(yOf(0), yOf(value)), width: Math.max(1, cell - .6), height: Math.max(.5, Math.abs(yOf(value) - yOf(0))), fill: value > 0 ? plus : minus });
    bar.append(draw("title", {}, `dimension ${d}: ${decimal(query[d], 2)} × ${decimal(key[d], 2)} = ${decimal(value, 2)}`));
    svg.append(bar);
  });
  svg.append(draw("line", { x1: left, x2: left + n * cell, y1: yOf(0), y2: yOf(0), stroke: soft }));
  const every = cell * 4 > 24 ? 4 : cell * 8 > 24 ? 8 : 16;
  for (let d = 0; d < n; d += every) svg.append(draw("text", { x: left + (d + .5) * cell, y: height - 10, "font-size": 10.5, "text-anchor": "middle", "dominant-baseline": "central", fill: soft }, String(d)));
  svg.append(name("dimension", height - 10));
  return svg;
}
