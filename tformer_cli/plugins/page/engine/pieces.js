// Searches that cut a word into pieces of a vocabulary: merges, probabilities, longest match.
// - Merges (Sennrich et al. 2016): always the best pair, of equal ones the first; a heap finds it.
// - Probabilities (Kudo 2018): the best path through all cuts (Viterbi), rounded as the library that
//   is copied rounds: SentencePiece keeps path scores in 32 bits, `tokenizers` in 64.
// - Longest match (Devlin et al. 2019): from the left; a word with an unknown rest is unknown.

// How much less an unknown character scores than any piece, in both libraries
export const UNKNOWN_PENALTY = 10;

/**
 * Joins neighbors while a pair has a rank: the lowest first, of equal ranks the leftmost.
 * @param {string[]} symbols
 * @param {(left: string, right: string) => number | undefined} rankOf below 2^28
 * @returns {string[]}
 */
export function mergeSymbols(symbols, rankOf) {
  const parts = [...symbols], next = parts.map((_, place) => place + 1), before = parts.map((_, place) => place - 1);
  const heap = /** @type {{order: number, place: number, size: number}[]} */ ([]);
  const offer = (/** @type {number} */ place) => {
    if (place < 0 || next[place] >= parts.length) return;
    const rank = rankOf(parts[place], parts[next[place]]);
    if (rank === undefined) return;
    const size = parts[place].length + parts[next[place]].length;
    pushOrder(heap, { order: rank * 2 ** 24 + place, place, size });
  };
  for (let place = 0; place < parts.length - 1; place++) offer(place);
  while (heap.length) {
    const { place, size } = popOrder(heap), other = next[place];
    // one of the two was joined to another meanwhile
    if (!parts[place] || other >= parts.length || parts[place].length + parts[other].length !== size) continue;
    parts[place] += parts[other];
    parts[other] = "";
    next[place] = next[other];
    if (next[other] < parts.length) before[next[other]] = place;
    offer(before[place]);
    offer(place);
  }
  return parts.filter(part => part);
}

/** @template {{order: number}} T @param {T[]} heap @param {T} entry */
function pushOrder(heap, entry) {
  let place = heap.push(entry) - 1;
  while (place > 0) {
    const parent = (place - 1) >> 1;
    if (heap[parent].order <= entry.order) break;
    heap[place] = heap[parent];
    place = parent;
  }
  heap[place] = entry;
}

/** @template {{order: number}} T @param {T[]} heap @returns {T} */
function popOrder(heap) {
  const first = heap[0], last = heap.pop();
  if (!heap.length) return first;
  let place = 0;
  for (let child = 1; child < heap.length; child = 2 * place + 1) {
    if (child + 1 < heap.length && heap[child + 1].order < heap[child].order) child++;
    if (heap[child].order >= last.order) break;
    heap[place] = heap[child];
    place = child;
  }
  heap[place] = last;
  return first;
}

/**
 * Lists pieces and all their beginnings, so that a search knows where to stop.
 *
 * @param {Iterable<[string, number]>} pieces
 * @returns {Map<string, number>} -1: only the beginning of a piece
 */
export function listPrefixes(pieces) {
  const prefixes = new Map(pieces);
  for (const piece of [...prefixes.keys()]) {
    for (let end = piece.length - 1; end > 0 && !prefixes.has(piece.slice(0, end)); end--) prefixes.set(piece.slice(0, end), -1);
  }
  return prefixes;
}

/**
 * Finds the cut of the highest score; of equal ones, that whose last piece is the longest.
 *
 * @param {string} text
 * @param {Map<string, number>} prefixes of `listPrefixes`
 * @param {(number: number, piece: string) => number} scoreOf
 * @param {number} unknownScore of a character that is no piece
 * @param {(score: number) => number} round as scores of paths are stored
 * @returns {{text: string, number: number}[]} -1: an unknown character
 */
export function findBestCut(text, prefixes, scoreOf, unknownScore, round) {
  const scores = new Float64Array(text.length + 1), numbers = new Int32Array(text.length + 1);
  const starts = new Int32Array(text.length + 1).fill(-1);
  const offer = (/** @type {number} */ start, /** @type {number} */ end, /** @type {number} */ number, /** @type {number} */ step) => {
    const score = round(scores[start] + step);
    if (starts[end] >= 0 && score <= scores[end]) return;
    scores[end] = score;
    starts[end] = start;
    numbers[end] = number;
  };
  for (let start = 0, size = 1; start < text.length; start += size) {
    size = text.codePointAt(start) > 0xffff ? 2 : 1;
    let isKnown = false;
    for (let end = start + size; end <= text.length; end++) {
      const piece = text.slice(start, end), number = prefixes.get(piece);
      if (number === undefined) break;
      if (number < 0) continue;
      isKnown ||= end === start + size;
      offer(start, end, number, scoreOf(number, piece));
    }
    if (!isKnown) offer(start, start + size, -1, unknownScore);
  }
  const cut = [];
  for (let end = text.length; end > 0; end = starts[end]) cut.push({ text: text.slice(starts[end], end), number: numbers[end] });
  return cut.reverse();
}

/**
 * Cuts the longest piece again and again; pieces inside a word have a prefix.
 *
 * @param {string} word @param {string} prefix @param {(piece: string) => number | undefined} find
 * @returns {number[] | null} null: no piece matches somewhere
 */
export function cutLongest(word, prefix, find) {
  const characters = [...word], cut = [];
  for (let start = 0; start < characters.length;) {
    let end = characters.length, number;
    for (; end > start; end--) {
      number = find((start ? prefix : "") + characters.slice(start, end).join(""));
      if (number !== undefined) break;
    }
    if (number === undefined) return null;
    cut.push(number);
    start = end;
  }
  return cut;
}
