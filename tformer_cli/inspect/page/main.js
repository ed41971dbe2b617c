// Draws the page from the data and the address, and again whenever a choice changes.

/** Changes choices and redraws only what depends on them. */
function update(changes) {
  const changed = Object.keys(changes).filter(name => state[name] !== changes[name]);
  Object.assign(state, changes);
  if (changed.includes("s")) openSentence();
  else {
    if (["theme", "boost", "projector"].some(name => changed.includes(name))) repaint();
    if (!sentence) return; // a live page before its first answer
    if (changed.some(name => ["head", "view", "scope", "least"].includes(name))) showHead();
    if (changed.includes("q")) applyFilter();
    if (changed.includes("tab")) showTab();
    if (sentence.heads.length && (changed.includes("row") || changed.includes("key"))) {
      showGuide();
      markAll();
    }
  }
  writeAddress();
}

/** Shows the chosen sentence, with the head shown before if the sentence has it. */
function openSentence() {
  const number = Number(state.s);
  if (!data.sentences[number]) state.s = "0";
  sentence = data.sentences[Number(state.s)];
  byId("sentence").value = state.s;
  byId("projector").hidden = !sentence.heads.length; // there is no map
  if (sentence.heads.length && !headNamed(state.head)) state.head = (causingHead(sentence) ?? sentence.heads[sentence.first]).id;
  hovered = null;
  showFacts();
  showStrips();
  if (sentence.heads.length) showOverview();
  showTabs();
  showHead();
}

/** Shows the chosen head. */
function showHead() {
  hovered = null;
  byId("tip").style.display = "none";
  byId("guide").hidden = !sentence.heads.length;
  if (!sentence.heads.length) {
    showTabs();
    return;
  }
  markOverview();
  showMeasures();
  showGuide();
  // Figures take their width from the page, and on a projector the height below the guide; a tab that is hidden has none.
  if (state.tab === "heads" || isPrinting) showFigures();
  if (state.tab !== "heads" || isPrinting) showTabs();
  markAll();
}

function showTab() {
  showTabs();
  showHead();
}

/** Redraws everything in the current colors. */
function repaint() {
  document.documentElement.dataset.theme = isPrinting ? "light" : state.theme;
  const name = { auto: "system", light: "light", dark: "dark" }[state.theme];
  byId("theme").setAttribute("aria-label", `Colors: ${name}`);
  byId("theme").textContent = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" }[state.theme];
  byId("boost").checked = Boolean(state.boost);
  byId("projector").setAttribute("aria-pressed", String(Boolean(state.projector)));
  document.documentElement.classList.toggle("projector", Boolean(state.projector) && !isPrinting);
  document.documentElement.classList.toggle("map-only", isProjected());
  if (!sentence) return;
  sentence.heads.forEach(paintThumbnail);
  showTabs();
  showHead();
}

/** Lays out a copy of the page per sentence for printing, as the screen shows one. Views of the model, and a report's long computation, are in the first. */
function layOutSentences() {
  for (const copy of elements(".printed")) copy.remove();
  document.body.classList.toggle("copied", isPrinting && data.sentences.length > 1);
  if (!document.body.classList.contains("copied")) return;
  const chosen = state.s;
  for (const n of data.sentences.keys()) {
    state.s = String(n);
    openSentence();
    const parts = [...elements("body > header, body > main")];
    const copy = make("div", { class: "printed" }, ...parts.map(part => part.cloneNode(true)));
    const drawn = parts.flatMap(part => [...part.querySelectorAll("canvas")]);
    copy.querySelectorAll("canvas").forEach((canvas, at) => canvas.width && canvas.height && canvas.getContext("2d").drawImage(drawn[at], 0, 0));
    const once = tabs.filter(({ id }) => data.views?.[id] || (id === "steps" && sentence.heads.length)).flatMap(({ id }) => copy.querySelector(`#panel-${id}`) ?? []);
    if (n > 0 && once.length) {
      const names = once.map(panel => panel.querySelector(".tab-title")?.textContent).filter(Boolean).join(", ");
      for (const panel of once) panel.remove();
      copy.append(make("p", { class: "says" }, `Only with the first sentence: ${names}.`));
    }
    byId("footer").before(copy);
  }
  state.s = chosen;
  openSentence();
}

let isFrameWaiting = false;
let drawnWidth = innerWidth;

/** Redraws, at most once per frame, the figures whose width depends on the window. */
function drawAtNextFrame() {
  // Phones report a new size when their bars come and go; the width is still the same.
  if (isFrameWaiting || innerWidth === drawnWidth || !sentence) return;
  isFrameWaiting = true;
  requestAnimationFrame(() => {
    isFrameWaiting = false;
    drawnWidth = innerWidth;
    if (state.tab !== "heads") showTabs();
    else {
      showFigures();
      showProducts();
    }
  });
}

function begin() {
  if (data.views && !data.sentences.length) {
    // A page about one or two models has no sentence on top.
    data.sentences.push(/** @type {Sentence} */ ({ source: "", target: "", sourcePieces: [], targetPieces: [], inputPieces: [], heads: [], rare: [] }));
    for (const one of elements(".sentences, .strips")) one.hidden = true;
  }
  if (!data.sentences.length) {
    for (const id of ["guide", "panel-heads", "about"]) byId(id).hidden = true;
    byId("sentences").replaceChildren(make("dt", {}, "Sentences"), make("dd", {}, "There is no sentence to show."));
    return;
  }
  const { name, meaning, source } = data.weighting;
  if (data.sentences.some(one => one.heads.length)) {
    byId("footer").textContent = name === "alpha" ? "Attention weights show where a head looks, not how much it matters."
      : `${name}: ${meaning} (${source}).`;
  }
  fillChooser();
  listen();
  openSentence();
}

/** Reads the address and attaches the event handlers. */
function listen() {
  fillKeys();
  readAddress();
  byId("filter").value = state.q;
  if (isEncoder()) byId("filter").placeholder = "Filter: enc.0 prev>.5"; // it has no cross-attention
  repaint();
  listenToKeys();
  listenToSaving();
  for (const button of elements("[data-view]")) button.addEventListener("click", () => update({ view: button.dataset.view }));
  for (const button of elements("[data-scope]")) {
    button.parentElement.hidden = CHOICES.scope.length < 2;
    button.addEventListener("click", () => update({ scope: button.dataset.scope }));
  }
  byId("least").addEventListener("input", () => update({ least: byId("least").value }));
  byId("boost").addEventListener("change", () => update({ boost: byId("boost").checked ? "1" : "" }));
  byId("numbers").addEventListener("toggle", () => byId("numbers").open && showNumbers());
  systemIsDark.addEventListener("change", repaint);
  window.addEventListener("resize", drawAtNextFrame);
  window.addEventListener("hashchange", () => {
    readAddress();
    byId("filter").value = state.q;
    sentence = null;
    repaint();
    if (data.sentences.length) openSentence();
  });
  const print = begins => {
    isPrinting = begins;
    repaint();
    layOutSentences();
  };
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
}
