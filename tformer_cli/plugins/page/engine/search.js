// Greedy and beam search with tformer's rules (`tformer_cli/search`), its tree, forced texts and next words.
/** @import { DecoderMaps, Encoded, Model } from "./model.js" */

/** @typedef {{ off?: Iterable<string>, prefix?: number[], nStart?: number, mayFollow?: (id: number) => boolean }} SearchOptions heads that are switched off, the first tokens of the translation, how many of them limits of length count, as the name of a language, and which tokens may come behind them */
/** @typedef {{ ids: number[], score: number, logProbability: number, tokenLogProbabilities: number[], isFinished: boolean, maps: DecoderMaps }} Hypothesis */
/** @typedef {{ parent: number | null, step: number, token: number, logp: number, state: "kept" | "dropped" | "finished", score: number | null }} SearchNode */
/** @typedef {{ beamSize: number, lengthPenalty: number, nodes: SearchNode[], path: number[] }} SearchTree */
/** @typedef {{ total: number, value: number, token: number, row: number, endsItself: boolean }} Continuation */

/** @typedef {{ ids: number[], steps: number[], total: number, node: number }} Live a hypothesis with the log-probabilities of its tokens, what it is ranked by, and its number in the tree */

const BEGIN_ID = 2, END_ID = 3; // ids before are never generated
const EXTRA_TOKENS = 20, MOST_TOKENS = 1e9, LONGEST_TEXT = 200, N_DROPPED = 3; // see `hypothesis.py`, `generator.py` and `live.py`
const RULES = { length_normalization: "gnmt", min_length: 0, min_length_ratio: 0, no_repeat_ngram: 0, repetition_penalty: 1 };
/** Settings with the values of a search without rules; those of `RULES` may have others, but then there is no tree. */
const NEUTRAL = { coverage_penalty: 0, sampling: false, diversity_groups: 1, risk: "none", distinct_texts: false };
/** Settings that a search without sampling and groups does not look at. */
const WITHOUT_EFFECT = ["batch_tokens", "temperature", "top_k", "top_p", "diversity_penalty", "candidates"];
const NUMBERS = { beam_size: 5, length_penalty: .6, n_best: 1, max_length: 0, max_length_ratio: 3 };

/** Completes settings; what the search does not know is an error. */
function completeSettings(settings) {
  for (const [name, value] of Object.entries(settings)) {
    if (name in NUMBERS || name in RULES || WITHOUT_EFFECT.includes(name) || NEUTRAL[name] === value) continue;
    throw new Error(`${name}: the page does not search with the value ${JSON.stringify(value)}`);
  }
  return { ...NUMBERS, ...RULES, ...settings };
}

/** What the log-probability of T tokens is divided by to give a score. */
function divisorOf(tokens, settings) {
  return settings.length_normalization === "average" ? tokens : ((5 + tokens) / 6) ** settings.length_penalty;
}

/** The fewest and the most tokens of a translation, its end not counted. */
function limitsOf(tokens, settings, given, room) {
  const times = ratio => Math.trunc(Math.min(ratio * tokens, MOST_TOKENS));
  const least = Math.max(settings.min_length, times(settings.min_length_ratio));
  const most = Math.max(times(settings.max_length_ratio) + EXTRA_TOKENS, least);
  const longest = Math.min(room - 1, given + (settings.max_length ? Math.min(most, settings.max_length) : most));
  return { longest, shortest: Math.min(given + least, longest) };
}

/** ln Σ e^x of some numbers. */
function logSumOf(logits) {
  let most = -Infinity, sum = 0;
  for (let i = 0; i < logits.length; i++) if (logits[i] > most) most = logits[i];
  for (let i = 0; i < logits.length; i++) sum += Math.exp(logits[i] - most);
  return most + Math.log(sum);
}

/**
 * The largest numbers and their places, largest first, of equal ones the first.
 *
 * @param {Float32Array} numbers
 * @param {number} k
 * @param {number} [from] the first place that counts
 * @returns {[number, number][]} place and number
 */
export function largest(numbers, k, from = 0) {
  /** @type {[number, number][]} */
  const best = [];
  for (let place = from, bar = -Infinity; place < numbers.length; place++) {
    const value = numbers[place];
    if (best.length === k ? value <= bar : value === -Infinity) continue;
    let at = best.length;
    while (at && best[at - 1][1] < value) at--;
    best.splice(at, 0, [place, value]);
    if (best.length > k) best.pop();
    bar = best[best.length - 1][1];
  }
  return best;
}

