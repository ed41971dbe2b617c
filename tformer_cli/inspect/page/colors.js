// Colors: a ramp for each kind, a hue for each of several heads, light or dark.

const systemIsDark = window.matchMedia("(prefers-color-scheme: dark)");
let isPrinting = false;

// Heads beyond the number of hues are dashed.
const DASHES = ["", "6 3", "2 2", "8 2 2 2"];

/** Whether figures are drawn on a dark ground; paper is light. */
function isDark() {
  return !isPrinting && (state.theme === "dark" || (state.theme === "auto" && systemIsDark.matches));
}

/**
 * A color of the style sheet, such as --ink, as it comes out now.
 *
 * @param {string} name
 */
function styleColor(name) {
  const probe = byId("said");
  probe.style.color = `var(${name})`;
  const color = getComputedStyle(probe).color;
  probe.style.color = "";
  return color;
}

/**
 * The ramp of a kind: a function from a weight to red, green and blue.
 *
 * @param {Kind} kind
 * @returns {(weight: number) => number[]}
 */
function rampOf(kind) {
  const stops = data.ramps[isDark() ? "dark" : "light"][kind]
    .map(code => [1, 3, 5].map(at => parseInt(code.slice(at, at + 2), 16)));
  const lift = state.boost ? Math.sqrt : weight => weight;
  return weight => {
    const place = Math.min(Math.max(lift(weight), 0), 1) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2), share = place - low;
    return stops[low].map((channel, n) => Math.round(channel + (stops[low + 1][n] - channel) * share));
  };
}

/**
 * Writes red, green and blue as #rrggbb.
 *
 * @param {number[]} channels
 */
function hex(channels) {
  return `#${channels.map(channel => channel.toString(16).padStart(2, "0")).join("")}`;
}

/**
 * The color of a text that stands on a color: of black and white the one with more contrast, which is 4.5 at least.
 *
 * @param {number[]} channels
 */
function inkOn(channels) {
  const [red, green, blue] = channels.map(channel => channel <= 10 ? channel / 3294.6 : ((channel / 255 + .055) / 1.055) ** 2.4);
  return .2126 * red + .7152 * green + .0722 * blue > .179 ? "#000000" : "#ffffff";
}

/**
 * Hue and dash of one of several heads: heads of a layer by number, of a kind by layer.
 *
 * @param {{layer?: number, head?: number}} head
 * @param {string} scope
 */
function styleOf(head, scope) {
  const hues = data.hues[isDark() ? "dark" : "light"];
  const number = scope === "kind" ? head.layer : head.head;
  return { color: hues[number % hues.length], dash: DASHES[Math.floor(number / hues.length) % DASHES.length] };
}
