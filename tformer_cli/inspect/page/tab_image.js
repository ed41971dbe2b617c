// Images: where the heads look, over the image itself.

addTab({
  id: "image",
  title: "Over the image",
  holds: one => Boolean(viewOf(one, "image")),
  show(panel, one) {
    const { row, maps } = viewOf(one, "image"), ways = maps.filter(({ kind }) => kind !== "head"), heads = maps.filter(({ kind }) => kind === "head");
    panel.append(card("Through all layers", make("p", { class: "says" },
      `Shares of the row of the ${row}: the stronger the orange, the larger, relative to the largest.`),
    make("div", { class: "row" }, make("figure", { class: "picture" }, imageOf(one), make("figcaption", {}, "the image")), ...ways.map(way => pictureOf(one, way)))));
    for (const layer of new Set(heads.map(layerOf))) {
      panel.append(card(`Layer ${layer}`, make("div", { class: "row" }, ...heads.filter(head => layerOf(head) === layer).map(head => pictureOf(one, head)))));
    }
    const rows = maps.map(({ label, distance, class_token: ofClass, weights }) => {
      const peak = peakOf(weights);
      return [label, distance === null ? "" : decimal(distance, 1), decimal(ofClass, 2), placeOf(peak, weights), decimal(weights.flat()[peak])];
    });
    panel.append(make("details", {}, make("summary", {}, "Table of these maps"),
      plainTable(["map", "distance in pixels", "class token", "most at", "share"], rows, "Maps over the image")));
  },
});

const layerOf = ({ id }) => id.split(".")[1];

/** A map over the image, with its numbers and a name that opens the head. */
function pictureOf(one, { id, kind, label, distance, class_token: ofClass, weights }) {
  const isHead = kind === "head" && headNamed(id), name = isHead ? make("button", { type: "button", class: "term" }, label) : make("b", {}, label);
  if (isHead) name.addEventListener("click", () => update({ head: id, tab: "heads" }));
  const facts = [distance !== null && `distance ${decimal(distance, 1)} pixels`, ofClass > 0 && `class token ${decimal(ofClass, 2)}`].filter(Boolean);
  return make("figure", { class: "picture" }, overImage(one, weights, label), make("figcaption", {}, name, ...facts.map(fact => make("small", {}, fact))));
}

/** Draws shares of patches, a list per row, over their image. */
function overImage(one, weights, label) {
  const shares = weights.flat(), width = weights[0].length, peak = peakOf(weights), largest = Math.max(shares[peak], 1e-12);
  const canvas = make("canvas", { role: "img", "aria-label": `${label}: most at ${placeOf(peak, weights)}`, width: String(width), height: String(weights.length) });
  const context = canvas.getContext("2d");
  shares.forEach((share, n) => {
    context.fillStyle = `rgba(255, 96, 0, ${(.75 * share / largest).toFixed(3)})`;
    context.fillRect(n % width, Math.floor(n / width), 1, 1);
  });
  canvas.addEventListener("pointermove", event => {
    const n = Math.floor(event.offsetY / canvas.clientHeight * weights.length) * width + Math.floor(event.offsetX / canvas.clientWidth * width);
    canvas.title = shares[n] === undefined ? "" : `${placeOf(n, weights)}: ${decimal(shares[n])}`;
  });
  return make("div", { class: "over" }, imageOf(one), canvas);
}

function imageOf(one) {
  return make("img", { src: viewOf(one, "image").image, alt: "the image as the model reads it" });
}

/** Turns shares of positions into a list per row of patches; omits the class token, which is first. */
function ofPatches(one, shares) {
  const { weights } = viewOf(one, "image").maps[0], width = weights[0].length, first = shares.length - weights.length * width;
  return weights.map((_, row) => shares.slice(first + row * width, first + (row + 1) * width));
}

/** The place of the largest share. */
function peakOf(weights) {
  const shares = weights.flat();
  return shares.indexOf(Math.max(...shares));
}

function placeOf(n, weights) {
  return `row ${Math.floor(n / weights[0].length)}, column ${n % weights[0].length}`;
}
