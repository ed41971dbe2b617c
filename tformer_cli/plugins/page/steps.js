// Step by step: the numbers of walk.js as tables, formulas and words, each compared with the engine's own, as plugins/instruments/walkthrough has them.

import { ACTIVATIONS } from "./engine/kernels.js";
import { mapOf } from "./answers.js";
import { dot, multiply, observe, ownNumbers, sharesOf, splitRows, sum, traceFeedForward, traceHead, traceNorm } from "./walk.js";

const N_CANDIDATES = 8, N_TERMS = 4, N_MASKED = 4, DETAIL_CELLS = 8192, EXAMPLE_WEIGHT = .7, EXAMPLE_LETTERS = 3;
const SIMILARITIES = {
  dot: ["s_j = q·k_j, not divided by √d_k"],
  cosine: ["q' = g·q / |q|", "k'_j = k_j / |k_j|", "s_j = q'·k'_j = g·cos(q, k_j), g learned"],
  distance: ["s_j = −|q − k_j|² / 2√d_k = q·k_j / √d_k − |k_j|² / 2√d_k − |q|² / 2√d_k", "c_j = −|k_j|² / 2√d_k; the last term is that of all keys and changes no weight"],
  additive: ["s_j = v·tanh(q + k_j) = Σ_i v_i·tanh(q_i + k_ji), v learned"],
};
const POSITIONS = {
  relative: ["b_j = B[bucket(j − i)], learned, i the position of q"],
  alibi: ["b_j = −m·|i − j|, m the slope of the head, i the position of q"],
  segments: ["b_j = (q + v)·W_R·R(i − j) / √d_k, v and W_R learned, R(n) sinusoids of n"],
};
const FUNCTIONS = { relu: "max(0, u)", gelu: "u·Φ(u)", "gelu-tanh": "u·(1 + tanh(√(2/π)·(u + 0.044715u³)))/2", swish: "u·σ(u) = u / (1 + e^(−u))" };

const decimal = (number, digits = 3) => number.toFixed(digits);
const lengthOf = vector => Math.sqrt(dot(vector, vector));
const countOf = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const argmax = numbers => numbers.reduce((best, number, i) => number > numbers[best] ? i : best, 0);
const largest = numbers => numbers.reduce((most, number) => Math.max(most, Math.abs(number)), 0);

/** How far numbers, or rows of them, are from the engine's own; large ones are compared by their size. */
function check(what, numbers, own) {
  const [ours, theirs] = [numbers, own].map(rows => typeof rows[0] === "number" ? [...rows] : rows.flatMap(row => [...row]));
  return { what, difference: largest(theirs.map((number, i) => number - ours[i])) / Math.max(1, largest(theirs)) };
}

function table(name, caption, rows, values, { columns = [], share = null, marked = null, isDetail = false } = {}) {
  return { name, caption, rows, columns, values: values.map(row => [...row].map(value => value === -Infinity ? null : value)), width: values[0].length, share, marked, is_detail: isDetail, blanks: {} };
}

