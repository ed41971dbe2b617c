// One attention head and the feed-forward layer behind it, computed again in float64 from a model's weights, as plugins/instruments/walkthrough/trace.py.

import { ACTIVATIONS } from "./engine/kernels.js";
import { force } from "./engine/search.js";

export const sum = numbers => numbers.reduce((total, number) => total + number, 0);
export const dot = (a, b) => sum(a.map((number, i) => number * b[i]));
const exact = part => part && Float64Array.from(part.data);

/** Splits numbers into n rows, in float64. */
export function splitRows(numbers, n) {
  const width = numbers.length / n;
  return Array.from({ length: n }, (_, row) => Float64Array.from(numbers.subarray(row * width, (row + 1) * width)));
}

/** Computes W·x + b for some rows of W. */
export function multiply(x, { data: weights, shape: [n, width] }, bias = null, from = 0, to = n) {
  return Float64Array.from({ length: to - from }, (_, i) => {
    let total = bias ? bias.data[from + i] : 0;
    for (let j = 0, at = (from + i) * width; j < width; j++) total += x[j] * weights[at + j];
    return total;
  });
}

/** The shares of e^x, and what they are made of. */
export function sharesOf(numbers) {
  const most = numbers.reduce((most, number) => Math.max(most, number), -Infinity), exponentials = numbers.map(number => Math.exp(number - most)), total = sum(exponentials);
  return { exponentials, total, shares: exponentials.map(number => number / total) };
}

/** The norm of a vector, with all its numbers in rows; `of` names the vector. */
export function traceNorm(before, { weight, bias, epsilon, isCentered }, of) {
  const mean = isCentered ? sum(before) / before.length : 0, centered = before.map(number => number - mean), variance = dot(centered, centered) / before.length;
  const deviation = Math.sqrt(variance + epsilon), scale = exact(weight), shift = exact(bias) ?? new Float64Array(before.length);
  const standardized = centered.map(number => number / deviation), after = standardized.map((number, i) => scale[i] * number + shift[i]);
  const [numberOf, name] = [number => number.toFixed(4), isCentered ? `LN(${of})` : `RMS(${of})`];
  return isCentered ? {
    before, after, name, kind: "LN", formula: `${name} = γ·(${of} − μ) / √(σ² + ε) + β`, says: `Here μ = ${numberOf(mean)}, the variance σ² = ${numberOf(variance)} and √(σ² + ε) = ${numberOf(deviation)}.`,
    rows: [[`(${of} − μ)/√(σ²+ε)`, standardized], ["γ", scale], ["β", shift], [name, after]],
  } : {
    before, after, name, kind: "RMS", formula: `${name} = γ·${of} / √(mean(${of}²) + ε)`, says: `Here mean(${of}²) = ${numberOf(variance)} and √(mean(${of}²) + ε) = ${numberOf(deviation)}.`,
    rows: [[`${of}/√(mean(${of}²)+ε)`, standardized], ["γ", scale], [name, after]],
  };
}

/**
 * Records what the engine itself computes of a record's tokens, with the output of an encoder at a place.
 *
 * Returns rows(place, name, n), n rows in float64 of all positions, and last(place), the values of the last call.
 */
export function observe(model, record, at, off = []) {
  const seen = {};
  model.watch = (place, values) => (seen[place] ??= []).push(values);
  try {
    const source = record.source && model.encode(record.source.ids, { off });
    if (record.rows) model.outputs(source, [at]);
    else force(model, source, record.ids.slice(0, -1), { off, top: 1 });
  } finally {
    model.watch = null;
  }
  return {
    rows: (place, name, n) => seen[place].length > 1 ? seen[place].map(values => Float64Array.from(values[name])) : splitRows(seen[place][0][name], n),
    last: place => seen[place]?.at(-1),
    firsts: place => seen[place].map(({ first }) => first),
  };
}

