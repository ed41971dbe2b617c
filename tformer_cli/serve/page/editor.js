// A field whose words can be pointed at: a text area, and behind it the same text as words.

import { make } from "./parts.js";
import { partsOf } from "./words.js";

/**
 * Makes a field.
 *
 * onInput() hears of typing, onPoint(n) of the word under the pointer or the caret, or null.
 * Returns box, area, show({text, greyFrom, changed}), and mark(name, numbers), which gives words a class.
 */
export function makeEditor({ id, label, hint, onInput, onPoint }) {
  const area = make("textarea", { id, rows: "1", dir: "auto", spellcheck: "false", autocomplete: "off", autocapitalize: "off", placeholder: hint });
  const mirror = make("div", { class: "mirror", dir: "auto", "aria-hidden": "true" });
  const box = make("div", { class: "field" }, make("label", { for: id }, label), make("div", { class: "sheet" }, mirror, area));
  let words = [], pointed = null;

  function show({ text = area.value, greyFrom = Infinity, changed = new Set() } = {}) {
    if (area.value !== text) {
      const { selectionStart, selectionEnd } = area; // the caret stays where it was
      area.value = text;
      if (document.activeElement === area) area.setSelectionRange(Math.min(selectionStart, text.length), Math.min(selectionEnd, text.length));
    }
    words = [];
    mirror.replaceChildren(...partsOf(text).map(part => {
      const cut = Math.min(Math.max(greyFrom - part.at, 0), part.text.length), rest = part.text.slice(cut);
      const inside = [part.text.slice(0, cut), ...(rest ? [make("span", { class: "rest" }, rest)] : [])];
      if (part.word === null) return part.text;
      const span = make("span", { class: changed.has(part.word) ? "word changed" : "word" }, ...(cut ? inside : inside.slice(1)));
      words.push(span);
      return span;
    }), "\u200b"); // a line that is empty is as high as others
    pointed = null;
  }

  function point(n) {
    if (n === pointed) return;
    pointed = n;
    onPoint(n);
  }

  /** The word whose box holds a point of the window. */
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
  area.addEventListener("keyup", () => {
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
