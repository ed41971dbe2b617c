// A model of tformer: encoders, decoders and what stands on them, with the weights of all heads. `tformer_cli/model` says what is computed.
import { ACTIVATIONS, addTo, dotOf, multiply, normRows, sinusoidOf } from "./kernels.js";
/** @import { Tensor, Tensors } from "./weights.js" */

const FIRST_ROOM = 64; // positions of a row that there is room for at first

/**
 * Attention of a layer: its weights, and what its heads are named.
 *
 * @typedef {object} Attention
 * @property {string} name of its weights
 * @property {string} kind enc, dec or cross
 * @property {number} layer
 * @property {number} heads H
 * @property {number} keyHeads G, heads of keys and values
 * @property {Tensor} [inner] W_Q, W_K and W_V, one below the other; none: without projections
 * @property {Tensor} [innerBias]
 * @property {Tensor} [outer] W_O
 * @property {Tensor} [outerBias]
 * @property {Float32Array} [factors] (H) lengths that cosines give queries
 * @property {Float32Array} [vector] (H, E) v of the additive similarity
 * @property {(head: number, distance: number) => number} [bias] what positions add to a score, by j - i
 * @property {{ projection: Tensor, content: Float32Array, position: Float32Array, rows: Map<number, Float32Array> }} [relative] of Transformer-XL
 */

/**
 * Keys and values of a stack at work.
 *
 * @typedef {object} Memory
 * @property {Float32Array} keys (·, G·E)
 * @property {Float32Array} values (·, G·E)
 * @property {Int32Array[]} ways for each query which rows of these are its keys, position after position
 */

/** @typedef {{ n: number, ids: number[], states: Float32Array, maps: Float32Array[] }} Encoded */
/** @typedef {{ dec: Float32Array[], cross: Float32Array[] }} DecoderMaps */

/**
 * A decoder at work: hypotheses side by side, each with its way through the keys that were written.
 *
 * @typedef {object} DecoderState
 * @property {Encoded | null} source
 * @property {Memory[]} memory keys and values of the source, by layer
 * @property {Set<string>} off heads that are switched off
 * @property {number} length positions read
 * @property {number} used keys written
 * @property {number[]} base keys written before each position
 * @property {Int32Array[]} ways
 * @property {{ keys: Float32Array, values: Float32Array }[]} own keys and values, by layer
 * @property {Float32Array[]} cells (rows, D) state of each recurrent layer
 * @property {DecoderMaps[]} read weights (H, rows, keys) of each position, by layer
 */

/** A model of any kind for texts. */
export class Model {
  /**
   * @param {any} config "model" of config.json
   * @param {Tensors} tensors its weights
   */
  constructor(config, tensors) {
    const { d_model, n_heads } = config;
    this.config = config;
    this.tensors = tensors;
    this.headWidth = config.d_head || d_model / n_heads;
    this.isPreNorm = config.norm === "pre";
    this.activation = ACTIVATIONS[config.activation];
    this.sourceMatrix = tensors["source_embedding.weight"];
    this.targetMatrix = tensors["target_embedding.weight"] ?? this.sourceMatrix;
    this.outputMatrix = tensors["output_projection.weight"] ?? this.targetMatrix;
    this.vocabSize = this.outputMatrix.shape[0];
    this.scaleOfScores = { dot: 1, cosine: 1, additive: 0 }[config.similarity] ?? this.headWidth ** -.5;
    // Pruned models name the biases that are left, layer after layer
    const named = [...config.bias_heads], nextBiases = heads => named.length ? named.splice(0, heads) : Array.from({ length: heads }, (_, head) => head);
    this.encoder = this.stackOf("encoder", "enc", config.n_encoder_layers, nextBiases);
    this.decoder = this.stackOf("decoder", "dec", config.n_decoder_layers, nextBiases);
    /** @type {Map<number, Float32Array>} by position or distance */
    this.sinusoids = new Map();
    /** @type {((place: string, values: Record<string, any>) => void) | null} is handed what is computed at each place */
    this.watch = null;
  }

  /** Positions of the longest text; a model with a memory reads on. */
  get maxPositions() {
    return this.config.memory ? Infinity : this.config.max_positions;
  }

