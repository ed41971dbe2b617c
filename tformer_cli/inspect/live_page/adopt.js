// Turns events into a sentence of the page, which the views of stored pages can show.

import { nameHeads, unpacked, unpackedData } from "./parts.js";

/** Makes a sentence from the events alignment and heads. */
export function sentenceOf(heads, alignment) {
  /** @type {Sentence} */
  const one = {
    model: heads.summary, task: heads.summary.task,
    index: heads.sentence, source: heads.source, target: heads.text, isForced: heads.score === null && Boolean(heads.target_pieces.length), score: heads.score,
    rank: heads.score === null ? null : 1, isLive: heads.mode === "live", residual: heads.residual, largest: 1, bits: 8,
    sourcePieces: heads.source_pieces, targetPieces: heads.target_pieces, inputPieces: heads.input_pieces,
    rare: heads.rare, rareReason: "", isRecurrent: heads.is_recurrent, links: alignment?.links ?? [], views: {},
    heads: Object.entries(heads.metrics).map(([id, metrics]) => ({ id, role: heads.roles[id] ?? null, metrics })), first: 0,
  };
  one.first = Math.max(0, one.heads.findIndex(head => head.id === heads.first));
  for (const side of ["source", "target"]) {
    const spans = alignment?.words[side];
    if (spans?.length) {
      const text = side === "source" ? heads.source : heads.text;
      const ofToken = alignment.tokens[side], pieces = heads[`${side}_pieces`];
      // An unknown word, which its tokens spell differently, does not occur in the text
      const spelled = n => pieces.filter((_, token) => ofToken[token] === n).join("").replaceAll("▁", "");
      one[`${side}Words`] = { texts: spans.map(([start, end], n) => text.slice(start, end) || spelled(n)), ofToken };
    }
  }
  nameHeads(one);
  const tensors = Object.fromEntries(Object.entries(heads.kinds).map(([kind, { shape, data: text, scale, values }]) => [kind, values ? { shape, values } : { shape, scale, bytes: unpacked(text) }]));
  for (const head of one.heads) {
    const { shape: [, nHeads, rows, columns], scale, bytes, values } = tensors[head.kind], size = rows * columns;
    const start = (head.layer * nHeads + head.head) * size;
    head.values = values ? values.subarray(start, start + size) : Float32Array.from({ length: size }, (_, n) => bytes.getUint8(start + n) * scale);
  }
  return one;
}

/** Makes the search tree that its tab draws from the event tree. */
export function treeOf(event) {
  const nodes = event.steps.flatMap((step, depth) => step.map(node => ({ ...node, step: depth, logp: node.log_probability })));
  return { beamSize: event.beam_size, lengthPenalty: event.length_penalty, count: nodes.length, nodes, path: event.path };
}

/** Makes the data of the head effects tab from the event off. */
export function effectsOf(event) {
  const effects = Object.fromEntries(event.heads.map((head, n) => [head, -event.delta[n] / event.n_tokens]));
  return { loss: event.loss, n_tokens: event.n_tokens, effects };
}

/** Unpacks the data of a view in the same way as stored pages do. */
export function viewData(value) {
  return JSON.parse(JSON.stringify(value), (_, one) => unpackedData(one));
}
