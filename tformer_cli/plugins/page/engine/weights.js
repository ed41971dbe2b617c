// Weights of a model from the bytes of a safetensors file, all as float32.

/** @typedef {{ shape: number[], data: Float32Array }} Tensor */
/** @typedef {Record<string, Tensor>} Tensors */
/** @typedef {{ dtype: string, shape: number[], data_offsets: [number, number] }} StoredTensor */

// Names of the numbers that the rows of an int8 matrix are multiplied by, and of bits below its own
const SCALE_SUFFIX = "_scale", BELOW_SUFFIX = "_below";

/**
 * Reads all tensors; those of int8 are multiplied by their rows' scales.
 *
 * @param {ArrayBuffer} buffer the bytes of the file
 * @returns {Tensors}
 */
export function readTensors(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true)), start = 8 + length;
  /** @type {Record<string, StoredTensor>} */
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  /** @type {Tensors} */
  const tensors = {}, integers = {}, bits = {};
  delete header.__metadata__;
  for (const [name, { dtype, shape, data_offsets: [from, to] }] of Object.entries(header)) {
    const bytes = new Uint8Array(buffer, start + from, to - from);
    if (dtype === "I8") integers[name] = { shape, data: new Int8Array(bytes.buffer, bytes.byteOffset, bytes.length) };
    else if (dtype === "U8") bits[name] = { shape, data: bytes };
    else if (WIDEN[dtype]) tensors[name] = { shape, data: WIDEN[dtype](bytes) };
    else throw new Error(`${name}: has numbers of the type ${dtype}, which the page does not know`);
  }
  for (const [name, { shape, data }] of Object.entries(integers)) {
    const scales = tensors[name + SCALE_SUFFIX];
    if (!scales) throw new Error(`${name}: is int8, but ${name + SCALE_SUFFIX} is missing`);
    tensors[name] = { shape, data: scaleRows(data, scales.data, bits[name + BELOW_SUFFIX]) };
    delete tensors[name + SCALE_SUFFIX];
  }
  return tensors;
}

/** Functions from bytes, whose place in the buffer may be any, to float32, by the type of the numbers. */
const WIDEN = {
  F32: bytes => bytes.byteOffset % 4 ? new Float32Array(bytes.slice().buffer) : new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4),
  F16: bytes => {
    const table = halfTable();
    return Float32Array.from(new Uint16Array(bytes.slice().buffer), bits => table[bits]);
  },
};

/** @type {Float32Array} */
let halves = null;

/** The numbers of all 16 bits as float16: sign, 5 bits of exponent, 10 of the fraction (IEEE 754). */
function halfTable() {
  halves ??= Float32Array.from({ length: 1 << 16 }, (_, bits) => {
    const sign = bits >> 15 ? -1 : 1, exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * fraction / 1024);
  });
  return halves;
}

/** Multiplies rows by their scales; with 10 bits, the two low bits of each integer are in a second tensor (n, bytes). */
function scaleRows(integers, scales, { shape: [n, size], data: bits } = { shape: [0, 0], data: null }) {
  const floats = new Float32Array(integers.length), width = integers.length / (scales.length || 1);
  for (let row = 0, at = 0; row < scales.length; row++) {
    for (const stop = at + width; at < stop; at++) {
      let number = integers[at];
      for (let bit = 0; bit < n; bit++) number = 2 * number + (bits[bit * size + (at >> 3)] >> (at & 7) & 1);
      floats[at] = number * scales[row];
    }
  }
  return floats;
}
