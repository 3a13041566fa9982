// The model behind a trace of the local server: answers and heads after edits.

import { keepLatest } from "./debounce.js";
import { editsToJson, changesOf } from "./edits.js";
import { computeTables, averageRows } from "./head.js";
import { requestJson } from "./http.js";
import { parseTemperature } from "./source.js";
import { markContinued } from "./tokens.js";

/**
 * @typedef {import("./http_source.js").HttpSource} HttpSource
 * @typedef {import("./source.js").Model} Model
 * @typedef {import("./edits.js").Edit} Edit
 * @typedef {{ token: string, id: number, probability: number, text: string, ids: number[] }} Alternative
 */

/**
 * The effect of edits while the answer stays the same (teacher forcing).
 * @typedef {{ answer: any, final: boolean, source: HttpSource }} Effect
 */

/** @implements {Model} */
export class HttpModel {
  /**
   * @param {any} described the trace without edits, as the server describes it
   * @param {(described: any) => HttpSource} sourceOf
   */
  constructor(described, sourceOf) {
    this.described = described;
    this.sourceOf = sourceOf;
    /** @type {{ edits: string, found: Promise<Effect | null> } | null} */
    this.last = null;
    this.next = keepLatest((/** @type {number} */ temperature) => this.fetchNext(temperature));
    this.requestEffect = keepLatest((/** @type {Edit[]} */ edits) => this.fetchEffect(edits));
  }

  /**
   * Return the answer after edits, and the new probabilities of the old answer.
   * @param {Edit[]} edits
   * @param {AbortSignal} [signal]
   */
  async answer(edits, signal) {
    const asked = { ...this.described.asked, edits: editsToJson(edits) };
    return (await requestJson("/api/answer", asked, signal)).answer;
  }

  /**
   * Return the effect of edits on the same answer: one forward pass, without a search.
   * Null if newer edits were requested meanwhile.
   * @param {Edit[]} edits
   * @returns {Promise<Effect | null>}
   */
  effect(edits) {
    const text = JSON.stringify(edits);
    if (this.last?.edits !== text) {
      const found = this.requestEffect(edits);
      const mine = (this.last = { edits: text, found });
      found.catch(() => this.last === mine && (this.last = null)); // retry next time
    }
    return this.last.found;
  }

  /**
   * @param {Edit[]} edits
   * @returns {Promise<Effect>}
   */
  async fetchEffect(edits) {
    const { asked, answer } = this.described;
    const final = asked.target !== undefined || !answer.ids;
    const same = { ...asked, ...(final ? {} : { target: answer.ids }), edits: editsToJson(edits) };
    const found = await requestJson("/api/answer", same);
    return { answer: found.answer, final, source: this.sourceOf({ ...this.described, id: found.id, asked: same }) };
  }

  /**
   * Return one head after edits anywhere in the model, for the same answer.
   * @param {Edit[]} edits
   * @param {string} path
   * @param {number} head
   * @returns {Promise<import("./source.js").EditedHead | null>}
   */
  async headAfter(edits, path, head) {
    const source = (await this.effect(edits))?.source;
    if (!source) return null;
    const [vectors, found] = await Promise.all([source.vectors(path, head), source.get("vectors", { site: path, head })]);
    const { temperature, ...pattern } = JSON.parse(found.query.about.pattern);
    const site = { ...source.site(path), ...pattern, temperature: temperature.map(parseTemperature) };
    const tables = computeTables(site, head, vectors);
    const changes = changesOf(edits, path, head);
    const weights = changes?.mean ? averageRows(tables.weights) : tables.weights;
    return { vectors, tables: { ...tables, weights, off: changes?.off ?? false }, steps: (query, key) => source.steps(path, head, query, key) };
  }

  /**
   * Return the next-token candidates at a sampling temperature.
   * @param {number} temperature
   * @returns {Promise<import("./source.js").Candidate[]>}
   */
  async fetchNext(temperature) {
    const query = new URLSearchParams({ temperature: String(temperature) });
    return (await requestJson(`/api/trace/${this.described.id}/next?${query}`)).candidates;
  }

  /**
   * Return other words for a position of a translation.
   * @param {number} position
   * @returns {Promise<Alternative[]>}
   */
  async alternatives(position) {
    return (await requestJson(`/api/trace/${this.described.id}/alternatives?position=${position}`)).alternatives;
  }

  /**
   * Write the answer again, after edits and with forced tokens if there are any, and trace the text.
   * @param {Edit[]} edits
   * @param {Record<string, any>} query temperature, top_k, top_p, seed, forced
   */
  async decode(edits, query) {
    const asked = { ...this.described.asked, ...(edits.length ? { edits: editsToJson(edits) } : {}) };
    const id = edits.length ? (await requestJson("/api/answer", asked)).id : this.described.id;
    const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
    const path = (/** @type {string} */ one) => `/api/trace/${one}/decoding?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`;
    /** @type {import("./source.js").Decoding} */
    const info = await requestJson(path(id)).catch(async (error) => {
      if (error.status !== 404) throw error;
      return requestJson(path((await requestJson("/api/answer", asked)).id)); // the server had dropped the trace
    });
    markContinued([...info.steps, ...info.steps.flatMap((step) => step.candidates), ...(info.tree ?? [])]);
    const written = info.kind === "sample" ? { ...asked, text: info.text } : { ...asked, target: info.ids };
    return { info, source: info.traceable ? this.sourceOf(await requestJson("/api/trace", info.kind === "given" ? asked : written)) : null };
  }
}
