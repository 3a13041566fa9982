// A pattern as a graph: tokens are nodes, arrows point from queries to keys.

import { fill, shape, textWidth } from "../dom.js";
import { row } from "../matrix.js";
import { around, strength } from "./lines.js";
import { shortened } from "./plot.js";

/**
 * @typedef {import("./plot.js").Plot} Plot
 * @typedef {{ x: number, y: number, angle: number, i: number, role: "query" | "key" | "both", label?: number }} Dot `label` is the y position of its label
 */

const MAX_NODES = 40;
/** The height of a label, in pixels. */
const LABEL_HEIGHT = 13;
const LEVELS = 6;

/**
 * @param {Element} element
 * @param {Plot} plot
 * @param {boolean} sameTokens whether queries and keys are the same tokens
 */
export function draw(element, plot, sameTokens) {
  const size = layOut(plot);
  const { asking, answering } = sameTokens ? circle(plot, size) : halves(plot, size);
  const picture = shape("svg.graph", { width: size.width, height: size.height, role: "img", "aria-label": `${plot.asks}; ${plot.answers}` });
  const edges = shape("g");
  const dots = sameTokens ? asking : [...asking, ...answering];
  picture.append(edges, ...dots.flatMap((dot) => node(plot, dot)), ...legend(plot, sameTokens));
  fill(element, picture);
  const select = (/** @type {number} */ query) => {
    fill(edges, arrows(plot, asking, answering, size, query));
    for (const one of picture.querySelectorAll("[data-query]")) {
      one.classList.toggle("on", Number(one.getAttribute("data-query")) === query);
    }
  };
  select(plot.query);
  return select;
}

/** @param {Plot} plot */
function layOut(plot) {
  const ticks = [...plot.rows, ...plot.columns].slice(0, 200);
  const label = Math.max(30, ...ticks.map((tick) => textWidth(shortened(tick.label, 12), 12)));
  const least = Math.min(260, Math.max(170, plot.height - 64)); // less only in low windows
  const side = Math.max(least, Math.min(plot.width - 2 * label - 20, plot.height - 64, 560));
  const width = Math.min(plot.width, side + 2 * label + 20);
  return { width, height: side + 60, cx: width / 2, cy: side / 2 + 40, r: side / 2 - 12 };
}

/** @typedef {ReturnType<typeof layOut>} Size */

/**
 * @param {Plot} plot
 * @param {Size} size
 */
function circle(plot, { cx, cy, r }) {
  const [first, stop] = around(plot.rows.length, plot.query, MAX_NODES);
  const made = place(first, stop, -Math.PI / 2, 2 * Math.PI, true, { cx, cy, r }, "both");
  return { asking: made, answering: made };
}

/**
 * Place queries on the left half of a circle and keys on the right half.
 * @param {Plot} plot
 * @param {Size} size
 */
function halves(plot, { cx, cy, r }) {
  const asks = around(plot.rows.length, plot.query, MAX_NODES);
  const answers = around(plot.columns.length, plot.key, MAX_NODES);
  const ring = { cx, cy, r: r - 8 };
  const asking = place(asks[0], asks[1], -Math.PI / 2 - 0.3, -(Math.PI - 0.6), false, ring, "query");
  const answering = place(answers[0], answers[1], -Math.PI / 2 + 0.3, Math.PI - 0.6, false, ring, "key");
  [asking, answering].forEach((dots) => dots.length * LABEL_HEIGHT <= 2 * r + LABEL_HEIGHT && spread(dots));
  return { asking, answering };
}

/**
 * Move overlapping labels away from the middle.
 * @param {Dot[]} dots from top to bottom
 */
function spread(dots) {
  const middle = Math.floor(dots.length / 2);
  dots.forEach((dot) => (dot.label = dot.y + 10 * Math.sin(dot.angle)));
  for (let n = middle - 1; n >= 0; n--) dots[n].label = Math.min(Number(dots[n].label), Number(dots[n + 1].label) - LABEL_HEIGHT);
  for (let n = middle + 1; n < dots.length; n++) dots[n].label = Math.max(Number(dots[n].label), Number(dots[n - 1].label) + LABEL_HEIGHT);
}

/**
 * @param {number} first
 * @param {number} stop
 * @param {number} from
 * @param {number} turn
 * @param {boolean} closed
 * @param {{ cx: number, cy: number, r: number }} ring
 * @param {Dot["role"]} role
 * @returns {Dot[]}
 */
function place(first, stop, from, turn, closed, { cx, cy, r }, role) {
  const count = stop - first;
  return Array.from({ length: count }, (_, n) => {
    const angle = from + (turn * n) / Math.max(1, closed ? count : count - 1);
    return { i: first + n, angle, x: cx + r * Math.cos(angle), y: cy + r * Math.sin(angle), role };
  });
}

/**
 * @param {Plot} plot
 * @param {Dot} dot
 */
