// The next word: the most probable tokens at a position, after temperature, top-k and top-p.
// The logits arrive once; the sliders are applied here.

import { addTab, bidi, card, clean, data, decimal, make, tabs } from "./parts.js";

const SHOWN = 12;
// Position null follows the text: its end if the model continues it, else its beginning.
const settings = { position: null, temperature: 1, k: 0, p: 1 };
let redraw = () => {}; // draws the visible bars

/** Shows the position of the word under the pointer. */
export function showPosition(n) {
  settings.position = n;
  redraw();
}

/** Probabilities of the largest logits at a temperature; the last is the sum of all others. */
export function sharesOf({ top, rest }, temperature) {
  const scaled = top.map(([, logit]) => logit / temperature);
  // The sum of the others is known only at temperature 1: elsewhere it is a guess, but small.
  const others = rest === null ? -Infinity : rest / temperature;
  const most = Math.max(...scaled, others), parts = [...scaled, others].map(one => Math.exp(one - most));
  const total = parts.reduce((sum, one) => sum + one, 0);
  return parts.map(one => one / total);
}

/** True for each token that sampling could choose: among the first k, and the first that reach p together. */
export function keptOf(shares, k, p) {
  let sum = 0;
  return shares.slice(0, -1).map((share, n) => {
    const isKept = (k === 0 || n < k) && sum < p;
    sum += share;
    return isKept;
  });
}

/** Adds the tab; calls onTake(position, piece) when the user picks another token. */
export function addNextTab(onTake) {
  addTab({
    id: "next",
    get title() {
      return data.model?.n_decoder_layers ? "Next word" : "Probabilities";
    },
    holds: one => Boolean(one.next),
    show(panel, one) {
      const { positions } = one.next, body = make("div", { class: "bars" });
      const isText = !data.model.n_encoder_layers;
      const at = () => Math.min(settings.position ?? (isText ? positions.length - 1 : 0), positions.length - 1);
      const chooser = make("select", { id: "next-position", "aria-label": "Position" }, ...positions.map((_, n) => make("option", { value: String(n) }, `${n + 1}  ${clean(nameOf(one, n))}`)));
      const draw = redraw = () => {
        chooser.value = String(at());
        body.replaceChildren(...bars(one, at(), onTake));
      };
      chooser.addEventListener("change", () => {
        settings.position = Number(chooser.value);
        draw();
      });
      panel.append(card(data.model.n_decoder_layers ? "What comes next" : "What it could be", make("p", { class: "says" },
        "The most probable tokens at a position. A temperature below 1 sharpens the distribution, above 1 it flattens it; sampling draws from the filled bars, which pass top-k and top-p.",
        data.model.n_decoder_layers ? " Click a bar to continue with that token." : ""),
        make("div", { class: "pick" }, make("label", {}, "Position ", chooser), slider("temperature", "Temperature", .1, 3, .1, draw), slider("k", "Top-k (0: all)", 0, 64, 1, draw), slider("p", "Top-p", .05, 1, .05, draw)), body));
      draw();
    },
  });
  // Next to the search tree, which shows the same at every step
  const [tab] = tabs.splice(-1), after = tabs.findIndex(one => one.id === "search");
  tabs.splice(after + 1, 0, tab);
}

/** The token that a position predicts, or its gap or word. */
function nameOf(one, n) {
  const pieces = one.targetPieces.length ? one.targetPieces : one.views.logits?.positions?.map(position => position.piece) ?? [];
  return pieces[n] ?? "";
}

function slider(name, label, min, max, step, draw) {
  const shown = make("output", {}, String(settings[name]));
  const input = make("input", { type: "range", id: `next-${name}`, min: String(min), max: String(max), step: String(step) });
  input.value = String(settings[name]);
  input.addEventListener("input", () => {
    settings[name] = Number(input.value);
    shown.textContent = input.value;
    draw();
  });
  return make("label", {}, `${label} `, input, shown);
}

function bars(one, at, onTake) {
  const position = one.next.positions[at];
  const shares = sharesOf(position, settings.temperature), kept = keptOf(shares, settings.k, settings.p);
  const chosen = nameOf(one, at), largest = Math.max(...shares.slice(0, -1));
  return position.top.slice(0, SHOWN).map(([piece], n) => {
    const bar = make("span", { class: "fill", style: `width:${(100 * shares[n] / largest).toFixed(1)}%` });
    const button = make("button", { type: "button", class: kept[n] ? "next kept" : "next", ...(piece === chosen ? { "aria-current": "true" } : {}) },
      make("span", { class: "piece" }, bidi(clean(piece))), make("span", { class: "track" }, bar), make("span", { class: "number" }, decimal(shares[n])));
    button.addEventListener("click", () => onTake(at, piece));
    return button;
  });
}
