// Saves a figure as a standalone SVG, as a PNG, or as CSV of its numbers.

const PNG_SCALE = 2; // pixels of a PNG for a pixel of the page

/**
 * A figure as a file of its own: with a background, without the pointer's marks.
 *
 * @param {'one' | 'all'} name
 */
function svgFile(name) {
  const copy = /** @type {SVGSVGElement} */ (figures[name].svg.cloneNode(true));
  copy.querySelector(".marks")?.remove();
  const [, , width, height] = copy.getAttribute("viewBox").split(" ");
  copy.prepend(draw("rect", { width, height, fill: styleColor("--panel") }));
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}\n`;
}

/**
 * A figure as a PNG.
 *
 * @param {'one' | 'all'} name
 * @returns {Promise<Blob>}
 */
function pngFile(name) {
  const svg = figures[name].svg, picture = new Image();
  const canvas = make("canvas", { width: String(svg.width.baseVal.value * PNG_SCALE), height: String(svg.height.baseVal.value * PNG_SCALE) });
  return new Promise((done, fail) => {
    picture.onload = () => {
      canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
      canvas.toBlob(blob => blob ? done(blob) : fail(new Error("the picture is too large for this browser")), "image/png");
    };
    picture.onerror = () => fail(new Error("this browser does not draw the SVG"));
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgFile(name))}`;
  });
}

/**
 * The numbers of a figure: a matrix for one head, a line per head, query and key for all.
 *
 * @param {'one' | 'all'} name
 */
function csvFile(name) {
  const head = chosenHead(), rows = rowsOf(head), columns = columnsOf(head), k = columns.length;
  const lines = name === "one"
    ? [[head.id, ...columns], ...rows.map((text, i) => [text, ...columns.map((_, j) => csvNumber(numberOf(weightsOf(head)[i * k + j])))])]
    : [["head", "row", "column", "query", "key", "weight"], ...overlaidHeads().flatMap(one => linksOf(one)
      .map(({ row, column, weight }) => [one.id, row, column, rows[row], columns[column], csvNumber(numberOf(weight))]))];
  return lines.map(line => line.map(csvField).join(",")).join("\r\n") + "\r\n";
}

function csvNumber(weight) {
  return String(Number(weight.toFixed(5)));
}

/** A field by RFC 4180: in quotes where it must be. */
function csvField(value) {
  const text = String(value);
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Makes the file that a button names, such as one.svg, and hands it to the browser. */
async function save(wanted) {
  const [figure, suffix] = wanted.split(".");
  const name = figure === "one" ? state.head : `${chosenHead().kind}.${state.scope === "layer" ? `${chosenHead().layer}.` : ""}all`;
  const blob = suffix === "png" ? await pngFile(figure)
    : suffix === "svg" ? new Blob([svgFile(figure)], { type: "image/svg+xml" })
      : new Blob([csvFile(figure)], { type: "text/csv;charset=utf-8" });
  const link = make("a", { download: `${data.model.name}-${name}.${suffix}`.replace(/[^\w.-]+/g, "_") });
  link.href = URL.createObjectURL(blob);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Makes the buttons work. */
function listenToSaving() {
  for (const button of elements("[data-save]")) {
    button.title = `Save as ${button.dataset.save.split(".")[1].toUpperCase()}`;
    button.addEventListener("click", () => save(button.dataset.save).catch(error => {
      byId("said").textContent = button.title = `Not saved: ${error.message}`;
    }));
  }
}
