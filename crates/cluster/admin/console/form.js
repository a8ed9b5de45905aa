// Forms in dialogs, for orders that need more than a yes.

import { openDialog, textOf } from "./actions.js";
import { h, setText } from "./dom.js";

/**
 * Asks for values. Each of `fields` has `name`, `label` and may have `type`, `value`, `hint`, `options`
 * (texts to choose from, or with `isFree` to complete), `required`. `submit(values)` gives the order; what
 * it throws is shown, and the dialog stays.
 */
export function askFor({ title, about, verb, fields, submit }) {
  const problem = h("p", { class: "problem", role: "alert" });
  const inputs = new Map(fields.map((field) => [field.name, input(field)]));
  const rows = fields.map((field) => h("div", { class: field.type === "checkbox" ? "field check" : "field" }, h("label", { for: `f-${field.name}` }, field.label), inputs.get(field.name),
    field.options && field.isFree ? h("datalist", { id: `f-${field.name}-list` }, field.options.map((it) => h("option", { value: it }))) : null,
    field.hint ? h("p", { class: "hint", id: `f-${field.name}-hint` }, field.hint) : null));
  const go = h("button", { type: "submit", class: "main", form: "ask" }, verb);
  const form = h("form", { id: "ask", class: "ask" }, rows);
  const dialog = openDialog(title, [about ? h("p", {}, about) : null, form, problem].filter(Boolean), [go]);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    setText(problem, "");
    const value = (it) => (it.type === "checkbox" ? it.checked : it.value.trim());
    try {
      await submit(Object.fromEntries([...inputs].map(([name, it]) => [name, value(it)])));
      dialog.close();
    } catch (error) {
      setText(problem, textOf(error));
    }
    go.disabled = false;
  });
  form.querySelector("input, select")?.focus();
  return dialog;
}

function input({ name, type = "text", value = "", options, isFree, required, hint, min }) {
  const attributes = { id: `f-${name}`, required, "aria-describedby": hint ? `f-${name}-hint` : null };
  if (options && !isFree) {
    const select = h("select", attributes, options.map((it) => h("option", { value: it }, it)));
    select.value = value;
    return select;
  }
  const element = h("input", { ...attributes, type, value, min, autocomplete: "off", spellcheck: "false", list: options ? `f-${name}-list` : null });
  if (type === "checkbox") element.checked = value === true;
  return element;
}

/** A list of names as somebody types it. */
export const names = (text) => text.split(/[\s,]+/).filter(Boolean);
