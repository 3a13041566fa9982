// Number formatting: few digits by default, all of them on hover and in copied data.

/** Decimal places shown; fewer if a file contains rounded numbers. */
let DIGITS = 3;

/** @param {number} digits */
export function showDigits(digits) {
  DIGITS = digits;
}

/**
 * Format a number with few digits and a typographic minus sign.
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
 * Format a probability: small ones keep two significant digits instead of becoming 0.000.
 * @param {number} x
 */
export function probability(x) {
  if (!(x > 0) || x >= 10 ** -DIGITS) return short(x);
  return x >= 1e-6 ? String(Number(x.toPrecision(2))) : minus(x.toExponential(1));
}

/**
 * Format a number with all digits of a 32-bit float.
 * @param {number} x
 */
export function full(x) {
  if (!Number.isFinite(x)) return short(x);
  return minus(String(Number(x.toPrecision(8))));
}

/**
 * Format a factor of a product: negative numbers get parentheses.
 * @param {number} x
 */
export function factor(x) {
  return x < 0 ? `(${short(x)})` : short(x);
}

/**
 * Format a number for programs: ASCII minus sign, nine digits.
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
