// Answers of each kind of model to a text, and what further events are read from: a record of its sentence.

import { force, search } from "./engine/search.js";
import { bytesOf, textOf } from "./alignment.js";
import { doubtsOf } from "./doubt.js";
import { splitLine, splitSentences } from "./splitting.js";

export const BOS = 2;
export const EOS = 3;
const UNKNOWN = 1, LONGEST_PART = 128, MOST_WRITTEN = 200, N_FILLS = 5, STAND_IN = "\ua4d0";
const wordsOf = text => text.split(/\s+/).filter(Boolean);

/**
 * Answers a request: {event, record}.
 *
 * A record has sentences, the number n of the inspected one, text, written, score, source (of `encode`), tree, the target's ids from
 * its beginning to its end, and maps of each kind; of an encoder also rows of logits, at its places, the best of each, and names.
 */
export function answer(page, request) {
  return ANSWERS[page.verbs[0]](page, request);
}

/** Probabilities of logits. */
export function softmax(logits) {
  const most = logits.reduce((most, logit) => Math.max(most, logit), -Infinity), parts = Float64Array.from(logits, logit => Math.exp(logit - most));
  const total = parts.reduce((sum, part) => sum + part, 0);
  return parts.map(part => part / total);
}

const ANSWERS = { translate, generate, classify, tag, fill, embed };

function translate(page, { text, sentence = 0, prefix = "", heads_off: off = [], ...request }) {
  const { tokenizer: { source, target } } = page, settings = { ...page.decoding, ...Object.fromEntries(Object.entries(request).filter(([name]) => name in page.decoding)) };
  // A space at its end says that the last word is whole; no search writes special tokens
  const whole = completePrefix(page, text, prefix, off), begun = target.encodePhrase(whole.trimEnd()).filter(id => id > EOS), mayFollow = whole !== whole.trimEnd() ? id => /^[\s\x1c-\x1f]/.test(page.spellTarget(id)) : null, { sentences, blanks } = sentencesOf(page, text, prefix);
  const read = sentences.map(one => source.encode(one).slice(0, page.model.maxPositions - 1)); // a single character may have more tokens
  const found = sentences.map((_, n) => search(page.model, read[n], settings, { off, prefix: n ? page.begins : [...page.begins, ...begun], nStart: page.begins.length, mayFollow: n ? null : mayFollow }));
  const each = found.map(({ hypotheses }) => hypotheses.map(one => ({ ...one, text: target.decode(one.ids).replace(/[\r\n]/g, " ") }))), best = each.map(([one]) => one);
  const hypotheses = each.length === 1 ? each[0] : [joined(best, blanks, settings)], [first] = hypotheses;
  const ids = read.flat(), n = Math.min(sentence, sentences.length - 1), { source: encoded, tree } = found[n];
  const event = {
    event: "translation", index: 0, source: { text, ids, pieces: source.pieces(ids) }, target: { text: first.text, ids: first.ids, pieces: target.pieces(first.ids) },
    hypotheses: hypotheses.map(one => ({ text: one.text, score: one.score, log_probability: one.logProbability, token_log_probabilities: [...one.tokenLogProbabilities], token_ids: one.ids, ...doubtsOf(page, sentences, read.map(ids => ids.length), each.length === 1 ? [one] : best) })), flags: [], unsatisfied: [], cached: false,
  };
  const own = best[n], record = { sentences, n, text: sentences[n], written: own.text, score: own.score, source: encoded, tree, ids: [BOS, ...own.ids, EOS], maps: { enc: encoded.maps, ...own.maps } };
  return { event, record };
}

/** Completes the last word of a prefix, as plugins/serve/completing.py does: letters as typed may be tokens that training never saw. */
function completePrefix({ model, tokenizer: { source, target }, spellTarget, config, begins }, text, prefix, off) {
  if (!/[\p{L}\p{N}]$/u.test(prefix)) return prefix;
  const at = prefix.lastIndexOf(" "), begun = prefix.slice(at + 1), before = at > 0 ? target.encodePhrase(prefix.slice(0, at)) : [];
  const encoded = model.encode([...source.encode(text), ...config.source_eos ? [EOS] : []], { off }), spelled = Array.from({ length: target.size }, (_, id) => id > EOS ? spellTarget(id) : "");
  for (const word of [` ${begun}`, begun]) {
    const state = model.start(encoded, { off }), ids = [];
    let logits = null, letters = bytesOf(word);
    for (const id of [BOS, ...begins, ...before]) logits = model.step(state, id);
    while (letters) {
      const allowed = logits.map((logit, id) => spelled[id] && (spelled[id].startsWith(letters) || letters.startsWith(spelled[id])) ? logit : -Infinity), id = bestOf(allowed);
      if (allowed[id] === -Infinity || state.length >= model.maxPositions) return prefix;
      ids.push(id);
      letters = letters.slice(spelled[id].length);
      logits = model.step(state, id);
    }
    const whole = target.decode([...before, ...ids]);
    if (whole.startsWith(prefix)) return whole;
  }
  return prefix;
}

