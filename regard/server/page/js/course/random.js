// What happens to scores, softmax and gradients as vectors get wider: measured on random vectors.

/** The widths that are measured. */
export const WIDTHS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/** Queries, and keys of each query, that every number is an average of. */
export const N_QUERIES = 64;
export const N_KEYS = 32;

/**
 * @typedef {object} Spread
 * @property {number} d_k
 * @property {number} deviation standard deviation of the scores
 * @property {number} entropy of the softmax, in bits
 * @property {number} gradient Frobenius norm of the derivative of the weights by the scores
 * @property {number} peak the largest weight
 */

/**
 * Return a generator of numbers between 0 and 1 that is the same on every machine (mulberry32).
 * @param {number} seed
 */
export function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), 1 | state);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
  };
}

/**
 * Return normally distributed numbers of variance 1 (Box and Muller).
 * @param {() => number} uniform
 * @param {number} count
 */
export function normalNumbers(uniform, count) {
  const made = new Float64Array(count);
  for (let i = 0; i < count; i += 2) {
    const radius = Math.sqrt(-2 * Math.log(1 - uniform()));
    const angle = 2 * Math.PI * uniform();
    made[i] = radius * Math.cos(angle);
    if (i + 1 < count) made[i + 1] = radius * Math.sin(angle);
  }
  return made;
}

/**
 * Measure the softmax of one row of scores.
 * @param {Float64Array} scores
 */
export function measureRow(scores) {
  const peak = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - peak));
  const total = powers.reduce((sum, x) => sum + x, 0);
  const weights = powers.map((x) => x / total);
  let entropy = 0;
  let squares = 0; // of the Jacobian diag(w) − w wᵀ
  for (const w of weights) {
    if (w > 0) entropy -= w * Math.log2(w);
    squares += w * w * (1 - w) ** 2;
  }
  const sumOfSquares = weights.reduce((sum, w) => sum + w * w, 0);
  for (const w of weights) squares += w * w * (sumOfSquares - w * w);
  return { entropy, gradient: Math.sqrt(squares), peak: Math.max(...weights) };
}

/**
 * Measure random queries and keys of one width, whose numbers have variance 1.
 * @param {number} width
 * @param {boolean} scaled whether scores are divided by the root of the width
 * @param {number} [seed]
 * @returns {Spread}
 */
export function measureSpread(width, scaled, seed = 7) {
  const uniform = randomNumbers(seed * 1000 + width); // the same vectors, scaled or not
  const sums = { squares: 0, entropy: 0, gradient: 0, peak: 0 };
  for (let n = 0; n < N_QUERIES; n++) {
    const query = normalNumbers(uniform, width);
    const scores = new Float64Array(N_KEYS);
    for (let j = 0; j < N_KEYS; j++) {
      const key = normalNumbers(uniform, width);
      let score = 0;
      for (let i = 0; i < width; i++) score += query[i] * key[i];
      scores[j] = scaled ? score / Math.sqrt(width) : score;
      sums.squares += scores[j] ** 2;
    }
    const row = measureRow(scores);
    sums.entropy += row.entropy;
    sums.gradient += row.gradient;
    sums.peak += row.peak;
  }
  const mean = (/** @type {number} */ x) => x / N_QUERIES;
  return { d_k: width, deviation: Math.sqrt(sums.squares / (N_QUERIES * N_KEYS)), entropy: mean(sums.entropy), gradient: mean(sums.gradient), peak: mean(sums.peak) };
}

/** @type {{ scaled: Spread[], unscaled: Spread[] } | null} */
let MEASURED = null;

/** Return the measurements of all widths, made once. */
export function spreads() {
  MEASURED ??= { scaled: WIDTHS.map((width) => measureSpread(width, true)), unscaled: WIDTHS.map((width) => measureSpread(width, false)) };
  return MEASURED;
}