  normOf(name) {
    const weight = this.tensors[`${name}.weight`];
    return weight ? { weight, bias: this.tensors[`${name}.bias`], epsilon: this.config.norm_epsilon, isCentered: this.config.norm_kind === "layer" } : null;
  }

  /** Computes x·Wᵀ + b of (R, D) by the weights of a name. */
  project(name, x, rows) {
    return multiply(x, rows, this.tensors[`${name}.weight`], this.tensors[`${name}.bias`]);
  }

  stackOf(side, kind, layers, nextBiases) {
    const { config } = this, own = config[`${side}_heads`], isCausal = kind === "dec";
    return Array.from({ length: layers }, (_, layer) => {
      const name = `${side}.layers.${layer}`, isRecurrent = isCausal && config.decoder_cell === "ssru";
      const hasCross = isCausal && config.n_encoder_layers > 0;
      const self = isRecurrent ? null : this.attentionOf(`${name}.self_attention`, kind, layer, own[layer] ?? config.n_heads);
      if (self) this.addPositions(self, `${name}.self_attention`, `${side}_input.positions`, isCausal, nextBiases(self.heads));
      return {
        name,
        self,
        first: this.normOf(`${name}.${self ? "self_attention" : "recurrence"}_norm`),
        cross: hasCross ? this.attentionOf(`${name}.cross_attention`, "cross", layer, config.cross_heads[layer] ?? config.n_heads) : null,
        second: this.normOf(`${name}.cross_attention_norm`),
        last: this.normOf(`${name}.feed_forward_norm`),
      };
    });
  }

  attentionOf(name, kind, layer, heads) {
    const part = suffix => this.tensors[name + suffix], factors = part(".similarity.log_factor")?.data;
    return {
      name, kind, layer, heads,
      keyHeads: this.config.n_key_heads || heads,
      inner: part(".in_projection.weight"), innerBias: part(".in_projection.bias"),
      outer: part(".out_projection.weight"), outerBias: part(".out_projection.bias"),
      factors: factors?.map(value => Math.exp(Math.min(value, Math.log(100)))),
      vector: part(".similarity.vector")?.data,
    };
  }

  /** Gives self-attention what positions add to its scores. */
  addPositions(attention, name, input, isCausal, rows) {
    const { config, tensors } = this, projection = tensors[`${name}.relative.projection`];
    if (projection) attention.relative = { projection, content: tensors[`${name}.relative.content`].data, position: tensors[`${name}.relative.position`].data, rows: new Map() };
    if (config.positions === "alibi") {
      const slopes = slopesOf(config.n_heads);
      attention.bias = (head, distance) => -slopes[rows[head]] * Math.abs(distance);
    } else if (config.positions === "relative") {
      const { data: table, shape: [buckets, width] } = tensors[`${input}.table`];
      attention.bias = (head, distance) => table[bucketOf(distance, buckets, config.relative_distance, isCausal) * width + rows[head]];
    }
  }

  /** Embeds tokens, (n, D): the position of the first, and what leads to the next one, 0 or 1. */
  embed(ids, side, first = 0, step = 1) {
    const last = first + step * (ids.length - 1);
    if (last >= this.maxPositions) throw new Error(`a text may have at most ${this.maxPositions} tokens, but has ${last + 1}`);
    const d = this.config.d_model, { data } = side === "encoder" ? this.sourceMatrix : this.targetMatrix;
    const out = new Float32Array(ids.length * d), scale = this.config.scale_embeddings ? Math.sqrt(d) : 1;
    const table = this.config.positions === "relative" ? null : this.tensors[`${side}_input.positions.table`]?.data;
    ids.forEach((id, n) => {
      const place = first + n * step, from = id * d, to = n * d;
      for (let i = 0; i < d; i++) out[to + i] = data[from + i] * scale;
      const row = table ? table.subarray(place * d, (place + 1) * d) : this.config.positions === "sinusoidal" ? this.sinusoid(place) : null;
      if (row) for (let i = 0; i < d; i++) out[to + i] += row[i];
    });
    const norm = this.normOf(`${side}_input.norm`);
    return norm ? normRows(out, norm) : out;
  }

