// A decision: where the texts that a model writes for two sentences part, and what in the model causes it.

const MOST_CAUSES = 12; // heads that are not folded away
/** How a head is changed, by the effect that its cause is measured by: the words of a request. */
const CHANGED = { patch: "give it what it computed for the other sentence", zero: "switch it off",
  mean: "give it its average output", resample: "give it its output at random positions" };
let direction = "patch"; // which of the two sentences receives values of the other

addTab({
  id: "decision",
  title: "Decision",
  holds: one => Boolean(viewOf(one, "decision")),
  show(panel, one) {
    const found = viewOf(one, "decision"), strongest = found.heads.slice(0, MOST_CAUSES), others = found.heads.slice(MOST_CAUSES);
    const largest = Math.max(...[...found.heads, ...found.layers].map(part => Math.abs(part.effects[found.cause] ?? 0)), 1e-9);
    panel.append(
      card(decisionName(found), make("div", { class: "row parted" }, ...found.sentences.map((_, n) => decidedSentence(found, n))),
        make("p", { class: "says" }, ...causeOf(found, found.heads[0], 0), ...changeOf(found, found.heads[0])), ...found.notes.map(note => make("p", { class: "fine" }, note))),
      card("Heads by effect", partTable(found, strongest, largest, "Heads by effect"),
        ...others.length ? [make("details", {}, make("summary", {}, `${others.length} more heads`), partTable(found, others, largest, "More heads by effect"))] : []),
      ...placeCards(found), ...found.edges.length ? [card("Single attention weights", edgeTable(found))] : [],
      ...found.tokens.length ? [card("Tokens that matter", tokenTable(found))] : [], ...found.layers.length ? [card("Layers", partTable(found, found.layers, largest, "Layers"))] : []);
  },
});

/** Names the decision and its place. */
function decisionName({ decision: { a, b, place } }) {
  return `${clean(a.piece)} or ${clean(b.piece)} ${clean(place)}`;
}

/** A sentence and its output, with the words that the other sentence lacks and the decided piece marked. */
function decidedSentence({ sentences, decision: { a, b } }, n) {
  const { source, target, d, pieces, at } = sentences[n], others = sentences.filter((_, other) => other !== n).map(other => other.source.split(" "));
  const marked = (text, isMarked) => isMarked ? make("mark", {}, text) : text;
  const read = source.split(" ").flatMap((word, place) => [place ? " " : "", marked(clean(word), others.some(words => !words.includes(word)))]);
  const end = pieces.at(-1) === "</s>" && at !== pieces.length - 1 ? -1 : undefined;
  const written = pieces.slice(0, end).map((piece, place) => marked(clean(piece.replaceAll("▁", " ")), place === at));
  const isOfSource = !data.model.n_decoder_layers; // its places are pieces of what it reads
  return make("div", {}, ...readsImages() || !source || isOfSource && at !== null ? [] : [make("p", { dir: "auto" }, ...read)],
    make("p", { dir: "auto" }, ...at === null ? [clean(target)] : written),
    make("p", { class: "fine" }, `d = ${signed(d, 2)}: `, bidi((d > 0 ? a : b).piece)));
}

/** Says what a head does to the decision of sentence n; the second one receives values of the first. */
function causeOf(found, part, n) {
  const name = n && part.effects.back !== undefined ? "back" : found.cause, effect = part.effects[name], { d } = found.sentences[name === "back" ? 1 : 0];
  const { a, b } = found.decision, [before, after] = [d, d + effect].map(value => make("b", {}, bidi(wordOf((value > 0 ? a : b).piece))));
  const changed = CHANGED[name === "back" ? "patch" : name], head = make("b", {}, part.id);
  // The estimate is a change, as other effects are; it stands for switching off, as it is the cause only where nothing was patched
  if (name === "estimate") return ["To first order, switching head ", head, ` off changes d from ${signed(d, 2)} by ${signed(effect, 2)}. `];
  if (!changed) return ["Head ", head, ` itself adds ${signed(effect, 2)} to d = ${signed(d, 2)}. `];
  const turning = found.heads.filter(one => name in one.effects && d + one.effects[name] > 0 !== d > 0), isTurned = turning.includes(part);
  const rank = 1 + found.heads.filter(other => Math.abs(other.effects[name] ?? 0) > Math.abs(effect)).length, isFirst = rank === 1 && found.heads.length > 1;
  const opening = isTurned ? ["Head ", head, " decides: "] : turning.length || !isFirst ? ["Head ", head, " does not decide: "]
    : [`None of the ${found.heads.length} heads decides alone. The strongest is `, head, ": "];
  const seen = lookedAt(found, part, n), others = turning.length - 1;
  return [...opening, changed, `, and the model ${isTurned ? "" : "still "}${isEncoder() ? "decides for" : "writes"} `, isTurned ? after : before, ". ",
    ...seen.length ? [...part.row === found.decision.position && part.kind !== "enc" ? ["Here it"] : ["At the token ", make("b", {}, bidi(wordOf(part.at))), ", the head"], " looks at ", ...seen, ". "] : [],
    isTurned && others ? `${others} other head${others > 1 ? "s decide" : " decides"} as well. ` : "", rank > 1 ? `Its effect is number ${rank} of ${found.heads.length}.` : ""];
}

