// Runs an exported page's own client in node: a page and a file of requests in, the answers of `tformer.run` out. Node reads it beside a copy of the client.
import { readFileSync, writeFileSync } from "node:fs";

const [, , path, jobs] = process.argv, html = readFileSync(path, "utf8");
const blocks = Object.fromEntries([...html.matchAll(/<script type="(?:text\/plain|application\/json)" id="(\w+)">(.*?)<\/script>/gs)].map(([, name, text]) => [name, text]));

/** What the client takes of the static page's script. */
Object.assign(globalThis, {
  window: globalThis,
  parts: { byId: id => ({ textContent: blocks[id], remove() {} }), unpacked: text => new Uint8Array(Buffer.from(text, "base64")), data: JSON.parse(blocks.data) },
});
writeFileSync(new URL("parts.js", import.meta.url), "export const { byId, unpacked, data } = globalThis.parts;\n");
await import("./client.js");
const answers = [];
for (const request of JSON.parse(readFileSync(jobs, "utf8"))) answers.push(await globalThis.tformer.run(request).catch(error => ({ error: error.message })));
console.log(JSON.stringify(answers));
