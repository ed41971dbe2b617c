// Keys of a request to `tformer.run` and what each may be: whatever the page would not look at is refused by its name.

import { EVENTS } from "./events.js";

const MOST = 1e9, MOST_HYPOTHESES = 10_000, MOST_FILLS = 100; // as in `search/config.py` and the service

/** A check gives what a value must be, or null if it is that; it reads the page, too. */
const integer = (low, high = MOST) => value => Number.isInteger(value) && value >= low && value <= high ? null : `must be an integer from ${low} to ${high}`;
const number = (low, high = MOST) => value => typeof value === "number" && value >= low && value <= high ? null : `must be a number from ${low} to ${high}`;
const text = value => typeof value === "string" ? null : "must be text";
const choice = (...names) => value => names.includes(value) ? null : `must be ${names.join(" or ")}`;
const list = (what, namesOf) => (value, page) => {
  if (!Array.isArray(value)) return `must be a list of ${what}s`;
  const names = namesOf(page), other = value.findIndex(name => !names.includes(name));
  return other < 0 ? null : `no ${what} ${shorten(value[other])}; there are ${names.join(", ") || "none"}`;
};

const COMMON = { text, want: list("event", () => Object.keys(EVENTS)), heads_off: list("head", page => page.heads), head: text, token: value => Number.isInteger(value) ? null : "must be a position, from 0" };
const SEARCH = {
  beam_size: integer(1, MOST_HYPOTHESES), n_best: integer(1, MOST_HYPOTHESES), length_penalty: number(0, 10), length_normalization: choice("gnmt", "average"), max_length: integer(0),
  max_length_ratio: number(1e-9), min_length: integer(0), min_length_ratio: number(0), no_repeat_ngram: integer(0), repetition_penalty: number(1, 1e6),
};
const OWN = { translate: { ...SEARCH, prefix: text, sentence: integer(0) }, fill: { top: integer(1, MOST_FILLS) } };
/** Settings that another one limits. */
const ORDERS = [["n_best", "beam_size"], ["min_length", "max_length"], ["min_length_ratio", "max_length_ratio"]];

const shorten = value => String(value).replace(/\s+/g, " ").slice(0, 40);

/** Returns a request without its missing values, undefined or null; what is wrong with it is an error of one line. */
export function checkRequest(page, request) {
  if (typeof request !== "object" || !request) throw new Error('the request: must be an object, such as {text: "A sentence."}');
  const checks = new Map(Object.entries({ ...COMMON, ...OWN[page.verbs[0]] })), given = Object.entries(request).filter(([, value]) => value !== undefined && value !== null);
  for (const [name, value] of given) {
    if (!checks.has(name)) throw new Error(`${shorten(name)}: no such key; the keys are ${[...checks.keys()].join(", ")}`);
    const problem = checks.get(name)(value, page);
    if (problem) throw new Error(`${name}: ${problem}`);
  }
  const whole = Object.fromEntries(given), settings = { ...page.decoding, ...whole };
  for (const [low, high] of ORDERS) {
    if (low in whole && settings[high] && settings[low] > settings[high]) throw new Error(`${low}: must be at most ${high} = ${settings[high]}, but is ${settings[low]}`);
  }
  return whole;
}
