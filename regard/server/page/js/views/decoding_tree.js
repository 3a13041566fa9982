// Beam search as a tree that grows with the text: kept sequences go on, pruned ones fade.

import { el, fill, shape, textWidth } from "../dom.js";
import { full, short } from "../format.js";
import { MOVE, move } from "../motion.js";
import { rove } from "../radio_group.js";
import { labelOf } from "../tokens.js";

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").TreeNode} TreeNode
 */

const ROW = 25;
const [MIN_COLUMN, MAX_COLUMN] = [122, 190];
/** Space in a node next to its name: padding, gaps, the score and the mark of the end. */
const SCORE = 68;
const NODE = 21;
/** Space for the lines between two steps. */
const GAP = 34;
/** The steps that are drawn; of a longer text, the last ones. */
const MAX_STEPS = 48;

/**
 * @param {App} app
 * @param {(ids: number[]) => void} branch called with the tokens of a clicked sequence
 */
export function searchTree(app, branch) {
  const { t } = app;
  const note = el("p.note.small");
  const board = el("div.tree-board", { role: "group", "aria-label": t("beamTitle") });
  const scroller = el("div.tree-scroller", {}, board);
  const element = el("section.decoding-tree", { "aria-label": t("beamTitle") }, el("header", {}, el("h2", {}, t("beamTitle")), note), scroller);
  rove(board, ".tree-node");

  /**
   * Draw the tree up to a step.
   * @param {TreeNode[]} tree
   * @param {number} at steps that are done
   * @param {{ prefix: number[], keeps: number }} options forced tokens, and the size of the beam
   */
  const show = (tree, at, { prefix, keeps }) => {
    fill(note, t("beamHow", { n: keeps }));
    const first = Math.max(tree[0]?.step ?? 1, at - MAX_STEPS + 1);
    const last = Math.max(...tree.map((node) => node.step), 1);
    const column = columnWidth(tree, (scroller.clientWidth - 8) / Math.max(1, last - first + 1));
    const { places, height } = placeNodes(tree, first, at, column);
    const edges = tree.map((node, i) => {
      const [from, to] = [node.parent === null ? undefined : places.get(node.parent), places.get(i)];
      return from && to ? edge(from, to, node, at, column) : null;
    });
    const width = Math.max(1, Math.min(at, last) - first + 1) * column;
    board.style.width = `${width}px`;
    board.style.height = `${height}px`;
    const nodes = tree.map((node, i) => {
      const place = places.get(i);
      return place ? nodeButton(app, tree, i, place, at, column, () => branch([...prefix, ...idsOf(tree, i)])) : null;
    });
    fill(board, shape("svg", { width, height, "aria-hidden": "true" }, edges), nodes);
    const stop = board.querySelector(`.tree-node.won[data-step="${Math.min(at, last)}"]`) ?? board.querySelector(".tree-node");
    if (stop) /** @type {HTMLElement} */ (stop).tabIndex = 0;
    scroller.scrollLeft = width; // the newest step is in view
  };

  /**
   * Let the newest step grow, then fade what was pruned.
   * @param {number} at
   * @param {number} speed
   */
  const grow = async (at, speed) => {
    const newest = [...board.querySelectorAll(`[data-step="${at}"]`)];
    await Promise.all(newest.map((one) => move(one, one.matches("path") ? { strokeDashoffset: "1" } : { opacity: 0, transform: "translateX(-14px)" }, MOVE / speed)));
    await Promise.all(newest.filter((one) => one.matches(".pruned, .overtaken")).map((one) => move(one, { opacity: 1 }, MOVE / speed)));
  };
  return { element, show, grow };
}

/**
 * Return the width of a step: its share of the window, but at least that of the longest token.
 * @param {TreeNode[]} tree
 * @param {number} share
 */
function columnWidth(tree, share) {
  const names = tree.map((node) => textWidth(labelOf(node.name), 12.5) * 1.08); // the best path is bold
  const least = Math.max(MIN_COLUMN, ...names.map((width) => width + SCORE + GAP));
  return Math.min(MAX_COLUMN, Math.max(least, Math.min(share, 150)));
}

/**
 * Return the place of each visible node: steps from left to right, the best sequence on top.
 * @param {TreeNode[]} tree
 * @param {number} first
 * @param {number} at
 * @param {number} column
 */
function placeNodes(tree, first, at, column) {
  /** @type {Map<number, { x: number, y: number }>} */
  const places = new Map();
  /** @type {Map<number, number>} */
  const counts = new Map();
  let rows = 1;
  tree.forEach((node, i) => {
    const row = counts.get(node.step) ?? 0;
    counts.set(node.step, row + 1);
    rows = Math.max(rows, row + 1);
    if (node.step >= first && node.step <= at) places.set(i, { x: (node.step - first) * column, y: row * ROW });
  });
  return { places, height: rows * ROW };
}

/**
 * @param {{ x: number, y: number }} from
 * @param {{ x: number, y: number }} to
 * @param {TreeNode} node
 * @param {number} at
 * @param {number} column
 */
function edge(from, to, node, at, column) {
  const [x, y, end, bottom] = [from.x + column - GAP, from.y + NODE / 2, to.x, to.y + NODE / 2];
  const middle = (x + end) / 2;
  return shape(`path.${classesOf(node, at)}`, { "data-step": node.step, pathLength: 1, d: `M${x},${y}C${middle},${y} ${middle},${bottom} ${end},${bottom}` });
}

/**
 * @param {App} app
 * @param {TreeNode[]} tree
 * @param {number} i
 * @param {{ x: number, y: number }} place
 * @param {number} at
 * @param {number} column
 * @param {() => void} onclick
 */
function nodeButton({ t }, tree, i, place, at, column, onclick) {
  const node = tree[i];
  const fate = t(/** @type {any} */ (`fate_${node.fate}`));
  const text = pathOf(tree, i).map((one) => labelOf(one.name)).join(" ");
  const label = t("beamNode", { text, score: full(node.score), logProb: full(node.log_prob), fate });
  return el(`button.tree-node.${classesOf(node, at)}`, {
    "data-step": node.step,
    "data-score": node.score,
    tabindex: -1,
    title: label,
    "aria-label": label,
    style: { left: `${place.x}px`, top: `${place.y}px`, width: `${column - GAP}px` },
    onclick,
  }, el("span.name", {}, labelOf(node.name)), el("span.digits", {}, short(node.score, 2)), node.fate === "finished" ? el("span", { "aria-hidden": "true" }, "■") : "");
}

/**
 * @param {TreeNode} node
 * @param {number} at
 */
function classesOf(node, at) {
  return `${node.fate}${node.won ? ".won" : ""}${node.step === at ? ".newest" : ""}`;
}

/**
 * @param {TreeNode[]} tree
 * @param {number} i
 */
function pathOf(tree, i) {
  const found = [];
  for (let at = /** @type {number | null} */ (i); at !== null; at = tree[at].parent) found.unshift(tree[at]);
  return found;
}

/**
 * @param {TreeNode[]} tree
 * @param {number} i
 */
function idsOf(tree, i) {
  return pathOf(tree, i).map((node) => node.id);
}