  /** The sinusoids of a position or of a distance: (E) where heads turn, else (D). */
  sinusoid(position) {
    const { positions, d_model, rotary_base } = this.config;
    if (!this.sinusoids.has(position)) this.sinusoids.set(position, sinusoidOf(position, positions === "rotary" ? this.headWidth : d_model, rotary_base));
    return this.sinusoids.get(position);
  }

  /** Makes queries (0), keys (1) or values (2) of (R, D), ready to be compared: (R, H·E). In self-attention rows stand `at`, a `step` apart. */
  headsOf(of, which, x, rows, at = null, step = 1) {
    const e = this.headWidth, heads = which ? of.keyHeads : of.heads, keys = of.keyHeads * e, first = which ? of.heads * e + (which - 1) * keys : 0;
    const out = of.inner ? multiply(x, rows, of.inner, of.innerBias, first, first + heads * e) : x.slice();
    if (which === 2) return out;
    if (at !== null && this.config.positions === "rotary") this.rotate(out, rows, heads, at, step);
    if (!which && of.relative) for (let n = 0; n < out.length; n++) out[n] += of.relative.content[n % (heads * e)];
    if (of.factors) {
      for (let n = 0; n < rows * heads; n++) {
        const size = Math.max(Math.sqrt(dotOf(out, n * e, out, n * e, e)), 1e-12), factor = which ? 1 : of.factors[n % heads];
        for (let i = n * e; i < (n + 1) * e; i++) out[i] *= factor / size;
      }
    }
    return out;
  }

  /** Turns heads (R, H·E) by the angles of their positions, in place: i and i + E/2 are the sides of an arrow. */
  rotate(x, rows, heads, at, step) {
    const e = this.headWidth, half = e / 2;
    for (let n = 0; n < rows * heads; n++) {
      const turn = this.sinusoid(at + Math.floor(n / heads) * step);
      for (let i = 0, a = n * e; i < half; i++, a++) {
        const sine = turn[2 * i], cosine = turn[2 * i + 1], first = x[a], second = x[a + half];
        x[a] = first * cosine - second * sine;
        x[a + half] = second * cosine + first * sine;
      }
    }
  }

  /**
   * Attends with queries (R, H·E) to the first K keys of their ways, in self-attention from `first` on.
   *
   * @param {Attention} of
   * @param {Float32Array} queries
   * @param {number} rows
   * @param {Memory} memory
   * @param {number} count
   * @param {Set<string>} off
   * @param {{ at?: number, step?: number, first?: number }} [places] of the queries; without them positions do not count
   * @returns {[Float32Array, Float32Array]} (R, D) output of W_O, and the weights, (H, R, K)
   */
  attend(of, queries, rows, { keys, values, ways }, count, off, { at = null, step = 1, first = 0 } = {}) {
    const e = this.headWidth, width = of.heads * e, apart = of.keyHeads * e, sharing = of.heads / of.keyHeads;
    const out = new Float32Array(rows * width), weights = new Float32Array(of.heads * rows * count), scores = new Float64Array(count);
    for (let head = 0; head < of.heads; head++) {
      const shift = Math.floor(head / sharing) * e, isOff = off.has(`${of.kind}.${of.layer}.${head}`);
      for (let r = 0; r < rows; r++) {
        const way = ways[r], from = r * width + head * e, row = (head * rows + r) * count;
        let most = -Infinity, sum = 0;
        for (let j = first; j < count; j++) {
          scores[j] = this.score(of, head, queries, from, keys, way[j] * apart + shift, at === null ? null : j - at - r * step);
          if (scores[j] > most) most = scores[j];
        }
        for (let j = first; j < count; j++) sum += scores[j] = Math.exp(scores[j] - most);
        for (let j = first; j < count; j++) {
          const weight = weights[row + j] = scores[j] / sum;
          // A head that is off is seen, and adds nothing
          if (!isOff) for (let i = 0, v = way[j] * apart + shift; i < e; i++) out[from + i] += weight * values[v + i];
        }
      }
    }
    this.watch?.(of.name, { queries, keys, values, first, context: out.slice() });
    return [of.inner ? multiply(out, rows, of.outer, of.outerBias) : out, weights];
  }

