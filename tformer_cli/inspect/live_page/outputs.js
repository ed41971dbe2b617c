// Answers other than translations: labels of texts, words and gaps, and vectors.

import { bidi, clean, decimal, make } from "./parts.js";

/** Makes the elements that show an answer. */
export function outputOf(event) {
  if (event.event === "classification") return [labelBars(event.probabilities ?? { [event.label]: event.probability })];
  if (event.event === "tags") return [taggedWords(event.words)];
  if (event.event === "filled") return [make("p", { class: "filled", dir: "auto" }, clean(event.filled)), ...event.gaps.map(gapBars)];
  if (event.event === "embedding") return [make("p", { class: "says" }, `A vector of ${event.vector.length} numbers; the tabs show where it comes from.`)];
  return [];
}

function labelBars(probabilities) {
  const rows = Object.entries(probabilities).sort((a, b) => b[1] - a[1]);
  return make("dl", { class: "labels" }, ...rows.map(([label, p], n) => make("div", n ? {} : { class: "on" }, make("dt", {}, bidi(clean(label))),
    make("dd", {}, make("span", { class: "track", "aria-hidden": "true" }, make("span", { class: "fill", style: `width:${(100 * p).toFixed(1)}%` })), make("span", { class: "number" }, decimal(p))))));
}

function taggedWords(words) {
  return make("div", { class: "tagged" }, ...words.map(({ word, label, probability }) => make("span", { class: "tag", title: decimal(probability) }, bidi(clean(word)), make("small", {}, clean(label)))));
}

function gapBars(gap, n) {
  return make("div", {}, make("h2", {}, `Gap ${n + 1}`), labelBars(Object.fromEntries(gap.map(one => [one.token, one.probability]))));
}
