// A pattern as lines between two columns of tokens; thicker lines are larger weights.

import { fill, shape, textWidth } from "../dom.js";
import { short } from "../format.js";
import { row } from "../matrix.js";
import { shortened } from "./plot.js";

/** @typedef {import("./plot.js").Plot} Plot */

const MAX_TOKENS = 60;
const LEVELS = 8;
/** The width of a number before the edits and an arrow. */
const OLD_NUMBER = 52;
/** The pixels between the ends of a line before and after the edits. */
const OFFSET = 3.5;

/**
 * Return the range of tokens to show: all, or those around the selected one.
 * @param {number} count
 * @param {number} chosen
 * @param {number} [most]
 * @returns {[number, number]}
 */
export function around(count, chosen, most = MAX_TOKENS) {
  if (count <= most) return [0, count];
  const first = Math.min(Math.max(0, chosen - Math.floor(most / 2)), count - most);
  return [first, first + most];
}

/**
 * @param {Element} element
 * @param {Plot} plot
 */
export function draw(element, plot) {
  const { rows, columns, turned } = plot;
  const spans = { query: around(rows.length, plot.query), key: around(columns.length, plot.key) };
  const most = Math.max(spans.query[1] - spans.query[0], spans.key[1] - spans.key[0]);
  const step = Math.max(15, Math.min(30, Math.floor((plot.height - 44) / most)));
  const width = Math.min(plot.width, 620);
  const widest = (/** @type {typeof rows} */ ticks, /** @type {[number, number]} */ span) =>
    Math.max(40, ...ticks.slice(...span).map((tick) => textWidth(shortened(tick.label, 18), 13)));
  const [leftTicks, rightTicks] = turned ? [columns, rows] : [rows, columns];
  const [leftSpan, rightSpan] = turned ? [spans.key, spans.query] : [spans.query, spans.key];
  const size = {
    ...{ step, width, height: 40 + most * step },
    left: widest(leftTicks, leftSpan) + 14,
    right: width - widest(rightTicks, rightSpan) - 62 - (plot.before && !turned ? OLD_NUMBER : 0),
  };
  const picture = shape("svg.lines", { width: size.width, height: size.height, role: "img", "aria-label": `${plot.asks}; ${plot.answers}` });
  const bundle = shape("g");
  picture.append(bundle, ...titles(plot, size), ...words(plot, size, spans));
  fill(element, picture);
  const select = (/** @type {number} */ query) => {
    fill(bundle, curves(plot, size, spans, query), numbers(plot, size, spans, query));
    for (const text of picture.querySelectorAll("text.tick.query")) {
      text.classList.toggle("on", Number(text.getAttribute("data-i")) === query);
    }
  };
  select(plot.query);
  const y = 40 + (plot.query - spans.query[0] + 0.5) * step;
  if (y > element.scrollTop + element.clientHeight) element.scrollTop = y - element.clientHeight / 2; // the selected query is in view
  return select;
}

/** @typedef {{ query: [number, number], key: [number, number] }} Spans */
/** @typedef {{ step: number, width: number, height: number, left: number, right: number }} Size */

/**
 * @param {Plot} plot
 * @param {Size} size
 */
function titles({ asks, answers, turned }, { left, right }) {
  const [near, far] = turned ? ["key", "query"] : ["query", "key"];
  const [nearText, farText] = turned ? [answers, asks] : [asks, answers];
  return [
    shape(`text.axis.${near}`, { x: 0, y: 13 }, nearText),
    shape(`text.axis.${far}`, { x: Math.max(right, left + 40), y: 13 }, farText),
  ];
}

/**
 * @param {Plot} plot
 * @param {Size} size
 * @param {Spans} spans
 */
function words(plot, { step, left, right }, spans) {
  const column = (/** @type {"query" | "key"} */ role) => {
    const ticks = role === "query" ? plot.rows : plot.columns;
    const near = (role === "query") !== plot.turned;
    const [first, stop] = spans[role];
    return ticks.slice(first, stop).map((tick, n) =>
      shape(`text.tick.${role}${tick.special ? ".special" : ""}`, {
        x: near ? left - 10 : right + 10,
        y: 40 + (n + 0.5) * step,
        dy: "0.35em",
        "text-anchor": near ? "end" : "start",
        "data-i": first + n,
        tabindex: -1,
        onpointerenter: () => (role === "query" ? plot.onhover(first + n, -1) : plot.onhover(-1, first + n)),
        onclick: () => (role === "query" ? plot.onpick(first + n, -1) : plot.onpick(-1, first + n)),
      }, shortened(tick.label, 18)),
    );
  };
  return [...column("query"), ...column("key")];
}

