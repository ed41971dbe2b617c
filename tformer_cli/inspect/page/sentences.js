// The top of the page: the model, the sentence, its tokens.

/** Writes the sentence and its translation and, folded away, facts about the model and the capture. */
function showFacts() {
  byId("source-text").textContent = readsImages() ? nameOfImage(sentence) : clean(sentence.source);
  if (sentence.views?.image) byId("source-text").prepend(imageOf(sentence), " ");
  byId("target-text").textContent = clean(sentence.target);
  byId("about").hidden = !data.model || !(sentence.sourcePieces.length || sentence.inputPieces.length);
  if (byId("about").hidden) return;
  const model = data.model, layers = [model.n_encoder_layers, model.n_decoder_layers].filter((n) => n).join("+");
  byId("facts").replaceChildren("Model ", make("b", {}, bidi(model.name)), ` · ${layers} layers of ${model.n_heads} head${model.n_heads === 1 ? "" : "s"}`);
  const isWide = sentence.bits === 16, error = (.5 / (2 ** sentence.bits - 1)).toExponential(1);
  const ofHeads = sentence.heads.length > 0, facts = [
    ["Model", `${model.name}: ${model.n_encoder_layers} encoder and ${model.n_decoder_layers} decoder layers, ${model.n_heads} heads each`],
    ["Shared keys", model.n_key_heads > 0 && `Groups of ${model.n_heads / model.n_key_heads} heads, counted from 0, share keys and values.`],
    ["Weights file", data.modelHash && make("code", {}, `SHA-256 ${data.modelHash}`)],
    ["Score", sentence.score !== null && `${decimal(sentence.score)}: log-probability of the translation after the length penalty; nearer to 0 is better`],
    ["Maps", ofHeads && (sentence.isLive ? "Recorded during the search." : `Taken in one pass over the ${readsImages() ? "image" : model.n_encoder_layers && model.n_decoder_layers ? "finished translation" : "text"}.`)],
    ["Numbers", ofHeads && `${data.weighting.meaning} (${data.weighting.source})`],
    ["Rows and columns", ofHeads && data.conventions],
    ["Residual", ofHeads && `${sentence.residual.toExponential(1)}: ${data.weighting.residual}. Near 0, the maps are what the model computed.`],
    ["Stored", ofHeads && `${isWide ? 16 : 8}-bit fixed-point numbers, within ${error} of those captured${data.weighting.isShare ? "." : ", as fractions of the largest."}`],
  ];
  byId("about-facts").replaceChildren(make("tbody", {}, ...facts.filter(([, text]) => text)
    .map(([name, text]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, text)))));
}

/** A language model, which has no source. */
const readsText = () => Boolean(data.model) && !data.model.n_encoder_layers;

/** An encoder without decoder, which has no target. */
const isEncoder = () => Boolean(data.model) && !data.model.n_decoder_layers;

/** A masked language model, which fills gaps, or a tagger, which labels words. */
const hasPlaces = () => ["masked", "tag"].includes(data.model?.task);

/** A tagger. */
const givesTags = () => data.model?.task === "tag";

/** A place of a text with a prediction, the prediction, and the verb for it. */
const placeName = () => givesTags() ? "word" : "gap";
const placedName = () => givesTags() ? "label" : "token";
const placeVerb = () => givesTags() ? "given" : "filled in";

/** A classifier or an embedder, which turn all tokens into one label or vector. */
const isPooled = () => isEncoder() && !hasPlaces();

/** A classifier. */
const isLabeled = () => isPooled() && data.model.task !== "embed";

/** A model whose sources are images. */
const readsImages = () => Boolean(data.model?.reads_images);

/** The name of an image, cut short, for it may be all of its pixels. */
const nameOfImage = one => shortened(one.source, 60);

