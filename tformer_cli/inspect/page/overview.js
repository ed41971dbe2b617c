// The overview: every head of the three kinds as a small map with the sign of its role.

/** @type {((head: Head) => boolean) | null} */
let onHead = null; // handles a click on a head; true if nothing else is to be done

/**
 * Sets the handler of a live page for clicks on heads.
 *
 * @param {(head: Head) => boolean} does
 */
function whenHeadIsChosen(does) {
  onHead = does;
}

const THUMBNAIL = 30; // pixels of a small map at most

/** Draws the overview of the sentence. */
function showOverview() {
  const box = byId("overview"), used = new Set();
  box.replaceChildren();
  for (const kind of KINDS) {
    const heads = sentence.heads.filter(head => head.kind === kind);
    if (!heads.length) continue;
    box.append(make("div", { class: "kind", role: "group", "aria-label": data.kinds[kind], style: `--hue: var(--${kind})` },
      make("h2", {}, kindName(kind)), gridOf(heads)));
    for (const head of heads) if (SIGNS[head.role]) used.add(head.role);
  }
  const signs = make("p", { class: "signs" });
  for (const role of used) {
    signs.append(make("span", {}, make("b", {}, SIGNS[role]), ` ${role}: ${data.roles[role]}`));
  }
  if (sentence.rareReason && !data.weighting.isOfLayers) signs.append(make("span", {}, `★ rare: not classified, ${sentence.rareReason}`));
  if (sentence.isRecurrent) {
    signs.append(make("span", {}, "no decoder self-attention: a recurrent unit reads the translation so far, so there is no Flow either"));
  }
  box.append(signs);
  applyFilter();
}

/** @param {Head[]} heads */
function gridOf(heads) {
  const layers = [...new Set(heads.map(head => head.layer))];
  const numbers = [...new Set(heads.map(head => head.head))].sort((a, b) => a - b);
  const grid = make("div", { class: numbers.length > 6 ? "grid many" : "grid", style: `grid-template-columns: 22px repeat(${numbers.length}, minmax(0, var(--thumb, 46px)))` });
  grid.append(make("span"), ...numbers.map(number => make("span", { class: "axis", "aria-hidden": "true" }, String(number ?? "all"))));
  for (const layer of layers) {
    grid.append(make("span", { class: "axis", "aria-hidden": "true" }, `L${layer}`));
    for (const number of numbers) {
      const head = heads.find(one => one.layer === layer && one.head === number);
      grid.append(head ? thumbnail(head) : make("span"));
    }
  }
  return grid;
}

/** @param {Head} head */
function thumbnail(head) {
  const name = SIGNS[head.role] ? `${head.id}, ${head.role}` : head.id;
  head.canvas = make("canvas");
  head.button = toggle(head.canvas, false, { class: "thumb", title: name, "aria-label": name, tabindex: "-1" },
    () => onHead?.(head) || update({ head: head.id }));
  if (SIGNS[head.role]) head.button.append(make("i", { "aria-hidden": "true" }, SIGNS[head.role]));
  paintThumbnail(head);
  return head.button;
}

/**
 * Paints a small map; a pixel shows the largest weight of its cells, so that none gets lost.
 *
 * @param {Head} head
 */
function paintThumbnail(head) {
  const q = rowsOf(head).length, k = columnsOf(head).length, color = rampOf(head.kind);
  const height = Math.min(q, THUMBNAIL), width = Math.min(k, THUMBNAIL);
  const largest = new Float32Array(height * width);
  weightsOf(head).forEach((weight, n) => {
    const at = Math.floor(Math.floor(n / k) * height / q) * width + Math.floor(n % k * width / k);
    if (weight > largest[at]) largest[at] = weight;
  });
  paintField(head.canvas, largest, width, height, color);
}

/**
 * Paints numbers as pixels.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {Float32Array | number[]} values
 * @param {number} width
 * @param {number} height
 * @param {(value: number) => number[]} color
 */
function paintField(canvas, values, width, height, color) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  values.forEach((value, n) => {
    [image.data[4 * n], image.data[4 * n + 1], image.data[4 * n + 2]] = color(value);
    image.data[4 * n + 3] = 255;
  });
  context.putImageData(image, 0, 0);
}

/** Marks the selected head; Tab reaches only this one, the arrow keys the others. */
function markOverview() {
  for (const head of sentence.heads) {
    const isChosen = head.id === state.head;
    head.button.setAttribute("aria-pressed", String(isChosen));
    head.button.tabIndex = isChosen ? 0 : -1;
  }
}

/** Fades the heads that fail the filter, and counts the others. */
function applyFilter() {
  const passes = filterOf(state.q), shown = sentence.heads.filter(passes);
  for (const head of sentence.heads) head.button.classList.toggle("out", !passes(head));
  byId("filter-count").textContent = state.q.trim() ? `${shown.length} of ${sentence.heads.length}` : "";
}
