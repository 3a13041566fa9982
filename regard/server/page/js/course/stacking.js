// Lessons on the layers around attention, and on what comes out of them.

import { probability, short } from "../format.js";
import { SENTENCES } from "../lesson_messages.js";
import { labelOf } from "../tokens.js";
import { flowSide, hasMoved, meanAndDeviation, nextTokens, PLAIN, positionOf, siteLike, strongest, ticksOfSite, vectorAt } from "./parts.js";

/**
 * @typedef {import("./parts.js").App} App
 * @typedef {import("./parts.js").Lesson} Lesson
 * @typedef {import("../source.js").Station} Station
 */

const ENCODER = /^encoder\.layers\.\d+\.self$/;
const FIRST_FEED_FORWARD = "encoder.layers.0.feed_forward";

/**
 * Return the hidden units of a feed-forward layer at a position.
 * @param {App} app
 * @param {string} path
 * @param {number} position
 */
async function unitsAt({ source }, path, position) {
  return (await source.flow([]))?.units(path, position) ?? null;
}

/** @param {App} app */
function encoderTicks(app) {
  return ticksOfSite(app, siteLike(app, ENCODER)).rows;
}

/**
 * Return the flow with a place of the encoder open.
 * @param {App} app
 * @param {string} path
 * @param {string} label
 */
function onFlow(app, path, label) {
  return { ...PLAIN, page: /** @type {const} */ ("flow"), spot: path && `${path}@${positionOf(encoderTicks(app), label)}` };
}

/** @type {Lesson} */
const FEED_FORWARD = {
  name: "FeedForward",
  title: "lessonFeedForward",
  models: ["en-de", "en-ko"],
  text: SENTENCES.sleeping,
  facts: async (app) => {
    const dog = positionOf(encoderTicks(app), "dog");
    const units = await unitsAt(app, FIRST_FEED_FORWARD, dog);
    const before = meanAndDeviation(await vectorAt(app, "encoder.embedding.output", dog));
    const after = meanAndDeviation(await vectorAt(app, "encoder.layers.0.self.input", dog));
    return { d: siteLike(app, ENCODER).d_k * siteLike(app, ENCODER).n_heads, units: units?.n_units ?? 0, active: units?.n_active ?? 0, dog: encoderTicks(app)[dog].label, mean: short(before.mean), deviation: short(before.deviation), mean2: short(after.mean), deviation2: short(after.deviation) };
  },
  steps: [
    { text: "lessonFeedForward1", set: (app) => onFlow(app, "", "dog") },
    {
      text: "lessonFeedForward2",
      set: (app) => onFlow(app, FIRST_FEED_FORWARD, "dog"),
      guess: {
        ask: "lessonFeedForwardAsk",
        options: async (app) => {
          const ticks = encoderTicks(app);
          return Promise.all(["dog", "in", "the", "garden"].map(async (label) => {
            const at = positionOf(ticks, label);
            return { label: ticks[at].label, value: (await unitsAt(app, FIRST_FEED_FORWARD, at))?.n_active ?? 0, side: "source", at };
          }));
        },
        reveal: "lessonFeedForwardReveal",
      },
    },
    { text: "lessonFeedForward3", figure: "norm", set: (app) => ({ ...PLAIN, site: siteLike(app, ENCODER).path, query: positionOf(encoderTicks(app), "dog") }) },
  ],
  task: {
    text: () => "lessonFeedForwardDo",
    set: (app) => onFlow(app, "", "dog"),
    done: ({ store }, { first }) => hasMoved(store.state, first, ["spot"]) && /feed_forward@/.test(store.state.spot),
    closing: async (app) => {
      const [path, position] = app.store.state.spot.split("@");
      const side = path.startsWith("encoder") ? "source" : "target";
      const found = await unitsAt(app, path, Number(position));
      const most = found?.units[0];
      const values = { token: labelOf(app.about.tokens[side]?.[Number(position)] ?? ""), layer: Number(/layers\.(\d+)/.exec(path)?.[1] ?? 0), n: found?.n_active ?? 0, of: found?.n_units ?? 0, unit: most?.index ?? 0, a: short(most?.activation ?? 0) };
      return { text: "lessonFeedForwardEnd", values };
    },
  },
};