/** Applies the rules that forbid next tokens or make them less likely to log-probabilities (V), as `processors.py`. */
function applyRules(own, ids, settings, shortest) {
  const scores = own.slice(), n = settings.no_repeat_ngram;
  for (const id of new Set(ids)) scores[id] *= settings.repetition_penalty;
  if (ids.length < shortest) scores[END_ID] = -Infinity;
  for (let at = 0; n && at + n <= ids.length; at++) {
    if (ids.slice(at, at + n - 1).every((id, i) => id === ids[ids.length - n + 1 + i])) scores[ids[at + n - 1]] = -Infinity;
  }
  scores.fill(-Infinity, 0, END_ID);
  if (scores.every(score => score === -Infinity)) scores[END_ID] = own[END_ID];
  return scores;
}

/** A search for one text, step by step. */
class BeamSearch {
  constructor(model, state, settings, { longest, shortest }, { ids, steps }, mayFollow) {
    this.mayFollow = mayFollow; // of the first step only
    this.model = model;
    this.state = state;
    this.settings = settings;
    this.longest = longest;
    this.shortest = shortest;
    const rules = Object.keys(RULES).filter(name => settings[name] !== RULES[name]), total = sumOf(steps);
    this.hasTree = !rules.length;
    this.hasRules = rules.some(name => name !== "length_normalization");
    /** @type {Live[]} */
    this.live = [{ ids: ids.slice(1), steps, total, node: 0 }];
    /** @type {(Live & { score: number, endsItself: boolean, way: Int32Array })[]} */
    this.finished = [];
    /** @type {SearchNode[]} */
    this.nodes = [{ parent: null, step: steps.length, token: ids.at(-1), logp: total, state: "kept", score: null }];
    this.largestDivisor = divisorOf(longest + 1, settings);
  }

  /** The best continuations of the hypothesis of a row, whose logits are (V). */
  continuationsOf(logits, row) {
    const { ids, total } = this.live[row], normalizer = logSumOf(logits), isLast = ids.length === this.longest, { mayFollow } = this;
    const open = mayFollow ? logits.map((logit, id) => id === END_ID || mayFollow(id) ? logit : -Infinity) : logits;
    const valueOf = logit => Math.min(0, logit - normalizer); // rounding may put the certain event above 0
    const scores = this.hasRules ? applyRules(open.map(valueOf), ids, this.settings, this.shortest) : open;
    const best = largest(scores, this.settings.beam_size + N_DROPPED, END_ID), endsItself = !isLast || best[0][0] === END_ID;
    // Rules change ranks, but not the model's own numbers, nor the end of what is as long as it may be
    return (isLast ? [[END_ID]] : best).map(([token, score]) => {
      const value = valueOf(logits[token]);
      return { total: total + (this.hasRules && !isLast ? score : value), value, token, row, endsItself };
    });
  }

  /** Lets every live hypothesis grow by one token, by the logits (live, V). */
  grow(logits) {
    const v = this.model.vocabSize, slots = this.settings.beam_size - this.finished.length, length = this.live[0].ids.length + 1;
    // A stable sort: equal ones stay in the order of their rows
    /** @type {Continuation[]} */
    const all = this.live.flatMap((_, row) => this.continuationsOf(logits.subarray(row * v, (row + 1) * v), row)).sort((a, b) => b.total - a.total);
    const before = this.live, divisor = divisorOf(length, this.settings);
    /** @type {Live[]} */
    const live = [], /** @type {number[]} */ parents = [];
    all.slice(0, slots + N_DROPPED).forEach(({ total, value, token, row, endsItself }, rank) => {
      const { ids, steps, node } = before[row], isEnd = token === END_ID, hasSlot = rank < slots;
      const score = isEnd && hasSlot ? total / divisor : null;
      this.nodes.push({ parent: node, step: length, token, logp: total, state: !hasSlot ? "dropped" : isEnd ? "finished" : "kept", score });
      if (!hasSlot) return;
      const grown = { ids: isEnd ? ids : [...ids, token], steps: [...steps, value], total, node: this.nodes.length - 1 };
      if (isEnd) {
        this.finished.push({ ...grown, score, endsItself, way: this.state.ways[row].slice() });
      } else {
        live.push(grown);
        parents.push(row);
      }
    });
    this.live = live;
    this.mayFollow = null;
    if (live.length) this.model.choose(this.state, parents);
  }

  /** True while a live hypothesis may come among those wanted. */
  get isRunning() {
    if (!this.live.length) return false;
    const scores = this.finished.map(({ score }) => score).sort((a, b) => b - a), worst = scores[this.settings.n_best - 1] ?? -Infinity;
    return worst < this.live[0].total / this.largestDivisor;
  }

  /** The tree, with the way to a node. */
  treeOf(node) {
    const path = [];
    for (let at = node; at !== null; at = this.nodes[at].parent) path.unshift(at);
    return { beamSize: this.settings.beam_size, lengthPenalty: this.settings.length_penalty, nodes: this.nodes, path };
  }

  /** Searches from the logits of the first token; returns what is wanted, best first. */
  run(logits) {
    for (this.grow(logits); this.isRunning; this.grow(logits)) logits = this.model.step(this.state, this.live.map(({ ids }) => ids.at(-1)));
    return this.finished.sort((a, b) => b.score - a.score).slice(0, this.settings.n_best);
  }
}

