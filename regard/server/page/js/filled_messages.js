// Messages with their values filled in, and the Korean particles that follow them: "{x}을(를)" becomes "0.5를" or "0.6을", by how the value ends.

/** Particles as they are written in messages: after a final consonant, and after a vowel. */
/** @type {Record<string, [string, string]>} */
const PARTICLES = { "을(를)": ["을", "를"], "이(가)": ["이", "가"], "은(는)": ["은", "는"], "와(과)": ["과", "와"], "(으)로": ["으로", "로"] };
/** Letters and digits whose Korean names end with a consonant; those of the second line with ㄹ. */
const CLOSED = /[0136MNmn]$/;
const ENDS_WITH_L = /[178LRlr]$/;
const [FIRST_SYLLABLE, LAST_SYLLABLE, N_FINALS, FINAL_L] = [0xac00, 0xd7a3, 28, 8];

/** A name in a message, with the particle that follows it. */
const NAME_AND_PARTICLE = /\{(\w+)\}(?:(["”]?)(을\(를\)|이\(가\)|은\(는\)|와\(과\)|\(으\)로))?/g;

/**
 * Return how a value ends when it is read aloud: "vowel", "consonant", "l", or "" for words whose sound is not known.
 * @param {string} value
 */
function ending(value) {
  const text = value.replace(/[\s"”’)\]]+$/, "");
  const code = text.charCodeAt(text.length - 1);
  if (code >= FIRST_SYLLABLE && code <= LAST_SYLLABLE) {
    const final = (code - FIRST_SYLLABLE) % N_FINALS;
    return final === 0 ? "vowel" : final === FINAL_L ? "l" : "consonant";
  }
  const isWord = /[A-Za-zÀ-ž]{2}$/.test(text);
  if (isWord || !/[0-9A-Za-z%]$/.test(text)) return "";
  return ENDS_WITH_L.test(text) ? "l" : CLOSED.test(text) ? "consonant" : "vowel";
}

/**
 * Return the form of a particle that fits a value; both forms if the sound of the value is not known.
 * @param {string} value
 * @param {string} particle as in PARTICLES
 */
function particleAfter(value, particle) {
  const sound = ending(value);
  const [closed, open] = PARTICLES[particle];
  if (!sound) return particle;
  return sound === "vowel" || (sound === "l" && closed === "으로") ? open : closed;
}

/**
 * Return a message with its {names} filled in.
 * @param {string} template
 * @param {Record<string, string | number>} values
 */
export function fillIn(template, values) {
  return fillParts(template, values).join("");
}

/**
 * Return the pieces of a message; values can be nodes, or functions that make them because a node can be in one place only.
 * @param {string} template
 * @param {Record<string, any>} values
 * @returns {(Node | string)[]}
 */
export function fillParts(template, values) {
  /** @type {(Node | string)[]} */
  const pieces = [];
  let at = 0;
  for (const found of template.matchAll(NAME_AND_PARTICLE)) {
    const [whole, name, quote = "", particle] = found;
    const given = values[name] ?? `{${name}}`;
    const value = typeof given === "function" ? given() : given;
    const nodes = Array.isArray(value) ? value : [value instanceof Node ? value : String(value)];
    const last = nodes.at(-1) ?? "";
    pieces.push(template.slice(at, found.index), ...nodes, quote, particle ? particleAfter(last instanceof Node ? (last.textContent ?? "") : last, particle) : "");
    at = found.index + whole.length;
  }
  return [...pieces, template.slice(at)].filter((piece) => piece !== "");
}
