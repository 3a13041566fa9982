// The bar that leads through the checkpoints of a run: slider, play, score, and how the score grew.

import { el, fill, shape } from "../dom.js";
import { full, short } from "../format.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../replay.js").Replay} Replay
 * @typedef {import("../replay.js").Checkpoint} Checkpoint
 */

const WIDE = 240;
const TALL = 40;
const EDGE = 5;

/**
 * @param {App} app
 * @param {Replay} replay
 * @returns {import("../app.js").Pane}
 */
export function replayBar(app, replay) {
  const { say } = app;
  const { checkpoints, texts, name } = replay.run;
  const last = checkpoints.length - 1;
  const slider = el("input.scrub", { type: "range", min: 0, max: last, step: 1, "aria-label": say("checkpoint"), oninput: () => replay.go({ at: Number(slider.value) }) });
  const play = el("button.run.play", { onclick: () => replay.play(!replay.plays) });
  const step = (/** @type {number} */ by, /** @type {string} */ sign, /** @type {import("../messages.js").Word} */ word) =>
    el("button.icon", { title: say(word), "aria-label": say(word), onclick: () => replay.go({ at: replay.at + by }) }, sign);
  const text = el("select", { "aria-label": say("replayText"), onchange: () => replay.go({ text: Number(text.value) }) }, texts.map((one, i) => el("option", { value: i }, one)));
  const run = el("select", { "aria-label": say("replayRun"), onchange: () => (location.search = `?run=${encodeURIComponent(run.value)}`) }, replay.runs.map((one) => el("option", { value: one.name }, one.name)));
  const numbers = el("p.numbers", { "aria-live": "polite" });
  const curve = shape("svg.growth", { width: WIDE, height: TALL, role: "img" });
  const element = el("section.ask.replay", { "aria-label": say("training") },
    el("div.line", {}, run, text, el("span.gap"), el("span.note", {}, say("replayHow"))),
    el("div.line.scrubs", {}, play, step(-1, "‹", "replayBack"), slider, step(1, "›", "replayOn"), numbers, curve),
    el("div.unseen", {}, tableOf(app, replay)));
  const show = () => {
    slider.value = String(replay.at);
    slider.setAttribute("aria-valuetext", `${say("replayStep")} ${checkpoints[replay.at].step}`);
    [text.value, run.value] = [String(replay.text), name];
    fill(play, replay.plays ? `⏸ ${say("stop")}` : `▶ ${say("replayPlay")}`);
    play.setAttribute("aria-pressed", String(replay.plays));
    fill(numbers, replay.fault ? el("span.fault", {}, replay.fault) : numbersOf(app, replay));
    fill(curve, growth(app, replay));
  };
  if (!replay.told) listen(app, replay);
  replay.told = show; // one bar at a time: the page may be built anew
  show();
  return { element, update: () => (element.hidden = app.store.state.page !== "explore") };
}

/**
 * Keys that lead through the checkpoints.
 * @param {App} app
 * @param {Replay} replay
 */
function listen(app, replay) {
  app.root.ownerDocument.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input:not([type=range]):not([type=checkbox]), select, textarea")) return;
    const by = /** @type {Record<string, number>} */ ({ ",": -1, ".": 1 })[event.key];
    if (by) replay.go({ at: replay.at + by });
    if (event.key === "p") replay.play(!replay.plays);
  });
}

/**
 * @param {App} app
 * @param {Replay} replay
 */
function numbersOf({ say }, { run, at }) {
  const { step, epoch, loss, score } = run.checkpoints[at];
  const one = (/** @type {string} */ name, /** @type {number | null} */ x, digits = 3) =>
    x === null ? "" : el("span.figure", {}, el("i", {}, name), " ", el("b", { title: full(x) }, short(x, digits)));
  return [
    el("span.figure", {}, el("i", {}, say("replayStep")), " ", el("b", {}, step.toLocaleString("en"))),
    one(say("replayEpoch"), epoch, 1),
    one(metricName(run.metric, say), score),
    run.metric === "loss" ? "" : one(say("replayLoss"), loss),
  ];
}

/**
 * @param {string} metric
 * @param {App["say"]} say
 */
function metricName(metric, say) {
  const known = { bleu: "BLEU", chrf: "chrF", exact: say("metricExact"), accuracy: say("metricAccuracy"), loss: say("metricLoss") };
  return /** @type {Record<string, string>} */ (known)[metric] ?? metric;
}

/**
 * The score over the steps, a point for each checkpoint.
 * @param {App} app
 * @param {Replay} replay
 */
function growth({ say }, replay) {
  const { run, at } = replay;
  const scores = run.checkpoints.map((one) => one.score ?? NaN);
  const known = scores.filter(Number.isFinite);
  if (known.length < 2) return [];
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const [from, to] = [run.checkpoints[0].step, run.checkpoints[scores.length - 1].step];
  const x = (/** @type {number} */ i) => EDGE + ((WIDE - 2 * EDGE) * (run.checkpoints[i].step - from)) / (to - from || 1);
  const y = (/** @type {number} */ i) => TALL - EDGE - ((TALL - 2 * EDGE) * (scores[i] - low)) / (high - low || 1);
  const points = [...scores.keys()].filter((i) => Number.isFinite(scores[i]));
  const name = metricName(run.metric, say);
  return [
    shape("title", {}, say("replayGrowth", { metric: name, low: short(low), high: short(high) })),
    shape("path.grown", { d: points.map((i, n) => `${n ? "L" : "M"}${x(i).toFixed(1)} ${y(i).toFixed(1)}`).join("") }),
    ...points.map((i) => shape(i === at ? "circle.now" : "circle.then", { cx: x(i), cy: y(i), r: i === at ? 4.5 : 2.6 })),
    ...points.map((i) => shape("rect.hit", { x: x(i) - 8, y: 0, width: 16, height: TALL, onclick: () => replay.go({ at: i }) })),
  ];
}

/**
 * @param {App} app
 * @param {Replay} replay
 */
function tableOf({ say }, { run }) {
  const head = [say("replayStep"), metricName(run.metric, say), say("replayLoss")];
  const rows = run.checkpoints.map(({ step, score, loss }) => [String(step), score === null ? "" : short(score), loss === null ? "" : short(loss)]);
  return el("table", {}, el("caption", {}, say("training")),
    el("tr", {}, head.map((one) => el("th", { scope: "col" }, one))),
    rows.map((row) => el("tr", {}, row.map((one) => el("td", {}, one)))));
}
