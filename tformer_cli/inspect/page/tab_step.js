// Step by step: computes a head for one token, with the model's own numbers.

let walk = 0; // number of the walk-through on show

addTab({
  id: "steps",
  title: "Step by step",
  holds: one => Boolean(viewOf(one, "step")?.length),
  show(panel, one) {
    const walks = viewOf(one, "step");
    walk = Math.min(walk, walks.length - 1);
    const chosen = walks[walk], checks = chosen.steps.flatMap(step => step.checks);
    const choices = walks.map((record, n) => toggle(`${record.head} · `, n === walk, {}, () => {
      walk = n;
      showTabs();
    }));
    choices.forEach((button, n) => button.append(bidi(walks[n].token)));
    if (chosen.quiz) panel.append(sheetCard(chosen, one));
    panel.append(card("", ...(walks.length > 1 ? [make("div", { class: "choices", role: "group", "aria-label": "Head and token" }, ...choices)] : []),
      make("h3", {}, `${chosen.head}: ${data.kinds[chosen.head.split(".")[0]]}`),
      make("p", { class: "says" }, `When the model ${chosen.head.startsWith("enc") ? "reads" : "writes"} `, make("b", {}, bidi(chosen.token)),
        `, this head gives ${Math.round(100 * chosen.weight)}% of its attention to `, make("b", {}, bidi(chosen.key_piece)), "."),
      make("p", { class: "says" }, `${chosen.where[0].toUpperCase()}${chosen.where.slice(1)}. This is a ${chosen.norm}-norm model; `
        + `${checks.length} comparisons with the numbers it computed, largest difference ${chosen.difference.toExponential(1)}. `
        + `${chosen.is_whole ? "Orange is above 0, blue below." : "Long vectors are cut to their first components. To see them whole: "}`,
      ...(chosen.is_whole ? [] : [make("code", {}, `tformer inspect-step … --head ${chosen.head} --token ${chosen.row}`)]))));
    if (chosen.is_whole) { // marks the query token
      const strip = byId(chosen.head.startsWith("enc") ? "source" : "target").children;
      strip[chosen.row + (chosen.head.startsWith("enc") ? 0 : 1)].classList.add("query");
    }
    const cards = chosen.steps.map(step => stepCard(step, chosen));
    const index = make("nav", { class: "panel index", "aria-label": "Steps" }, make("h2", {}, "Steps"), make("ol", {}, ...chosen.steps.map((step, n) => {
      const button = make("button", { type: "button" }, ...symbols(step.title));
      button.addEventListener("click", () => {
        cards[n].scrollIntoView({ block: "start" });
        cards[n].querySelector("h3").focus({ preventScroll: true });
      });
      return make("li", { value: String(step.number) }, button);
    })));
    if (chosen.quiz?.some(blank => "value" in blank)) cards.push(answersCard(chosen.quiz));
    panel.append(make("div", { class: chosen.quiz ? "indexed sheet" : "indexed" }, index, make("div", { class: "cards" }, ...cards)));
  },
});

function stepCard(step, record) {
  const top = make("div", { class: "step-top" }, make("span", { class: "step-number" }, String(step.number)), make("h3", { tabindex: "-1" }, ...symbols(step.title)));
  if (step.checks.length) {
    const compared = step.checks.map(({ what, difference }) => `${what}: ${difference.toExponential(1)}`).join("; ");
    const largest = Math.max(...step.checks.map(check => check.difference));
    top.append(make("span", { class: "check", title: compared }, `✓ as the model, max difference ${largest.toExponential(1)}`));
  }
  const words = make("div", {}, ...step.formulas.map(text => make("p", { class: "formula" }, ...symbols(text))),
    make("p", { class: "says" }, ...symbols(step.says, /\b([dbW])_([kO])\b/)));
  if (step.worked) words.append(make("p", { class: "worked" }, `e.g. ${step.worked}`));
  const tables = make("div", { class: "step-tables" }, ...step.tables.map(stepTable), ...(step.name === "matrix" ? wholeMap(record) : []));
  // Several wide tables need the whole width; narrow steps go side by side; otherwise the text goes next to its table.
  const widths = step.tables.filter(table => !table.is_detail).map(table => table.values[0].length), nWide = widths.filter(width => width > 4).length;
  const layout = nWide > 1 ? " stacked" : nWide === 0 && widths.length ? " narrow" : "";
  return make("div", { class: `panel step${layout}` }, top, make("div", { class: "step-body" }, words, tables));
}

