// Functions that tests run in the browser on the page's modules and the data of an HTML file.

import { FileSource } from "/js/file_source.js";
import { computeRow, computeTables, contextOf, rowOf } from "/js/head.js";
import { matrix, project } from "/js/matrix.js";

const openSource = async () => new FileSource(await (await fetch("/data.json")).json());
const list = (x) => x && Array.from(x, (y) => (Number.isFinite(y) ? y : String(y)));

/** Arguments from JSON: {rows: …} is a matrix, {float32: …} and {uint8: …} are typed arrays. */
function decode(x) {
  if (Array.isArray(x)) return x.map(decode);
  if (x === "Infinity") return Infinity;
  if (x === null || typeof x !== "object") return x;
  const numbers = (values) => values.map(Number);
  if (x.float32) return Float32Array.from(numbers(x.float32));
  if (x.uint8) return Uint8Array.from(x.uint8);
  if (x.matrix) return matrix(x.matrix.length, x.matrix[0].length, numbers(x.matrix.flat()));
  return Object.fromEntries(Object.entries(x).map(([name, value]) => [name, decode(value)]));
}

/** Results to JSON: matrices become lists of rows. */
function encode(x) {
  if (ArrayBuffer.isView(x)) return list(x);
  if (Array.isArray(x)) return x.map(encode);
  if (typeof x === "number") return Number.isFinite(x) ? x : String(x);
  if (x === null || typeof x !== "object") return x;
  if (x.rows !== undefined && x.data) return Array.from({ length: x.rows }, (_, i) => list(x.data.subarray(i * x.columns, (i + 1) * x.columns)));
  return Object.fromEntries(Object.entries(x).map(([name, value]) => [name, encode(value)]));
}

/** Call an exported function; if `changed` is given, return that argument instead of the result. */
export async function call({ module, name, args, changed }) {
  const decoded = args.map(decode);
  const result = (await import(`/js/${module}.js`))[name](...decoded);
  return encode(changed === undefined ? result : decoded[changed]);
}

/** The names of the functions that a module exports. */
export async function exportedFunctions(module) {
  return Object.entries(await import(`/js/${module}.js`)).filter(([, value]) => typeof value === "function").map(([name]) => name);
}

/** An exported constant. */
export async function constant({ module, name }) {
  const value = (await import(`/js/${module}.js`))[name];
  return value instanceof Set ? [...value] : value;
}

/** The edits of a link as the server's JSON, and written as a link again. */
export async function editsOfLink({ schema, link }) {
  const { editsToJson, readEdits, useSchema, writeEdits } = await import("/js/edits.js");
  useSchema(schema);
  const edits = readEdits(link);
  return { json: editsToJson(edits), link: writeEdits(edits) };
}

/** Every table of every head of every site. */
export async function tables() {
  const source = await openSource();
  const found = [];
  for (const site of await source.sites()) {
    for (let head = 0; head < site.n_heads; head++) {
      const vectors = await source.vectors(site.path, head);
      const made = computeTables(site, head, vectors);
      const context = Array.from({ length: site.n_query }, (_, i) => list(contextOf(rowOf(made, i), vectors, i, false)));
      const [scores, masked, weights] = [made.scores, made.masked, made.weights].map((table) => table && list(table.data));
      found.push({ path: site.path, head, scores, masked, weights, context: context.flat() });
    }
  }
  return found;
}

/** Streams before and after attention at every site, and the projections computed from them. */
export async function steps({ head, query, key }) {
  const source = await openSource();
  const found = [];
  for (const site of await source.sites()) {
    const streams = await source.steps(site.path, head, query, key);
    const projected = {};
    for (const name of ["query", "key", "value"]) {
      const { weight, bias } = streams.projections[name];
      projected[name] = list(project(name === "query" ? streams.queryInput : streams.keyInput, weight, bias));
    }
    const { weight, bias } = streams.projections.output;
    projected.output = list(project(streams.joined, weight, bias));
    const [joined, output, before, after] = [streams.joined, streams.output, streams.before, streams.after].map(list);
    found.push({ path: site.path, projected, joined, output, before, after });
  }
  return found;
}

/** The largest difference between weights computed row by row and as one table. */
export async function rowDifference() {
  const source = await openSource();
  let difference = 0;
  for (const site of await source.sites()) {
    const vectors = await source.vectors(site.path, 1);
    const whole = computeTables(site, 1, vectors);
    for (let i = 0; i < site.n_query; i++) {
      const [one, other] = [computeRow(site, 1, vectors, i), rowOf(whole, i)];
      one.weights.data.forEach((x, j) => {
        difference = Math.max(difference, Math.abs(x - other.weights.data[j]));
      });
    }
  }
  return difference;
}

/** A tile of weights, a tile of scores and a thumbnail of one head. */
export async function tiles(path) {
  const source = await openSource();
  const span = (start, stop, bins) => ({ start, stop, bins });
  const weights = await source.tile(path, 1, "weights", span(1, 5, 2), span(0, 6, 3));
  const scores = await source.tile(path, 1, "scores", span(0, 4, 1), span(0, 2, 1));
  const thumbnail = (await source.thumbnails(path, 3))[1];
  return { weights: list(weights.data), thumbnail: list(thumbnail.data), scores: scores.data[0] };
}

/** The rollout through all layers up to a site. */
export async function rollout(path) {
  return list((await (await openSource()).rollout(path)).data);
}

/** The text of an error in a language. */
export async function errorText({ language, error }) {
  const [{ messagesFor }, { ServerError }] = await Promise.all([import("/js/messages.js"), import("/js/http.js")]);
  return messagesFor(language).error(error ? new ServerError(error) : new TypeError("Failed to fetch"));
}
