// A source that asks the local server: models run there, parts of tables come as they are needed.

import { matrix } from "./attention.js";
import { askedEdits, changesOf } from "./edits.js";
import { computeTables, meanRows } from "./head.js";
import { latest } from "./latest.js";
import { arraysOf } from "./safetensors.js";

/**
 * @typedef {import("./source.js").Source} Source
 * @typedef {import("./source.js").Site} Site
 * @typedef {import("./source.js").Vectors} Vectors
 * @typedef {import("./source.js").Span} Span
 * @typedef {import("./source.js").Stage} Stage
 * @typedef {import("./source.js").Streams} Streams
 * @typedef {import("./attention.js").Matrix} Matrix
 * @typedef {import("./edits.js").Edit} Edit
 * @typedef {import("./safetensors.js").Named} Named
 */

/**
 * What the server is asked to run; see AskTrace in Python.
 * @typedef {{ model: string, text?: string, image?: string, target?: string | number[], beam?: number }} Ask
 * @typedef {{ doing: string, done: number, of: number | null, text?: string | null }} Progress
 */

/**
 * What edits do while the model writes what it wrote before.
 * @typedef {{ answer: any, final: boolean, source: HttpSource }} Effect
 */

/** From so many cells on, pictures of all heads are asked for site by site. */
const MANY = 2_000_000;
/** Tables with more cells than this are sent with half as many digits. */
const EXACT = 65_536;
/** This page, as the server's queue knows it. */
const CLIENT = Math.random().toString(36).slice(2);

/** A sentence from the server. */
export class Refusal extends Error {}

/**
 * @param {string} path
 * @param {RequestInit} [options]
 */
async function request(path, options = {}) {
  const headers = { "x-regard-client": CLIENT, ...(options.body ? { "content-type": "application/json" } : {}), ...options.headers };
  const answer = await fetch(path, { ...options, headers });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => null);
  throw Object.assign(new Refusal(said?.error ?? `${answer.status} ${answer.statusText}`), { status: answer.status });
}

/** @returns {Promise<{ models: any[], worked: any, example: string, runs: string[] }>} */
export async function fetchModels() {
  return (await request("/api/models")).json();
}

/**
 * Send a picture; the name by which it can be meant.
 * @param {Blob} file
 * @returns {Promise<string>}
 */
export async function sendImage(file) {
  const headers = { "content-type": file.type || "image/png" };
  return (await (await request("/api/images", { method: "POST", body: file, headers })).json()).image;
}

/**
 * Ask for long work, and be told how far it is.
 * @param {string} path
 * @param {any} asked
 * @param {{ signal?: AbortSignal, tell?: (progress: Progress) => void }} [options]
 * @returns {Promise<any>}
 */
export async function askFor(path, asked, { signal, tell } = {}) {
  const headers = { accept: "text/event-stream" };
  const answer = await request(path, { method: "POST", body: JSON.stringify(asked), headers, signal });
  const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
  const decoder = new TextDecoder();
  for (let rest = ""; ; ) {
    const { done, value } = await reader.read();
    rest += decoder.decode(value, { stream: !done });
    const events = rest.split("\n\n");
    rest = /** @type {string} */ (events.pop());
    for (const event of events) {
      const [, name, data] = /^event: (\w+)\ndata: (.*)$/s.exec(event) ?? [];
      if (name === "progress") tell?.(JSON.parse(data));
      if (name === "result") return JSON.parse(data);
      if (name === "error") throw new Refusal(JSON.parse(data).error);
    }
    if (done) throw new Error("the server has gone");
  }
}

/** @implements {Source} */
export class HttpSource {
  /**
   * @param {any} described a trace, as the server describes it
   * @param {any} worked the matrices of the worked example
   */
  constructor(described, worked) {
    this.described = described;
    this.worked = worked;
    /** @type {Map<string, any>} */
    this.sitesByPath = new Map(described.sites.map((/** @type {any} */ site) => [site.path, site]));
    /** @type {Map<string, Promise<Record<string, Named>>>} */
    this.known = new Map();
    /** @type {{ edits: string, found: Promise<Effect | null> } | null} */
    this.changed = null;
    this.change = latest((/** @type {Edit[]} */ edits) => this.askEffect(edits));
    this.effect = described.title ? (/** @type {Edit[]} */ edits) => this.effectOf(edits) : null;
    this.answer = described.title ? (/** @type {Edit[]} */ edits, /** @type {AbortSignal | undefined} */ signal = undefined) => this.answerAfter(edits, signal) : null;
    this.after = described.title ? (/** @type {Edit[]} */ edits, /** @type {string} */ path, /** @type {number} */ head) => this.tablesAfter(edits, path, head) : null;
  }

  /**
   * Trace, and be told how far it is.
   * @param {Ask & { edits?: Edit[] }} asked
   * @param {any} worked
   * @param {{ signal?: AbortSignal, tell?: (progress: Progress) => void }} [options]
   */
  static async trace(asked, worked, options) {
    return new HttpSource(await askFor("/api/trace", asked, options), worked);
  }