  /** The score of a query and a key; of positions only their distance j - i counts, if any. */
  score(of, head, queries, from, keys, key, distance) {
    const e = this.headWidth, scale = this.scaleOfScores;
    let s = 0;
    if (of.vector) for (let i = 0; i < e; i++) s += of.vector[head * e + i] * Math.tanh(queries[from + i] + keys[key + i]);
    else s = scale * dotOf(queries, from, keys, key, e);
    // -|k|² / 2√E; |q|² is alike for all keys
    if (this.config.similarity === "distance") s -= .5 * scale * dotOf(keys, key, keys, key, e);
    if (distance !== null && of.bias) s += of.bias(head, distance);
    if (distance !== null && of.relative) s += scale * this.compareDistance(of, head, queries, from, -distance);
    return s;
  }

  /** Computes (q + v)·W_R·R(i - j) of Transformer-XL; the query is q + u. */
  compareDistance({ relative: { projection, content, position, rows } }, head, queries, from, distance) {
    if (!rows.has(distance)) rows.set(distance, multiply(this.sinusoid(distance), 1, projection));
    const row = rows.get(distance), e = this.headWidth;
    let sum = 0;
    for (let i = 0, a = head * e; i < e; i++, a++) sum += (queries[from + i] + position[a] - content[a]) * row[a];
    return sum;
  }

  /** Adds what a sub-layer computes to (R, D), with its norm before or after. */
  sublayer(place, x, norm, compute) {
    const entering = this.isPreNorm ? normRows(x, norm) : x, output = compute(entering), added = this.watch && output.slice();
    const summed = addTo(output, x), result = this.isPreNorm ? summed : normRows(summed, norm);
    this.watch?.(place, { stream: x, entering, output: added, summed, result });
    return result;
  }

  feedForward(name, x, rows) {
    const { gated } = this.config, inner = this.project(`${name}.feed_forward.${gated ? "gate" : "inner"}`, x, rows);
    for (let i = 0; i < inner.length; i++) inner[i] = this.activation(inner[i]);
    if (gated) this.project(`${name}.feed_forward.inner`, x, rows).forEach((value, i) => inner[i] *= value);
    this.watch?.(`${name}.inner`, { inner });
    return this.project(`${name}.feed_forward.outer`, inner, rows);
  }

  /**
   * Encodes a text.
   *
   * @param {number[]} ids special tokens included
   * @param {{ off?: Iterable<string> }} [options] heads that are switched off
   * @returns {Encoded} states (S, D) and each layer's weights (H, S, S)
   */
  encode(ids, { off = [] } = {}) {
    const n = ids.length, closed = new Set(off), ways = Array(n).fill(Int32Array.from(ids, (_, place) => place)), maps = [];
    /** @type {Float32Array} */
    let x = this.embed(ids, "encoder");
    for (const { name, self, first, last } of this.encoder) {
      x = this.sublayer(`${name}.self`, x, first, y => {
        const memory = { keys: this.headsOf(self, 1, y, n, 0), values: this.headsOf(self, 2, y, n), ways };
        const [output, weights] = this.attend(self, this.headsOf(self, 0, y, n, 0), n, memory, n, closed, { at: 0 });
        maps.push(weights);
        return output;
      });
      x = this.sublayer(`${name}.last`, x, last, y => this.feedForward(name, y, n));
    }
    const norm = this.normOf("encoder.final_norm");
    return { n, ids: [...ids], states: norm ? normRows(x, norm) : x, maps };
  }

