// Lessons on training, images, and attention that costs less.

import { EFFICIENT_FORMS } from "../head.js";
import { requestJson } from "../http.js";
import { probability, short } from "../format.js";
import { SENTENCES } from "../lesson_messages.js";
import { costs, LAYER_TYPES } from "./cost.js";
import { entropy, hasMoved, indexOfLargest, PLAIN, siteLike, strongest, ticksOfSite, weightsAt } from "./parts.js";

/**
 * @typedef {import("./parts.js").App} App
 * @typedef {import("./parts.js").Lesson} Lesson
 */

/** @type {Lesson} */
const TRAINING = {
  name: "Training",
  title: "lessonTraining",
  models: [],
  replay: true,
  facts: async () => {
    const points = await checkpoints();
    return { n: points.length, last: points.at(-1)?.step ?? 0 };
  },
  steps: [
    { text: "lessonTraining1", set: (app) => ({ ...PLAIN, ...app.about.start, pinned: true }) },
    {
      text: "lessonTraining2",
      set: (app) => ({ ...PLAIN, ...app.about.start, pinned: true }),
      guess: {
        ask: "lessonTrainingAsk",
        options: async () => {
          const points = (await checkpoints()).filter(({ loss }) => loss !== null);
          const some = [0, 1 / 3, 2 / 3, 1].map((share) => points[Math.round(share * (points.length - 1))]);
          return some.filter((one, i) => one && some.indexOf(one) === i).map(({ step, loss }) => ({ label: String(step), value: loss ?? 0 }));
        },
        wanted: "smallest",
        reveal: "lessonTrainingReveal",
      },
    },
  ],
  task: {
    text: () => "lessonTrainingDo",
    set: (app) => ({ ...PLAIN, ...app.about.start, pinned: true }),
    done: (_, { sources }) => sources.size > 2,
    closing: async (_, { sources }) => {
      const points = await checkpoints();
      const steps = Array.from(sources, (source) => stepOf(source)).sort((a, b) => a - b);
      const at = (/** @type {number} */ step) => points.find((one) => one.step === step)?.loss ?? NaN;
      const [a, b] = [steps[0], steps[steps.length - 1]];
      return { text: "lessonTrainingEnd", values: { n: sources.size, a, b, x: short(at(a)), y: short(at(b)) } };
    },
  },
};

/**
 * Return the checkpoints of the run that the page shows.
 * @returns {Promise<import("../replay.js").Checkpoint[]>}
 */
async function checkpoints() {
  const { runs } = await requestJson("/api/runs");
  const name = new URLSearchParams(location.search).get("run");
  return (runs.find((/** @type {any} */ one) => one.name === name) ?? runs[0])?.checkpoints ?? [];
}

/**
 * Return the step of a snapshot, which its address ends with.
 * @param {App["source"]} source
 */
function stepOf(source) {
  return Number(/\/(\d+)\?/.exec(/** @type {any} */ (source).address ?? "")?.[1] ?? 0);
}

/**
 * Return the last layer, at the query that classifies.
 * @param {App} app
 */
async function lastLayer(app) {
  const site = app.sites[app.sites.length - 1];
  const query = Math.max(0, (app.about.image?.first ?? 1) - 1);
  return { ...PLAIN, view: /** @type {const} */ ("image"), ...(await strongest(app, site, 0, query)) };
}

/** @type {Lesson} */
const VISION = {
  name: "Vision",
  title: "lessonVision",
  models: ["fashion", "digits"],
  example: 0,
  fits: ({ about }) => about.live && Boolean(about.image),
  facts: (app) => {
    const { n_rows, n_columns, width } = app.about.image ?? { n_rows: 0, n_columns: 1, width: 0 };
    return { n: n_rows * n_columns, p: Math.round(width / n_columns), rows: n_rows, columns: n_columns };
  },
  steps: [
    {
      text: "lessonVision1",
      set: (app) => ({ ...PLAIN, ...app.about.start, page: "flow" }),
      guess: {
        ask: "lessonVisionAsk",
        options: async (app) => {
          const found = (app.about.output?.classes ?? []).slice(0, 4).map((/** @type {any} */ one) => ({ label: one.name, value: one.probability }));
          return found.sort((/** @type {any} */ a, /** @type {any} */ b) => a.label.localeCompare(b.label));
        },
        reveal: "lessonVisionReveal",
      },
    },
    { text: "lessonVision2", set: lastLayer },
    { text: "lessonVision3", set: async (app) => ({ ...(await lastLayer(app)), page: "flow" }) },
  ],
  task: {
    text: () => "lessonVisionDo",
    set: lastLayer,
    done: ({ store }, { first }) => hasMoved(store.state, first, ["query"]),
    closing: async (app) => {
      const { query } = app.store.state;
      const { site, head, rows, columns } = app.open;
      const weights = await weightsAt(app, site, head, query);
      const best = indexOfLargest(weights);
      return { text: "lessonVisionEnd", values: { query: rows[query].label, key: columns[best].label, w: probability(weights[best]), h: short(entropy(weights), 2), even: short(Math.log2(weights.length), 2) } };
    },
  },
};