/**
 * Draw all lines, grouped by width into a few paths; those of the selected query on top.
 * @param {Plot} plot
 * @param {Size} size
 * @param {Spans} spans
 * @param {number} query
 */
function curves(plot, size, spans, query) {
  const others = Array.from({ length: LEVELS }, () => "");
  const selected = Array.from({ length: LEVELS }, () => "");
  for (let i = spans.query[0]; i < spans.query[1]; i++) {
    const line = row(plot.table, i);
    for (let j = spans.key[0]; j < spans.key[1]; j++) {
      const weight = strength(plot, i, j, line[j]);
      if (weight < 0.01) continue;
      const level = Math.min(LEVELS - 1, Math.floor(weight * LEVELS));
      (i === query ? selected : others)[level] += curve(plot, size, spans, i, j);
    }
  }
  const dim = Math.min(1, 16 / plot.rows.length); // many lines must not hide the selected ones
  const drawn = (/** @type {string} */ name, /** @type {string[]} */ paths) =>
    paths.map((d, level) => {
      const share = (level + 1) / LEVELS;
      const faint = name === "selected" ? 0.25 + 0.75 * share : dim * (0.05 + 0.28 * share);
      return d && shape(`path.curve.${name}`, { d, "stroke-width": (0.6 + 3.4 * share).toFixed(2), "stroke-opacity": faint.toFixed(3) });
    });
  return [...drawn("others", others), ...earlier(plot, size, spans, query), ...drawn("selected", selected)].filter((path) => path !== "");
}

/**
 * Draw the selected query's lines before the edits, dashed; those that are the same are left out.
 * @param {Plot} plot
 * @param {Size} size
 * @param {Spans} spans
 * @param {number} query
 */
function earlier(plot, size, spans, query) {
  const { before } = plot;
  if (!before) return [];
  const [old, line] = [row(before.table, query), row(plot.table, query)];
  const made = [];
  for (let j = spans.key[0]; j < spans.key[1]; j++) {
    const weight = strength({ ...plot, ...before }, query, j, old[j]);
    const same = Math.abs(weight - strength(plot, query, j, line[j])) < 5e-4;
    if (weight < 0.01 || same) continue;
    made.push(shape("path.curve.old", { d: curve(plot, size, spans, query, j, line[j] < 0.01 ? 0 : -OFFSET), "stroke-width": (0.8 + 1.8 * weight).toFixed(2), "data-key": j }));
  }
  return made;
}

/**
 * Return the strength of a connection from 0 to 1, at any stage.
 * @param {Plot} plot
 * @param {number} i
 * @param {number} j
 * @param {number} x
 */
export function strength(plot, i, j, x) {
  if (plot.off || (plot.kept && !plot.kept[i * plot.columns.length + j])) return 0;
  if (plot.stage === "weights") return x;
  const [low, high] = plot.range;
  return x === -Infinity || high === low ? 0 : (x - low) / (high - low);
}

/**
 * @param {Plot} plot
 * @param {Size} size
 * @param {Spans} spans
 * @param {number} i
 * @param {number} j
 * @param {number} [shift] of the end at the key, in pixels
 */
function curve({ turned }, { step, left, right }, spans, i, j, shift = 0) {
  const [a, b] = [40 + (i - spans.query[0] + 0.5) * step, 40 + (j - spans.key[0] + 0.5) * step + shift];
  const [y1, y2] = turned ? [b, a] : [a, b];
  const middle = (left + right) / 2;
  return `M${left} ${y1}C${middle} ${y1} ${middle} ${y2} ${right} ${y2}`;
}

/**
 * Draw the selected query's numbers next to its keys.
 * @param {Plot} plot
 * @param {Size} size
 * @param {Spans} spans
 * @param {number} query
 */
function numbers(plot, { step, width }, spans, query) {
  if (plot.turned) return [];
  const [line, old] = [row(plot.table, query), plot.before && row(plot.before.table, query)];
  const made = [];
  for (let j = spans.key[0]; j < spans.key[1]; j++) {
    const [now, then] = [plot.off ? 0 : line[j], old ? old[j] : line[j]];
    const least = plot.stage === "weights" ? 0.02 : 0;
    if (Math.max(strength(plot, query, j, line[j]), plot.before ? strength({ ...plot, ...plot.before }, query, j, then) : 0) < least) continue;
    const y = 40 + (j - spans.key[0] + 0.5) * step;
    const was = short(then) === short(now) ? [] : [shape("tspan.was", {}, `${short(then)} → `)];
    made.push(shape("text.number", { x: width, y, dy: "0.35em", "text-anchor": "end" }, ...was, short(now)));
  }
  return made;
}
