// Orders. Each is tried by a dry run first, shown, and given only after a confirmation.

import { order as give } from "./api.js";
import { h, setText } from "./dom.js";
import { count, percent, tenth } from "./format.js";

/**
 * Asks whether to do it, and does it.
 * `title` is the order in words, `about` what happens, `verb` the text of the button. `method` (POST),
 * `path`, `body` and `version` make the request. `isDry` is false where the API has no dry run.
 * A button for it may have `fresh()`, which returns what is newer than the plan, such as the version.
 */
export function order(page, { title, about, verb, method = "POST", path, body, version = null, isDry = true }) {
  const effect = h("div", { class: "effect" }, isDry ? "Asking the node what would change." : "");
  const problem = h("p", { class: "problem", role: "alert" });
  const go = h("button", { type: "button", class: "danger", disabled: isDry }, verb);
  const dialog = openDialog(title, [h("p", {}, about), effect, problem], [go]);
  go.addEventListener("click", async () => {
    go.disabled = true;
    setText(problem, "");
    try {
      const answer = await give(method, path, body, version);
      dialog.close();
      page.say(`Done: ${title}${answer.index ? `, entry ${answer.index} of the log` : ""}.`);
      page.refresh();
    } catch (error) {
      setText(problem, textOf(error));
      go.disabled = false;
    }
  });
  if (isDry) dryRun({ method, path, body, version }, { effect, problem, go });
}

/** Opens a dialog; the returned element is closed by `close()`. */
export function openDialog(title, content, buttons, cancelled = "Cancel") {
  const cancel = h("button", { type: "button", class: "plain", autofocus: buttons.length > 0 }, cancelled);
  const dialog = h("dialog", { "aria-labelledby": "order-title" }, h("h2", { id: "order-title" }, title), content, h("div", { class: "buttons" }, cancel, buttons));
  const opener = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    // The row may have been made anew meanwhile.
    if (opener?.isConnected) opener.focus();
    else document.getElementById("main").focus({ preventScroll: true });
  });
  cancel.addEventListener("click", () => dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

async function dryRun({ method, path, body, version }, { effect, problem, go }) {
  try {
    const { changes, consistency, moved } = await give(method, `${path}?dry_run=true`, body, version);
    const note = consistency === "stale" ? h("p", {}, "Tried on what this node knows: there is no quorum now.") : null;
    effect.replaceChildren(...[moved && changes.length > 0 ? moves(moved) : null, changes.length > 0 ? differences(changes) : h("p", {}, "Nothing would change."), note].filter(Boolean));
    go.disabled = changes.length === 0;
  } catch (error) {
    effect.replaceChildren();
    setText(problem, textOf(error));
  }
}

/** What moves where, by the node's estimate. */
function moves({ requests_per_s: rate, in_flight: inFlight, to, without_slot: left }) {
  const what = rate === null ? `${count(inFlight)} in flight now would be served elsewhere.` : `${tenth(rate)} requests/s would be served elsewhere, ${count(inFlight)} of them in flight now.`;
  const share = (used, slots) => (slots > 0 ? percent(used / slots) : "–");
  const rows = to.map((it) => h("tr", {}, h("th", { scope: "row" }, it.name), h("td", { class: "number" }, `+${tenth(it.more)}`), h("td", { class: "number" }, count(it.slots)),
    h("td", { class: "number" }, share(it.in_flight, it.slots)), h("td", { class: "number" }, share(it.in_flight + it.more, it.slots))));
  const table = h("table", { class: "moves" }, h("caption", { class: "for-reader" }, "What would move"),
    h("thead", {}, h("tr", {}, ["To", "More in flight", "Slots", "Load now", "Then"].map((name, at) => h("th", { scope: "col", class: at > 0 ? "number" : null }, name)))), h("tbody", {}, rows));
  const lack = left > 0 ? h("p", { class: "lack" }, `${count(left)} in flight find no free slot: they wait or are refused.`) : null;
  return h("div", {}, h("p", {}, h("strong", {}, "Estimate: "), inFlight > 0 || rate > 0 ? what : "nothing moves now."), to.length > 0 ? table : h("p", { class: "lack" }, "No other place can take requests."), lack);
}

/** What changes, field by field. */
function differences(changes) {
  const rows = changes.flatMap(({ resource, key, before, after }) => {
    const [old, now] = [flat(before), flat(after)];
    const names = [...new Set([...Object.keys(old), ...Object.keys(now)])].filter((name) => old[name] !== now[name] && !["version", "key"].includes(name));
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
  } else if (path && value !== null) {
    all[path] = Array.isArray(value) ? value.join(", ") || "none" : String(value);
  }
  return all;
}

export const textOf = (error) => (error.remedy ? `${error.message}: ${error.remedy}` : error.message);

/** A button for an order; null for callers who may give none. `may` says which right is needed. */
export function orderButton(page, label, plan, may = "mayOperate") {
  if (!page.live[may]) return null;
  return h("button", { type: "button", class: "plain", "aria-label": plan.title, onclick: () => order(page, { ...plan, ...plan.fresh?.() }) }, label);
}

/** Plans of orders about a region. */
export const regionPlan = (region, action) => {
  const path = `v1/regions/${encodeURIComponent(region)}/${action}`;
  return {
    drain: { title: `Drain region ${region}`, verb: `Drain ${region}`, path,
      about: `${region} takes no new requests from other regions, and new clients are sent elsewhere. Requests in flight finish. Clients that still come there are served.` },
    evacuate: { title: `Evacuate region ${region}`, verb: `Evacuate ${region}`, path,
      about: `All clients of ${region} are served elsewhere, and its votes move away. Requests in flight finish.` },
    undrain: { title: `Undrain region ${region}`, verb: `Undrain ${region}`, path,
      about: `${region} takes requests from other regions and new clients again.` },
  }[action];
};

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
