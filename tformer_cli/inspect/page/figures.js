// The two figures: the selected head, and all heads next to it in color.

/** @type {{one: Figure, all: Figure}} */
const figures = { one: null, all: null }; // the figures on the page
const LINES_PER_ROW = { layer: 8, kind: 4 }; // of many heads together; with more, lines hide each other
const PROJECTED_EDGE = 18; // pixels below a projected figure
const SURELY_DRAWN = .8; // such weights always have a line, unless the slider hides them
/** @type {Set<string>} */
const leftOut = new Set(); // heads that the legend has switched off

/** The selected head. */
function chosenHead() {
  return headNamed(state.head);
}

/** Heads that the second figure draws. */
function overlaidHeads() {
  return neighbors(chosenHead(), state.scope).filter(head => !leftOut.has(head.id));
}

/** Draws both figures and writes the name of the head. */
function showFigures() {
  const head = chosenHead(), isMap = state.view === "map";
  byId("head").textContent = head.id;
  byId("reading").replaceChildren(...readingOf(head));
  for (const button of elements("[data-view], [data-scope]")) {
    const name = button.dataset.view ? "view" : "scope";
    button.setAttribute("aria-pressed", String(button.dataset[name] === state[name]));
  }
  // Maps of long sentences are wide: below each other, unless the window has room for two.
  const least = isMap ? Math.max(300, 11 * columnsOf(head).length + 110) : 300;
  byId("one").parentElement.style.setProperty("--least", `${least}px`);
  put("one", isMap ? mapOfOne : linesOfOne, ["Only ", make("b", {}, head.id), `. ${isMap ? "" : aboutFaint([head])}`]);
  const whose = state.scope === "layer" ? `layer ${head.layer}` : data.weighting.isOfLayers ? "a color for each layer" : "all layers, a color for each";
  const [many, does] = data.weighting.isOfLayers ? ["All layers", "layer that has most there"] : ["All heads", "head that looks there most"];
  const limit = leastOfAll(), what = isMap ? `Each cell has the color of the ${does}.` : `${state.scope === "kind" && !data.weighting.isOfLayers ? "Each line belongs to the head of its layer that looks there most. " : ""}${aboutFaint(overlaidHeads(), limit)}`;
  byId("least").value = String(Math.min(1, limit));
  byId("least-shown").textContent = written(limit, 2);
  put("all", isMap ? mapOfAll : linesOfAll, [make("b", {}, many), ` of ${data.kinds[head.kind]}, ${whose}. ${what}`]);
  for (const element of elements(".of-maps")) element.hidden = !isMap;
  for (const element of elements(".of-lines")) element.hidden = isMap;
  showRamp(head.kind);
  showLegend();
  markFigures(pointedAt());
}

/**
 * Names the weights without a line.
 *
 * @param {Head[]} heads
 */
function aboutFaint(heads, least = FAINTEST) {
  let n = 0;
  for (const head of heads) for (const weight of weightsOf(head)) if (weight >= least) n++;
  const limit = written(least, 2);
  if (!n) return `All weights are below ${limit}, so there is no line; see the map.`;
  return n > MOST_LINES ? `The ${MOST_LINES} strongest of ${n} weights.` : `Weights below ${limit} have no line.`;
}

/** The smallest weight with a line among many heads: the chosen one, else one that keeps lines apart. */
function leastOfAll() {
  if (state.least !== "" && Number.isFinite(Number(state.least))) return Math.max(.01, Math.min(1, Number(state.least)));
  const most = LINES_PER_ROW[state.scope] * rowsOf(chosenHead()).length;
  const weights = linksOfAll().map(link => link.weight).filter(weight => weight >= FAINTEST).sort((a, b) => b - a);
  return weights.length > most ? Math.min(SURELY_DRAWN, Math.ceil(100 * weights[most]) / 100) : FAINTEST;
}

/**
 * Explains the rows and columns of the head's map.
 *
 * @param {Head} head
 */
function readingOf(head) {
  const read = readsImages() ? "patch" : isEncoder() ? "token" : "source token";
  const query = head.kind === "enc" ? read : "decoder position, named by the token it predicts";
  const key = head.kind === "dec" ? "token the decoder has read" : read;
  const [asks, isAsked] = data.weighting.isOfLayers ? ["", ""] : ["query: ", "key: "];
  return [`${kindName(head.kind)}. `, make("b", {}, "Row"), ` = ${asks}${query}. `, make("b", {}, "Column"), ` = ${isAsked}${key}. ${data.weighting.sums}`];
}

/**
 * @param {'one' | 'all'} name
 * @param {(head: Head, spec: FigureSpec) => Figure} figureOf
 * @param {Child[]} caption
 */
function put(name, figureOf, caption) {
  const box = byId(name), [scroll] = elements(".scroll", box), head = chosenHead();
  box.querySelector("figcaption").replaceChildren(...caption);
  const figure = figureOf(head, { rows: rowsOf(head), columns: columnsOf(head), room: Math.max(260, scroll.clientWidth || 420), ...isProjected() ? { type: 20, height: innerHeight - box.getBoundingClientRect().top - scrollY - PROJECTED_EDGE } : {} });
  figure.svg.addEventListener("pointermove", event => {
    const at = figure.cellAt(event);
    hover(at);
    showTip(name, at, event);
  });
  figure.svg.addEventListener("pointerleave", () => hover(null));
  figure.svg.addEventListener("click", event => pin(figure.cellAt(event)));
  scroll.replaceChildren(figure.svg);
  letScroll(scroll);
  figures[name] = figure;
}

