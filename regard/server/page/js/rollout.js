// Attention rollout, as Python's explain/rollout.py has it, for pages without Python behind them.

import { matrix } from "./attention.js";

/** @typedef {import("./attention.js").Matrix} Matrix */

/**
 * Â · whole, where Â is half the mean of the heads' weights and half the identity, rows made to sum to 1.
 * @param {Matrix[]} heads
 * @param {Matrix | null} whole the rollout of the layers before; null before the first
 * @returns {Matrix}
 */
export function throughLayer(heads, whole) {
  const mixed = withResidual(heads);
  if (!whole) return mixed;
  const n = mixed.rows;
  const made = matrix(n, n);
  for (let i = 0; i < n; i++) {
    const sums = new Float64Array(n);
    for (let k = 0; k < n; k++) {
      const share = mixed.data[i * n + k];
      if (share === 0) continue;
      for (let j = 0, at = k * n; j < n; j++) sums[j] += share * whole.data[at + j];
    }
    made.data.set(sums, i * n);
  }
  return made;
}

/**
 * @param {Matrix[]} heads
 * @returns {Matrix}
 */
function withResidual(heads) {
  const n = heads[0].rows;
  const made = matrix(n, n);
  for (let i = 0; i < n; i++) {
    const line = new Float64Array(n);
    for (const { data } of heads) for (let j = 0; j < n; j++) line[j] += Math.max(0, data[i * n + j]) / heads.length;
    line[i] += 1;
    const sum = line.reduce((a, b) => a + b, 0);
    for (let j = 0; j < n; j++) made.data[i * n + j] = line[j] / sum;
  }
  return made;
}
