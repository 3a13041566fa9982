// Arrays as they reach the page: packed inside an HTML file, or as safetensors from the server.

/**
 * A packed array.
 * @typedef {{ dtype: "float32" | "float16" | "int8" | "uint8", shape: number[], data: string }} Packed
 */

/**
 * Return the numbers of a packed array.
 * @param {Packed} packed
 * @returns {Promise<Float32Array | Uint8Array>}
 */
export async function unpack(packed) {
  const bytes = await inflate(fromBase64(packed.data));
  const count = packed.shape.reduce((a, b) => a * b, 1);
  if (packed.dtype === "uint8") return bytes;
  if (packed.dtype === "float32") return new Float32Array(joinBytes(bytes, count, 4).buffer);
  if (packed.dtype === "float16") return float16ToFloat32(new Uint16Array(joinBytes(bytes, count, 2).buffer));
  return decodeInt8(bytes, count, packed.shape[packed.shape.length - 1]);
}

/**
 * @param {string} text
 * @returns {Uint8Array<ArrayBuffer>}
 */
function fromBase64(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/**
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * Join bytes that are stored by place (all first bytes, then all second ones), which compresses better.
 * @param {Uint8Array} bytes
 * @param {number} count
 * @param {number} width
 */
function joinBytes(bytes, count, width) {
  const made = new Uint8Array(count * width);
  for (let part = 0, at = 0; part < width; part++) {
    for (let i = 0; i < count; i++, at++) made[i * width + part] = bytes[at];
  }
  return made;
}

/**
 * @param {Uint16Array} bits
 * @returns {Float32Array}
 */
export function float16ToFloat32(bits) {
  const made = new Float32Array(bits.length);
  FLOAT16_VALUES ??= Float32Array.from({ length: 65_536 }, (_, i) => decodeFloat16(i));
  for (let i = 0; i < bits.length; i++) made[i] = FLOAT16_VALUES[bits[i]];
  return made;
}

/** @type {Float32Array | null} all 16-bit floats: a lookup is faster than decoding */
let FLOAT16_VALUES = null;

/**
 * Decode a 16-bit floating-point number.
 * @param {number} bits
 */
function decodeFloat16(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const power = (bits >> 10) & 31;
  const rest = bits & 1023;
  if (power === 0) return sign * rest * 2 ** -24;
  if (power === 31) return rest ? NaN : sign * Infinity;
  return sign * (1 + rest / 1024) * 2 ** (power - 15);
}

/**
 * Decode integers from −127 to 127; each row has a step size (16 bits), stored before them.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {number} count
 * @param {number} width
 */
function decodeInt8(bytes, count, width) {
  const n = count / width;
  const steps = float16ToFloat32(new Uint16Array(joinBytes(bytes.subarray(0, 2 * n), n, 2).buffer));
  const whole = new Int8Array(bytes.buffer, bytes.byteOffset + 2 * n, count);
  const made = new Float32Array(count);
  for (let i = 0; i < count; i++) made[i] = whole[i] * steps[Math.floor(i / width)];
  return made;
}

/**
 * An array with its shape and the metadata of the file.
 * @typedef {{ data: Float32Array | Uint8Array, shape: number[], about: Record<string, string> }} NamedArray
 */

/**
 * Return all arrays of a safetensors file by name; 16-bit floats become 32-bit ones.
 * @param {ArrayBuffer} file
 * @returns {Record<string, NamedArray>}
 */
export function readSafetensors(file) {
  const length = Number(new DataView(file).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, length)));
  const about = header.__metadata__ ?? {};
  /** @type {Record<string, NamedArray>} */
  const made = {};
  for (const [name, { dtype, shape, data_offsets: offsets }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const bytes = file.slice(8 + length + offsets[0], 8 + length + offsets[1]);
    made[name] = { data: decodeNumbers(dtype, bytes), shape, about };
  }
  return made;
}

/**
 * @param {string} dtype
 * @param {ArrayBuffer} bytes
 * @returns {Float32Array | Uint8Array}
 */
function decodeNumbers(dtype, bytes) {
  if (dtype === "U8") return new Uint8Array(bytes);
  if (dtype === "I32") return Float32Array.from(new Int32Array(bytes)); // indices, exact up to 2²⁴
  if (dtype === "F16") return float16ToFloat32(new Uint16Array(bytes));
  return new Float32Array(bytes);
}
