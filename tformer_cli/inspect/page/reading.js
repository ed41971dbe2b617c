// How to read this: says in words what the selected head does in this sentence.

const SPECIAL = null; // stands for a token that is part of no word, such as the end of sentence
const FIRST = -1; // stands for such a token at the front of an encoder's input: a class token

/**
 * The words of a side as {texts, ofToken}; a page without words takes every token for one.
 *
 * @param {'source' | 'target'} side
 * @returns {Words}
 */
function wordsOf(side) {
  const given = sentence[`${side}Words`], all = sentence[`${side}Pieces`], pieces = all.slice(0, -1);
  // not every source ends with an end-of-sentence token
  if (given) return { texts: given.texts.map(bare), ofToken: [...given.ofToken, SPECIAL].slice(0, all.length) };
  return { texts: pieces.map(piece => piece.replaceAll("▁", "") || piece), ofToken: [...pieces.keys(), SPECIAL] };
}

/**
 * A word without the punctuation around it and an elided article, as in l'animal, unless it is nothing else. The apostrophe of 't and 're stays.
 *
 * @param {string} word
 */
function bare(word) {
  return word.replace(/^(?!['’]\p{L}{1,2}$)[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, "").replace(/^\p{L}{1,2}['’](?=\p{L}{3})/u, "") || word;
}

/**
 * The name of a token in a sentence: an apostrophe alone says nothing, so it has what comes before it in its word, as in qu'.
 *
 * @param {string[]} pieces
 * @param {number} at
 */
function tokenName(pieces, at) {
  const start = pieces.slice(0, at + 1).map(piece => piece.startsWith("▁")).lastIndexOf(true);
  return wordOf(/^['’]$/.test(pieces[at]) && start >= 0 ? pieces.slice(start, at + 1).join("") : pieces[at]);
}

/**
 * The word that each word of a head's rows looks at most, and how much: [{word, key, weight}]; a key of null is a special token.
 *
 * @param {Head} head
 * @param {number | null} only a row that the others of its word are left out for
 */
function wordLinks(head, only = null) {
  const queries = wordsOf(head.kind === "enc" ? "source" : "target"), keys = wordsOf(head.kind === "dec" ? "target" : "source");
  // The decoder reads the begin of sentence first: its key j is token j - 1.
  const ofColumn = head.kind === "dec" ? [SPECIAL, ...keys.ofToken.slice(0, -1)] : [...keys.ofToken];
  if (head.kind !== "dec" && ofColumn.length > 1 && ofColumn[0] === SPECIAL) ofColumn[0] = FIRST;
  const values = weightsOf(head), k = ofColumn.length;
  // A row shows single tokens, of which the strongest is named
  const nameOfKey = key => {
    const columns = [...ofColumn.keys()].filter(j => ofColumn[j] === key).sort((a, b) => values[only * k + b] - values[only * k + a]);
    return only === null || columns.length < 2 ? keys.texts[key] : tokenName(columnsOf(head), columns[0]);
  };
  return queries.texts.map((_, word) => {
    const all = queries.ofToken.flatMap((of, i) => of === word ? [i] : []), sums = new Map();
    const rows = only === null ? all : all.filter(i => i === only), isPart = rows.length < all.length;
    for (const i of rows) {
      for (let j = 0; j < k; j++) sums.set(ofColumn[j], (sums.get(ofColumn[j]) ?? 0) + numberOf(values[i * k + j]) / rows.length);
    }
    const [key, weight] = [...sums].reduce((best, one) => one[1] > best[1] ? one : best, [SPECIAL, -1]);
    return { word, key, weight, rows, name: isPart ? tokenName(rowsOf(head), only) : queries.texts[word], keyName: isWord(key) ? nameOfKey(key) : "" };
  }).filter(link => link.rows.length);
}

/** Tells a word from a special token. */
const isWord = key => key !== SPECIAL && key !== FIRST;

/** The words of a translation that a nearly equal sentence on the page lacks: the point of a pair. */
function tellingApart(words) {
  const others = data.sentences.filter(one => one !== sentence).map(one => new Set((one.targetWords?.texts ?? []).map(bare)));
  const near = others.find(other => 2 * words.filter(word => other.has(word)).length > words.length);
  return new Set(near ? words.filter(word => !near.has(word)) : []);
}

/**
 * The most telling link: a strong one between two long words that differ and, in cross-attention, are aligned; with two similar sentences, one where they differ.
 *
 * @param {Head} head
 */
function tellingLink(head) {
  const links = wordLinks(head), apart = tellingApart(links.map(link => link.name));
  const isAligned = ({ word, key }) => head.kind === "cross" && sentence.links.some(([source, target]) => source === key && target === word);
  const worth = ({ word, key, weight, name, keyName }) => (data.weighting.isShare ? weight : weight / sentence.largest)
    + (isAligned({ word, key }) ? 1 : 0) + (head.kind === "cross" && apart.has(name) ? .5 : 0)
    + (isWord(key) ? 0 : -1) + (name.toLowerCase() === keyName.toLowerCase() ? -.5 : 0) + (head.kind !== "cross" && key === word ? -1 : 0) + (Math.min(name.length, keyName.length) > 3 ? 1 : 0);
  const best = links.reduce((most, link) => !most || worth(link) > worth(most) ? link : most, null);
  // A head that mostly rests on a special token is described by that.
  const resting = links.filter(link => !isWord(link.key));
  return resting.length > links.length / 2 ? resting.reduce((most, link) => link.weight > most.weight ? link : most) : best;
}

/**
 * The link of the word that a row is part of, if it is part of one.
 *
 * @param {Head} head
 * @param {number | null} row
 */
function linkOfRow(head, row) {
  return row === null ? undefined : wordLinks(head, row)[0];
}

/** Writes two lines: the effect of the head, on the decision if there is one, and how to read its map. */
function showGuide() {
  const head = chosenHead(), pinnedLink = linkOfRow(head, pinnedRow(rowsOf(head).length));
  const decision = viewOf(sentence, "decision"), part = decision?.heads.find(one => one.id === head.id);
  // With two sentences, the rows of parts belong to the first
  const number = data.sentences.indexOf(sentence), hasRow = part && (decision.sentences.length < 2 || !number);
  const link = pinnedLink ?? (hasRow && decision.cause ? linkOfRow(head, part.row) : undefined) ?? tellingLink(head);
  byId("guide").hidden = !link;
  if (!link) return;
  const word = text => make("b", {}, bidi(text));
  const writes = head.kind === "enc" ? "reads " : "writes ";
  const subject = data.weighting.isOfLayers ? "the map of layer " : "head ";
  const share = data.weighting.isShare ? ` (${Math.round(100 * link.weight)}% of ${data.weighting.isOfLayers ? "it" : "its attention"})` : "";
  const does = { alpha: "looks at ", norm: "takes most from " }[data.weighting.name] ?? "leads back to ";
  const columns = columnsOf(head), column = head.kind === "dec" || link.key === FIRST ? columns[0] : columns[columns.length - 1];
  const place = link.key === FIRST ? column : head.kind === "dec" ? "the start of the sentence" : "the end of the sentence";
  const most = isWord(link.key) ? [word(link.keyName)] : [make("b", {}, place), ", a place to rest"];
  const isSpread = data.weighting.name === "alpha" && (link.weight < .3 || head.role === "broad");
  // For a pinned row, the head's work there says more
  const isPart = hasRow && state.row === String(part.row);
  if (part && decision.cause && (!pinnedLink || isPart)) byId("guide-says").replaceChildren(...causeOf(decision, part, number));
  else byId("guide-says").replaceChildren(`When the model ${writes}`, word(link.name), `, ${subject}`, make("b", {}, head.id), " ",
    isSpread ? "spreads its attention and looks most at " : does, ...most, share, ".");
  byId("guide-does").replaceChildren("On the map, find this at row ", word(link.name), ", column ",
    isWord(link.key) ? word(link.keyName) : make("b", {}, column),
    ". The stronger the color, the larger the number. ", make("span", { class: "pointing" }, `Point at any ${readsImages() ? "patch" : "word"} to see where the head looks; click to keep it.`));
}
