// Controls of decoding: play, step, speed, and the settings with which a language model is sampled.

import { el } from "../dom.js";
import { short } from "../format.js";

/** @typedef {import("../app.js").App} App */

const SPEEDS = [0.5, 1, 2, 4];

/**
 * @param {App} app
 * @param {{ toggle: () => void, step: (by: number) => void, seek: (at: number) => void, speed: (speed: number) => void, close: () => void }} actions
 */
export function decodingControls({ t }, actions) {
  const icon = (/** @type {string} */ name, /** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ act) =>
    el(`button.icon.${name}`, { title: label, "aria-label": label, onclick: act }, text);
  const play = icon("play", "▶", t("decodingPlay"), actions.toggle);
  const slider = el("input", { type: "range", min: 0, max: 1, step: 1, value: 0, "aria-label": t("decodingTime"), oninput: () => actions.seek(Number(slider.value)) });
  const name = el("output.small");
  const speed = el("select.speed", { "aria-label": t("decodingSpeed"), title: t("decodingSpeed"), onchange: () => actions.speed(Number(speed.value)) },
    SPEEDS.map((one) => el("option", { value: one }, `${one === 0.5 ? "½" : one}×`)));
  const element = el("div.flow-controls.decoding-controls", { role: "group", "aria-label": t("decodingTime") },
    icon("back", "‹", t("decodingBack"), () => actions.step(-1)), play, icon("next", "›", t("decodingNext"), () => actions.step(1)), slider, speed, name);
  const close = icon("close", "✕", t("decodingClose"), actions.close);
  /** @param {{ at: number, count: number, playing: boolean, speed: number }} now */
  const refresh = (now) => {
    const label = t(now.playing ? "flowPause" : "decodingPlay");
    play.textContent = now.playing ? "❚❚" : "▶";
    play.title = label;
    play.setAttribute("aria-label", label);
    slider.max = String(now.count);
    slider.value = String(now.at);
    speed.value = String(now.speed);
    name.textContent = t("decodingAt", { at: now.at, n: now.count });
    slider.setAttribute("aria-valuetext", name.textContent ?? "");
  };
  return { element, close, refresh };
}

/**
 * Temperature, top-k, top-p and seed, and the command that writes the same text.
 * @param {App} app
 * @param {{ topK: number | null, topP: number | null, seed: number }} settings
 * @param {() => void} changed
 */
export function samplingControls(app, settings, changed) {
  const { t, store } = app;
  const set = (/** @type {Partial<typeof settings>} */ parts) => {
    Object.assign(settings, parts);
    changed();
  };
  const heat = el("input", { type: "range", min: 0, max: 2, step: 0.05, value: store.state.sampling, "aria-label": t("sampling"), onchange: () => store.set({ sampling: Number(heat.value) }), oninput: () => (number.textContent = short(Number(heat.value), 2)) });
  const number = el("output.digits", {}, short(store.state.sampling, 2));
  const field = (/** @type {any} */ value, /** @type {any} */ limits, /** @type {(x: number | null) => void} */ act) => {
    const made = el("input.number", { type: "number", value: value ?? "", placeholder: t("optionOff"), ...limits, onchange: () => act(made.value === "" ? null : Math.min(Number(limits.max ?? Infinity), Math.max(Number(limits.min), Number(made.value)))) });
    return made;
  };
  return [
    el("label.slider", { title: t("samplingHelp") }, `${t("sampling")} T `, heat, " ", number),
    el("label", {}, "top-k ", field(settings.topK, { min: 1, step: 1 }, (x) => set({ topK: x === null ? null : Math.round(x) }))),
    el("label", {}, "top-p ", field(settings.topP, { min: 0.05, max: 1, step: 0.05 }, (x) => set({ topP: x }))),
    el("label", { title: t("sameEngine") }, `${t("seed")} `, field(settings.seed, { min: 0, step: 1 }, (x) => set({ seed: Math.round(x ?? 0) }))),
    el("button.quiet", { onclick: () => set({ seed: settings.seed + 1 }) }, t("drawAgain")),
    el("details.menu.command", {}, el("summary", { title: t("sameCommand"), "aria-label": t("sameCommand") }, "›_"), el("div.items", {}, el("p.note", {}, t("sameCommand")), el("code", {}, commandOf(app, settings)), el("p.note.engine", {}, t("sameEngine")))),
  ];
}

/**
 * Return the command that writes the same text.
 * @param {App} app
 * @param {{ topK: number | null, topP: number | null, seed: number }} settings
 */
function commandOf({ about, store }, { topK, topP, seed }) {
  const { text = "" } = /** @type {any} */ (about).asked ?? {};
  const quoted = `'${text.replace(/'/g, "'\\''")}'`;
  const options = [topK && `--top-k ${topK}`, topP && `--top-p ${topP}`, `--seed ${seed}`].filter(Boolean).join(" ");
  return `regard generate ${about.title} ${quoted} --engine torch --max-tokens 40 --temperature ${store.state.sampling} ${options}`;
}
