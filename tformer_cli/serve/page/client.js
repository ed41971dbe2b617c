// Requests to the service this page came from, and the events that it answers with, line by line.

/**
 * Asks and hands on each event as it comes; an error of the service is thrown with its words.
 *
 * @param {string} path
 * @param {Record<string, any>} body
 * @param {{signal?: AbortSignal, onEvent(event: any): void}} how
 */
export async function ask(path, body, { signal, onEvent }) {
  for await (const line of lines(await post(path, body, signal))) {
    const event = JSON.parse(line);
    if (event.event === "error") throw new Error(event.message);
    onEvent(event);
  }
}

/** Lets a language model write, and hands on each piece of text as it comes. */
export async function write(body, { signal, onText }) {
  for await (const line of lines(await post("v1/completions", { ...body, stream: true }, signal))) {
    const data = line.replace(/^data: ?/, "");
    if (line.startsWith("data:") && data !== "[DONE]") onText(JSON.parse(data).choices?.[0]?.text ?? "");
  }
}

/** Asks for one answer. */
export async function answerOf(path, body, signal) {
  return (await post(path, body, signal)).json();
}

/** The models that are served. */
export async function servedModels() {
  const answer = await fetch("api/models", { headers: keyed() });
  if (!answer.ok) throw Object.assign(new Error(await problemOf(answer)), { wantsKey: answer.status === 401 || answer.status === 403 });
  return (await answer.json()).models;
}

/** Keeps a key for the requests of this tab; with the tab it is gone. */
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

/** What an answer that is no success says; each dialect has its own place for it. */
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

/** Waits; an aborted wait throws, as an aborted request does. */
export function pause(milliseconds, signal) {
  return new Promise((done, fail) => {
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      fail(signal.reason);
    });
  });
}