/** The event: the steps of a head for a token, by its position; without one for a good example. */
export function stepsOf(page, record, off, { head: id, token }) {
  if (off.length) throw new Error("heads_off: the steps are those of the model with all its heads on");
  if (!page.heads.includes(id)) throw new Error(`head: name one of the model's, such as ${page.heads.at(-1)}`);
  const { model, tokenizer, config } = page, { source, ids } = record, [kind, layer, head] = id.split(".");
  const sources = source ? tokenizer.source.pieces(source.ids) : [], pieces = tokenizer.target.pieces(ids), [inputs, labels] = kind === "enc" ? [sources, sources] : [pieces.slice(0, -1), pieces.slice(1)];
  const map = splitRows(mapOf(page, record, id), labels.length), row = token ?? exampleRow(record, kind, map, labels);
  if (!labels[row]) throw new Error(`token: must be a position from 0 to ${labels.length - 1}`);
  const keys = kind === "dec" ? inputs : sources, nVisible = kind === "dec" ? row + 1 : keys.length, key = argmax(map[row].subarray(0, nVisible));
  const place = { kind, layer: Number(layer), head: Number(head), row, n: labels.length }, at = outputPosition(record, kind, row), own = observe(model, record, at);
  const trace = traceHead(model, record, own, place), about = { ...place, id, config, keys, nVisible, key, map, labels, query: inputs[row], hasCross: kind === "dec" && Boolean(trace.of.cross) };
  const output = record.rows ? encoderOutput(page, record, own, at, sources) : wordOutput(page, record, own, kind, at, pieces);
  const drawn = [inputStep(trace, about, own), ...headSteps(trace, about, ownNumbers(model, own, trace.attention, place)), joinStep(trace, about, own), residualStep(trace, about, own), feedForwardStep(model, trace, about, own), output];
  const steps = drawn.map((step, number) => ({ number, worked: "", checks: [], ...step, tables: step.tables.filter(({ is_detail: isDetail, values, width }) => !isDetail || values.length * width <= DETAIL_CELLS) }));
  const where = kind === "enc" ? `source token ${row}, ${labels[row]}` : `decoder position ${row}, which has read ${inputs[row]} and predicts ${labels[row]}`;
  const difference = Math.max(...steps.flatMap(step => step.checks.map(one => one.difference)));
  return { data: [{ schema: "tformer.step/1", head: id, norm: config.norm, row, token: labels[row], where, key, key_piece: keys[key], difference, steps, weight: map[row][key], is_whole: true }] };
}

/** A row that makes a good example: its largest weight on a word is near EXAMPLE_WEIGHT, and its name is a word. */
function exampleRow({ places }, kind, map, labels) {
  if (places?.length) return places[0];
  const first = Number(kind === "dec"), rows = map.slice(first, -1), end = map[0].length - 1 + first;
  if (!rows.length || end <= first) return 0;
  const costs = rows.map((row, n) => Math.abs(largest(row.subarray(first, end)) - EXAMPLE_WEIGHT) + Number([...labels[first + n].matchAll(/\p{L}/gu)].length < EXAMPLE_LETTERS));
  return first + costs.indexOf(Math.min(...costs));
}

/** The position whose word or label the last step computes. */
function outputPosition({ rows, places, ids }, kind, row) {
  if (!rows) return kind === "enc" ? ids.length - 2 : row;
  return places?.length && !places.includes(row) ? places[0] : row;
}

function inputStep({ embedding, stream, place, entering, memory, normBefore }, { kind, layer, row, query, keys, n }, own) {
  const rows = [], checks = [], formulas = [];
  let says = `x is the hidden state that enters ${kind}.${layer}, as the model computed it.`;
  if (embedding) {
    const { position, norm, before, scaled, label } = embedding, whole = position ? `${embedding.formula} + PE(position)` : embedding.formula;
    if (position) rows.push([label, scaled], ["PE(position)", position]);
    if (norm) rows.push([`before ${norm.kind}`, before]);
    formulas.push(`x = ${norm ? `${norm.kind}(${whole})` : whole}`);
    says = `The first layer begins with the token's embedding${position ? " and its position." : "; its position comes later."}${norm ? " This model normalizes their sum." : ""}`;
    checks.push(check("x", stream[row], own.rows(place, "stream", n)[row]));
  }
  rows.push(["x", stream[row]]);
  if (normBefore) {
    rows.push(...normBefore.rows);
    formulas.push(normBefore.formula);
    checks.push(check(normBefore.name, entering, own.rows(place, "entering", n)));
    says += ` This model normalizes first (pre-norm): below, x stands for ${normBefore.name}. ${normBefore.says}`;
  }
  if (kind === "cross") says += " Keys and values come from m, the encoder's output for each source token.";
  return { name: "input", title: "The input", formulas, says, checks, tables: [table("input", `input of ${query}`, ...columnsOf(rows)), table("keys_input", "input of keys and values", keys, memory, { isDetail: true })] };
}

/** Labels and vectors of rows, apart. */
const columnsOf = rows => [rows.map(([label]) => label), rows.map(([, values]) => values)];

