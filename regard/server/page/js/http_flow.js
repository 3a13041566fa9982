// The residual stream of a trace on the local server.

import { flowRows } from "./flow_rows.js";
import { requestJson } from "./http.js";

/**
 * @typedef {import("./source.js").Flow} Flow
 * @typedef {import("./source.js").FlowSide} FlowSide
 * @typedef {import("./source.js").FlowRows} FlowRows
 */

/** @implements {Flow} */
export class HttpFlow {
  /**
   * @param {import("./http_source.js").HttpSource} source
   * @param {{ sides: FlowSide[], predicts: string | null, limit: number }} info
   */
  constructor(source, info) {
    this.source = source;
    this.sides = info.sides;
    this.predicts = info.predicts;
    this.limit = info.limit;
  }

  /**
   * @param {FlowSide} side
   * @param {number} start
   * @param {number} stop
   * @returns {Promise<FlowRows>}
   */
  async rows(side, start, stop) {
    const found = await this.source.get("flow/arrays", { side: side.name, start, stop });
    const names = JSON.parse(Object.values(found)[0]?.about.names ?? "[]");
    return flowRows(side, start, stop, found, names);
  }

  /**
   * @param {string} path
   * @param {number} position
   */
  async vector(path, position) {
    const found = await this.source.get("stream", { path, position });
    return Object.fromEntries(Object.entries(found).map(([name, array]) => [name, /** @type {Float32Array} */ (array.data)]));
  }

  /**
   * @param {string} path
   * @param {number} position
   * @returns {Promise<import("./source.js").HiddenUnits>}
   */
  units(path, position) {
    const place = new URLSearchParams({ path, position: String(position), count: "6" });
    return this.source.retry(() => requestJson(`/api/trace/${this.source.described.id}/units?${place}`));
  }
}
