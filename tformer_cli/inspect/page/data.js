// What the page shows: the data that were put into it, and how maps are packed in them.
// A live page is put texts into, and no sentences; they come as events (`live.js`).

/** @type {PageData} */
const data = JSON.parse(byId("data").textContent, (_, value) => unpackedData(value));
const KINDS = /** @type {Kind[]} */ (Object.keys(data.kinds));
/** @type {Record<string, string>} */
const SIGNS = { previous: "◀", self: "●", next: "▶", sink: "▼", aligner: "≡", broad: "▒", rare: "★" };

// A name holds kind, layer and number. Measures come as lists in the order of their names; a head has those that are defined for it.
data.sentences.forEach(nameHeads);

/**
 * Gives the heads of a sentence their parts of the name, and measures by name.
 *
 * @param {Sentence} one
 */
function nameHeads(one) {
  for (const head of one.heads) {
    const [kind, layer, number] = head.id.split(".");
    Object.assign(head, { kind, layer: Number(layer), head: number === undefined ? null : Number(number) });
    head.metrics = Object.fromEntries(Object.keys(data.metrics).map((name, n) => [name, head.metrics[n]]).filter(([, value]) => value !== null && value !== undefined));
  }
}

/** @type {Sentence} */
let sentence = null; // the one that is shown

/**
 * Labels of the rows of a head's map: the query, or what it predicts.
 *
 * @param {Head} head
 * @returns {string[]}
 */
function rowsOf(head) {
  return head.kind === "enc" ? sentence.sourcePieces : sentence.targetPieces;
}

/**
 * Labels of the columns: the keys.
 *
 * @param {Head} head
 * @returns {string[]}
 */
function columnsOf(head) {
  return head.kind === "dec" ? sentence.inputPieces : sentence.sourcePieces;
}

/**
 * Data of a view, of a sentence or of the whole model.
 *
 * @param {Sentence} one
 * @param {string} name
 */
function viewOf(one, name) {
  return one.views?.[name] ?? data.views?.[name];
}

/** Unpacks data of a view: columns to objects, and lists of numbers that are stored as parts of the largest. */
function unpackedData(value) {
  if (value?.columns && Object.keys(value).length === 1) {
    const names = Object.keys(value.columns), lists = Object.values(value.columns);
    return lists[0].map((_, n) => Object.fromEntries(names.map((name, place) => [name, lists[place][n]])));
  }
  if (typeof value?.fixed !== "string") return value;
  const packed = unpacked(value.fixed), size = value.bytes, most = 2 ** (8 * size - 1) - 1;
  const numbers = Array.from({ length: packed.byteLength / size }, (_, n) => {
    let number = packed.getInt8(n * size + size - 1); // the last byte has the sign
    for (let byte = size - 2; byte >= 0; byte--) number = 256 * number + packed.getUint8(n * size + byte);
    return number / most * value.largest;
  });
  let at = 0;
  return value.rows ? value.rows.map(length => numbers.slice(at, at += length)) : numbers;
}

/**
 * Reads base64 as a view of bytes.
 *
 * @param {string} text
 */
function unpacked(text) {
  const characters = atob(text), bytes = new Uint8Array(characters.length);
  for (let n = 0; n < bytes.length; n++) bytes[n] = characters.charCodeAt(n);
  return new DataView(bytes.buffer);
}

/** Weights of a head, row by row: fixed-point numbers; hidden cells are not stored, they are 0.
 * Where weights are no shares of 1 (norms), these are shades: 1 is the largest of the sentence. */
/**
 * @param {Head} head
 * @returns {Float32Array}
 */
function weightsOf(head) {
  if (head.values) return head.values;
  const packed = unpacked(head.weights), isWide = sentence.bits === 16;
  const q = rowsOf(head).length, k = columnsOf(head).length, values = new Float32Array(q * k);
  for (let i = 0, at = 0; i < q; i++) {
    const end = head.kind === "dec" ? i + 1 : k;
    for (let j = 0; j < end; j++, at++) {
      values[i * k + j] = isWide ? packed.getUint16(2 * at, true) / 65535 : packed.getUint8(at) / 255;
    }
  }
  return head.values = values;
}

/**
 * The number that a shade stands for.
 *
 * @param {number} shade
 */
function numberOf(shade) {
  return shade * sentence.largest;
}

/**
 * Writes the number that a shade stands for.
 *
 * @param {number} shade
 * @param {number} digits
 */
function written(shade, digits) {
  return data.weighting.isShare ? shade.toFixed(digits) : numberOf(shade).toPrecision(digits);
}

/**
 * The head of a name such as cross.1.0, if the sentence has it.
 *
 * @param {string} id
 */
function headNamed(id) {
  return sentence.heads.find(head => head.id === id);
}

/**
 * Heads beside a head: those of its layer, or of its kind.
 *
 * @param {Head} head
 * @param {string} scope
 */
function neighbors(head, scope) {
  return sentence.heads.filter(one => one.kind === head.kind && (scope === "kind" || one.layer === head.layer));
}

/**
 * A measure of a head by its name; "loss" is what the loss becomes without it.
 *
 * @param {Head} head
 * @param {string} name
 * @returns {number | undefined}
 */
function measure(head, name) {
  return name === "loss" ? viewOf(sentence, "ablation")?.effects[head.id] : head.metrics[name];
}

/**
 * The name of a kind with a capital.
 *
 * @param {Kind} kind
 */
function kindName(kind) {
  const name = data.kinds[kind];
  return name[0].toUpperCase() + name.slice(1);
}
