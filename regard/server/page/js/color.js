// Colors by role, read from the style sheet, so that SVG and canvas use the same theme.

/** @type {Map<string, string>} */
const COLORS = new Map();
/** @type {Map<string, Uint8ClampedArray>} */
const RAMPS = new Map();

/** Clear the cache after a change of theme. */
export function forgetColors() {
  COLORS.clear();
  RAMPS.clear();
}

/**
 * Return the color of a role: "query", "key", "value", "weight", "positive", "negative", "ground", …
 * @param {string} role
 */
export function color(role) {
  let found = COLORS.get(role);
  if (!found) {
    const root = document.querySelector(".regard") ?? document.documentElement;
    found = getComputedStyle(root).getPropertyValue(`--${role}`).trim() || "#888888";
    COLORS.set(role, found);
  }
  return found;
}

/**
 * Return 256 perceptually even steps from the background to a role's darkest color, 4 bytes each.
 * @param {string} role
 */
export function ramp(role) {
  let made = RAMPS.get(role);
  if (!made) {
    const [from, middle, to] = [color("ground"), color(role), color(`${role}-deep`)].map(toLab);
    made = new Uint8ClampedArray(1024);
    for (let i = 0; i < 256; i++) {
      const t = i / 255;
      const part = t < 0.6 ? mix(from, middle, t / 0.6) : mix(middle, to, (t - 0.6) / 0.4);
      made.set([...fromLab(part), 255], 4 * i);
    }
    RAMPS.set(role, made);
  }
  return made;
}

/**
 * Return how dark a weight is in a heat map, relative to the largest: its square root, so that a row
 * that looks at many keys is not white next to one that looks at a single key.
 * @param {number} share from 0 to 1
 */
export function weightTone(share) {
  return Math.sqrt(share);
}

/**
 * Return one color of a ramp as CSS.
 * @param {string} role
 * @param {number} t from 0 to 1
 */
export function tone(role, t) {
  const i = 4 * Math.round(255 * Math.min(1, Math.max(0, t)));
  const table = ramp(role);
  return `rgb(${table[i]},${table[i + 1]},${table[i + 2]})`;
}

/**
 * @param {number[]} a
 * @param {number[]} b
 * @param {number} t
 */
function mix(a, b, t) {
  return a.map((x, i) => x + (b[i] - x) * t);
}

/**
 * Return the OKLab values of a color written as #rrggbb.
 * @param {string} hex
 * @returns {number[]}
 */
function toLab(hex) {
  const [r, g, b] = [1, 3, 5].map((i) => {
    const x = parseInt(hex.slice(i, i + 2), 16) / 255;
    return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  });
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

/**
 * @param {number[]} lab
 * @returns {number[]}
 */
function fromLab([L, a, b]) {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map((x) => {
    const y = Math.min(1, Math.max(0, x));
    return 255 * (y <= 0.0031308 ? 12.92 * y : 1.055 * y ** (1 / 2.4) - 0.055);
  });
}
