// Spend by day, as a chart.

import { h, s, setAttribute } from "./dom.js";
import { count, money } from "./format.js";

/** Figures that a chart can have. */
export const MEASURES = {
  cost: { name: "Cost", of: (it) => Number(it.cost), show: money },
  requests: { name: "Requests", of: (it) => it.requests, show: count },
  tokens: { name: "Tokens", of: (it) => it.prompt_tokens + it.completion_tokens, show: count },
};

const [WIDTH, HEIGHT] = [600, 120];

/** A chart of bars, one a day. */
export class SpendChart {
  constructor() {
    this.bars = s("g", { class: "bars" });
    this.svg = s("svg", { class: "spend", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": "Spend by day" }, this.bars);
    this.top = h("span");
    this.first = h("span");
    this.last = h("span");
    this.element = h("div", { class: "spend-box" }, h("div", { class: "scale" }, this.top), this.svg, h("div", { class: "scale" }, this.first, this.last));
  }

  /** Shows `rows` of usage with a `day`, for each of `days`, the oldest first. */
  update(days, rows, measure) {
    const { name, of, show } = MEASURES[measure];
    const sums = new Map(days.map((it) => [it, 0]));
    for (const row of rows) if (sums.has(row.day)) sums.set(row.day, sums.get(row.day) + of(row));
    const most = Math.max(...sums.values(), Number.MIN_VALUE);
    const step = WIDTH / days.length;
    const bars = [...sums].map(([date, value], at) => {
      const height = Math.max((value / most) * HEIGHT, value > 0 ? 1 : 0);
      const bar = s("rect", { x: at * step + step * 0.1, y: HEIGHT - height, width: step * 0.8, height });
      bar.append(s("title", {}, `${date}: ${show(value)}`));
      return bar;
    });
    this.bars.replaceChildren(...bars);
    const told = [...sums].filter(([, value]) => value > 0).slice(-7).map(([date, value]) => `${date} ${show(value)}`);
    setAttribute(this.svg, "aria-label", `${name} by day. ${told.length > 0 ? `The last days: ${told.join(", ")}.` : "Nothing was used."}`);
    this.top.textContent = most > Number.MIN_VALUE ? `${name}, at most ${show(most)} a day` : `${name}: nothing in these days`;
    this.first.textContent = days[0];
    this.last.textContent = `${days[days.length - 1]}, UTC`;
  }
}
