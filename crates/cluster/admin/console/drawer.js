// A drawer at the side: details of a row, while the table behind goes on.

import { h } from "./dom.js";

export class Drawer {
  constructor(main) {
    this.main = main;
    this.element = document.getElementById("drawer");
    this.shown = null;
    addEventListener("keydown", (event) => {
      const isDialog = document.querySelector("dialog[open]");
      if (event.key === "Escape" && this.shown && !isDialog && !event.defaultPrevented) this.close();
    });
  }

  /**
   * Shows details. `title` and `content` are what is shown, `update()` is called at each event, and
   * `onClose()` when the reader closes it. `key` names what is shown: the same is not made anew.
   */
  open({ key, title, content, update = null, onClose = null }) {
    if (this.shown?.key !== key) this.opener = this.shown ? this.opener : document.activeElement;
    const isNew = this.shown?.key !== key;
    this.shown = { key, update, onClose };
    const close = h("button", { type: "button", class: "plain", onclick: () => this.close() }, "Close");
    this.element.replaceChildren(
      h("div", { class: "drawer-head" }, h("h2", { id: "drawer-title" }, title), close), h("div", { class: "drawer-body", tabindex: "0", role: "group", "aria-label": "Details" }, content));
    this.element.hidden = false;
    document.body.classList.add("with-drawer");
    if (isNew) this.element.focus({ preventScroll: true });
  }

  update() {
    this.shown?.update?.();
  }

  /** Closes it. `isQuiet` when the view goes, too. */
  close(isQuiet = false) {
    if (!this.shown) return;
    const { onClose } = this.shown;
    this.shown = null;
    const hadFocus = this.element.contains(document.activeElement);
    this.element.hidden = true;
    document.body.classList.remove("with-drawer");
    if (isQuiet) return;
    onClose?.();
    if (!hadFocus) return;
    // The row may have gone meanwhile.
    if (this.opener?.isConnected) this.opener.focus({ preventScroll: true });
    else this.main.focus({ preventScroll: true });
  }
}

/** Facts of a drawer: names and texts or elements, without those that are null. */
export function list(pairs) {
  const rows = pairs.filter(([, value]) => value !== null && value !== undefined);
  return h("dl", { class: "list" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}