/**
 * @param {Head} head
 * @param {FigureSpec} spec
 */
function mapOfOne(head, spec) {
  const values = weightsOf(head), k = spec.columns.length, color = rampOf(head.kind);
  const title = `Heat map of ${head.id}: ${spec.rows.length} rows (queries) by ${k} columns (keys)`;
  return heatMap({ ...spec, title, shade(i, j) {
    const weight = values[i * k + j];
    if (weight < .002) return null;
    return { color: color(weight), text: weight < .095 ? "" : inCell(weight) };
  } });
}

/**
 * A number short enough for a cell.
 *
 * @param {number} weight
 */
function inCell(weight) {
  if (!data.weighting.isShare) return written(weight, 2);
  return weight >= .995 ? "1" : weight.toFixed(2).slice(1);
}

/**
 * @param {Head} head
 * @param {FigureSpec} spec
 */
function linesOfOne(head, spec) {
  const stroke = styleColor(`--${head.kind}`);
  const links = linksOf(head).map(link => ({ ...link, color: stroke, dash: "", shift: 0 }));
  return lineFigure({ ...spec, title: `Lines of ${head.id}, from queries to keys`, links });
}

/**
 * The head with the largest weight gives a cell its hue; the weight, its strength.
 *
 * @param {Head} head
 * @param {FigureSpec} spec
 */
function mapOfAll(head, spec) {
  const k = spec.columns.length, ground = channelsOf(styleColor("--panel"));
  const layers = overlaidHeads().map(one => ({ values: weightsOf(one), hue: channelsOf(styleOf(one, state.scope).color) }));
  const lift = state.boost ? Math.sqrt : weight => weight;
  return heatMap({ ...spec, title: allTitle(head), shade(i, j) {
    let strongest = null, weight = .01;
    for (const layer of layers) {
      if (layer.values[i * k + j] > weight) [strongest, weight] = [layer, layer.values[i * k + j]];
    }
    return strongest && { color: ground.map((channel, n) => Math.round(channel + (strongest.hue[n] - channel) * lift(weight))) };
  } });
}

/**
 * @param {Head} head
 * @param {FigureSpec} spec
 */
function linesOfAll(head, spec) {
  return lineFigure({ ...spec, title: allTitle(head), links: linksOfAll(), least: leastOfAll() });
}

/**
 * Lines of the overlaid heads, side by side; heads of one color (a layer) share the line of the largest weight.
 *
 * @returns {Link[]}
 */
function linksOfAll() {
  const groups = new Map();
  for (const head of overlaidHeads()) {
    const name = state.scope === "kind" ? head.layer : head.id;
    groups.set(name, [...(groups.get(name) ?? []), head]);
  }
  return [...groups.values()].flatMap((heads, n) => linksOf(heads[0]).map((link, at) => ({ ...link, weight: Math.max(...heads.map(head => weightsOf(head)[at])),
    ...styleOf(heads[0], state.scope), shift: 2.2 * (n - (groups.size - 1) / 2) })));
}

/** @param {Head} head */
function allTitle(head) {
  return `All heads of ${data.kinds[head.kind]}, ${state.scope === "layer" ? `layer ${head.layer}` : "all layers"}, each in its color`;
}

/** @param {Head} head */
function linksOf(head) {
  const k = columnsOf(head).length;
  return Array.from(weightsOf(head), (weight, n) => ({ row: Math.floor(n / k), column: n % k, weight }));
}

/**
 * Reads a color of the style sheet or #rrggbb as red, green and blue.
 *
 * @param {string} color
 */
function channelsOf(color) {
  if (color.startsWith("#")) return [1, 3, 5].map(at => parseInt(color.slice(at, at + 2), 16));
  return color.match(/[\d.]+/g).slice(0, 3).map(Number);
}

/** @param {Kind} kind */
function showRamp(kind) {
  const width = 120;
  byId("largest").textContent = written(1, data.weighting.isShare ? 0 : 3);
  paintField(byId("ramp"), Array.from({ length: width }, (_, n) => n / (width - 1)), width, 1, rampOf(kind));
}

/** The legend of the second figure; a click hides a head or, with all layers, a layer. */
function showLegend() {
  const beside = neighbors(chosenHead(), state.scope), groups = new Map();
  for (const head of beside) {
    const name = state.scope === "layer" ? `${head.head ?? "all heads"}` : `L${head.layer}`;
    groups.set(name, [...(groups.get(name) ?? []), head]);
  }
  byId("legend").replaceChildren(...[...groups].map(([name, heads]) => {
    const { color, dash } = styleOf(heads[0], state.scope), isOn = !leftOut.has(heads[0].id);
    const line = draw("line", { x1: 1, x2: 19, y1: 5, y2: 5, stroke: color, "stroke-width": 4, "stroke-dasharray": dash });
    const swatch = draw("svg", { width: 20, height: 10, "aria-hidden": "true" }, line);
    const spoken = state.scope === "layer" ? heads[0].id : `layer ${heads[0].layer}`;
    const button = toggle(swatch, isOn, { "aria-label": spoken, title: `${spoken}: show or leave out` }, () => {
      for (const head of heads) isOn ? leftOut.add(head.id) : leftOut.delete(head.id);
      showFigures();
    });
    button.append(name);
    return button;
  }));
}

/**
 * Shows what is pointed at in both figures.
 *
 * @param {Cell | null} at
 */
function markFigures(at) {
  figures.one?.mark(at);
  figures.all?.mark(at);
}
