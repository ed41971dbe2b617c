// Logits: the decoder's candidates at each position, and those of each of its layers.

addTab({
  id: "logits",
  title: "Logits and lens",
  holds: one => Boolean(viewOf(one, "logits")),
  show(panel, one) {
    const { positions, smoothing } = viewOf(one, "logits");
    const labels = isLabeled();
    panel.append(labels ? card("The labels", make("p", { class: "says" },
      "The chosen label, its logit and probability, the model's uncertainty (entropy), and the most probable labels with both."), candidateTable(positions))
      : card(hasPlaces() ? (givesTags() ? "The label of each word" : "Candidates for the gaps") : "The decoder's candidates", make("p", { class: "says" },
        `Each row is ${hasPlaces() ? `a ${placeName()}: its place, the ${placedName()} ${placeVerb()}` : "a decoder position: the token read last, the token written"}, its logit and probability, `
        + `the model's uncertainty (entropy), and the most probable ${hasPlaces() ? placedName() : "token"}s with probability and, small, logit.`), candidateTable(positions)));
    if (smoothing) panel.append(card("Why not 1?", make("p", { class: "says" }, `${smoothing}.`)));
    if (positions[0].lens) {
      panel.append(card(`The logit lens: ${labels ? "the label at each layer" : `what each layer would have ${hasPlaces() ? placeVerb() : "written"}`}`, make("p", { class: "says" },
        labels ? "Each layer's hidden states are pooled and compared with the labels as if they were the last layer's. Framed: the layer already chooses the final label."
          : `Each ${hasPlaces() ? "" : "decoder "}layer's hidden state goes through the final norm and the output projection, as if it were the last layer's. `
            + `Framed: the layer already chooses the ${hasPlaces() ? `${placedName()} that is ${placeVerb()}` : "token that is written"}.`), lensTable(positions)));
    }
  },
});

/** The name of the column of predictions. */
const predictedName = () => isLabeled() ? "label" : hasPlaces() ? (givesTags() ? "label" : "fills in") : "writes";

function candidateTable(positions) {
  const nTop = positions[0].top.length, hasLogits = positions[0].logit !== undefined; // stored reports may have none
  const names = ["read", predictedName(), ...(hasLogits ? ["logit"] : []), "p", "", "rank", "entropy", ...Array.from({ length: nTop }, (_, n) => `${n + 1}.`)];
  const lines = positions.map((position, i) => positionRow(i, bidi(position.read),
    make("td", { class: "text" }, bidi(position.piece)), ...(hasLogits ? [make("td", {}, decimal(position.logit, 2))] : []), make("td", {}, decimal(position.probability)),
    make("td", { class: "text", "aria-hidden": "true" }, make("span", { class: "share", style: `width:${(90 * position.probability).toFixed(1)}px` })),
    make("td", {}, String(position.rank)), make("td", {}, decimal(position.entropy, 2)),
    ...position.top.map(one => candidate(one, one.id === position.id, one.logit))));
  return wideTable(names, lines, isLabeled() ? "The most probable labels" : `Candidates ${hasPlaces() ? `for each ${placeName()}` : "at each decoder position"}`);
}

function lensTable(positions) {
  const names = [predictedName(), ...positions[0].lens.map((_, layer) => `layer ${layer}`), "first"];
  const lines = positions.map((position, i) => positionRow(i, bidi(position.piece),
    ...position.lens.map(({ top, rank }) => candidate(top, rank === 1)),
    make("td", {}, position.first_layer === null ? "–" : `layer ${position.first_layer}`)));
  return wideTable(names, lines, isLabeled() ? "The label at each layer" : "What each layer would have written");
}

function wideTable(names, lines, caption) {
  const isNumber = name => name in data.terms;
  return make("div", { class: "scroll" }, make("table", { class: "wide" }, make("caption", { class: "unseen" }, caption),
    make("thead", {}, make("tr", {}, ...names.map(name => name === "" ? make("td") : make("th", { scope: "col", ...(isNumber(name) ? {} : { class: "text" }) }, isNumber(name) ? termNamed(name) : name)))),
    make("tbody", {}, ...lines)));
}

/** A row of a decoder position; pointing at it marks the maps of decoder heads. */
function positionRow(i, name, ...cells) {
  const line = make("tr", { "data-position": String(i) }, make("th", { scope: "row", class: "text" }, name), ...cells);
  line.addEventListener("pointerenter", () => sentence.heads.length && chosenHead().kind !== "enc" && hover({ row: i }));
  line.addEventListener("pointerleave", () => hover(null));
  return line;
}

function candidate({ piece, probability: p }, isBest, logit) {
  return make("td", { class: isBest ? "text best" : "text", style: `background:color-mix(in srgb, var(--cross) ${(45 * p).toFixed(0)}%, transparent)` },
    bidi(piece), ` ${decimal(p, 2)}`, ...(logit === undefined ? [] : [" ", make("small", {}, decimal(logit, 1))]));
}
