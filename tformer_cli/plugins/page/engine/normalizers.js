// What happens to text before and after the vocabulary: normalizers, splits, decoders.
// - Each is a list of steps, which `page_tokenizer` in Python translated; it refuses all others.
// - Patterns are JavaScript's, with the flag v; `\s` of the library is written out, for the two
//   differ in U+0085 and U+FEFF.

/** @typedef {{type: string, [setting: string]: any}} Step */

// GPT-2's alphabet (Radford et al. 2019): a printable character for each byte
const BYTE_ALPHABET = (() => {
  const shown = (/** @type {number} */ byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  let others = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(shown(byte) ? byte : others++));
})();
const ALPHABET_BYTES = new Map(BYTE_ALPHABET.map((character, byte) => [character, byte]));
export const UTF8_ENCODER = new TextEncoder();
const UTF8_DECODER = new TextDecoder("utf-8", { ignoreBOM: true });

/** @param {string} text @returns {string} a character of GPT-2's alphabet for each byte */
export function writeBytes(text) {
  let written = "";
  for (const byte of UTF8_ENCODER.encode(text)) written += BYTE_ALPHABET[byte];
  return written;
}

/** @param {string} piece @returns {number[] | null} its bytes; null if it is not in the alphabet */
export function readBytes(piece) {
  const bytes = [...piece].map(character => ALPHABET_BYTES.get(character));
  return bytes.includes(undefined) ? null : bytes;
}

/** @param {Iterable<number>} bytes @returns {string} each broken character becomes U+FFFD */
export function decodeBytes(bytes) {
  return UTF8_DECODER.decode(Uint8Array.from(bytes));
}

// Well-formed characters of UTF-8 (Unicode Standard, table 3-7), one character for each byte
const WELL_FORMED = new RegExp(
  "(?:[\0-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
  + "|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})+|.", "gs");

/**
 * Joins texts and bytes; other than `decodeBytes`, each byte of a broken character becomes U+FFFD.
 *
 * @param {(string | number)[]} parts
 * @returns {string}
 */
export function joinTextsAndBytes(parts) {
  let text = "", bytes = "";
  for (const part of [...parts, ""]) {
    if (typeof part === "number") {
      bytes += String.fromCharCode(part);
      continue;
    }
    for (const [run] of bytes.matchAll(WELL_FORMED)) text += decodeBytes(Array.from(run, character => character.charCodeAt(0)));
    text += part;
    if (part) bytes = "";
  }
  return text;
}

// White space of Python and of the library `tokenizers`, which JavaScript's differs from
const SPACES_AROUND = /^[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+|[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+$/g;

/** @param {string} text @returns {string} as `str.strip` of Python */
export const stripSpaces = text => text.replace(SPACES_AROUND, "");

/** @param {string} text @returns {string} the text with U+FFFD for each half of a character */
export const replaceSurrogates = text => UTF8_DECODER.decode(UTF8_ENCODER.encode(text));

/** @param {string} text @returns {string} a pattern that it matches */
export const escapePattern = text => text.replace(/[\\^$.*+?()[\]{}|\/]/g, "\\$&");

/** @param {string} pattern @returns {RegExp} */
const compilePattern = pattern => new RegExp(pattern, "gv");

/**
 * @param {Step[]} steps
 * @returns {(text: string) => string}
 */
export function readNormalizer(steps) {
  const functions = steps.map(step => {
    const pattern = step.pattern ? compilePattern(step.pattern) : null;
    switch (step.type) {
      case "NFC": case "NFD": case "NFKC": case "NFKD":
        return (/** @type {string} */ text) => text.normalize(step.type);
      case "Prepend":
        return (/** @type {string} */ text) => text && step.text + text;
      case "Replace":
        return (/** @type {string} */ text) => text.replace(pattern, () => step.text);
      case "Surround":
        return (/** @type {string} */ text) => text.replace(pattern, match => ` ${match} `);
      case "Lowercase":  // by characters, for the library knows no sigma at a word's end
        return (/** @type {string} */ text) => Array.from(text, character => character.toLowerCase()).join("");
      default:
        throw new Error(`unknown normalizer ${step.type}`);
    }
  });
  return text => functions.reduce((result, change) => change(result), text);
}

/** @param {string} text @param {RegExp} pattern @param {boolean} isRemoved @returns {string[]} */
function splitAround(text, pattern, isRemoved) {
  const parts = [];
  let place = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > place) parts.push(text.slice(place, match.index));
    if (!isRemoved && match[0]) parts.push(match[0]);
    place = match.index + match[0].length;
  }
  if (place < text.length) parts.push(text.slice(place));
  return parts;
}

/**
 * @param {Step[]} steps
 * @returns {(text: string) => string[]} words, which are cut into pieces each by itself
 */
export function readSplitter(steps) {
  const functions = steps.map(step => {
    const pattern = step.pattern ? compilePattern(step.pattern) : null;
    switch (step.type) {
      case "Split":
        return (/** @type {string} */ text) => splitAround(text, pattern, step.removed);
      case "Bytes":
        return (/** @type {string} */ text) => [writeBytes(text)];
      default:
        throw new Error(`unknown splitter ${step.type}`);
    }
  });
  return text => functions.reduce((words, cut) => words.flatMap(word => cut(word)), text ? [text] : []);
}

/**
 * @param {Step[]} steps
 * @returns {(names: string[]) => string}
 */
export function readDecoder(steps) {
  const functions = steps.map(step => {
    switch (step.type) {
      case "Bytes":
        return (/** @type {string[]} */ names) => [decodeBytes(names.flatMap(name => readBytes(name) ?? [...UTF8_ENCODER.encode(name)]))];
      case "Strip":
        return (/** @type {string[]} */ names) => names.map(name => stripStart(name, step.text, step.most));
      case "Fuse":
        return (/** @type {string[]} */ names) => [names.join("")];
      default:
        throw new Error(`unknown decoder ${step.type}`);
    }
  });
  return names => functions.reduce((result, change) => change(result), names).join("");
}

/** @param {string} name @param {string} text @param {number} most @returns {string} */
function stripStart(name, text, most) {
  let n = 0;
  while (n < most && name.startsWith(text, n * text.length)) n++;
  return name.slice(n * text.length);
}
