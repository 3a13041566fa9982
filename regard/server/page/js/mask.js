// Which query may see which key, kept as small as it can be.

/**
 * All pairs; query i sees keys 0 to i; or one bit a cell (most significant first), from `first` on.
 * @typedef {{ kind: "all" } | { kind: "causal" } | { kind: "bits", bits: Uint8Array, first: number }} Mask
 */

/**
 * What one query may see, one byte a key; null if everything.
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
 * The same for all queries, row after row.
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
