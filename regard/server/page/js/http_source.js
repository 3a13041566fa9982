// The source of the live page: the server runs the model and sends arrays when they are needed.

import { readSafetensors } from "./arrays.js";
import { streamRequest, request, requestJson, sendImage } from "./http.js";
import { fetchChoices, fetchOther, fetchSweep } from "./http_compare.js";
import { HttpFlow } from "./http_flow.js";
import { fetchAttribution, fetchLens } from "./http_lens.js";
import { HttpModel } from "./http_model.js";
import { matrix } from "./matrix.js";
import { parseTemperature } from "./source.js";

/**
 * @typedef {import("./source.js").Source} Source
 * @typedef {import("./source.js").Site} Site
 * @typedef {import("./source.js").Vectors} Vectors
 * @typedef {import("./source.js").Span} Span
 * @typedef {import("./source.js").Stage} Stage
 * @typedef {import("./source.js").Streams} Streams
 * @typedef {import("./matrix.js").Matrix} Matrix
 * @typedef {import("./source.js").Measures} Measures
 * @typedef {import("./http.js").TraceRequest} TraceRequest
 * @typedef {import("./http.js").Progress} Progress
 * @typedef {import("./edits.js").Edit} Edit
 * @typedef {import("./arrays.js").NamedArray} NamedArray
 */

/** Up to this many cells in total, thumbnails and measures of all sites are requested at once. */
const MAX_CELLS_AT_ONCE = 1_000_000;
/** The number of heads whose vectors are kept in memory; the browser caches the others. */
const MAX_CACHED_HEADS = 24;
/** Larger tables are sent as 16-bit floats. */
const MAX_FLOAT32_CELLS = 65_536;
/** The JSON schema of edits, requested once. */
/** @type {Promise<any> | undefined} */
let schema;