/** The parts of x in the first layer of a stack. */
function traceEmbedding(model, side, id, row) {
  const { config, sourceMatrix, targetMatrix, tensors } = model, d = config.d_model, { data: rows } = side === "encoder" ? sourceMatrix : targetMatrix, norm = model.normOf(`${side}_input.norm`), isScaled = config.scale_embeddings;
  const table = config.positions === "relative" ? null : tensors[`${side}_input.positions.table`]?.data.subarray(row * d, (row + 1) * d);
  const position = table ?? (config.positions === "sinusoidal" ? model.sinusoid(row) : null), scaled = Float64Array.from(rows.subarray(id * d, (id + 1) * d), number => isScaled ? Math.sqrt(d) * number : number);
  const before = position ? scaled.map((number, i) => number + position[i]) : scaled, normed = norm && traceNorm(before, norm, "");
  return { formula: isScaled ? "√d_model · E[token]" : "E[token]", label: isScaled ? "√d·E[token]" : "E[token]", scaled, position: position && Float64Array.from(position), before, norm: normed, result: normed ? normed.after : before };
}

/** Queries or keys of a head as they are compared: turned by their positions, and as the similarity takes them. */
function compare({ model, attention, turns }, rows, head, isQuery) {
  const e = model.headWidth, half = e / 2, { relative, factors } = attention;
  return rows.map((vector, at) => {
    let made = vector.slice();
    if (turns) {
      const turn = model.sinusoid(at);
      for (let i = 0; i < half; i++) {
        made[i] = vector[i] * turn[2 * i + 1] - vector[i + half] * turn[2 * i];
        made[i + half] = vector[i + half] * turn[2 * i + 1] + vector[i] * turn[2 * i];
      }
    }
    if (isQuery && relative) made = made.map((number, i) => number + relative.content[head * e + i]);
    const size = Math.max(Math.sqrt(dot(made, made)), 1e-12);
    return factors ? made.map(number => number / size * (isQuery ? factors[head] : 1)) : made;
  });
}

/** Every number between the input of a layer and its output, for a head and a row. */
export function traceHead(model, record, own, { kind, layer, head, row, n }) {
  const { config, headWidth: e } = model, isCross = kind === "cross", of = (kind === "enc" ? model.encoder : model.decoder)[layer], attention = isCross ? of.cross : of.self;
  const norm = isCross ? of.second : of.first, place = `${of.name}.${isCross ? "cross" : "self"}`, { heads, keyHeads, inner, innerBias, outer, outerBias } = attention;
  const stream = own.rows(place, "stream", n), read = kind === "enc" ? record.source.ids : record.ids;
  const embedding = layer === 0 && !isCross ? traceEmbedding(model, kind === "enc" ? "encoder" : "decoder", read[row], row) : null;
  if (embedding) stream[row] = embedding.result;
  const entering = model.isPreNorm ? stream.map(x => traceNorm(x, norm, "x").after) : stream, memory = isCross ? splitRows(record.source.states, record.source.n) : entering;
  const project = (rows, count, first) => {
    const projected = rows.map(x => inner ? multiply(x, inner, innerBias, first * e, (first + count) * e) : x);
    return Array.from({ length: heads }, (_, number) => Math.floor(number * count / heads) * e).map(from => projected.map(x => x.subarray(from, from + e)));
  };
  const queries = project(entering, heads, 0), keys = project(memory, keyHeads, heads), values = project(memory, keyHeads, heads + keyHeads);
  const turns = config.positions === "rotary" && !isCross, parts = { model, attention, turns }, isChanged = turns || Boolean(attention.relative || attention.factors);
  const [q, k] = [queries, keys].map((each, n) => isChanged ? each.map((rows, number) => compare(parts, rows, number, n === 0)) : each);
  const factor = model.scaleOfScores, firsts = own.firsts(attention.name), isVisible = (i, j) => kind !== "dec" || (j <= i && j >= (firsts[i] ?? 0));
  const similarityOf = (number, i, j) => {
    if (attention.vector) return sum(q[number][i].map((value, d) => attention.vector[number * e + d] * Math.tanh(value + k[number][j][d])));
    return config.similarity === "distance" ? -.5 * factor * dot(k[number][j], k[number][j]) : null;
  };
  const biasOf = (number, i, j) => {
    if (isCross) return null;
    if (attention.relative) return factor * model.compareDistance(attention, number, q[number][i], 0, Math.max(0, i - j));
    return attention.bias ? attention.bias(number, j - i) : null;
  };
  const terms = (of, number, i) => Float64Array.from(memory, (_, j) => of(number, i, j));
  const scoreOf = (number, i, j) => factor ? dot(q[number][i], k[number][j]) : similarityOf(number, i, j);
  const scaledOf = (number, i, j) => isVisible(i, j) ? (factor ? factor * scoreOf(number, i, j) + (similarityOf(number, i, j) ?? 0) : scoreOf(number, i, j)) + (biasOf(number, i, j) ?? 0) : -Infinity;
  const allWeights = queries.map((_, number) => stream.map((_, i) => sharesOf(terms(scaledOf, number, i)).shares));
  const allContext = allWeights.map((rows, number) => rows.map(weights => Float64Array.from({ length: e }, (_, d) => sum(weights.map((weight, j) => weight * values[number][j][d])))));
  const joined = stream.map((_, i) => Float64Array.from(allContext.flatMap(rows => [...rows[i]]))), attended = joined.map(x => outer ? multiply(x, outer, outerBias) : x);
  const summed = stream.map((x, i) => x.map((number, d) => number + attended[i][d])), scaled = terms(scaledOf, head, row), alone = new Float64Array(heads * e);
  alone.set(allContext[head][row], head * e);
  return {
    of, place, attention, embedding, stream, entering, memory, turns, factor, width: e, normBefore: model.isPreNorm ? traceNorm(stream[row], norm, "x") : null, normAfter: model.isPreNorm ? null : traceNorm(summed[row], norm, "r"),
    query: queries[head][row], key: keys[head], value: values[head], compared: isChanged ? [q[head][row], k[head]] : null, scores: terms(scoreOf, head, row), scaled, ...sharesOf(scaled), weights: allWeights[head][row],
    ownBias: similarityOf(head, row, 0) === null ? null : terms(similarityOf, head, row), bias: biasOf(head, row, 0) === null ? null : terms(biasOf, head, row),
    weighted: values[head].map((value, j) => value.map(number => allWeights[head][row][j] * number)), context: allContext[head][row], allWeights: allWeights[head], allContext, joined, attended, summed,
    share: outer ? multiply(alone, outer) : alone,
  };
}

