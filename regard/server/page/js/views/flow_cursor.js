// The keyboard's place in the flow, and what a screen reader says about it.

import { hasLines } from "../flow_layout.js";
import { short } from "../format.js";
import { keysOf, stationName } from "./flow_details.js";

/**
 * @typedef {import("../flow_layout.js").Layout} Layout
 * @typedef {import("../flow_layout.js").Place} Place
 * @typedef {import("../source.js").Flow} Flow
 */

/** @returns {Place} */
export function firstPlace() {
  return { part: "strip", side: 0, column: 0, position: 0 };
}

/**
 * Return the place next to another one: the zone of a column comes before its strip.
 * @param {Layout} layout
 * @param {Flow} shown
 * @param {Place} place
 * @param {number} across
 * @param {number} down
 * @returns {Place}
 */
export function nextPlace(layout, shown, place, across, down) {
  const places = layout.columns.flatMap(({ station, side, width, collapsed }, column) => {
    const zone = hasLines(station) || station.kind === "feed_forward";
    return width === 0 ? [] : [...(zone && !collapsed ? [{ part: /** @type {const} */ ("zone"), side, column }] : []), { part: /** @type {const} */ ("strip"), side, column }];
  });
  const n = places.findIndex((one) => one.part === place.part && one.column === place.column);
  const next = places[Math.max(0, Math.min(places.length - 1, n + across))];
  const position = Math.max(0, Math.min(shown.sides[next.side].n_tokens - 1, place.position + down));
  return { ...next, position };
}

/**
 * @param {import("../messages.js").Translate} t
 * @param {import("./flow_details.js").Shown} shown
 * @param {Place} place
 */
export function spokenPlace(t, shown, place) {
  const { station } = shown.layout.columns[place.column];
  const rows = shown.rows[place.side];
  const i = place.position - rows.start;
  const zone = place.part === "zone";
  const looks = zone ? keysOf(shown, place.side, station, place.position).slice(0, 3).map(({ label, weight }) => `${label} ${short(weight)}`) : [];
  const added = zone && !looks.length && rows.added[station.path] ? `${t("flowAddedNorm")} ${short(rows.added[station.path][i])}` : "";
  const norm = zone ? added : `${t("flowNorm")} ${short(rows.norm[station.path][i])}`;
  return [shown.ticks[place.side][place.position].label, stationName(t, station), norm, ...looks].filter(Boolean).join(", ");
}
