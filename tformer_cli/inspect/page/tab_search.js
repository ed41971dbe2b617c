// Beam search: the tree of hypotheses that the search kept, dropped and finished.

/** @type {((number: number) => void) | null} */
let onNode = null; // handles a click on a hypothesis, by its number

/**
 * Sets the handler of a live page, which continues from a clicked hypothesis.
 *
 * @param {(number: number) => void} does
 */
function whenNodeIsChosen(does) {
  onNode = does;
}

let withDropped = true; // also draws continuations that got no slot

addTab({
  id: "search",
  title: "Beam search",
  holds: one => Boolean(one.search),
  show(panel, one) {
    const tree = one.search, isGreedy = tree.beamSize === 1;
    if (!tree.nodes) {
      panel.append(card("The search", make("p", { class: "says" }, `The search went through ${tree.count} hypotheses, more than this page draws. A smaller --beam-size makes a smaller tree.`)));
      return;
    }
    const button = toggle("Dropped candidates", withDropped, {}, () => {
      withDropped = !withDropped;
      showTabs();
    });
    const rule = isGreedy ? "Greedy search keeps one hypothesis: it takes the most probable next token, step by step."
      : `Beam search keeps ${tree.beamSize} hypotheses at once. Each step extends every hypothesis by every token, and the ${tree.beamSize} best continuations stay; one that ends the sentence takes its place in the beam with it.`;
    panel.append(
      card("The tree of the search", make("p", { class: "says" }, rule, " A box is a hypothesis: its last token, and the log-probability of all its tokens. The best of a step is on top. "
        + "The thicker a line, the more probable its token there. Filled: on the path to the translation. Double frame: finished. Faint: all its continuations were dropped. Dashed: a candidate dropped at once."),
      make("div", { class: "choices", role: "group", "aria-label": "Shown" }, button), make("div", { class: "scroll" }, treeFigure(tree))),
      card("Finished hypotheses", make("p", { class: "says" }, `A log-probability falls with every token, so hypotheses of different lengths are ranked by their score: the log-probability divided by `
        + `((5 + tokens) / 6) to the power ${decimal(tree.lengthPenalty, 2)}, the length penalty.`), finishedTable(tree)), searchDetails(tree));
  },
});

/**
 * The tokens of a hypothesis as a text, without its end of sentence.
 *
 * @param {Tree} tree
 * @param {number} number
 */
function hypothesisOf(tree, number) {
  const pieces = [], { nodes } = tree;
  if (nodes[number].text !== undefined) return clean(nodes[number].text); // with what was given before it
  for (let at = nodes[number].state === "finished" ? nodes[number].parent : number; nodes[at].parent !== null; at = nodes[at].parent) pieces.unshift(nodes[at].piece);
  return clean(pieces.join("").replaceAll("▁", " ").trim());
}

/**
 * For each node, true if it finished or a child of it stayed.
 *
 * @param {Tree} tree
 */
function stayed(tree) {
  const stays = tree.nodes.map(node => node.state === "finished");
  for (let n = tree.nodes.length - 1; n > 0; n--) if (tree.nodes[n].state !== "dropped") stays[tree.nodes[n].parent] = true;
  return stays;
}

