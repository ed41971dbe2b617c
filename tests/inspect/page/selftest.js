// Runs inside the page, at the end of its script, in tests only: it does what a person would do and
// leaves what came of it as JSON in an element that the test then looks at.

const found = { errors: [], alerts: 0, downloads: [] };
window.addEventListener("error", event => found.errors.push(event.message));
window.addEventListener("unhandledrejection", event => found.errors.push(String(event.reason)));
window.alert = () => found.alerts++;

function key(name) {
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
}

function drawn(name = "one") {
  return byId(name).querySelector("svg").outerHTML;
}

async function selfTest() {
  found.first = { head: state.head, tabs: [...byId("tabs").children].map(tab => tab.textContent) };
  const { decision: { a, b }, sentences: [{ d }] } = viewOf(sentence, "decision");
  found.first.decision = [d, [a.piece, b.piece]];
  found.weights = Object.fromEntries(sentence.heads.map(head => [head.id, Array.from(weightsOf(head))]));
  found.chips = ["source", "target"].map(id => [...byId(id).children].map(chip => chip.textContent));

  // Another head is another map; all heads beside it stay those of the layer.
  const before = drawn(), other = sentence.heads.find(head => head.id !== state.head && head.kind === "enc");
  other.button.click();
  found.select = { to: other.id, shown: byId("head").textContent, isOther: drawn() !== before, hash: location.hash, said: byId("said").textContent };

  // Views.
  const map = drawn();
  key("m");
  found.lines = { isOther: drawn() !== map, paths: byId("one").querySelectorAll("path").length, all: byId("all").querySelectorAll("path").length };
  const layer = drawn("all");
  key("o");
  found.scope = { isOther: drawn("all") !== layer, hues: new Set([...byId("all").querySelectorAll("path")].map(path => path.getAttribute("stroke"))).size };
  const whole = drawn("all");
  byId("legend").firstChild.click();
  found.legend = { isOther: drawn("all") !== whole, pressed: byId("legend").firstChild.getAttribute("aria-pressed") };
  byId("legend").firstChild.click();
  key("o");
  key("m");

  // Pointing at a token is seen in tokens and figure; a click keeps its row.
  const chip = byId("source").firstChild;
  chip.dispatchEvent(new PointerEvent("pointerenter"));
  found.hover = { marks: byId("one").querySelectorAll(".marks rect").length, queries: document.querySelectorAll(".chip.query").length };
  chip.dispatchEvent(new PointerEvent("pointerleave"));
  found.unhovered = byId("one").querySelectorAll(".marks rect").length;
  chip.click();
  found.pinned = { hash: location.hash, marks: byId("one").querySelectorAll(".marks rect").length };
  key("Escape");

  // Keys.
  found.keys = {};
  for (const name of ["1", "l", "h", "j", "k", "3", "]", "["]) {
    key(name);
    found.keys[name] = `${state.s} ${state.head}`;
  }
  key("/");
  found.focus = document.activeElement.id;
  byId("filter").value = "enc entropy>0";
  byId("filter").dispatchEvent(new Event("input"));
  found.filter = { count: byId("filter-count").textContent, out: document.querySelectorAll(".thumb.out").length };
  byId("filter").value = "";
  byId("filter").dispatchEvent(new Event("input"));
  byId("filter").blur();

  // The table for screen readers.
  byId("numbers").open = true;
  showNumbers();
  const rows = [...byId("weights").rows].map(row => [...row.cells].map(cell => cell.textContent));
  found.table = { head: state.head, size: [rows.length, rows[0].length], first: rows[1][1] };

  // The sentence in words, and what the head does in it.
  const guide = () => [byId("guide-says").textContent, byId("guide-does").textContent];
  found.texts = [byId("source-text").textContent, byId("target-text").textContent];
  found.guide = { says: guide(), isFolded: !byId("about").open, about: byId("about-facts").textContent };
  update({ row: "1" }); // in row 0 the decision falls, which the guide is about already
  found.guide.ofRow = { says: guide(), word: rowsOf(chosenHead())[1].replaceAll("▁", "") }; // one of its word's tokens
  update({ row: "" });

  // Measures explain themselves to who points at them and to the keyboard.
  const measure = byId("metrics").querySelector(".term");
  // A window in the background gets no events of the focus.
  const send = name => document.hasFocus() || measure.dispatchEvent(new FocusEvent(name));
  measure.focus();
  send("focus");
  found.term = { name: measure.textContent, code: byId("metrics").querySelector("code").textContent, tip: byId("tip").textContent,
    description: measure.getAttribute("aria-description") };
  measure.blur();
  send("blur");
  found.term.after = byId("tip").style.display;

  // Query times key: the products sum to the score, whose softmax is the weight of the map.
  found.products = sentence.heads.filter(vectorsOf).map(head => {
    const vectors = vectorsOf(head), q = rowsOf(head).length, k = columnsOf(head).length, row = q - 1;
    const { weights } = scoresOf(head, vectors, row);
    return { id: head.id, error: Math.max(...weights.map((weight, j) => Math.abs(weight - weightsOf(head)[row * k + j]))) };
  });
  if (!vectorsOf(chosenHead())) update({ head: sentence.heads.find(vectorsOf).id });
  byId("qk-row").value = "1";
  byId("qk-row").dispatchEvent(new Event("change"));
  byId("qk-key").value = "2";
  byId("qk-key").dispatchEvent(new Event("change"));
  const { queries, keys: keyVectors } = vectorsOf(chosenHead());
  found.pair = { hash: location.hash, says: byId("qk-says").textContent, bars: byId("qk").querySelectorAll("svg title").length - 1, width: queries[0].length,
    products: Array.from(queries[1], (value, d) => value * keyVectors[2][d]), marks: byId("one").querySelectorAll(".marks rect").length };
  key("Escape");
  found.released = location.hash;

  // Of all layers only lines that can be told apart are drawn, and a slider says which.
  update({ view: "lines", scope: "kind" });
  const linesDrawn = () => byId("all").querySelectorAll("path").length;
  const byItself = linesDrawn();
  byId("least").value = "0.9";
  byId("least").dispatchEvent(new Event("input"));
  found.least = { byItself, most: LINES_PER_ROW.kind * rowsOf(chosenHead()).length, fewer: linesDrawn(), shown: byId("least-shown").textContent };
  update({ view: "map", scope: "layer", least: "" });

  // Paper shows every tab.
  const panelsShown = () => [...byId("panels").children].filter(panel => !panel.hidden).map(panel => panel.id);
  found.onScreen = panelsShown();
  window.dispatchEvent(new Event("beforeprint"));
  found.onPaper = panelsShown();
  found.paperTitles = [...byId("panels").querySelectorAll(".tab-title")].map(title => title.textContent);
  const printed = () => [...document.querySelectorAll(".printed")];
  found.printed = printed().map(copy => ({ source: copy.querySelector("#source-text").textContent,
    only: copy.lastElementChild.tagName === "P" ? copy.lastElementChild.textContent : "",
    panels: [...copy.querySelector("#panels").children].filter(panel => !panel.hidden).map(panel => panel.id),
    thumbs: [...copy.querySelectorAll(".thumb canvas")].filter(canvas => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)).length }));
  found.isCopied = document.body.classList.contains("copied");
  window.dispatchEvent(new Event("afterprint"));
  found.leftOver = printed().length;
  found.afterPaper = panelsShown();

  // Colors and paper.
  const fillOf = () => byId("one").querySelector("text").getAttribute("fill");
  update({ theme: "dark" });
  const onDark = fillOf();
  window.dispatchEvent(new Event("beforeprint"));
  const onPaper = fillOf();
  window.dispatchEvent(new Event("afterprint"));
  update({ theme: "light" });
  found.theme = { onDark, onPaper, onLight: fillOf() };

  // Saving: what would be written, and under which names.
  found.svg = [svgFile("one"), svgFile("all")];
  found.csv = [csvFile("one"), csvFile("all")];
  const click = HTMLAnchorElement.prototype.click;
  HTMLAnchorElement.prototype.click = function () {
    found.downloads.push([this.download, this.href.split(":")[0]]);
  };
  for (const name of ["one.svg", "one.png", "all.csv"]) await save(name);
  HTMLAnchorElement.prototype.click = click;
  const png = await pngFile("one");
  found.png = { type: png.type, start: [...new Uint8Array(await png.slice(0, 24).arrayBuffer())] };

  // Every tab opens.
  found.tabs = {};
  for (const tab of tabs.filter(tab => tab.holds(sentence))) {
    byId(`tab-${tab.id}`).click();
    found.tabs[tab.id] = byId(`panel-${tab.id}`).innerText.length;
  }

  // The tree of the search, and a table of it.
  byId("tab-search").click();
  const boxes = () => byId("panel-search").querySelectorAll("svg rect").length, withAll = boxes();
  byId("panel-search").querySelector(".choices button").click();
  const table = byId("panel-search").querySelector("details");
  table.open = true;
  table.dispatchEvent(new Event("toggle"));
  found.search = { withAll, withoutDropped: boxes(), rows: table.querySelectorAll("tbody tr").length, best: hypothesisOf(sentence.search, sentence.search.path.at(-1)),
    finished: byId("panel-search").querySelectorAll(".panel:nth-of-type(2) tbody tr").length };

  // The steps have an index that leads to them.
  byId("tab-steps").click();
  const index = byId("panel-steps").querySelectorAll(".index button");
  index[2].click();
  found.index = { entries: index.length, cards: byId("panel-steps").querySelectorAll(".step").length, to: document.activeElement.textContent, name: index[2].textContent };

  // Whatever can be pressed has a name to be spoken, and every picture is named or left out.
  found.nameless = [...document.querySelectorAll("button, input, select")]
    .filter(one => !(one.innerText || one.getAttribute("aria-label") || one.closest("label")?.innerText)).map(one => one.outerHTML)
    .concat([...document.querySelectorAll("canvas, main svg")].filter(one => !one.closest("button")
      && !one.getAttribute("aria-label") && !one.getAttribute("aria-hidden")).map(one => one.outerHTML.slice(0, 200)));

  // Nothing of what tokens hold became an element.
  found.injected = document.querySelectorAll("img, iframe, object, embed, form, link, [onerror], [onload], [src], [href]").length;
  found.scripts = document.scripts.length;
}

// The browser's virtual clock runs on while a picture is encoded; a beat keeps it from running out.
const beat = setInterval(() => {}, 20);
selfTest().catch(error => found.errors.push(`${error.stack}`)).finally(() => {
  clearInterval(beat);
  document.body.append(make("pre", { id: "selftest" }, encodeURIComponent(JSON.stringify(found))));
});
