// What the flow says about one place: hover texts, vectors, hidden units, and the table.

import { el, fill } from "../dom.js";
import { hasLines } from "../flow_layout.js";
import { full, short } from "../format.js";
import { largestSize } from "../matrix.js";
import { openView } from "../selection.js";
import { labelOf } from "../tokens.js";
import { stripHeight } from "./flow_draw.js";
import { describeReading } from "./flow_lens.js";
import { embeddingName } from "./part_names.js";
import { drawStrip } from "./step_parts.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").Station} Station
 * @typedef {import("../source.js").FlowRows} FlowRows
 * @typedef {import("../source.js").Flow} Flow
 * @typedef {import("../tokens.js").Tick} Tick
 * @typedef {import("../flow_layout.js").Place} Place
 * @typedef {import("../flow_layout.js").Layout} Layout
 */

/**
 * Everything that details need of the flow that is shown.
 * @typedef {object} Shown
 * @property {Flow} flow
 * @property {Layout} layout
 * @property {FlowRows[]} rows by side
 * @property {Tick[][]} ticks by side
 * @property {"mean" | "top"} heads
 * @property {import("./flow_lens.js").FlowLens} [lens]
 */

/**
 * @param {import("../messages.js").Translate} t
 * @param {Station} station
 */
export function stationName(t, station) {
  const layer = station.layer ?? 0;
  switch (station.kind) {
    case "tokens": return t("station_tokens");
    case "embedding": return t(station.added.length ? "station_positions" : "station_embedding");
    case "self": return t("station_self", { layer });
    case "cross": return t("station_cross", { layer });
    case "context": return t("station_context");
    case "feed_forward": return t("station_feed_forward", { layer });
    case "recurrent": return t(station.path.includes(".backward.") ? "station_backward" : "station_recurrent", { layer });
    default: return t("station_output");
  }
}

/**
 * Return the name of the station at which the front of a pass is.
 * @param {import("../messages.js").Translate} t
 * @param {Layout | null} layout
 * @param {Flow | null} flow
 * @param {number} at
 */
export function frontName(t, layout, flow, at) {
  const column = layout?.columns[Math.ceil(at - 1e-6) - 1];
  if (!column) return at > 0 ? t("flowEnd") : "";
  const side = flow && flow.sides.length > 1 ? `${t(flow.sides[column.side].name)} · ` : "";
  return `${side}${stationName(t, column.station)}`;
}

/**
 * The keys that a query looks at most, as the lines show them.
 * @param {Shown} shown
 * @param {number} side
 * @param {Station} station
 * @param {number} position
 */
export function keysOf({ rows, ticks, heads }, side, station, position) {
  const lines = rows[side].lines[station.site ?? ""]?.[heads];
  if (!lines) return [];
  const from = station.kind === "self" ? side : 0;
  const row = position - rows[side].start;
  return Array.from({ length: lines.keys.columns }, (_, n) => {
    const at = row * lines.keys.columns + n;
    const key = lines.keys.data[at];
    return { key, label: ticks[from][key]?.label ?? String(key), weight: lines.weights.data[at], head: lines.heads ? lines.heads.data[at] : null };
  });
}

/**
 * The text of a place: a title, a path, and rows of names and numbers.
 * @param {App} app
 * @param {Shown} shown
 * @param {Place} place
 * @param {number} fraction of the strip's height at the pointer
 */
export function describePlace(app, shown, place, fraction) {
  const { t } = app;
  const { side, position } = place;
  const token = shown.ticks[side][position]?.label ?? String(position);
  const title = [el("b", {}, token), " ", el("span.small", {}, String(position))];
  if (place.part === "prediction") return [el("p", {}, title), ...predictions(app, shown, side, position)];
  if (place.part === "label") return [el("p", {}, title)];
  const { station } = shown.layout.columns[place.column];
  const rows = shown.rows[side];
  const i = position - rows.start;
  const lines = [el("p", {}, title, " · ", stationName(t, station)), el("p.path", {}, place.part === "zone" ? station.added[0] ?? station.site ?? station.path : station.path)];
  const numbers = place.part === "strip" ? [[t("flowNorm"), rows.norm[station.path][i]], bucketAt(app, rows, station, i, fraction)] : [];
  if (rows.added[station.path]) numbers.push([t("flowAddedNorm"), rows.added[station.path][i]]);
  if (place.part === "zone" && hasLines(station)) lines.push(keyList(app, shown, side, station, position));
  const read = place.part === "strip" ? shown.lens?.at(station.path, position) : null;
  return [...lines, numberList(/** @type {[string, number][]} */ (numbers)), read ? describeReading(t, read) : ""];
}

/**
 * @param {App} app
 * @param {FlowRows} rows
 * @param {Station} station
 * @param {number} i
 * @param {number} fraction
 * @returns {[string, number]}
 */
