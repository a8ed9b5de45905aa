// Map of the part of the world that has regions: their load, the distances between them and what is forwarded.

import { s, setAttribute } from "./dom.js";
import { count, ms } from "./format.js";
import { LAND } from "./land.js";

/** Units of the plane around the Earth; ten are a degree. */
const ROUND = 3_600;
/** Least height that is shown, about as much as Europe; and the part of it that stays free around regions. */
const HEIGHT_MIN = 420;
const MARGIN = 0.22;
/** Latitudes beyond which no city lies: from 84° north to 58° south. */
const [TOP, BOTTOM] = [60, 1_480];
/** Size of texts and dots in pixels, however wide the map is. */
const TEXT = 12;
const DOT = 9;
const SMALL_DOT = 6;
/** Units of the plane in a pixel above which distances are left out. */
const NOTES_MAX = 6;

/** Where a place is in the plane. */
const point = ({ latitude, longitude }) => ({ x: (longitude + 180) * 10, y: (90 - latitude) * 10 });

/** Points moved by whole rounds, so that they lie as near to each other as they do on the globe. */
function unrolled(points) {
  const sorted = points.map((it) => it.x).sort((one, other) => one - other);
  // The widest gap between neighbours is where the plane is cut; the last one reaches round to the first.
  const gaps = sorted.map((x, at) => (at === 0 ? x + ROUND - sorted[sorted.length - 1] : x - sorted[at - 1]));
  const begin = sorted[gaps.indexOf(Math.max(...gaps))];
  return points.map(({ x, y }) => ({ x: x < begin ? x + ROUND : x, y }));
}

/** The part of the plane around some points, with a margin, of a shape. */
function viewOf(points, shape) {
  const [xs, ys] = [points.map((it) => it.x), points.map((it) => it.y)];
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const height = Math.max(HEIGHT_MIN, (bottom - top) * (1 + 2 * MARGIN), ((right - left) * (1 + MARGIN)) / shape);
  const width = height * shape;
  const x = (left + right) / 2 - width / 2;
  // Lines are lifted towards the pole, so there is more room above.
  const y = height > BOTTOM - TOP ? (TOP + BOTTOM - height) / 2 : Math.min(Math.max((top + bottom) / 2 - height * 0.56, TOP), BOTTOM - height);
  return { x, y, width, height };
}

export class WorldMap {
  constructor() {
    this.flows = s("g", { class: "flows" });
    this.dots = s("g");
    this.labels = s("g", { class: "labels" });
    // Thrice side by side, since the part that is shown may reach over the 180th meridian.
    const land = [-1, 0, 1].map((times) => s("path", { class: "land", d: LAND, transform: `translate(${times * ROUND} 0)` }));
    this.svg = s("svg", { class: "map", role: "img", "aria-label": "Map of the regions" },
      s("defs", {}, arrow("arrow-sent")), land, this.flows, this.dots, this.labels);
    this.view = { x: 0, y: TOP, width: ROUND, height: BOTTOM - TOP };
    // Pixels of the screen, in units of the plane.
    this.scale = 3;
    this.size_ = "";
    new ResizeObserver(() => this.fit()).observe(this.svg);
  }

  fit() {
    const size = `${this.svg.clientWidth} ${this.svg.clientHeight}`;
    if (this.svg.clientWidth === 0 || size === this.size_) return;
    this.size_ = size;
    if (this.last) this.draw(this.last);
  }

  /** Shows the part of the plane with these points in it, as wide as the element is. */
  crop(points) {
    const { clientWidth: width, clientHeight: height } = this.svg;
    if (width === 0 || height === 0) return;
    this.view = viewOf(points, width / height);
    this.scale = this.view.width / width;
    const { x, y } = this.view;
    setAttribute(this.svg, "viewBox", [x, y, this.view.width, this.view.height].map((it) => it.toFixed(1)).join(" "));
  }

  /** Shows regions; `rate(region)` is what is sent there per second. */
  update(regions, rate) {
    this.last = { regions, rates: new Map(regions.map((it) => [it.region, rate(it.region)])) };
    this.draw(this.last);
    const told = regions.filter((it) => it.place).map((it) => `${it.region}: ${stateOf(it)}, ${count(it.in_flight)} in flight`);
    setAttribute(this.svg, "aria-label", `Map of the regions. ${told.join("; ")}. The table below has the same facts.`);
  }

