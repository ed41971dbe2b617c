// Parts of heat maps and line figures. A figure is one SVG that also works as a file of its own:
// colors and fonts are attributes, and the pointer's marks are in a group "marks".

const MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";
const pen = document.createElement("canvas").getContext("2d");

/**
 * Width in pixels of the widest of some labels.
 *
 * @param {string[]} labels
 * @param {number} size
 */
function widest(labels, size) {
  pen.font = `${size}px ${MONO}`;
  return labels.reduce((most, label) => Math.max(most, pen.measureText(label).width), 0);
}

/**
 * Starts a figure: the SVG with its title.
 *
 * @param {number} width
 * @param {number} height
 * @param {string} title
 */
function newFigure(width, height, title) {
  const svg = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "font-family": MONO });
  svg.append(draw("title", {}, title));
  svg.setAttribute("aria-label", title);
  return svg;
}

const RIGHT_TO_LEFT = /^\P{L}*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/u;

/**
 * Writes a token into a figure; right-to-left text starts on the right.
 *
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {number} size
 * @param {Record<string, string | number>} attributes
 */
function tokenText(text, x, y, size, attributes = {}) {
  const shown = shortened(text), isTurned = RIGHT_TO_LEFT.test(shown);
  const anchor = (attributes["text-anchor"] === "end") === isTurned ? "start" : "end";
  const element = draw("text", { x, y, "font-size": size, "dominant-baseline": "central", ...attributes, "text-anchor": anchor }, shown);
  if (isTurned) element.setAttribute("direction", "rtl");
  if (shown !== text) element.append(draw("title", {}, clean(text)));
  return element;
}

/**
 * The position of an event in the figure's own coordinates.
 *
 * @param {SVGSVGElement} svg
 * @param {MouseEvent} event
 */
function pointIn(svg, event) {
  const box = svg.getBoundingClientRect(), [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  return [(event.clientX - box.left) * width / box.width, (event.clientY - box.top) * height / box.height];
}
