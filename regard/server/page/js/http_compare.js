// Comparisons and sweeps on the local server: other runs, what can be compared, every head off in turn.

import { imageFor } from "./compare_spec.js";
import { requestJson, streamRequest } from "./http.js";

/**
 * @typedef {import("./http_source.js").HttpSource} HttpSource
 * @typedef {import("./compare_spec.js").Comparison} Comparison
 * @typedef {import("./source.js").Sweep} Sweep
 * @typedef {import("./source.js").OtherRuns} OtherRuns
 */

/** @type {Promise<OtherRuns> | undefined} */
let choices;

/**
 * Return the models and training runs of the server, requested once.
 * @returns {Promise<OtherRuns>}
 */
export function fetchChoices() {
  choices ??= loadChoices();
  choices.catch(() => (choices = undefined));
  return choices;
}

async function loadChoices() {
  const { models, runs } = await requestJson("/api/models");
  return { models, runs: runs.length ? (await requestJson("/api/runs")).runs : [] };
}

/** @type {WeakMap<HttpSource, Map<string, Promise<HttpSource>>>} */
const KNOWN = new WeakMap();

/**
 * Return the run on the second side of a comparison; null if there is none.
 * @param {HttpSource} source the first side
 * @param {(described: any) => HttpSource} sourceOf
 * @param {Comparison} spec
 * @returns {Promise<HttpSource | null>}
 */
export async function fetchOther(source, sourceOf, spec) {
  const { kind, run, step, item = 0 } = spec;
  if (kind === "head") return source;
  if (kind === "run") return run === undefined || step === undefined ? null : once(source, `${run} ${step} ${item}`, async () => sourceOf(await requestJson(`/api/runs/${encodeURIComponent(run)}/${step}?text=${item}`)));
  const asked = otherRequest(source.described.asked, spec);
  return asked && once(source, JSON.stringify(asked), async () => sourceOf(await streamRequest("/api/trace", asked)));
}

/**
 * Return the request of a comparison with another input or model; null if the first side has none.
 * @param {any} asked the request of the first side
 * @param {Comparison} spec
 */
export function otherRequest(asked, { kind, text, image, model = asked?.model }) {
  if (!asked?.model || !["text", "image", "model"].includes(kind)) return null;
  const shown = text ? undefined : (image ?? imageFor(asked.image, asked.model, model));
  const search = asked.beam !== undefined && asked.beam !== 4 ? { beam: asked.beam } : {};
  return { model, ...(shown ? { image: shown } : { text: text ?? asked.text }), ...search };
}

/**
 * @param {HttpSource} source
 * @param {string} key
 * @param {() => Promise<HttpSource>} load
 */
function once(source, key, load) {
  const known = KNOWN.get(source) ?? new Map();
  KNOWN.set(source, known);
  if (!known.has(key)) {
    const found = load();
    found.catch(() => known.delete(key));
    known.set(key, found);
  }
  return known.get(key);
}

/**
 * Switch every head of a run off in turn, without edits.
 * @param {HttpSource} source
 * @param {{ signal?: AbortSignal, onProgress?: (progress: import("./http.js").Progress) => void }} options
 * @returns {Promise<Sweep>}
 */
export function fetchSweep(source, options) {
  const { edits: _, ...asked } = source.described.asked;
  return streamRequest("/api/sweep", asked, options);
}
