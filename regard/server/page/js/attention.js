// Attention step by step on plain arrays, for the offline file and for edits of the open head.
//
//   query ─┐
//   key ───┴─ compare ─ × scale (+ bias) ─ mask ─ softmax over keys ─┐
//   value ───────────────────────────────────────────────────────────┴─ weighted sum ─▶ context
//
// Sums are kept in double precision; tables in single, like the model's own. Every function is
// compared with Python in tests/server/page/test_javascript_math.py.

import { largest, matrix, row } from "./matrix.js";

/** @typedef {import("./matrix.js").Matrix} Matrix */

/**
 * A mask: all pairs, causal, or one bit per cell (most significant first), starting at bit `first`.
 * @typedef {{ kind: "all" } | { kind: "causal" } | { kind: "bits", bits: Uint8Array, first: number }} Mask
 */

/**
 * Return which keys a query may see, one byte per key; null if all.
 * @param {Mask} mask
 * @param {number} query
 * @param {number} columns
 * @returns {Uint8Array | null}
 */
export function allowedRow(mask, query, columns) {
  if (mask.kind === "all") return null;
  const made = new Uint8Array(columns);
  for (let j = 0; j < columns; j++) {
    if (mask.kind === "causal") made[j] = Number(j <= query);
    else {
      const at = mask.first + query * columns + j;
      made[j] = (mask.bits[at >> 3] >> (7 - (at & 7))) & 1;
    }
  }
  return made;
}

/**
 * Return the mask of all queries, row by row; null if everything is allowed.
 * @param {Mask} mask
 * @param {number} rows
 * @param {number} columns
 * @returns {Uint8Array | null}
 */
export function allowedTable(mask, rows, columns) {
  if (mask.kind === "all") return null;
  const made = new Uint8Array(rows * columns);
  for (let i = 0; i < rows; i++) made.set(/** @type {Uint8Array} */ (allowedRow(mask, i, columns)), i * columns);
  return made;
}

/**
 * Return E_ij = q_i · k_j. Two queries and four keys are multiplied at a time, so that each number
 * is read once for several products.
 * @param {Matrix} query
 * @param {Matrix} key
 * @returns {Matrix}
 */
export function compare(query, key) {
  const made = matrix(query.rows, key.rows);
  const d = query.columns;
  const [pairs, fours] = [packRows(query, 2), packRows(key, 4)];
  const block = new Float64Array(8);
  for (let j = 0; j < key.rows; j += 4) {
    for (let i = 0; i < query.rows; i += 2) {
      let s0 = 0, s1 = 0, s2 = 0, s3 = 0, t0 = 0, t1 = 0, t2 = 0, t3 = 0; // arrays would cost more than the sums
      for (let c = 0, a = i * d, b = j * d; c < d; c++, a += 2, b += 4) {
        const x = pairs[a], y = pairs[a + 1], k0 = fours[b], k1 = fours[b + 1], k2 = fours[b + 2], k3 = fours[b + 3];
        s0 += x * k0;
        s1 += x * k1;
        s2 += x * k2;
        s3 += x * k3;
        t0 += y * k0;
        t1 += y * k1;
        t2 += y * k2;
        t3 += y * k3;
      }
      block[0] = s0, block[1] = s1, block[2] = s2, block[3] = s3, block[4] = t0, block[5] = t1, block[6] = t2, block[7] = t3;
      storeBlock(made, i, j, block);
    }
  }
  return made;
}

/**
 * Interleave rows in groups of n, in double precision; the last group is padded with 0.
 * @param {Matrix} table
 * @param {number} n
 */
function packRows({ rows, columns, data }, n) {
  const made = new Float64Array(Math.ceil(rows / n) * n * columns);
  for (let i = 0; i < rows; i++) {
    for (let c = 0, to = (i - (i % n)) * columns + (i % n); c < columns; c++, to += n) made[to] = data[i * columns + c];
  }
  return made;
}

/**
 * Store a block of two rows and four columns, as far as it fits.
 * @param {Matrix} table
 * @param {number} i
 * @param {number} j
 * @param {Float64Array} block
 */
function storeBlock({ rows, columns, data }, i, j, block) {
  const [high, wide] = [Math.min(2, rows - i), Math.min(4, columns - j)];
  for (let a = 0; a < high; a++) for (let b = 0; b < wide; b++) data[(i + a) * columns + j + b] = block[4 * a + b];
}

/**
 * Return E_ij = v · tanh(q_i + k_j), the additive similarity of vectors that are already projected.
 * @param {Matrix} query
 * @param {Matrix} key
 * @param {Float32Array} weight
 * @returns {Matrix}
 */
export function compareAdditively(query, key, weight) {
  const made = matrix(query.rows, key.rows);
  for (let i = 0, cell = 0; i < query.rows; i++) {
    const q = row(query, i);
    for (let j = 0; j < key.rows; j++, cell++) {
      const k = row(key, j);
      let sum = 0;
      for (let c = 0; c < q.length; c++) sum += weight[c] * Math.tanh(q[c] + k[c]);
      made.data[cell] = sum;
    }
  }
  return made;
}