/** The word whose vector attention moves. */
const TOWER = "·ower";

/**
 * Return the stations of the encoder with what they add at a position.
 * @param {App} app
 * @param {number} position
 */
async function additions(app, position) {
  const found = await flowSide(app, "encoder");
  if (!found) return [];
  const { side, rows } = found;
  return side.stations.filter(({ path }) => rows.added[path]).map((station) => ({ station, added: rows.added[station.path][position], before: rows.norm[station.before ?? station.path][position] }));
}

/** @type {Lesson} */
const RESIDUAL = {
  name: "Residual",
  title: "lessonResidual",
  models: ["en-de", "en-ko"],
  text: SENTENCES.tower,
  facts: async (app) => {
    const at = positionOf(encoderTicks(app), TOWER);
    const found = await additions(app, at);
    const self = found.find(({ station }) => station.kind === "self");
    return { tower: encoderTicks(app)[at].label, before: short(self?.before ?? 0, 2), added: short(self?.added ?? 0, 2) };
  },
  steps: [
    { text: "lessonResidual1", set: (app) => onFlow(app, "encoder.layers.0.self.residual", TOWER) },
    {
      text: "lessonResidual2",
      set: (app) => onFlow(app, "encoder.layers.1.feed_forward.residual", TOWER),
      guess: {
        ask: "lessonResidualAsk",
        options: async (app) => {
          const found = await additions(app, positionOf(encoderTicks(app), TOWER));
          return found.filter(({ station }) => station.layer !== null).map(({ station, added }) => ({ label: app.t(station.kind === "self" ? "station_self" : "station_feed_forward", { layer: station.layer ?? 0 }), value: added }));
        },
        reveal: "lessonResidualReveal",
      },
    },
    {
      text: "lessonResidual3",
      set: async (app) => ({ ...PLAIN, ...(await strongest(app, siteLike(app, ENCODER, 0), 0, positionOf(encoderTicks(app), TOWER))), view: "space", pane: "pattern" }),
    },
  ],
  task: {
    text: () => "lessonResidualDo",
    set: async (app) => ({ ...PLAIN, ...(await strongest(app, siteLike(app, ENCODER, 0), 0, positionOf(encoderTicks(app), TOWER))), view: "space", pane: "pattern" }),
    done: ({ store }, { first }) => hasMoved(store.state, first, ["query"]),
    closing: async (app) => {
      const { query, site } = app.store.state;
      const found = (await additions(app, query)).find(({ station }) => station.site === site);
      const ratio = found ? (100 * found.added) / found.before : 0;
      return { text: "lessonResidualEnd", values: { token: app.open.rows[query].label, x: short(found?.added ?? 0, 2), y: short(found?.before ?? 0, 2), share: short(ratio, 0) } };
    },
  },
};

/** The place of the answer that the reader guesses. */
const NEXT = 2;

/**
 * Return the most probable tokens at a position of the answer.
 * @param {App} app
 * @param {number} position
 */
export async function predictionsAt(app, position) {
  const found = await flowSide(app, "decoder");
  return found?.rows.predictions?.[position] ?? [];
}

