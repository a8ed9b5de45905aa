// Orders. Each is tried by a dry run first, shown, and given only after a confirmation.

import { post } from "./api.js";
import { h, setText } from "./dom.js";

/**
 * Asks whether to do it, and does it.
 * `title` is the order in words, `about` what happens, `verb` the text of the button, `path` and `body`
 * the request. `isDry` is false where the API has no dry run.
 */
export function order(page, { title, about, verb, path, body, isDry = true }) {
  const effect = h("div", { class: "effect" }, isDry ? "Asking the node what would change." : "");
  const problem = h("p", { class: "problem", role: "alert" });
  const go = h("button", { type: "button", class: "danger", disabled: isDry }, verb);
  const cancel = h("button", { type: "button", class: "plain", autofocus: true }, "Cancel");
  const dialog = h("dialog", { "aria-labelledby": "order-title" },
    h("h2", { id: "order-title" }, title), h("p", {}, about), effect, problem, h("div", { class: "buttons" }, cancel, go));
  const opener = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    // The row may have been made anew meanwhile.
    if (opener?.isConnected) opener.focus();
    else document.getElementById("main").focus({ preventScroll: true });
  });
  cancel.addEventListener("click", () => dialog.close());
  go.addEventListener("click", async () => {
    go.disabled = true;
    setText(problem, "");
    try {
      const answer = await post(path, body);
      dialog.close();
      page.say(`Done: ${title}${answer.index ? `, entry ${answer.index} of the log` : ""}.`);
      page.refresh();
    } catch (error) {
      setText(problem, textOf(error));
      go.disabled = false;
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  if (isDry) dryRun(path, body, { effect, problem, go });
}

async function dryRun(path, body, { effect, problem, go }) {
  try {
    const { changes, consistency } = await post(`${path}?dry_run=true`, body);
    const note = consistency === "stale" ? h("p", {}, "Tried on what this node knows: there is no quorum now.") : null;
    effect.replaceChildren(...[changes.length > 0 ? differences(changes) : h("p", {}, "Nothing would change."), note].filter(Boolean));
    go.disabled = changes.length === 0;
  } catch (error) {
    effect.replaceChildren();
    setText(problem, textOf(error));
  }
}

/** What changes, field by field. */
function differences(changes) {
  const rows = changes.flatMap(({ resource, key, before, after }) => {
    const [old, now] = [flat(before), flat(after)];
    const names = [...new Set([...Object.keys(old), ...Object.keys(now)])].filter((name) => old[name] !== now[name] && name !== "version");
    return names.map((name) => h("tr", {}, h("th", { scope: "row" }, `${resource} ${key}`),
      h("td", {}, name.replace(/^(record|info)\./, "")), h("td", {}, old[name] ?? "–"), h("td", {}, now[name] ?? "–")));
  });
  return h("table", {}, h("caption", { class: "for-reader" }, "What would change"),
    h("thead", {}, h("tr", {}, ["Record", "Field", "Now", "Then"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows));
}

/** Fields of a record as texts, with the path as the name. */
function flat(value, path = "", all = {}) {
  if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    for (const [name, part] of Object.entries(value)) flat(part, path ? `${path}.${name}` : name, all);
  } else if (path) {
    all[path] = Array.isArray(value) ? value.join(", ") || "none" : String(value);
  }
  return all;
}

const textOf = (error) => (error.remedy ? `${error.message}: ${error.remedy}` : error.message);

/** A button for an order; null for callers who may give none. */
export function orderButton(page, label, plan) {
  if (!page.live.mayOperate) return null;
  return h("button", { type: "button", class: "plain", "aria-label": plan.title, onclick: () => order(page, plan) }, label);
}

/** Plans of orders about a region. */
export const regionPlan = (region, isActive) => isActive
  ? { title: `Drain region ${region}`, verb: `Drain ${region}`, path: `v1/regions/${encodeURIComponent(region)}/drain`,
      about: `${region} takes no new requests from other regions, and new clients are sent elsewhere. Requests in flight finish. Clients that still come there are served.` }
  : { title: `Undrain region ${region}`, verb: `Undrain ${region}`, path: `v1/regions/${encodeURIComponent(region)}/undrain`,
      about: `${region} takes requests from other regions and new clients again.` };

/** Plans of orders about a replica. */
export const replicaPlan = (region, replica, isActive) => {
  const path = `v1/replicas/${encodeURIComponent(region)}/${encodeURIComponent(replica)}`;
  return isActive
    ? { title: `Drain replica ${replica}`, verb: `Drain ${replica}`, path: `${path}/drain`,
        about: `${replica} in ${region} gets no new requests from any node. Requests in flight finish; the other replicas take the rest.` }
    : { title: `Undrain replica ${replica}`, verb: `Undrain ${replica}`, path: `${path}/undrain`,
        about: `${replica} in ${region} gets requests again.` };
};

/** Plan of handing over the lead. */
export const leadPlan = (node) => ({
  title: `Hand the lead over to ${node}`, verb: `Hand over to ${node}`, path: "v1/leader", body: { to: node }, isDry: false,
  about: `${node} becomes the leader of the log. Writes wait for about one round trip; requests of clients are not touched. The API has no dry run for this.`,
});
