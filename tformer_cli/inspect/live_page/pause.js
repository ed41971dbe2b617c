// Waiting that can be ended.

/**
 * Waits; an aborted wait throws, as an aborted request does.
 *
 * @param {number} milliseconds
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function pause(milliseconds, signal) {
  return new Promise((done, fail) => {
    const abort = () => {
      clearTimeout(timer);
      fail(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort); // a signal outlives many waits
      done();
    }, milliseconds);
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort, { once: true });
  });
}
