// The bar above a training replay: slider, playback, and the score of each checkpoint.

import { el, fill, shape } from "../dom.js";
import { full, short } from "../format.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../replay.js").Replay} Replay
 * @typedef {import("../replay.js").Checkpoint} Checkpoint
 */

const WIDTH = 240;
const HEIGHT = 40;
const MARGIN = 5;

/**
 * @param {App} app
 * @param {Replay} replay
 * @returns {import("../app.js").Pane}
 */
export function replayBar(app, replay) {
  const { t } = app;
  const { checkpoints, texts, name } = replay.run;
  const last = checkpoints.length - 1;
  const slider = el("input.timeline", { type: "range", min: 0, max: last, step: 1, "aria-label": t("checkpoint"), oninput: () => replay.go({ at: Number(slider.value) }) });
  const play = el("button.run.play", { onclick: () => replay.play(!replay.playing) });
  const step = (/** @type {number} */ by, /** @type {string} */ sign, /** @type {import("../messages.js").MessageKey} */ word) =>
    el("button.icon", { title: t(word), "aria-label": t(word), onclick: () => replay.go({ at: replay.at + by }) }, sign);
  const text = el("select", { "aria-label": t(app.about.image ? "replayImage" : "replayText"), onchange: () => replay.go({ text: Number(text.value) }) }, texts.map((one, i) => el("option", { value: i }, one)));
  const run = el("select", { "aria-label": t("replayRun"), onchange: () => (location.search = `?run=${encodeURIComponent(run.value)}`) }, replay.runs.map((one) => el("option", { value: one.name }, one.name)));
  const numbers = el("p.numbers", { "data-says": "" });
  const curve = shape("svg.score-curve", { width: WIDTH, height: HEIGHT, role: "img" });
  const more = el("button.icon.unfold", { title: t("replayScores"), "aria-label": t("replayScores"), "aria-expanded": "false", onclick: () => more.setAttribute("aria-expanded", String(element.toggleAttribute("data-open"))) }, "▾"); // the curve does not fit low windows
  const element = el("section.input-bar.replay", { "aria-label": t("training") },
    el("div.line", {}, run, text, el("span.gap"), el("span.note", {}, t(app.about.image ? "replayImageHow" : "replayHow"))),
    el("div.line.playback", {}, play, step(-1, "‹", "replayBack"), slider, step(1, "›", "replayNext"), numbers, more, curve),
    el("div.visually-hidden", {}, tableOf(app, replay)));
  const show = () => {
    slider.value = String(replay.at);
    slider.setAttribute("aria-valuetext", `${t("replayStep")} ${checkpoints[replay.at].step}`);
    [text.value, run.value] = [String(replay.text), name];
    fill(play, replay.playing ? `⏸ ${t("stop")}` : `▶ ${t("replayPlay")}`);
    play.setAttribute("aria-pressed", String(replay.playing));
    fill(numbers, replay.error ? el("span.error", {}, t.error(replay.error)) : numbersOf(app, replay));
    fill(curve, scoreCurve(app, replay));
  };
  if (!replay.onchange) listenToKeys(app, replay);
  replay.onchange = show; // the page may be rebuilt: only the newest bar is updated
  show();
  return { element, update: () => (element.hidden = app.store.state.page !== "explore") };
}

/**
 * Keyboard shortcuts of the replay.
 * @param {App} app
 * @param {Replay} replay
 */
function listenToKeys(app, replay) {
  app.root.ownerDocument.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input:not([type=range]):not([type=checkbox]), select, textarea")) return;
    const by = /** @type {Record<string, number>} */ ({ ",": -1, ".": 1 })[event.key];
    if (by) replay.go({ at: replay.at + by });
    if (event.key === "p") replay.play(!replay.playing);
  });
}

/**
 * @param {App} app
 * @param {Replay} replay
 */
function numbersOf({ t }, { run, at }) {
  const { step, epoch, loss, score } = run.checkpoints[at];
  const one = (/** @type {string} */ name, /** @type {number | null} */ x, digits = 3) =>
    x === null ? "" : el("span.figure", {}, el("i", {}, name), " ", el("b", { title: full(x) }, short(x, digits)));
  return [
    el("span.figure", {}, el("i", {}, t("replayStep")), " ", el("b", {}, step.toLocaleString("en"))),
    one(t("replayEpoch"), epoch, 1),
    one(metricName(run.metric, t), score),
    run.metric === "loss" ? "" : one(t("replayLoss"), loss),
  ];
}

/**
 * @param {string} metric
 * @param {App["t"]} t
 */
function metricName(metric, t) {
  const known = { bleu: "BLEU", chrf: "chrF", exact: t("metricExact"), accuracy: t("metricAccuracy"), loss: t("metricLoss") };
  return /** @type {Record<string, string>} */ (known)[metric] ?? metric;
}

/**
 * Draw the score over the steps, with a point for each checkpoint.
 * @param {App} app
 * @param {Replay} replay
 */
function scoreCurve({ t }, replay) {
  const { run, at } = replay;
  const scores = run.checkpoints.map((one) => one.score ?? NaN);
  const known = scores.filter(Number.isFinite);
  if (known.length < 2) return [];
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const [from, to] = [run.checkpoints[0].step, run.checkpoints[scores.length - 1].step];
  const x = (/** @type {number} */ i) => MARGIN + ((WIDTH - 2 * MARGIN) * (run.checkpoints[i].step - from)) / (to - from || 1);
  const y = (/** @type {number} */ i) => HEIGHT - MARGIN - ((HEIGHT - 2 * MARGIN) * (scores[i] - low)) / (high - low || 1);
  const points = [...scores.keys()].filter((i) => Number.isFinite(scores[i]));
  const name = metricName(run.metric, t);
  return [
    shape("title", {}, t("replayCurve", { metric: name, low: short(low), high: short(high) })),
    shape("path.score-line", { d: points.map((i, n) => `${n ? "L" : "M"}${x(i).toFixed(1)} ${y(i).toFixed(1)}`).join("") }),
    ...points.map((i) => shape(i === at ? "circle.now" : "circle.then", { cx: x(i), cy: y(i), r: i === at ? 4.5 : 2.6 })),
    ...points.map((i) => shape("rect.hit", { x: x(i) - 8, y: 0, width: 16, height: HEIGHT, onclick: () => replay.go({ at: i }) })),
  ];
}

/**
 * @param {App} app
 * @param {Replay} replay
 */
function tableOf({ t }, { run }) {
  const head = [t("replayStep"), metricName(run.metric, t), t("replayLoss")];
  const rows = run.checkpoints.map(({ step, score, loss }) => [String(step), score === null ? "" : short(score), loss === null ? "" : short(loss)]);
  return el("table", {}, el("caption", {}, t("training")),
    el("tr", {}, head.map((one) => el("th", { scope: "col" }, one))),
    rows.map((row) => el("tr", {}, row.map((one) => el("td", {}, one)))));
}
