// Logits and the logit lens: the candidates of each position, and what each layer would choose, as plugins/instruments/views/logits.py.

import { normRows } from "./engine/kernels.js";
import { largest } from "./engine/search.js";
import { rowsAt, softmax } from "./answers.js";
import { observe } from "./walk.js";

const N_TOP = 5;

/** The event: candidates by position; null where nothing is predicted. */
export function lensOf({ model, tokenizer }, record, off) {
  const { rows, places, best, names, source, ids } = record, chosen = rows ? best : ids.slice(1), d = model.config.d_model;
  if (rows && !rows.length) return null;
  const own = observe(model, record, 0, off), stack = model.decoder.length ? model.decoder : model.encoder, norm = model.normOf(`${model.decoder.length ? "decoder" : "encoder"}.final_norm`), n = rows ? source.n : chosen.length;
  const layers = stack.map(({ name }) => {
    const x = Float32Array.from(own.rows(`${name}.last`, "result", n).flatMap(row => [...row])), states = norm ? normRows(x, norm) : x;
    if (rows) return rowsAt(model, { ...source, states }, places).rows;
    return chosen.map((_, row) => model.logitsOf(states.subarray(row * d, (row + 1) * d), 1));
  });
  const logitsOf = rows ?? layers.at(-1), inputs = tokenizer.target.pieces(ids), sources = source ? tokenizer.source.pieces(source.ids) : [];
  const candidate = (id, logits, shares) => ({ piece: names?.[id] ?? tokenizer.target.pieces([id])[0], id, probability: shares[id], logit: logits[id] });
  return {
    data: {
      positions: chosen.map((id, row) => {
        const logits = logitsOf[row], shares = softmax(logits), lens = layers.map((each, layer) => {
          const own = softmax(each[row]), [[top]] = largest(each[row], 1);
          return { layer, top: candidate(top, each[row], own), probability: own[id], rank: rankOf(id, own) };
        });
        const { piece, probability, logit } = candidate(id, logits, shares), position = places?.[row] ?? row, first = lens.findLastIndex(({ rank }) => rank > 1) + 1;
        return {
          position, read: !rows ? inputs[row] : places ? sources[position] : "the text", piece, id, probability, logit, log_probability: Math.log(probability), rank: rankOf(id, shares),
          entropy: shares.reduce((total, share) => share > 0 ? total - share * Math.log(share) : total, 0), top: largest(logits, N_TOP).map(([id]) => candidate(id, logits, shares)), first_layer: first < lens.length ? first : null, lens,
        };
      }),
    },
  };
}

/** The place of a token by probability, from 1; of equal ones the smaller id is first. */
function rankOf(token, shares) {
  return 1 + shares.reduce((ahead, share, id) => ahead + Number(share > shares[token] || (share === shares[token] && id < token)), 0);
}