/** @param {Tree} tree */
function treeFigure(tree) {
  const path = new Set(tree.path), stays = stayed(tree), columns = new Map();
  tree.nodes.forEach((node, n) => {
    if (withDropped || node.state !== "dropped") columns.set(node.step, [...(columns.get(node.step) ?? []), n]);
  });
  const most = Math.max(...[...columns.values()].map(list => list.length)), steps = columns.size, tall = 30, gapY = 8;
  const pitch = Math.max(66, Math.min(110, (byId("panels").clientWidth - 96) / steps)), gapX = Math.round(pitch * .22), wide = Math.floor(pitch - gapX);
  const width = steps * (wide + gapX) + 10, height = 24 + most * (tall + gapY) + 6, places = new Map();
  for (const [step, list] of columns) list.forEach((n, place) => places.set(n, [5 + step * (wide + gapX), 24 + place * (tall + gapY)]));
  const soft = styleColor("--soft"), ink = styleColor("--ink"), line = styleColor("--line"), panel = styleColor("--panel"), accent = styleColor("--accent"), faint = styleColor("--faint");
  const best = tree.nodes[tree.path.at(-1)];
  const svg = newFigure(width, height, `Tree of the search: ${tree.nodes.filter(node => node.state !== "dropped").length} hypotheses in ${steps - 1} steps; the best ends with the score ${decimal(best.score)}`);
  for (const step of columns.keys()) svg.append(draw("text", { x: 5 + step * (wide + gapX) + wide / 2, y: 10, "font-size": 11, "text-anchor": "middle", fill: faint }, step ? String(step) : "start"));
  const edges = draw("g", { fill: "none" }), boxes = draw("g", {});
  // The path is drawn last, above the others.
  for (const n of [...places.keys()].sort((a, b) => Number(path.has(a)) - Number(path.has(b)))) {
    const node = tree.nodes[n], [x, y] = places.get(n), isOn = path.has(n), isDropped = node.state === "dropped", isLost = !isDropped && !stays[n];
    if (node.parent !== null) {
      const [fromX, fromY] = places.get(node.parent), x1 = fromX + wide, y1 = fromY + tall / 2, y2 = y + tall / 2;
      edges.append(draw("path", { d: `M${x1} ${y1}C${x1 + gapX / 2} ${y1} ${x - gapX / 2} ${y2} ${x} ${y2}`, stroke: isOn ? accent : isDropped || isLost ? line : soft,
        "stroke-width": .8 + 3.2 * Math.exp(Math.min(0, node.logp - tree.nodes[node.parent].logp)), ...(isDropped ? { "stroke-dasharray": "3 3" } : {}) }));
    }
    const group = draw("g", isDropped || isLost ? { opacity: ".62" } : {}), stroke = isOn ? accent : isDropped ? line : soft;
    group.append(draw("rect", { x, y, width: wide, height: tall, rx: 5, fill: isOn ? accent : panel, stroke, ...(isDropped ? { "stroke-dasharray": "3 3" } : {}) }));
    if (node.state === "finished") group.append(draw("rect", { x: x + 2.5, y: y + 2.5, width: wide - 5, height: tall - 5, rx: 3, fill: "none", stroke: isOn ? panel : soft }));
    const text = tokenText(node.piece, x + wide / 2, y + 10, 11.5, { fill: isOn ? panel : ink, "font-weight": isOn ? "700" : "400" });
    text.setAttribute("text-anchor", "middle");
    text.firstChild.textContent = shortened(node.piece, Math.floor(wide / 7.2));
    group.append(text, draw("text", { x: x + wide / 2, y: y + 22, "font-size": 9.5, "text-anchor": "middle", "dominant-baseline": "central", fill: isOn ? panel : soft }, decimal(node.logp, 2)),
      draw("title", {}, `${hypothesisOf(tree, n)}${node.score === null ? "" : `, score ${decimal(node.score)}`}`));
    if (onNode && node.parent !== null) makeChoosable(group, `${hypothesisOf(tree, n)}, ${node.state}`, () => onNode(n));
    boxes.append(group);
  }
  if (onNode) svg.setAttribute("role", "group"); // an image would hide the buttons in it
  svg.append(edges, boxes);
  return svg;
}

/**
 * Makes a box of the figure a button.
 *
 * @param {SVGGElement} group
 * @param {string} name
 * @param {() => void} does
 */
function makeChoosable(group, name, does) {
  for (const [attribute, value] of Object.entries({ tabindex: "0", role: "button", class: "node", "aria-label": name })) group.setAttribute(attribute, value);
  group.addEventListener("click", does);
  group.addEventListener("keydown", event => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    does();
  });
}

/** @param {Tree} tree */
function finishedTable(tree) {
  const found = [...tree.nodes.keys()].filter(n => tree.nodes[n].state === "finished").sort((a, b) => tree.nodes[b].score - tree.nodes[a].score);
  const lines = found.map((n, place) => make("tr", n === tree.path.at(-1) ? { class: "on" } : {}, make("th", { scope: "row", class: "text" }, String(place + 1)),
    make("td", {}, decimal(tree.nodes[n].score)), make("td", {}, decimal(tree.nodes[n].logp)), make("td", {}, String(tree.nodes[n].step)), make("td", { class: "text" }, bidi(hypothesisOf(tree, n)))));
  return make("div", { class: "scroll" }, make("table", { class: "wide" }, make("caption", { class: "unseen" }, "Finished hypotheses, best first"),
    make("thead", {}, make("tr", {}, ...["rank", "score", "log-probability", "tokens", "hypothesis"].map((name, n) => make("th", { scope: "col", ...(n % 4 ? {} : { class: "text" }) }, name)))),
    make("tbody", {}, ...lines)));
}

/**
 * The tree as a table, for screen readers and copying; made only when opened.
 *
 * @param {Tree} tree
 */
function searchDetails(tree) {
  const box = make("details", { class: "panel" }, make("summary", {}, "Table of this search")), stays = stayed(tree), path = new Set(tree.path);
  box.addEventListener("toggle", () => {
    if (!box.open || box.querySelector("table")) return;
    const lines = tree.nodes.slice(1).map((node, n) => make("tr", path.has(n + 1) ? { class: "on" } : {}, make("th", { scope: "row", class: "text" }, String(node.step)),
      make("td", {}, decimal(node.logp)), make("td", { class: "text" }, path.has(n + 1) ? "on the path to the translation" : node.state === "kept" && !stays[n + 1] ? "kept, then dropped" : node.state),
      make("td", { class: "text" }, bidi(hypothesisOf(tree, n + 1)))));
    box.append(make("div", { class: "scroll" }, make("table", { class: "wide" }, make("caption", { class: "unseen" }, "Hypotheses of the search, step by step"),
      make("thead", {}, make("tr", {}, ...["step", "log-probability", "became", "hypothesis"].map((name, n) => make("th", { scope: "col", ...(n === 1 ? {} : { class: "text" }) }, name)))), make("tbody", {}, ...lines))));
  });
  return box;
}
