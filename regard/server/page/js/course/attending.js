// Lessons on attention: queries, keys and values, scaling, softmax, masks, heads.

import { softmax } from "../attention.js";
import { short } from "../format.js";
import { SENTENCES } from "../lesson_messages.js";
import { entropy, hasMoved, hasScores, indexOfLargest, keyOptions, openRows, PLAIN, positionOf, siteLike, sitesLike, strongest, tablesAt, ticksOfSite, weightsAt } from "./parts.js";
import { spreads } from "./random.js";

/**
 * @typedef {import("./parts.js").App} App
 * @typedef {import("./parts.js").Lesson} Lesson
 * @typedef {import("./parts.js").Site} Site
 */

const SELF = /^(encoder|decoder)\.layers\.\d+\.self$/;
/** The head of en-de that looks from "it" to the word it refers to. */
const REFERS = { layer: 1, head: 1 };
/** A query that looks at several keys. */
const SPREAD = { layer: 1, head: 0, query: 2 };

/**
 * Return the site in which "it" looks for its word, and the position of "it".
 * @param {App} app
 */
function pronoun(app) {
  const site = siteLike(app, SELF, REFERS.layer);
  const { rows } = ticksOfSite(app, site);
  return { site, head: Math.min(REFERS.head, site.n_heads - 1), query: positionOf(rows, "it") };
}

/** @param {App} app */
async function atPronoun(app) {
  const { site, head, query } = pronoun(app);
  return { ...PLAIN, ...(await strongest(app, site, head, query)) };
}

/** @param {App} app */
function atStart({ about }) {
  return { ...PLAIN, ...about.start, pinned: true };
}

/**
 * Return a query whose weights are spread over several keys.
 * @param {App} app
 */
async function atSpreadRow(app) {
  return { ...PLAIN, ...(await strongest(app, siteLike(app, SELF, SPREAD.layer), SPREAD.head, SPREAD.query)) };
}

/**
 * Return whether the open head has scores for single pairs, in a server or a file.
 * @param {App} app
 */
function fits(app) {
  return hasScores(app) && !app.about.image;
}

/** @type {Lesson} */
const VECTORS = {
  name: "Vectors",
  title: "lessonVectors",
  models: ["en-de", "en-ko"],
  text: SENTENCES.snake,
  fits,
  facts: (app) => {
    const { site, head, query } = pronoun(app);
    return { it: ticksOfSite(app, site).rows[query].label, layer: site.layer ?? 0, head, d: site.d_k };
  },
  steps: [
    { text: "lessonVectors1", set: (app) => ({ ...atStart(app), pinned: false }) },
    {
      text: "lessonVectors2",
      set: atPronoun,
      guess: {
        ask: "lessonVectorsAsk",
        options: async (app) => {
          const { site, head, query } = pronoun(app);
          return keyOptions(app, site, await weightsAt(app, site, head, query));
        },
        reveal: "lessonVectorsReveal",
      },
    },
    { text: "lessonVectors3", set: async (app) => ({ ...(await atPronoun(app)), pane: "steps" }) },
    { text: "lessonVectors4", set: async (app) => ({ ...(await atPronoun(app)), stage: "all" }) },
    { text: "lessonVectors5", set: async (app) => ({ ...(await atPronoun(app)), view: "bars" }) },
    { text: "lessonVectors6", set: (app) => atStart(app) },
  ],
  task: {
    text: () => "lessonVectorsDo",
    touch: "lessonVectorsTouch",
    set: async (app) => {
      const at = await atPronoun(app);
      const weights = await weightsAt(app, pronoun(app).site, at.head, at.query);
      return { ...at, key: weights.reduce((best, x, i) => (x < weights[best] ? i : best), 0) };
    },
    done: (app, { first }) => {
      const { query, key } = app.store.state;
      const { after } = openRows(app, query);
      return hasMoved(app.store.state, first, ["query", "key"]) && after[key] === Math.max(...after);
    },
    closing: async (app) => {
      const { query, key } = app.store.state;
      const { open } = app;
      const at = query * open.before.weights.columns + key;
      const values = { query: open.rows[query].label, key: open.columns[key].label, d: open.site.d_k, e: short(open.before.compared?.data[at] ?? NaN), s: short(open.before.scores?.data[at] ?? NaN), w: short(open.before.weights.data[at]) };
      return { text: "lessonVectorsEnd", values };
    },
  },
};

