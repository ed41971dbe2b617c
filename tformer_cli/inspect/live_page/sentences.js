// A text of several sentences: each has its own translation, prefix and inspection.

import { wordsOf } from "./words.js";

/** Spans [[start, end]] of texts that occur in this order in a whole, or null if they do not; an empty text is placed by the gap before it. */
export function spansOf(texts, whole, gaps = []) {
  const spans = [];
  for (const [n, text] of texts.entries()) {
    const end = spans.at(-1)?.[1] ?? 0, start = text ? whole.indexOf(text, end) : Math.min(whole.length, end + (gaps[n] ?? 0));
    if (start < 0) return null;
    spans.push([start, start + text.length]);
  }
  return spans;
}

/** The number of the span at a position; a gap belongs to the span before it. */
export function numberAt(spans, position) {
  return Math.max(0, spans.findLastIndex(([start]) => start <= position));
}

/** Length of the common prefix of two texts. */
export function nCommon(a, b) {
  let n = 0;
  while (n < a.length && a[n] === b[n]) n++;
  return n;
}

/**
 * Makes the sentences of a text from its translation and the translation of each sentence.
 *
 * found: for each sentence its text and its event; whole: the translation of all.
 * Returns null if they are not parts of it, else spans(which) and firstWord(which, n) of "source" or "target", target(), and list:
 * {source, free, answer, prefix}, where free is the event without a prefix.
 */
export function makeSentences(text, found, whole) {
  const ofSource = spansOf(found.map(one => one.text), text), gaps = ofSource?.map(([start], n) => n ? start - ofSource[n - 1][1] : start);
  const ofTarget = spansOf(found.map(one => one.event.target.text), whole, gaps);
  if (!ofSource || !ofTarget) return null;
  const blanks = ofTarget.map(([start], n) => whole.slice(n ? ofTarget[n - 1][1] : 0, start));
  const list = found.map(one => ({ source: one.text, free: one.event, answer: one.event, prefix: "" }));
  const target = (end = list.length) => list.slice(0, end).map((one, n) => blanks[n] + one.answer.target.text).join("");
  const spans = which => which === "source" ? ofSource : list.map((one, n) => {
    const start = target(n).length + blanks[n].length;
    return [start, start + one.answer.target.text.length];
  });
  return {
    text, list, target, spans,
    firstWord: (which, n) => wordsOf((which === "source" ? text : target()).slice(0, spans(which)[n][0])).length,
  };
}
