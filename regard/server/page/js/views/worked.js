// The worked example: small matrices that can be edited; everything else is recomputed.

import { compare, masked, scaled, softmax } from "../attention.js";
import { el, fill } from "../dom.js";
import { factor, short } from "../format.js";
import { formula, fraction, root, v } from "../formula.js";
import { matrix, weightedSum } from "../matrix.js";
import { scaleFormula } from "./edit_controls.js";
import { saveMenu } from "./pane.js";
import { Quiz } from "./worked_quiz.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../matrix.js").Matrix} Matrix
 * @typedef {Record<string, Matrix>} Tables X, the three matrices, and everything that follows
 */

const GIVEN = /** @type {const} */ (["X", "WQ", "WK", "WV"]);
/** Default settings. */
const DEFAULTS = { causal: false, scaled: true, temperature: 1 };

/**
 * @param {App} app
 * @returns {import("../app.js").Pane}
 */
export function worked(app) {
  const { t } = app;
  const given = read(app, app.store.state.work) ?? startValues(app);
  const element = el("main.pane.worked", { "aria-label": t("worked") });
  const where = el("p.where", { "data-says": "" }, t("workedWhere"));
  const flow = el("div.flow");
  const light = (/** @type {string[]} */ cells) => {
    for (const place of cells) flow.querySelectorAll(`[data-cell="${place}"]`).forEach((one) => one.classList.add("lit"));
  };
  const quiz = new Quiz(app, { tables: () => compute(given), terms: ({ name, i, j }) => termsOf(name, i, j, compute(given), given), redraw: () => show(), light });
  const show = () => {
    const tables = compute(given);
    fill(flow, rowsOf(app, given, tables, () => change(), quiz));
    explainOnHover(flow, where, tables, given, t("workedWhere"));
  };
  const change = () => {
    const active = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset?.cell;
    app.store.set({ work: write(given, startValues(app)) });
    show();
    if (active) /** @type {HTMLElement | null} */ (flow.querySelector(`input[data-cell="${active}"]`))?.focus();
  };
  const restart = (/** @type {Partial<Given>} */ numbers) => {
    Object.assign(given, numbers);
    if (quiz.cell) quiz.stop();
    change();
    fill(head, headOf());
  };
  const headOf = () => [el("h1", {}, t("workedTitle")), el("span.gap"), controls(app, given, change), el("div.tools", {}, el("button.quiet.new", { onclick: () => restart(newNumbers(given)) }, t("workedNew")), el("button.quiet", { onclick: () => restart(startValues(app)) }, t("reset")), el("button.quiet.ask", { onclick: () => quiz.ask() }, t("workedQuiz"))), saveMenu(app, "worked", () => asText(compute(given)))];
  const head = el("header.head", {}, headOf());
  element.append(head, el("p.lead", {}, t("workedLead")), where, quiz.element, flow);
  return { element, update: (changed) => (changed.has("all") ? show() : undefined) };
}

/** @typedef {{ X: Matrix, WQ: Matrix, WK: Matrix, WV: Matrix, words: string[], causal: boolean, scaled: boolean, temperature: number }} Given */

/**
 * @param {App} app
 * @returns {Given}
 */
function startValues({ about, t }) {
  const words = t("workedWords").split(" ");
  const { x, w_query: q, w_key: k, w_value: w } = about.worked;
  const table = (/** @type {number[][]} */ rows) => matrix(rows.length, rows[0].length, rows.flat());
  return { X: table(x), WQ: table(q), WK: table(k), WV: table(w), words, ...DEFAULTS };
}

/**
 * @param {Given} given
 * @returns {Tables}
 */
export function compute({ X, WQ, WK, WV, causal, scaled: on, temperature }) {
  const [Q, K, V] = [WQ, WK, WV].map((weight) => weightedSum(X, weight));
  const E = compare(Q, K);
  const S = on ? scaled(E, K.columns ** -0.5) : E;
  const allowed = causal ? Uint8Array.from({ length: E.data.length }, (_, i) => Number(i % E.columns <= Math.floor(i / E.columns))) : null;
  const M = masked(S, allowed);
  const A = softmax(M, temperature);
  return { X, WQ, WK, WV, Q, K, V, E, S, M, A, Y: weightedSum(A, V) };
}

