// Why a weight is large or small: query times key by dimension, and the scores of all keys.

const MOST_NAMED = 3; // dimensions that are named, of either sign
let shownPair = ""; // the pair in the panel

/**
 * Queries and keys of a head, if the page has them: {queries, keys} of lists of vectors.
 *
 * @param {Head} head
 */
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

/**
 * The query and key of the panel: those pointed at or kept, else the most telling ones.
 *
 * @param {Head} head
 */
function pairOf(head) {
  const at = pointedAt() ?? {}, columns = columnsOf(head), values = weightsOf(head), k = columns.length;
  const row = at.row ?? tellingLink(head)?.rows.at(-1) ?? 0;
  const weights = values.subarray(row * k, (row + 1) * k);
  const column = at.column ?? weights.indexOf(Math.max(...weights));
  return { row, column };
}

/**
 * The terms of a head's scores besides its products: {factor, c, b}; c and b are functions of row and key, or missing.
 *
 * @param {Head} head
 * @param {number} width
 * @returns {Terms<(row: number, key: number) => number>}
 */
function termsOf(head, width) {
  if (head.terms) return head.terms;
  const { factor = width ** -.5, c, b } = sentence.terms?.[head.id] ?? {}, k = columnsOf(head).length;
  const numbers = text => {
    if (text === undefined) return undefined;
    const packed = unpacked(text), isOfKeys = packed.byteLength === 4 * k; // the same of all queries
    return (row, key) => packed.getFloat32(4 * ((isOfKeys ? 0 : row * k) + key), true);
  };
  return head.terms = { factor, c: numbers(c), b: numbers(b) };
}

/**
 * The range of keys that a query sees: the first, and one past the last.
 *
 * @param {Head} head
 * @param {number} row
 */
function seenBy(head, row) {
  if (head.kind !== "dec") return [0, columnsOf(head).length];
  return [sentence.segment ? Math.max(0, row - row % sentence.segment - sentence.memory) : 0, row + 1];
}

/**
 * Scores of a query with all keys that it may see, their terms and softmax; they begin at key `first`.
 *
 * @param {Head} head
 * @param {{queries: Float32Array[], keys: Float32Array[]}} vectors
 * @param {number} row
 */
function scoresOf(head, vectors, row) {
  const query = vectors.queries[row], { factor, c, b } = termsOf(head, query.length), [first, last] = seenBy(head, row);
  const parts = vectors.keys.slice(first, last).map((key, n) => ({
    product: factor * key.reduce((sum, value, d) => sum + value * query[d], 0), c: c?.(row, first + n) ?? 0, b: b?.(row, first + n) ?? 0 }));
  const scores = parts.map(part => part.product + part.c + part.b);
  const most = Math.max(...scores), shares = scores.map(score => Math.exp(score - most)), total = shares.reduce((sum, one) => sum + one, 0);
  return { first, parts, scores, weights: shares.map(share => share / total) };
}

/** Shows the panel for the pair that is pointed at or kept, else the most telling one. */
function showProducts() {
  const box = byId("qk"), head = chosenHead();
  box.hidden = !sentence.vectors;
  if (box.hidden || (state.tab !== "heads" && !isPrinting)) return;
  const { row, column } = pairOf(head), pair = [state.s, head.id, row, column, isDark(), byId("qk-body").clientWidth].join(" ");
  if (pair === shownPair) return;
  shownPair = pair;
  byId("qk-how").textContent = sentence.terms ? "Its score, term by term" : "The query times the key";
  const vectors = vectorsOf(head);
  byId("qk-body").replaceChildren(...vectors ? productParts(head, vectors, row, column) : [make("p", { class: "says" },
    `This page holds queries and keys for the first ${Object.keys(sentence.vectors).length} of the ${sentence.heads.length} heads of this sentence, but not for ${head.id}. `,
    make("code", {}, `tformer inspect-step … --head ${head.id} --token ${row}`), " shows them.")]);
  elements(".scroll", box).forEach(letScroll);
}

