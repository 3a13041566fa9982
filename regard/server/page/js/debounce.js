// Work that is overtaken by newer work of its kind: a slider asks more often than a model answers.

/** Work that takes longer than this, in milliseconds, begins only after such a pause. */
const LONG = 250;

/**
 * A function that does one thing at a time. Of what it is told meanwhile only the last is done;
 * the others come to nothing: null. What takes long waits until nothing newer comes, so that a
 * slider that is on its way does not keep the whole machine at work.
 * @template T, R
 * @param {(given: T) => Promise<R>} act
 * @returns {(given: T) => Promise<R | null>}
 */
export function latest(act) {
  /** @type {{ given: T, done: (found: Promise<R> | null) => void } | null} */
  let waiting = null;
  let busy = false;
  let took = 0;
  const work = async () => {
    busy = true;
    while (waiting) {
      for (let seen = null; took > LONG && seen !== waiting; ) {
        seen = waiting;
        await new Promise((done) => setTimeout(done, LONG));
      }
      const { given, done } = /** @type {NonNullable<typeof waiting>} */ (waiting);
      waiting = null;
      const start = performance.now();
      const found = act(given);
      done(found);
      await found.catch(() => null);
      took = performance.now() - start;
    }
    busy = false;
  };
  return (given) => new Promise((done) => {
    waiting?.done(null);
    waiting = { given, done };
    if (!busy) work();
  });
}