function bucketAt({ t }, rows, station, i, fraction) {
  const strip = rows.strip[station.path];
  const n = Math.max(0, Math.min(strip.columns - 1, Math.floor(fraction * strip.columns)));
  const [first, stop] = [n, n + 1].map((edge) => Math.floor((edge * station.width) / strip.columns));
  const name = stop - first > 1 ? t("flowBucket", { first, last: stop - 1 }) : t("flowDimension", { i: first });
  return [name, strip.data[i * strip.columns + n]];
}

/** @param {[string, number][]} numbers */
function numberList(numbers) {
  return el("dl.numbers", {}, numbers.flatMap(([name, x]) => [el("dt", {}, name), el("dd.digits", { title: full(x), "data-value": x }, short(x))]));
}

/**
 * @param {App} app
 * @param {Shown} shown
 * @param {number} side
 * @param {Station} station
 * @param {number} position
 */
function keyList({ t, sites }, shown, side, station, position) {
  const n = sites.find((one) => one.path === station.site)?.n_heads ?? 1;
  const keys = keysOf(shown, side, station, position).filter(({ weight }) => weight > 0.0005).slice(0, 5);
  const head = (/** @type {number | null} */ head) => (head === null || n < 2 ? "" : ` · ${t("headName", { head })}`);
  return el("div", {}, el("p.small", {}, t(shown.heads === "mean" ? "flowMeanOf" : "flowTopOf", { n })),
    el("dl.numbers", {}, keys.flatMap(({ label, weight, head: one }) => [el("dt", {}, label, el("span.small", {}, head(one))), el("dd.digits", { title: full(weight), "data-value": weight }, short(weight))])));
}

/**
 * @param {App} app
 * @param {Shown} shown
 * @param {number} side
 * @param {number} position
 */
function predictions({ t, about }, shown, side, position) {
  const list = shown.rows[side].predictions?.[position - shown.rows[side].start] ?? about.output?.classes ?? [];
  return [el("p.small", {}, t("captionPredictions")), el("dl.numbers", {}, list.slice(0, 5).flatMap((/** @type {any} */ { name, probability }) =>
    [el("dt", {}, labelOf(name)), el("dd.digits", { title: full(probability), "data-value": probability }, short(probability))]))];
}

/**
 * The panel of a clicked place: its vector, or the hidden units of a feed-forward layer.
 * @param {App} app
 * @param {Shown} shown
 * @param {{ path: string, position: number }} spot
 * @param {() => void} close
 */
export async function placeDetails(app, shown, { path, position }, close) {
  const { t } = app;
  const isUnits = path.endsWith(".feed_forward");
  const owner = isUnits ? `${path}.residual` : path;
  const side = shown.flow.sides.findIndex((one) => one.stations.some((station) => station.path === owner));
  const station = shown.flow.sides[side]?.stations.find((one) => one.path === owner);
  if (!station || position >= shown.flow.sides[side].n_tokens) return null;
  const token = shown.ticks[side][position]?.label ?? String(position);
  const body = isUnits ? await unitList(app, shown, path, position) : await vectorList(app, shown, side, station, position);
  const read = isUnits ? null : shown.lens?.at(path, position);
  const openLens = () => app.store.set({ page: "explore", ...openView(app, "lens"), query: position, pinned: true });
  const reading = read ? [describeReading(t, read), el("button.to-cause", { onclick: openLens }, t("lensOpen"))] : "";
  const shut = el("button.icon", { title: t("close"), "aria-label": t("close"), onclick: close }, "×");
  const title = el("h3", {}, el("b", {}, token), ` · ${stationName(t, station)}`);
  return el("div.flow-card", { "data-path": path, "data-position": position }, el("header", {}, title, el("span.gap"), shut), el("p.path", {}, `${path}[${position}]`), body, reading);
}

/**
 * @param {App} app
 * @param {Shown} shown
 * @param {number} side
 * @param {Station} station
 * @param {number} position
 */
async function vectorList({ t }, shown, side, station, position) {
  const found = await shown.flow.vector(station.path, position);
  if (!found) return el("p.note", {}, t("notInFile"));
  const { vector, before, ...added } = found;
  const comparable = before && Object.keys(added).length > 0;
  const parts = comparable ? [before, ...Object.values(added), vector] : [vector];
  const most = Math.max(...parts.map((x) => largestSize(x)));
  const where = el("p.where.digits");
  const line = (/** @type {string} */ name, /** @type {string} */ title, /** @type {Float32Array} */ values) => {
    const label = `${name}, ${t("flowNorm")} ${short(norm(values))}`;
    const strip = drawStrip({ values, role: "positive", label, most, height: 34, onhover: (i) => (where.textContent = i < 0 ? "" : `${title}[${i}] = ${full(values[i])}`) }, 252);
    return el("div.line", {}, el("span.name", { title }, name), strip.element, el("span.digits.norm", { title: full(norm(values)), "data-value": norm(values) }, `${t("flowNorm")} ${short(norm(values))}`));
  };
  const rows = comparable
    ? [line(t("flowBefore"), station.before ?? "", before), ...Object.entries(added).map(([path, x]) => line(`+ ${path.split(".").slice(-2)[0] === "embedding" ? embeddingName(t, path) : t("flowAdded")}`, path, x)), line(`= ${t("flowHere")}`, station.path, vector)]
    : [line(t("flowHere"), station.path, vector)];
  const sum = comparable ? el("p.note", {}, t(station.normalized ? "flowSumNorm" : "flowSum")) : "";
  return el("div", {}, rows, where, sum, tracks({ t }, shown, side, station, position));
}

