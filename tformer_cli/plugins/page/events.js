// Events beyond the answer, as the service has them: plugins/serve/inspection.py and its instruments.

import { force, positionOf } from "./engine/search.js";
import { isShifted, linksOf, meanMap, spansIn, spellWords, wordWeights } from "./alignment.js";
import { BOS, EOS, mapOf, rowsAt, softmax } from "./answers.js";
import { lensOf } from "./lens.js";
import { measureHead, roleOf } from "./measures.js";
import { data } from "./parts.js";
import { stepsOf } from "./steps.js";

const N_NEXT = 64, N_RAREST = 2, FEWEST_TOKENS = 6;
const sum = list => list.reduce((total, number) => total + number, 0);

/** Events by name, the cheapest first: each is read from the page, a record, the heads that are off and what else is asked, or is null. */
export const EVENTS = { alignment: alignmentOf, heads: headsOf, tree: treeOf, next: nextOf, lens: lensOf, off: effectsOf, step: stepsOf };

/** Words of both sides, and the links of a map (T + 1, S) between them. */
function wordsOf(page, record) {
  const { alignment, spellSource, spellTarget } = page, { source, ids } = record, nKeys = source?.n;
  const ours = spellAround(source?.ids.filter(id => id !== EOS) ?? [], spellSource, page.gaps), theirs = spellWords(ids.slice(0, -1).filter(id => id !== BOS).map(spellTarget));
  if (!alignment || !record.maps.cross?.length) return { ours, theirs, mean: null };
  const mean = meanMap(alignment.heads.map(head => mapOf(page, record, head)));
  const isLate = alignment.convention ? alignment.convention === "shift" : isShifted(mean, nKeys, ours, theirs);
  return { ours, theirs, mean, weigh: map => wordWeights(map, nKeys, ours, theirs, Number(isLate)) };
}

/** Words of tokens; each gap is one by itself. */
function spellAround(ids, spell, gaps) {
  const at = gaps ? ids.indexOf(gaps.mask) : -1;
  if (at < 0) return spellWords(ids.map(spell));
  const before = spellWords(ids.slice(0, at).map(spell)), after = spellAround(ids.slice(at + 1), spell, gaps), first = before.words.length;
  return { ...before, words: [...before.words, gaps.names[0], ...after.words], ofToken: [...before.ofToken, first, ...after.ofToken.map(word => word === null ? null : word + first + 1)] };
}

function alignmentOf(page, record) {
  const { ours, theirs, mean, weigh } = record.words ??= wordsOf(page, record);
  return {
    words: { source: spansIn(record.text, ours.words), target: spansIn(record.written, theirs.words) },
    tokens: { source: ours.ofToken, target: theirs.ofToken }, links: mean ? linksOf(weigh(mean)) : [],
  };
}

function headsOf(page, record) {
  const { tokenizer, summary, config, layout } = page, { source, ids, maps } = record, metrics = {}, roles = {}, names = Object.keys(data.metrics), rare = rareOf(page, source);
  const sizes = { enc: [source?.n, source?.n], dec: [ids.length - 1, ids.length - 1], cross: [ids.length - 1, source?.n] };
  for (const id of page.heads) {
    const [kind] = id.split("."), measures = measureHead(mapOf(page, record, id), sizes[kind], kind, source?.ids.at(-1) === EOS, rare, kind === "dec" && config.positions === "segments" ? [config.max_positions, config.memory] : [Infinity, 0]);
    metrics[id] = names.map(name => measures[name] ?? null);
    roles[id] = roleOf(measures);
  }
  const kinds = Object.entries(maps).filter(([, layers]) => layers.length).map(([kind, layers]) => {
    const shape = [layers.length, Math.max(...layout[kind]), ...sizes[kind]], size = shape[1] * shape[2] * shape[3], values = new Float32Array(layers.length * size);
    layers.forEach((layer, n) => values.set(layer, n * size)); // a pruned layer has fewer heads
    return [kind, { shape, values }];
  });
  return {
    kinds: Object.fromEntries(kinds), metrics, roles, rare, first: firstHead(page, record, metrics), residual: 0, mode: record.tree ? "live" : "forced", sentences: record.sentences, sentence: record.n, summary,
    source_pieces: source ? tokenizer.source.pieces(source.ids) : [], target_pieces: tokenizer.target.pieces(ids.slice(1)), input_pieces: tokenizer.target.pieces(ids.slice(0, -1)),
    is_recurrent: config.n_decoder_layers > 0 && !maps.dec.length, text: record.written, source: record.text, score: record.score,
  };
}

