// The keyboard, and the list of its keys on the page.

/** @type {[string[], string][]} */
const KEYS = [
  [["h", "l", "←", "→"], "previous, next head"],
  [["k", "j", "↑", "↓"], "previous, next layer"],
  [["1", "2", "3"], "encoder, decoder, cross"],
  [["[", "]"], "previous, next sentence"],
  [["m"], "map or lines"],
  [["o"], "next to it: its layer or all layers"],
  [["b"], "gamma: show small weights"],
  [["/"], "filter heads"],
  [["p"], "projector: large letters"],
  [["t"], "colors: system, light, dark"],
  [["Esc"], "release a row, a key or the filter"],
  [["?"], "these keys"],
];
const STEPS = { ArrowLeft: -1, h: -1, ArrowRight: 1, l: 1 };
const LAYER_STEPS = { ArrowUp: -1, k: -1, ArrowDown: 1, j: 1 };

/** Lists the keys. */
function fillKeys() {
  byId("keys").append(...KEYS.map(([keys, does]) => make("div", {}, make("dt", {}, ...keys.map(key => make("kbd", {}, key))), make("dd", {}, does))));
}

/** Shows or hides the list. */
function toggleKeys() {
  const isHidden = byId("keys").hidden = !byId("keys").hidden;
  byId("help").setAttribute("aria-expanded", String(!isHidden));
}

/**
 * Handles a key; true if it has a meaning here.
 *
 * @param {string} key
 */
function press(key) {
  if (!sentence.heads.length && !"[]t?".includes(key) && key !== "Escape") return false;
  const heads = sentence.heads.filter(filterOf(state.q)), head = chosenHead();
  if (key in STEPS) {
    const at = heads.indexOf(head), next = at < 0 ? heads[0] : heads[at + STEPS[key]];
    if (next) choose(next);
  } else if (key in LAYER_STEPS) moveLayer(LAYER_STEPS[key], heads, head);
  else if (/^[123]$/.test(key)) {
    const first = sentence.heads.find(one => one.kind === KINDS[Number(key) - 1]);
    if (first) choose(first);
  } else if (key === "[" || key === "]") {
    const next = Number(state.s) + (key === "[" ? -1 : 1);
    if (data.sentences[next]) update({ s: String(next), row: "", key: "" });
  } else if (key === "m") update({ view: state.view === "map" ? "lines" : "map" });
  else if (key === "o") update({ scope: CHOICES.scope[(CHOICES.scope.indexOf(state.scope) + 1) % CHOICES.scope.length] });
  else if (key === "b") update({ boost: state.boost ? "" : "1" });
  else if (key === "p") toggleProjector();
  else if (key === "t") nextTheme();
  else if (key === "?") toggleKeys();
  else if (key === "/") {
    update({ tab: "heads" });
    byId("filter").focus();
    byId("filter").select();
  } else if (key === "Escape") {
    byId("tip").style.display = "none";
    update({ row: "", key: "" });
  }
  else return false;
  return true;
}

/** @param {Head} head */
function choose(head) {
  const isInOverview = document.activeElement?.classList.contains("thumb");
  update({ head: head.id });
  if (isInOverview) head.button.focus();
}

/**
 * @param {number} step
 * @param {Head[]} heads
 * @param {Head} head
 */
function moveLayer(step, heads, head) {
  const same = heads.filter(one => one.kind === head.kind);
  const layers = [...new Set([...same.map(one => one.layer), head.layer])].sort((a, b) => a - b);
  const there = same.filter(one => one.layer === layers[layers.indexOf(head.layer) + step]);
  if (there.length) choose(there.find(one => one.head === head.head) ?? there[0]);
}

/** Cycles the colors: system, light, dark. */
function nextTheme() {
  update({ theme: CHOICES.theme[(CHOICES.theme.indexOf(state.theme) + 1) % 3] });
}

/** Starts or ends what a projector shows: the map, with the row that the sentence above it is about. */
function toggleProjector() {
  const part = sentence && viewOf(sentence, "decision")?.heads.find(one => one.id === state.head);
  const row = part && data.sentences.indexOf(sentence) === 0 ? String(part.row ?? "") : "";
  const shown = document.querySelector("#live") ? {} : { tab: "heads", row: state.row || row };
  update(state.projector ? { projector: "" } : { projector: "1", ...shown });
}

/** Makes keys and buttons work. */
function listenToKeys() {
  document.addEventListener("keydown", event => {
    const { key } = event, target = /** @type {HTMLInputElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || !sentence || target.tagName === "TEXTAREA") return;
    if (target.closest?.("[role=tablist]") && /^Arrow(Left|Right)$/.test(key)) {
      moveTab(key === "ArrowLeft" ? -1 : 1);
      event.preventDefault();
    } else if (target === byId("filter")) {
      if (key === "Escape" || key === "Enter") leaveFilter(key);
    } else if (target.tagName !== "SELECT" && target.type !== "range" && (state.tab === "heads" || !key.startsWith("Arrow")) && press(key)) event.preventDefault();
  });
  byId("filter").addEventListener("input", () => update({ q: byId("filter").value }));
  byId("help").addEventListener("click", toggleKeys);
  byId("theme").addEventListener("click", nextTheme);
  byId("projector").addEventListener("click", toggleProjector);
}

/**
 * Enter goes to the first head that passes; Escape empties the filter.
 *
 * @param {string} key
 */
function leaveFilter(key) {
  byId("filter").blur();
  if (key === "Escape") {
    byId("filter").value = "";
    update({ q: "" });
    return;
  }
  const first = sentence.heads.find(filterOf(state.q));
  if (first) choose(first);
}