/** The steps from queries to the sum of values, and the same for all tokens. */
function headSteps(trace, about, own) {
  const { attention, width, weights, context, weighted } = trace, { kind, layer, head, row, query, keys, key, nVisible, map, config, labels } = about;
  const isScaled = config.similarity === "scaled", source = kind === "cross" ? "m" : "x", bias = attention.innerBias ? " + b_" : "", project = matrix => attention.inner ? `·W_${matrix}${bias && bias + matrix}` : "";
  const sharing = attention.heads / attention.keyHeads, first = head - head % sharing, marked = { marked: key }, { scaled, exponentials, total } = trace;
  let shared = sharing === 1 ? "" : ` Heads ${kind}.${layer}.${first} to ${kind}.${layer}.${first + sharing - 1} share keys and values.`;
  if (!attention.inner) shared = " This model has no projections: each head takes its own part of x.";
  const others = [...weights.keys()].slice(0, nVisible).filter(one => one !== key).sort((a, b) => weights[b] - weights[a]), order = [key, ...others];
  const allOf = head => row => row.subarray(head * width, (head + 1) * width), zs = trace.allContext[head];
  return [{
    name: "projections", title: "Query, keys, values", formulas: [`q = x${project("Q")}`, `k_j = ${source}_j${project("K")}`, `v_j = ${source}_j${project("V")}`],
    says: `The token asks with q; every token it may look at answers with its key k and hands over its value v. Each has d_k = ${width} numbers.${shared}`,
    tables: [table("q", "query", [query], [trace.query]), table("k", "keys", keys, trace.key, marked), table("v", "values", keys, trace.value, marked)],
    checks: [...trace.compared ? [] : [check("q", trace.query, own.query), check("k", trace.key, own.key)], check("v", trace.value, own.value)],
  }, scoreStep(trace, about, own), scaledStep(trace, about, own), {
    name: "softmax", title: "Softmax", formulas: [isScaled ? "a_j = e^(s_j/√d_k) / Σ_i e^(s_i/√d_k)" : "a_j = e^(t_j) / Σ_i e^(t_i), t_j the result of step 3"],
    says: `The weights are positive and sum to 1; a masked −∞ becomes exactly 0. The largest scaled score, ${decimal(Math.max(...scaled))}, is subtracted first, which changes no weight; Σ e is then ${decimal(total)}.`,
    worked: `${decimal(exponentials[key])} / ${decimal(total)} = ${decimal(weights[key])}`,
    tables: [tableByKey("weights", "attention weights", about, [isScaled ? "÷ √d_k" : "step 3", "e^(…−max)", "weight"], [scaled, exponentials, weights], 2)],
    checks: [check("weights, of `inspect-heads`", weights, map[row])],
  }, {
    name: "weighted", title: "Weight the values", formulas: ["a_j·v_j"], says: "Each value is multiplied by its weight. (Step 6 checks their sum.)",
    worked: `${decimal(weights[key])} · ${decimal(trace.value[key][0])} = ${decimal(weighted[key][0])}`, tables: [table("weighted", "weight times value", keys, weighted, marked)],
  }, {
    name: "sum", title: "Sum", formulas: ["z = Σ_j a_j·v_j"], says: "This is the output of the head for the token.",
    worked: `z_0 = ${order.slice(0, N_TERMS).map(one => decimal(weighted[one][0])).join(" + ")}${order.length > N_TERMS ? ` + … (${order.length} terms)` : ""} = ${decimal(context[0])}`,
    tables: [table("z", "sum", ["z"], [context])], checks: [check("z", context, allOf(head)(own.context[row]))],
  }, {
    name: "matrix", title: "The same for all tokens at once", formulas: [isScaled ? "Z = softmax(Q·Kᵀ / √d_k)·V" : "Z = softmax(T)·V"],
    says: `Each row is one query; the marked row is the one of steps 1 to 6.${kind === "dec" ? " The upper triangle is masked." : ""}`,
    tables: [table("attention", "attention weights, a row per query", labels, trace.allWeights, { columns: keys, marked: row }), table("Z", "Z, a row per query", labels, zs, { marked: row, isDetail: true })],
    checks: [check("attention weights, of `inspect-heads`", trace.allWeights, map), check("Z", zs, own.context.map(allOf(head))), check("row of Z and z of step 6", context, zs[row])],
  }];
}