/**
 * @param {App} app
 * @param {Given} given
 * @param {() => void} change
 */
function controls(app, given, change) {
  const { t } = app;
  const box = (/** @type {"causal" | "scaled"} */ name, /** @type {import("../dom.js").Child} */ text) => {
    const input = el("input", { type: "checkbox", checked: given[name], onchange: () => ((given[name] = input.checked), change()) });
    return el("label", {}, input, text);
  };
  const temperature = el("input", { type: "range", min: 0, max: 4, step: 0.05, value: given.temperature, "aria-label": t("temperature"), oninput: () => ((given.temperature = Number(temperature.value)), (shown.textContent = short(given.temperature, 2)), change()) });
  const shown = el("output.digits", {}, short(given.temperature, 2));
  return el("div.edit-controls.tools", {}, box("scaled", scaleFormula()), box("causal", t("causalMask")), el("label.slider", {}, t("temperature"), temperature, shown));
}

/**
 * Return other numbers that are still easy to multiply.
 * @param {Given} given
 */
function newNumbers(given) {
  const some = (/** @type {Matrix} */ { rows, columns }, /** @type {number} */ most) => matrix(rows, columns, Float32Array.from({ length: rows * columns }, () => Math.floor(Math.random() * (most + 1))));
  return { X: some(given.X, 2), WQ: some(given.WQ, 1), WK: some(given.WK, 1), WV: some(given.WV, 3) };
}

/**
 * @param {App} app
 * @param {Given} given
 * @param {Tables} tables
 * @param {() => void} change
 * @param {Quiz} quiz
 */
function rowsOf(app, given, tables, change, quiz) {
  const { t } = app;
  const { words } = given;
  const show = (/** @type {string} */ name, /** @type {Partial<Look>} */ look = {}) => tableOf(app, name, tables[name], { words, columns: null, change, quiz, ...look });
  const sign = (/** @type {string} */ text) => el("span.sign", {}, text);
  const arrow = (/** @type {import("../dom.js").Child | import("../dom.js").Child[]} */ name) => el("span.sign.arrow", {}, el("span.by", {}, name), el("span", { "aria-hidden": "true" }, "⟶"));
  const then = (/** @type {HTMLElement} */ operator, /** @type {HTMLElement} */ operand) => el("div.operand", {}, operator, operand); // a line breaks before an operator
  const heat = given.temperature === 1 ? "" : ` (· / ${short(given.temperature, 2)})`;
  const made = (/** @type {"query" | "key" | "value"} */ role, /** @type {string} */ letter) =>
    el(`div.line.${role}`, {}, show("X"), then(sign("×"), show(`W${letter}`, { words: null })), then(sign("="), show(letter, { role, title: t(/** @type {any} */ (`${role}Rows`)) })));
  const compared = [show("Q", { role: "query" }), then(sign("×"), show("K", { words: null, columns: words, role: "key", transposed: true })), then(sign("="), show("E", { columns: words, title: t("compared") }))];
  const scores = [show("E", { columns: words, title: t("compared") })];
  if (given.scaled) scores.push(then(arrow(scaleFormula()), show("S", { columns: words, title: t("scores") })));
  if (given.causal) scores.push(then(arrow(t("causalMask")), show("M", { columns: words, title: t("masked") })));
  scores.push(then(arrow(formula(`softmax${heat}`, `softmax${heat}`)), show("A", { columns: words, role: "weight", title: t("weights"), sums: true })));
  return [
    made("query", "Q"),
    made("key", "K"),
    made("value", "V"),
    el("div.line", {}, compared),
    el("div.line", {}, scores),
    el("div.line", {}, show("A", { columns: words, role: "weight", title: t("weights") }), then(sign("×"), show("V", { role: "value" })), then(sign("="), show("Y", { title: t("contextRows") }))),
    wholeFormula(given),
  ];
}

/**
 * The formula with the settings of the example.
 * @param {Given} given
 */
function wholeFormula({ scaled: on, temperature }) {
  const heat = temperature === 1 ? "" : short(temperature, 2);
  const divisor = [on ? root(v("d", "k")) : "", on && heat ? " · " : "", heat];
  const product = [v("Q"), " ", v("K"), el("sup", {}, "⊤")];
  const spoken = `Attention(Q, K, V) = softmax(Q Kᵀ${on ? " / √d_k" : ""}${heat ? ` / ${heat}` : ""}) V`;
  return formula(spoken, "Attention(", v("Q"), ", ", v("K"), ", ", v("V"), ") = softmax(", on || heat ? fraction(product, divisor) : product, ") ", v("V"));
}