/** The sentences, and parts of those that are too long, that are translated one by one, and the white space behind each; a prefix of several sentences leaves a text whole. */
function sentencesOf({ splits, model, tokenizer: { source } }, text, prefix) {
  const split = splits ? splitSentences(text, splits).filter(one => one.trim()) : [], isWhole = split.length < 2 || splitSentences(prefix, splits).length > 1;
  const longest = model.maxPositions - 1, count = part => source.encode(part).length;
  const parts = (isWhole ? [text] : split).flatMap(one => {
    const sentence = isWhole ? one : one.trimEnd(), blank = one.slice(sentence.length);
    if (count(sentence) <= longest) return [[sentence, blank || " "]];
    const cut = splitLine(sentence, Math.min(Math.ceil(longest / 2), LONGEST_PART), count);
    return cut.map((part, n) => [part, n < cut.length - 1 ? " " : blank || " "]);
  });
  return { sentences: parts.map(([sentence]) => sentence), blanks: parts.map(([, blank], n) => n < parts.length - 1 ? blank : "") };
}

/** The translation of several sentences: their log-probabilities are added before the length penalty. */
function joined(parts, blanks, { length_penalty: alpha, length_normalization: way }) {
  const ids = parts.flatMap(part => part.ids), tokenLogProbabilities = parts.flatMap(part => [...part.tokenLogProbabilities]);
  const logProbability = parts.reduce((sum, part) => sum + part.logProbability, 0), nTokens = tokenLogProbabilities.length;
  return { text: parts.map((part, n) => part.text + blanks[n]).join(""), ids, tokenLogProbabilities, logProbability, score: logProbability / (way === "average" ? nTokens : ((5 + nTokens) / 6) ** alpha) };
}

function generate({ config, tokenizer: { target }, model, decoding }, { text, heads_off: off = [], continues = false }) {
  const begun = [...config.target_bos ? [BOS] : [], ...target.encode(text)], settings = { ...decoding, max_length: decoding.max_length || MOST_WRITTEN };
  const { maps, positions } = force(model, null, begun, { off, top: 1 }), ids = [...begun, config.target_eos ? EOS : positions.at(-1).top[0][0]];
  const more = continues ? search(model, begun.length ? begun : [BOS], settings, { off }).hypotheses[0].ids : [], continuation = target.decode([...begun, ...more]).slice(target.decode(begun).length);
  const record = { sentences: [text], n: 0, text: "", written: text, score: null, source: null, tree: null, ids, maps };
  return { event: { event: "generation", prompt: text, texts: [], continuation }, record };
}

/** Reads a text with an encoder: its outputs at places, or at none for the whole text. */
function read({ model, config }, text, ids, names, off, places) {
  const source = model.encode(config.source_eos ? [...ids, EOS] : ids, { off }), record = { sentences: [text], n: 0, text, written: "", score: null, source, tree: null, ids: [], maps: { enc: source.maps }, places, names };
  return { ...record, ...rowsAt(model, source, places) };
}

/** The map (Q, K) of a head. */
export function mapOf(page, { maps }, id) {
  const [kind, layer, head] = id.split("."), map = maps[kind][Number(layer)], size = map.length / page.layout[kind][Number(layer)];
  return map.subarray(Number(head) * size, (Number(head) + 1) * size);
}

/** Logits of an encoder at places, or of the whole text, and the best of each row. */
export function rowsAt(model, source, places) {
  const outputs = places?.length === 0 ? new Float32Array(0) : places ? model.outputs(source, places) : model.outputs(source), nRows = places?.length ?? 1, width = outputs.length / nRows;
  const rows = Array.from({ length: nRows }, (_, n) => outputs.subarray(n * width, (n + 1) * width));
  return { rows, best: rows.map(bestOf) };
}

const bestOf = row => row.indexOf(row.reduce((most, logit) => Math.max(most, logit), -Infinity));