/** The token that a head looks at most where it matters, and how much: in the first sentence, which these numbers belong to. */
function lookedAt(found, part, n) {
  if (n || !part.attends?.length) return [];
  const [[piece, weight]] = part.attends, head = sentence === data.sentences[0] && headNamed(part.id);
  const pieces = head ? columnsOf(head) : [], row = head ? [...weightsOf(head).slice(part.row * pieces.length, (part.row + 1) * pieces.length)] : [];
  const at = row.indexOf(Math.max(...row));
  return [make("b", {}, bidi(pieces[at] === piece ? tokenName(pieces, at) : wordOf(piece))), ` (${Math.round(100 * weight)}%)`];
}

/** A piece without its mark of a space. */
function wordOf(piece) {
  return clean(piece.replaceAll("▁", "") || piece);
}

/** Defines d, and tells how the strongest head changes it. */
function changeOf(found, part) {
  const { a, b } = found.decision, effect = part.effects[found.cause], { d } = found.sentences[0];
  const change = found.cause in CHANGED ? ` Here it changes from ${signed(d, 2)} to ${signed(d + effect, 2)}.` : "";
  return [" d = logit(", bidi(a.piece), ") − logit(", bidi(b.piece), "): above 0 the model prefers ", bidi(a.piece), ", below 0 ", bidi(b.piece), `.${change} The numbers below are changes of d.`];
}

/** The head of a sentence with the largest effect on its decision, if there is one. */
function causingHead(one) {
  return viewOf(one, "decision")?.heads.map(part => headNamed(part.id)).find(Boolean);
}

/** The name of a head; a click opens its map at the row of the decision. */
function headButton(id, row, found) {
  if (!headNamed(id)) return id;
  const button = make("button", { type: "button", title: `${id}: show its map` }, id);
  // With two sentences, rows belong to the first: in the other's map the same number is another token
  const shared = found.sentences.length > 1 ? { s: "0" } : {};
  button.addEventListener("click", () => update({ ...shared, tab: "heads", head: id, row: String(row ?? ""), key: "" }));
  return button;
}

/** A bar to the left, against A, or to the right. */
function pushBar(value, largest) {
  const share = Math.min(1, Math.abs(value) / largest) * 50;
  return make("td", { class: "text", "aria-hidden": "true" }, make("span", { class: "push" },
    make("span", { class: "share", style: `width:${share.toFixed(1)}%;margin-left:${(value < 0 ? 50 - share : 50).toFixed(1)}%;background:var(${value < 0 ? "--enc" : "--dec"})` })));
}

/** An effect, framed if it turns the decision. */
function effectCell(value, d, turns = true) {
  if (value === undefined) return make("td", {}, "–");
  const isTurned = turns && d + value > 0 !== d > 0;
  return make("td", isTurned ? { class: "best", title: "turns the decision" } : {}, `${signed(value, 2)}${isTurned ? "!" : ""}`);
}

function rowOf(name, ...cells) {
  return make("tr", {}, make("th", { scope: "row", class: "text" }, name), ...cells);
}

