// The source of an offline file: arrays are embedded in the page, tables are computed here.

import { unpack } from "./arrays.js";
import { rolloutLayer } from "./attention.js";
import { readoutOf } from "./file_readout.js";
import { flowRows } from "./flow_rows.js";
import { computeRow, computeTables, contextOf, stageOf } from "./head.js";
import { matrix, pooled, row } from "./matrix.js";
import { parseTemperature } from "./source.js";

/**
 * @typedef {import("./source.js").Source} Source
 * @typedef {import("./source.js").Site} Site
 * @typedef {import("./source.js").Vectors} Vectors
 * @typedef {import("./source.js").Span} Span
 * @typedef {import("./source.js").Stage} Stage
 * @typedef {import("./source.js").Streams} Streams
 * @typedef {import("./matrix.js").Matrix} Matrix
 */

/** @implements {Source} */
export class FileSource {
  /** @param {{ about: any, arrays: Record<string, import("./arrays.js").Packed> }} data */
  constructor(data) {
    this.data = data;
    /** @type {Map<string, Promise<Float32Array | Uint8Array>>} */
    this.unpacked = new Map();
    /** @type {Map<string, any>} */
    this.described = new Map(data.about.sites.map((/** @type {any} */ site) => [site.path, site]));
    /** @type {Source["model"]} */
    this.model = null;
    if (data.about.readout) Object.assign(this, readoutOf(data.about.readout, (name) => this.array(name)));
  }

  async about() {
    const about = this.data.about;
    const image = about.image && { ...about.image, rgb: await this.array(about.image.pixels) };
    return { ...about, image, live: false };
  }

  /** @returns {Promise<import("./source.js").Flow | null>} */
  async flow() {
    const { flow } = this.data.about;
    if (!flow) return null;
    const row = async (/** @type {string} */ path, /** @type {number} */ position) => {
      const width = this.data.arrays[path]?.shape.at(-1) ?? 0;
      return width ? /** @type {Float32Array} */ ((await this.array(path)).subarray(position * width, (position + 1) * width)) : null;
    };
    return {
      sides: flow.sides,
      predicts: flow.names.length ? flow.sides[flow.sides.length - 1].name : null,
      limit: Infinity,
      rows: (side) => this.flowRows(side),
      vector: async (path, position) => {
        const vector = await row(path, position);
        return vector && { vector };
      },
      units: async () => null,
    };
  }

  /** @param {import("./source.js").FlowSide} side */
  async flowRows(side) {
    const { flow } = this.data.about;
    const owned = (/** @type {string} */ name) => name.startsWith(`flow.${side.name}.`) || name.startsWith("flow.predictions.");
    const names = Object.keys(this.data.arrays).filter(owned);
    const found = await Promise.all(names.map(async (name) =>
      [name.slice(5), { data: await this.array(name), shape: this.data.arrays[name].shape, about: {} }]));
    const last = side.name === flow.sides[flow.sides.length - 1].name;
    return flowRows(side, 0, side.n_tokens, Object.fromEntries(found), last ? flow.names : []);
  }

  /** @returns {Promise<Site[]>} */
  async sites() {
    return this.data.about.sites.map((/** @type {any} */ site) => this.site(site.path));
  }

  /**
   * @param {string} path
   * @param {number} head
   * @returns {Promise<Vectors>}
   */
  async vectors(path, head) {
    const site = this.described.get(path);
    const part = (/** @type {string} */ name) => this.headOf(site.arrays[name], head);
    const [query, key, value, compareQuery, compareKey] = await Promise.all(
      ["query", "key", "value", "compare_query", "compare_key"].map(part),
    );
    const [scores, weights, context] = await Promise.all(["scores", "weights", "context"].map(part));
    const weight = site.arrays.compare_weight;
    return {
      query: /** @type {Matrix} */ (query),
      key: /** @type {Matrix} */ (key),
      value: /** @type {Matrix} */ (value),
      mask: await this.mask(site, head),
      compareQuery,
      compareKey,
      compareWeight: weight ? /** @type {Float32Array} */ (await this.array(weight)) : null,
      scores,
      weights,
      context,
    };
  }

  /**
   * @param {string} path
   * @param {number} head
   * @param {Stage} stage
   * @param {Span} rows
   * @param {Span} columns
   */
  async tile(path, head, stage, rows, columns) {
    const tables = await this.tables(path, head);
    return tileOf(stageOf(tables, stage), rows, columns);
  }

  /**
   * @param {string} path
   * @param {number} size
   */
  async thumbnails(path, size) {
    const site = this.described.get(path);
    const stored = site.arrays.thumbnails;
    if (stored) return (await this.allHeads(stored)).map(fromBytes);
    const made = [];
    for (let head = 0; head < site.n_heads; head++) {
      made.push(pooled((await this.tables(path, head)).weights, size, size));
    }
    return made;
  }

  /** @param {string} path */
  async measures(path) {
    return this.described.get(path).measures;
  }

  /**
   * @param {string} path
   * @param {number} head
   * @param {number} query
   * @param {number} key
   * @returns {Promise<Streams>}
   */
  async steps(path, head, query, key) {
    const { streams, norm_first: normFirst, projections } = this.described.get(path);
    const at = (/** @type {string} */ name, /** @type {number} */ i) => this.rowOf(streams[name], i);
    const [queryInput, keyInput] = await Promise.all([at("input", query), at("memory", key)]);
    const [output, after] = await Promise.all([at("output", query), at("residual", query)]);
    const added = after && output && after.map((x, i) => x - output[i]);
    return {
      queryInput,
      keyInput,
      joined: await this.joined(path, query),
      output,
      before: normFirst === false ? queryInput : normFirst ? added : null,
      after,
      projections: projections && (await this.projections(path, head)),
    };
  }

