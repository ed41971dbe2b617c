// A field whose words can be pointed at: a text area over a mirror with the same text as words.

import { make } from "./parts.js";
import { partsOf } from "./words.js";

/**
 * Makes a field.
 *
 * Calls onInput() on typing, onPoint(n) with the word under the pointer or caret, or null, and onCaret(position) when the caret moves.
 * Returns box, area, show({text, grey, changed, within}), and mark(name, numbers), which gives words a class. grey and within are
 * character spans: text that the model may still change, and the inspected sentence.
 */
export function makeEditor({ id, label, hint, onInput, onPoint, onCaret }) {
  const area = make("textarea", { id, rows: "1", dir: "auto", spellcheck: "false", autocomplete: "off", autocapitalize: "off", placeholder: hint });
  const mirror = make("div", { class: "mirror", dir: "auto", "aria-hidden": "true" });
  const box = make("div", { class: "field" }, make("label", { for: id }, label), make("div", { class: "sheet" }, mirror, area));
  let words = [], pointed = null;

  function show({ text = area.value, grey: [greyFrom, greyTo] = [Infinity, Infinity], changed = new Set(), within: [from, to] = [0, Infinity] } = {}) {
    if (area.value !== text) {
      const { selectionStart, selectionEnd } = area; // keep the caret in place
      area.value = text;
      if (document.activeElement === area) area.setSelectionRange(Math.min(selectionStart, text.length), Math.min(selectionEnd, text.length));
    }
    words = [];
    mirror.replaceChildren(...partsOf(text).map(part => {
      const cut = part.at >= greyTo ? part.text.length : Math.min(Math.max(greyFrom - part.at, 0), part.text.length), rest = part.text.slice(cut);
      const inside = [part.text.slice(0, cut), ...(rest ? [make("span", { class: "rest" }, rest)] : [])];
      if (part.word === null) return part.text;
      const isAside = part.at < from || part.at >= to;
      const span = make("span", { class: `word${changed.has(part.word) ? " changed" : ""}${isAside ? " aside" : ""}` }, ...(cut ? inside : inside.slice(1)));
      words.push(span);
      return span;
    }), "\u200b"); // gives an empty line its height
    pointed = null;
  }

  function point(n) {
    if (n === pointed) return;
    pointed = n;
    onPoint(n);
  }

  /** The word at a point of the window. */
  function wordAt({ clientX: x, clientY: y }) {
    const n = words.findIndex(word => [...word.getClientRects()].some(one => x >= one.left && x <= one.right && y >= one.top && y <= one.bottom));
    return n < 0 ? null : n;
  }

  area.addEventListener("input", () => {
    show();
    onInput();
  });
  area.addEventListener("pointermove", event => point(wordAt(event)));
  area.addEventListener("pointerleave", () => point(null));
  area.addEventListener("blur", () => point(null));
  area.addEventListener("click", () => onCaret(area.selectionEnd));
  area.addEventListener("keyup", event => {
    if (/^(Arrow|Home|End|Page)/.test(event.key)) onCaret(area.selectionEnd);
    const at = area.selectionStart, found = partsOf(area.value).find(part => part.word !== null && at >= part.at && at <= part.at + part.text.length);
    point(found?.word ?? null);
  });
  return {
    box, area, show,
    mark(name, numbers) {
      words.forEach((word, n) => word.classList.toggle(name, numbers.has(n)));
    },
  };
}
