// Flow: the shares of source and prefix in each written token.

let flowMethod = null; // the method on show; null: the one that the report chose

addTab({
  id: "flow",
  title: "Flow",
  holds: one => Boolean(viewOf(one, "flow")),
  show(panel, one) {
    const { methods, names, first, positions, heads } = viewOf(one, "flow"), chosen = flowMethod ?? first;
    const flow = { ...methods[chosen], name: names[chosen], rows: positions.map(({ piece }) => piece), positions: positions.map(position => position[chosen]) };
    const choices = Object.keys(methods).map(name => toggle(names[name], name === chosen, {}, () => {
      flowMethod = name;
      showTabs();
    }));
    const isWhole = isPooled(), hasBar = !readsText() && !isEncoder(), bar = !hasBar ? "" : "The rest of a bar is the prefix: the tokens that the decoder has read. ";
    panel.append(card(isWhole ? `What the ${isLabeled() ? "label" : "vector"} comes from` : `What each ${hasPlaces() ? placeName() : "written token"} is made of`,
      make("div", { class: "choices", role: "group", "aria-label": "Method" }, ...choices),
      make("p", { class: "says" }, `${flow.meaning[0].toUpperCase()}${flow.meaning.slice(1)} (${flow.source}). ${bar}`
        + `Largest difference from what the model computed: ${flow.residual.toExponential(1)}.`),
      ...(isWhole && one.views.image ? [make("figure", { class: "picture" }, overImage(one, ofPatches(one, flow.positions[0].source), flow.name))] : isWhole ? [barTable(one.sourcePieces.map((piece, j) => [piece, flow.positions[0].source[j]]), ["token", "share"], "Share of each token in the whole")]
        : hasBar ? [shareTable(one, flow)] : [])));
    if (isEncoder()) {
      const read = (heads ?? []).map(({ id, reads, shares }) => [`${id}  `, Math.max(...shares), reads]);
      if (read.length) panel.append(card("What each head reads", make("p", { class: "says" }, `The token that each head takes most from, over all rows ${hasPlaces() ? `of ${placeName()}s ` : ""}together, `
        + "and its share in the norms of the weighted values (Kobayashi et al. 2020)."), barTable(read, ["head", "share", "reads most"], "The token that each head reads most")));
    }
    if (isWhole) return;
    panel.append(card("Shares of each token", make("p", { class: "says" }, `Row: the ${hasPlaces() ? `${placedName()} that is ${placeVerb()}. Column: a token of the text` : `token that is written. Column: ${readsText() ? "a token" : "a source token, or one"} that the decoder has read`}. `
      + "Every row sums to 1. Shares are stored in 8 bits, within 4.0e-3."), flowMap(one, flow), flowTable(one, flow)));
  },
});

/** Names with their shares as numbers and bars, and perhaps a word after them. */
function barTable(rows, names, caption) {
  const largest = Math.max(...rows.map(row => row[1]), 1e-9);
  const lines = rows.map(([name, share, word]) => make("tr", {}, make("th", { scope: "row", class: "text" }, bidi(name)), make("td", {}, decimal(share)),
    make("td", { class: "text", "aria-hidden": "true" }, make("span", { class: "share", style: `width:${(240 * share / largest).toFixed(1)}px` })),
    ...(word === undefined ? [] : [make("td", { class: "text" }, bidi(word))])));
  return make("div", { class: "scroll" }, make("table", { class: "wide" }, make("caption", { class: "unseen" }, caption),
    make("thead", {}, make("tr", {}, make("th", { scope: "col", class: "text" }, names[0]), make("th", { scope: "col" }, names[1]), make("th", { class: "text", "aria-hidden": "true" }),
      ...names.slice(2).map(name => make("th", { scope: "col", class: "text" }, name)))), make("tbody", {}, ...lines)));
}

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

/** Width of a figure in a card, in pixels: all of it, or on a wide screen some twelfths. */
function roomBeside(twelfths) {
  const width = byId("panels").clientWidth - 48;
  return Math.max(300, (isWideScreen.matches ? width * twelfths / 12 : width) - 60);
}

function flowMap(one, flow) {
  const nSource = one.sourcePieces.length, of = nSource && !isEncoder() ? `${nSource} source tokens and of the prefix` : "the tokens read";
  const ramps = [rampOf("cross"), rampOf("dec")];
  const figure = heatMap({
    rows: flow.rows, columns: [...one.sourcePieces, ...one.inputPieces], room: roomBeside(7),
    title: `${flow.name}: shares of ${of} in ${flow.rows.length} ${hasPlaces() ? `${placeName()}s` : "written tokens"}`,
    shade(i, j) {
      const { source = [], prefix = [] } = flow.positions[i], share = j < nSource ? source[j] : prefix[j - nSource] ?? 0;
      return share < .002 ? null : { color: ramps[j < nSource ? 0 : 1](share), text: share < .095 ? "" : share >= .995 ? "1" : share.toFixed(2).slice(1) };
    },
  });
  figure.svg.addEventListener("pointermove", event => figure.mark(figure.cellAt(event)));
  figure.svg.addEventListener("pointerleave", () => figure.mark(null));
  return make("div", { class: "scroll" }, figure.svg);
}

/** The same shares as numbers, in hundredths. */
function flowTable(one, flow) {
  const rows = flow.positions.map(({ source = [], prefix = [] }, i) => [bidi(flow.rows[i]), ...[...source, ...prefix].map(share => (100 * share).toFixed(0))]);
  return make("details", {}, make("summary", {}, "Table of these shares, in hundredths"),
    plainTable([isPooled() ? "" : predictedName(), ...[...one.sourcePieces, ...one.inputPieces].map(bidi)], rows, "Shares of every token, in hundredths"));
}
