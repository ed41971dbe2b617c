// One side of the page: a model, a text, its answer as it arrives, and changes to it.

import { ask, write } from "./client.js";
import { makeEditor } from "./editor.js";
import { outputOf } from "./outputs.js";
import { pause } from "./pause.js";
import { makeSentences, nCommon, numberAt } from "./sentences.js";
import { makeStore } from "./store.js";
import { byId, clean, decimal, make } from "./parts.js";
import { changedWords, wordsOf } from "./words.js";

const DEBOUNCE = 80, INSPECT_AFTER = 150, REST_AFTER = 500; // milliseconds after the last key
const SAID_AFTER = 1000; // a screen reader announces the answer once typing pauses
const LIKELY_WRONG = .5, UNLIKELY_WORD = .2; // as in the lists and flags of the command
const MOST_WRITTEN = 40; // tokens that a language model writes after a text
const FIRST = ["alignment", "heads", "tree", "next"], THEN = ["lens", "flow", "off", "image"];
const LABELS = {
  translate: ["Source", "Translation"], classify: ["Text", "Label"], tag: ["Text", "Labels"],
  generate: ["Text", "What the model writes"], fill: ["Text with [MASK]", "Filled"], embed: ["Text", "Vector"],
};

/**
 * Makes a side.
 *
 * number: 0 or 1; models: the served ones; hears: callbacks {isActive, chosen, focused, answered, inspected, rested, pointed, parted}, called with the side.
 * In a text of several sentences, one is inspected; the prefix belongs to its translation.
 */
