// The live page: answers while you type, and lets you inspect and change the answer.

import { sentenceOf, treeOf, effectsOf, viewData } from "./adopt.js";
import { letAsk } from "./asking.js";
import { ask, keepKey, OFFERS, servedModels } from "./client.js";
import { letDecide } from "./decision.js";
import { addNextTab, showPosition } from "./next.js";
import { makeSide } from "./side.js";
import { byId, clean, data, DEFAULTS, elements, headNamed, KEYS, listen, make, openSentence, showMeasures, showTabs, state, tabs, toggle, whenHeadIsChosen, whenNodeIsChosen, writeAddress } from "./parts.js";

const EXAMPLE = "The animal didn't cross the street because it was too tired.";
const VIEWS = { lens: "logits", flow: "flow", image: "image" };
const EVENTS = { search: "tree", next: "next", logits: "lens", flow: "flow", ablation: "off", image: "image" }; // events that tabs show
const ALL = ["compare", ...OFFERS.filter(name => name === "report")];

let sides = [], active = null, one = null; // one: the inspected sentence
let coming = null; // the next sentence, until the data of the open tab arrives
let switches = false; // true if a click on a head switches it off

/** Does something that redraws parts, and then restores the focus. */
function keepingFocus(does) {
  const before = /** @type {HTMLElement} */ (document.activeElement), id = before?.id, head = before?.classList.contains("thumb") ? before.dataset.head : null;
  does();
  if (document.activeElement === before || before === document.body) return;
  (head ? headNamed(head)?.button : id ? byId(id) : null)?.focus({ preventScroll: true });
}

const hears = {
  isActive: side => side === active,
  focused(side) {
    if (side === active) return;
    active = side;
    hears.chosen(side);
    elements(".side").forEach((box, n) => box.classList.toggle("active", n === side.number));
    side.store.set({ settings: { ...side.store.get().settings } }); // sends a new request, now for all events
  },
  answered(side) {
    const { text, model } = side.store.get();
    if (side === sides[0] && !text.startsWith("data:")) {
      // A link to the page restores the text; the part after # is never sent
      Object.assign(state, { t: text, m: model.name });
      writeAddress();
    }
    if (sides.length < 2) return;
    const [a, b] = sides.map(each => each.answer?.target.text);
    sides.forEach((each, n) => {
      each.other = a !== undefined && b !== undefined ? [b, a][n] : null;
      if (each !== side || each.other !== null) each.show();
    });
  },
  parted(side) {
    if (side !== active) return;
    const chooser = byId("sentence"), texts = side.sentences?.list.map(each => each.source) ?? [];
    chooser.hidden = texts.length < 2;
    chooser.replaceChildren(...texts.map((text, n) => make("option", { value: String(n) }, `${n + 1} of ${texts.length}: ${clean(text)}`)));
    chooser.value = String(side.store.get().sentence);
  },
  pointed(side, word) {
    const at = side.alignment?.tokens.target.indexOf(word) ?? -1;
    if (side === active && at >= 0) showPosition(at);
  },
  chosen(side) {
    if (side !== active) return;
    for (const label of elements(".search-settings label")) label.hidden = !label.dataset.verbs.includes(side.verb());
    elements(".search-settings")[0].hidden = !["translate", "generate"].includes(side.verb());
  },
  rested(side) {
    if (side !== active || !(coming ?? one)) return;
    (coming ?? one).awaits.clear(); // missing events will not arrive any more
    keepingFocus(coming ? adopt : showTabs);
  },
  inspected(side, event) {
    if (side !== active) return;
    if (event.event === "report") saveReport(event.html);
    else if (event.event === "heads") take(sentenceOf(event, side.alignment));
    else if (one && event.event !== "alignment") keepingFocus(() => add(event));
  },
};

/** Takes the sentence of an answer; the previous one stays until the open tab has its data. */
function take(sentence) {
  const isAlike = one?.task === sentence.task;
  sentence.off = active.store.get().off;
  sentence.awaits = new Set(isAlike ? tabs.filter(tab => tab.holds(one)).map(tab => tab.id) : []);
  coming = sentence;
  if (!isAlike || !(state.tab in EVENTS)) keepingFocus(adopt);
}

/** Shows the sentence that arrived. */
function adopt() {
  one = coming;
  coming = null;
  data.model = one.model;
  data.sentences = [one];
  document.body.classList.add("ready"); // before the first answer there is nothing to inspect
  openSentence();
  hears.parted(active);
  markOff();
}

