// Computes what a test asks for: a file of jobs in, one JSON value a job out. Node reads it beside a copy of the engine.
import { readFileSync } from "node:fs";
import { readTensors } from "./weights.js";
import { Model } from "./model.js";
import { force, nextWords, search } from "./search.js";

const bytes = path => {
  const file = readFileSync(path);
  return file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength);
};
const plain = value => JSON.parse(JSON.stringify(value, (_, part) => ArrayBuffer.isView(part) ? Array.from(part) : part));

/** What each job computes with a model; without one a job is to read the weights. */
const JOBS = {
  encode: (model, { ids, off, places }) => {
    const encoded = model.encode(ids, { off });
    return { ...encoded, outputs: model.config.n_decoder_layers ? [] : model.outputs(encoded, places) };
  },
  // Reads given tokens in all rows at once, which change places on the way
  read: (model, { source, rows, off }) => {
    const state = model.start(source ? model.encode(source, { off }) : null, { off, rows: rows.length });
    const order = rows.map((_, row) => row), logits = rows.map(() => []);
    rows[0].forEach((_, at) => {
      const found = model.step(state, order.map(row => rows[row][at])), size = model.vocabSize;
      order.forEach((row, n) => logits[row].push(Array.from(found.slice(n * size, (n + 1) * size))));
      order.reverse();
      model.choose(state, rows.map((_, n) => rows.length - 1 - n));
    });
    return { logits, maps: rows.map((_, row) => model.mapsOf(state, order.indexOf(row))), source: state.source };
  },
  search: (model, { sources, settings, options }) => sources.map(ids => search(model, ids, settings, options)),
  translate: (model, { sources, settings }) => sources.map(ids => search(model, ids, settings).hypotheses[0].ids),
  force: (model, { source, ids, top }) => force(model, source && model.encode(source), ids, { top }),
  next: (model, { ids, prefix, k }) => nextWords(model, ids, prefix, k),
};

const results = JSON.parse(readFileSync(process.argv[2], "utf8")).map(({ job, config, weights, ...asked }) => {
  try {
    const tensors = readTensors(bytes(weights));
    return plain(config ? JOBS[job](new Model(config, tensors), asked) : tensors);
  } catch (error) {
    return { error: error.message };
  }
});
console.log(JSON.stringify(results));
