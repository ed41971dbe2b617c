// The client of a page that holds its model: the events of the service, computed here.

import { readTensors } from "./engine/weights.js";
import { Model } from "./engine/model.js";
import { readTokenizer } from "./engine/tokenizer.js";
import { makeSpeller } from "./alignment.js";
import { readBase85 } from "./base85.js";
import { answer, BOS, EOS, mapOf, softmax } from "./answers.js";
import { EVENTS } from "./events.js";
import { byId } from "./parts.js";
import { pause } from "./pause.js";
import { checkRequest } from "./requests.js";

export const OFFERS = [];
const N_KEPT = 4, opening = open(), kept = new Map(); // answers to the latest requests, by the request
const VISIBLE = /[^\s\p{Cc}\p{DI}\u2800\ufff9-\ufffb\u{13430}-\u{1343f}\u{16fe4}\u{1d159}]/u; // as in wording.py

async function unzip(id) {
  const stream = new Blob([readBase85(byId(id).textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

async function open() {
  await new Promise(done => setTimeout(done)); // the page is painted first
  const facts = JSON.parse(new TextDecoder().decode(await unzip("model")));
  const model = new Model(facts.config, readTensors(await unzip("weights")));
  for (const id of ["model", "weights"]) byId(id).remove(); // megabytes of text
  const tokenizer = readTokenizer(facts.tokenizer), [spellSource, spellTarget] = ["source", "target"].map(side => makeSpeller(tokenizer[side], facts.spelling[side]));
  return { ...facts, model, tokenizer, spellSource, spellTarget, ends: facts.tokenizer.source };
}

/**
 * Passes on the events that a request wants, each as it is computed; throws an error with its message.
 *
 * @param {string} path
 * @param {Record<string, any>} body
 * @param {{signal?: AbortSignal, onEvent(event: any): void}} how
 */
export async function ask(path, body, { signal, onEvent }) {
  const start = performance.now(), page = await opening, want = body.want ?? [], off = body.heads_off ?? [];
  await pause(0, signal); // an aborted request computes nothing
  const { event, record } = answerOnce(page, { ...body, want: undefined, head: undefined, token: undefined });
  onEvent({ model: page.name, ...event });
  for (const [name, read] of Object.entries(EVENTS)) {
    if (!want.includes(name)) continue;
    const more = await read(page, record, off, { head: body.head, token: body.token, breathe: () => pause(0, signal) });
    if (more) onEvent({ event: name, ...more });
    await pause(0, signal);
  }
  onEvent({ event: "done", ms: { compute: performance.now() - start } });
}

/** Lets a language model write. */
export async function write({ prompt, max_tokens: nTokens, ...settings }, { signal, onText }) {
  const { model, tokenizer, config } = await opening, ids = tokenizer.target.encode(prompt), state = model.start(null), random = randomOf(settings.seed);
  let logits = null, written = "";
  for (const id of config.target_bos ? [BOS, ...ids] : ids) logits = model.step(state, id);
  for (let n = 0; logits && n < nTokens && state.length < config.max_positions; n++) {
    await pause(0, signal);
    const id = draw(logits, settings, random);
    if (id === EOS) return;
    ids.push(id);
    const text = tokenizer.decode(ids).slice(prompt.length);
    if (!text.endsWith("\ufffd")) {
      onText(text.slice(written.length));
      written = text;
    }
    logits = model.step(state, id);
  }
}

/** The served models: this one. */
export async function servedModels() {
  const { name, verbs, languages, doubt } = await opening;
  return [{ name, kind: "text", verbs, doubt: Boolean(doubt), ...languages }];
}

/** Nobody asks this page for a key. */
export function keepKey(_key) {}

/** Only a service decides; see `OFFERS`. */
export async function answerOf(path, _body, _signal) {
  throw new Error(`${path}: this page computes no decisions`);
}

/** The answer to a request: more events for the same one compute nothing again. */
function answerOnce(page, body) {
  if (!VISIBLE.test(body.text ?? "")) throw new Error("text: is missing, or is blank; give a sentence");
  const key = JSON.stringify(body);
  if (!kept.has(key)) kept.set(key, answer(page, body));
  if (kept.size > N_KEPT) kept.delete(kept.keys().next().value);
  return kept.get(key);
}

/** Draws a token: of the most probable ones that reach top_p together. */
function draw(logits, { temperature = 1, top_p: p = 1 }, random) {
  const shares = softmax(logits.map((logit, id) => id < EOS ? -Infinity : logit / temperature)), order = [...shares.keys()].sort((a, b) => shares[b] - shares[a]);
  let mass = 0, n = 0;
  while (n < order.length && mass < p) mass += shares[order[n++]];
  let left = random() * mass;
  return order.slice(0, n).find(id => (left -= shares[id]) <= 0) ?? order[0];
}

/** Random numbers of a seed (mulberry32). */
function randomOf(seed = Math.floor(2 ** 32 * Math.random())) {
  return () => {
    seed = seed + 0x6d2b79f5 | 0;
    let bits = Math.imul(seed ^ seed >>> 15, seed | 1);
    bits ^= bits + Math.imul(bits ^ bits >>> 7, bits | 61);
    return ((bits ^ bits >>> 14) >>> 0) / 2 ** 32;
  };
}

/** For programs and tests: what the model makes of a text, with the weights of all heads (Q, K) and the events that are wanted. */
async function run(asked) {
  const page = await opening, { tokenizer } = page, { want = [], head, token, ...request } = checkRequest(page, asked), body = { ...request, want: undefined, continues: true }, { event, record } = answerOnce(page, body), events = [];
  await ask("", { ...body, want, head, token }, { onEvent: event => events.push(event) });
  const heads = page.heads.map(id => {
    const map = mapOf(page, record, id), nKeys = id.startsWith("dec") ? record.ids.length - 1 : record.source.n;
    return { id, weights: Array.from({ length: map.length / nKeys }, (_, n) => [...map.subarray(n * nKeys, (n + 1) * nKeys)]) };
  });
  const source = { text: record.text, pieces: tokenizer.source.pieces(record.source?.ids ?? []) }, target = { text: record.written, pieces: tokenizer.target.pieces(record.ids.slice(1)) };
  const texts = { translation: event.target?.text, score: event.hypotheses?.[0].score, doubt: event.hypotheses?.[0].doubt, label: event.label, labels: event.words?.map(word => word.label) ?? event.probabilities, filled: event.filled, embedding: event.vector, continuation: event.continuation };
  return { ...Object.fromEntries(Object.entries(texts).filter(([, value]) => value !== undefined)), source, target, heads, ...(want.length ? { events } : {}) };
}

Object.assign(window, { tformer: { run } });
