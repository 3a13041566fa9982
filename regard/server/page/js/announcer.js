// One live region for the whole page: what changes together is read out once.

import { el } from "./dom.js";

/** Wait this long, in milliseconds, for everything that changes together. */
const DELAY = 250;

/**
 * Return the live region of a page. Elements with the attribute data-says are read out when they change.
 * @param {HTMLElement} root
 */
export function announcer(root) {
  const region = el("p.visually-hidden.announcer", { role: "status" });
  const changed = /** @type {Set<Element>} */ (new Set());
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let waiting;
  const speak = () => {
    waiting = undefined;
    const texts = [...changed].filter((one) => one.isConnected && one.getClientRects().length).map((one) => (one.textContent ?? "").replace(/\s+/g, " ").trim());
    changed.clear();
    region.textContent = [...new Set(texts)].filter(Boolean).join(" ");
  };
  new MutationObserver((records) => {
    for (const { target, addedNodes } of records) {
      for (const node of addedNodes) if (node instanceof Element && node.matches("[data-says]")) changed.add(node);
      const says = (target instanceof Element ? target : target.parentElement)?.closest("[data-says]");
      if (says) changed.add(says);
    }
    if (changed.size) waiting ??= setTimeout(speak, DELAY);
  }).observe(root, { subtree: true, childList: true, characterData: true });
  return region;
}