function productParts(head, vectors, row, column) {
  const key = vectors.keys[column], query = vectors.queries[row];
  const choose = make("p", { class: "pick" }, "Query ", chooser("row", "Query", rowsOf(head), row), " Key ", chooser("key", "Key", columnsOf(head), column));
  const found = scoresOf(head, vectors, row), { scores, weights, parts } = found, at = column - found.first;
  const keys = keyTable(head, found, column), beside = (...shown) => [make("div", { class: "beside" }, make("div", {}, choose, ...shown), keys)];
  if (!scores[at] && scores[at] !== 0) return beside(make("p", { class: "says" }, at < 0 ? "This key is masked: it is older than the memory, so it has no score."
    : "This key is masked: it comes after the query, so it has no score."));
  const { factor, c, b } = termsOf(head, query.length), terms = sentence.terms ? [termTable(factor, c, b, parts[at], scores[at], weights[at])] : [];
  if (!factor) return beside(...terms);
  const products = Array.from(query, (value, d) => value * key[d]), width = query.length;
  const sum = products.reduce((total, one) => total + one, 0), order = [...products.keys()].sort((a, b) => products[b] - products[a]);
  const named = list => list.map(d => `${d} (${signed(products[d], 2)})`).join(", ");
  const forIt = order.slice(0, MOST_NAMED).filter(d => products[d] > 0), against = order.slice(-MOST_NAMED).reverse().filter(d => products[d] < 0);
  const says = make("p", { class: "says", id: "qk-says" }, `The products of the ${width} dimensions sum to ${decimal(sum, 2)}. `,
    ...terms.length ? [] : [`Divided by √${width} = ${decimal(Math.sqrt(width), 2)} that is the score, `,
      make("b", {}, decimal(scores[at], 2)), "; the softmax over all keys turns it into the weight ", make("b", {}, decimal(weights[at], 3)), ". "],
    forIt.length ? `Largest terms: dimensions ${named(forIt)}. ` : "", against.length ? `Most negative: ${named(against)}.` : "");
  const figure = productFigure(query, key, products, `Query times key of ${head.id}, dimension by dimension`);
  const scale = make("p", { class: "fine" }, `Orange is above 0, blue below. Full color in query and key is ±${Math.max(...query.map(Math.abs), ...key.map(Math.abs)).toPrecision(2)}; `
    + `the tallest product is ${decimal(products.reduce((most, one) => Math.abs(one) > Math.abs(most) ? one : most, 0), 2)}.`);
  return beside(make("div", { class: "scroll" }, figure), scale, says, ...terms);
}

/** The terms of a score, and their formulas. */
function termTable(factor, c, b, { product, c: ofSimilarity, b: ofPositions }, score, weight) {
  const rows = [factor && [`${factor === 1 ? "" : `${Number(factor.toPrecision(4))} · `}q·k`, product, "the product of query and key"], c && [factor ? "c" : "s", ofSimilarity, factor ? "the constant of the similarity" : "the similarity of query and key"],
    b && ["b", ofPositions, "the term for positions"], ["score", score, "their sum"], ["weight", weight, "after the softmax over all keys"]].filter(Boolean);
  const formulas = sentence.formulas.length ? [make("p", { class: "fine" }, `In this model, ${sentence.formulas.join("; ")}.`)] : [];
  return make("div", { id: "qk-terms" }, plainTable(["term", "value", "what it is"], rows.map(([name, value, what]) => [name, decimal(value, 3), what]), "The terms of the score"), ...formulas);
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
function keyTable(head, { first, scores, weights }, column) {
  const names = columnsOf(head), lines = scores.map((score, j) => make("tr", first + j === column ? { class: "on" } : {}, make("th", { scope: "row", class: "text" }, bidi(names[first + j])),
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
