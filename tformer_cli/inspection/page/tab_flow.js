// Flow: what each written token is made of, shares of the source and of the prefix.

let flowMethod = null; // which of the methods is shown; at first the one asked for

addTab({
  id: "flow",
  title: "Flow",
  holds: one => Boolean(viewOf(one, "flow")),
  show(panel, one) {
    const { methods, names, first, positions } = viewOf(one, "flow"), chosen = flowMethod ?? first;
    const flow = { ...methods[chosen], name: names[chosen], positions: positions.map(position => position[chosen]) };
    const choices = Object.keys(methods).map(name => toggle(names[name], name === chosen, {}, () => {
      flowMethod = name;
      showTabs();
    }));
    panel.append(
      card("What each written token is made of", make("div", { class: "choices", role: "group", "aria-label": "Method" }, ...choices),
        make("p", { class: "says" }, `${flow.meaning[0].toUpperCase()}${flow.meaning.slice(1)} (${flow.source}). The rest of a bar is the prefix, what the decoder has read. `
          + `Largest difference from what the model computed: ${flow.residual.toExponential(1)}.`), shareTable(one, flow)),
      card("From which token", make("p", { class: "says" }, "Row: the token that is written. Column: source tokens, then those that the decoder has read. "
        + "Every row sums to 1. Shares are stored in 8 bits, within 4.0e-3."), flowMap(one, flow), flowTable(one, flow)));
  },
});

/** The share of the source at each position, as a number and a bar. */
function shareTable(one, flow) {
  const lines = flow.positions.map(({ source_share: share }, i) => positionRow(i, bidi(one.targetPieces[i]),
    make("td", {}, decimal(share)),
    make("td", { class: "text", "aria-hidden": "true" }, make("span", { class: "share", style: `width:${(240 * share).toFixed(1)}px` }),
      make("span", { class: "share", style: `width:${(240 * (1 - share)).toFixed(1)}px;background:var(--dec)` }))));
  return make("div", { class: "scroll" }, make("table", { class: "wide" }, make("caption", { class: "unseen" }, "Share of the source at each position"),
    make("thead", {}, make("tr", {}, make("th", { scope: "col", class: "text" }, "writes"), make("th", { scope: "col" }, "source"),
      make("th", { class: "text", "aria-hidden": "true" }, "source | prefix"))),
    make("tbody", {}, ...lines)));
}

/** Pixels for a figure in a card: of all the width, or on a wide screen of so many twelfths of it. */
function roomBeside(twelfths) {
  const width = byId("panels").clientWidth - 48;
  return Math.max(300, (isWideScreen.matches ? width * twelfths / 12 : width) - 60);
}

function flowMap(one, flow) {
  const nSource = one.sourcePieces.length;
  const ramps = [rampOf("cross"), rampOf("dec")];
  const figure = heatMap({
    rows: one.targetPieces, columns: [...one.sourcePieces, ...one.inputPieces], room: roomBeside(7),
    title: `${flow.name}: shares of ${nSource} source tokens and of the prefix in ${one.targetPieces.length} written tokens`,
    shade(i, j) {
      const { source, prefix } = flow.positions[i], share = j < nSource ? source[j] : prefix[j - nSource] ?? 0;
      return share < .002 ? null : { color: ramps[j < nSource ? 0 : 1](share), text: share < .095 ? "" : share.toFixed(2).slice(1) };
    },
  });
  figure.svg.addEventListener("pointermove", event => figure.mark(figure.cellAt(event)));
  figure.svg.addEventListener("pointerleave", () => figure.mark(null));
  return make("div", { class: "scroll" }, figure.svg);
}

/** The same shares as numbers, in hundredths. */
function flowTable(one, flow) {
  const rows = flow.positions.map(({ source, prefix }, i) => [bidi(one.targetPieces[i]), ...[...source, ...prefix].map(share => (100 * share).toFixed(0))]);
  return make("details", {}, make("summary", {}, "Table of these shares, in hundredths"),
    plainTable(["writes", ...[...one.sourcePieces, ...one.inputPieces].map(bidi)], rows, "Shares of every token, in hundredths"));
}