/** Adds an event that follows the heads, and draws its tab. */
function add(event) {
  const its = coming ?? one;
  if (event.event === "tree") its.search = treeOf(event);
  else if (event.event === "next") its.next = event;
  else if (event.event in VIEWS) its.views[VIEWS[event.event]] = viewData(event.data);
  else if (event.event === "off") its.views.ablation = effectsOf(event);
  else return;
  if (coming && EVENTS[state.tab] === event.event) adopt();
  else if (!coming) {
    showTabs();
    if (event.event === "off") showMeasures();
  }
}

/** Keeps tabs visible while their data is on its way, so that they do not flicker with each key. */
function keepTabs() {
  for (const tab of tabs) {
    if (!(tab.id in EVENTS)) continue;
    const { holds, show } = tab;
    tab.holds = sentence => holds(sentence) || Boolean(sentence.awaits?.has(tab.id));
    tab.show = (panel, sentence) => holds(sentence) ? show(panel, sentence) : panel.append(make("p", { class: "waiting-tab" }, "Appears when you pause typing."));
  }
}

/** Shows which heads are off. */
function markOff() {
  for (const head of one.heads) {
    const isOff = one.off.has(head.id);
    head.button.dataset.head = head.id;
    head.button.classList.toggle("off", isOff);
    if (isOff) head.button.setAttribute("aria-label", `${head.id}, off`);
  }
  byId("all-on").hidden = !one.off.size;
}

function switchHead(id) {
  const off = new Set(active.store.get().off);
  if (!off.delete(id)) off.add(id);
  active.store.set({ off });
  one.off = off;
  markOff();
}

/** The buttons above the heads. */
function addSwitches() {
  const look = toggle("Look", true, { id: "look" }, () => choose(false)), off = toggle("Switch off", false, { id: "switch" }, () => choose(true));
  const on = make("button", { type: "button", id: "all-on", class: "quiet", hidden: "" }, "All heads on");
  on.addEventListener("click", () => {
    active.store.set({ off: new Set() });
    one.off = new Set();
    markOff();
  });
  const choose = wanted => {
    switches = wanted;
    look.setAttribute("aria-pressed", String(!wanted));
    off.setAttribute("aria-pressed", String(wanted));
    byId("overview").classList.toggle("switching", wanted);
  };
  document.querySelector("#overview-panel .filter").append(make("div", { class: "switching-row" }, make("span", { class: "switch", role: "group", "aria-label": "A click on a head" }, look, off)));
  document.querySelector(".told").append(on); // next to the translation, which it changes
  whenHeadIsChosen(head => {
    if (switches) switchHead(head.id);
    return switches;
  });
}

/** Continues from a hypothesis or a token, which becomes the prefix. */
function goOnFrom(prefix) {
  active.store.set({ prefix });
  active.target.area.focus();
}

function compare() {
  const [first] = sides;
  if (sides.length > 1) {
    sides.pop().box.remove();
    first.other = null;
    first.show();
    hears.focused(first);
  } else {
    const second = makeSide(1, served, hears);
    sides.push(second);
    first.box.after(second.box);
    const { model, text } = first.store.get(), alike = served.filter(each => each.verbs[0] === model.verbs[0]);
    const other = alike[(alike.indexOf(model) + 1) % alike.length];
    second.box.querySelector("select").value = String(served.indexOf(other));
    second.store.set({ model: other });
    if (!text.startsWith("data:")) second.setText(text);
  }
  byId("live").classList.toggle("two", sides.length > 1);
  byId("compare").setAttribute("aria-pressed", String(sides.length > 1));
}

/** Requests the static report of what is shown, and downloads it as a file. */
async function report() {
  const { model, text, prefix, off } = active.store.get(), target = active.answer?.target.text;
  const isChanged = Boolean(prefix || off.size || active.sentences?.list.some(each => each.prefix)) && target;
  byId("report").disabled = true;
  try {
    await ask(`api/${active.verb()}`, { model: model.name, text, want: ["report"], ...(isChanged ? { target } : {}) }, { onEvent: event => hears.inspected(active, event) });
  } catch (error) {
    active.tell(error.message, true);
  } finally {
    byId("report").disabled = false;
  }
}

