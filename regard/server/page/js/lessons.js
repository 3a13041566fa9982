// The lessons: setup, task, and the check that the task is done.

import { largest } from "./matrix.js";
import { rowAt } from "./selection.js";

/**
 * @typedef {import("./app.js").App} App
 * @typedef {import("./state.js").State} State
 * @typedef {import("./messages.js").MessageKey} MessageKey
 */

/**
 * What the reader has done in the open lesson.
 * @typedef {object} LessonProgress
 * @property {State} first the state at the start
 * @property {boolean} peeked whether the mouse was over the pattern
 * @property {Set<string>} heads opened so far
 * @property {{ low: boolean, high: boolean }} temperature whether it was below and above the model's
 */

/**
 * @typedef {object} Lesson
 * @property {string} name prefix of its messages; CSS highlights its subject by it
 * @property {(app: App) => Partial<State>} [setup] changes of state when it opens
 * @property {(app: App) => MessageKey} task
 * @property {(app: App, since: LessonProgress) => boolean} done
 * @property {(app: App) => boolean} [possible] whether the open head allows the task
 */

/** @type {Lesson[]} */
export const LESSONS = [
  {
    name: "Attention",
    setup: (app) => ({ ...startSelection(app), pinned: false }),
    task: () => "lessonAttentionDo",
    done: ({ store }, { first, peeked }) => peeked || hasMoved(store.state, first, ["query", "key"]),
  },
  {
    name: "Vectors",
    setup: (app) => ({ ...startSelection(app), pinned: false }),
    task: () => "lessonVectorsDo",
    done: ({ store }) => store.state.pinned,
  },
  {
    name: "Scores",
    setup: () => ({ stage: "weights" }),
    task: () => "lessonScoresDo",
    done: ({ store }) => store.state.stage === "scores",
    possible: hasScores,
  },
  {
    name: "Scale",
    setup: () => ({ stage: "weights" }),
    task: (app) => (isScaled(app) ? "lessonScaleDo" : "lessonScaleNone"),
    done: (app, { first }) => isEdited(app, "unscaled") || (!isScaled(app) && hasMoved(app.store.state, first, ["site", "head"])),
    possible: hasScores,
  },
  {
    name: "Mask",
    setup: (app) => ({ ...(lastMatchingSite(app, (path) => path.startsWith("decoder") && path.endsWith("self")) ?? {}), stage: "weights" }),
    task: () => "lessonMaskDo",
    done: (app) => isEdited(app, "forbid"),
    possible: hasScores,
  },
  {
    name: "Softmax",
    setup: (app) => ({ ...startSelection(app), stage: "weights" }),
    task: () => "lessonSoftmaxDo",
    done: (_, { temperature }) => temperature.low && temperature.high,
    possible: hasScores,
  },
  {
    name: "Values",
    setup: (app) => ({ stage: "weights", key: smallestKey(app), pinned: true }),
    task: () => "lessonValuesDo",
    done: (app, { first }) => hasMoved(app.store.state, first, ["query", "key"]) && isLargest(app),
  },
  {
    name: "Heads",
    task: () => "lessonHeadsDo",
    done: (_, { heads }) => heads.size > 2,
  },
  {
    name: "Cross",
    setup: (app) => lastMatchingSite(app, (path) => path.endsWith("cross")) ?? {},
    task: (app) => (hasCross(app) ? "lessonCrossDo" : "lessonCrossNone"),
    done: (app, { first }) => (hasCross(app) ? hasMoved(app.store.state, first, ["query"]) : app.store.state.view === "lines"),
  },
  {
    name: "Whole",
    setup: (app) => startSelection(app),
    task: (app) => (app.source.model ? "lessonWholeDo" : "lessonWholeFile"),
    done: (app) => isEdited(app, "ablate"),
    possible: hasScores,
  },
];

/**
 * Return the changes of state that open a lesson; edits are reset.
 * @param {App} app
 * @param {number} number counted from 1
 * @returns {Partial<State>}
 */
export function lessonState(app, number) {
  const lesson = LESSONS[number - 1];
  if (!lesson) return { lesson: 0, drawing: false };
  const reset = { page: /** @type {const} */ ("explore"), edits: [], drawing: false, pane: /** @type {const} */ ("") };
  const grid = app.about.image ? {} : { view: /** @type {const} */ ("grid") };
  return { ...reset, ...grid, ...lesson.setup?.(app), lesson: number };
}

/** @param {App} app */
function startSelection({ about }) {
  return { ...about.start };
}

/**
 * Return the start selection if it matches, otherwise the first head of the last matching site.
 * @param {App} app
 * @param {(path: string) => boolean} fits
 */
function lastMatchingSite({ about, sites }, fits) {
  if (fits(about.start.site)) return { ...about.start };
  const site = sites.filter((one) => fits(one.path)).pop();
  return site ? { site: site.path, head: 0, query: Math.min(2, site.n_query - 1), key: 0 } : null;
}

/** @param {App} app */
function hasCross(app) {
  return app.sites.some((site) => site.path.endsWith("cross"));
}

/** @param {App} app */
function hasScores({ open }) {
  return !open.large && open.before.scores !== null;
}

/** @param {App} app */
function isScaled({ open }) {
  return open.site.scale !== 1;
}

/**
 * @param {App} app
 * @param {string} kind
 */
function isEdited({ store }, kind) {
  return store.state.edits.some((edit) => edit.kind === kind);
}

/**
 * @param {State} state
 * @param {State} first
 * @param {(keyof State)[]} parts
 */
function hasMoved(state, first, parts) {
  return parts.some((part) => state[part] !== first[part]);
}

/** @param {App} app */
function smallestKey(app) {
  const { data } = rowAt(app, app.store.state.query, "before").weights;
  return data.reduce((best, x, i) => (x < data[best] ? i : best), 0);
}

/** @param {App} app */
function isLargest(app) {
  const { query, key } = app.store.state;
  const { data } = rowAt(app, query).weights;
  return data[key] === largest(data);
}
