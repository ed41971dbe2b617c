// Text to the ids of pieces and back, exactly as tformer's tokenizers in Python do.
// - `readTokenizer` takes what `page_tokenizer` of tokenizer_json.py wrote, which refuses by name
//   whatever is not known here.
// - `encode` is `tokenizer.source.encode` of Python: it adds the tokens that this tokenizer begins or
//   ends each text with (`<s>` of BERT, a language's token), but never the `</s>` of a model's
//   sources, nor the `<s>` of a decoder: the model adds those, by its configuration.
// - A blank text that has no piece has no ids at all, not even those it would begin with.
// - Lone surrogates are read as U+FFFD. Text such as "</s>" is text, never a special token.
// - `pieces` gives readable labels: "▁" is a space, "<0xE2>" a byte that is no character by itself.
// - `decode` omits special tokens and those that name a language.

import { decodeBytes, escapePattern, readBytes, replaceSurrogates, UTF8_ENCODER, WHITE_SPACE, writeBytes } from "./normalizers.js";
import { readAddedTokens, readDecoder, readNormalizer, readSplitter } from "./normalizers.js";
import { cutLongest, findBestCut, listPrefixes, mergeSymbols, UNKNOWN_PENALTY } from "./pieces.js";
import { readSpmSide } from "./sentencepiece.js";

/**
 * @typedef {{
 *   encode: (text: string) => number[],
 *   encodePhrase: (text: string) => number[],
 *   pieces: (ids: number[]) => string[],
 *   decode: (ids: number[]) => string,
 *   size: number,
 * }} TokenizerSide `encodePhrase`: without the tokens that a text begins and ends with
 */

const UNKNOWN_ID = 1, N_SPECIAL = 4;
// Characters of remembered words; beyond, memory starts afresh
const MOST_REMEMBERED = 1 << 20;

/**
 * @param {any} json what `page_tokenizer` returns
 * @returns {TokenizerSide & {source: TokenizerSide, target: TokenizerSide}} encodes sources and decodes targets
 */
export function readTokenizer(json) {
  const source = readSide(json.source), isSame = !Object.keys(json.target).length;
  const target = isSame ? source : readSide({ ...json.source, ...json.target });
  return { ...target, encode: source.encode, encodePhrase: source.encodePhrase, source, target };
}

/** @type {Record<string, (side: any) => {encodePhrase: (text: string) => number[], encode?: (text: string) => number[], decode: (ids: number[]) => string}>} */
const SIDE_READERS = { library: readLibrarySide, sentencepiece: readSpmSide, words: readWordSide };

/** @param {any} side @returns {TokenizerSide} */
function readSide(side) {
  const { encodePhrase, encode, decode } = SIDE_READERS[side.kind](side), labels = readLabels(side);
  const addEnds = (/** @type {string} */ text) => {
    const ids = encodePhrase(text);
    return ids.length ? [...side.start, ...ids, ...side.end] : ids;
  };
  return {
    encodePhrase: text => encodePhrase(replaceSurrogates(text)),
    encode: text => (encode ?? addEnds)(replaceSurrogates(text)),
    pieces: ids => ids.map(id => labels[id]),
    decode,
    size: labels.length,
  };
}

/** @param {any} side @returns {string[]} the label of each id: its text, but for exceptions */
function readLabels({ names, labels, inBytes }) {
  return names.map((/** @type {string} */ name, /** @type {number} */ id) => {
    const bytes = inBytes ? readBytes(name) : null;
    return labels[id] ?? (bytes ? decodeBytes(bytes) : name).replaceAll(" ", "▁");
  });
}

/**
 * The tokenizer of the library `tokenizers`: normalizer, splits, a model of words, decoder.
 *
 * @param {any} side
 */
function readLibrarySide(side) {
  const { model, names } = side;
  const clean = readNormalizer(side.cleaner), normalize = readNormalizer(side.normalizer);
  const split = readSplitter(side.splitter), join = readDecoder(side.decoder);
  const silent = new Set(side.silent), unlisted = new Set(side.unlisted);
  const ids = new Map(names.map((name, id) => [name, id]).filter(([, id]) => !unlisted.has(id)));
  const cut = rememberWords(WORD_MODELS[model.type](model, names, ids));
  const splitRaw = readAddedTokens(side.added), splitNormalized = readAddedTokens(side.addedNormalized);
  const splitNew = readNewTokens(side.newTokens, ids.get(writeBytes(" ")));
  const encodeNormalized = (/** @type {string} */ text, /** @type {boolean} */ isFirst) =>
    encodeParts(splitNormalized(text), (part, place) => split(part, isFirst && !place).flatMap(cut));
  const encodeRaw = (/** @type {string} */ text) => encodeParts(splitRaw(text), (part, place) => encodeNormalized(normalize(part), !place));
  return {
    encodePhrase: (/** @type {string} */ text) => encodeParts(splitNew(clean(text)), encodeRaw),
    decode: (/** @type {number[]} */ row) => join(row.filter(id => !silent.has(id)).map(id => names[id])),
  };
}

/** @param {(string | number)[]} parts texts and ids @param {(text: string, place: number) => number[]} encode @returns {number[]} */
const encodeParts = (parts, encode) => parts.flatMap((part, place) => (typeof part === "number" ? [part] : encode(part, place)));

