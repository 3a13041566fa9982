// Work that is overtaken by newer work of its kind: a slider asks more often than a model answers.

/**
 * A function that does one thing at a time. Of what it is told meanwhile only the last is done;
 * the others come to nothing: null.
 * @template T, R
 * @param {(given: T) => Promise<R>} act
 * @returns {(given: T) => Promise<R | null>}
 */
export function latest(act) {
  /** @type {{ given: T, done: (found: Promise<R> | null) => void } | null} */
  let waiting = null;
  let busy = false;
  const work = async () => {
    busy = true;
    while (waiting) {
      const { given, done } = /** @type {NonNullable<typeof waiting>} */ (waiting);
      waiting = null;
      const found = act(given);
      done(found);
      await found.catch(() => null);
    }
    busy = false;
  };
  return (given) => new Promise((done) => {
    waiting?.done(null);
    waiting = { given, done };
    if (!busy) work();
  });
}
