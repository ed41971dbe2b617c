// The choices and texts of a side, in one place; subscribers are told of changes.

/**
 * Makes a store of named values.
 *
 * Returns get(), set(changes), which calls the subscribers with the changed names, and subscribe(does).
 */
export function makeStore(values) {
  const subscribers = [];
  return {
    get: () => values,
    set(changes) {
      const changed = Object.keys(changes).filter(name => values[name] !== changes[name]);
      values = { ...values, ...changes };
      if (changed.length) for (const does of subscribers) does(new Set(changed));
    },
    subscribe: does => subscribers.push(does),
  };
}
