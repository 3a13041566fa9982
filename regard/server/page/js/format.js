// Numbers as people read them: few digits by default, all of them on demand.

/** How many digits behind the point are shown: fewer where a file holds rounded numbers. */
let DIGITS = 3;

/** @param {number} digits */
export function showDigits(digits) {
  DIGITS = digits;
}

/**
 * A number with few digits, its minus sign as long as a plus sign.
 * @param {number} x
 * @param {number} [digits]
 */
export function short(x, digits = DIGITS) {
  if (x === -Infinity) return "−∞";
  if (x === Infinity) return "∞";
  if (Number.isNaN(x)) return "–";
  const size = Math.abs(x);
  if (size >= 1e4 || (size > 0 && size < 10 ** -digits / 2 && digits > 3)) return exponent(x);
  const places = size >= 100 ? Math.max(0, digits - 2) : size >= 10 ? digits - 1 : digits;
  return minus(x.toFixed(Math.max(0, places)));
}

/**
 * All digits that a 32-bit number has.
 * @param {number} x
 */
export function full(x) {
  if (!Number.isFinite(x)) return short(x);
  return minus(String(Number(x.toPrecision(8))));
}

/**
 * A number in brackets where it is negative, for sums and products.
 * @param {number} x
 */
export function factor(x) {
  return x < 0 ? `(${short(x)})` : short(x);
}

/**
 * For tables that programs read: no minus signs of print.
 * @param {number} x
 */
export function plainNumber(x) {
  if (x === -Infinity) return "-inf";
  return Number.isFinite(x) ? String(Number(x.toPrecision(9))) : String(x);
}

/** @param {number} x */
function exponent(x) {
  return minus(x.toExponential(2));
}

/** @param {string} text */
function minus(text) {
  return /^-0(\.0*)?$/.test(text) ? text.slice(1) : text.replace("-", "−");
}
