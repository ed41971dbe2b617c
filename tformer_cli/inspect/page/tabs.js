// Tabs. The first is the heads; a file tab_*.js adds another one with addTab.

const isWideScreen = window.matchMedia("(min-width: 1100px)"); // as the style sheet has it
/** @type {Tab[]} */
const tabs = [{ id: "heads", title: "Heads", holds: one => one.heads.length > 0 }];

/**
 * Adds a tab.
 *
 * id: its name in the address; title: its label; holds(sentence): true if there is something to show;
 * show(panel, sentence): fills its empty panel, when the tab is opened.
 *
 * @param {Tab} tab
 */
function addTab(tab) {
  tabs.push(tab);
}

/** Shows the tabs of the sentence, and the one that is chosen. */
function showTabs() {
  const held = tabs.filter(tab => tab.holds(sentence));
  const chosen = held.find(tab => tab.id === state.tab) ?? held[0];
  state.tab = chosen.id;
  byId("tabs").hidden = held.length < 2;
  byId("tabs").replaceChildren(...held.map(tab => {
    const isChosen = tab === chosen;
    const button = make("button", { type: "button", role: "tab", id: `tab-${tab.id}`, "aria-controls": `panel-${tab.id}`,
      "aria-selected": String(isChosen), tabindex: isChosen ? "0" : "-1" }, tab.title);
    button.addEventListener("click", () => update({ tab: tab.id }));
    return button;
  }));
  for (const tab of tabs) {
    const panel = byId(`panel-${tab.id}`) ?? addPanel(tab);
    // Paper has no tabs to open: it shows them all.
    const isShown = tab === chosen || (isPrinting && held.includes(tab));
    panel.hidden = !isShown;
    if (isShown && tab.show) {
      panel.replaceChildren(make("h2", { class: "tab-title" }, tab.title));
      tab.show(panel, sentence);
      elements(".scroll", panel).forEach(letScroll);
    }
  }
}

/** @param {Tab} tab */
function addPanel(tab) {
  const panel = make("section", { id: `panel-${tab.id}`, class: `cards cards-${tab.id}`, role: "tabpanel", "aria-labelledby": `tab-${tab.id}`, tabindex: "-1" });
  byId("panels").append(panel);
  return panel;
}

/**
 * Makes a box focusable while its content overflows.
 *
 * @param {HTMLElement} box
 */
function letScroll(box) {
  const isWide = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight;
  const name = box.querySelector("svg")?.getAttribute("aria-label") ?? box.querySelector("caption")?.textContent ?? "Wide table";
  const step = box.closest(".step")?.querySelector("h3").textContent; // tables of several steps have the same caption
  for (const [attribute, value] of Object.entries({ tabindex: "0", role: "region", "aria-label": step ? `${step}: ${name}` : name })) {
    if (isWide) box.setAttribute(attribute, value);
    else box.removeAttribute(attribute);
  }
}

/**
 * The tab before or after, by the arrow keys.
 *
 * @param {number} step
 */
function moveTab(step) {
  const held = tabs.filter(tab => tab.holds(sentence)), at = held.findIndex(tab => tab.id === state.tab);
  update({ tab: held[(at + step + held.length) % held.length].id });
  byId(`tab-${state.tab}`).focus();
}

/**
 * A table of texts, the first column its rows' names; a cell may be an element.
 *
 * @param {Child[]} names
 * @param {Child[][]} rows
 * @param {string} caption
 */
function plainTable(names, rows, caption) {
  return make("div", { class: "scroll" }, make("table", { class: "wide" }, make("caption", { class: "unseen" }, caption),
    make("thead", {}, make("tr", {}, ...names.map(name => make("th", { scope: "col", class: "text" }, name)))),
    make("tbody", {}, ...rows.map(([name, ...cells]) => make("tr", {}, make("th", { scope: "row", class: "text" }, name), ...cells.map(cell => make("td", { class: "text" }, cell)))))));
}

/**
 * A card of a tab with a heading.
 *
 * @param {string} title
 * @param {Child[]} children
 */
function card(title, ...children) {
  return make("div", { class: "panel" }, ...(title ? [make("h2", {}, title)] : []), ...children);
}