function tableByKey(name, caption, { keys, key }, columns, values, share = null) {
  return table(name, caption, keys, keys.map((_, j) => values.map(one => one[j])), { columns, share, marked: key });
}

function scoreStep(trace, about, own) {
  const { factor, compared, turns, scores, attention } = trace, { config, keys, key, query } = about, name = factor ? "q·k" : "s", marked = { marked: key };
  let formulas = ["s_j = q·k_j = Σ_i q_i·k_ji"], says = "The larger the score, the better key and query match.";
  const tables = [tableByKey("scores", "scores", about, [name], [scores])], checks = [check("scores, of the model's q and k", scores, factor ? own.key.map(one => dot(one, own.query)) : keys.map((_, j) => own.scoreOf(j, null)))];
  if (compared) {
    formulas = [...attention.relative ? ["q' = q + u, u learned"] : [], "s_j = q'·k'_j = Σ_i q'_i·k'_ji"];
    tables.unshift(table("q_turned", "q'", [query], [compared[0]]), table("k_turned", "k'", keys, compared[1], marked));
    checks.unshift(check("q'", compared[0], own.query), check("k'", compared[1], own.key));
  }
  if (config.similarity !== "scaled") {
    formulas = SIMILARITIES[config.similarity];
    says = `This model does not compare by a scaled product. ${says}`;
  }
  if (turns) {
    const base = Number(config.rotary_base.toPrecision(6));
    formulas = ["q'_i = q_i·cos(p·ω_i) − q_{i+d/2}·sin(p·ω_i)", "q'_{i+d/2} = q_{i+d/2}·cos(p·ω_i) + q_i·sin(p·ω_i)", `ω_i = ${base}^(−2i/d_k), p the position of q; k_j likewise, by its own position`, ...formulas];
    says = `Positions turn query and keys before they are compared (q', k'). ${says}`;
  }
  const [q, k] = compared ?? [trace.query, trace.key], terms = [...q].slice(0, 3).map((number, i) => `${decimal(number)}·${decimal(k[key][i])}`).join(" + ");
  const worked = factor ? `q·k(${keys[key]}) = ${terms}${q.length > 3 ? ` + … (${q.length} terms)` : ""} = ${decimal(scores[key])}` : `s(${keys[key]}) = ${decimal(scores[key])}`;
  return { name: "scores", title: factor ? "Scores: q · k" : "Scores", formulas, says, worked, tables, checks };
}

function scaledStep({ factor, width, bias, ownBias, scores, scaled }, about, own) {
  const { row, key, kind, keys, nVisible, config } = about, terms = [["c", factor ? ownBias : null], ["b", bias]].filter(([, values]) => values), name = factor ? "q·k" : "s";
  const [title, formula, calculation, column, words] = scalingOf(factor, width), masked = keys.slice(nVisible);
  const mask = masked.length ? `The query may not see the ${countOf(masked.length, "key")} after it, ${masked.slice(0, N_MASKED).join(", ")}${masked.length > N_MASKED ? ", …" : ""}, which ${masked.length === 1 ? "is" : "are"} masked: −∞ before the softmax, exactly 0 after it.`
    : "Keys that the query may not see are masked with −∞; here it sees all.";
  const finite = [...scaled.keys()].filter(j => scaled[j] > -Infinity), columns = [...column, ...terms.map(([name]) => `+ ${name}`)].join(", ") || "as it is";
  return {
    name: "scaled", title, formulas: [[formula, ...terms.map(([name]) => `${name}_j`)].join(" + "), ...bias ? POSITIONS[config.positions] : []], says: `${words} ${mask}`,
    worked: `${decimal(scores[key])}${calculation}${terms.map(([, values]) => ` + ${decimal(values[key])}`).join("")} = ${decimal(scaled[key])}`,
    tables: [tableByKey("scaled", "scaled scores", about, [name, ...terms.map(([name]) => name), columns], [scores, ...terms.map(([, values]) => values), scaled])],
    checks: [check("scaled scores", finite.map(j => scaled[j]), finite.map(j => own.scoreOf(j, kind === "cross" ? null : j - row)))],
  };
}