/** @param {number[]} numbers */
function sumOf(numbers) {
  return numbers.reduce((sum, number) => sum + number, 0);
}

/**
 * Starts a decoder and reads tokens; a listener is handed the logits behind each.
 *
 * @param {Model} model
 * @param {Encoded | null} source
 * @param {number[]} ids
 * @param {Iterable<string>} off
 * @param {(logits: Float32Array) => unknown} [listen]
 */
function readTokens(model, source, ids, off, listen = () => {}) {
  const state = model.start(source, { off }), steps = [];
  let logits = null;
  ids.forEach((id, at) => {
    if (at) steps.push(Math.min(0, logits[id] - logSumOf(logits)));
    logits = model.step(state, id);
    listen(logits);
  });
  return { state, ids, steps, logits };
}

/** Encodes the tokens of a source, with the end of sentence where the model reads it. */
function encodeSource(model, ids, off) {
  const { n_encoder_layers, source_eos } = model.config;
  return n_encoder_layers ? model.encode(source_eos ? [...ids, END_ID] : ids, { off }) : null;
}

/**
 * Searches for the translations of a source, or for what follows a prompt.
 *
 * @param {Model} model
 * @param {number[]} ids the source without its end; of a language model all that is read first
 * @param {Record<string, any>} overrides settings by the names of "decoding" in config.json
 * @param {SearchOptions} [options]
 * @returns {{ source: Encoded | null, hypotheses: Hypothesis[], tree: SearchTree | null }} hypotheses best first
 */
export function search(model, ids, overrides, { off = [], prefix = [], nStart = 0, mayFollow = null } = {}) {
  const settings = completeSettings(overrides), source = encodeSource(model, ids, off), room = model.maxPositions;
  const begin = source ? [BEGIN_ID, ...prefix] : [...ids, ...prefix], reading = readTokens(model, source, begin, off);
  const limits = source ? limitsOf(ids.length, settings, prefix.length - nStart, room) : promptLimits(begin.length, settings, room);
  // A prompt is no part of what follows it
  const search = new BeamSearch(model, reading.state, settings, limits, source ? reading : { ids: begin.slice(-1), steps: [] }, mayFollow);
  const best = search.run(reading.logits), read = begin.length - (source ? prefix.length : 0);
  const hypotheses = best.map(({ ids, steps, total, score, endsItself, way }) => ({
    ids, score, logProbability: search.hasRules ? sumOf(steps) : total, tokenLogProbabilities: steps, isFinished: endsItself,
    maps: model.mapsOf(reading.state, way, read + ids.length),
  }));
  return { source, hypotheses, tree: source && search.hasTree ? search.treeOf(best[0].node) : null };
}

/** The fewest and the most tokens behind a prompt. */
function promptLimits(read, settings, room) {
  if (read >= room) throw new Error(`a prompt may have at most ${room - 1} tokens, but has ${read}`);
  const longest = Math.min(settings.max_length || Math.max(LONGEST_TEXT, settings.min_length), room - read);
  return { longest, shortest: Math.min(settings.min_length, longest) };
}

/**
 * Reads a target that is given.
 *
 * @param {Model} model
 * @param {Encoded | null} source
 * @param {number[]} ids what the decoder reads, the begin of sentence first
 * @param {{ off?: Iterable<string>, top?: number }} [options] heads that are switched off, and logits that are wanted
 */
export function force(model, source, ids, { off = [], top = 64 } = {}) {
  const positions = [], { state, steps, logits } = readTokens(model, source, ids, off, row => positions.push(positionOf(row, top)));
  return { maps: model.mapsOf(state), positions, logProbabilities: [...steps, Math.min(0, logits[END_ID] - logSumOf(logits))] };
}

/**
 * The largest logits of a position, and the log of what all others sum to.
 *
 * @param {Float32Array} logits
 * @param {number} top
 */
export function positionOf(logits, top) {
  const best = largest(logits, top), others = logits.slice();
  for (const [id] of best) others[id] = -Infinity;
  return { top: best, rest: best.length < logits.length ? logSumOf(others) : null };
}

/**
 * The most probable next tokens after a beginning of a translation, or of a text.
 *
 * @param {Model} model
 * @param {number[]} ids see `search`
 * @param {number[]} prefix
 * @param {number} k
 * @param {{ off?: Iterable<string> }} [options]
 */
export function nextWords(model, ids, prefix, k, { off = [] } = {}) {
  const source = encodeSource(model, ids, off), { logits } = readTokens(model, source, [...source ? [BEGIN_ID] : ids, ...prefix], off);
  const normalizer = logSumOf(logits);
  return largest(logits, k, END_ID).map(([id, logit]) => ({ id, logit, logProbability: Math.min(0, logit - normalizer) }));
}
