// Words of tokens and their links, as inspect/alignment.py finds them: words are what white space separates.

const BLANKS = /[\t-\r\x1c- ]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80/g;
const SHIFTED_FROM = .2;
/** The bytes of a text, one a character. */
export const bytesOf = text => String.fromCharCode(...new TextEncoder().encode(text));
/** The text of bytes, one a character. */
export const textOf = bytes => new TextDecoder().decode(Uint8Array.from(bytes, letter => letter.charCodeAt(0)));

/** Makes what spells a token: its bytes, one a character, by a rule for the labels of pieces and exceptions to it. */
export function makeSpeller(side, { rule, exceptions }) {
  const spell = SPELLINGS[rule];
  return id => exceptions[id] ?? spell(side.pieces([id])[0]);
}

const SPELLINGS = {
  label: label => /^<0x[0-9A-F]{2}>$/.test(label) ? String.fromCharCode(parseInt(label.slice(3, 5), 16)) : bytesOf(label.replaceAll("▁", " ")),
  wordpiece: label => bytesOf(label.startsWith("##") ? label.slice(2) : ` ${label}`),
};

/** The words that tokens spell: {words, shares, ofToken, pieces}; shares[token][word] is the part of the token's letters in a word. */
export function spellWords(pieces) {
  const words = pieces.join("").split(/[\t-\r ]+/).filter(Boolean);
  const spansOf = parts => {
    let at = 0;
    return parts.map(part => [at, at += part.replace(BLANKS, "").length]);
  };
  const wordSpans = spansOf(words), shares = spansOf(pieces).map(([start, end]) => {
    const common = wordSpans.map(([first, last]) => Math.max(0, Math.min(end, last) - Math.max(start, first)));
    const total = Math.max(1, common.reduce((sum, number) => sum + number, 0));
    return common.map(number => number / total);
  });
  return { words: words.map(textOf), shares, ofToken: shares.map(row => row.some(Boolean) ? row.indexOf(Math.max(...row)) : null), pieces };
}

/** The span of each word in a text, [start, end]; empty if the text spells it otherwise. */
export function spansIn(text, words) {
  let at = 0;
  return words.map(word => {
    const start = text.indexOf(word, at);
    if (start < 0) return [at, at];
    return [start, at = start + word.length];
  });
}

/** The mean of maps (Q, K) of several heads. */
export function meanMap(maps) {
  return Float32Array.from(maps[0], (_, n) => maps.reduce((sum, map) => sum + map[n], 0) / maps.length);
}

/** True if a target token's row is the one that has read it: unchanged tokens look more at themselves there. */
export function isShifted(weights, nKeys, source, target) {
  const [ours, theirs] = [source, target].map(side => side.pieces.map(piece => piece.trim()));
  const isSingle = (pieces, piece) => pieces.indexOf(piece) === pieces.lastIndexOf(piece);
  const gain = ours.reduce((sum, piece, key) => {
    const row = theirs.indexOf(piece);
    if (!piece || row < 0 || !isSingle(ours, piece) || !isSingle(theirs, piece)) return sum;
    return sum + weights[(row + 1) * nKeys + key] - weights[row * nKeys + key];
  }, 0);
  return gain > SHIFTED_FROM;
}

/** The weight of each target word on each source word, (target words, source words), from a map (T + 1, S). */
export function wordWeights(weights, nKeys, source, target, first) {
  return target.words.map((_, word) => {
    const total = Math.max(1e-12, target.shares.reduce((sum, row) => sum + row[word], 0));
    const onWord = (n, row) => source.shares.reduce((sum, own, s) => sum + own[n] * weights[row * nKeys + s], 0);
    return source.words.map((_, n) => target.shares.reduce((sum, row, t) => row[word] ? sum + row[word] / total * onWord(n, t + first) : sum, 0));
  });
}

/** Links [source, target] of each target word with its heaviest source word. */
export function linksOf(weights) {
  return weights.map((row, word) => [row.indexOf(Math.max(...row)), word]).filter(([source, word]) => weights[word][source] > 0).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
}
