// Matrices on plain arrays: products, ranges and pooling. Sums are kept in double precision.

/**
 * A table of numbers, row by row.
 * @typedef {{ rows: number, columns: number, data: Float32Array }} Matrix
 */

/**
 * @param {number} rows
 * @param {number} columns
 * @param {ArrayLike<number>} [data]
 * @returns {Matrix}
 */
export function matrix(rows, columns, data) {
  if (data instanceof Float32Array) return { rows, columns, data };
  return { rows, columns, data: data ? Float32Array.from(data) : new Float32Array(rows * columns) };
}

/**
 * Return one row as a view.
 * @param {Matrix} table
 * @param {number} i
 */
export function row(table, i) {
  return table.data.subarray(i * table.columns, (i + 1) * table.columns);
}

/**
 * @param {ArrayLike<number>} a
 * @param {ArrayLike<number>} b
 */
export function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/** @param {ArrayLike<number>} values */
export function largest(values) {
  let found = -Infinity;
  for (let i = 0; i < values.length; i++) if (values[i] > found) found = values[i];
  return found;
}

/**
 * Return the smallest and the largest finite number of a table.
 * @param {Matrix} table
 * @returns {[number, number]}
 */
export function rangeOf(table) {
  let low = Infinity;
  let high = -Infinity;
  const { data } = table;
  for (let i = 0; i < data.length; i++) {
    const x = data[i];
    if (x < low && x !== -Infinity) low = x;
    if (x > high) high = x;
  }
  return low > high ? [0, 0] : [low, high];
}

/** @param {ArrayLike<number>} values */
export function largestSize(values) {
  let found = 0;
  for (let i = 0; i < values.length; i++) found = Math.max(found, Math.abs(values[i]));
  return found;
}

/**
 * Return weights · value, the matrix product.
 * @param {Matrix} weights
 * @param {Matrix} value
 * @returns {Matrix}
 */
export function weightedSum(weights, value) {
  const made = matrix(weights.rows, value.columns);
  for (let i = 0; i < weights.rows; i++) row(made, i).set(mixture(row(weights, i), value));
  return made;
}

/**
 * Return a weighted sum of rows.
 * @param {ArrayLike<number>} weights
 * @param {Matrix} value
 * @returns {Float64Array}
 */
export function mixture(weights, value) {
  const sum = new Float64Array(value.columns);
  for (let j = 0; j < value.rows; j++) {
    if (!weights[j]) continue;
    for (let c = 0, at = j * value.columns; c < sum.length; c++) sum[c] += weights[j] * value.data[at + c];
  }
  return sum;
}

/**
 * Return x · Wᵀ + b for a weight of shape output × input, as in torch.
 * @param {ArrayLike<number>} x
 * @param {Matrix} weight
 * @param {ArrayLike<number> | null} bias
 * @returns {Float64Array}
 */
export function project(x, weight, bias) {
  const made = new Float64Array(weight.rows);
  for (let i = 0; i < weight.rows; i++) made[i] = dot(x, row(weight, i)) + (bias ? bias[i] : 0);
  return made;
}

/**
 * Pool a table to fewer rows and columns by mean or maximum.
 * @param {Matrix} table
 * @param {number} rows
 * @param {number} columns
 * @param {"mean" | "max"} how
 * @returns {Matrix}
 */
export function pooled(table, rows, columns, how = "mean") {
  if (rows >= table.rows && columns >= table.columns) return table;
  const [high, wide, n] = [Math.min(rows, table.rows), Math.min(columns, table.columns), table.columns];
  const made = matrix(high, wide);
  const [down, across] = [edges(table.rows, high), edges(n, wide)];
  const line = new Float32Array(n); // the pooled rows, before columns are pooled
  const [gather, join] = how === "max" ? [gatherMax, joinMax] : [gatherSum, joinMean];
  for (let i = 0; i < high; i++) {
    line.set(row(table, down[i]));
    for (let a = down[i] + 1; a < down[i + 1]; a++) gather(line, row(table, a));
    join(line, across, row(made, i), down[i + 1] - down[i]);
  }
  return made;
}

/**
 * Return the start of each bin, and the end of the last one.
 * @param {number} n
 * @param {number} bins
 */
function edges(n, bins) {
  return Int32Array.from({ length: bins + 1 }, (_, bin) => Math.ceil((bin * n) / bins));
}

/**
 * @param {Float32Array} line
 * @param {Float32Array} other
 */
function gatherMax(line, other) {
  for (let j = 0; j < line.length; j++) line[j] = other[j] > line[j] ? other[j] : line[j];
}

/**
 * @param {Float32Array} line
 * @param {Float32Array} other
 */
function gatherSum(line, other) {
  for (let j = 0; j < line.length; j++) line[j] += other[j];
}

/**
 * @param {Float32Array} line
 * @param {Int32Array} across
 * @param {Float32Array} into
 */
function joinMax(line, across, into) {
  for (let j = 0, k = 0; j < into.length; j++) {
    let found = line[k++];
    for (const stop = across[j + 1]; k < stop; k++) found = line[k] > found ? line[k] : found;
    into[j] = found;
  }
}

/**
 * @param {Float32Array} line
 * @param {Int32Array} across
 * @param {Float32Array} into
 * @param {number} high number of rows in the sum
 */
function joinMean(line, across, into, high) {
  for (let j = 0; j < into.length; j++) {
    let sum = 0;
    for (let k = across[j]; k < across[j + 1]; k++) sum += line[k];
    into[j] = sum / (high * (across[j + 1] - across[j]));
  }
}