/**
 * Return a head of an efficient form, compared with exact attention.
 * @param {App} app
 */
async function compared(app) {
  const site = app.sites.find((one) => EFFICIENT_FORMS.has(one.similarity)) ?? app.sites[0];
  return { ...PLAIN, view: /** @type {const} */ ("exact"), ...(await strongest(app, site, 0, Math.min(3, site.n_query - 1))) };
}

/**
 * Return a row of the open head, and the row of exact attention.
 * @param {App} app
 * @param {string} path
 * @param {number} head
 * @param {number} query
 */
async function bothRows(app, path, head, query) {
  const site = app.sites.find((one) => one.path === path) ?? app.sites[0];
  const [own, exact] = await Promise.all([weightsAt(app, site, head, query), app.source.exact(path, head)]);
  return { own, exact: exact ? exact.data.subarray(query * exact.columns, (query + 1) * exact.columns) : own };
}

/** @type {Lesson} */
const EFFICIENT = {
  name: "Efficient",
  title: "lessonEfficient",
  models: ["english-efficient"],
  text: SENTENCES.masked,
  fits: ({ about, sites }) => about.live && sites.some((site) => EFFICIENT_FORMS.has(site.similarity)),
  facts: (app) => {
    const { n_key: n, d_k: d } = app.sites[0];
    return { n, d, cells: n * n, small: d * d };
  },
  steps: [
    { text: "lessonEfficient1", set: async (app) => ({ ...(await compared(app)), view: "grid" }) },
    { text: "lessonEfficient2", set: async (app) => ({ ...(await compared(app)), view: "grid" }) },
    {
      text: "lessonEfficient3",
      set: compared,
      guess: {
        ask: "lessonEfficientAsk",
        options: async (app) => {
          const { site, head, query } = await compared(app);
          const { own, exact } = await bothRows(app, site, head, query);
          return [{ label: app.t("form_efficient"), value: entropy(own) }, { label: app.t("exactForm"), value: entropy(exact) }];
        },
        reveal: "lessonEfficientReveal",
      },
    },
  ],
  task: {
    text: () => "lessonEfficientDo",
    set: compared,
    done: ({ store }, { first }) => hasMoved(store.state, first, ["query"]),
    closing: async (app) => {
      const { site, head, query } = app.store.state;
      const { own, exact } = await bothRows(app, site, head, query);
      const variation = own.reduce((sum, x, i) => sum + Math.abs(x - exact[i]), 0) / 2;
      return { text: "lessonEfficientEnd", values: { query: ticksOfSite(app, siteLike(app, new RegExp(`^${site}$`), app.open.site.layer ?? 0)).rows[query].label, x: short(variation), a: short(Math.max(...own)), b: short(Math.max(...exact)) } };
    },
  },
};

/** @type {Lesson} */
const COMPLEXITY = {
  name: "Complexity",
  title: "lessonComplexity",
  models: ["en-de"],
  text: SENTENCES.snake,
  fits: () => true,
  facts: (app) => ({ n: app.open.site.n_key, d: app.open.site.d_k * app.open.site.n_heads }),
  steps: [
    { text: "lessonComplexity1", set: () => ({ ...PLAIN, page: "flow" }) },
    {
      text: "lessonComplexity2",
      figure: "cost",
      own: { mark: "operations" },
      set: () => PLAIN,
      guess: {
        ask: "lessonComplexityAsk",
        wanted: "smallest",
        options: async (app) => {
          const found = costs({ n: app.open.site.n_key, d: app.open.site.d_k * app.open.site.n_heads, k: 3, r: 4 });
          return LAYER_TYPES.slice(0, 3).map((name) => ({ label: app.t(`cost_${name}`), value: found[name].operations }));
        },
        reveal: "lessonComplexityReveal",
      },
    },
    { text: "lessonComplexity3", figure: "cost", own: { mark: "way" }, set: () => PLAIN },
  ],
  task: {
    text: () => "lessonComplexityDo",
    figure: "cost",
    set: () => PLAIN,
    done: (_, { own }) => own.cost !== undefined && costs(own.cost).self.operations > costs(own.cost).recurrent.operations,
    closing: async (_, { own }) => {
      const found = costs(own.cost);
      const whole = (/** @type {number} */ x) => x.toLocaleString("en-US");
      return { text: "lessonComplexityEnd", values: { n: own.cost.n, d: own.cost.d, a: whole(found.self.operations), b: whole(found.recurrent.operations), steps: whole(found.recurrent.steps) } };
    },
  },
};

export const BEYOND_LESSONS = [TRAINING, VISION, EFFICIENT, COMPLEXITY];
