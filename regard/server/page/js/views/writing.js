// A language model goes on with its text: by chance, as the temperature of sampling says.

import { el, fill } from "../dom.js";
import { short } from "../format.js";
import { askFor } from "../http.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../live.js").Live} Live
 */

const MOST = 40;

/**
 * @param {App} app
 * @param {Live} live
 */
export function writing(app, live) {
  const { say, store } = app;
  const told = el("span.written", { "aria-live": "polite" });
  /** @type {AbortController | null} */
  let going = null;
  let turn = 0; // another seed each time
  const slider = el("input", { type: "range", min: 0, max: 2, step: 0.05, value: store.state.sampling, "aria-label": say("sampling"), oninput: () => heat(Number(slider.value)) });
  const number = el("output.digits");
  const show = (/** @type {number} */ heat) => fill(number, short(heat, 2));
  const heat = (/** @type {number} */ value) => {
    show(value);
    store.set({ sampling: value });
  };
  show(store.state.sampling);
  const write = async () => {
    const { model, text } = /** @type {import("../http.js").Ask} */ (live.asked);
    going?.abort();
    const mine = (going = new AbortController());
    const asked = { model, text, max_tokens: MOST, temperature: Number(slider.value), seed: turn++ };
    fill(told, say("doing_writing"));
    try {
      const found = await askFor("/api/generate", asked, { signal: mine.signal, tell: (progress) => fill(told, progress.text ?? "") });
      const go = el("button.quiet", { onclick: () => live.ask({ model, text: found.text }) }, say("lookInside"));
      fill(told, el("b", {}, found.written), " ", go);
    } catch (error) {
      if (!mine.signal.aborted) fill(told, el("span.fault", {}, /** @type {Error} */ (error).message));
    }
  };
  return [
    el("button.quiet.write", { onclick: write }, say("writeOn")),
    el("label.slider", { title: say("samplingHelp") }, say("sampling"), " ", slider, " ", number),
    told,
  ];
}