/** @typedef {{ words: string[] | null, columns: string[] | null, role: string, title: string, sums: boolean, transposed: boolean, change: () => void, quiz: Quiz }} Look */

/** Symbols with a subscript. */
/** @type {Record<string, [string, string]>} */
const SYMBOLS = { WQ: ["W", "Q"], WK: ["W", "K"], WV: ["W", "V"] };

/**
 * @param {App} app
 * @param {string} name
 * @param {Matrix} table
 * @param {Partial<Look> & { change: () => void, quiz: Quiz }} look
 */
function tableOf(app, name, table, { words, columns, role, title, sums, transposed, change, quiz }) {
  const editable = GIVEN.includes(/** @type {any} */ (name));
  const most = Math.max(...Array.from(table.data).filter(Number.isFinite).map(Math.abs), 1e-9);
  const cell = (/** @type {number} */ i, /** @type {number} */ j) => {
    const x = table.data[i * table.columns + j];
    const place = `${name}:${i}:${j}`;
    if (editable) return el("td", {}, field(x, place, `${name} ${i} ${j}`, (value) => ((table.data[i * table.columns + j] = value), change())));
    if (quiz.hides(name, i, j)) return el("td.made.asked-for", {}, "?");
    const share = Number.isFinite(x) ? Math.abs(x) / most : 0;
    return el(`td.made${x === -Infinity ? ".hidden" : ""}`, { "data-cell": place, tabindex: -1, style: { "--share": (0.34 * share).toFixed(3) } }, trimZeros(x));
  };
  const heads = columns ? el("tr", {}, words ? el("td") : "", columns.map((word) => el("th.key", {}, word)), sums ? el("th.sum", {}, app.t("sum")) : "") : "";
  const [down, across] = transposed ? [table.columns, table.rows] : [table.rows, table.columns];
  const rows = Array.from({ length: down }, (_, i) => {
    const cells = Array.from({ length: across }, (__, j) => (transposed ? cell(j, i) : cell(i, j)));
    const total = sums ? el("td.sum", {}, short(table.data.subarray(i * table.columns, (i + 1) * table.columns).reduce((a, b) => a + b, 0))) : "";
    return el("tr", {}, words ? el("th", {}, words[i]) : "", cells, total);
  });
  const [letter, below] = SYMBOLS[name] ?? [name, ""];
  return el(`figure.matrix${role ? `.${role}` : ""}`, { "data-table": transposed ? `${name}T` : name }, el("figcaption", {}, v(letter, below), transposed ? el("sup", {}, "⊤") : "", title ? el("span.small", {}, ` ${title}`) : ""), el("table", {}, heads, rows));
}

/**
 * @param {number} x
 * @param {string} place
 * @param {string} label
 * @param {(x: number) => void} set
 */
function field(x, place, label, set) {
  const input = el("input", {
    value: String(Number(x.toFixed(4))),
    inputmode: "decimal",
    "data-cell": place,
    "aria-label": label,
    onchange: () => {
      const value = Number(input.value.replace(",", ".").replace("−", "-"));
      const good = input.value.trim() !== "" && Number.isFinite(value);
      input.classList.toggle("wrong", !good);
      if (good) set(value);
    },
  });
  return input;
}

