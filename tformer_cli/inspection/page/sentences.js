// The sentence on top: which model, which sentence, its tokens.

/** Writes what is known of the model and the capture. */
function showFacts() {
  const model = data.model, layers = [model.n_encoder_layers, model.n_decoder_layers].join("+");
  const parts = [make("b", {}, bidi(model.name)), ` ${layers} layers × ${model.n_heads} head${model.n_heads === 1 ? "" : "s"}`];
  if (data.modelHash) parts.push(" · sha256 ", make("code", { title: data.modelHash }, data.modelHash.slice(0, 12)));
  if (sentence.score !== null) parts.push(` · score ${decimal(sentence.score)}`);
  parts.push(` · maps ${sentence.isLive ? "of the search" : "of a forced pass"}`);
  const residual = make("span", { title: `Residual: ${data.weighting.residual}` },
    ` · residual ${sentence.residual.toExponential(1)}`);
  byId("facts").replaceChildren(...parts, residual);
}

/** Lists the sentences to choose from. */
function fillChooser() {
  const chooser = byId("sentence");
  chooser.hidden = data.sentences.length < 2;
  data.sentences.forEach((one, n) => chooser.append(make("option", { value: String(n) }, `${one.index + 1}  ${one.source}`)));
  chooser.addEventListener("change", () => update({ s: chooser.value, row: "" }));
}

/** Shows the tokens; the decoder reads chip j as key j, and its row i predicts chip i + 1. */
function showStrips() {
  fillStrip(byId("source"), sentence.sourcePieces, "source");
  fillStrip(byId("target"), [...sentence.inputPieces, sentence.targetPieces.at(-1)], "target");
  const name = sentence.rank > 1 ? `Translation ${sentence.rank}` : "Translation";
  byId("target-name").textContent = sentence.isForced ? "Given target" : name;
}

function fillStrip(box, pieces, side) {
  box.replaceChildren(...pieces.map((piece, n) => {
    const special = /^<(s|\/s|pad|unk)>$/.test(piece) ? " special" : "";
    const chip = make("span", { class: `chip${special}`, dir: "auto" }, piece);
    chip.addEventListener("pointerenter", () => hover(cellOfChip(side, n)));
    chip.addEventListener("pointerleave", () => hover(null));
    chip.addEventListener("click", () => pin(cellOfChip(side, n)?.row));
    return chip;
  }));
}

/** What a token of the strips is in the map of the selected head: a row or a column. */
function cellOfChip(side, n) {
  const { kind } = chosenHead();
  if (side === "source") return kind === "enc" ? { row: n } : kind === "cross" ? { column: n } : null;
  if (kind === "enc") return null;
  if (n > 0) return { row: n - 1 };
  return kind === "dec" ? { column: 0 } : null;
}

/** Shades the tokens by the weights of the row or column that is pointed at. */
function markStrips(cell) {
  const head = chosenHead(), source = [...byId("source").children], target = [...byId("target").children];
  for (const chip of [...source, ...target]) {
    chip.classList.remove("query", "key");
    chip.style.background = chip.style.color = "";
  }
  if (!cell) return;
  const { row, column } = cell, values = weightsOf(head), k = columnsOf(head).length, colour = rampOf(head.kind);
  const queries = head.kind === "enc" ? source : target.slice(1), keys = head.kind === "dec" ? target : source;
  const shade = (chip, weight) => {
    const channels = colour(weight);
    chip.style.background = hex(channels);
    chip.style.color = inkOn(channels);
  };
  if (row !== undefined) {
    for (let j = 0; j < k; j++) shade(keys[j], values[row * k + j]);
    queries[row].classList.add("query");
  } else rowsOf(head).forEach((_, i) => shade(queries[i], values[i * k + column]));
  if (column !== undefined) keys[column].classList.add("key");
}