function classify(page, { text, heads_off: off = [] }) {
  const record = read(page, text, page.tokenizer.source.encode(text), page.labels, off, null), [label] = record.best, shares = softmax(record.rows[0]);
  const order = [...shares.keys()].sort((a, b) => shares[b] - shares[a]), event = { event: "classification", label: page.labels[label], probability: shares[label], probabilities: Object.fromEntries(order.map(n => [page.labels[n], shares[n]])) };
  return { event, record: { ...record, written: `${event.label} (${event.probability.toFixed(4)})` } };
}

function tag(page, { text, heads_off: off = [] }) {
  const { start, end } = page.ends, ids = [], places = [], words = wordsOf(text);
  for (const word of words) {
    const pieces = page.tokenizer.source.encodePhrase(word);
    places.push(start.length + ids.length);
    ids.push(...pieces.length ? pieces : [UNKNOWN]); // of characters that the tokenizer drops
  }
  const record = read(page, text, [...start, ...ids, ...end], page.labels, off, places), labels = record.best.map(n => page.labels[n]);
  return { event: { event: "tags", words: words.map((word, n) => ({ word, label: labels[n], probability: softmax(record.rows[n])[record.best[n]] })) }, record: { ...record, written: labels.join(" ") } };
}

function fill(page, { text, heads_off: off = [], top = N_FILLS }) {
  const { gaps: { mask, names, never }, tokenizer: { source } } = page, parts = names.reduce((parts, name) => parts.flatMap(part => part.split(name)), [text]), ids = encodeGaps(page, parts);
  const labels = source.pieces([...Array(source.size).keys()]), record = read(page, text, ids, labels, off, [...ids.keys()].filter(n => ids[n] === mask));
  const rows = record.rows.map(row => row.map((logit, id) => never.includes(id) ? -Infinity : logit)), best = record.best = rows.map(bestOf);
  const gaps = record.rows.map((row, n) => {
    const shares = softmax(row);
    return [...shares.keys()].filter(id => rows[n][id] > -Infinity).sort((a, b) => shares[b] - shares[a]).slice(0, top).map(id => ({ token: tokenOf(page, id), piece: labels[id], probability: shares[id] }));
  });
  const filled = parts.reduce((filled, part, n) => {
    const spelled = page.spellSource(best[n - 1]), word = textOf(spelled.replace(/^ /, ""));
    if (!spelled.startsWith(" ")) return filled.trimEnd() + word + part; // it continues the word before
    return filled + (!filled || /\s$/.test(filled) || page.spelling.source.rule === "wordpiece" ? "" : " ") + word + part;
  });
  return { event: { event: "filled", filled, gaps }, record: { ...record, written: filled } };
}

/** The text of a token, without the space before it; pieces inside a word of WordPiece keep their mark. */
function tokenOf({ spellSource, spelling, tokenizer }, id) {
  const spelled = spellSource(id), label = tokenizer.source.pieces([id])[0];
  return spelling.source.rule === "wordpiece" && !spelled.startsWith(" ") ? label : textOf(spelled.replace(/^ /, "")) || label;
}

/** The ids of a text with gaps between its parts. */
function encodeGaps({ gaps: { mask, isWhole, takesSpace, trims }, tokenizer: { source }, spellSource, ends }, parts) {
  if (!isWhole) return [...ends.start, ...parts.flatMap((part, n) => [...n ? [mask] : [], ...source.encodePhrase(trims && n < parts.length - 1 ? part.trimEnd() : part)]), ...ends.end];
  // A rare letter stands in for each gap, and is replaced with the space before it
  const letter = bytesOf(STAND_IN), ids = source.encode(parts.join(STAND_IN)), pieces = ids.map(spellSource), tokens = [];
  const spans = [...pieces.join("").matchAll(new RegExp(letter, "g"))].map(({ index }) => [index, index + letter.length]);
  let at = 0, seen = 0;
  pieces.forEach((piece, n) => {
    const [start, end] = [at, at += piece.length], last = spans.filter(span => span[1] <= end).length;
    if (last > seen) tokens.push(...Array(last - seen).fill(mask));
    else if (spans.some(([from, to]) => from < end && to > start)) {
      if (takesSpace && start <= spans[seen][0] && tokens.length && spellSource(tokens.at(-1)) === " ") tokens.pop();
    } else tokens.push(ids[n]);
    seen = last;
  });
  return tokens;
}

function embed(page, { text, heads_off: off = [] }) {
  const record = read(page, text, page.tokenizer.source.encode(text), [], off, []);
  return { event: { event: "embedding", vector: [...page.model.outputs(record.source)] }, record };
}
