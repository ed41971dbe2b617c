// Sentences of a text, by the rule of search/sentences.py.

const ENDS = /(?<![.!?…])(?<mark>[.!?…]+)["'’”»)\]]*(?:\s+»(?=\s))?\s+|[。！？｡][」』”’）]*\s*|(?<![।॥؟۔])[।॥؟۔]+\s+|(?<!\s)\s*\n\s*/gu;
const OPENING = /["'‘“„«([¿¡]*/uy, WITH_INNER_PERIODS = /(?:\p{L}\.)+\p{L}$/u, LAST_WORD = /[^\s\p{Nd}_.,:;()[\]"'’“”«»/-]+$/u;

/** Splits a text; abbreviations: words that a period may follow within a sentence, always, or before a number. */
export function splitSentences(text, { always, beforeNumbers }) {
  const ends = [...text.matchAll(ENDS)].filter(endsSentence).map(end => end.index + end[0].length), starts = [];
  let isOpen = true; // nothing but marks since the last start: what follows belongs to them
  [...ends, text.length].forEach((end, n) => {
    const start = n ? ends[n - 1] : 0, hasWord = /[\p{L}\p{N}]/u.test(text.slice(start, end));
    if ((hasWord && !isOpen) || (end > start && !starts.length)) {
      starts.push(start);
      isOpen = true;
    }
    isOpen &&= !hasWord;
  });
  return starts.map((start, n) => text.slice(start, starts[n + 1]));

  function endsSentence(end) {
    const { mark } = end.groups, after = end.index + end[0].length;
    if (mark === undefined) return true;
    OPENING.lastIndex = after;
    const begin = after + OPENING.exec(text)[0].length;
    if (/^\p{Ll}/u.test(text.slice(begin))) return false;
    if (mark !== "." || !/\s/.test(text[end.index + 1])) return true;
    const before = text.slice(Math.max(0, end.index - 24), end.index);
    if (WITH_INNER_PERIODS.test(before)) return false;
    const digits = /\d+$/.exec(before);
    if (digits) return digits[0].length > 2 || !/^\p{L}/u.test(text.slice(after));
    const word = LAST_WORD.exec(before)?.[0].toLowerCase();
    if (word === undefined) return true;
    if ([...word].length === 1 || always.includes(word) || /[\u0e00-\u0e7f]$/.test(word)) return false;
    return !beforeNumbers.includes(word) || !/^\p{Nd}/u.test(text.slice(begin));
  }
}
