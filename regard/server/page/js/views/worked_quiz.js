// The quiz of the worked example: one number is hidden, the reader computes it, the page checks it.

import { el, fill } from "../dom.js";
import { v } from "../formula.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("./worked.js").Tables} Tables
 * @typedef {{ name: string, i: number, j: number }} Cell
 * @typedef {{ cells: string[], parts: string }} Terms the inputs of a number, and its computation as text
 */

/** The tables that are asked about, in the order of computation. */
const ASKED = ["Q", "K", "V", "E", "S", "A", "Y"];
/** An answer with two decimals is exact enough. */
const TOLERANCE = 0.0051;

export class Quiz {
  /**
   * @param {App} app
   * @param {{ tables: () => Tables, terms: (cell: Cell) => Terms, redraw: () => void, light: (cells: string[]) => void }} given
   */
  constructor(app, given) {
    this.app = app;
    this.given = given;
    /** @type {Cell | null} the number that is hidden */
    this.cell = null;
    this.asked = 0;
    this.right = 0;
    this.element = el("div.quiz", { hidden: true });
  }

  /** Ask for the next number: a cell of the next table. */
  ask() {
    const tables = this.given.tables();
    const shown = ASKED.filter((name) => name !== "S" || tables.S !== tables.E);
    const name = shown[this.asked % shown.length];
    const { rows, columns } = tables[name];
    this.asked++;
    this.cell = { name, i: Math.floor(Math.random() * rows), j: Math.floor(Math.random() * columns) };
    this.given.redraw();
    this.show();
  }

  stop() {
    this.cell = null;
    this.element.hidden = true;
    this.given.redraw();
  }

  /**
   * Return whether a number is hidden.
   * @param {string} name
   * @param {number} i
   * @param {number} j
   */
  hides(name, i, j) {
    return this.cell !== null && this.cell.name === name && this.cell.i === i && this.cell.j === j;
  }

  show() {
    const { t } = this.app;
    const { name, i, j } = /** @type {Cell} */ (this.cell);
    const field = el("input.answer", { inputmode: "decimal", autocomplete: "off", "aria-label": t("workedAnswer") });
    const says = el("p.says", { "data-says": "" });
    const check = (/** @type {Event} */ event) => {
      event.preventDefault();
      this.check(field.value, says);
    };
    this.element.hidden = false;
    fill(this.element,
      el("form", { onsubmit: check }, el("span", {}, ...t.parts("workedAsk", { cell: v(name, `${i},${j}`) }), " "), field, el("button.run", { type: "submit" }, t("workedCheck")), el("button.quiet", { type: "button", onclick: () => this.reveal(says, "") }, t("workedShow")), el("button.quiet", { type: "button", onclick: () => this.stop() }, t("close"))),
      says);
    field.focus();
  }

  /**
   * @param {string} text
   * @param {HTMLElement} says
   */
  check(text, says) {
    const { t } = this.app;
    const { name, i, j } = /** @type {Cell} */ (this.cell);
    const table = this.given.tables()[name];
    const value = Number(text.trim().replace(",", ".").replace("−", "-"));
    if (text.trim() === "" || Number.isNaN(value)) return;
    if (Math.abs(value - table.data[i * table.columns + j]) <= TOLERANCE) {
      this.right++;
      return this.reveal(says, t("workedRight"));
    }
    this.given.light(this.given.terms({ name, i, j }).cells);
    fill(says, t("workedWrong"));
  }

  /**
   * Show the number with its computation.
   * @param {HTMLElement} says
   * @param {string} lead
   */
  reveal(says, lead) {
    const { t } = this.app;
    const cell = /** @type {Cell} */ (this.cell);
    const { cells, parts } = this.given.terms(cell);
    this.cell = null;
    this.given.redraw();
    this.given.light([...cells, `${cell.name}:${cell.i}:${cell.j}`]);
    fill(says, lead, lead ? " " : "", v(cell.name, `${cell.i},${cell.j}`), " = ", parts, " ", el("button.run", { type: "button", onclick: () => this.ask() }, t("workedNext")), el("span.small", {}, ` ${t("workedScore", { right: this.right, asked: this.asked })}`));
    /** @type {HTMLElement | null} */ (says.querySelector("button"))?.focus();
  }
}