/**
 * The norms along the rail up to a station.
 * @param {{ t: App["t"] }} app
 * @param {Shown} shown
 * @param {number} side
 * @param {Station} last
 * @param {number} position
 */
function tracks({ t }, shown, side, last, position) {
  const { stations } = shown.flow.sides[side];
  const rows = shown.rows[side];
  const i = position - rows.start;
  const past = stations.slice(0, stations.indexOf(last) + 1).filter((one) => rows.added[one.path]);
  if (past.length < 2 || !(i in rows.norm[last.path])) return "";
  const most = Math.max(...past.map((one) => rows.added[one.path][i]));
  return el("details.tracks", {}, el("summary", {}, t("flowTracks")), el("ul", {}, past.map((one) =>
    el("li", {}, el("span.name", {}, stationName(t, one)), el("span.bar", { style: { width: `${(70 * rows.added[one.path][i]) / most}px` } }), el("span.digits", {}, `+ ${short(rows.added[one.path][i])}`)))));
}

/** @param {Float32Array} values */
export function norm(values) {
  return Math.sqrt(values.reduce((sum, x) => sum + x * x, 0));
}

/**
 * @param {App} app
 * @param {Shown} shown
 * @param {string} path
 * @param {number} position
 */
async function unitList({ t }, shown, path, position) {
  const found = await shown.flow.units(path, position);
  if (!found) return el("p.note", {}, t("notInFile"));
  const most = Math.max(...found.units.map((unit) => unit.norm));
  const logits = found.writes === "logits";
  const entry = (/** @type {{ name: string, amount: number }} */ { name, amount }) =>
    el("span.unit-word", { title: full(amount) }, el("b", {}, logits ? labelOf(name) : name), " ", el("span.digits", {}, `${amount < 0 ? "" : "+"}${short(amount)}`));
  const row = (/** @type {import("../source.js").HiddenUnit} */ unit) =>
    el("tr", {}, el("th.digits", { scope: "row" }, unit.index), el("td.digits", { title: full(unit.activation), "data-value": unit.activation }, short(unit.activation)),
      el("td.digits", { title: full(unit.norm), "data-value": unit.norm }, el("span.bar", { style: { width: `${(44 * unit.norm) / most}px` } }), short(unit.norm)), el("td", {}, unit.written.slice(0, 3).map(entry)));
  const heads = [t("flowUnit"), t("flowActivation"), t("flowNorm"), t("flowWrites")].map((text) => el("th", { scope: "col" }, text));
  return el("div", {}, el("p.note", {}, t("flowUnits"), ". ", t("flowActive", { n: found.n_active, all: found.n_units })),
    el("table.units", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, found.units.map(row))), el("p.note", {}, t(logits ? "flowWritesLogits" : "flowWritesDimensions")));
}

/**
 * The numbers of one position at every station, for screen readers and for copying.
 * @param {App} app
 * @param {Element} element
 * @param {Shown} shown
 * @param {number} side
 * @param {number} position
 */
export function fillTable({ t }, element, shown, side, position) {
  const token = shown.ticks[side][position]?.label ?? String(position);
  const rows = shown.rows[side];
  const i = position - rows.start;
  const heads = [t("flowStation"), t("flowNorm"), t("flowAddedNorm"), t("flowLooksAt")].map((text) => el("th", { scope: "col" }, text));
  const body = shown.flow.sides[side].stations.map((station) => {
    const [best] = keysOf(shown, side, station, position);
    const added = rows.added[station.path]?.[i];
    return el("tr", { "data-path": station.path }, el("th", { scope: "row" }, stationName(t, station)), el("td.digits", {}, short(rows.norm[station.path][i])),
      el("td.digits", {}, added === undefined ? "" : short(added)), el("td", {}, best ? `${best.label} ${short(best.weight)}` : ""));
  });
  fill(element, el("summary", {}, t("flowTable", { token: `${token} (${position})` })),
    el("div.scroll", {}, el("table.terms", {}, el("caption.visually-hidden", {}, t("flowTable", { token })), el("thead", {}, el("tr", {}, heads)), el("tbody", {}, body))));
}

/**
 * Return the part of a strip's height at which a point is, from 0 to 1.
 * @param {Layout} layout
 * @param {Place} place
 * @param {number} y
 */
export function stripFraction(layout, place, y) {
  const band = layout.bands[place.side];
  const tall = stripHeight(band.height);
  const top = band.top + (place.position - band.first + 0.5) * band.height - tall / 2;
  return (y - top) / tall;
}
