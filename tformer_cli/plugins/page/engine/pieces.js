// Searches that cut a word into pieces of a vocabulary: merges, probabilities, longest match.
// - Merges (Sennrich et al. 2016): always the best pair, of equal ones the first; a heap finds it.
// - Probabilities (Kudo 2018): the best path through all cuts (Viterbi), rounded as the library that
//   is copied rounds: SentencePiece keeps path scores in 32 bits, `tokenizers` in 64.
// - Longest match (Devlin et al. 2019): from the left; a word with an unknown rest is unknown.

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