  /**
   * A trace that the server keeps.
   * @param {string} id
   * @param {any} worked
   */
  static async kept(id, worked) {
    return new HttpSource(await (await request(`/api/trace/${id}`)).json(), worked);
  }

  async about() {
    const { image, ...about } = this.described;
    const seen = image && { ...image, rgb: (await this.get("pixels", {})).pixels.data };
    return { ...about, image: seen, worked: this.worked, live: true, digits: 3 };
  }

  /** @returns {Promise<Site[]>} */
  async sites() {
    return this.described.sites.map((/** @type {any} */ site) => this.site(site.path));
  }

  /**
   * @param {string} path
   * @returns {Site}
   */
  site(path) {
    const site = this.sitesByPath.get(path);
    return { ...site, temperature: site.temperature.map(heatOf), mask: site.mask.text, left_out: false };
  }

  /**
   * @param {string} path
   * @param {number} head
   * @returns {Promise<Vectors>}
   */
  async vectors(path, head) {
    const found = await this.get("vectors", { site: path, head });
    const kind = /** @type {"all" | "causal" | "bits"} */ (found.query.about.mask);
    return {
      query: /** @type {Matrix} */ (table(found.query)),
      key: /** @type {Matrix} */ (table(found.key)),
      value: /** @type {Matrix} */ (table(found.value)),
      mask: kind === "bits" ? { kind, bits: /** @type {Uint8Array} */ (found.allowed.data), first: 0 } : { kind },
      compareQuery: table(found.compare_query),
      compareKey: table(found.compare_key),
      compareWeight: line(found.compare_weight),
      scores: table(found.scores),
      weights: table(found.weights),
      context: table(found.context),
    };
  }

  /**
   * @param {string} path
   * @param {number} head
   * @param {Stage} stage
   * @param {Span} rows
   * @param {Span} columns
   * @returns {Promise<Matrix>}
   */
  async tile(path, head, stage, rows, columns) {
    const bins = (/** @type {Span} */ span) => Math.max(1, Math.min(span.bins, span.stop - span.start, 2048));
    const place = { site: path, head, stage, dtype: bins(rows) * bins(columns) > EXACT ? "float16" : "float32" };
    const down = { row_start: rows.start, row_stop: rows.stop, row_bins: bins(rows) };
    const across = { column_start: columns.start, column_stop: columns.stop, column_bins: bins(columns) };
    const found = await this.get("tile", { ...place, ...down, ...across });
    return /** @type {Matrix} */ (table(found.tile));
  }

  /**
   * @param {string} path
   * @param {number} size
   * @returns {Promise<Matrix[]>}
   */
  async thumbnails(path, size) {
    const site = this.sitesByPath.get(path);
    if (!site) return []; // of the trace before this one
    const all = site.n_query * site.n_key < MANY;
    const found = (await this.get("thumbnails", { size, ...(all ? {} : { site: path }) }))[path];
    const [heads, rows, columns] = found.shape;
    const cells = rows * columns;
    return Array.from({ length: heads }, (_, head) =>
      matrix(rows, columns, Float32Array.from(found.data.subarray(head * cells, (head + 1) * cells), (x) => (x / 255) ** 2)));
  }

  /**
   * @param {string} path
   * @param {number} head
   * @param {number} query
   * @param {number} key
   * @returns {Promise<Streams>}
   */
  async steps(path, head, query, key) {
    const place = { site: path, head };
    const [found, weights] = await Promise.all([this.get("steps", { ...place, query, key }), this.get("projections", place)]);
    const projection = (/** @type {string} */ name) => ({
      weight: /** @type {Matrix} */ (table(weights[`${name}.weight`])),
      bias: line(weights[`${name}.bias`]),
    });
    return {
      queryInput: line(found.query_input),
      keyInput: line(found.key_input),
      joined: line(found.joined),
      output: line(found.output),
      before: line(found.before),
      after: line(found.after),
      projections: weights["query.weight"]
        ? { query: projection("query"), key: projection("key"), value: projection("value"), output: projection("output") }
        : null,
    };
  }

  /** @param {string} path */
  async space(path) {
    const found = await this.get("space", { site: path, axes: 3 });
    const [heads, tokens] = found.arrows.shape;
    const width = found.before.shape[1];
    const arrows = Array.from({ length: heads }, (_, head) =>
      matrix(tokens, width, found.arrows.data.subarray(head * tokens * width, (head + 1) * tokens * width)));
    const share = JSON.parse(found.before.about.share ?? "[]");
    const [before, after, rest] = [found.before, found.after, found.rest].map((one) => /** @type {Matrix} */ (table(one)));
    return { before, after, arrows, rest, share };
  }

