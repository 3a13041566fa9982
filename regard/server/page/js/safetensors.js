// Arrays as the server sends them: a length, a header in JSON, then the numbers.

import { halves } from "./unpack.js";

/**
 * An array with its shape and what is said about the whole file.
 * @typedef {{ data: Float32Array | Uint8Array, shape: number[], about: Record<string, string> }} Named
 */

/**
 * All arrays of a safetensors file, by name; halves become whole numbers.
 * @param {ArrayBuffer} file
 * @returns {Record<string, Named>}
 */
export function arraysOf(file) {
  const length = Number(new DataView(file).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, length)));
  const about = header.__metadata__ ?? {};
  /** @type {Record<string, Named>} */
  const made = {};
  for (const [name, { dtype, shape, data_offsets: offsets }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const bytes = file.slice(8 + length + offsets[0], 8 + length + offsets[1]);
    made[name] = { data: numbers(dtype, bytes), shape, about };
  }
  return made;
}

/**
 * @param {string} dtype
 * @param {ArrayBuffer} bytes
 * @returns {Float32Array | Uint8Array}
 */
function numbers(dtype, bytes) {
  if (dtype === "U8") return new Uint8Array(bytes);
  if (dtype === "F16") return halves(new Uint16Array(bytes));
  return new Float32Array(bytes);
}