  draw({ regions, rates }) {
    if (!regions.some((it) => it.place)) return;
    const spots = unrolled(regions.filter((it) => it.place).map((it) => point(it.place)));
    this.crop(spots);
    const placed = regions.filter((it) => it.place).map((it, at) => ({ ...it, at: spots[at] }));
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
    const load = region.places ? `${count(region.in_flight)} of ${count(region.places)} slots` : `${count(region.in_flight)} in flight`;
    const lines = [region.region, region.is_heard || region.is_own ? load : "no report"];
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
    const { view } = this;
    for (const far of [1, 2.2, 3.6, 5]) {
      // Above and below it may be moved along, so that it stays on the map.
      const along = Math.min(Math.max(x - width / 2, view.x), view.x + view.width - width);
      const spots = [[x + gap * far, y - height / 2], [x - gap * far - width, y - height / 2], [along, y - gap * far - height], [along, y + gap * far]];
      for (const [left, top] of spots) {
        const box = { x: left, y: top, width, height };
        const isInside = left >= view.x && left + width <= view.x + view.width && top >= view.y && top + height <= view.y + view.height;
        if (isInside && !boxes.some((other) => overlap(box, other))) return box;
      }
    }
    return { x: Math.max(view.x, Math.min(x + gap, view.x + view.width - width)), y: y - height / 2, width, height };
  }

  /** A line with the distance; an arrow where requests go. */
  flow(own, other, rate) {
    // The short way round, which may lead over the edge of the map: then it is drawn once from each side.
    const round = Math.abs(other.at.x - own.at.x) > ROUND / 2 ? Math.sign(other.at.x - own.at.x) * ROUND : 0;
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
    const middle = { x: (a.x + b.x) / 2, y: Math.max(this.view.y + 30, (a.y + b.y) / 2 - lift) };
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
    const text = isBusy ? `${count(other.spilling)} in flight there, ${(rate ?? 0).toFixed(1)}/s` : other.is_heard ? ms(other.rtt_ms) : "lost";
    const size = TEXT * this.scale * 0.92;
    const width = text.length * size * 0.58;
    // At the top of the curve, or as near as the map reaches.
    const top = { x: (from.x + 2 * middle.x + to.x) / 4, y: (from.y + 2 * middle.y + to.y) / 4 };
    const x = Math.min(Math.max(top.x - width / 2, this.view.x + size), this.view.x + this.view.width - width - size);
    const box = this.place({ x: x - (this.size + 5) * this.scale, y: top.y - size }, width, size * 1.2, boxes);
    boxes.push(box);
    return s("text", { class: isBusy ? "note sent" : "note", x: box.x, y: box.y + size * 0.95, "font-size": size }, text);
  }
}

const overlap = (one, other) => one.x < other.x + other.width && other.x < one.x + one.width && one.y < other.y + other.height && other.y < one.y + one.height;

const arrow = (id) => s("marker", { id, viewBox: "0 0 10 10", refX: 7, refY: 5, markerWidth: 4.5, markerHeight: 4.5, orient: "auto-start-reverse" }, s("path", { class: "head", d: "M0 0L10 5L0 10z" }));

/** How a region is, in a word. */
export function stateOf(region) {
  if (!region.is_heard) return region.heard_ms === null ? "never seen" : "lost";
  if (region.is_broken) return "replies fail";
  if (!region.is_own && !region.is_reachable) return "unreachable";
  // Drained, evacuated, or given that weight: the page of the region says which.
  if (region.weight_percent === 0) return "weight 0";
  return region.is_own ? "this region" : "up";
}

/** The colour of that word. */
export function levelOf(region) {
  const state = stateOf(region);
  if (["lost", "never seen"].includes(state)) return "bad";
  return ["replies fail", "unreachable", "weight 0"].includes(state) ? "warn" : "ok";
}

/** The colour of the ring, which is about the load, too. */
function ringOf(region) {
  const level = levelOf(region);
  if (level !== "ok") return level;
  const load = region.places ? region.in_flight / region.places : 0;
  return load >= 0.95 ? "warn" : "ok";
}
