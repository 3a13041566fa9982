// Table 1 of "Attention is all you need": the cost of layers for n positions of width d.

/** Layers in the order of the table. */
export const LAYER_TYPES = /** @type {const} */ (["self", "recurrent", "convolution", "restricted"]);

/** @typedef {{ n: number, d: number, k: number, r: number }} Sizes k: width of a convolution, r: radius of a window */
/** @typedef {{ operations: number, steps: number, path: number }} Cost path: the longest between two positions */

/**
 * Return the cost of each layer.
 * @param {Sizes} sizes
 * @returns {Record<typeof LAYER_TYPES[number], Cost>}
 */
export function costs({ n, d, k, r }) {
  return {
    self: { operations: n * n * d, steps: 1, path: 1 },
    recurrent: { operations: n * d * d, steps: n, path: n },
    convolution: { operations: k * n * d * d, steps: 1, path: Math.max(1, Math.ceil(Math.log(n) / Math.log(k))) },
    restricted: { operations: Math.min(r, n) * n * d, steps: 1, path: Math.max(1, Math.ceil(n / r)) },
  };
}