export function makeSide(number, models, hears) {
  const store = makeStore({ model: models[0], text: "", sentence: 0, prefix: "", off: new Set(), settings: {} });
  const source = makeEditor({ id: `source-${number}`, label: "Source", hint: "Type a sentence", onInput: () => typed(), onPoint: n => point("source", n), onCaret: at => putCaret("source", at) });
  const target = makeEditor({ id: `target-${number}`, label: "Translation", hint: "The translation follows what you type", onInput: () => edited(), onPoint: n => point("target", n), onCaret: at => putCaret("target", at) });
  const output = make("div", { class: "output", tabindex: "-1" }), status = make("p", { class: "status" }), strip = make("div", { class: "probabilities", role: "img" });
  const hint = make("p", { class: "hint" });
  const free = make("button", { type: "button", class: "free", hidden: "" }, "Clear the prefix (Esc)");
  const chooser = make("select", { id: `model-${number}`, "aria-label": "Model" }, ...models.map((one, n) => make("option", { value: String(n) }, one.name)));
  const file = make("input", { type: "file", id: `file-${number}`, accept: "image/*", "aria-label": "Image" });
  const picture = make("img", { class: "picture-read", alt: "" });
  const box = make("section", { class: "side", "aria-label": `Side ${"AB"[number]}` },
    make("div", { class: "model" }, chooser), make("div", { class: "read" }, source.box, file, picture),
    make("div", { class: "written" }, target.box, strip, output), make("div", { class: "told" }, status, hint, free));
  const side = { number, store, box, answer: null, alignment: null, free: null, sentences: null, other: null, source, target, setText, choose, show, tell, verb, look, asked: lookedInto };
  let timer = 0, controller = new AbortController(), saying = 0, asked = 0, isWaiting = false;

  /** The verb of requests: the first supported verb of the model. */
  function verb() {
    return store.get().model.verbs.find(one => one in LABELS) ?? "translate";
  }

  function readsImages() {
    return store.get().model.kind === "image";
  }

  function setText(text) {
    source.show({ text });
    typed();
  }

  function typed() {
    // Changes to the previous sentence do not apply to this one; heads stay off
    store.set({ text: source.area.value.replace(/[\r\n]+/g, " "), prefix: "", sentence: sentenceAt("source", source.area.selectionEnd) });
  }

  /** The text up to the caret becomes the prefix; the model continues from there. */
  function edited() {
    const text = target.area.value, n = sentenceAt("target", nCommon(text, side.answer?.target.text ?? "")), [start] = spanOf("target", n);
    if (n !== store.get().sentence) choose(n);
    store.set({ prefix: text.slice(start, Math.max(start, target.area.selectionEnd)) });
  }

  /** The sentence of a character, if known. */
  function sentenceAt(which, position) {
    return side.sentences ? numberAt(side.sentences.spans(which), position) : 0;
  }

  /** The span of a sentence in the text of a side: the whole text if there is only one. */
  function spanOf(which, n = store.get().sentence) {
    return side.sentences?.spans(which)[n] ?? [0, Infinity];
  }

  /** Inspects another sentence, even before the answer tells how many there are. */
  function choose(n) {
    if (n === store.get().sentence) return;
    side.alignment = null;
    store.set({ sentence: n, prefix: side.sentences?.list[n].prefix ?? "" });
    show();
    hears.parted(side);
  }

  function putCaret(which, position) {
    if (side.sentences?.text === store.get().text) choose(sentenceAt(which, position));
  }

  store.subscribe(changed => {
    if (changed.has("model")) showModel();
    if (side.sentences && ["text", "model", "off", "settings"].some(name => changed.has(name))) {
      side.sentences = null; // they, and the prefix, belong to another answer
      store.set({ prefix: "" });
    }
    free.hidden = !store.get().prefix;
    hint.textContent = free.hidden ? "Point at a word, or edit the translation: the model continues from what you type." : "Tab accepts a word, Ctrl+Enter everything.";
    clearTimeout(timer);
    controller.abort();
    timer = setTimeout(run, DEBOUNCE);
  });

  function request(want, changes = {}) {
    const { model, text, sentence, prefix, off, settings } = store.get();
    return {
      model: model.name, text, ...(sentence ? { sentence } : {}), ...(prefix ? { prefix } : {}), ...(off.size ? { heads_off: [...off] } : {}), ...(want.length ? { want } : {}),
      ...(verb() === "translate" ? { ...settings, ...(model.doubt ? { doubt: true } : {}) } : {}),
      // The text was already streamed; here it is only inspected
      ...(verb() === "generate" ? { max_length: 1 } : {}),
      ...changes,
    };
  }

  /** The request for the chosen sentence: with a prefix, only this sentence, as a prefix cannot name its sentence. */
  function ofSentence() {
    const one = side.sentences?.list[store.get().sentence];
    return one?.prefix ? { text: one.source, sentence: undefined } : {};
  }

  /** The inspected sentence and the search settings, for another request. */
  function lookedInto() {
    const { model, text, sentence, settings } = store.get();
    const { beam_size, length_penalty } = settings, search = verb() === "translate" ? { beam_size, length_penalty } : {};
    return { model: model.name, text: side.sentences?.list[sentence].source ?? text, ...search };
  }

  /** Asks for more events of the inspected sentence. */
  function look(want, fields, how) {
    return ask(`api/${verb()}`, request(want, { ...ofSentence(), ...fields }), how);
  }

  async function run() {
    const { signal } = controller = new AbortController(), path = `api/${verb()}`;
    const { text, model } = store.get();
    asked = performance.now();
    if (!text.trim()) {
      side.answer = side.alignment = side.sentences = null;
      target.show({ text: "" });
      for (const one of [output, strip]) one.replaceChildren();
      status.textContent = "";
      hears.parted(side);
      return;
    }
    isWaiting = true;
    let sentences = [];
    const onEvent = event => {
      // A sentence sent alone is translated again, without context
      if (signal.aborted || (side.sentences && event.event === "translation")) return;
      if (event.event === "heads") ({ sentences } = event);
      take(event);
    };
    try {
      if (verb() === "generate") await generate(model, text, signal);
      else if (side.sentences) await lead(signal);
      else await ask(path, request([]), { signal, onEvent });
      await pause(INSPECT_AFTER - DEBOUNCE, signal);
      // The inactive side needs only the alignment
      await ask(path, request(hears.isActive(side) ? FIRST : ["alignment"], ofSentence()), { signal, onEvent });
      if (!side.sentences && await part(sentences, signal)) return;
      if (!hears.isActive(side)) return;
      await pause(REST_AFTER - INSPECT_AFTER, signal);
      await ask(path, request(THEN, ofSentence()), { signal, onEvent });
      if (!signal.aborted) hears.rested(side);
    } catch (error) {
      if (signal.aborted) return;
      // If the model was trained further since the page was loaded, it has no doubts any more
      if (model.doubt && error.message.startsWith("doubt:")) {
        model.doubt = false;
        return run();
      }
      tell(error.message, true);
    }
  }

  /** Translates one of several sentences alone; the service has just cached it. */
  async function translated(text, changes, signal) {
    let found = null;
    await ask("api/translate", request([], { text, sentence: undefined, prefix: undefined, ...changes }), { signal, onEvent: event => event.event === "translation" && (found = event) });
    return found;
  }

  /** Finds the sentences of the answered text; true if the inspected sentence changes. */
  async function part(texts, signal) {
    const { text, prefix, sentence } = store.get(), found = [];
    // A text translated with a prefix may not have been split
    if (texts.length > 1 && !prefix) for (const one of texts) found.push({ text: one, event: await translated(one, {}, signal) });
    if (signal.aborted) return true;
    if (found.length) side.sentences = makeSentences(text, found, side.answer.target.text);
    if (!side.sentences) {
      hears.parted(side);
      return false;
    }
    const [which, { area }] = document.activeElement === target.area ? ["target", target] : ["source", source];
    show();
    hears.parted(side);
    choose(document.activeElement === area ? sentenceAt(which, area.selectionEnd) : Math.min(sentence, texts.length - 1));
    return store.get().sentence !== sentence;
  }

  /** Continues from the prefix of the chosen sentence; the others stay unchanged. */
  async function lead(signal) {
    const { sentence, prefix } = store.get(), one = side.sentences.list[sentence];
    if (!prefix) asked = performance.now() - side.spent; // no request
    const found = prefix ? await translated(one.source, { prefix }, signal) : one.free;
    if (signal.aborted) return;
    Object.assign(one, { prefix, answer: found });
    const text = side.sentences.target();
    take({ ...found, source: { ...found.source, text: store.get().text }, target: { ...found.target, text } });
  }

  async function generate(model, text, signal) {
    let written = "";
    const { temperature, top_p, seed } = store.get().settings;
    await write({ model: model.name, prompt: text, max_tokens: MOST_WRITTEN, ...(temperature === undefined ? {} : { temperature }), ...(top_p === undefined ? {} : { top_p }), ...(seed === undefined ? {} : { seed }) }, {
      signal,
      onText(piece) {
        written += piece;
        target.show({ text: written, grey: [0, Infinity] });
        tell(`${Math.round(performance.now() - asked)} ms`);
      },
    });
    say(written);
  }

  /** Handles an event of the answer. */
  function take(event) {
    if (event.event === "translation") {
      if (!isWaiting && side.answer?.target.text === event.target.text) return; // the same answer, with the other wanted events
      isWaiting = false;
      side.answer = event;
      side.alignment = null;
      const { text, prefix, off } = store.get();
      if (!prefix && !off.size && !side.sentences?.list.some(one => one.prefix)) side.free = { text, model: store.get().model, target: event.target.text };
      side.spent = Math.round(performance.now() - asked);
      show();
      say(event.target.text);
      hears.answered(side);
    } else if (["classification", "tags", "filled", "embedding"].includes(event.event)) {
      output.replaceChildren(...outputOf(event));
      if (isWaiting) tell(`${Math.round(performance.now() - asked)} ms`);
      isWaiting = false;
      say(output.textContent);
      hears.answered(side);
    } else if (event.event === "alignment") {
      side.alignment = event;
      showProbabilities();
      hears.inspected(side, event);
    } else if (event.event !== "done" && hears.isActive(side)) hears.inspected(side, event);
  }

  /** Shows the translation: text by the model is grey, words affected by a change are underlined. */
  function show() {
    const { text, prefix, off, model } = store.get(), written = side.answer?.target.text;
    if (written === undefined) return;
    const own = side.free, isSame = own && own.text === text && own.model === model;
    const changed = side.other !== null ? changedWords(written, side.other) : isSame && (off.size || prefix) ? changedWords(written, own.target) : new Set();
    const [start, end] = spanOf("target"), begins = prefix && written.startsWith(prefix, start);
    target.show({ text: written, ...(prefix ? { grey: [begins ? start + prefix.length : start, end] } : {}), changed, within: [start, end] });
    source.show({ within: spanOf("source") });
    const { words, sentences } = doubts();
    target.area.title = "";
    target.mark("doubtful", words);
    target.mark("suspect", new Set(sentences.flatMap(([, from, to]) => [...Array(to - from).keys()].map(n => from + n))));
    if (begins && document.activeElement === target.area) target.area.setSelectionRange(start + prefix.length, start + prefix.length);
    showProbabilities();
    tell();
  }

  /** Probability of each word of the translation, from its tokens; null if not known yet. */
  function probabilities() {
    const tokens = side.alignment?.tokens.target, answer = side.sentences?.list[store.get().sentence].answer ?? side.answer;
    const logs = answer?.hypotheses[0].token_log_probabilities;
    if (!tokens || !logs || tokens.length > logs.length) return null;
    const sums = [];
    tokens.forEach((word, n) => {
      if (word !== null) sums[word] = (sums[word] ?? 0) + logs[n];
    });
    return sums.map(Math.exp);
  }

  /** Doubts of the service: numbers of improbable words, and sentences that are probably wrong, each [doubt, first word, word after]. */
  function doubts() {
    /** @type {{words: Set<number>, sentences: number[][]}} */
    const found = { words: new Set(), sentences: [] };
    let first = 0;
    for (const event of side.sentences?.list.map(one => one.answer) ?? [side.answer]) {
      const { doubt, sentence_doubts: each = [], word_probabilities: words = [] } = event?.hypotheses[0] ?? {};
      words.forEach(([, p], n) => p < UNLIKELY_WORD && found.words.add(first + n));
      // Of several sentences in one answer, the words are not assigned; each follows alone soon
      if (each.length === 1 && doubt >= LIKELY_WRONG) found.sentences.push([doubt, first, first + words.length]);
      first += words.length;
    }
    return found;
  }

  /** Tooltip of a word of the translation. */
  function doubtOf(n) {
    const { words, sentences } = doubts(), sentence = sentences.find(([, from, to]) => n >= from && n < to);
    return [...sentence ? [`Wrong with probability ${decimal(sentence[0], 2)}.`] : [], ...words.has(n) ? ["The model finds this word improbable."] : []].join(" ");
  }

  function showProbabilities() {
    const found = side.answer && probabilities(), words = side.answer ? wordsOf(side.answer.target.text.slice(...spanOf("target"))) : [];
    strip.replaceChildren(...found && found.length === words.length ? found.map((p, n) => make("span", { title: `${words[n]}: ${decimal(p, 2)}`, style: `flex-grow:${words[n].length};background:color-mix(in srgb, var(--cross) ${Math.round(100 * p)}%, var(--doubt))` })) : []);
    const least = found?.length ? found.indexOf(Math.min(...found)) : -1;
    strip.setAttribute("aria-label", least < 0 ? "Probability of each word" : `Probability of each word; the lowest is ${words[least]}, ${decimal(found[least], 2)}`);
  }

  /** Marks a word and the words aligned with it, and shows its details. */
  function point(which, n) {
    const { sentences } = side, { sentence } = store.get(), firsts = ["source", "target"].map(one => sentences?.firstWord(one, sentence) ?? 0);
    const links = (side.alignment?.links ?? []).map(link => link.map((word, n) => word + firsts[n])), place = which === "source" ? 0 : 1;
    const linked = new Set(n === null ? [] : links.filter(link => link[place] === n).map(link => link[1 - place]));
    const [own, others] = which === "source" ? [source, target] : [target, source];
    own.mark("pointed", new Set(n === null ? [] : [n]));
    own.mark("linked", new Set());
    others.mark("linked", linked);
    others.mark("pointed", new Set());
    target.area.title = which === "target" && n !== null ? doubtOf(n) : "";
    if (n === null || !side.answer) return tell();
    if (which === "target") hears.pointed(side, n - firsts[1]);
    const texts = [wordsOf(store.get().text), wordsOf(side.answer.target.text)], name = texts[place][n];
    const pairs = [...linked].map(one => texts[1 - place][one]).join(" ");
    const p = which === "target" ? probabilities()?.[n - firsts[1]] : undefined;
    status.replaceChildren(make("b", {}, clean(name ?? "")), pairs ? ` ${which === "source" ? "→" : "←"} ` : links.length ? " is not aligned" : "", make("b", {}, clean(pairs)), p === undefined ? "" : `, probability ${decimal(p, 2)}`, ` · ${summary()}`);
  }

  const summary = () => side.answer ? `score ${decimal(side.answer.hypotheses[0].score, 3)} · ${side.spent} ms` : "";

  function tell(text = summary(), isWrong = false) {
    status.classList.toggle("wrong", isWrong);
    status.textContent = text;
  }

  function say(text) {
    clearTimeout(saying);
    saying = setTimeout(() => byId("said").textContent = text, SAID_AFTER);
  }

  function showModel() {
    const [reads, writes] = LABELS[verb()], isText = verb() === "translate" || verb() === "generate";
    source.box.querySelector("label").textContent = reads;
    target.box.querySelector("label").textContent = writes;
    target.box.hidden = strip.hidden = !isText;
    target.area.readOnly = verb() !== "translate";
    output.hidden = isText;
    hint.hidden = verb() !== "translate";
    source.box.hidden = readsImages();
    file.hidden = picture.hidden = !readsImages();
    output.replaceChildren();
    side.answer = side.alignment = side.free = side.sentences = null;
    target.show({ text: "" });
    const text = readsImages() ? picture.getAttribute("src") ?? "" : source.area.value;
    store.set({ text, off: new Set(), prefix: "", sentence: 0 });
    hears.chosen(side);
  }

  file.addEventListener("change", async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    const reader = new FileReader();
    reader.addEventListener("load", () => {
      picture.src = String(reader.result);
      store.set({ text: picture.src });
    });
    reader.readAsDataURL(chosen);
  });
  chooser.addEventListener("change", () => store.set({ model: models[Number(chooser.value)] }));
  free.addEventListener("click", () => {
    store.set({ prefix: "" });
    target.area.focus();
  });
  target.area.addEventListener("keydown", event => {
    const { prefix } = store.get(), written = target.area.value.slice(...spanOf("target"));
    if (event.key === "Escape" && prefix) store.set({ prefix: "" });
    else if (event.key === "Enter" && event.ctrlKey) store.set({ prefix: written });
    else if (event.key === "Enter") { /* a translation has no line breaks */ }
    // Only if there is grey text to accept; otherwise Tab moves the focus as usual
    else if (event.key === "Tab" && !event.shiftKey && prefix && prefix.length < written.length) {
      const [taken] = /^\s*\S+/.exec(written.slice(prefix.length)) ?? [written.slice(prefix.length)];
      store.set({ prefix: prefix + taken });
      show();
    } else return;
    event.preventDefault();
  });
  box.addEventListener("focusin", () => hears.focused(side));
  showModel();
  return side;
}
