// Golden signals: the last figures of this node's requests in large type, each with a chart of ten minutes.

import { get } from "./api.js";
import { h, s, setText } from "./dom.js";
import { count, ms, percent, tenth } from "./format.js";

/** Time between two looks, in seconds: a point of the history is as long. */
const PERIOD_S = 5;
/** Points of the history: ten minutes. A node that runs for less has fewer. */
const POINTS = 119;
/** Points that the large figure is the mean of: one alone jumps. */
const LAST = 2;
/** Share of failed requests from which on the figure warns. */
const FAILED_SHARE_WARN = 0.01;

const rate = (value) => (value !== null && value < 10 ? tenth(value) : count(value));
const share = (name) => (points) => {
  const requests = sum(points, "requests_per_s");
  return requests > 0 ? sum(points, name) / requests : null;
};

/** Signals in the order of the page. `of` is the figure of some points, `more` a second one below it. */
const SIGNALS = [
  { name: "Requests/s", of: mean("requests_per_s"), show: rate },
  { name: "Failed", of: share("failed_per_s"), show: (it) => (it !== null && it > 0 && it < 0.1 ? `${tenth(it * 100)} %` : percent(it)), level: (it) => (it >= FAILED_SHARE_WARN ? "bad" : "ok") },
  { name: "First token", of: median("first_token_p50_ms"), show: ms, more: (points) => `p95 ${ms(median("first_token_p95_ms")(points))}` },
  { name: "Tokens/s", of: mean("tokens_per_s"), show: rate },
  { name: "Refused/s", of: mean("refused_per_s"), show: rate },
  { name: "Forwarded/s", of: mean("forwarded_per_s"), show: rate },
];

/** The tiles of a page, which look at the node by themselves. */
export function signalTiles(page) {
  const tiles = SIGNALS.map((signal) => {
    const figure = h("dd", {}, "–");
    const more = signal.more ? h("dd", { class: "more" }, "–") : null;
    const chart = s("svg", { class: "chart", viewBox: "0 0 119 32", preserveAspectRatio: "none", "aria-hidden": "true" });
    return { signal, figure, more, chart, element: h("div", {}, h("dt", {}, signal.name), figure, more, chart) };
  });
  const look = page.every(PERIOD_S, async (signal) => {
    const { points } = await get("v1/history", signal);
    for (const tile of tiles) draw(tile, points);
  });
  return h("div", {}, look.problem, h("dl", { class: "signals", "aria-label": "Requests of this node, over the last ten minutes" }, tiles.map((tile) => tile.element)));
}

function draw({ signal, figure, more, chart }, points) {
  const last = points.slice(-LAST);
  const now = last.length > 0 ? signal.of(last) : null;
  setText(figure, signal.show(now));
  figure.dataset.level = now !== null && signal.level ? signal.level(now) : "ok";
  if (more) setText(more, signal.more(last));
  const values = points.map((point) => signal.of([point]));
  chart.replaceChildren(...areas(values));
}

/** Areas below the values; a gap where there is none. The newest value is at the right edge. */
function areas(values) {
  const most = Math.max(...values.filter((it) => it !== null), Number.MIN_VALUE);
  const begin = POINTS - values.length;
  const groups = [];
  values.forEach((value, at) => {
    if (value === null) return;
    const isNew = at === 0 || values[at - 1] === null;
    if (isNew) groups.push([]);
    groups[groups.length - 1].push([begin + at, 31 - 30 * value / most]);
  });
  return groups.map((group) => {
    const line = group.map(([x, y]) => `L${x},${y.toFixed(1)} L${x + 1},${y.toFixed(1)}`).join(" ");
    return s("path", { d: `M${group[0][0]},32 ${line} L${group[group.length - 1][0] + 1},32 Z` });
  });
}

function sum(points, name) {
  return points.reduce((all, point) => all + (point[name] ?? 0), 0);
}

function mean(name) {
  return (points) => sum(points, name) / points.length;
}

/** The middle of the known values: a percentile of percentiles, good enough for two bins. */
function median(name) {
  return (points) => {
    const known = points.map((point) => point[name]).filter((it) => it !== null).sort((one, other) => one - other);
    return known.length > 0 ? known[Math.floor(known.length / 2)] : null;
  };
}
