// Names of the parts of a model that write to the residual stream.

/**
 * @typedef {import("../app.js").App} App
 * @typedef {import("../source.js").AttributionPart} AttributionPart
 */

const LAYER = /layers\.(\d+)\.(self|cross|feed_forward)\b/;
const KINDS = /** @type {const} */ ({ self: "partSelf", cross: "partCross", feed_forward: "partFeedForward" });
const EMBEDDINGS = /** @type {Record<string, any>} */ ({ tokens: "partTokens", types: "partTypes", positions: "partPositions", output: "partEmbedding" });

/**
 * Return the name of a sub-layer, or of the embedding.
 * @param {App["t"]} t
 * @param {string} path
 */
export function stationName(t, path) {
  const [, layer, kind] = LAYER.exec(path) ?? [];
  if (!kind) return t(path.includes(".embedding.") ? "partEmbedding" : path.startsWith("output.") ? "partOutputNorm" : "partFinalNorm");
  return `${t("layerName", { layer })} · ${t(KINDS[/** @type {keyof typeof KINDS} */ (kind)])}`;
}

/**
 * Return the name of a part of the embedding.
 * @param {App["t"]} t
 * @param {string} path
 */
export function embeddingName(t, path) {
  return t(EMBEDDINGS[path.split(".").pop() ?? ""] ?? "partEmbedding");
}

/**
 * Return the name of a part.
 * @param {App["t"]} t
 * @param {AttributionPart} part
 */
export function partName(t, { path, kind, head }) {
  if (kind === "embedding") return embeddingName(t, path);
  if (kind === "readout") return t("partReadout");
  const name = stationName(t, path);
  if (kind === "head") return `${name} · ${t("headName", { head: String(head) })}`;
  const extra = { bias: t("partBias"), norm: t("partNorm"), edit: t("partEdit") };
  return kind === "feed_forward" || kind === "attention" ? name : `${name} · ${extra[kind]}`;
}

/**
 * Return the attention site of a head's part.
 * @param {AttributionPart} part
 */
export function siteOf({ path }) {
  return path.replace(/\.output$/, "");
}
