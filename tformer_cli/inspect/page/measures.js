// Numbers of the selected head: its measures, its strongest links, and its whole map as a table.

/** Writes the measures and the role. */
function showMeasures() {
  const head = chosenHead(), table = byId("metrics");
  table.style.setProperty("--hue", `var(--${head.kind})`);
  const lines = Object.entries(head.metrics).map(([name, value]) => {
    const isShare = name !== "entropy" && !(name === "distance" && head.kind !== "cross");
    const bar = make("td", { class: "bar" });
    if (isShare) bar.append(make("div", { class: "track" }, make("div", { style: `width:${Math.min(100, Math.max(0, value * 100))}%` })));
    return make("tr", {}, make("th", { scope: "row" }, term(data.metrics[name], name), make("code", {}, name)), bar, make("td", { class: "number" }, decimal(value)));
  });
  const effect = measure(head, "loss");
  if (effect !== undefined) {
    lines.push(make("tr", {}, make("th", { scope: "row" }, term(data.terms.loss, "loss"), make("code", {}, "loss")), make("td", { class: "bar" }),
      make("td", { class: "number" }, signed(effect))));
  }
  table.replaceChildren(make("caption", { class: "unseen" }, `Measures of ${head.id}`), make("tbody", {}, ...lines));
  const named = SIGNS[head.role] ? `${SIGNS[head.role]} ${head.role}: ${data.roles[head.role]}` : "No role: no rule applies.";
  byId("role").textContent = data.weighting.isOfLayers ? "All heads of this layer and of the layers before it." : named;
  byId("said").textContent = `${head.id}, ${data.kinds[head.kind]}${head.role ? `, role ${head.role}` : ""}`;
  showLinks(head);
  if (byId("numbers").open) showNumbers();
}

/**
 * Writes a difference with its sign.
 *
 * @param {number} value
 */
function signed(value, digits = 4) {
  const shown = decimal(value, digits);
  return shown.startsWith("−") || Number(shown) === 0 ? shown : `+${shown}`;
}

/** @param {Head} head */
function showLinks(head) {
  const values = weightsOf(head), names = columnsOf(head), k = names.length;
  const lines = rowsOf(head).map((text, i) => {
    const row = values.subarray(i * k, (i + 1) * k), best = row.indexOf(Math.max(...row));
    const line = make("tr", {}, make("td", { dir: "auto" }, text), make("td", {}, "→"), make("td", { dir: "auto" }, names[best]),
      make("td", { class: "number" }, written(row[best], 3)));
    line.addEventListener("pointerenter", () => hover({ row: i, column: best }));
    line.addEventListener("pointerleave", () => hover(null));
    return line;
  });
  byId("links").replaceChildren(make("caption", { class: "unseen" }, `Strongest key of each row of ${head.id}`), make("tbody", {}, ...lines));
}

/** The map as a table, for screen readers and copying; made only when opened. */
function showNumbers() {
  const head = chosenHead(), values = weightsOf(head), columns = columnsOf(head), k = columns.length;
  const heads = columns.map(text => make("th", { scope: "col" }, bidi(text)));
  const lines = rowsOf(head).map((text, i) => make("tr", {}, make("th", { scope: "row" }, bidi(text)),
    ...columns.map((_, j) => head.kind === "dec" && j > i
      ? make("td", { class: "masked", "aria-label": "masked" }, "–")
      : make("td", {}, written(values[i * k + j], 3)))));
  byId("numbers").querySelector(".scroll").replaceChildren(make("table", { class: "wide", id: "weights" },
    make("caption", {}, `${head.id}: ${data.weighting.meaning}; rows are queries, columns are keys`),
    make("thead", {}, make("tr", {}, make("th", { scope: "col", class: "text" }, "query \\ key"), ...heads)),
    make("tbody", {}, ...lines)));
}