/** @type {Lesson} */
const SCALE = {
  name: "Scale",
  title: "lessonScale",
  models: ["en-de", "en-ko"],
  text: SENTENCES.sleeping,
  fits: (app) => fits(app) && app.open.site.scale !== 1,
  facts: (app) => ({ d: siteLike(app, /./).d_k, deviation: short(spreads().unscaled[9].deviation, 2), bits: short(spreads().unscaled[9].entropy, 2), even: short(spreads().scaled[9].entropy, 2) }),
  steps: [
    { text: "lessonScale1", figure: "deviation", own: { width: 512 }, set: () => PLAIN },
    {
      text: "lessonScale2",
      figure: "spread",
      own: { width: 512 },
      set: () => PLAIN,
      guess: {
        ask: "lessonScaleAsk",
        options: async (app) => {
          const { scaled, unscaled } = spreads();
          return [{ label: app.t("scaledBy"), value: scaled[9].gradient }, { label: app.t("unscaledBy"), value: unscaled[9].gradient }];
        },
        reveal: "lessonScaleReveal",
      },
    },
    { text: "lessonScale3", figure: "spread", own: { width: 32 }, set: () => PLAIN },
  ],
  task: {
    text: () => "lessonScaleDo",
    set: async (app) => ({ ...(await atSpreadRow(app)), editing: true }),
    done: ({ store }) => store.state.edits.some(({ kind }) => kind === "unscaled"),
    closing: async (app) => {
      const { before, after } = openRows(app, app.store.state.query);
      return { text: "lessonScaleEnd", values: { d: app.open.site.d_k, query: app.open.rows[app.store.state.query].label, a: short(entropy(before), 2), b: short(entropy(after), 2), c: short(Math.max(...before)), e: short(Math.max(...after)) } };
    },
  },
};

/** @type {Lesson} */
const SOFTMAX = {
  name: "Softmax",
  title: "lessonSoftmax",
  models: ["en-de", "en-ko"],
  text: SENTENCES.sleeping,
  fits,
  steps: [
    { text: "lessonSoftmax1", set: async (app) => ({ ...(await atSpreadRow(app)), stage: "all" }) },
    { text: "lessonSoftmax2", set: (app) => heated(app, 0.25) },
    {
      text: "lessonSoftmax3",
      set: (app) => heated(app, 4),
      guess: {
        ask: "lessonSoftmaxAsk",
        options: async (app) => {
          const { head, query } = await atSpreadRow(app);
          const { masked } = await tablesAt(app, siteLike(app, SELF, SPREAD.layer), head, query);
          const at = (/** @type {number} */ t) => (masked ? entropy(softmax(masked, t).data) : 0);
          return [0.25, 1, 4].map((t) => ({ label: short(t, 2), value: at(t) }));
        },
        reveal: "lessonSoftmaxReveal",
      },
    },
  ],
  task: {
    text: () => "lessonSoftmaxDo",
    set: async (app) => ({ ...(await atSpreadRow(app)), editing: true }),
    done: (_, { temperature }) => temperature.low && temperature.high,
    closing: async (app) => {
      const { before, after } = openRows(app, app.store.state.query);
      const [a, b] = [entropy(before), entropy(after)];
      return { text: b < a ? "lessonSoftmaxFell" : "lessonSoftmaxRose", values: { t: short(app.open.after.temperature, 2), query: app.open.rows[app.store.state.query].label, a: short(a, 2), b: short(b, 2) } };
    },
  },
};

/**
 * Return the same query at a temperature.
 * @param {App} app
 * @param {number} value
 */
async function heated(app, value) {
  const at = await atSpreadRow(app);
  return { ...at, edits: [/** @type {const} */ ({ kind: "temperature", site: at.site, head: at.head, value })] };
}

/**
 * Return edits that forbid the keys of one head that a mask hides.
 * @param {Site} site
 * @param {number} head
 * @param {(query: number, key: number) => boolean} hides
 */
function forbidden(site, head, hides) {
  /** @type {import("../edits.js").Edit[]} */
  const edits = [];
  for (let query = 0; query < site.n_query; query++) {
    for (let key = 0; key < site.n_key; key++) if (hides(query, key)) edits.push({ kind: "forbid", site: site.path, head, query, key });
  }
  return edits;
}

/** Keys that the example of a padding mask hides, and the radius of the example of a window. */
const PADDED = 2;
const RADIUS = 1;

/** @param {App} app */
function encoderHead(app) {
  const site = siteLike(app, SELF, 1);
  return { site, head: 0, at: { ...PLAIN, site: site.path, head: 0, query: Math.min(2, site.n_query - 1), key: Math.min(1, site.n_key - 1), pinned: true } };
}

/**
 * Return the last site whose mask is causal.
 * @param {App} app
 */
function causalSite(app) {
  return sitesLike(app, /^decoder.*self$/).at(-1) ?? siteLike(app, SELF);
}

/** The query of the causal example. */
const WRITING = 3;

