// The travel of vectors in the space view: from the tokens to the weighted sums, and after an edit.

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").Space} Space
 * @typedef {import("./space_plot.js").Point} Point
 * @typedef {import("./space.js").Projected} Projected
 */

/** Milliseconds in which vectors travel. */
export const TRAVEL = 400;

/** The space that was drawn last. @type {{ path: string, rows: number, edits: string, projected: Projected } | null} */
let previous = null;

/**
 * Return where vectors start to travel: after an edit where they were, in a new space at the tokens
 * before attention, from which the heads' arrows grow. Null if only the view is turned.
 * @param {App} app
 * @param {Space} space
 * @param {Projected} projected
 * @returns {Projected | null}
 */
export function startOf({ open, store }, space, projected) {
  const now = { path: open.site.path, rows: space.before.rows, edits: JSON.stringify(store.state.edits), projected };
  const old = previous;
  previous = now;
  if (old?.path !== now.path || old.rows !== now.rows) {
    const still = (/** @type {Point[]} */ points) => points.map(() => ({ x: 0, y: 0 }));
    return { ...projected, after: projected.before, arrows: projected.arrows.map(still), rest: still(projected.rest) };
  }
  return old.edits === now.edits || old.projected.turn !== projected.turn ? null : { ...old.projected, on: projected.on };
}

/**
 * @param {Projected} from
 * @param {Projected} to
 * @param {number} part from 0 to 1
 * @returns {Projected}
 */
export function between(from, to, part) {
  const mix = (/** @type {Point[]} */ a, /** @type {Point[]} */ b) => b.map((point, i) => ({ x: a[i].x + (point.x - a[i].x) * part, y: a[i].y + (point.y - a[i].y) * part }));
  return { ...to, before: mix(from.before, to.before), after: mix(from.after, to.after), arrows: to.arrows.map((one, head) => mix(from.arrows[head], one)), rest: mix(from.rest, to.rest) };
}
