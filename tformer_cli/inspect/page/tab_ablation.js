// Ablation: the loss of the sentence with one head switched off.

const MOST_RANKED = 12; // heads of the ranking
const LEAST_SHOWN = .0005; // nats, which round to 0.001

addTab({
  id: "ablation",
  title: "Ablation",
  holds: one => Boolean(viewOf(one, "ablation")),
  show(panel, one) {
    const { loss, n_tokens: nTokens, effects } = viewOf(one, "ablation"), unit = givesTags() ? "word" : "token";
    // In a good model all effects may be noise, which should not look like a finding
    const largest = Math.max(...Object.values(effects).map(Math.abs), .01);
    panel.append(card("The loss without each head", make("p", { class: "says" },
      `With all heads, the loss of ${hasPlaces() ? `the ${placedName()}s ${placeVerb()}` : `this ${isLabeled() ? "label" : readsText() ? "text" : one.isForced ? "target" : "translation"}`} is ${decimal(loss, 4)} nats${isLabeled() ? "" : ` per ${unit}, over ${nTokens} ${unit}${nTokens === 1 ? "" : "s"}`}. Each number says how much `
      + `the loss changes when only that head is switched off: orange, the head helps here; blue, it does harm. The strongest color is ${decimal(largest, 3)} nats. One sentence is weak evidence: `,
      make("code", {}, "tformer inspect-ablate"), " measures a whole text and gives p-values.")));
    const grids = KINDS.map(kind => one.heads.filter(head => head.kind === kind && head.id in effects)).filter(heads => heads.length)
      .map(heads => make("div", {}, make("h2", {}, kindName(heads[0].kind)), make("div", { class: "scroll" }, effectGrid(heads, effects, largest))));
    const order = one.heads.filter(head => effects[head.id] >= LEAST_SHOWN).sort((a, b) => effects[b.id] - effects[a.id]);
    panel.append(card("", make("div", { class: "row" }, ...grids)), card("The heads that matter most here",
      order.length ? effectTable(order.slice(0, MOST_RANKED), effects, largest) : make("p", { class: "says" }, "No single head matters here: switching one off raises the loss by less than 0.001 nats.")));
  },
});

function effectGrid(heads, effects, largest) {
  const numbers = [...new Set(heads.map(head => head.head))].sort((a, b) => a - b), layers = [...new Set(heads.map(head => head.layer))], isMany = numbers.length > 8;
  const grid = make("div", { class: isMany ? "ablation many" : "ablation", style: `grid-template-columns: 24px repeat(${numbers.length}, minmax(${isMany ? 39 : 48}px, 1fr))` },
    make("span"), ...numbers.map(number => make("span", { class: "axis" }, String(number))));
  for (const layer of layers) {
    grid.append(make("span", { class: "axis" }, `L${layer}`));
    for (const number of numbers) {
      const head = heads.find(one => one.layer === layer && one.head === number);
      grid.append(head ? effectButton(head, effects[head.id], largest) : make("span"));
    }
  }
  return grid;
}

/** The heads with the largest effects, with their roles. */
function effectTable(heads, effects, largest) {
  const lines = heads.map(head => make("tr", {}, make("th", { scope: "row", class: "text" }, head.id), make("td", {}, signed(effects[head.id])),
    make("td", { class: "text", "aria-hidden": "true" }, make("span", { class: "share", style: `width:${(64 * Math.abs(effects[head.id]) / largest).toFixed(1)}px;background:var(${effects[head.id] < 0 ? "--enc" : "--dec"})` })),
    make("td", { class: "text" }, SIGNS[head.role] ? `${SIGNS[head.role]} ${head.role}` : "")));
  return make("div", { class: "scroll" }, make("table", { class: "wide" }, make("caption", { class: "unseen" }, "Heads by the loss without them"),
    make("thead", {}, make("tr", {}, make("th", { scope: "col", class: "text" }, "head"), make("th", { scope: "col" }, termNamed("loss")), make("th", { class: "text", "aria-hidden": "true" }), make("th", { scope: "col", class: "text" }, "role"))),
    make("tbody", {}, ...lines)));
}

function effectButton(head, effect, largest) {
  const color = twoSided(effect / largest);
  return toggle(signed(effect, 3), head.id === state.head, { style: `background:${hex(color)};color:${inkOn(color)}`,
    "aria-label": `${head.id}: ${signed(effect, 3)}`, title: `${head.id}: show its map` }, () => update({ head: head.id, tab: "heads" }));
}
