// One side of the page: a model, a text, its answer as it comes, and what is changed about it.

import { ask, pause, write } from "./client.js";
import { makeEditor } from "./editor.js";
import { outputOf } from "./outputs.js";
import { makeSentences, nCommon, numberAt } from "./sentences.js";
import { makeStore } from "./store.js";
import { byId, clean, decimal, make } from "./parts.js";
import { changedWords, wordsOf } from "./words.js";

const DEBOUNCE = 80, INSPECT_AFTER = 150, REST_AFTER = 500; // milliseconds after the last key
const SAID_AFTER = 1000; // a screen reader hears the answer once the typing rests
const LIKELY_WRONG = .5, UNLIKELY_WORD = .2; // as in lists and flags of the command
const MOST_WRITTEN = 40; // tokens that a language model writes behind a text
const FIRST = ["alignment", "heads", "tree", "next"], THEN = ["lens", "flow", "off", "image"];
const LABELS = {
  translate: ["Source", "Translation"], classify: ["Text", "Label"], tag: ["Text", "Labels"],
  generate: ["Text", "What the model writes"], fill: ["Text with [MASK]", "Filled"], embed: ["Text", "Vector"],
};

/**
 * Makes a side.
 *
 * number: 0 or 1; models: those that are served; hears: {isActive, chosen, focused, answered, inspected, rested, pointed, parted}, each given the side.
 * Of a text of several sentences one is looked into; the prefix is that of its translation.
 */
