// SentencePiece (Kudo & Richardson 2018): replaced characters, marks for spaces, pieces, their ids.
// - Replacements are a trie in a double array (Aoe 1989), as darts-clone writes it, then their texts.
// - A user-defined piece is a piece wherever it stands, and its characters are not replaced.
// - Unknown characters are their bytes, or else one unknown piece as long as they follow each other.

import { escapePattern, joinTextsAndBytes, stripSpaces, UTF8_ENCODER } from "./normalizers.js";
import { findBestCut, listPrefixes, mergeSymbols, UNKNOWN_PENALTY } from "./pieces.js";

const NORMAL_TYPE = "1", USER_TYPE = "4";
const UNKNOWN_SPM_ID = 1;

/** @param {any} side */
export function readSpmSide(side) {
  const { names, spm, ids } = side, cut = readSpmModel(spm), normalize = readSpmNormalizer(spm);
  const silent = new Set(side.silent), bytes = new Map(side.bytes);
  const all = new Map(names.map((name, id) => [name, id]));
  const find = (/** @type {string} */ text) => (silent.has(all.get(text)) ? UNKNOWN_SPM_ID : all.get(text) ?? UNKNOWN_SPM_ID);
  const encodePhrase = (/** @type {string} */ text) => {
    const row = [];
    let unknown = "";
    for (const piece of [...cut(normalize(text)), { text: "", number: 0 }]) {
      if (piece.number < 0 && !spm.byteFallback) {
        unknown += piece.text;
        continue;
      }
      if (unknown) row.push(find(unknown));
      unknown = "";
      if (piece.number >= 0 && piece.text) row.push(ids[piece.number]);
      else for (const byte of UTF8_ENCODER.encode(piece.text)) row.push(find(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`));
    }
    return row;
  };
  const startOf = readBeginning(side, all);
  return {
    encodePhrase,
    encode: (/** @type {string} */ text) => {
      const { tag, start } = startOf(text), row = encodePhrase(text.slice(tag.length));
      return row.length || tag ? [...start, ...row, ...side.end] : row;
    },
    decode: (/** @type {number[]} */ row) => {
      const texts = row.map(id => (silent.has(id) ? "" : bytes.get(id) ?? names[id].replaceAll("▁", " ")));
      return stripSpaces(joinTextsAndBytes(texts));
    },
  };
}

/** @param {any} side @param {Map<string, number>} ids @returns {(text: string) => {tag: string, start: number[]}} */
function readBeginning({ start, tags, prompts }, ids) {
  return text => {
    if (tags) {
      const end = text.startsWith(">>") ? text.indexOf("<<") + 2 : 0;
      return end < 2 ? { tag: "", start } : { tag: text.slice(0, end), start: [ids.get(text.slice(0, end)) ?? UNKNOWN_SPM_ID] };
    }
    const prompt = prompts.find((/** @type {[string, number[]]} */ [beginning]) => text.startsWith(beginning));
    return prompt ? { tag: prompt[0], start: prompt[1] } : { tag: "", start };
  };
}

/** @param {any} spm @returns {RegExp | null} */
function userPattern({ pieces, types }) {
  const own = pieces.filter((_, number) => types[number] === USER_TYPE).sort((piece, other) => other.length - piece.length);
  return own.length ? new RegExp(own.map(escapePattern).join("|"), "gvy") : null;
}

/** @param {any} spm @returns {(text: string) => {text: string, number: number}[]} a number of -1: unknown */
function readSpmModel(spm) {
  const { pieces, types } = spm, scores = Float32Array.from(spm.scores);
  const isUser = (/** @type {number} */ number) => types[number] === USER_TYPE;
  const numbers = new Map(pieces.map((piece, number) => [piece, number]).filter(([, number]) => types[number] === NORMAL_TYPE || isUser(number)));
  if (spm.algorithm === "unigram") {
    let lowest = Infinity, highest = 2 ** -126;  // the library's smallest number, where all scores are negative
    for (const number of numbers.values()) {
      if (isUser(number)) continue;
      lowest = Math.min(lowest, scores[number]);
      highest = Math.max(highest, scores[number]);
    }
    // a user-defined piece scores so high that no cut is without it
    const scoreUser = (/** @type {string} */ piece) => Math.fround(Math.fround(UTF8_ENCODER.encode(piece).length * highest) - Math.fround(0.1));
    const scoreOf = (/** @type {number} */ number, /** @type {string} */ piece) => (isUser(number) ? scoreUser(piece) : scores[number]);
    const prefixes = listPrefixes(numbers), unknownScore = Math.fround(lowest - UNKNOWN_PENALTY);
    return text => findBestCut(text, prefixes, scoreOf, unknownScore, Math.fround);
  }
  const user = userPattern(spm), falling = [...new Set(scores)].sort((score, other) => other - score);
  const ranks = new Map(falling.map((score, rank) => [score, rank]));
  const rankOf = (/** @type {string} */ left, /** @type {string} */ right) => ranks.get(scores[numbers.get(left + right)]);
  const cut = (/** @type {string} */ part) => (isUser(numbers.get(part)) ? [part] : mergeSymbols([...part], rankOf));
  return text => splitAtUser(text, user).flatMap(cut).map(piece => ({ text: piece, number: numbers.get(piece) ?? -1 }));
}

/** @param {string} text @param {RegExp | null} user */
function splitAtUser(text, user) {
  if (!user) return [text];
  const parts = [""];
  for (let place = 0; place < text.length;) {
    user.lastIndex = place;
    const match = user.exec(text)?.[0];
    if (match) parts.push(match, "");
    else parts[parts.length - 1] += String.fromCodePoint(text.codePointAt(place));
    place += (match ?? String.fromCodePoint(text.codePointAt(place))).length;
  }
  return parts.filter(part => part);
}

/** @param {any} spm @returns {(text: string) => string} */
function readSpmNormalizer(spm) {
  const user = userPattern(spm), replace = spm.charsmap ? readReplacements(spm.charsmap) : () => null;
  const readPrefix = (/** @type {string} */ text, /** @type {number} */ place) => {
    if (user) user.lastIndex = place;
    const match = user?.exec(text)?.[0];
    if (match) return { text: match, end: place + match.length };
    const character = String.fromCodePoint(text.codePointAt(place));
    return replace(text, place) ?? { text: character, end: place + character.length };
  };
  return text => {
    let place = 0, prefix;
    while (spm.trimsSpaces && place < text.length && (prefix = readPrefix(text, place)).text === " ") place = prefix.end;
    if (place === text.length) return "";
    let normalized = spm.addsSpace ? "▁" : "", isAfterSpace = spm.trimsSpaces;
    while (place < text.length) {
      prefix = readPrefix(text, place);
      const part = isAfterSpace ? prefix.text.replace(/^ +/, "") : prefix.text;
      normalized += part.replaceAll(" ", "▁");
      if (part) isAfterSpace = spm.trimsSpaces && part.endsWith(" ");
      place = prefix.end;
    }
    return spm.trimsSpaces ? normalized.replace(/▁+$/, "") : normalized;
  };
}

/** @param {string} charsmap in base64 @returns {(text: string, place: number) => {text: string, end: number} | null} */
function readReplacements(charsmap) {
  const data = Uint8Array.from(atob(charsmap), character => character.charCodeAt(0));
  const view = new DataView(data.buffer), size = view.getUint32(0, true);
  const unit = (/** @type {number} */ node) => view.getUint32(4 + 4 * node, true);
  const offset = (/** @type {number} */ value) => (value >>> 10) << ((value & 0x200) >>> 6);
  const texts = data.subarray(4 + size), known = new Map(), decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  return (text, place) => {
    let node = offset(unit(0)), longest = null;
    for (let end = place; end < text.length;) {
      const character = String.fromCodePoint(text.codePointAt(end));
      end += character.length;
      let bytes = known.get(character);
      if (!bytes) known.set(character, bytes = UTF8_ENCODER.encode(character));
      for (const byte of bytes) {
        const value = unit(node ^ byte);
        if ((value & 0x800000ff) !== byte) return longest;
        node ^= byte ^ offset(value);
        if (value & 0x100) {
          const start = unit(node) & 0x7fffffff;
          longest = { text: decoder.decode(texts.subarray(start, texts.indexOf(0, start))), end };
        }
      }
    }
    return longest;
  };
}