function saveReport(html) {
  const link = make("a", { download: "report.html" });
  link.href = URL.createObjectURL(new Blob([html], { type: "text/html" }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Settings of the search, collapsed at first. */
function searchSettings() {
  const number = (verbs, name, label, min, max, step) => {
    const input = make("input", { type: "number", id: name, min: String(min), max: String(max), step: String(step), placeholder: "model's" });
    input.addEventListener("change", () => {
      const settings = { ...active.store.get().settings };
      if (input.value === "" || !input.checkValidity()) delete settings[name];
      else settings[name] = Number(input.value);
      active.store.set({ settings });
    });
    return make("label", { "data-verbs": verbs }, `${label} `, input);
  };
  return make("details", { class: "search-settings" }, make("summary", {}, "Search"), make("div", {}, number("translate", "beam_size", "Beam size", 1, 16, 1), number("translate", "length_penalty", "Length penalty", 0, 10, .1),
    number("generate", "temperature", "Temperature", .1, 3, .1), number("generate", "top_p", "Top-p", .05, 1, .05), number("generate", "seed", "Seed", 0, 1e9, 1)));
}

/** A field for the API key, if the service requires one. */
function keyField() {
  const input = make("input", { type: "password", id: "key", autocomplete: "off" });
  input.addEventListener("keydown", event => {
    if (event.key !== "Enter") return;
    keepKey(input.value);
    location.reload();
  });
  return make("p", { class: "pick" }, make("label", { for: "key" }, "API key"), input, " Enter");
}

const ACTIONS = { compare, report };
const NAMES = { compare: ["Compare", "Two models or two sentences side by side"], report: ["Save report", "Save this view as a page that works offline"] };
let served = [];

async function begin() {
  Object.assign(DEFAULTS, { t: "", m: "" });
  KEYS.push([["x"], "switch the head off or on"]);
  const tools = document.querySelector(".tools");
  tools.prepend(...ALL.map(id => {
    const button = make("button", { type: "button", id, title: NAMES[id][1], ...(id === "report" ? {} : { "aria-pressed": "false" }) }, NAMES[id][0]);
    button.addEventListener("click", ACTIONS[id]);
    return button;
  }));
  const live = make("div", { id: "live", class: "live" });
  byId("sentence").before(live);
  try {
    served = (await servedModels()).filter(model => model.verbs.length);
  } catch (error) {
    live.append(make("p", { class: "status wrong", role: "alert" }, error.message));
    if (error.wantsKey) live.append(keyField());
    return;
  }
  listen();
  addNextTab((position, piece) => {
    const text = [...one.targetPieces.slice(0, position), piece].join("").replaceAll("▁", " ").replace(/^ /, "");
    if (piece.startsWith("<")) return; // byte and end tokens have no text
    if (active.verb() === "generate") active.setText(text);
    else if (active.verb() === "translate") goOnFrom(text);
  });
  keepTabs();
  if (OFFERS.includes("decision")) letDecide(() => ({ side: active, sentence: one }), keepingFocus);
  letAsk(() => ({ side: active, sentence: one }), keepingFocus);
  whenNodeIsChosen(n => goOnFrom(one.search.nodes[n].text));
  const [first] = sides = [makeSide(0, served, hears)];
  live.append(first.box);
  addSwitches();
  byId("sentence").addEventListener("change", () => active.choose(Number(byId("sentence").value)));
  byId("panels").before(make("p", { class: "waiting", id: "waiting", role: "status" }, "Heads, the search and the next words appear here."));
  first.box.querySelector(".told").append(searchSettings());
  hears.focused(first);
  document.addEventListener("keydown", event => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || target.closest("textarea, input, select")) return;
    if ("[]".includes(event.key)) {
      const chooser = byId("sentence"), n = active.store.get().sentence + (event.key === "[" ? -1 : 1);
      if (!chooser.hidden && chooser.options[n]) active.choose(n);
    } else if (event.key === "x" && one && state.tab === "heads") switchHead(state.head);
    else return;
    event.preventDefault();
  });
  const named = served.find(model => model.name === state.m);
  if (named && named !== served[0]) {
    first.box.querySelector("select").value = String(served.indexOf(named));
    first.store.set({ model: named });
  }
  const given = state.t || (first.verb() === "translate" && ["", "en"].includes(first.store.get().model.source_language ?? "") ? EXAMPLE : "");
  if (given) first.setText(given);
  first.source.area.focus();
}

begin();