/** The map of the whole head with the row of the walk-through marked, if the page has the head. */
function wholeMap(record) {
  const head = headNamed(record.head);
  if (!head) return [];
  const figure = mapOfOne(head, { rows: rowsOf(head), columns: columnsOf(head), room: 560 });
  figure.mark({ row: record.row });
  return [make("div", { class: "scroll" }, figure.svg)];
}

/** Sets a formula: x_y gets a subscript, e^(x) and e^x a power. */
function symbols(text, subscript = /(\S)_([A-Za-z]+|\d+)/) {
  const powers = text.split(/e\^\(([^()]*)\)|e\^\((\S*)\)/);
  // split returns text, a power in parentheses, a power without, text, …
  return powers.flatMap((part, n) => {
    if (part === undefined) return [];
    if (n % 3) return ["e", make("sup", {}, ...lowered(part, subscript))];
    return lowered(part, subscript);
  });
}

function lowered(text, subscript) {
  const parts = text.split(new RegExp(subscript.source, "g"));
  return parts.flatMap((part, n) => [[part], [part], [make("sub", {}, part)]][n % 3]);
}

/** The head of a worksheet: its title, a line for the name, and what to do. */
function sheetCard(record, one) {
  const number = data.sentences.length > 1 ? ` ${data.sentences.indexOf(one) + 1}` : "";
  return make("div", { class: "panel sheet-head" }, make("h2", {}, `Worksheet${number}: attention head ${record.head} for `, bidi(record.token)),
    make("p", { class: "name-line" }, "Name: ", make("span", {}), " Date: ", make("span", {})), make("p", {}, record.instruction));
}

/** The answers of a worksheet, folded away. */
function answersCard(quiz) {
  const rows = quiz.map(blank => [`(${blank.number})`, decimal(blank.value), `step ${blank.step}, ${blank.what}`]);
  return make("details", { class: "panel" }, make("summary", {}, "Answers"), plainTable(["blank", "answer", "where"], rows, "Answers"));
}

function stepTable(table) {
  if (!table.is_detail) return drawnTable(table);
  return make("details", {}, make("summary", {}, bidi(table.caption)), drawnTable(table));
}

function drawnTable(table) {
  const columns = table.columns.length ? table.columns : table.values[0].map((_, n) => String(n));
  const cut = table.width > columns.length ? [make("th", { scope: "col" }, `… of ${table.width}`)] : [];
  const shareHead = table.share === null ? [] : [make("th", { class: "text", "aria-hidden": "true" })];
  const largest = Math.max(...table.values.flat().map(value => Math.abs(value ?? 0)), 1e-30);
  const isMasked = (row, i) => row.some((value, j) => value === null && !(`${i},${j}` in table.blanks));
  const isNamed = table.columns.length > 0, hasMasked = isNamed && table.share === null && table.values.some(isMasked);
  const lines = table.rows.map((text, i) => {
    const cells = table.values[i].map((value, j) => `${i},${j}` in table.blanks ? blankCell(table.blanks[`${i},${j}`]) : stepCell(value, largest, table.columns.length > 0));
    if (table.share !== null) {
      cells.push(isNamed && isMasked(table.values[i], i) ? make("td", { class: "text" }, "masked") : make("td", { class: "text", "aria-hidden": "true" }, make("span", { class: "share", style: `width:${(110 * (table.values[i][table.share] ?? 0)).toFixed(1)}px` })));
    }
    if (hasMasked) cells.push(make("td", { class: "text" }, isMasked(table.values[i], i) ? "masked" : ""));
    return make("tr", i === table.marked ? { class: "on" } : {}, make("th", { scope: "row", class: "text" }, bidi(text)), ...cells);
  });
  return make("div", { class: table.rows.length > 2 ? "scroll" : "scroll flat" }, make("table", { class: "wide" }, make("caption", {}, bidi(table.caption)),
    make("thead", {}, make("tr", {}, make("td"), ...columns.map(text => make("th", { scope: "col" }, ...symbols(text))), ...cut, ...shareHead, ...(hasMasked ? [make("td")] : []))),
    make("tbody", {}, ...lines)));
}

/** A gap of a worksheet, to be filled in. */
function blankCell(number) {
  return make("td", { class: "blank" }, make("b", {}, `(${number})`), make("input", { "aria-label": `blank ${number}` }));
}

/** A number of a table; in vectors, larger numbers get more color: blue below 0, orange above. */
function stepCell(value, largest, isPlain) {
  if (value === null) return make("td", { class: "masked" }, "−∞");
  const tint = isPlain ? 0 : .45 * Math.abs(value) / largest;
  const style = tint < .02 ? {} : { style: `background:color-mix(in srgb, var(${value > 0 ? "--dec" : "--enc"}) ${(100 * tint).toFixed(0)}%, transparent)` };
  return make("td", style, decimal(value));
}
