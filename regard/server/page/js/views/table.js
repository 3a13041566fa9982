// The pattern as a table for those who listen: whole where it is small, one query where it is not.

import { el } from "../dom.js";
import { short } from "../format.js";
import { lineAt } from "../select.js";
import { plotOf } from "./plot.js";

const WHOLE = 16;
const MOST = 60;

/**
 * @param {import("../app.js").App} app
 * @returns {HTMLElement}
 */
export function readTable(app) {
  const { open, say, store } = app;
  const { rows, columns, table } = plotOf(app, open.after, "weights");
  const caption = el("caption", {}, `${say("weights")}: ${say("asks")}, ${say("answers")}`);
  if (!open.large && rows.length <= WHOLE && columns.length <= WHOLE) {
    const head = el("tr", {}, el("td"), columns.map((tick) => el("th", { scope: "col" }, tick.label)));
    const body = rows.map((tick, i) =>
      el("tr", {}, el("th", { scope: "row" }, tick.label), columns.map((_, j) => el("td", {}, short(table.data[i * columns.length + j])))));
    return el("table", {}, caption, head, body);
  }
  const { query } = store.state;
  const line = lineAt(app, query).weights.data;
  const order = Array.from(line.keys()).sort((a, b) => line[b] - line[a]).slice(0, MOST);
  const body = order.map((j) => el("tr", {}, el("th", { scope: "row" }, open.columns[j].label), el("td", {}, short(line[j]))));
  return el("table", {}, el("caption", {}, say("tableOfQuery", { query: open.rows[query].label })), body);
}
