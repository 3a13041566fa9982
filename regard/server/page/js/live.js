// The page of the local server. The query string of the address holds the request, the hash the selection.

import { start } from "./app.js";
import { fetchModels, requestJson, ServerError } from "./http.js";
import { HttpSource } from "./http_source.js";
import { acceptDrops } from "./image_upload.js";
import { messagesFor } from "./messages.js";
import { startReplay } from "./replay.js";
import { pageAddress } from "./state.js";
import { comparison } from "./views/comparison.js";
import { inputBar } from "./views/input_bar.js";
import { showNothing, skeleton } from "./views/skeleton.js";

/**
 * @typedef {import("./app.js").App} App
 * @typedef {import("./http.js").TraceRequest} TraceRequest
 * @typedef {import("./http.js").Progress} Progress
 */

/**
 * State and actions of the input bar.
 * @typedef {object} Live
 * @property {any[]} models
 * @property {any} worked
 * @property {TraceRequest | null} request the one that is shown
 * @property {Progress | null} progress of a running request
 * @property {unknown} error of the last request; null if it succeeded
 * @property {(request: TraceRequest, how?: { continues?: boolean, example?: boolean }) => Promise<void>} run trace
 *   a request and show it; `continues` if it replaces the last one, as while drawing, `example` if it is opened for
 *   the connection that it shows
 * @property {() => void} stop
 */

/**
 * Return the request of an address, or the first example: of the model that was named when the server
 * was started, or of the translator into the reader's language.
 * @param {string} search
 * @param {any[]} models
 * @param {string} [language] of the browser
 * @returns {TraceRequest | null}
 */
export function parseRequest(search, models, language = navigator.language) {
  const given = new URLSearchParams(search);
  const first = models.some((one) => one.named) ? undefined : models.find((one) => one.name === (language.startsWith("ko") ? "en-ko" : "en-de"));
  const model = models.find((one) => one.name === given.get("model")) ?? first ?? models[0];
  if (!model) return null;
  /** @type {any} */
  const request = { model: model.name };
  if (given.get("model") === model.name) {
    for (const name of ["text", "image", "target", "precision"]) if (given.get(name)) request[name] = given.get(name);
    if (given.get("ids")) request.target = /** @type {string} */ (given.get("ids")).split(",").map(Number);
    for (const name of ["beam", "part"]) if (Number(given.get(name))) request[name] = Number(given.get(name));
  }
  return request.text || request.image ? request : firstExample(model);
}

/**
 * @param {any} model
 * @returns {TraceRequest}
 */
function firstExample({ name, examples: [one] }) {
  return { model: name, text: one?.text ?? undefined, image: one?.image ?? undefined, target: one?.target ?? undefined };
}

/**
 * Return the query string of a request.
 * @param {TraceRequest} request
 * @returns {string}
 */
export function formatRequest(request) {
  const parts = new URLSearchParams({ model: request.model });
  if (request.text) parts.set("text", request.text);
  if (request.image) parts.set("image", request.image);
  if (typeof request.target === "string") parts.set("target", request.target);
  else if (request.target) parts.set("ids", request.target.join(","));
  if (request.beam && request.beam !== 4) parts.set("beam", String(request.beam));
  if (request.precision) parts.set("precision", request.precision);
  if (request.part) parts.set("part", String(request.part));
  return `?${parts}`;
}

/**
 * @param {HTMLElement} root
 * @returns {Promise<App>}
 */
export async function startLive(root) {
  const t = messagesFor(navigator.language.slice(0, 2));
  const embed = new URLSearchParams(location.search).get("embed");
  if (embed === "pattern" || embed === "flow") root.dataset.embed = embed; // a frame in another page
  const show = skeleton(root, t);
  try {
    const { models, worked, example, runs } = await fetchModels();
    root.dataset.runs = String(runs.length);
    const request = parseRequest(location.search, models);
    const live = /** @type {Live} */ ({ models, worked, request, progress: null, error: await whyNot(models) });
    const source = await firstSource(live, example, show);
    return await openPage(root, source, live);
  } catch (error) {
    showNothing(root, t.error(error), t);
    throw error;
  }
}

/**
 * Return the error of an address that names a model which the server does not have, or null.
 * @param {any[]} models
 * @returns {Promise<unknown>}
 */
async function whyNot(models) {
  const model = new URLSearchParams(location.search).get("model");
  if (!model || models.some((one) => one.name === model)) return null;
  history.replaceState(null, "", location.pathname);
  return requestJson("/api/trace", { model, text: "?" }).then(() => null, (error) => error);
}