/**
 * Return similarities × scale, minus slope × distance if the head has a slope (ALiBi).
 * @param {Matrix} compared
 * @param {number} scale
 * @param {number} [slope]
 * @param {number} [ahead] the position of the first query among the keys
 * @returns {Matrix}
 */
export function scaled(compared, scale, slope = 0, ahead = 0) {
  const made = matrix(compared.rows, compared.columns);
  const [from, into] = [compared.data, made.data];
  if (!slope) {
    for (let cell = 0; cell < from.length; cell++) into[cell] = from[cell] * scale;
    return made;
  }
  for (let i = 0, cell = 0; i < compared.rows; i++) {
    for (let j = 0; j < compared.columns; j++, cell++) into[cell] = from[cell] * scale - slope * Math.abs(i + ahead - j);
  }
  return made;
}

/**
 * Return the scores with −∞ where a query must not see a key.
 * @param {Matrix} scores
 * @param {Uint8Array | null} allowed one byte per cell; null if everything is allowed
 * @returns {Matrix}
 */
export function masked(scores, allowed) {
  if (!allowed) return scores;
  const made = matrix(scores.rows, scores.columns, scores.data.slice());
  for (let i = 0; i < allowed.length; i++) if (!allowed[i]) made.data[i] = -Infinity;
  return made;
}

/**
 * Return softmax(scores / temperature) over the keys of each query.
 *
 * A query without allowed keys gets weights of 0. Temperature 0 puts all weight on the best key,
 * shared among ties; an infinite temperature gives all allowed keys the same weight.
 * @param {Matrix} scores
 * @param {number} [temperature]
 * @returns {Matrix}
 */
export function softmax(scores, temperature = 1) {
  const made = matrix(scores.rows, scores.columns);
  for (let i = 0; i < scores.rows; i++) softmaxInto(row(scores, i), temperature, row(made, i));
  return made;
}

/**
 * @param {Float32Array} scores
 * @param {number} temperature
 * @param {Float32Array} into
 */
export function softmaxInto(scores, temperature, into) {
  const peak = largest(scores);
  if (peak === -Infinity) {
    into.fill(0);
    return;
  }
  const plain = temperature > 0 && Number.isFinite(temperature);
  const total = plain ? powers(scores, peak, temperature, into) : limitPowers(scores, peak, temperature, into);
  const share = 1 / total;
  for (let j = 0; j < into.length; j++) into[j] *= share;
}

/** Tables of 2^(i / 1024) and 2^−i: e^x is a product of one of each and a factor close to 1. */
const [FINE, COARSE] = [Float64Array.from({ length: 1024 }, (_, i) => 2 ** (i / 1024)), Float64Array.from({ length: 151 }, (_, i) => 2 ** -i)];

/**
 * Write e^((score − peak) / temperature) for a row and return the sum. Math.exp is more exact than
 * single precision needs and too slow for a slider; this has about ten correct digits.
 * @param {Float32Array} scores
 * @param {number} peak
 * @param {number} temperature
 * @param {Float32Array} into
 */
function powers(scores, peak, temperature, into) {
  const [by, back] = [1024 / Math.LN2 / temperature, Math.LN2 / 1024];
  let total = 0;
  for (let j = 0; j < scores.length; j++) {
    const steps = (scores[j] - peak) * by;
    let part = 0;
    if (steps > -150 * 1024) {
      const whole = steps | 0;
      const rest = (steps - whole) * back;
      part = FINE[whole & 1023] * COARSE[0 - (whole >> 10)] * (1 + rest * (1 + 0.5 * rest));
    }
    into[j] = part;
    total += part;
  }
  return total;
}

/**
 * The same for a temperature of 0 or infinity.
 * @param {Float32Array} scores
 * @param {number} peak
 * @param {number} temperature
 * @param {Float32Array} into
 */
function limitPowers(scores, peak, temperature, into) {
  let total = 0;
  for (let j = 0; j < scores.length; j++) total += into[j] = exponential(scores[j], peak, temperature);
  return total;
}

/**
 * Return e^((score − peak) / temperature), also for temperatures of 0 and infinity.
 * @param {number} score
 * @param {number} peak
 * @param {number} temperature
 */
export function exponential(score, peak, temperature) {
  if (score === -Infinity) return 0;
  if (temperature === 0) return score === peak ? 1 : 0;
  return Math.exp((score - peak) / temperature);
}

/**
 * Attention rollout of one layer: Â · whole, where Â is the normalized mean of the heads plus the identity.
 * @param {Matrix[]} heads
 * @param {Matrix | null} whole the rollout of the layers below; null for the first one
 * @returns {Matrix}
 */
export function rolloutLayer(heads, whole) {
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
