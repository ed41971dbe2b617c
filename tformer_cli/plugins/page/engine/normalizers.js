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
  const flush = () => {
    for (const [run] of bytes.matchAll(WELL_FORMED)) text += decodeBytes(Array.from(run, character => character.charCodeAt(0)));
    bytes = "";
  };
  for (const part of parts) {
    if (typeof part === "number") bytes += String.fromCharCode(part);
    else if (part) {
      flush();
      text += part;
    }
  }
  flush();
  return text;
}

// White space of Python; JavaScript's has no U+001C to U+001F and U+0085, but U+FEFF
export const WHITE_SPACE = String.raw`[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]`;
const SPACES_AROUND = new RegExp(`^${WHITE_SPACE}+|${WHITE_SPACE}+$`, "g");

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
      case "NFC": case "NFD":
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

/**
 * Splits a text at tokens that were added to a vocabulary; of several that begin together the longest.
 *
 * @param {[string, number | null][]} tokens with their ids; null: one that stays text
 * @returns {(text: string) => (string | number)[]} texts, none empty, and ids
 */
export function readAddedTokens(tokens) {
  if (!tokens.length) return text => [text];
  const ids = new Map(tokens), longestFirst = [...ids.keys()].sort((token, other) => other.length - token.length);
  const pattern = compilePattern(longestFirst.map(escapePattern).join("|"));
  return text => {
    const parts = /** @type {(string | number)[]} */ ([]);
    let place = 0;
    for (const match of text.matchAll(pattern)) {
      if (ids.get(match[0]) === null) continue;
      parts.push(text.slice(place, match.index), ids.get(match[0]));
      place = match.index + match[0].length;
    }
    return [...parts, text.slice(place)].filter(part => part !== "");
  };
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
 * @returns {(text: string, isFirst: boolean) => string[]} words, which are cut into pieces each by itself
 */
export function readSplitter(steps) {
  const functions = steps.map(step => {
    const pattern = step.pattern ? compilePattern(step.pattern) : null;
    switch (step.type) {
      case "Split":
        return (/** @type {string} */ text) => splitAround(text, pattern, step.removed);
      case "Bytes":
        return (/** @type {string} */ text) => [writeBytes(text)];
      case "Metaspace":
        return (/** @type {string} */ text, /** @type {boolean} */ isFirst) => splitMetaspace(text, isFirst, step);
      default:
        throw new Error(`unknown splitter ${step.type}`);
    }
  });
  return (text, isFirst) => functions.reduce((words, cut) => words.flatMap((word, place) => cut(word, isFirst && !place)), text ? [text] : []);
}

/** @param {string} text @param {boolean} isFirst @param {Step} step */
function splitMetaspace(text, isFirst, { mark, prepends, splits }) {
  const marked = text.replaceAll(" ", mark), isPrepended = prepends === "always" || (prepends === "first" && isFirst);
  const whole = isPrepended && !marked.startsWith(mark) ? mark + marked : marked;
  return splits ? whole.split(new RegExp(`(?=${mark})`, "v")) : [whole];
}

/**
 * @param {Step[]} steps
 * @returns {(names: string[]) => string}
 */
export function readDecoder(steps) {
  const functions = steps.map(step => {
    const pattern = step.pattern ? compilePattern(step.pattern) : null;
    switch (step.type) {
      case "Bytes":
        return (/** @type {string[]} */ names) => [decodeBytes(names.flatMap(name => readBytes(name) ?? [...UTF8_ENCODER.encode(name)]))];
      case "Strip":
        return (/** @type {string[]} */ names) => names.map(name => stripStart(name, step.text, step.most));
      case "Replace":
        return (/** @type {string[]} */ names) => names.map(name => name.replace(pattern, () => step.text));
      case "ByteNames":
        return joinByteNames;
      case "Metaspace":
        return (/** @type {string[]} */ names) => names.map((name, place) => name.replaceAll(step.mark, place || step.prepends === "never" ? " " : ""));
      case "WordPiece":
        return (/** @type {string[]} */ names) => names.map((name, place) => joinWordPiece(name, place > 0, step));
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

/** @param {string[]} names @returns {string[]} `<0xE2>` as bytes: each is U+FFFD if the run is not UTF-8 */
function joinByteNames(names) {
  const texts = [];
  let run = [];
  for (const name of [...names, ""]) {
    if (/^<0x[0-9A-Fa-f]{2}>$/.test(name)) {
      run.push(parseInt(name.slice(3, 5), 16));
      continue;
    }
    const text = decodeBytes(run), isText = String(UTF8_ENCODER.encode(text)) === String(run);
    if (run.length) texts.push(...(isText ? [text] : run.map(() => "\ufffd")));
    texts.push(name);
    run = [];
  }
  return texts.slice(0, -1);
}

// How BERT's decoder mends English, one after the other
const CLEANED_UP = [
  [" .", "."], [" ?", "?"], [" !", "!"], [" ,", ","], [" ' ", "'"], [" n't", "n't"], [" 'm", "'m"], [" do not", " don't"], [" 's", "'s"],
  [" 've", "'ve"], [" 're", "'re"],
];

/** @param {string} name @param {boolean} isLater @param {Step} step @returns {string} */
function joinWordPiece(name, isLater, { prefix, cleans }) {
  let text = name;
  if (isLater) text = name.startsWith(prefix) ? name.slice(prefix.length) : ` ${name}`;
  return cleans ? CLEANED_UP.reduce((changed, [long, short]) => changed.replaceAll(long, short), text) : text;
}