/** Heads or layers with all their effects, and the tokens that heads attend to. */
function partTable(found, parts, largest, caption) {
  const names = Object.keys(found.effects).filter(name => parts.some(part => name in part.effects)), areHeads = parts[0].head !== null;
  const lines = parts.map(part => rowOf(areHeads ? headButton(part.id, part.row, found) : part.id, pushBar(part.effects[found.cause] ?? 0, largest),
    ...names.map(name => effectCell(part.effects[name], found.sentences.at(name === "back" ? -1 : 0).d, name !== "direct" && name !== "estimate")),
    ...areHeads ? [make("td", { class: "text" }, bidi(part.at), ": ", part.attends.map(([piece, weight]) => `${clean(piece)} ${decimal(weight, 2)}`).join(", "))] : []));
  return wideTable([areHeads ? "head" : "part", "", ...names, ...areHeads ? ["position: looks at"] : []], lines, caption);
}

function edgeTable(found) {
  const largest = Math.max(...found.edges.map(edge => Math.abs(edge.effect)), 1e-9), { d } = found.sentences[0];
  const lines = found.edges.map(edge => rowOf(headButton(edge.head, edge.positions[0], found), make("td", { class: "text" }, bidi(edge.query), " → ", bidi(edge.key)),
    make("td", {}, decimal(edge.weight, 2)), effectCell(edge.estimate, d, false), effectCell(edge.effect, d), pushBar(edge.effect, largest)));
  return wideTable(["head", "query → key", "weight", "estimate", "effect", ""], lines, "Attention weights, each set to zero in turn");
}

function tokenTable({ tokens }) {
  const order = [...tokens].sort((a, b) => Math.abs(b.integrated) - Math.abs(a.integrated)).slice(0, MOST_CAUSES), largest = Math.max(...order.map(one => Math.abs(one.integrated)), 1e-9);
  const lines = order.map(one => rowOf(bidi(one.piece), make("td", { class: "text" }, one.side), pushBar(one.integrated, largest), effectCell(one.integrated, 0, false), effectCell(one.gradient, 0, false),
    make("td", {}, one.alti === null ? "–" : decimal(one.alti, 2))));
  return wideTable(["token", "side", "", "integrated", "gradient", "alti"], lines, "Tokens that matter");
}

/** The grids of layers and positions on one color scale, for the chosen direction. */
function placeCards(found) {
  const directions = [...new Set(found.maps.map(one => one.direction))], chosen = directions.includes(direction) ? direction : directions[0];
  const maps = found.maps.filter(one => one.direction === chosen);
  if (!maps.length) return [];
  const largest = Math.max(...maps.flatMap(one => one.values.flat().map(value => Math.abs(value ?? 0))), 1e-9);
  const names = { patch: "Into the first sentence", back: "Into the second sentence" };
  const choices = directions.length < 2 ? [] : [make("div", { class: "choices", role: "group", "aria-label": "Direction" }, ...directions.map(name => toggle(names[name], name === chosen, {}, () => {
    direction = name;
    showTabs();
  })))];
  return [card("Layers and positions", ...choices, make("p", { class: "says" }, `Each cell shows how d changes when ${chosen === "zero" ? "this one position is set to zero" : "this one position gets its value from the other sentence"}: orange towards `, bidi(found.decision.a.piece), ", blue towards ",
    bidi(found.decision.b.piece), `. The strongest color is ${decimal(largest, 2)}.${chosen === "zero" ? "" : " Positions without a counterpart stay empty."}`), make("div", { class: "row" }, ...maps.map(one => placeGrid(one, largest))))];
}

function placeGrid({ name, rows, columns, values }, largest) {
  const figure = heatMap({ rows, columns, room: roomBeside(6), title: name, shade: (i, j) => values[i][j] === null ? null
    : { color: twoSided(values[i][j] / largest), text: Math.abs(values[i][j]) < .05 ? "" : signed(values[i][j], Math.abs(values[i][j]) < 9.95 ? 1 : 0) } });
  figure.svg.addEventListener("pointermove", event => figure.mark(figure.cellAt(event)));
  figure.svg.addEventListener("pointerleave", () => figure.mark(null));
  return make("div", {}, make("h2", {}, name), make("div", { class: "scroll" }, figure.svg), make("details", {}, make("summary", {}, "Table of these effects"),
    plainTable(["", ...columns.map(bidi)], rows.map((row, i) => [row, ...values[i].map(value => value === null ? "–" : signed(value, 2))]), name)));
}
