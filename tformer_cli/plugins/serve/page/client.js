// Requests to the service that sent this page, and its answers: events, line by line.

import { byId } from "./parts.js";

/** What this client has besides answers: reports to save, decisions, and positions. */
export const OFFERS = ["report", "decision", "positions"];

const LATE = 1000; // milliseconds after which an inspection says why it takes so long

/**
 * Sends a request and passes on each event as it arrives; throws an error with the message of the service.
 *
 * @param {string} path
 * @param {Record<string, any>} body
 * @param {{signal?: AbortSignal, onEvent(event: any): void}} how
 */
export async function ask(path, body, { signal, onEvent }) {
  // Translations need no PyTorch, and what was asked for besides is the first that waits for it
  const late = body.want ? setTimeout(sayStarting, LATE) : 0;
  try {
    for await (const line of lines(await post(path, body, signal))) {
      const event = JSON.parse(line);
      if (event.event === "error") throw new Error(event.message);
      if (event.event !== "translation") clearTimeout(late);
      onEvent(event);
    }
  } finally {
    clearTimeout(late);
  }
}

/** Says, where the first heads will be, that the service's PyTorch starts. */
function sayStarting() {
  byId("waiting").textContent = "PyTorch is starting, which takes some seconds. Then heads, the search and the next words appear here.";
}

/** Lets a language model write, and passes on each piece of text as it arrives. */
export async function write(body, { signal, onText }) {
  for await (const line of lines(await post("v1/completions", { ...body, stream: true }, signal))) {
    const data = line.replace(/^data: ?/, "");
    if (line.startsWith("data:") && data !== "[DONE]") onText(JSON.parse(data).choices?.[0]?.text ?? "");
  }
}

/** Requests a single answer. */
export async function answerOf(path, body, signal) {
  return (await post(path, body, signal)).json();
}

/** The served models. */
export async function servedModels() {
  const answer = await fetch("api/models", { headers: keyed() });
  if (!answer.ok) throw Object.assign(new Error(await problemOf(answer)), { wantsKey: answer.status === 401 || answer.status === 403 });
  return (await answer.json()).models;
}

/** Keeps an API key for this tab, until the tab is closed. */
export function keepKey(key) {
  sessionStorage.setItem("key", key);
}

function keyed() {
  const key = sessionStorage.getItem("key");
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function post(path, body, signal) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json", ...keyed() }, body: JSON.stringify(body), signal });
  if (!answer.ok) throw new Error(await problemOf(answer));
  return answer;
}

/** The message of an error response; its place depends on the API. */
async function problemOf(answer) {
  const text = await answer.text();
  try {
    const { error } = JSON.parse(text);
    return error.message ?? error;
  } catch {
    return text || answer.statusText;
  }
}

async function* lines(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    const found = (rest + (value ?? "")).split("\n");
    rest = done ? "" : found.pop();
    yield* found.filter(line => line.trim());
    if (done) return;
  }
}
