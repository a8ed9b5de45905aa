// Golden signals: the last figures of requests in large type, each with a chart of ten minutes.

import { get, part } from "./api.js";
import { h, s, setAttribute, setText } from "./dom.js";
import { count, list, ms, percent, tenth } from "./format.js";

/** Time between two looks, in seconds: a point of the history is as long. */
const PERIOD_S = 5;
/** Points of the history: ten minutes. A node that runs for less has fewer. */
const POINTS = 119;
/** Points that the large figure is the mean of: one alone jumps. */
const LAST = 2;
/** Share of failed requests from which on the figure warns. */
const FAILED_SHARE_WARN = 0.01;

const rate = (value) => (value !== null && value < 10 ? tenth(value) : count(value));
const partly = (value) => (value !== null && value > 0 && value < 0.1 ? `${tenth(value * 100)} %` : percent(value));
const share = (name) => (points) => {
  const requests = sum(points, "requests_per_s");
  return requests > 0 ? sum(points, name) / requests : null;
};

/** Signals in the order of the page. `of` is the figure of some points, `more` a second one beside its name. */
const SIGNALS = [
  { name: "Requests/s", of: mean("requests_per_s"), show: rate },
  { name: "Errors", of: share("failed_per_s"), show: partly, level: (it) => (it >= FAILED_SHARE_WARN ? "bad" : "ok") },
  { name: "First token", of: median("first_token_p50_ms"), show: ms, more: (points) => `p95 ${ms(median("first_token_p95_ms")(points))}`, under: "first_token_p95_ms" },
  { name: "Tokens/s", of: mean("tokens_per_s"), show: rate },
  { name: "Refused/s", of: mean("refused_per_s"), show: rate },
  { name: "Forwarded/s", of: mean("forwarded_per_s"), show: rate },
];

/** Whose requests are shown. */
const SCOPES = {
  cluster: { name: "Cluster", about: "Requests of all regions, over the last ten minutes" },
  region: { name: "This region", about: "Requests of this region, over the last ten minutes" },
};

/** The tiles of a page, which look by themselves, and their switch. With a `region` they are about that one. */
export function signalTiles(page, region = null) {
  const tiles = SIGNALS.map(tile);
  const figures = h("dl", { class: "signals" }, tiles.map((it) => it.element));
  const missing = h("p", { class: "hint", role: "status" });
  const isAlone = () => !page.live.snapshot.node.node.is_in_cluster;
  const scope = () => (region ? "region" : SCOPES[page.asked("scope")] ? page.asked("scope") : isAlone() ? "region" : "cluster");
  const buttons = Object.entries(SCOPES).map(([value, { name }]) => h("button", { type: "button", class: "plain", value, onclick: () => choose(value) }, name));
  const choose = (value) => {
    page.ask({ scope: value });
    look.again();
  };
  const mark = () => {
    for (const button of buttons) setAttribute(button, "aria-pressed", String(button.value === scope()));
    setAttribute(figures, "aria-label", region ? `Requests of ${region}, over the last ten minutes` : SCOPES[scope()].about);
  };
  const look = page.every(PERIOD_S, async (signal) => {
    mark();
    const asked = scope();
    const { points, nodes } = await get(`v1/history?scope=${asked}${region ? `&region=${part(region)}` : ""}`, signal);
    if (asked !== scope()) return;
    for (const it of tiles) draw(it, points);
    const silent = nodes.filter((it) => it.fault).map((it) => `${it.name} in ${it.region} (${it.fault})`);
    setText(missing, silent.length > 0 ? `Without ${list(silent)}.` : "");
  });
  mark();
  const choice = h("div", { class: "switch", role: "group", "aria-label": "Whose requests", hidden: isAlone() }, buttons);
  return { choice, onQuery: () => look.again(), element: h("div", {}, look.problem, figures, missing) };
}

function tile(signal) {
  const figure = h("dd", {}, "–");
  const more = h("dd", { class: "more" }, "");
  const chart = s("svg", { class: "chart", viewBox: "0 0 119 32", preserveAspectRatio: "none", "aria-hidden": "true" });
  return { signal, figure, more, chart, element: h("div", {}, h("dt", {}, signal.name), figure, more, chart) };
}

function draw({ signal, figure, more, chart }, points) {
  const last = points.slice(-LAST);
  const now = last.length > 0 ? signal.of(last) : null;
  setText(figure, signal.show(now));
  figure.dataset.level = now !== null && signal.level ? signal.level(now) : "ok";
  const values = points.map((point) => signal.of([point]));
  // The p95 is above the p50, so that the scale is that of the larger one.
  const upper = signal.under ? points.map((point) => point[signal.under]) : [];
  const most = Math.max(...[...values, ...upper].filter((it) => it !== null), Number.MIN_VALUE);
  setText(more, signal.more ? signal.more(last) : most > 0.001 ? `peak ${signal.show(most)}` : "");
  chart.replaceChildren(...areas(upper, most, "upper"), ...areas(values, most, null));
}

/** Areas below the values; a gap where there is none. The newest value is at the right edge. */
function areas(values, most, className) {
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
    return s("path", { class: className, d: `M${group[0][0]},32 ${line} L${group[group.length - 1][0] + 1},32 Z` });
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