/** Lists the sentences to choose from. */
function fillChooser() {
  const chooser = byId("sentence");
  chooser.hidden = data.sentences.length < 2;
  data.sentences.forEach((one, n) => chooser.append(make("option", { value: String(n) }, `${one.index + 1}  ${readsText() ? one.target : readsImages() ? nameOfImage(one) : one.source}`)));
  chooser.addEventListener("change", () => update({ s: chooser.value, row: "", key: "" }));
}

/** Shows the tokens; the decoder reads chip j as key j, and its row i predicts chip i + 1. */
function showStrips() {
  fillStrip(byId("source"), sentence.sourcePieces, "source");
  fillStrip(byId("target"), [...sentence.inputPieces, ...sentence.targetPieces.slice(-1)], "target");
  const name = sentence.rank > 1 ? `Translation ${sentence.rank}` : "Translation";
  const isText = readsText(), isAlone = isEncoder(), hasTarget = !isAlone || isLabeled() || (hasPlaces() && sentence.target);
  for (const id of ["source-label", "source-text", "source-name", "source"]) byId(id).hidden = isText;
  for (const id of ["target-name", "target"]) byId(id).hidden = isAlone;
  for (const id of ["target-label", "target-text"]) byId(id).hidden = !hasTarget;
  byId("source-label").textContent = readsImages() ? "Image" : isAlone ? "Text" : "Source";
  byId("source-name").textContent = readsImages() ? "Patches" : isAlone ? "Tokens" : "Source tokens";
  byId("target-label").textContent = isLabeled() ? "Label" : givesTags() ? "Labels" : isAlone ? "Filled" : isText ? "Text" : sentence.isForced ? "Given target" : name;
  byId("target-name").textContent = isText ? "Tokens" : sentence.isForced ? "Target tokens" : "Translation tokens";
}

/**
 * @param {HTMLElement} box
 * @param {string[]} pieces
 * @param {'source' | 'target'} side
 */
function fillStrip(box, pieces, side) {
  box.replaceChildren(...pieces.map((piece, n) => {
    const special = /^<(s|\/s|pad|unk)>$/.test(piece) ? " special" : "";
    const chip = make("span", { class: `chip${special}`, dir: "auto" }, piece);
    chip.addEventListener("pointerenter", () => hover(cellOfChip(side, n)));
    chip.addEventListener("pointerleave", () => hover(null));
    chip.addEventListener("click", () => pin(cellOfChip(side, n)));
    return chip;
  }));
}

/**
 * The row or column of a token of the strips in the map of the selected head.
 *
 * @param {'source' | 'target'} side
 * @param {number} n
 * @returns {Cell | null}
 */
function cellOfChip(side, n) {
  if (!sentence.heads.length) return null;
  const { kind } = chosenHead();
  if (side === "source") return kind === "enc" ? { row: n } : kind === "cross" ? { column: n } : null;
  if (kind === "enc") return null;
  if (n > 0) return { row: n - 1 };
  return kind === "dec" ? { column: 0 } : null;
}

/**
 * Shades the tokens by the weights of the row or column under the pointer.
 *
 * @param {Cell | null} cell
 */
function markStrips(cell) {
  const head = chosenHead(), source = [...elements(".chip", byId("source"))], target = [...elements(".chip", byId("target"))];
  for (const chip of [...source, ...target]) {
    chip.classList.remove("query", "key");
    chip.style.background = chip.style.color = "";
  }
  if (!cell) return;
  const { row, column } = cell, values = weightsOf(head), k = columnsOf(head).length, color = rampOf(head.kind);
  const queries = head.kind === "enc" ? source : target.slice(1), keys = head.kind === "dec" ? target : source;
  const shade = (chip, weight) => {
    const channels = color(weight);
    chip.style.background = hex(channels);
    chip.style.color = inkOn(channels);
  };
  if (row !== undefined) {
    for (let j = 0; j < k; j++) shade(keys[j], values[row * k + j]);
    queries[row].classList.add("query");
  } else rowsOf(head).forEach((_, i) => shade(queries[i], values[i * k + column]));
  if (column !== undefined) keys[column].classList.add("key");
}
