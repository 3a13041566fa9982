// Playback of one pass through the model: a front moves from station to station.

import { el } from "../dom.js";
import { reducesMotion } from "../motion.js";

/** The longest time of one layer, in milliseconds. */
const LAYER_TIME = 560;

/** The state of a pass: `at` counts stations; at the end, everything is shown. */
export class Playback {
  /** @param {(at: number) => void} onmove */
  constructor(onmove) {
    this.onmove = onmove;
    this.count = 0;
    this.at = 0;
    this.playing = false;
    this.stepTime = LAYER_TIME / 3;
    this.frames = 0;
  }

  /**
   * Start again with other stations; the whole picture is shown.
   * @param {number} count
   * @param {import("../source.js").Flow} flow
   */
  reset(count, flow) {
    const perLayer = flow.sides.map((side) => side.stations.filter((one) => one.layer === 0).length);
    this.stepTime = LAYER_TIME / Math.max(2, ...perLayer);
    if (count === this.count) return;
    this.count = count;
    this.playing = false;
    this.at = count;
  }

  get isDone() {
    return this.at >= this.count;
  }

  /** @param {number} at */
  seek(at) {
    this.at = Math.max(0, Math.min(this.count, at));
    if (this.isDone) this.playing = false;
    this.onmove(this.at);
  }

  /** @param {number} by */
  step(by) {
    this.playing = false;
    this.seek(by > 0 ? Math.floor(this.at + 1e-6) + 1 : Math.ceil(this.at - 1e-6) - 1);
  }

  toggle() {
    if (this.playing) {
      this.playing = false;
      return this.onmove(this.at);
    }
    if (this.isDone) this.at = 0;
    this.playing = true;
    this.onmove(this.at);
    if (reducesMotion()) this.jump();
    else this.run();
  }

  /** Move with every animation frame. */
  run() {
    let last = performance.now();
    const frame = (/** @type {number} */ now) => {
      if (!this.playing) return;
      const passed = Math.min(100, Math.max(0, now - last));
      last = now;
      this.frames++;
      this.advance(this.at + passed / this.stepTime);
      if (this.playing) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  /** Without motion: show one station after the other. */
  jump() {
    setTimeout(() => {
      if (!this.playing) return;
      this.advance(Math.floor(this.at + 1e-6) + 1);
      if (this.playing) this.jump();
    }, 2 * this.stepTime);
  }

  /** @param {number} at */
  advance(at) {
    this.seek(at);
  }
}

/**
 * Play one pass for a visitor who has come without a link; anything the visitor does ends it.
 * @param {HTMLElement} root
 * @param {Playback} playback
 */
export function playOnce(root, playback) {
  if (!root.dataset.plays) return;
  delete root.dataset.plays;
  if (reducesMotion()) return;
  const stop = new AbortController();
  const end = (/** @type {Event} */ event) => {
    stop.abort();
    const own = event.target instanceof Element && event.target.closest(".flow-controls");
    if (playback.playing && !own) playback.seek(playback.count);
  };
  for (const name of ["pointerdown", "keydown", "wheel"]) root.ownerDocument.addEventListener(name, end, { signal: stop.signal, capture: true, passive: true });
  playback.toggle();
}

/**
 * Scroll a picture that is wider than the screen, so that the front stays in view.
 * @param {HTMLElement} element
 * @param {number} front
 */
export function followFront(element, front) {
  const { scrollLeft, clientWidth } = element;
  if (front > scrollLeft + 0.8 * clientWidth) element.scrollLeft = front - 0.8 * clientWidth;
  else if (front < scrollLeft + 0.1 * clientWidth) element.scrollLeft = front - 0.4 * clientWidth;
}

/**
 * The controls of a pass.
 * @param {import("../app.js").App} app
 * @param {Playback} playback
 * @param {(at: number) => string} nameOf the station at which the front is
 */
export function playControls({ t }, playback, nameOf) {
  const icon = (/** @type {string} */ name, /** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ act) =>
    el(`button.icon.${name}`, { title: label, "aria-label": label, onclick: act }, text);
  const play = icon("play", "▶", t("flowPlay"), () => playback.toggle());
  const slider = el("input", { type: "range", min: 0, max: 1, step: 0.05, value: 1, "aria-label": t("flowTime"), oninput: () => {
    playback.playing = false;
    playback.seek(Number(slider.value));
  } });
  const name = el("output.small");
  const element = el("div.flow-controls", { role: "group", "aria-label": t("flowTime") },
    icon("back", "‹", t("flowBack"), () => playback.step(-1)), play, icon("next", "›", t("flowNext"), () => playback.step(1)), slider, name);
  let shown = "";
  const refresh = () => { // in every frame: what stays the same is left alone
    slider.value = String(playback.at);
    const [label, text] = [t(playback.playing ? "flowPause" : "flowPlay"), nameOf(playback.at)];
    if (shown === `${label} ${text} ${playback.count}`) return;
    shown = `${label} ${text} ${playback.count}`;
    play.textContent = playback.playing ? "❚❚" : "▶";
    play.title = label;
    play.setAttribute("aria-label", label);
    slider.max = String(playback.count);
    slider.value = String(playback.at);
    name.textContent = text;
    slider.setAttribute("aria-valuetext", text);
  };
  return { element, refresh };
}