function node(plot, { x, y, angle, i, role, label }) {
  const tick = role === "key" ? plot.columns[i] : plot.rows[i];
  const away = Math.cos(angle);
  const anchor = away > 0.25 ? "start" : away < -0.25 ? "end" : "middle";
  const below = Math.abs(away) <= 0.25 ? (Math.sin(angle) > 0 ? 14 : -8) : 0;
  const hover = () => (role === "key" ? plot.onhover(-1, i) : plot.onhover(i, -1));
  const pick = () => (role === "key" ? plot.onpick(-1, i) : plot.onpick(i, -1));
  const asks = role === "key" ? {} : { "data-query": i };
  return [
    shape(`circle.node.${role}`, { cx: x, cy: y, r: 4, ...asks }),
    shape(`text.tick.${role === "key" ? "key" : "query"}${tick.special ? ".special" : ""}`, {
      ...{ x: x + 10 * away, y: label ?? y + 10 * Math.sin(angle) + below, dy: "0.35em", "text-anchor": anchor },
      ...{ onpointerenter: hover, onclick: pick, ...asks },
    }, shortened(tick.label, 12)),
  ];
}

/**
 * @param {Plot} plot
 * @param {Dot[]} asking
 * @param {Dot[]} answering
 * @param {Size} size
 * @param {number} query
 */
function arrows(plot, asking, answering, size, query) {
  const faint = Array.from({ length: LEVELS }, () => "");
  const strong = Array.from({ length: LEVELS }, () => ({ line: "", tip: "" }));
  for (const from of asking) {
    const line = row(plot.table, from.i);
    for (const to of answering) {
      const weight = strength(plot, from.i, to.i, line[to.i]);
      if (weight < 0.03) continue;
      const level = Math.min(LEVELS - 1, Math.floor(weight * LEVELS));
      const drawn = arrow(from, to, size);
      if (from.i !== query) faint[level] += drawn.line;
      else {
        strong[level].line += drawn.line;
        strong[level].tip += drawn.tip;
      }
    }
  }
  const width = (/** @type {number} */ level) => (0.7 + (3.6 * (level + 1)) / LEVELS).toFixed(2);
  return [
    ...faint.map((d, n) => d && shape("path.curve.others", { d, "stroke-width": width(n), "stroke-opacity": (0.05 + 0.04 * n).toFixed(2) })),
    ...strong.map(({ line }, n) => line && shape("path.curve.custom-view", { d: line, "stroke-width": width(n), "stroke-opacity": (0.35 + 0.11 * n).toFixed(2) })),
    ...strong.map(({ tip }) => tip && shape("path.tip", { d: tip })),
  ].filter((path) => path !== "");
}

/**
 * Return a curve that ends before the node, with an arrowhead; a loop if a token looks at itself.
 * @param {Dot} from
 * @param {Dot} to
 * @param {Size} size
 */
function arrow(from, to, { cx, cy }) {
  if (from.x === to.x && from.y === to.y) {
    const [ux, uy] = [Math.cos(from.angle), Math.sin(from.angle)];
    const [bx, by] = [from.x - 34 * ux, from.y - 34 * uy];
    const [a, b] = [[bx - 16 * uy, by + 16 * ux], [bx + 16 * uy, by - 16 * ux]];
    return { line: `M${f(from.x)} ${f(from.y)}C${a.map(f).join(" ")} ${b.map(f).join(" ")} ${f(from.x)} ${f(from.y)}`, tip: "" };
  }
  const bend = [cx + (from.x + to.x - 2 * cx) * 0.22, cy + (from.y + to.y - 2 * cy) * 0.22];
  const [dx, dy] = [to.x - bend[0], to.y - bend[1]];
  const length = Math.hypot(dx, dy) || 1;
  const [ux, uy] = [dx / length, dy / length];
  const end = [to.x - 7 * ux, to.y - 7 * uy];
  const back = [end[0] - 7 * ux, end[1] - 7 * uy];
  const tip = `M${f(end[0])} ${f(end[1])}L${f(back[0] - 3.4 * uy)} ${f(back[1] + 3.4 * ux)}L${f(back[0] + 3.4 * uy)} ${f(back[1] - 3.4 * ux)}z`;
  return { line: `M${f(from.x)} ${f(from.y)}Q${bend.map(f).join(" ")} ${end.map(f).join(" ")}`, tip };
}

/** @param {number} x */
function f(x) {
  return x.toFixed(1);
}

/**
 * @param {Plot} plot
 * @param {boolean} sameTokens
 */
function legend(plot, sameTokens) {
  const made = [shape("text.sum", { x: 0, y: 13 }, plot.t("graphLegend"))];
  if (!sameTokens) {
    made.push(shape("text.axis.query", { x: 0, y: 31 }, plot.asks), shape("text.axis.key", { x: textWidth(plot.asks, 12) + 24, y: 31 }, plot.answers));
  }
  return made;
}
