// Debouncing: a slider sends requests more often than a model answers.

/** Work that took longer than this, in milliseconds, waits for a pause of the same length. */
const SLOW = 250;

/**
 * Return a function that runs `act` one call at a time. Of the calls made meanwhile only the last
 * one runs; the others resolve to null. After a slow run, the next one waits until no newer call
 * arrives, so that a moving slider does not keep the machine busy.
 * @template T, R
 * @param {(given: T) => Promise<R>} act
 * @returns {(given: T) => Promise<R | null>}
 */
export function keepLatest(act) {
  /** @type {{ given: T, done: (result: Promise<R> | null) => void } | null} */
  let waiting = null;
  let busy = false;
  let duration = 0;
  const work = async () => {
    busy = true;
    while (waiting) {
      for (let seen = null; duration > SLOW && seen !== waiting; ) {
        seen = waiting;
        await new Promise((done) => setTimeout(done, SLOW));
      }
      const { given, done } = /** @type {NonNullable<typeof waiting>} */ (waiting);
      waiting = null;
      const start = performance.now();
      const result = act(given);
      done(result);
      await result.catch(() => null);
      duration = performance.now() - start;
    }
    busy = false;
  };
  return (given) => new Promise((done) => {
    waiting?.done(null);
    waiting = { given, done };
    if (!busy) work();
  });
}