/** What the engine itself made of a head: its query, keys and values, scores by key and distance, and the sums of all heads by row. */
export function ownNumbers(model, own, attention, { kind, head, row, n }) {
  const e = model.headWidth, { name, heads, keyHeads } = attention, { keys, values } = own.last(name), apart = keyHeads * e, from = Math.floor(head * keyHeads / heads) * e;
  const query = own.rows(name, "queries", n)[row], wide = Float32Array.from(query), nKeys = kind === "dec" ? n : keys.length / apart, part = (x, number) => x.subarray(number * e, (number + 1) * e);
  const gather = x => Array.from({ length: nKeys }, (_, j) => Float64Array.from(x.subarray(j * apart + from, j * apart + from + e)));
  return {
    query: part(query, head), key: gather(keys), value: gather(values), context: own.rows(name, "context", n),
    scoreOf: (j, distance) => model.score(attention, head, wide, head * e, keys, j * apart + from, distance),
  };
}

/** The feed-forward layer behind an attention, for a row whose stream is x. */
export function traceFeedForward(model, of, x) {
  const name = `${of.name}.feed_forward`, part = end => ({ weight: model.tensors[`${name}.${end}.weight`], bias: model.tensors[`${name}.${end}.bias`] }), inner = part("inner"), outer = part("outer");
  const before = model.isPreNorm ? traceNorm(x, of.last, "x") : null, entering = before ? before.after : x, products = multiply(entering, inner.weight, inner.bias);
  const gate = model.config.gated ? multiply(entering, part("gate").weight, part("gate").bias) : null, activated = (gate ?? products).map(ACTIVATIONS[model.config.activation]);
  const middle = gate ? activated.map((number, i) => number * products[i]) : activated, output = multiply(middle, outer.weight, outer.bias), r = x.map((number, i) => number + output[i]);
  return { x, before, products, gate, activated, middle, output, r, after: model.isPreNorm ? null : traceNorm(r, of.last, "r"), hasBias: Boolean(inner.bias) };
}