/** The head to begin with: the aligning one whose links agree most with those of all; else the most confident. */
function firstHead(page, record, metrics) {
  const { alignment } = page, { mean, weigh } = record.words ??= wordsOf(page, record), kind = page.heads.at(-1).split(".")[0], confidence = Object.keys(data.metrics).indexOf("confidence");
  if (!mean) return page.heads.filter(id => id.startsWith(kind)).reduce((best, id) => metrics[id][confidence] > metrics[best][confidence] ? id : best);
  const links = linksOf(weigh(mean)), worthOf = id => {
    const weights = weigh(mapOf(page, record, id)), own = new Set(linksOf(weights).map(String));
    return links.filter(link => own.has(String(link))).length + sum(links.map(([source, target]) => weights[target][source])) / (links.length + 1);
  };
  return alignment.heads.map(id => ({ id, worth: worthOf(id) })).reduce((best, head) => head.worth > best.worth ? head : best).id;
}

/** Positions of the rarest tokens of a source, by the counts of training; none if they are frequent, or few. */
function rareOf({ counts, gaps }, source) {
  const ids = source?.ids.filter(id => id !== EOS) ?? [];
  if (!counts || ids.length < FEWEST_TOKENS) return [];
  const rarest = [...new Set(ids)].filter(id => id !== gaps?.mask).sort((a, b) => counts.ofToken[a] - counts.ofToken[b]).slice(0, N_RAREST);
  return !rarest.length || counts.frequent.includes(rarest[0]) ? [] : [...ids.keys()].filter(n => rarest.includes(ids[n]));
}

function treeOf({ tokenizer }, { tree }) {
  if (!tree) return null;
  const sequences = [], steps = [];
  tree.nodes.forEach(({ parent, step, token, logp, state, score }, id) => {
    const before = sequences[parent] ?? [], own = sequences[id] = id === 0 || state === "finished" ? before : [...before, token];
    (steps[step - tree.nodes[0].step] ??= []).push({ id, parent, piece: tokenizer.target.pieces([token])[0], log_probability: logp, score, state, text: tokenizer.decode(own) });
  });
  return { steps, path: tree.path, beam_size: tree.beamSize, length_penalty: tree.lengthPenalty };
}

function nextOf({ model, tokenizer }, { rows, names, source, ids }, off) {
  const positions = rows ? rows.map(row => positionOf(row, N_NEXT)) : force(model, source, ids.slice(0, -1), { off, top: N_NEXT }).positions;
  const label = id => names?.[id] ?? tokenizer.target.pieces([id])[0];
  return positions.length ? { positions: positions.map(({ top, rest }) => ({ top: top.map(([id, logit]) => [label(id), logit]), rest })) } : null;
}

/** The change of the log-probability of the answer with each head switched off alone, and all others on. */
async function effectsOf(page, answered, off, { breathe }) {
  const record = off.length && answered.source ? { ...answered, source: page.model.encode(answered.source.ids) } : answered;
  const whole = logProbabilities(page, record, ""), nTokens = whole.length, delta = [];
  if (!nTokens) return null;
  for (const head of page.heads) {
    await breathe();
    delta.push(sum(logProbabilities(page, record, head)) - sum(whole));
  }
  return { heads: page.heads, delta, loss: -sum(whole) / nTokens, n_tokens: nTokens };
}

function logProbabilities({ model }, { source, ids, places, rows, best }, head) {
  const off = head ? [head] : [], read = source && (!head || head.startsWith("enc")) ? model.encode(source.ids, { off }) : source;
  if (rows) return rowsAt(model, read, places).rows.map((row, n) => Math.log(softmax(row)[best[n]]));
  const logProbabilities = [...force(model, read, ids.slice(0, -1), { off, top: 1 }).logProbabilities];
  return ids.at(-1) === EOS ? logProbabilities : logProbabilities.slice(0, -1);
}