function editSchema() {
  return (schema ??= requestJson("/api/edits/schema"));
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
    /** @type {Map<string, Promise<Record<string, NamedArray>>>} */
    this.known = new Map();
    /** @type {Map<string, Promise<{ measures: Record<string, Measures[]> }>>} */
    this.measured = new Map();
    /** @type {Promise<any> | undefined} the stations of the flow */
    this.flowInfo = undefined;
    /** @type {HttpModel | null} */
    this.model = described.title ? new HttpModel(described, (other) => new HttpSource(other, worked)) : null;
  }

  /**
   * Trace an input and report progress.
   * @param {TraceRequest & { edits?: Edit[] }} asked
   * @param {any} worked
   * @param {{ signal?: AbortSignal, onProgress?: (progress: Progress) => void }} [options]
   */
  static async trace(asked, worked, options) {
    editSchema().catch(() => null); // while the model runs; the page reports it when it needs the schema
    return new HttpSource(await streamRequest("/api/trace", asked, options), worked);
  }

  /**
   * Load a trace that the server has stored.
   * @param {string} id
   * @param {any} worked
   */
  static async kept(id, worked) {
    return new HttpSource(await requestJson(`/api/trace/${id}`), worked);
  }

  async about() {
    const { image, ...about } = this.described;
    const seen = image && { ...image, rgb: (await this.get("pixels", {})).pixels.data };
    return { ...about, image: seen, worked: this.worked, edit_schema: await editSchema(), live: true, digits: 3 };
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
    return { ...site, temperature: site.temperature.map(parseTemperature), mask: site.mask.text, left_out: false };
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
    const place = { site: path, head, stage, dtype: bins(rows) * bins(columns) > MAX_FLOAT32_CELLS ? "float16" : "float32" };
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
    if (!this.sitesByPath.has(path)) return []; // belongs to the previous trace
    const found = (await this.get("thumbnails", { size, ...this.siteParameter(path) }))[path];
    const [heads, rows, columns] = found.shape;
    const cells = rows * columns;
    return Array.from({ length: heads }, (_, head) =>
      matrix(rows, columns, Float32Array.from(found.data.subarray(head * cells, (head + 1) * cells), (x) => (x / 255) ** 2)));
  }

  /**
   * @param {string} path
   * @returns {Promise<Measures[]>}
   */
  async measures(path) {
    const of = new URLSearchParams(this.siteParameter(path)).toString();
    let found = this.measured.get(of);
    if (!found) {
      found = requestJson(`/api/trace/${this.described.id}/measures?${of}`);
      found.catch(() => this.measured.delete(of));
      this.measured.set(of, found);
    }
    return (await found).measures[path] ?? [];
  }

  /**
   * Return the sites to request: all of them if they are small, otherwise one at a time, so that the
   * first ones arrive early.
   * @param {string} path
   * @returns {Record<string, string>}
   */
  siteParameter(path) {
    const cells = this.described.sites.reduce((/** @type {number} */ sum, /** @type {any} */ site) => sum + site.n_heads * site.n_query * site.n_key, 0);
    return cells <= MAX_CELLS_AT_ONCE ? {} : { site: path };
  }

  /**
   * @param {string} path
   * @param {number} head
   * @param {number} query
   * @param {number} key
   * @returns {Promise<Streams>}
   */
  async steps(path, head, query, key) {
    const found = await this.get("steps", { site: path, head, query, key });
    const width = found.query_input?.shape[0] ?? 0;
    const large = width * width > MAX_FLOAT32_CELLS;
    return {
      queryInput: line(found.query_input),
      keyInput: line(found.key_input),
      joined: line(found.joined),
      output: line(found.output),
      before: line(found.before),
      after: line(found.after),
      projections: large ? null : await this.projections(path, head),
      later: large ? () => this.projections(path, head) : null,
    };
  }

  /**
   * @param {string} path
   * @param {number} head
   * @returns {Promise<Streams["projections"]>}
   */
  async projections(path, head) {
    const weights = await this.get("projections", { site: path, head });
    const projection = (/** @type {string} */ name) => ({
      weight: /** @type {Matrix} */ (table(weights[`${name}.weight`])),
      bias: line(weights[`${name}.bias`]),
    });
    if (!weights["query.weight"]) return null;
    return { query: projection("query"), key: projection("key"), value: projection("value"), output: projection("output") };
  }

  /**
   * @param {string} path
   * @param {Edit[]} edits
   * @returns {Promise<import("./source.js").Space | null>}
   */
  async space(path, edits) {
    if (edits.length && this.model) return (await this.model.effect(edits))?.source.space(path, []) ?? null;
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
    if (edits.length && this.model) return (await this.model.effect(edits))?.source.rollout(path, []) ?? null;
    return table((await this.get("rollout", { site: path })).rollout);
  }

  /**
   * @param {Edit[]} edits
   * @returns {Promise<import("./source.js").Flow | null>}
   */
  async flow(edits) {
    if (edits.length && this.model) return (await this.model.effect(edits))?.source.flow([]) ?? null;
    this.flowInfo ??= this.retry(() => requestJson(`/api/trace/${this.described.id}/flow`));
    this.flowInfo.catch(() => (this.flowInfo = undefined)); // ask again next time
    const info = await this.flowInfo;
    return info.sides.length ? new HttpFlow(this, info) : null;
  }

  /**
   * @param {Edit[]} edits
   * @param {number} position
   * @returns {Promise<import("./source.js").Lens | null>}
   */
  async lens(edits, position) {
    if (edits.length && this.model) return (await this.model.effect(edits))?.source.lens([], position) ?? null;
    return fetchLens(this, position);
  }

  /**
   * @param {Edit[]} edits
   * @param {{ position?: number, token?: number, relative_to?: number }} place
   * @returns {Promise<import("./source.js").Attribution | null>}
   */
  async attribution(edits, place) {
    if (edits.length && this.model) return (await this.model.effect(edits))?.source.attribution([], place) ?? null;
    return fetchAttribution(this, place);
  }

  /** @param {import("./compare_spec.js").Comparison} spec */
  other(spec) {
    return fetchOther(this, (described) => new HttpSource(described, this.worked), spec);
  }

  choices() {
    return fetchChoices();
  }

  /** @param {Blob} file */
  upload(file) {
    return sendImage(file);
  }

  /** @param {Parameters<typeof fetchSweep>[1]} options */
  sweep(options) {
    return fetchSweep(this, options);
  }

  /**
   * @param {string} path
   * @param {number} head
   */
  async exact(path, head) {
    return table((await this.get("exact", { site: path, head })).exact);
  }

  /**
   * @param {string} what
   * @param {Record<string, string | number>} given
   * @returns {Promise<Record<string, NamedArray>>}
   */
  get(what, given) {
    const query = new URLSearchParams(Object.entries(given).map(([name, value]) => [name, String(value)]));
    const key = `${what}?${query}`;
    let found = this.known.get(key);
    if (!found) {
      found = this.fetch(key);
      found.catch(() => this.known.delete(key));
      if (!key.startsWith("tile")) this.known.set(key, found);
      const heads = [...this.known.keys()].filter((one) => one.startsWith("vectors"));
      if (heads.length > MAX_CACHED_HEADS) this.known.delete(heads[0]);
    }
    return found;
  }

  /**
   * Fetch arrays of the trace.
   * @param {string} key
   */
  async fetch(key) {
    return this.retry(async () => readSafetensors(await (await request(`/api/trace/${this.described.id}/${key}`)).arrayBuffer()));
  }

  /**
   * Ask again if the server has dropped the trace, after it is traced again.
   * @template T
   * @param {() => Promise<T>} ask
   * @returns {Promise<T>}
   */
  async retry(ask) {
    try {
      return await ask();
    } catch (error) {
      if (/** @type {any} */ (error).status !== 404 || !this.described.title) throw error;
      this.described.id = (await streamRequest("/api/trace", this.described.asked)).id;
      return ask();
    }
  }
}

/**
 * @param {NamedArray | undefined} array
 * @returns {Matrix | null}
 */
function table(array) {
  return array ? matrix(array.shape[0], array.shape[1], /** @type {Float32Array} */ (array.data)) : null;
}

/**
 * @param {NamedArray | undefined} array
 * @returns {Float32Array | null}
 */
function line(array) {
  return array ? /** @type {Float32Array} */ (array.data) : null;
}