  /**
   * Return the context vectors of all heads for one query.
   * @param {string} path
   * @param {number} query
   */
  async joined(path, query) {
    const site = this.site(path);
    const made = new Float32Array(site.n_heads * site.d_v);
    for (let head = 0; head < site.n_heads; head++) {
      const vectors = await this.vectors(path, head);
      const line = computeRow(site, head, vectors, query);
      made.set(contextOf(line, vectors, query, false), head * site.d_v);
    }
    return made;
  }

  /** @param {string} path */
  async space(path) {
    const { space } = this.described.get(path);
    if (!space) return null;
    const [before, after, rest, ...arrows] = (await this.allHeads(space.array)).map(transpose);
    return { before, after, rest, arrows, share: space.share };
  }

  /**
   * @param {string} path
   * @returns {Promise<Matrix | null>}
   */
  async rollout(path) {
    const { group, layer } = this.described.get(path);
    const below = this.data.about.sites.filter((/** @type {any} */ site) => site.group === group && site.layer <= layer);
    let whole = null;
    for (const site of below) {
      const heads = [];
      for (let head = 0; head < site.n_heads; head++) heads.push((await this.tables(site.path, head)).weights);
      whole = rolloutLayer(heads, whole);
      await new Promise((done) => setTimeout(done)); // let the page paint
    }
    return whole;
  }

  /**
   * @param {string} path
   * @param {number} head
   */
  async exact(path, head) {
    return this.headOf(this.described.get(path).arrays.exact, head);
  }

  /**
   * @param {string} path
   * @param {number} head
   */
  async tables(path, head) {
    return computeTables(this.site(path), head, await this.vectors(path, head));
  }

  /**
   * @param {string} path
   * @returns {Site}
   */
  site(path) {
    const site = this.described.get(path);
    return { ...site, temperature: site.temperature.map(parseTemperature), mask: site.mask.text, space: Boolean(site.space) };
  }

  /**
   * @param {string} path
   * @param {number} head
   */
  async projections(path, head) {
    const site = this.described.get(path);
    const { n_kv_heads: shared } = site.projections;
    const group = Math.floor(head / (site.n_heads / shared));
    const part = async (/** @type {string} */ name, /** @type {number} */ first, /** @type {number} */ n) => {
      const { weight, bias } = site.projections[name];
      const table = await this.table(weight);
      const own = n ? matrix(n, table.columns, table.data.subarray(first * table.columns, (first + n) * table.columns)) : table;
      const biases = bias && /** @type {Float32Array} */ (await this.array(bias));
      return { weight: own, bias: biases && n ? biases.subarray(first, first + n) : biases };
    };
    const [query, key, value, output] = await Promise.all([
      part("query", head * site.d_k, site.d_k),
      part("key", group * site.d_k, site.d_k),
      part("value", group * site.d_v, site.d_v),
      part("output", 0, 0),
    ]);
    return { query, key, value, output };
  }

  /** @param {string} name */
  array(name) {
    let found = this.unpacked.get(name);
    if (!found) this.unpacked.set(name, (found = unpack(this.data.arrays[name])));
    return found;
  }

  /** @param {string} name */
  async table(name) {
    const [rows, columns] = this.data.arrays[name].shape;
    return matrix(rows, columns, await this.array(name));
  }

  /**
   * @param {string | undefined} name
   * @param {number} i
   */
  async rowOf(name, i) {
    return name ? row(await this.table(name), i) : null;
  }

  /** @param {string} name */
  async allHeads(name) {
    const heads = this.data.arrays[name].shape[0];
    return Promise.all(Array.from({ length: heads }, (_, head) => this.headOf(name, head)));
  }

  /**
   * @param {string | undefined} name
   * @param {number} head
   * @returns {Promise<any>}
   */
  async headOf(name, head) {
    if (!name) return null;
    const [, rows, columns] = this.data.arrays[name].shape;
    const all = await this.array(name);
    return matrix(rows, columns, all.subarray(head * rows * columns, (head + 1) * rows * columns));
  }

  /**
   * @param {any} site
   * @param {number} head
   * @returns {Promise<import("./attention.js").Mask>}
   */
  async mask({ mask, n_query: rows, n_key: columns }, head) {
    if (mask.kind !== "bits") return { kind: mask.kind };
    const bits = /** @type {Uint8Array} */ (await this.array(mask.array));
    return { kind: "bits", bits, first: mask.heads > 1 ? head * rows * columns : 0 };
  }
}

/**
 * Return part of a table, max-pooled.
 * @param {Matrix} table
 * @param {Span} rows
 * @param {Span} columns
 */
export function tileOf(table, rows, columns) {
  const part = matrix(rows.stop - rows.start, columns.stop - columns.start);
  for (let i = 0; i < part.rows; i++) {
    row(part, i).set(row(table, rows.start + i).subarray(columns.start, columns.stop));
  }
  return pooled(part, rows.bins, columns.bins, "max");
}

/**
 * Decode thumbnails, which are stored as bytes: 255 · √weight.
 * @param {Matrix} table
 */
function fromBytes({ rows, columns, data }) {
  return matrix(rows, columns, Float32Array.from(data, (x) => (x / 255) ** 2));
}

/**
 * Transpose an array of points, which is stored axis by axis.
 * @param {Matrix} table
 */
function transpose({ rows, columns, data }) {
  return matrix(columns, rows, Float32Array.from({ length: data.length }, (_, i) => data[(i % rows) * columns + Math.floor(i / rows)]));
}
