// Measures of a head's map, and its role: as inspect/heads/metrics.py and heads/roles.py have them.

const OFFSETS = { prev: -1, self: 0, next: 1 }, POSITIONS = { prev: "previous", self: "self", next: "next" };
const NO_VARIANCE = 1e-9;

/**
 * The measures of a map (Q, K) that are defined, by their names.
 *
 * @param {Float32Array} weights
 * @param {number[]} shape
 * @param {Kind} kind
 * @param {boolean} hasEnd true if the last key is the end of the source
 * @param {number[]} rare positions of the rarest tokens
 * @param {number[]} segment tokens of a segment, and of the memory before it
 * @returns {Record<string, number>}
 */
export function measureHead(weights, [nRows, nKeys], kind, hasEnd, rare, [segment, memory]) {
  const sums = { entropy: 0, entropy_norm: 0, confidence: 0, prev: 0, self: 0, next: 0, prev_argmax: 0, self_argmax: 0, next_argmax: 0, rare_argmax: 0, distance: 0, monotonicity: 0, sink_eos: 0, sink_bos: 0, memory: 0 };
  const isCross = kind === "cross", end = hasEnd && kind !== "dec" ? nKeys - 1 : -1, middle = (nKeys - 1) / 2;
  let before = -1, nSeveral = 0, mean = 0, squared = 0, covariance = 0;
  for (let i = 0; i < nRows; i++) {
    const row = weights.subarray(i * nKeys, (i + 1) * nKeys), begin = segment < Infinity ? i - i % segment : 0, nSeen = kind === "dec" ? i + 1 - Math.max(begin - memory, 0) : nKeys;
    let entropy = 0, largest = 0, at = 0, expected = 0;
    row.forEach((weight, j) => {
      if (weight > 0) entropy -= weight * Math.log(weight);
      if (weight > row[at]) at = j;
      if (j !== end && weight > largest) largest = weight;
      sums.distance += weight * (isCross ? Math.abs(j / Math.max(nKeys - 1, 1) - i / Math.max(nRows - 1, 1)) : Math.abs(i - j));
      expected += weight * (j - middle);
      if (j < begin) sums.memory += weight;
      squared += weight * (j - middle) ** 2;
    });
    sums.entropy += entropy;
    if (nSeen > 1) {
      nSeveral++;
      sums.entropy_norm += entropy / Math.log(nSeen);
    }
    sums.confidence += largest;
    for (const [name, offset] of Object.entries(OFFSETS)) {
      sums[name] += row[i + offset] ?? 0;
      sums[`${name}_argmax`] += Number(at === i + offset);
    }
    sums.rare_argmax += Number(rare.includes(at));
    sums.monotonicity += Number(i > 0 && at >= before);
    sums.sink_eos += row[end] ?? 0;
    sums.sink_bos += row[0];
    before = at;
    mean += expected;
    covariance += expected * (i - (nRows - 1) / 2);
  }
  const counts = { entropy: nRows, entropy_norm: nSeveral, confidence: nKeys > Number(end >= 0) ? nRows : 0, distance: nRows };
  if (isCross) counts.monotonicity = nRows - 1;
  else for (const [name, offset] of Object.entries(OFFSETS)) counts[name] = counts[`${name}_argmax`] = nRows - Math.abs(offset);
  if (nRows > segment) counts.memory = nRows - segment;
  if (kind === "enc" && rare.length) counts.rare_argmax = nRows;
  counts[kind === "dec" ? "sink_bos" : "sink_eos"] = nRows;
  const measures = Object.fromEntries(Object.entries(counts).filter(([, count]) => count > 0).map(([name, count]) => [name, sums[name] / count]));
  if (isCross && nRows > 1 && nKeys > 1) {
    const variance = squared / nRows - (mean / nRows) ** 2, spread = nRows * (nRows ** 2 - 1) / 12;
    measures.diagonality = variance > NO_VARIANCE ? covariance / nRows / Math.sqrt(variance * spread / nRows) : 0;
  }
  return measures;
}

/** The role of a head by its measures. */
export function roleOf(measures) {
  const of = name => measures[name] ?? 0, sink = Math.max(of("sink_eos"), of("sink_bos"));
  const masses = Object.entries(POSITIONS).filter(([name]) => of(name) > .5 || of(`${name}_argmax`) >= .9).map(([name, role]) => [role, of(name)]);
  if (sink >= .6) masses.push(["sink", sink]);
  if (masses.length) return masses.reduce((best, mass) => mass[1] > best[1] ? mass : best)[0];
  if ((measures.diagonality ?? -1) >= .5 && of("confidence") > .5) return "aligner";
  if (of("entropy_norm") >= .78) return "broad";
  return of("rare_argmax") > .5 ? "rare" : "other";
}
