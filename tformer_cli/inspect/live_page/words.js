// Words of a text, as the service counts them: separated by white space.

const BLANKS = /([ \t\n\r\f\v]+)/;

/** Splits a text into words and blanks: [{text, at, word}], where word is a number or null. */
export function partsOf(text) {
  let at = 0, n = 0;
  return text.split(BLANKS).filter(Boolean).map(part => {
    const found = { text: part, at, word: BLANKS.test(part) ? null : n++ };
    at += part.length;
    return found;
  });
}

export const wordsOf = text => text.split(BLANKS).filter(part => part && !BLANKS.test(part));

/** Numbers of the words of a text that are not in the longest common subsequence with another text. */
export function changedWords(text, other) {
  const a = wordsOf(text), b = wordsOf(other), width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      lengths[i * width + j] = a[i] === b[j] ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  const changed = new Set();
  for (let i = 0, j = 0; i < a.length; i++) {
    while (j < b.length && a[i] !== b[j] && lengths[i * width + j + 1] >= lengths[(i + 1) * width + j]) j++;
    if (j < b.length && a[i] === b[j]) j++;
    else changed.add(i);
  }
  return changed;
}
