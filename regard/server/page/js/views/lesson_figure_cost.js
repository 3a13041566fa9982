// The figure of complexity: table 1 of the paper, with the reader's own sizes.

import { costs, LAYER_TYPES } from "../course/cost.js";
import { el, fill } from "../dom.js";
import { formula, v } from "../formula.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("./lesson_figures.js").FigureContext} FigureContext
 * @typedef {import("../course/cost.js").Sizes} Sizes
 */

const SLIDERS = /** @type {const} */ ([["n", "figurePositions", 2, 4096], ["d", "figureWidth", 16, 1024], ["k", "figureKernel", 2, 31], ["r", "figureRadius", 1, 256]]);

/** @param {number} x */
function whole(x) {
  return x.toLocaleString("en-US");
}

/**
 * @param {App} app
 * @param {FigureContext} context
 */
export async function cost(app, { own, report }) {
  const { t, open } = app;
  /** @type {Sizes} */
  const sizes = { ...(own.cost ?? { n: open.site.n_key, d: open.site.d_k * open.site.n_heads, k: 3, r: 4 }) };
  const table = el("div.scrolled");
  const show = () => {
    fill(table, tableOf(app, sizes));
    report({ cost: { ...sizes } });
  };
  const controls = SLIDERS.map(([name, title, least, most]) => {
    const exponent = (/** @type {number} */ x) => (100 * Math.log(x / least)) / Math.log(most / least);
    const number = el("output.digits", {}, whole(sizes[name]));
    const set = () => {
      sizes[name] = Math.round(least * (most / least) ** (Number(slider.value) / 100));
      slider.setAttribute("aria-valuetext", whole(sizes[name]));
      fill(number, whole(sizes[name]));
      show();
    };
    const slider = el("input", { type: "range", min: 0, max: 100, step: 0.5, value: exponent(sizes[name]), "aria-label": t(title), "aria-valuetext": whole(sizes[name]), "data-size": name, oninput: set });
    return el("label.slider", {}, el("span", {}, t(title)), slider, number);
  });
  show();
  return { title: t("figureCost"), body: [el("div.sizes", {}, controls), table] };
}

/**
 * @param {App} app
 * @param {Sizes} sizes
 */
function tableOf({ t }, sizes) {
  const found = costs(sizes);
  const most = Math.max(...LAYER_TYPES.map((name) => found[name].operations));
  const power = (/** @type {string} */ letter) => [v(letter), el("sup", {}, "2")];
  const formulas = {
    self: ["n²·d", [...power("n"), " · ", v("d")], "1", "1"],
    recurrent: ["n·d²", [v("n"), " · ", ...power("d")], "n", "n"],
    convolution: ["k·n·d²", [v("k"), " · ", v("n"), " · ", ...power("d")], "1", "log_k n"],
    restricted: ["r·n·d", [v("r"), " · ", v("n"), " · ", v("d")], "1", "n/r"],
  };
  const paths = { self: ["1"], recurrent: [v("n")], convolution: [el("span.var", {}, "log", el("sub", {}, v("k"))), " ", v("n")], restricted: [v("n"), "/", v("r")] };
  const rows = LAYER_TYPES.map((name) => {
    const { operations, steps, path } = found[name];
    const [spoken, parts, sequence, distance] = /** @type {[string, import("../dom.js").Child[], string, string]} */ (formulas[name]);
    return el("tr", { "data-layer": name }, el("th", { scope: "row" }, t(`cost_${name}`)),
      el("td", {}, formula(`O(${spoken})`, "O(", parts, ")"), el("span.track", {}, el("span.bar", { style: { width: `${((100 * operations) / most).toFixed(2)}%` } })), el("span.digits", { "data-value": operations }, whole(operations))),
      el("td", {}, formula(`O(${sequence})`, "O(", sequence === "n" ? v("n") : sequence, ")"), " ", el("span.digits", { "data-value": steps }, whole(steps))),
      el("td", {}, formula(`O(${distance})`, "O(", paths[name], ")"), " ", el("span.digits", { "data-value": path }, whole(path))));
  });
  const head = el("tr", {}, /** @type {const} */ (["figureLayer", "figureOperations", "figureSteps", "figurePath"]).map((name) => el("th", { scope: "col" }, t(name))));
  return el("table.cost", { "data-part": "operations way" }, el("thead", {}, head), el("tbody", {}, rows));
}