/** @type {Lesson} */
const MASK = {
  name: "Mask",
  title: "lessonMask",
  models: ["en-de", "en-ko"],
  text: SENTENCES.sleeping,
  fits: (app) => fits(app) && sitesLike(app, /^decoder.*self$/).length > 0,
  facts: (app) => ({ n: PADDED, r: RADIUS, query: ticksOfSite(app, causalSite(app)).rows[WRITING]?.label ?? "" }),
  steps: [
    {
      text: "lessonMask1",
      set: (app) => {
        const { site, head, at } = encoderHead(app);
        return { ...at, edits: forbidden(site, head, (_, key) => key >= site.n_key - PADDED) };
      },
    },
    {
      text: "lessonMask2",
      set: async (app) => ({ ...PLAIN, ...(await strongest(app, causalSite(app), 0, WRITING)), stage: "all" }),
      guess: {
        ask: "lessonMaskAsk",
        wanted: "smallest",
        options: async (app) => {
          const site = causalSite(app);
          const weights = await weightsAt(app, site, 0, WRITING);
          return keyOptions(app, site, weights, (i) => [WRITING - 2, WRITING - 1, WRITING, WRITING + 1].includes(i));
        },
        reveal: "lessonMaskReveal",
      },
    },
    {
      text: "lessonMask3",
      set: (app) => {
        const { site, head, at } = encoderHead(app);
        return { ...at, edits: forbidden(site, head, (query, key) => Math.abs(query - key) > RADIUS) };
      },
    },
  ],
  task: {
    text: () => "lessonMaskDo",
    set: async (app) => {
      const { site } = encoderHead(app);
      return { ...PLAIN, ...(await strongest(app, site, 0, 2)), editing: true };
    },
    done: ({ store }) => store.state.edits.some(({ kind }) => kind === "forbid"),
    closing: async (app) => {
      const edit = /** @type {any} */ (app.store.state.edits.findLast(({ kind }) => kind === "forbid"));
      const { before, after } = openRows(app, edit.query);
      const gains = Array.from(after, (x, i) => x - before[i]);
      const other = indexOfLargest(gains);
      const { rows, columns } = app.open;
      return { text: "lessonMaskEnd", values: { query: rows[edit.query].label, key: columns[edit.key].label, w: short(before[edit.key]), other: columns[other].label, a: short(before[other]), b: short(after[other]) } };
    },
  },
};

/** @type {Lesson} */
const HEADS = {
  name: "Heads",
  title: "lessonHeads",
  models: ["en-de", "en-ko"],
  text: SENTENCES.snake,
  fits,
  facts: (app) => {
    const { site, query } = pronoun(app);
    const same = app.sites.filter((one) => one.group === site.group);
    return { it: ticksOfSite(app, site).rows[query].label, n: site.n_heads, layers: same.length, all: same.length * site.n_heads, layer: site.layer ?? 0 };
  },
  steps: [
    { text: "lessonHeads1", set: async (app) => ({ ...(await atPronoun(app)), head: 0, pane: "overview" }) },
    {
      text: "lessonHeads2",
      figure: "heads",
      set: atPronoun,
      guess: {
        ask: "lessonHeadsAsk",
        options: async (app) => {
          const { site, query } = pronoun(app);
          const key = referent(app, site);
          const heads = Array.from({ length: site.n_heads }, (_, head) => head);
          return Promise.all(heads.map(async (head) => ({ label: app.t("headName", { head }), value: (await weightsAt(app, site, head, query))[key] })));
        },
        reveal: "lessonHeadsReveal",
      },
    },
    { text: "lessonHeads3", figure: "heads", set: atPronoun },
  ],
  task: {
    text: () => "lessonHeadsDo",
    figure: "heads",
    set: atPronoun,
    done: (_, { heads }) => heads.size > 2,
    closing: async (app, { heads }) => {
      const { query } = pronoun(app);
      const opened = await Promise.all(Array.from(heads, async (name) => {
        const [path, head] = name.split(" ");
        const site = app.sites.find((one) => one.path === path) ?? app.open.site;
        return { name: headLabel(app, site, Number(head)), bits: entropy(await weightsAt(app, site, Number(head), Math.min(query, site.n_query - 1))) };
      }));
      const sorted = opened.sort((a, b) => a.bits - b.bits);
      const last = sorted[sorted.length - 1];
      return { text: "lessonHeadsEnd", values: { n: heads.size, it: app.open.rows[query]?.label ?? "", sharp: sorted[0].name, a: short(sorted[0].bits, 2), wide: last.name, b: short(last.bits, 2) } };
    },
  },
};

/**
 * Return a short name of a head.
 * @param {App} app
 * @param {Site} site
 * @param {number} head
 */
function headLabel({ t }, site, head) {
  return site.layer === null ? t("headName", { head }) : t("layerHead", { layer: site.layer, head });
}

/**
 * Return the key that "it" refers to: the one that the head of the lesson looks at.
 * @param {App} app
 * @param {Site} site
 */
function referent(app, site) {
  return positionOf(ticksOfSite(app, site).columns, "sn");
}

export const ATTENDING_LESSONS = [VECTORS, SCALE, SOFTMAX, MASK, HEADS];