/** @param {number} x */
function trimZeros(x) {
  if (!Number.isFinite(x)) return short(x);
  return short(x, 4).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

/**
 * Highlight the inputs of the hovered number and show its computation.
 * @param {HTMLElement} flow
 * @param {HTMLElement} where
 * @param {Tables} tables
 * @param {Given} given
 * @param {string} resting
 */
function explainOnHover(flow, where, tables, given, resting) {
  const clear = () => flow.querySelectorAll(".lit, .asked").forEach((one) => one.classList.remove("lit", "asked"));
  flow.onpointerover = (event) => {
    const cell = /** @type {HTMLElement} */ (event.target).closest?.("[data-cell]");
    clear();
    if (!cell || cell.tagName === "INPUT") return fill(where, resting);
    const [name, i, j] = /** @type {HTMLElement} */ (cell).dataset.cell?.split(":").map((x, n) => (n ? Number(x) : x)) ?? [];
    const { cells, parts } = termsOf(String(name), Number(i), Number(j), tables, given);
    flow.querySelectorAll(`[data-cell="${name}:${i}:${j}"]`).forEach((one) => one.classList.add("asked"));
    for (const place of cells) flow.querySelectorAll(`[data-cell="${place}"]`).forEach((one) => one.classList.add("lit"));
    return fill(where, v(String(name), `${i},${j}`), " = ", parts);
  };
  flow.onpointerleave = () => {
    clear();
    fill(where, resting);
  };
}

/**
 * Return the inputs of a number and its computation as text.
 * @param {string} name
 * @param {number} i
 * @param {number} j
 * @param {Tables} tables
 * @param {Given} given
 */
function termsOf(name, i, j, tables, given) {
  const at = (/** @type {string} */ table, /** @type {number} */ a, /** @type {number} */ b) => tables[table].data[a * tables[table].columns + b];
  const range = (/** @type {number} */ n) => Array.from({ length: n }, (_, c) => c);
  const result = trimZeros(at(name, i, j));
  const products = (/** @type {[string, number, number][][]} */ pairs) => ({
    cells: pairs.flat().map((place) => place.join(":")),
    parts: `${pairs.map(([a, b]) => `${factor(at(...a))}·${factor(at(...b))}`).join(" + ")} = ${result}`,
  });
  if (["Q", "K", "V"].includes(name)) return products(range(tables.X.columns).map((c) => [["X", i, c], [`W${name}`, c, j]]));
  if (name === "E") return products(range(tables.Q.columns).map((c) => [["Q", i, c], ["K", j, c]]));
  if (name === "Y") return products(range(tables.A.columns).map((c) => [["A", i, c], ["V", c, j]]));
  if (name === "S") return { cells: [`E:${i}:${j}`], parts: `${trimZeros(at("E", i, j))} ÷ √${tables.K.columns} = ${result}` };
  const before = given.causal ? "M" : given.scaled ? "S" : "E";
  if (name === "M") return { cells: [`S:${i}:${j}`, `E:${i}:${j}`], parts: j > i ? `j > i  →  ${result}` : result };
  const row = range(tables.A.columns).map((c) => `${before}:${i}:${c}`);
  const temperature = given.temperature === 1 ? "" : ` / ${short(given.temperature, 2)}`;
  const powers = range(tables.A.columns).map((c) => `e^(${trimZeros(at(before, i, c))}${temperature})`);
  return { cells: row, parts: given.temperature === 0 ? `max → ${result}` : `${powers[j]} ÷ (${powers.join(" + ")}) = ${result}` };
}

/** @param {Tables} tables */
function asText(tables) {
  return Object.entries(tables).map(([name, { rows, columns, data }]) => [name, ...Array.from({ length: rows }, (_, i) => Array.from(data.subarray(i * columns, (i + 1) * columns)).join("\t"))].join("\n")).join("\n\n");
}

/**
 * Return what differs from the example, for the address.
 * @param {Given} given
 * @param {Given} start
 */
function write(given, start) {
  const numbers = GIVEN.map((name) => Array.from(given[name].data, (x) => Number(x.toFixed(4))).join(","));
  const plain = GIVEN.every((name) => given[name].data.every((x, i) => x === start[name].data[i])) && given.causal === DEFAULTS.causal && given.scaled === DEFAULTS.scaled && given.temperature === DEFAULTS.temperature;
  return plain ? "" : [...numbers, Number(given.causal), Number(given.scaled), given.temperature].join(";");
}

/**
 * @param {App} app
 * @param {string} text
 * @returns {Given | null}
 */
function read(app, text) {
  const parts = text.split(";");
  if (parts.length !== GIVEN.length + 3) return null;
  const made = startValues(app);
  for (const [n, name] of GIVEN.entries()) {
    const numbers = parts[n].split(",").map(Number);
    if (numbers.length !== made[name].data.length || !numbers.every(Number.isFinite)) return null;
    made[name].data.set(numbers);
  }
  const temperature = Number(parts[6]);
  return { ...made, causal: parts[4] === "1", scaled: parts[5] === "1", temperature: temperature >= 0 ? temperature : 1 };
}