/** Title, formula, calculation, column and words for the factor of the scores. */
function scalingOf(factor, width) {
  const root = Math.sqrt(width), written = Number(factor.toPrecision(4));
  if (factor === width ** -.5) return ["Divide by √d_k", "s_j / √d_k", ` / ${decimal(root)}`, ["÷ √d_k"], `√d_k = √${width} = ${decimal(root, 4)} keeps the scores' variance near 1.`];
  if (factor === 0 || factor === 1) return ["Not scaled", "s_j", "", [], "This similarity is not divided by √d_k."];
  return ["Scale", `s_j · ${written}`, ` · ${written}`, [`· ${written}`], "The similarity has a factor of its own."];
}

function joinStep({ attention, allContext, joined, attended, place, share }, { id, head, row, n }, own) {
  const [product, times, mix] = attention.outer ? ["·W_O", ", which W_O multiplies", " and mix them"] : ["", "", ""], bias = attention.innerBias ? " + b_O" : "";
  return {
    name: "concatenation", title: `Put the heads side by side${mix}`, formulas: [`MultiHead = Concat(z_0, …, z_h)${product}${bias}`],
    says: `The z of the layer's ${countOf(allContext.length, "head")} form one row of ${joined[0].length} numbers${times}. The share of ${id} is its part of the output; the shares of all heads ${bias ? "and b_O " : ""}add up to it.`,
    tables: [table("heads", "z of every head", allContext.map((_, number) => `z_${number}`), allContext.map(rows => rows[row]), { marked: head }), table("attended", attention.outer ? "after W_O" : "side by side", ["output", `share of ${id}`], [attended[row], share])],
    checks: [check("heads side by side", joined, own.rows(attention.name, "context", n)), check("output of W_O", attended, own.rows(place, "output", n))],
  };
}

function residualStep({ stream, attended, summed, normAfter, place }, { row, n }, own) {
  const rows = [["x", stream[row]], ["output", attended[row]], ["x + output", summed[row]], ...normAfter ? normAfter.rows : []];
  return {
    name: "residual", title: "Residual sum and layer norm", formulas: ["r = x + MultiHead", ...normAfter ? [normAfter.formula] : []],
    says: normAfter ? `The output is added to the input of the layer; then the sum is normalized (post-norm). ${normAfter.says}`
      : "The output is added to the input of the layer, x before its norm. This model normalizes before the layer (pre-norm, step 0), so the sum goes on as it is.",
    worked: `${decimal(stream[row][0])} + ${decimal(attended[row][0])} = ${decimal(summed[row][0])}`, tables: [table("residual", "before and after", ...columnsOf(rows))],
    checks: [check("sum", summed, own.rows(place, "summed", n)), ...normAfter ? [check(normAfter.name, normAfter.after, own.rows(place, "result", n)[row])] : []],
  };
}

