// Motion: short, and none at all if the reader asked for less.

/** Milliseconds of one movement. */
export const MOVE = 300;
const EASE = "cubic-bezier(0.25, 0.7, 0.3, 1)";

/** Return whether the reader asked for less motion. */
export function reducesMotion() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/**
 * Move an element from other styles to its own; resolved when it has arrived.
 * @param {Element | null | undefined} element
 * @param {Keyframe | Keyframe[]} from the first styles, or several keyframes
 * @param {number} [duration]
 * @param {number} [delay]
 * @returns {Promise<unknown>}
 */
export function move(element, from, duration = MOVE, delay = 0) {
  if (!element || reducesMotion() || duration <= 0) return Promise.resolve();
  const frames = Array.isArray(from) ? from : [from, {}];
  return element.animate(frames, { duration, delay, easing: EASE, fill: "backwards" }).finished.catch(() => null);
}

/**
 * Call `draw` with the eased progress from 0 to 1 in every animation frame; at once with 1 if
 * motion is off. Returns a function that ends the movement where it goes.
 * @param {(progress: number) => void} draw
 * @param {number} [duration]
 * @returns {() => void}
 */
export function tween(draw, duration = MOVE) {
  if (reducesMotion() || document.hidden || duration <= 0) {
    draw(1);
    return () => undefined;
  }
  let running = true;
  const start = performance.now();
  const frame = (/** @type {number} */ now) => {
    if (!running) return;
    const part = Math.min(1, Math.max(0, (now - start) / duration));
    running = part < 1;
    draw(1 - (1 - part) ** 3);
    if (running) requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  return () => {
    if (running) draw(1);
    running = false;
  };
}

/**
 * Let a copy of an element fall onto another one.
 * @param {Element} from
 * @param {Element} to
 * @param {number} [duration]
 */
export async function fall(from, to, duration = MOVE) {
  if (reducesMotion() || duration <= 0) return;
  const [start, end] = [from.getBoundingClientRect(), to.getBoundingClientRect()];
  const ghost = /** @type {HTMLElement} */ (from.cloneNode(true));
  ghost.classList.add("falling");
  ghost.setAttribute("aria-hidden", "true");
  ghost.style.left = `${start.left}px`;
  ghost.style.top = `${start.top}px`;
  (from.closest(".regard") ?? document.body).append(ghost);
  const travel = `translate(${end.left - start.left}px, ${end.top - start.top}px)`;
  await ghost.animate([{ transform: "none" }, { transform: travel }], { duration, easing: "cubic-bezier(0.5, 0, 0.75, 0.6)", fill: "forwards" }).finished.catch(() => null);
  ghost.remove();
}