/** @type {Lesson} */
const OUTPUT = {
  name: "Output",
  title: "lessonOutput",
  models: ["en-de", "en-ko"],
  text: SENTENCES.sleeping,
  facts: (app) => ({ d: siteLike(app, /cross$/).d_k * siteLike(app, /cross$/).n_heads, written: (app.about.tokens.output ?? []).slice(0, NEXT).join("").trim() }),
  steps: [
    { text: "lessonOutput1", set: () => ({ ...PLAIN, page: "flow" }) },
    {
      text: "lessonOutput2",
      figure: "chances",
      set: async (app) => ({ ...PLAIN, ...(await strongest(app, siteLike(app, /cross$/, 2), 0, NEXT)) }),
      guess: {
        ask: "lessonOutputAsk",
        options: async (app) => {
          const found = (await predictionsAt(app, NEXT)).slice(0, 4).map(({ name, probability: value }) => ({ label: labelOf(name), value }));
          return found.sort((a, b) => a.label.localeCompare(b.label)); // their order must not give it away
        },
        reveal: "lessonOutputReveal",
      },
    },
    { text: "lessonOutput3", set: async (app) => ({ ...PLAIN, ...(await strongest(app, siteLike(app, /cross$/, 2), 0, NEXT)), view: "lens", pane: "pattern" }) },
  ],
  task: {
    text: () => "lessonOutputDo",
    figure: "chances",
    set: async (app) => ({ ...PLAIN, ...(await strongest(app, siteLike(app, /cross$/, 2), 0, NEXT)) }),
    done: ({ store }, { first }) => hasMoved(store.state, first, ["query"]),
    closing: async (app) => {
      const { query } = app.store.state;
      const list = await predictionsAt(app, query);
      const written = labelOf(app.about.tokens.output?.[query] ?? "");
      const lens = await app.source.lens?.([], query);
      const bits = lens ? (lens.entropy[lens.stations.length - 1]?.[query - lens.start] ?? 0) : 0;
      const own = list.find(({ name }) => labelOf(name) === written);
      const other = list.find(({ name }) => labelOf(name) !== written);
      const values = { token: written, p: probability(own?.probability ?? Math.exp(app.about.output?.log_probabilities?.[query] ?? 0)), h: short(bits, 2), other: labelOf(other?.name ?? ""), p2: probability(other?.probability ?? 0) };
      return { text: "lessonOutputEnd", values };
    },
  },
};

/** @type {Lesson} */
const DECODING = {
  name: "Decoding",
  title: "lessonDecoding",
  models: ["shakespeare"],
  text: SENTENCES.king,
  fits: ({ about }) => about.live && about.family === "decoder",
  facts: (app) => ({ text: String(/** @type {any} */ (app.about).asked?.text ?? "") }),
  steps: [
    {
      text: "lessonDecoding1",
      figure: "sampling",
      set: () => ({ ...PLAIN, sampling: 0 }),
      guess: {
        ask: "lessonDecodingAsk",
        options: async (app) => {
          const found = (await nextTokens(app, 1)).slice(0, 4).map(({ name, probability: value }) => ({ label: labelOf(name), value }));
          return found.sort((a, b) => a.label.localeCompare(b.label));
        },
        reveal: "lessonDecodingReveal",
      },
    },
    { text: "lessonDecoding2", figure: "sampling", set: () => ({ ...PLAIN, sampling: 1 }) },
    { text: "lessonDecoding3", figure: "beams", set: () => PLAIN },
  ],
  task: {
    text: () => "lessonDecodingDo",
    figure: "sampling",
    set: () => ({ ...PLAIN, sampling: 1 }),
    done: (_, { own }) => own.sampled !== undefined && own.temperature !== 1,
    closing: async (app, { own }) => {
      const now = await nextTokens(app, own.temperature);
      const then = await nextTokens(app, 1);
      const [best] = now;
      const was = then.find(({ name }) => name === best?.name);
      const values = { t: short(own.temperature, 2), token: labelOf(best?.name ?? ""), p: probability(best?.probability ?? 0), p1: probability(was?.probability ?? 0), text: own.sampled.replace(/\s+/g, " ").trim() };
      return { text: "lessonDecodingEnd", values };
    },
  },
};

export const STACKING_LESSONS = [FEED_FORWARD, RESIDUAL, OUTPUT, DECODING];
