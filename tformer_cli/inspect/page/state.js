// What is chosen, kept in the address behind the #, so that a link opens the same view.

// Where there is one map a layer, a layer has nothing beside it but other layers.
const SCOPE = data.weighting.isOfLayers ? "kind" : "layer";
/** @type {Record<string, string>} */
const DEFAULTS = { s: "0", head: "", tab: data.tab ?? "heads", view: "map", scope: SCOPE, row: "", key: "", least: "", theme: "auto", boost: "", projector: "", q: "" };
/** @type {Record<string, string[]>} */
const CHOICES = { view: ["map", "lines"], scope: data.weighting.isOfLayers ? ["kind"] : ["layer", "kind"], theme: ["auto", "light", "dark"], boost: ["", "1"], projector: ["", "1"] };
/** @type {Record<string, string>} */
const state = { ...DEFAULTS };

/** Reads the address; an address of a head alone, such as #cross.1.0, is understood too. */
function readAddress() {
  const text = location.hash.slice(1);
  const given = new URLSearchParams(text.includes("=") ? text : `head=${text}`);
  for (const name of Object.keys(DEFAULTS)) {
    const value = given.get(name) ?? DEFAULTS[name];
    state[name] = CHOICES[name]?.includes(value) === false ? DEFAULTS[name] : value;
  }
}

/** Writes the address: what is not as it is by default. */
function writeAddress() {
  const changed = Object.entries(state).filter(([name, value]) => value !== DEFAULTS[name]);
  history.replaceState(null, "", `#${new URLSearchParams(changed)}`);
}

/** True if the screen shows only the map and a sentence, in large letters; a live page keeps its fields. */
function isProjected() {
  return Boolean(state.projector) && !isPrinting && !document.querySelector("#live");
}

/** The row that was clicked and stays marked, or null. */
function pinnedRow(nRows) {
  return pinned("row", nRows);
}

/**
 * A row or a key that stays marked, of so many, or null.
 *
 * @param {'row' | 'key'} name
 * @param {number} count
 */
function pinned(name, count) {
  const place = state[name] === "" ? NaN : Number(state[name]);
  return Number.isInteger(place) && place >= 0 && place < count ? place : null;
}
