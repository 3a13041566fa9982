// Groups with one tab stop: arrow keys move between their buttons, and choose in radio groups.

const STEPS = /** @type {Record<string, number>} */ ({ ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 });

/**
 * Let arrow keys move through the visible buttons of an element; the next one is focused and, in a
 * radio group, chosen.
 * @param {HTMLElement} element
 * @param {string} selector of its buttons
 * @param {(button: HTMLElement) => void} [choose]
 */
export function rove(element, selector, choose) {
  element.addEventListener("keydown", (event) => {
    const by = STEPS[event.key];
    const here = /** @type {HTMLElement | null} */ (/** @type {HTMLElement} */ (event.target).closest(selector));
    if (!by || !here || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = /** @type {HTMLElement[]} */ ([...element.querySelectorAll(selector)]).filter((one) => !one.hidden);
    const next = all[(all.indexOf(here) + by + all.length) % all.length];
    event.preventDefault();
    event.stopPropagation(); // arrow keys also move the query and the key
    [here.tabIndex, next.tabIndex] = [-1, 0];
    next.focus({ preventScroll: false });
    choose?.(next);
  });
  return element;
}

/**
 * Make the first of some elements their only tab stop; arrow keys reach the others.
 * @param {Iterable<HTMLElement>} elements
 */
export function oneTabStop(elements) {
  [...elements].forEach((one, i) => (one.tabIndex = i ? -1 : 0));
}

/**
 * Make a radio group of an element whose buttons have role="radio".
 * @param {HTMLElement} element
 */
export function radioGroup(element) {
  return rove(element, '[role="radio"]', (button) => button.click());
}

/**
 * Check one radio button of a group and make it the only tab stop.
 * @param {Iterable<HTMLElement>} buttons
 * @param {(button: HTMLElement) => boolean} isChosen
 */
export function check(buttons, isChosen) {
  const all = [...buttons];
  const chosen = all.find(isChosen);
  for (const button of all) {
    button.setAttribute("aria-checked", String(button === chosen));
    button.tabIndex = button === chosen || (!chosen && button === all[0]) ? 0 : -1;
  }
}