  /**
   * Computes what stands on an encoder: logits of labels, tags or tokens, or the vector of a text.
   *
   * @param {Encoded} encoded
   * @param {number[]} [places] positions whose tags or tokens are wanted
   */
  outputs({ n, states }, places = [...Array(n).keys()]) {
    const { head, pooler, pooling, unit_length } = this.config, d = this.config.d_model;
    if (head === "tags" || head === "tokens") {
      /** @type {Float32Array} */
      let x = new Float32Array(places.length * d);
      places.forEach((place, row) => x.set(states.subarray(place * d, (place + 1) * d), row * d));
      if (head === "tokens") x = normRows(this.project("transform", x, places.length).map(this.activation), this.normOf("transform_norm"));
      return this.logitsOf(x, places.length);
    }
    const pooled = states.slice(0, d);
    if (pooling === "mean") pooled.forEach((_, i) => pooled[i] = Array.from({ length: n }, (_, place) => states[place * d + i]).reduce((sum, value) => sum + value) / n);
    if (head === "labels") return this.logitsOf(pooler === "none" ? pooled : this.project("pooler", pooled, 1).map(ACTIVATIONS[pooler]), 1);
    const size = unit_length ? Math.max(Math.sqrt(dotOf(pooled, 0, pooled, 0, d)), 1e-12) : 1;
    return pooled.map(value => value / size);
  }

  logitsOf(x, rows) {
    const logits = multiply(x, rows, this.outputMatrix, this.tensors.output_bias);
    this.watch?.("output", { hidden: x, logits });
    return logits;
  }

  /**
   * Starts a decoder.
   *
   * @param {Encoded | null} source what it attends to; null of a language model
   * @param {{ off?: Iterable<string>, rows?: number }} [options] heads that are switched off, and hypotheses
   * @returns {DecoderState}
   */
  start(source, { off = [], rows = 1 } = {}) {
    const places = Int32Array.from({ length: source?.n ?? 0 }, (_, place) => place);
    const memory = this.decoder.map(({ cross }) => cross && {
      keys: this.headsOf(cross, 1, source.states, source.n),
      values: this.headsOf(cross, 2, source.states, source.n),
      ways: Array(rows).fill(places),
    });
    const own = this.decoder.map(({ self }) => {
      const size = self ? FIRST_ROOM * self.keyHeads * this.headWidth : 0;
      return { keys: new Float32Array(size), values: new Float32Array(size) };
    });
    return { source, memory, off: new Set(off), length: 0, used: 0, base: [], ways: Array.from({ length: rows }, () => new Int32Array(FIRST_ROOM)), own, cells: [], read: [] };
  }

  /**
   * Reads one more token of every row.
   *
   * @param {DecoderState} state
   * @param {number | number[]} ids
   * @returns {Float32Array} (rows, V) logits of what comes next
   */
  step(state, ids) {
    const tokens = Array.isArray(ids) ? ids : [ids], rows = tokens.length, at = state.length;
    const { memory: remembered, max_positions } = this.config;
    const first = remembered ? Math.max(0, Math.floor(at / max_positions) * max_positions - remembered) : 0;
    /** @type {Float32Array} */
    let x = this.embed(tokens, "decoder", at, 0);
    state.ways = state.ways.map((way, row) => {
      const wide = at < way.length ? way : widened(way, 2 * at, Int32Array);
      wide[at] = state.used + row;
      return wide;
    });
    /** @type {DecoderMaps} */
    const read = { dec: [], cross: [] };
    this.decoder.forEach(({ name, self, cross, first: before, second, last }, layer) => {
      x = this.sublayer(`${name}.self`, x, before, y => {
        if (!self) return this.recur(name, y, rows, state.cells, layer);
        const memory = this.keep(state, self, layer, y, rows);
        const [output, weights] = this.attend(self, this.headsOf(self, 0, y, rows, at, 0), rows, memory, at + 1, state.off, { at, step: 0, first });
        read.dec.push(weights);
        return output;
      });
      if (cross) {
        x = this.sublayer(`${name}.cross`, x, second, y => {
          const [output, weights] = this.attend(cross, this.headsOf(cross, 0, y, rows), rows, state.memory[layer], state.source.n, state.off);
          read.cross.push(weights);
          return output;
        });
      }
      x = this.sublayer(`${name}.last`, x, last, y => this.feedForward(name, y, rows));
    });
    state.base.push(state.used);
    state.read.push(read);
    state.used += rows;
    state.length++;
    const norm = this.normOf("decoder.final_norm");
    return this.logitsOf(norm ? normRows(x, norm) : x, rows);
  }