  /**
   * @param {string} path
   * @param {Edit[]} edits
   * @returns {Promise<Matrix | null>}
   */
  async rollout(path, edits) {
    if (edits.length && this.after) return (await this.after_(edits))?.rollout(path, []) ?? null;
    return table((await this.get("rollout", { site: path })).rollout);
  }

  /**
   * @param {string} path
   * @param {number} head
   */
  async exact(path, head) {
    return table((await this.get("exact", { site: path, head })).exact);
  }

  /**
   * What the model answers after edits, and how probable what it said before is now.
   * @param {Edit[]} edits
   * @param {AbortSignal} [signal]
   */
  async answerAfter(edits, signal) {
    const asked = { ...this.described.asked, edits: askedEdits(edits) };
    const answer = await request("/api/answer", { method: "POST", body: JSON.stringify(asked), signal });
    return (await answer.json()).answer;
  }

  /**
   * What edits do as long as the model writes the same: found in one run, without a search.
   * Null if newer edits were asked for meanwhile.
   * @param {Edit[]} edits
   * @returns {Promise<Effect | null>}
   */
  effectOf(edits) {
    const text = JSON.stringify(edits);
    if (this.changed?.edits !== text) {
      const found = this.change(edits);
      const mine = (this.changed = { edits: text, found });
      found.catch(() => this.changed === mine && (this.changed = null)); // it may be asked again
    }
    return this.changed.found;
  }

  /**
   * @param {Edit[]} edits
   * @returns {Promise<Effect>}
   */
  async askEffect(edits) {
    const { asked, answer } = this.described;
    const final = asked.target !== undefined || !answer.ids;
    const same = { ...asked, ...(final ? {} : { target: answer.ids }), edits: askedEdits(edits) };
    const found = await (await request("/api/answer", { method: "POST", body: JSON.stringify(same) })).json();
    return { answer: found.answer, final, source: new HttpSource({ ...this.described, id: found.id, asked: same }, this.worked) };
  }

  /**
   * The tables of one head after edits anywhere in the model, what was written staying the same.
   * @param {Edit[]} edits
   * @param {string} path
   * @param {number} head
   */
  async tablesAfter(edits, path, head) {
    const source = await this.after_(edits);
    if (!source) return null;
    const [vectors, found] = await Promise.all([source.vectors(path, head), source.get("vectors", { site: path, head })]);
    const { temperature, ...pattern } = JSON.parse(found.query.about.pattern);
    const site = { ...source.site(path), ...pattern, temperature: temperature.map(heatOf) };
    const tables = computeTables(site, head, vectors);
    const changes = changesOf(edits, path, head);
    return { ...tables, weights: changes?.mean ? meanRows(tables.weights) : tables.weights, off: changes?.off ?? false };
  }

  /**
   * The trace after edits, what was written staying the same; null if newer edits were asked for.
   * @param {Edit[]} edits
   * @returns {Promise<HttpSource | null>}
   */
  async after_(edits) {
    return (await this.effectOf(edits))?.source ?? null;
  }

  /**
   * What else could stand at a position of a translation.
   * @param {number} position
   * @returns {Promise<{ token: string, id: number, probability: number, text: string, ids: number[] }[]>}
   */
  async alternatives(position) {
    const answer = await request(`/api/trace/${this.described.id}/alternatives?position=${position}`);
    return (await answer.json()).alternatives;
  }

  /**
   * @param {string} what
   * @param {Record<string, string | number>} given
   * @returns {Promise<Record<string, Named>>}
   */
  get(what, given) {
    const query = new URLSearchParams(Object.entries(given).map(([name, value]) => [name, String(value)]));
    const key = `${what}?${query}`;
    let found = this.known.get(key);
    if (!found) {
      found = this.fetch(key);
      found.catch(() => this.known.delete(key));
      if (!key.startsWith("tile")) this.known.set(key, found);
    }
    return found;
  }

  /**
   * Arrays about the trace; a trace that the server has let go is asked for again.
   * @param {string} key
   */
  async fetch(key) {
    const ask = async () => arraysOf(await (await request(`/api/trace/${this.described.id}/${key}`)).arrayBuffer());
    try {
      return await ask();
    } catch (error) {
      if (/** @type {any} */ (error).status !== 404 || !this.described.title) throw error;
      this.described.id = (await askFor("/api/trace", this.described.asked)).id;
      return ask();
    }
  }
}

/**
 * @param {Named | undefined} array
 * @returns {Matrix | null}
 */
function table(array) {
  return array ? matrix(array.shape[0], array.shape[1], /** @type {Float32Array} */ (array.data)) : null;
}

/**
 * @param {Named | undefined} array
 * @returns {Float32Array | null}
 */
function line(array) {
  return array ? /** @type {Float32Array} */ (array.data) : null;
}

/**
 * JSON has no infinity: Python writes "inf".
 * @param {number | "inf"} heat
 */
function heatOf(heat) {
  return heat === "inf" ? Infinity : heat;
}
