// What tests ask the page's modules, on the data that a test puts beside them.

import { compare, softmax } from "/js/attention.js";
import { matrix, project } from "/js/matrix.js";
import { FileSource } from "/js/file_source.js";
import { computeRow, computeTables, contextOf, lineOf } from "/js/head.js";
import { labelOf } from "/js/tokens.js";

const sourceOf = async () => new FileSource(await (await fetch("/data.json")).json());
const list = (x) => x && Array.from(x, (y) => (Number.isFinite(y) ? y : String(y)));

/** Every table of every head of every site. */
export async function tables() {
  const source = await sourceOf();
  const found = [];
  for (const site of await source.sites()) {
    for (let head = 0; head < site.n_heads; head++) {
      const vectors = await source.vectors(site.path, head);
      const made = computeTables(site, head, vectors);
      const context = Array.from({ length: site.n_query }, (_, i) => list(contextOf(lineOf(made, i), vectors, i, false)));
      const [scores, masked, weights] = [made.scores, made.masked, made.weights].map((table) => table && list(table.data));
      found.push({ path: site.path, head, scores, masked, weights, context: context.flat() });
    }
  }
  return found;
}

/** What stands before and after attention at every site, and the projections worked out. */
export async function steps({ head, query, key }) {
  const source = await sourceOf();
  const found = [];
  for (const site of await source.sites()) {
    const way = await source.steps(site.path, head, query, key);
    const made = {};
    for (const name of ["query", "key", "value"]) {
      const { weight, bias } = way.projections[name];
      made[name] = list(project(name === "query" ? way.queryInput : way.keyInput, weight, bias));
    }
    const { weight, bias } = way.projections.output;
    made.output = list(project(way.joined, weight, bias));
    const [joined, output, before, after] = [way.joined, way.output, way.before, way.after].map(list);
    found.push({ path: site.path, made, joined, output, before, after });
  }
  return found;
}

/** How far weights computed row by row are from those computed at once. */
export async function rowsApart() {
  const source = await sourceOf();
  let apart = 0;
  for (const site of await source.sites()) {
    const vectors = await source.vectors(site.path, 1);
    const whole = computeTables(site, 1, vectors);
    for (let i = 0; i < site.n_query; i++) {
      const [one, other] = [computeRow(site, 1, vectors, i), lineOf(whole, i)];
      one.weights.data.forEach((x, j) => {
        apart = Math.max(apart, Math.abs(x - other.weights.data[j]));
      });
    }
  }
  return apart;
}

/** Parts of one head's tables. */
export async function parts(path) {
  const source = await sourceOf();
  const span = (start, stop, bins) => ({ start, stop, bins });
  const tile = await source.tile(path, 1, "weights", span(1, 5, 2), span(0, 6, 3));
  const low = await source.tile(path, 1, "scores", span(0, 4, 1), span(0, 2, 1));
  const small = (await source.thumbnails(path, 3))[1];
  return { tile: list(tile.data), small: list(small.data), low: low.data[0] };
}

/** The rollout through all layers up to a site. */
export async function rollout(path) {
  return list((await (await sourceOf()).rollout(path)).data);
}

/** Every query compared with every key, and the softmax of that at a temperature. */
export function compared({ query, key, temperature }) {
  const table = (rows) => matrix(rows.length, rows[0].length, rows.flat());
  const found = compare(table(query), table(key));
  return [list(found.data), list(softmax(found, temperature).data)];
}

/** How a token is written. */
export function label(token) {
  return labelOf(token);
}
