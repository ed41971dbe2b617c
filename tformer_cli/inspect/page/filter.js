// The filter of the overview: "cross aligner prev>.5" are conditions that must all hold.

const CONDITION = /^([a-z_]+)(>=|<=|>|<)(-?\d*\.?\d+)$/;

/**
 * Parses a filter into a test of heads; all pass an empty filter.
 *
 * @param {string} text
 * @returns {(head: Head) => boolean}
 */
function filterOf(text) {
  const tests = text.toLowerCase().split(/\s+/).filter(Boolean).map(conditionOf);
  return head => tests.every(test => test(head));
}

/**
 * @param {string} word
 * @returns {(head: Head) => boolean}
 */
function conditionOf(word) {
  const [, name, sign, number] = CONDITION.exec(word) ?? [];
  if (!name) return head => head.id.startsWith(word) || head.role?.startsWith(word);
  const limit = Number(number);
  const compare = { ">": x => x > limit, "<": x => x < limit, ">=": x => x >= limit, "<=": x => x <= limit }[sign];
  return head => {
    const value = measure(head, name);
    return value !== undefined && compare(value);
  };
}