/**
 * Words between spaces, or pieces of words that end with "@@" where the word goes on.
 *
 * @param {any} side
 */
function readWordSide({ names, merges, endsApart, silent, whole }) {
  const ids = new Map(names.map((name, id) => [name, id]).filter(([, id]) => !silent.includes(id)));
  const uncut = new Set(whole), end = "</w>";
  const ranks = new Map((merges ?? []).map(([left, right], rank) => [`${left} ${right}`, rank]));
  const rankOf = (/** @type {string} */ left, /** @type {string} */ right) => ranks.get(`${left} ${right}`);
  const cut = (/** @type {string} */ word) => {
    const characters = [...word];
    if (!merges || uncut.has(word) || characters.length === 1) return [word];
    if (endsApart) characters.push(end);
    else characters.push(characters.pop() + end);
    const pieces = mergeSymbols(characters, rankOf), last = pieces.pop();
    const rest = last.endsWith(end) ? last.slice(0, -end.length) : last;
    if (rest) pieces.push(rest);
    return pieces.map((piece, place) => (place < pieces.length - 1 ? `${piece}@@` : piece));
  };
  const find = rememberWords(word => cut(word).map(piece => ids.get(piece) ?? UNKNOWN_ID));
  const isInner = (/** @type {string} */ name) => merges && name.endsWith("@@") && !uncut.has(name);
  const textOf = (/** @type {number} */ id) => (isInner(names[id]) ? names[id].slice(0, -2) : `${names[id]} `);
  const splitWords = readSplitter([{ type: "Split", pattern: WHITE_SPACE, removed: true }]);
  return {
    encodePhrase: (/** @type {string} */ text) => splitWords(text, true).flatMap(find),
    decode: (/** @type {number[]} */ row) => row.map(id => (id < N_SPECIAL ? "" : textOf(id))).join("").replace(/ $/, ""),
  };
}

/**
 * Finds the words that were added to a tokenizer of tformer: each stands between spaces.
 *
 * @param {[string, number][]} words @param {number} space the piece of a space
 * @returns {(text: string) => (string | number)[]} texts around the words, and the ids of the words
 */
function readNewTokens(words, space) {
  if (!words.length) return text => [text];
  const ids = new Map(words), longestFirst = [...ids.keys()].sort((word, other) => other.length - word.length);
  const pattern = new RegExp(`(?<![^ ])(?:${longestFirst.map(escapePattern).join("|")})(?![^ ])`, "gv");
  return text => {
    const parts = /** @type {(string | number)[]} */ ([]);
    let place = 0;
    for (const match of text.matchAll(pattern)) {
      // the tokenizer adds a space before a part; a part without more is the piece of a space
      if (place < match.index) parts.push(text.slice(place, match.index - 1) || space);
      parts.push(ids.get(match[0]));
      place = match.index + match[0].length + 1;
    }
    if (!place || place <= text.length) parts.push(place ? text.slice(place) || space : text);
    return parts;
  };
}

/** @param {(word: string) => number[]} cut @returns {(word: string) => number[]} */
function rememberWords(cut) {
  const known = new Map();
  let nCharacters = 0;
  return word => {
    let row = known.get(word);
    if (row === undefined) {
      if (nCharacters > MOST_REMEMBERED) {
        known.clear();
        nCharacters = 0;
      }
      row = cut(word);
      known.set(word, row);
      nCharacters += word.length;
    }
    return row;
  };
}

/** @type {Record<string, (model: any, names: string[], ids: Map<string, number>) => (word: string) => number[]>} */
const WORD_MODELS = {
  BPE: readMerges,
  Unigram: readUnigram,
  WordLevel: (model, _, ids) => word => [ids.get(word) ?? UNKNOWN_ID],
  WordPiece: (model, _, ids) => word =>
    (([...word].length <= model.longest && cutLongest(word, model.prefix, piece => ids.get(piece))) || [UNKNOWN_ID]),
};

/** @param {any} model @param {string[]} names @param {Map<string, number>} ids */
function readMerges(model, names, ids) {
  const ranks = new Map();
  for (let place = 0; place < model.merges.length; place += 2) {
    ranks.set(`${names[model.merges[place]]}\0${names[model.merges[place + 1]]}`, place);
  }
  const rankOf = (/** @type {string} */ left, /** @type {string} */ right) => ranks.get(`${left}\0${right}`);
  const nameBytes = (/** @type {string} */ character) =>
    Array.from(UTF8_ENCODER.encode(character), byte => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
  const readCharacter = (/** @type {string} */ character) => (ids.has(character) || !model.namesBytes ? [character] : nameBytes(character));
  return (/** @type {string} */ word) => {
    if (model.keepsWords && ids.has(word)) return [ids.get(word)];
    return mergeSymbols([...word].flatMap(readCharacter), rankOf).map(piece => ids.get(piece));
  };
}

/** @param {any} model @param {string[]} names @param {Map<string, number>} ids */
function readUnigram(model, names, ids) {
  const prefixes = listPrefixes(ids), lowest = model.scores.reduce((least, score) => Math.min(least, score), Infinity);
  return (/** @type {string} */ word) =>
    findBestCut(word, prefixes, number => model.scores[number], lowest - UNKNOWN_PENALTY, score => score).map(({ number }) => number);
}