function feedForwardStep(model, { of, normAfter, summed }, { row, n, layer, hasCross, config }, own) {
  const ownOf = (name, place = `${of.name}.last`) => own.rows(place, name, n)[row], stream = hasCross ? ownOf("stream") : normAfter ? normAfter.after : summed[row];
  const { x, before, products, gate, activated, middle, output, r, after, hasBias } = traceFeedForward(model, of, stream), name = config.activation, [first, second, end] = hasBias ? ["x·W₁ + b₁", "x·W + b", " + b₂"] : ["x·W₁", "x·W", ""];
  const most = argmax(middle.map(Math.abs)), norm = before ?? after, written = before ? `FFN(${before.name})` : "FFN(x)", cosine = decimal(dot(output, x) / lengthOf(output) / lengthOf(x), 2).replace(/^-(0\.00)$/, "$1");
  const inner = gate ? `${name}(${decimal(gate[0])}) · ${decimal(products[0])} = ${decimal(middle[0])}` : `${name}(${decimal(products[0])}) = ${decimal(middle[0])}`;
  const rows = [["x", x], ...before ? before.rows : [], [written, output], ["r", r], ...after ? after.rows : []];
  return {
    name: "feed_forward", title: "Feed-forward layer",
    formulas: [...before ? [before.formula] : [], `FFN(x) = ${gate ? `(${name}(${second}) ⊙ (${first}))` : `${name}(${first})`}·W₂${end}`, `${name}(u) = ${FUNCTIONS[name]}`, ...before ? [`r = x + ${written}`] : [], ...after ? ["r = x + FFN(x)", after.formula] : []],
    says: `${hasCross ? `Between lies the cross-attention of layer ${layer}: x is what leaves it, as the model computed it.` : "x is the result of step 9."} Every token goes through it by itself: ${x.length} numbers become ${middle.length} and ${x.length} again. `
      + `Of the ${middle.length} numbers after ${name}, ${activated.filter(number => number > 0).length} are above 0; the largest that W₂ multiplies is number ${most}, ${decimal(middle[most])}. `
      + `The layer adds a vector of length ${decimal(lengthOf(output))} to x, of length ${decimal(lengthOf(x))} (cosine ${cosine}). ${norm.says}`,
    worked: `${inner}; ${decimal(x[0])} + ${decimal(output[0])} = ${decimal(r[0])}`,
    tables: [table("inner", "between W₁ and W₂", ...columnsOf([[first, products], ...gate ? [[second, gate]] : [], [`after ${name}`, activated], ...gate ? [["product", middle]] : []])), table("feed_forward", "before and after", ...columnsOf(rows))],
    checks: [check("x", x, ownOf("stream")), ...before ? [check(before.name, before.after, ownOf("entering"))] : [], check("what W₂ multiplies", middle, ownOf("inner", `${of.name}.inner`)), check("output", output, ownOf("output")), check("result of the layer", after ? after.after : r, ownOf("result"))],
  };
}

/** The comparison of a vector with the rows of all words or labels, ready to be told of. */
function logitsOf({ model, labels, tokenizer }, vector, name, own) {
  const bias = model.tensors.output_bias, logits = multiply(vector, model.outputMatrix, bias), { exponentials, total, shares } = sharesOf(logits), ranked = [...logits.keys()].sort((a, b) => logits[b] - logits[a]);
  const nameOf = id => labels?.[id] ?? tokenizer.target.pieces([id])[0], sums = `Σ e is ${decimal(total, 4)}.`;
  return {
    shares, ranked, nameOf, sums, formula: `l = ${name}·Eᵀ${bias ? " + b" : ""}`,
    says: (chosen, word) => `as the model computed it. Each of the ${logits.length.toLocaleString("en-US")} ${word}s has a row in E. The ${word} here is ${nameOf(chosen)}: number ${ranked.indexOf(chosen) + 1} by probability, p = ${decimal(shares[chosen], 4)}. ${sums}`,
    table: (chosen, caption, shown = [...new Set([...ranked.slice(0, N_CANDIDATES), chosen])]) => table("words", caption, shown.map(nameOf), shown.map(id => [logits[id], exponentials[id], shares[id]]), { columns: ["logit", "e^(l−max)", "probability"], share: 2, marked: shown.indexOf(chosen) }),
    checks: what => [check(`logits of all ${what}`, logits, own), check("probabilities", shares, sharesOf(Float64Array.from(own)).shares)],
  };
}

/** The last step of a decoder: the word that it writes here, or at the end. */
function wordOutput(page, { ids }, own, kind, at, pieces) {
  const n = ids.length - 1, h = own.rows("output", "hidden", n)[at], output = logitsOf(page, h, "h", own.rows("output", "logits", n)[at]), chosen = ids[at + 1];
  const which = kind === "enc" ? "the last decoder position" : `decoder position ${at}`;
  return {
    name: "word", title: "From the last hidden state to a word", formulas: [output.formula, "p = softmax(l)"], says: `h is the last hidden state of ${which}, which has read ${pieces[at]}, ${output.says(chosen, "word")}`,
    tables: [table("h", "h", ["h"], [h]), output.table(chosen, "most probable words")], checks: output.checks("words"),
  };
}