/**
 * Return the first trace: that of the request, of the model's first example if the request is refused, or of the worked example.
 * @param {Live} live
 * @param {string} example
 * @param {(progress: Progress) => void} show
 */
async function firstSource(live, example, show) {
  const model = live.models.find(({ name, examples }) => name === live.request?.model && examples.length);
  const requests = [live.request, model && firstExample(model)];
  for (const request of requests) {
    try {
      if (request) return await HttpSource.trace(pickFields(request), live.worked, { onProgress: show });
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      live.error ??= error;
    }
  }
  return HttpSource.kept(example, live.worked);
}

/**
 * @param {HTMLElement} root
 * @param {HttpSource} source
 * @param {Live} live
 */
async function openPage(root, source, live) {
  if (root.dataset.embed && !/page=/.test(location.hash)) history.replaceState(null, "", `#${location.hash.slice(1)}&page=${root.dataset.embed === "flow" ? "flow" : "explore"}`);
  const given = new URLSearchParams(location.search);
  if (!given.has("text") && !given.has("image")) root.dataset.chosen = "page"; // the text is an example that the address does not name
  if (!location.search && !location.hash) root.dataset.plays = "1"; // a visitor without a link sees one pass
  if (!live.models.length && !location.hash) history.replaceState(null, "", "#page=worked");
  const app = await start(root, source, pageAddress(), [(app) => inputBar(app, live), comparison]);
  /** @type {AbortController | null} */
  let pending = null;
  const update = (/** @type {Partial<Live>} */ parts) => {
    Object.assign(live, parts);
    root.dispatchEvent(new CustomEvent("regard-status"));
  };
  app.requests = () => requestsOf(live.models);
  const show = async (/** @type {TraceRequest} */ request, /** @type {import("./app.js").Keep} */ keep = {}) => {
    pending?.abort();
    const mine = (pending = new AbortController());
    update({ request, error: null, progress: { doing: "waiting", done: 0, of: null } });
    try {
      const next = await HttpSource.trace(pickFields(request), live.worked, { signal: mine.signal, onProgress: (progress) => update({ progress }) });
      if (mine.signal.aborted) return;
      await app.show(next, keep);
      update({ progress: null });
    } catch (error) {
      if (mine.signal.aborted) return;
      update({ progress: null, error });
    } finally {
      if (pending === mine) app.store.waits = false;
    }
  };
  live.run = async (request, { continues = false, example = false } = {}) => {
    delete root.dataset.chosen;
    app.store.address.flush?.(); // the entry of the old text keeps its selection and edits
    const stays = continues && live.request?.model === request.model;
    if (stays) history.replaceState(null, "", `${formatRequest(request)}${location.hash}`);
    else history.pushState(null, "", `${formatRequest(request)}${location.hash}`);
    await show(request, { selection: stays, example });
  };
  acceptDrops(app, live);
  root.addEventListener("regard-request", (event) => live.request && live.run({ model: live.request.model, .../** @type {CustomEvent} */ (event).detail }));
  root.addEventListener("regard-error", (event) => update({ error: /** @type {CustomEvent} */ (event).detail }));
  live.stop = () => {
    pending?.abort();
    update({ progress: null });
  };
  addEventListener("popstate", () => {
    const request = parseRequest(location.search, live.models);
    if (!request || !live.request || formatRequest(request) === formatRequest(live.request)) return;
    app.store.waits = true; // the hash belongs to the other text
    show(request, { address: location.hash.slice(1) });
  });
  if (live.request && !location.search) history.replaceState(null, "", `${formatRequest(live.request)}${location.hash}`);
  return app;
}

/**
 * Return what can be opened: the first example of each model, then all examples.
 * @param {any[]} models
 * @returns {{ kind: "model" | "examples", name: string, request: TraceRequest }[]}
 */
function requestsOf(models) {
  const first = models.filter((one) => one.examples.length).map((one) => ({ kind: /** @type {const} */ ("model"), name: one.name, request: firstExample(one) }));
  const all = models.flatMap(({ name, examples }) => examples.map((/** @type {any} */ one) => ({ kind: "examples", name: `${name}: ${one.text ?? one.name}`, request: firstExample({ name, examples: [one] }) })));
  return [...first, ...all];
}

/**
 * @param {TraceRequest} request
 * @returns {TraceRequest}
 */
function pickFields(request) {
  const { model, text, image, target, beam, precision, part } = request;
  return JSON.parse(JSON.stringify({ model, text, image, target, beam, precision, part }));
}

const ROOT = document.getElementById("regard");
if (ROOT) (new URLSearchParams(location.search).has("run") ? startReplay : startLive)(ROOT);
