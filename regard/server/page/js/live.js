// The page of the local server: what is asked stands before the #, what is looked at behind it.

import { start } from "./app.js";
import { fetchModels, Refusal } from "./http.js";
import { HttpSource } from "./http_source.js";
import { speaker } from "./messages.js";
import { startReplay } from "./replay.js";
import { pageAddress } from "./state.js";
import { comparison } from "./views/comparison.js";
import { askBar, DOING } from "./views/input_bar.js";

/**
 * @typedef {import("./app.js").App} App
 * @typedef {import("./http.js").Ask} Ask
 * @typedef {import("./http.js").Progress} Progress
 */

/**
 * What the input line knows and can do.
 * @typedef {object} Live
 * @property {any[]} models
 * @property {any} worked
 * @property {Ask | null} asked what is shown
 * @property {Progress | null} progress of what is being computed
 * @property {string} fault why the last request failed, or ""
 * @property {(asked: Ask) => Promise<void>} ask
 * @property {() => void} stop
 */

/**
 * The request that an address holds, or the first example of the first model.
 * @param {string} search
 * @param {any[]} models
 * @returns {Ask | null}
 */
export function readAsk(search, models) {
  const given = new URLSearchParams(search);
  const model = models.find((one) => one.name === given.get("model")) ?? models[0];
  if (!model) return null;
  /** @type {any} */
  const asked = { model: model.name };
  if (given.get("model") === model.name) {
    for (const name of ["text", "image", "target"]) if (given.get(name)) asked[name] = given.get(name);
    if (given.get("ids")) asked.target = /** @type {string} */ (given.get("ids")).split(",").map(Number);
    if (Number(given.get("beam"))) asked.beam = Number(given.get("beam"));
  }
  return asked.text || asked.image ? asked : { ...model.examples[0], name: undefined, model: model.name };
}

/**
 * @param {Ask} asked
 * @returns {string}
 */
export function writeAsk(asked) {
  const parts = new URLSearchParams({ model: asked.model });
  if (asked.text) parts.set("text", asked.text);
  if (asked.image) parts.set("image", asked.image);
  if (typeof asked.target === "string") parts.set("target", asked.target);
  else if (asked.target) parts.set("ids", asked.target.join(","));
  if (asked.beam && asked.beam !== 4) parts.set("beam", String(asked.beam));
  return `?${parts}`;
}

/**
 * @param {HTMLElement} root
 * @returns {Promise<App>}
 */
export async function startLive(root) {
  const say = speaker(navigator.language.slice(0, 2));
  root.textContent = say("loading");
  try {
    const { models, worked, example, runs } = await fetchModels();
    root.dataset.runs = String(runs.length);
    const asked = readAsk(location.search, models);
    const live = /** @type {Live} */ ({ models, worked, asked, progress: null, fault: "" });
    const source = await firstSource(live, example, (text) => (root.textContent = text || say("loading")));
    return await begin(root, source, live);
  } catch (error) {
    root.textContent = error instanceof Refusal ? error.message : say("noServer");
    throw error;
  }
}

/**
 * The trace to begin with; the worked example's where there is no other.
 * @param {Live} live
 * @param {string} example
 * @param {(text: string) => void} tell
 */
async function firstSource(live, example, tell) {
  const say = speaker(navigator.language.slice(0, 2));
  if (live.asked) {
    try {
      return await HttpSource.trace(clean(live.asked), live.worked, { tell: ({ doing }) => tell(say(DOING[doing] ?? "loading")) });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      live.fault = error.message;
    }
  }
  return HttpSource.kept(example, live.worked);
}

/**
 * @param {HTMLElement} root
 * @param {HttpSource} source
 * @param {Live} live
 */
async function begin(root, source, live) {
  if (!live.models.length && !location.hash) history.replaceState(null, "", "#page=worked");
  const app = await start(root, source, pageAddress(), [(app) => askBar(app, live), comparison]);
  /** @type {AbortController | null} */
  let going = null;
  const tell = (/** @type {Partial<Live>} */ parts) => {
    Object.assign(live, parts);
    root.dispatchEvent(new CustomEvent("live"));
  };
  const show = async (/** @type {Ask} */ asked) => {
    going?.abort();
    const mine = (going = new AbortController());
    tell({ asked, fault: "", progress: { doing: "waiting", done: 0, of: null } });
    try {
      const next = await HttpSource.trace(clean(asked), live.worked, { signal: mine.signal, tell: (progress) => tell({ progress }) });
      if (mine.signal.aborted) return;
      await app.show(next);
      tell({ progress: null });
    } catch (error) {
      if (mine.signal.aborted) return;
      tell({ progress: null, fault: error instanceof Refusal ? error.message : app.say("noServer") });
    }
  };
  live.ask = async (asked) => {
    history.pushState(null, "", `${writeAsk(asked)}${location.hash}`);
    await show(asked);
  };
  root.addEventListener("ask", (event) => live.asked && live.ask({ model: live.asked.model, .../** @type {CustomEvent} */ (event).detail }));
  root.addEventListener("fault", (event) => {
    const { detail } = /** @type {CustomEvent} */ (event);
    tell({ fault: detail instanceof Refusal ? detail.message : app.say("noServer") });
  });
  live.stop = () => {
    going?.abort();
    tell({ progress: null });
  };
  addEventListener("popstate", () => {
    const asked = readAsk(location.search, live.models);
    if (asked && live.asked && writeAsk(asked) !== writeAsk(live.asked)) show(asked);
  });
  if (live.asked && !location.search) history.replaceState(null, "", `${writeAsk(live.asked)}${location.hash}`);
  return app;
}

/**
 * @param {Ask} asked
 * @returns {Ask}
 */
function clean(asked) {
  const { model, text, image, target, beam } = asked;
  return JSON.parse(JSON.stringify({ model, text, image, target, beam }));
}

const ROOT = document.getElementById("regard");
if (ROOT) (new URLSearchParams(location.search).has("run") ? startReplay : startLive)(ROOT);
