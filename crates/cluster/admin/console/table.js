// Tables that keep their rows while figures change, so that neither focus nor selection is lost.

import { h, s, setAttribute, setText } from "./dom.js";

/**
 * A table. Each column has `name`, `of(row)` for the text and may have
 * `sort(row)`: the value to sort by; without it the column has no button,
 * `number`: true for right-aligned figures,
 * `cell(row)`: an element instead of the text; made anew when `of(row)` changes,
 * `level(row)`: `ok`, `warn`, `bad` or `idle`,
 * `quiet(row)`: true where the column says nothing worth its room; it is shown if any row says something.
 *
 * With `open(row)` a click on a row opens its details, and its first cell is a button for keyboards.
 */
export class Table {
  constructor({ caption, columns, key, empty, sort = null, open = null }) {
    this.columns = columns;
    this.open = open;
    this.chosen = null;
    this.key = key;
    this.known = new Map();
    this.loud = new Set();
    this.data = [];
    this.needle = "";
    this.sorted = sort ?? { at: 0, down: false };
    this.buttons = [];
    this.body = h("tbody");
    this.none = h("p", { class: "empty", hidden: true }, empty);
    this.emptyText = empty;
    const heads = columns.map((column, at) => this.head(column, at));
    const caption_ = h("caption", { class: "for-reader" }, caption);
    this.heads = heads;
    this.table = h("table", { class: open ? "opens" : null }, caption_, h("thead", {}, h("tr", {}, heads)), this.body);
    // Can be scrolled by keyboard where it is wider than the screen.
    this.scroll = h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption }, this.table);
    this.element = h("div", { class: "table" }, this.scroll, this.none);
    this.scroll.addEventListener("scroll", () => this.cut(), { passive: true });
    new ResizeObserver(() => this.cut()).observe(this.scroll);
    new ResizeObserver(() => this.cut()).observe(this.table);
  }

  /** Marks the edge at which columns are cut off. */
  cut() {
    const { scrollLeft, scrollWidth, clientWidth } = this.scroll;
    this.element.classList.toggle("cut-right", scrollLeft + clientWidth < scrollWidth - 2);
    this.scroll.classList.toggle("cut-left", scrollLeft > 2);
  }

  /** Marks the row whose details are shown; null for none. */
  choose(key) {
    this.chosen = key;
    for (const [of, { element }] of this.known) setAttribute(element, "aria-current", of === key ? "true" : null);
  }

  head(column, at) {
    const attributes = { scope: "col", class: column.number ? "number" : null };
    if (!column.sort) return h("th", attributes, column.name);
    const click = () => this.sortBy(at);
    const button = h("button", { type: "button", class: "sort", onclick: click }, column.name);
    const th = h("th", attributes, button);
    this.buttons[at] = th;
    return th;
  }

  sortBy(at) {
    this.sorted = { at, down: this.sorted.at === at ? !this.sorted.down : Boolean(this.columns[at].number) };
    this.show();
  }

  /** Shows only rows that have this text in a column. */
  filter(text) {
    this.needle = text.trim().toLowerCase();
    this.show();
  }

  /** Sets the text that stands in place of rows. */
  say(text) {
    this.emptyText = text;
  }

  update(rows) {
    this.data = rows;
    this.show();
  }

  show() {
    const fits = (row) => this.columns.some((column) => column.of(row).toLowerCase().includes(this.needle));
    const rows = this.needle ? this.data.filter(fits) : [...this.data];
    this.sort(rows);
    this.buttons.forEach((th, at) => {
      const way = this.sorted.down ? "descending" : "ascending";
      setAttribute(th, "aria-sort", at === this.sorted.at ? way : null);
    });
    const elements = rows.map((row) => this.row(row));
    this.hush(rows);
    const wanted = new Set(elements);
    for (const [key, known] of this.known) {
      if (!wanted.has(known.element)) this.known.delete(key);
    }
    const now = [...this.body.children];
    if (now.length !== elements.length || now.some((element, at) => element !== elements[at])) {
      const focused = document.activeElement;
      this.body.replaceChildren(...elements);
      // Moving an element takes the focus from it.
      if (focused !== document.activeElement && this.body.contains(focused)) focused.focus();
    }
    this.scroll.hidden = rows.length === 0;
    this.none.hidden = rows.length > 0;
    setText(this.none, this.needle && this.data.length > 0 ? `Nothing has “${this.needle}”.` : this.emptyText);
  }

  /** Hides columns that say nothing. One that said something once stays, so that none comes and goes. */
  hush(rows) {
    this.columns.forEach((column, at) => {
      if (!column.quiet) return;
      if (rows.some((row) => !column.quiet(row))) this.loud.add(at);
      const isHidden = !this.loud.has(at);
      this.heads[at].hidden = isHidden;
      for (const { cells } of this.known.values()) cells[at].hidden = isHidden;
    });
  }

  sort(rows) {
    const sort = this.columns[this.sorted.at]?.sort;
    if (!sort) return;
    const sign = this.sorted.down ? -1 : 1;
    rows.sort((one, other) => {
      const [a, b] = [sort(one) ?? null, sort(other) ?? null];
      // What is not known stands at the end, whichever way.
      if (a === null || b === null) return (a === null) - (b === null);
      return sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
    });
  }

  row(row) {
    const key = this.key(row);
    let known = this.known.get(key);
    if (!known) {
      const cells = this.columns.map((column, at) =>
        h(at === 0 ? "th" : "td", { scope: at === 0 ? "row" : null, class: column.number ? "number" : null }));
      known = { element: h("tr", {}, cells), cells, texts: [] };
      if (this.open) known.element.addEventListener("click", (event) => this.clicked(event, known.row));
      if (key === this.chosen) setAttribute(known.element, "aria-current", "true");
      this.known.set(key, known);
    }
    known.row = row;
    this.columns.forEach((column, at) => {
      const text = column.of(row);
      const level = column.level?.(row);
      if (level) setAttribute(known.cells[at], "data-level", level);
      if (known.texts[at] === text) return;
      known.texts[at] = text;
      if (at === 0 && this.open) known.cells[0].replaceChildren(h("button", { type: "button", class: "opener" }, column.cell ? column.cell(row) : text));
      else if (column.cell) known.cells[at].replaceChildren(...[column.cell(row)].flat());
      else known.cells[at].textContent = text;
    });
    return known.element;
  }

  clicked(event, row) {
    // Links and buttons of a cell do what they say, and a reader who marks a text wants to copy it.
    const other = event.target.closest("a, button:not(.opener)");
    if (other || !getSelection().isCollapsed) return;
    // The place to come back to when the details are closed.
    event.currentTarget.querySelector(".opener").focus({ preventScroll: true });
    this.open(row);
  }
}

/** A bar for a share of 0 to 1, read as nothing: the figure stands beside it. Without a `level` it warns of a share near 1. */
export function bar(share, level = share >= 0.95 ? "bad" : share >= 0.8 ? "warn" : "ok") {
  const width = Math.round(Math.min(1, Math.max(0, share)) * 60);
  return s("svg", { class: `bar ${level}`, viewBox: "0 0 60 8", width: 60, height: 8, "aria-hidden": "true" },
    s("rect", { class: "all", width: 60, height: 8, rx: 2 }),
    s("rect", { class: "part", width, height: 8, rx: 2 }));
}

/** A line of the last numbers. */
export function sparkline(values, most) {
  const [width, height] = [70, 20];
  const top = Math.max(most || 0, ...values, 1);
  const point = (value, at) => `${(at * width / Math.max(1, values.length - 1)).toFixed(1)},${(height - 1 - (value / top) * (height - 2)).toFixed(1)}`;
  return s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
    s("polyline", { points: values.map(point).join(" ") }));
}
