// Elements. Every text comes in as a text node or an attribute, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Finds an element of the page by its id.
 *
 * @template {string} Id
 * @param {Id} id
 * @returns {Id extends keyof Parts ? Parts[Id] : HTMLElement}
 */
function byId(id) {
  return /** @type {any} */ (document.getElementById(id));
}

/**
 * Finds all elements of a selector; the page's own are HTML.
 *
 * @param {string} selector
 * @param {ParentNode} root
 * @returns {NodeListOf<HTMLElement>}
 */
function elements(selector, root = document) {
  return root.querySelectorAll(selector);
}

/**
 * Makes an HTML element.
 *
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} tag
 * @param {Record<string, string>} attributes
 * @param {Child[]} children
 * @returns {HTMLElementTagNameMap[Name]}
 */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    // A strict policy refuses the attribute, but not what a script sets.
    if (name === "style") element.style.cssText = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/**
 * Makes an SVG element.
 *
 * @template {keyof SVGElementTagNameMap} Name
 * @param {Name} tag
 * @param {Record<string, string | number>} attributes
 * @param {Child[]} children
 * @returns {SVGElementTagNameMap[Name]}
 */
function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, typeof value === "number" ? String(Math.round(value * 100) / 100) : value);
  }
  element.append(...children);
  return element;
}

/**
 * Makes a button that is pressed or not.
 *
 * @param {Child} label
 * @param {boolean} isPressed
 * @param {Record<string, string>} attributes
 * @param {() => void} onPress
 */
function toggle(label, isPressed, attributes, onPress) {
  const button = make("button", { type: "button", "aria-pressed": String(isPressed), ...attributes }, label);
  button.addEventListener("click", onPress);
  return button;
}

/**
 * A token's label that stands by itself, whatever direction it is written in.
 *
 * @param {string} text
 */
function bidi(text) {
  return make("bdi", {}, text);
}

/**
 * Replaces what XML cannot hold (control characters, halves of surrogate pairs) by U+FFFD.
 *
 * @param {string} text
 */
function clean(text) {
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
}

/**
 * Shortens a token for a figure; whole characters are cut, never halves of them.
 *
 * @param {string} text
 */
function shortened(text, most = 16) {
  const characters = [...clean(text)];
  return characters.length > most ? `${characters.slice(0, most - 1).join("")}…` : characters.join("");
}

/**
 * Writes a number the way tables do, with a real minus.
 *
 * @param {number} value
 */
function decimal(value, digits = 3) {
  const shown = value.toFixed(digits);
  return (Number(shown) === 0 ? shown.replace("-", "") : shown).replace("-", "−");
}
