// Sentences of a text, and parts of one that is too long, by the rules of search/sentences.py.

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

/** Places where a line may be cut, best first. */
const BREAKS = [/(?<=[.!?…])["'’”»)\]]*\s+|(?<=[。！？])/gu, /(?<=[,;:])\s+|(?<=[，；：、])|\s+(?=[–—])/gu, /\s+/gu];

/** Splits a line into parts that each have at most a number of tokens; count returns the tokens of a text. */
export function splitLine(line, longest, count) {
  const cutLong = (pieces, cut) => pieces.flatMap(piece => count(piece) <= longest ? [piece] : cut(piece));
  let parts = packed(BREAKS.reduce((pieces, pattern) => cutLong(pieces, piece => cutAt(pattern, piece)), [line]), longest, count);
  // Joining may change how text is tokenized, and what has no spaces is still too long
  for (let shorter = cutLong(parts, halves); shorter.length > parts.length; shorter = cutLong(parts, halves)) parts = shorter;
  return packed(parts, longest, count).map(part => part.trim()).filter(Boolean);
}

/** Cuts behind every match. */
function cutAt(pattern, text) {
  const ends = [...text.matchAll(pattern)].map(({ index, 0: match }) => index + match.length);
  return [...ends, text.length].map((end, n) => text.slice(n ? ends[n - 1] : 0, end)).filter(Boolean);
}

/** Cuts in the middle, before no combining mark where that can be helped. */
function halves(text) {
  const letters = [...text], half = Math.floor(letters.length / 2);
  let middle = half;
  while (middle > 0 && /^\p{Mn}/u.test(letters[middle])) middle--;
  middle ||= half;
  return middle ? [letters.slice(0, middle).join(""), letters.slice(middle).join("")] : [text];
}

/** Joins neighbors as long as they fit together, by their own counts and as one text. */
function packed(pieces, longest, count) {
  const parts = [];
  let room = 0;
  for (const piece of pieces) {
    const n = count(piece);
    if (parts.length && n <= room) parts.at(-1).push(piece);
    else {
      parts.push([piece]);
      room = longest;
    }
    room -= n;
  }
  return parts.flatMap(part => count(part.join("")) <= longest ? [part.join("")] : part);
}
