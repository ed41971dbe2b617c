// Logits: what the decoder would write at each position, and what each of its layers would have.

addTab({
  id: "logits",
  title: "Logits and lens",
  holds: one => Boolean(one.logits),
  show(panel, one) {
    panel.append(card("What the decoder would write", make("p", { class: "says" },
      "A row is a decoder position: the token read last, the token written, how probable it was "
      + "and how sure the model was, and the most probable tokens."), candidateTable(one)));
    if (one.logits[0].lens.length) {
      panel.append(card("The logit lens: what each layer would have written", make("p", { class: "says" },
        "Each decoder layer's hidden state is read as if it were the last: through the final norm and the output projection. "
        + "Framed: the layer already has the token that is written."), lensTable(one)));
    }
  },
});

function candidateTable(one) {
  const nTop = one.logits[0].top.length;
  const names = ["read", "writes", "p", "", "rank", "entropy", ...Array.from({ length: nTop }, (_, n) => `${n + 1}.`)];
  const lines = one.logits.map((position, i) => positionRow(i, bidi(one.inputPieces[i]),
    make("td", { class: "text" }, bidi(position.piece)), make("td", {}, decimal(position.p)),
    make("td", { class: "text", "aria-hidden": "true" }, make("span", { class: "share", style: `width:${(90 * position.p).toFixed(1)}px` })),
    make("td", {}, String(position.rank)), make("td", {}, decimal(position.entropy, 2)),
    ...position.top.map(([piece, p]) => candidate(piece, p, piece === position.piece))));
  return wideTable(names, lines, "Candidates at each decoder position");
}

function lensTable(one) {
  const names = ["writes", ...one.logits[0].lens.map((_, layer) => `layer ${layer}`), "first"];
  const lines = one.logits.map((position, i) => positionRow(i, bidi(position.piece),
    ...position.lens.map(([piece, p, rank]) => candidate(piece, p, rank === 1)),
    make("td", {}, position.first === null ? "–" : `layer ${position.first}`)));
  return wideTable(names, lines, "What each decoder layer would have written");
}

function wideTable(names, lines, caption) {
  const isNumber = name => ["p", "rank", "entropy", "first"].includes(name);
  return make("div", { class: "scroll" }, make("table", { class: "wide" }, make("caption", { class: "unseen" }, caption),
    make("thead", {}, make("tr", {}, ...names.map(name => make("th", { scope: "col", ...(isNumber(name) ? {} : { class: "text" }) }, data.terms[name] ? termNamed(name) : name)))),
    make("tbody", {}, ...lines)));
}

/** A row of a decoder position, which is linked with the maps of decoder heads. */
function positionRow(i, name, ...cells) {
  const line = make("tr", { "data-position": String(i) }, make("th", { scope: "row", class: "text" }, name), ...cells);
  line.addEventListener("pointerenter", () => chosenHead().kind !== "enc" && hover({ row: i }));
  line.addEventListener("pointerleave", () => hover(null));
  return line;
}

function candidate(piece, p, isBest) {
  return make("td", { class: isBest ? "text best" : "text", style: `background:color-mix(in srgb, var(--cross) ${(45 * p).toFixed(0)}%, transparent)` },
    bidi(piece), ` ${decimal(p, 2)}`);
}
