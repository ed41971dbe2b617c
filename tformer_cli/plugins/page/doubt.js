// The probability that a translation is wrong, from its signals: as inspect/doubt.py computes it of a calibration.

import { spellWords } from "./alignment.js";

const FARTHEST = 8, BLANKS = /[^\S\ufeff]|[\x1c-\x1f\x85]/, DECIMALS = 1e4;
const sum = numbers => numbers.reduce((total, number) => total + number, 0);
const wordsOf = text => text.split(BLANKS).filter(Boolean);
const ratio = (part, whole) => part / Math.max(whole, 1);
/** Entropy of the chosen token against all others, from its log-probability. */
const entropyOf = step => step < 0 && Math.exp(step) > 0 && Math.exp(step) < 1 ? -Math.exp(step) * step - (1 - Math.exp(step)) * Math.log1p(-Math.exp(step)) : 0;

/** Signals by name, of a sentence with its translation. */
const SIGNALS = {
  probability: ({ steps }) => sum(steps) / steps.length,
  uncertainty: ({ steps }) => sum(steps.map(entropyOf)) / steps.length,
  tokens: ({ steps }) => Math.log(steps.length),
  length: ({ nSource, nTarget }, usual) => Math.abs(Math.log((nTarget + 1) / (nSource + 1)) - usual),
  pieces: ({ nSource, source }) => Math.log(Math.max(nSource, 1) / Math.max(source.length, 1)),
  names: ({ source }) => ratio(source.slice(1).filter(word => /^\p{Uppercase}/u.test(word)).length, source.length),
  copied({ source, target }) {
    const words = target.filter(word => /\p{L}/u.test(word));
    return ratio(words.filter(word => source.includes(word)).length, words.length);
  },
  repeated: ({ target }) => target.length ? 1 - new Set(target).size / target.length : 0,
  "word-length": ({ target }) => ratio(sum(target.map(word => [...word].length)), target.length),
};

const rounded = number => Math.round(number * DECIMALS) / DECIMALS;

/** P(wrong) of a sentence, of as many tokens, and its translation. */
function doubtOf({ signals, means, deviations, weights, intercept, usual }, text, nSource, { text: written, ids, tokenLogProbabilities: steps }) {
  const part = { steps, nSource, nTarget: ids.length, source: wordsOf(text), target: wordsOf(written) };
  const scaled = signals.map((name, n) => Math.max(-FARTHEST, Math.min(FARTHEST, (SIGNALS[name](part, usual) - means[n]) / deviations[n])));
  const odds = sum([...scaled, ...scaled.map(z => z * z)].map((term, n) => weights[n] * term)) + intercept;
  return rounded(1 / (1 + Math.exp(-Math.max(-60, Math.min(60, odds)))));
}

/** The doubt of a translation by parts, in the fields of the service; none of a model that is not calibrated. */
export function doubtsOf({ doubt, spellTarget }, texts, counts, parts) {
  if (!doubt) return {};
  const doubts = parts.map((part, n) => doubtOf(doubt, texts[n], counts[n], part));
  const words = parts.flatMap(({ ids, tokenLogProbabilities: steps }) => {
    const { words, ofToken } = spellWords(ids.map(spellTarget));
    return words.map((word, n) => [word, rounded(Math.exp(sum(steps.filter((_, token) => ofToken[token] === n))))]);
  });
  return { doubt: Math.max(...doubts), sentence_doubts: doubts, word_probabilities: words };
}
