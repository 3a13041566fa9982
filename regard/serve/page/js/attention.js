// Attention, step by step, on plain arrays: what the page computes by itself.
//
//   query ─┐
//   key ───┴─ compare ─ × scale (+ bias) ─ mask ─ softmax over keys ─┐
//   value ───────────────────────────────────────────────────────────┴─ weighted sum ─▶ context
//
// Sums are kept in double precision; tables in single, like the model's own.

/**
 * A table of numbers, row after row.
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
 * One row, as a view.
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

/**
 * E_ij = q_i · k_j for every query and key.
 * @param {Matrix} query
 * @param {Matrix} key
 * @returns {Matrix}
 */
export function compare(query, key) {
  const made = matrix(query.rows, key.rows);
  const [d, n] = [query.columns, key.rows];
  const [q, k, into] = [query.data, key.data, made.data];
  for (let i = 0; i < query.rows; i++) {
    const [a, cell] = [i * d, i * n];
    let j = 0;
    for (; j + 3 < n; j += 4) { // four keys at once: each number of the query is read once for all
      let [one, two, three, four] = [0, 0, 0, 0];
      for (let c = 0, b = j * d; c < d; c++, b++) {
        const x = q[a + c];
        one += x * k[b];
        two += x * k[b + d];
        three += x * k[b + 2 * d];
        four += x * k[b + 3 * d];
      }
      into[cell + j] = one;
      into[cell + j + 1] = two;
      into[cell + j + 2] = three;
      into[cell + j + 3] = four;
    }
    for (; j < n; j++) into[cell + j] = dot(q.subarray(a, a + d), k.subarray(j * d, (j + 1) * d));
  }
  return made;
}

/**
 * E_ij = v · tanh(q_i + k_j): additive similarity of vectors that are projected already.
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
 * Similarities × scale, minus a slope times the distance where a head has one (ALiBi).
 * @param {Matrix} compared
 * @param {number} scale
 * @param {number} [slope]
 * @param {number} [ahead] the position of the first query among the keys
 * @returns {Matrix}
 */
export function scaled(compared, scale, slope = 0, ahead = 0) {
  const made = matrix(compared.rows, compared.columns);
  for (let i = 0, cell = 0; i < compared.rows; i++) {
    for (let j = 0; j < compared.columns; j++, cell++) {
      const bias = slope ? -slope * Math.abs(i + ahead - j) : 0;
      made.data[cell] = compared.data[cell] * scale + bias;
    }
  }
  return made;
}

/**
 * Scores with −∞ where a query may not see a key.
 * @param {Matrix} scores
 * @param {Uint8Array | null} allowed one byte a cell; null if everything is allowed
 * @returns {Matrix}
 */
export function masked(scores, allowed) {
  if (!allowed) return scores;
  const made = matrix(scores.rows, scores.columns, scores.data.slice());
  for (let i = 0; i < allowed.length; i++) if (!allowed[i]) made.data[i] = -Infinity;
  return made;
}

/**
 * Each query's weights: softmax(scores / temperature) over its keys.
 *
 * A query that may see nothing has weights 0. Temperature 0 puts all weight on the best key,
 * shared equally among equals; an infinite one gives all allowed keys the same.
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
  const plain = temperature > 0 && Number.isFinite(temperature); // e^(−∞ / T) is 0 by itself then
  let total = 0;
  for (let j = 0; j < scores.length; j++) {
    const part = plain ? Math.exp((scores[j] - peak) / temperature) : exponential(scores[j], peak, temperature);
    into[j] = part;
    total += part;
  }
  for (let j = 0; j < into.length; j++) into[j] /= total;
}

/**
 * e^((score − peak) / temperature), also at the ends of the scale.
 * @param {number} score
 * @param {number} peak
 * @param {number} temperature
 */
export function exponential(score, peak, temperature) {
  if (score === -Infinity) return 0;
  if (temperature === 0) return score === peak ? 1 : 0;
  return Math.exp((score - peak) / temperature);
}

/** @param {ArrayLike<number>} values */
export function largest(values) {
  let found = -Infinity;
  for (let i = 0; i < values.length; i++) if (values[i] > found) found = values[i];
  return found;
}

/**
 * Weighted sums of the values: one row for each query.
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
 * One weighted sum of rows.
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
 * x · Wᵀ + b for a weight kept as torch keeps it: output × input.
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
 * A · B, for the worked example.
 * @param {Matrix} a
 * @param {Matrix} b
 * @returns {Matrix}
 */
export function product(a, b) {
  return weightedSum(a, b);
}

/**
 * Rows and columns gathered into fewer: each cell the mean or the largest of those it covers.
 * @param {Matrix} table
 * @param {number} rows
 * @param {number} columns
 * @param {"mean" | "max"} how
 * @returns {Matrix}
 */
export function pooled(table, rows, columns, how = "mean") {
  if (rows >= table.rows && columns >= table.columns) return table;
  const height = Math.min(rows, table.rows);
  const width = Math.min(columns, table.columns);
  const made = matrix(height, width);
  const count = new Float32Array(height * width);
  if (how === "max") made.data.fill(-Infinity);
  const across = Int32Array.from({ length: table.columns }, (_, j) => Math.floor((j * width) / table.columns));
  for (let i = 0; i < table.rows; i++) {
    const up = Math.floor((i * height) / table.rows) * width;
    const line = row(table, i);
    if (how === "max") {
      for (let j = 0; j < line.length; j++) if (line[j] > made.data[up + across[j]]) made.data[up + across[j]] = line[j];
      continue;
    }
    for (let j = 0; j < line.length; j++) {
      made.data[up + across[j]] += line[j];
      count[up + across[j]]++;
    }
  }
  if (how === "mean") for (let i = 0; i < count.length; i++) made.data[i] /= count[i];
  return made;
}
