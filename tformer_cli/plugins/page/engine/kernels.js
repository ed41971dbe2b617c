// Products, norms and activations over typed arrays: sums in float64, results in float32.
/** @import { Tensor } from "./weights.js" */

/** Adds the products of a vector and four rows of a matrix to four sums. */
function addFour(x, at, w, a, width, out, to) {
  const b = a + width, c = b + width, d = c + width;
  let first = 0, second = 0, third = 0, fourth = 0;
  for (let i = 0; i < width; i++) {
    const number = x[at + i];
    first += number * w[a + i];
    second += number * w[b + i];
    third += number * w[c + i];
    fourth += number * w[d + i];
  }
  out[to] += first;
  out[to + 1] += second;
  out[to + 2] += third;
  out[to + 3] += fourth;
}

/** The same of two vectors, so that each number that is read serves several products. */
function addEight(x, at, w, a, width, out, to, n) {
  const b = a + width, c = b + width, d = c + width, other = at + width, under = to + n;
  let s0 = 0, s1 = 0, s2 = 0, s3 = 0, t0 = 0, t1 = 0, t2 = 0, t3 = 0;
  for (let i = 0; i < width; i++) {
    const s = x[at + i], t = x[other + i], wa = w[a + i], wb = w[b + i], wc = w[c + i], wd = w[d + i];
    s0 += s * wa;
    s1 += s * wb;
    s2 += s * wc;
    s3 += s * wd;
    t0 += t * wa;
    t1 += t * wb;
    t2 += t * wc;
    t3 += t * wd;
  }
  out[to] += s0;
  out[to + 1] += s1;
  out[to + 2] += s2;
  out[to + 3] += s3;
  out[under] += t0;
  out[under + 1] += t1;
  out[under + 2] += t2;
  out[under + 3] += t3;
}

/**
 * The product of two vectors.
 *
 * @param {Float32Array} a
 * @param {number} at
 * @param {Float32Array} b
 * @param {number} from
 * @param {number} width
 */
export function dotOf(a, at, b, from, width) {
  let sum = 0;
  for (let i = 0; i < width; i++) sum += a[at + i] * b[from + i];
  return sum;
}

/**
 * Computes x·Wᵀ + b for some rows of W.
 *
 * @param {Float32Array} x (R, K)
 * @param {number} rows R
 * @param {Tensor} matrix W, (N, K)
 * @param {Tensor} [bias] (N)
 * @param {number} [from] first row of W
 * @param {number} [to] the row behind the last one
 * @returns {Float32Array} (R, to - from)
 */
export function multiply(x, rows, matrix, bias, from = 0, to = matrix.shape[0]) {
  const w = matrix.data, width = matrix.shape[1], n = to - from, out = new Float32Array(rows * n);
  if (bias) for (let r = 0; r < rows; r++) out.set(bias.data.subarray(from, to), r * n);
  let o = 0;
  for (; o + 4 <= n; o += 4) {
    let r = 0;
    for (; r + 2 <= rows; r += 2) addEight(x, r * width, w, (from + o) * width, width, out, r * n + o, n);
    if (r < rows) addFour(x, r * width, w, (from + o) * width, width, out, r * n + o);
  }
  for (; o < n; o++) for (let r = 0; r < rows; r++) out[r * n + o] += dotOf(x, r * width, w, (from + o) * width, width);
  return out;
}

/**
 * Adds y to x, in place.
 *
 * @param {Float32Array} x
 * @param {Float32Array} y
 */
export function addTo(x, y) {
  for (let i = 0; i < x.length; i++) x[i] += y[i];
  return x;
}

/**
 * Norms rows: layer norm, or without the mean ("rms").
 *
 * @param {Float32Array} x (R, D)
 * @param {{ weight: Tensor, bias?: Tensor, epsilon: number, isCentered: boolean }} norm
 */
export function normRows(x, { weight: { data: weight }, bias, epsilon, isCentered }) {
  const d = weight.length, out = new Float32Array(x.length), shift = bias?.data;
  for (let at = 0; at < x.length; at += d) {
    let mean = 0, square = 0;
    if (isCentered) {
      for (let i = 0; i < d; i++) mean += x[at + i];
      mean /= d;
    }
    for (let i = 0; i < d; i++) square += (x[at + i] - mean) ** 2;
    const scale = 1 / Math.sqrt(square / d + epsilon);
    for (let i = 0; i < d; i++) out[at + i] = (x[at + i] - mean) * scale * weight[i] + (shift ? shift[i] : 0);
  }
  return out;
}

/** The error function: its series e^(-x²)·2/√π·Σ 2ⁿx^(2n+1)/(2n+1)!!, whose terms have one sign. */
function errorFunction(x) {
  if (Math.abs(x) > 6) return Math.sign(x); // nearer to it than float64 can tell
  let term = x, sum = x;
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) sum += term *= 2 * x * x / (2 * n + 1);
  return 2 / Math.sqrt(Math.PI) * Math.exp(-x * x) * sum;
}

/** Activations of feed-forward layers and poolers, by the names of `model/methods.py`. */
export const ACTIVATIONS = {
  relu: x => x > 0 ? x : 0,
  gelu: x => .5 * x * (1 + errorFunction(x / Math.SQRT2)),
  "gelu-tanh": x => x / (1 + Math.exp(-2 * Math.sqrt(2 / Math.PI) * x * (1 + .044715 * x * x))),
  swish: x => x / (1 + Math.exp(-x)),
  tanh: Math.tanh,
};

/**
 * One row of sinusoids: PE(p, 2i) = sin(p / base^(2i/D)), PE(p, 2i+1) = cos of the same.
 *
 * @param {number} position may be negative, as a distance is
 * @param {number} width D
 * @param {number} [base]
 */
export function sinusoidOf(position, width, base = 10_000) {
  return Float32Array.from({ length: width }, (_, i) => {
    const angle = position * Math.exp(-Math.log(base) * (i - i % 2) / width);
    return i % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}