export function makeSide(number, models, hears) {
  const store = makeStore({ model: models[0], text: "", sentence: 0, prefix: "", off: new Set(), settings: {} });
  const source = makeEditor({ id: `source-${number}`, label: "Source", hint: "Type a sentence", onInput: () => typed(), onPoint: n => point("source", n), onCaret: at => putCaret("source", at) });
  const target = makeEditor({ id: `target-${number}`, label: "Translation", hint: "The translation follows what you type", onInput: () => edited(), onPoint: n => point("target", n), onCaret: at => putCaret("target", at) });
  const output = make("div", { class: "output", tabindex: "-1" }), status = make("p", { class: "status" }), strip = make("div", { class: "probabilities", role: "img" });
  const hint = make("p", { class: "hint" });
  const free = make("button", { type: "button", class: "free", hidden: "" }, "Let go of the prefix (Esc)");
  const chooser = make("select", { id: `model-${number}`, "aria-label": "Model" }, ...models.map((one, n) => make("option", { value: String(n) }, one.name)));
  const file = make("input", { type: "file", id: `file-${number}`, accept: "image/*", "aria-label": "Image" });
  const picture = make("img", { class: "picture-read", alt: "" });
  const box = make("section", { class: "side", "aria-label": `Side ${"AB"[number]}` },
    make("div", { class: "model" }, chooser), make("div", { class: "read" }, source.box, file, picture),
    make("div", { class: "written" }, target.box, strip, output), make("div", { class: "told" }, status, hint, free));
  const side = { number, store, box, answer: null, alignment: null, free: null, sentences: null, other: null, source, target, setText, choose, show, tell, verb, asked: lookedInto };
  let timer = 0, controller = new AbortController(), saying = 0, asked = 0, isWaiting = false;

  /** What is asked of the model: the first of its verbs. */
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
    // What was changed about the sentence before is no wish about this one; heads stay off
    store.set({ text: source.area.value.replace(/[\r\n]+/g, " "), prefix: "", sentence: sentenceAt("source", source.area.selectionEnd) });
  }

  /** What is typed up to the caret is the prefix; the model goes on from there. */
  function edited() {
    const text = target.area.value, n = sentenceAt("target", nCommon(text, side.answer?.target.text ?? "")), [start] = spanOf("target", n);
    if (n !== store.get().sentence) choose(n);
    store.set({ prefix: text.slice(start, Math.max(start, target.area.selectionEnd)) });
  }

  /** The sentence that a character is of, as far as is known. */
  function sentenceAt(which, position) {
    return side.sentences ? numberAt(side.sentences.spans(which), position) : 0;
  }

  /** Where a sentence stands in the text of a side: all of it where there is but one. */
  function spanOf(which, n = store.get().sentence) {
    return side.sentences?.spans(which)[n] ?? [0, Infinity];
  }

  /** Looks into another sentence; also while the answer that tells how many there are is on its way. */
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
      side.sentences = null; // they were of another answer, and so was the prefix
      store.set({ prefix: "" });
    }
    free.hidden = !store.get().prefix;
    hint.textContent = free.hidden ? "Point at a word. Or edit the translation: the model goes on from what you type." : "Tab takes a word, Ctrl+Enter all.";
    clearTimeout(timer);
    controller.abort();
    timer = setTimeout(run, DEBOUNCE);
  });

  function request(want, changes = {}) {
    const { model, text, sentence, prefix, off, settings } = store.get();
    return {
      model: model.name, text, ...(sentence ? { sentence } : {}), ...(prefix ? { prefix } : {}), ...(off.size ? { heads_off: [...off] } : {}), ...(want.length ? { want } : {}),
      ...(verb() === "translate" ? { ...settings, ...(model.doubt ? { doubt: true } : {}) } : {}),
      // What it writes is streamed already; here only its text is looked into
      ...(verb() === "generate" ? { max_length: 1 } : {}),
      ...changes,
    };
  }

  /** What is asked of the chosen sentence: with a prefix it goes alone, as that does not say which of several it belongs to. */
  function ofSentence() {
    const one = side.sentences?.list[store.get().sentence];
    return one?.prefix ? { text: one.source, sentence: undefined } : {};
  }

  /** The sentence that is looked into, and the search, as another request has them. */
  function lookedInto() {
    const { model, text, sentence, settings } = store.get();
    const { beam_size, length_penalty } = settings, search = verb() === "translate" ? { beam_size, length_penalty } : {};
    return { model: model.name, text: side.sentences?.list[sentence].source ?? text, ...search };
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
      // A sentence that goes alone is translated again, as a part of nothing
      if (signal.aborted || (side.sentences && event.event === "translation")) return;
      if (event.event === "heads") ({ sentences } = event);
      take(event);
    };
    try {
      if (verb() === "generate") await generate(model, text, signal);
      else if (side.sentences) await lead(signal);
      else await ask(path, request([]), { signal, onEvent });
      await pause(INSPECT_AFTER - DEBOUNCE, signal);
      // Of the side that is not looked into only which words go together
      await ask(path, request(hears.isActive(side) ? FIRST : ["alignment"], ofSentence()), { signal, onEvent });
      if (!side.sentences && await part(sentences, signal)) return;
      if (!hears.isActive(side)) return;
      await pause(REST_AFTER - INSPECT_AFTER, signal);
      await ask(path, request(THEN, ofSentence()), { signal, onEvent });
      if (!signal.aborted) hears.rested(side);
    } catch (error) {
      if (signal.aborted) return;
      // Since the page was loaded, the model may have been trained on: then it answers without doubts, as any other
      if (model.doubt && error.message.startsWith("doubt:")) {
        model.doubt = false;
        return run();
      }
      tell(error.message, true);
    }
  }

  /** Translates a sentence of several by itself; the service has just translated it, and remembers. */
  async function translated(text, changes, signal) {
    let found = null;
    await ask("api/translate", request([], { text, sentence: undefined, prefix: undefined, ...changes }), { signal, onEvent: event => event.event === "translation" && (found = event) });
    return found;
  }

  /** Finds the sentences of the text that was answered; true if another one than was looked into is to be. */
  async function part(texts, signal) {
    const { text, prefix, sentence } = store.get(), found = [];
    // A text that was translated with a prefix may have been left whole
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

  /** Goes on from the prefix of the chosen sentence; the others stay as they are. */
  async function lead(signal) {
    const { sentence, prefix } = store.get(), one = side.sentences.list[sentence];
    if (!prefix) asked = performance.now() - side.spent; // nothing is asked
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

  /** Takes an event of the answer. */
  function take(event) {
    if (event.event === "translation") {
      if (!isWaiting && side.answer?.target.text === event.target.text) return; // the same, with what was wanted besides
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

  /** Shows the translation: what is the model's own is grey, words that a change has brought about are underlined. */
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

  /** How probable each word of the translation is, by its tokens: numbers, or null before that is known. */
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

  /** What the service doubts: numbers of improbable words, and sentences that are as probably wrong as not, each [doubt, first word, word after]. */
  function doubts() {
    /** @type {{words: Set<number>, sentences: number[][]}} */
    const found = { words: new Set(), sentences: [] };
    let first = 0;
    for (const event of side.sentences?.list.map(one => one.answer) ?? [side.answer]) {
      const { doubt, sentence_doubts: each = [], word_probabilities: words = [] } = event?.hypotheses[0] ?? {};
      words.forEach(([, p], n) => p < UNLIKELY_WORD && found.words.add(first + n));
      // Of several that came together nobody says which word is whose; they come alone soon
      if (each.length === 1 && doubt >= LIKELY_WRONG) found.sentences.push([doubt, first, first + words.length]);
      first += words.length;
    }
    return found;
  }

  /** The tooltip of a word of the translation. */
  function doubtOf(n) {
    const { words, sentences } = doubts(), sentence = sentences.find(([, from, to]) => n >= from && n < to);
    return [...sentence ? [`Wrong with probability ${decimal(sentence[0], 2)}.`] : [], ...words.has(n) ? ["The model finds this word improbable."] : []].join(" ");
  }

  function showProbabilities() {
    const found = side.answer && probabilities(), words = side.answer ? wordsOf(side.answer.target.text.slice(...spanOf("target"))) : [];
    strip.replaceChildren(...found && found.length === words.length ? found.map((p, n) => make("span", { title: `${words[n]}: ${decimal(p, 2)}`, style: `flex-grow:${words[n].length};background:color-mix(in srgb, var(--cross) ${Math.round(100 * p)}%, var(--doubt))` })) : []);
    const least = found?.length ? found.indexOf(Math.min(...found)) : -1;
    strip.setAttribute("aria-label", least < 0 ? "Probability of each word" : `Probability of each word; the least is ${words[least]}, ${decimal(found[least], 2)}`);
  }

  /** Marks a word and those that go with it, and says what is known of it. */
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
    status.replaceChildren(make("b", {}, clean(name ?? "")), pairs ? ` ${which === "source" ? "→" : "←"} ` : links.length ? " goes with no word" : "", make("b", {}, clean(pairs)), p === undefined ? "" : `, probability ${decimal(p, 2)}`, ` · ${summary()}`);
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
    else if (event.key === "Enter") { /* a translation has no line end */ }
    // Only where something grey can be taken: else Tab goes on, as everywhere
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
