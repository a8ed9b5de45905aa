// Map of the world with regions, their load, the distances between them and what spills.

import { s, setAttribute } from "./dom.js";
import { count, ms } from "./format.js";
import { LAND } from "./land.js";

/** The part of the land's plane that is shown: from 84° north to 58° south. */
const VIEW = { x: 0, y: 60, width: 3_600, height: 1_420 };
/** Size of texts and dots in pixels, however wide the map is. */
const TEXT = 12;
const DOT = 9;
const SMALL_DOT = 6;
/** Units of the plane in a pixel above which distances are left out. */
const NOTES_MAX = 6;

/** Where a place is in the plane. */
const point = ({ latitude, longitude }) => ({ x: (longitude + 180) * 10, y: (90 - latitude) * 10 });

export class WorldMap {
  constructor() {
    this.flows = s("g", { class: "flows" });
    this.dots = s("g");
    this.labels = s("g", { class: "labels" });
    this.svg = s("svg", { class: "map", viewBox: `${VIEW.x} ${VIEW.y} ${VIEW.width} ${VIEW.height}`, role: "img", "aria-label": "Map of the regions" },
      s("defs", {}, arrow("arrow-sent")),
      s("path", { class: "land", d: LAND }), this.flows, this.dots, this.labels);
    // Pixels of the screen, in units of the plane.
    this.scale = 3;
    new ResizeObserver(() => this.fit()).observe(this.svg);
  }

  fit() {
    const width = this.svg.clientWidth;
    if (width === 0 || VIEW.width / width === this.scale) return;
    this.scale = VIEW.width / width;
    if (this.last) this.draw(this.last);
  }

  /** Shows regions; `rate(region)` is what is sent there per second. */
  update(regions, rate) {
    this.last = { regions, rates: new Map(regions.map((it) => [it.region, rate(it.region)])) };
    this.draw(this.last);
    const told = regions.filter((it) => it.place).map((it) => `${it.region}: ${stateOf(it)}, ${count(it.in_flight)} requests`);
    setAttribute(this.svg, "aria-label", `Map of the regions. ${told.join("; ")}. The table below has the same facts.`);
  }

  draw({ regions, rates }) {
    const placed = regions.filter((it) => it.place).map((it) => ({ ...it, at: point(it.place) }));
    const own = placed.find((it) => it.is_own);
    const others = own ? placed.filter((it) => !it.is_own) : [];
    const flows = others.map((it) => this.flow(own, it, rates.get(it.region)));
    // What names and figures must not cover: rings, and the ends of arrows.
    const boxes = [...placed.map((it) => this.around(it.at, this.size + 3)), ...flows.filter((it) => it.isBusy).map((it) => this.around(it.end, 10))];
    this.dots.replaceChildren(...placed.map((it) => this.dot(it)));
    this.flows.replaceChildren(...flows.flatMap((it) => it.lines));
    this.labels.replaceChildren(...placed.map((it) => this.label(it, boxes)), ...flows.map((it) => this.note(it, boxes)).filter(Boolean));
  }

  /** Radius of a ring in pixels. */
  get size() {
    return this.scale > NOTES_MAX ? SMALL_DOT : DOT;
  }

  around({ x, y }, pixels) {
    const size = pixels * this.scale;
    return { x: x - size, y: y - size, width: 2 * size, height: 2 * size };
  }

  /** A ring that fills with the load. */
  dot(region) {
    const { x, y } = region.at;
    const radius = this.size * this.scale;
    const share = region.places ? Math.min(1, region.in_flight / region.places) : 0;
    const round = 2 * Math.PI * radius;
    const level = ringOf(region);
    return s("g", { class: `dot ${level}` },
      s("circle", { class: "all", cx: x, cy: y, r: radius, "stroke-width": 3.5 * this.scale }),
      s("circle", { class: "part", cx: x, cy: y, r: radius, "stroke-width": 3.5 * this.scale, "stroke-dasharray": `${share * round} ${round}`, transform: `rotate(-90 ${x} ${y})` }),
      region.is_own ? s("circle", { class: "own", cx: x, cy: y, r: 3 * this.scale }) : null);
  }

  /** The name and two figures, where they cover nothing. */
  label(region, boxes) {
    const size = TEXT * this.scale;
    const load = region.places ? `${count(region.in_flight)} of ${count(region.places)} places` : `${count(region.in_flight)} requests`;
    const lines = [region.region, region.is_heard || region.is_own ? load : "not heard"];
    if (region.waiting >= 1) lines.push(`${count(region.waiting)} wait`);
    // The name is bold.
    const width = Math.max(lines[0].length * 0.66, ...lines.slice(1).map((line) => line.length * 0.58)) * size;
    const height = lines.length * size * 1.25;
    const box = this.place(region.at, width, height, boxes);
    boxes.push(box);
    // A shortcut for mice; for keyboards and readers the table has the same as links.
    const link = s("g", { class: "go", onclick: () => { location.hash = `#/regions/${encodeURIComponent(region.region)}`; } });
    lines.forEach((line, at) => link.append(s("text", { class: at === 0 ? "name" : "figure", x: box.x, y: box.y + size * (at * 1.25 + 0.95), "font-size": size }, line)));
    return link;
  }