/** The last step of an encoder: a word or label of a position, or a label or the vector of the whole text. */
function encoderOutput(page, { source, places, best }, own, at, pieces) {
  const { model, config, labels } = page, states = splitRows(source.states, source.n), watched = own.last("output"), formulas = [], vectors = [];
  const project = (name, x) => multiply(x, model.tensors[`${name}.weight`], model.tensors[`${name}.bias`]), formulaOf = (name, of) => `W·${of}${model.tensors[`${name}.bias`] ? " + b" : ""}`;
  if (["tags", "tokens"].includes(config.head)) {
    vectors.push(["h", states[at]]);
    if (config.head === "tokens") {
      const norm = traceNorm(project("transform", states[at]).map(ACTIVATIONS[config.activation]), model.normOf("transform_norm"), "t");
      vectors.push([`before ${norm.kind}`, norm.before], ["t", norm.after]);
      formulas.push(`t = ${norm.kind}(${config.activation}(${formulaOf("transform", "h")}))`);
    }
    const [name, vector] = vectors.at(-1), output = logitsOf(page, vector, name, watched.logits), word = config.head === "tags" ? "label" : "word", gap = places?.indexOf(at) ?? -1, chosen = gap < 0 ? output.ranked[0] : best[gap];
    return {
      name: word, title: `From the last hidden state to a ${word}`, formulas: [...formulas, output.formula, "p = softmax(l)"], says: `h is the last hidden state of position ${at}, ${pieces[at]}, ${output.says(chosen, word)}`,
      tables: [table("h", vectors.map(([name]) => name).join(", "), ...columnsOf(vectors)), output.table(chosen, `most probable ${word}s`)], checks: [check(name, vector, watched.hidden), ...output.checks(`${word}s`)],
    };
  }
  const isMean = config.pooling === "mean", m = isMean ? states[0].map((_, i) => sum(states.map(state => state[i])) / source.n) : states[0], isLabel = config.head === "labels", word = isLabel ? "label" : "vector";
  let says = `The h are the last hidden states of the tokens, as the model computed them; m is ${isMean ? `the mean over the ${source.n} tokens` : "that of the first token"}.`;
  vectors.push(["m", m]);
  formulas.push(isMean ? `m = 1/${source.n} · Σ_i h_i` : "m = h_0");
  if (!isLabel && config.unit_length) {
    vectors.push(["v", m.map(number => number / Math.max(lengthOf(m), 1e-12))]);
    formulas.push("v = m / |m|");
    says += ` It is divided by its length, ${decimal(lengthOf(m), 4)}.`;
  } else if (isLabel && config.pooler !== "none") {
    vectors.push(["t", project("pooler", m).map(ACTIVATIONS[config.pooler])]);
    formulas.push(`t = ${config.pooler}(${formulaOf("pooler", "m")})`);
  }
  const [name, vector] = vectors.at(-1), tables = [table("states", "h, a row per token", pieces, states, { isDetail: true }), table("pooled", vectors.map(([name]) => name).join(", "), ...columnsOf(vectors))];
  if (!isLabel) return { name: word, title: `From all last hidden states to a ${word}`, formulas, says, tables, checks: [check(word, vector, model.outputs(source))] };
  const output = logitsOf(page, vector, name, watched.logits), [chosen] = best;
  return {
    name: word, title: `From all last hidden states to a ${word}`, formulas: [...formulas, output.formula, "probability = softmax(l)"],
    says: `${says} Each of the ${labels.length} labels has a row in E. The label here is ${labels[chosen]}, p = ${decimal(output.shares[chosen], 4)}. ${output.sums}`,
    tables: [...tables, output.table(chosen, "labels", output.ranked)], checks: [check("pooled", vector, watched.hidden), ...output.checks("labels")],
  };
}