  /** Writes keys and values of the rows (R, D) of a position behind those of the positions before it. */
  keep(state, self, layer, x, rows) {
    const own = state.own[layer], place = state.used * self.keyHeads * this.headWidth;
    const keys = this.headsOf(self, 1, x, rows, state.length, 0), values = this.headsOf(self, 2, x, rows);
    if (place + keys.length > own.keys.length) {
      const room = 2 * (place + keys.length);
      own.keys = widened(own.keys, room, Float32Array);
      own.values = widened(own.values, room, Float32Array);
    }
    own.keys.set(keys, place);
    own.values.set(values, place);
    return { ...own, ways: state.ways };
  }

  /** The recurrent unit in place of self-attention: c = f ⊙ c + (1 - f) ⊙ W·x, then max(0, c). */
  recur(name, x, rows, cells, layer) {
    const gate = this.project(`${name}.recurrence.forget`, x, rows), fresh = this.project(`${name}.recurrence.input`, x, rows), before = cells[layer];
    cells[layer] = fresh.map((value, i) => {
      const f = 1 / (1 + Math.exp(-gate[i]));
      return (1 - f) * value + (before ? f * before[i] : 0);
    });
    return cells[layer].map(ACTIVATIONS.relu);
  }

  /**
   * Chooses the rows that go on: each new one continues an old one.
   *
   * @param {DecoderState} state
   * @param {number[]} parents the old row of each new one
   */
  choose(state, parents) {
    const d = this.config.d_model;
    state.ways = parents.map(row => state.ways[row].slice());
    state.cells = state.cells.map(cell => {
      const kept = new Float32Array(parents.length * d);
      parents.forEach((row, n) => kept.set(cell.subarray(row * d, (row + 1) * d), n * d));
      return kept;
    });
    for (const memory of state.memory) if (memory) memory.ways = Array(parents.length).fill(memory.ways[0]);
  }

  /**
   * Gathers the weights of a row's own past.
   *
   * @param {DecoderState} state
   * @param {number | Int32Array} [row] the row, or its way
   * @param {number} [length] positions that count, T
   * @returns {DecoderMaps} by layer (H, T, T) and (H, T, S)
   */
  mapsOf(state, row = 0, length = state.length) {
    const way = typeof row === "number" ? state.ways[row] : row, steps = state.read.slice(0, length);
    const gather = (kind, layer, heads, width) => {
      const map = new Float32Array(heads * length * width);
      steps.forEach((step, t) => {
        const weights = step[kind][layer], rows = (state.base[t + 1] ?? state.used) - state.base[t], keys = weights.length / (rows * heads);
        for (let head = 0; head < heads; head++) {
          const from = (head * rows + way[t] - state.base[t]) * keys;
          map.set(weights.subarray(from, from + keys), (head * length + t) * width);
        }
      });
      return map;
    };
    return {
      dec: this.decoder.flatMap(({ self }, layer) => self ? [gather("dec", layer, self.heads, length)] : []),
      cross: this.decoder.flatMap(({ cross }, layer) => cross ? [gather("cross", layer, cross.heads, state.source.n)] : []),
    };
  }
}

/** Copies an array into a longer one. */
function widened(array, length, type) {
  const wide = new type(length);
  wide.set(array);
  return wide;
}

/** The slopes of H heads of ALiBi: those of a power of two, and then every second one of twice as many. */
function slopesOf(heads) {
  const power = 2 ** Math.floor(Math.log2(heads));
  return Float32Array.from({ length: heads }, (_, head) => head < power ? 2 ** (-8 * (head + 1) / power) : 2 ** (-4 * (2 * (head - power) + 1) / power));
}

/** The bucket of a distance j - i, as T5 has it, rounded to float32 where it is: at a bucket's edge a digit counts. */
function bucketOf(distance, buckets, far, isCausal) {
  const half = isCausal ? buckets : Math.floor(buckets / 2), size = isCausal ? Math.max(-distance, 0) : Math.abs(distance);
  const first = !isCausal && distance > 0 ? half : 0, exact = Math.floor(half / 2), { fround } = Math;
  if (size < exact) return first + size;
  const share = fround(fround(Math.log(fround(size / exact))) / fround(Math.log(far / exact)));
  return first + Math.min(half - 1, exact + Math.trunc(fround(Math.max(0, share) * (half - exact))));
}