  /** A free place for a box beside a point: right, left, above, below, and farther off. */
  place({ x, y }, width, height, boxes) {
    const gap = (this.size + 5) * this.scale;
    for (const far of [1, 2.2, 3.6, 5]) {
      // Above and below it may be moved along, so that it stays on the map.
      const along = Math.min(Math.max(x - width / 2, VIEW.x), VIEW.width - width);
      const spots = [[x + gap * far, y - height / 2], [x - gap * far - width, y - height / 2], [along, y - gap * far - height], [along, y + gap * far]];
      for (const [left, top] of spots) {
        const box = { x: left, y: top, width, height };
        const isInside = left >= VIEW.x && left + width <= VIEW.width && top >= VIEW.y && top + height <= VIEW.y + VIEW.height;
        if (isInside && !boxes.some((other) => overlap(box, other))) return box;
      }
    }
    return { x: Math.max(VIEW.x, Math.min(x + gap, VIEW.width - width)), y: y - height / 2, width, height };
  }

  /** A line with the distance; an arrow where requests go. */
  flow(own, other, rate) {
    // The short way round, which may lead over the edge of the map: then it is drawn once from each side.
    const round = Math.abs(other.at.x - own.at.x) > VIEW.width / 2 ? Math.sign(other.at.x - own.at.x) * VIEW.width : 0;
    const isBusy = other.spilling > 0 || (rate ?? 0) >= 0.05;
    const curve = this.curve(own.at, { x: other.at.x - round, y: other.at.y });
    const line = (shift) => s("path", {
      class: isBusy ? "flow sent" : other.is_heard ? "flow idle" : "flow lost",
      d: `M${curve.from.x + shift} ${curve.from.y}Q${curve.middle.x + shift} ${curve.middle.y} ${curve.to.x + shift} ${curve.to.y}`,
      "stroke-width": (isBusy ? Math.min(4, 1.2 + Math.sqrt(Math.max(other.spilling, rate ?? 0)) / 2) : 1) * this.scale,
      "stroke-dasharray": isBusy ? null : `${3 * this.scale} ${4 * this.scale}`,
      "marker-end": isBusy ? "url(#arrow-sent)" : null,
    });
    const end = { x: curve.to.x + round, y: curve.to.y };
    return { lines: round === 0 ? [line(0)] : [line(0), line(round)], curve, end, other, rate, isBusy };
  }

  /** A curve between two places that leaves room for their rings. */
  curve(a, b) {
    // Lifted towards the pole, as routes are drawn on maps.
    const lift = Math.min(260, Math.hypot(b.x - a.x, b.y - a.y) * 0.22);
    const middle = { x: (a.x + b.x) / 2, y: Math.max(VIEW.y + 30, (a.y + b.y) / 2 - lift) };
    const cut = (this.size + 5) * this.scale;
    const short = (from) => {
      const distance = Math.hypot(middle.x - from.x, middle.y - from.y) || 1;
      return { x: from.x + ((middle.x - from.x) * cut) / distance, y: from.y + ((middle.y - from.y) * cut) / distance };
    };
    return { from: short(a), middle, to: short(b) };
  }

  /** The figures of a flow, above its top; null where there is no room. */
  note({ curve: { from, middle, to }, other, rate, isBusy }, boxes) {
    // The table has the figures, too.
    if (this.scale > NOTES_MAX) return null;
    const text = isBusy ? `${count(other.spilling)} there now, ${(rate ?? 0).toFixed(1)}/s` : other.is_heard ? ms(other.rtt_ms) : "lost";
    const size = TEXT * this.scale * 0.92;
    const width = text.length * size * 0.58;
    // At the top of the curve, or as near as the map reaches.
    const top = { x: (from.x + 2 * middle.x + to.x) / 4, y: (from.y + 2 * middle.y + to.y) / 4 };
    const x = Math.min(Math.max(top.x - width / 2, VIEW.x + size), VIEW.width - width - size);
    const box = this.place({ x: x - (this.size + 5) * this.scale, y: top.y - size }, width, size * 1.2, boxes);
    boxes.push(box);
    return s("text", { class: isBusy ? "note sent" : "note", x: box.x, y: box.y + size * 0.95, "font-size": size }, text);
  }
}

const overlap = (one, other) => one.x < other.x + other.width && other.x < one.x + one.width && one.y < other.y + other.height && other.y < one.y + one.height;

const arrow = (id) => s("marker", { id, viewBox: "0 0 10 10", refX: 7, refY: 5, markerWidth: 4.5, markerHeight: 4.5, orient: "auto-start-reverse" }, s("path", { class: "head", d: "M0 0L10 5L0 10z" }));

/** How a region is, in a word. */
export function stateOf(region) {
  if (!region.is_heard) return region.heard_ms === null ? "never heard" : "lost";
  if (region.is_broken) return "replies fail";
  if (!region.is_own && !region.is_reachable) return "unreachable";
  // Drained, evacuated, or given that weight: the page of the region says which.
  if (region.weight_percent === 0) return "weight 0";
  return region.is_own ? "this region" : "up";
}

/** The colour of that word. */
export function levelOf(region) {
  const state = stateOf(region);
  if (["lost", "never heard"].includes(state)) return "bad";
  return ["replies fail", "unreachable", "weight 0"].includes(state) ? "warn" : "ok";
}

/** The colour of the ring, which is about the load, too. */
function ringOf(region) {
  const level = levelOf(region);
  if (level !== "ok") return level;
  const load = region.places ? region.in_flight / region.places : 0;
  return load >= 0.95 ? "warn" : "ok";
}
