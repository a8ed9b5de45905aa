// Requests: those that ended last, where each went and why; and one of them by its id.

import { get, part } from "../api.js";
import { h, setAttribute, setText } from "../dom.js";
import { clock, count, list as joined, ms } from "../format.js";
import { statusBadge, title, told } from "../request.js";
import { Table } from "../table.js";
import { worded } from "../words.js";

const SHOWN = 100;
/** Filters that the API takes, each with the label of its field. */
const FILTERS = { tenant: "Tenant", key: "Key", model: "Model", region: "Region", replica: "Replica", code: "Code" };

export function requestsView(page, [id]) {
  const table = requestTable(page, (entry) => choose(entry));
  const fields = Object.entries(FILTERS).map(([name, label]) => {
    const input = h("input", { id: `by-${name}`, type: "search", autocomplete: "off", onchange: () => set({ [name]: input.value.trim() }) });
    return { name, input, element: h("div", { class: "field" }, h("label", { for: `by-${name}` }, label), input) };
  });
  const status = h("select", { id: "by-status", onchange: () => set({ failed: status.value === "failed" ? "true" : "", status: /^\d/.test(status.value) ? status.value : "" }) },
    [["", "any"], ["failed", "failed"], ["2xx", "2xx"], ["4xx", "4xx"], ["429", "429"], ["5xx", "5xx"]].map(([value, text]) => h("option", { value }, text)));
  const scope = h("select", { id: "by-scope", onchange: () => set({ scope: scope.value }) }, h("option", { value: "" }, "this node"), h("option", { value: "cluster" }, "all nodes"));
  const pause = h("button", { type: "button", class: "plain", "aria-pressed": "false", onclick: () => hold(!isHeld) }, "Pause");
  const amount = h("span", { class: "hint" });
  const missing = h("p", { class: "hint" });
  let isHeld = false;
  let rows = [];
  const hold = (isNow) => {
    isHeld = isNow;
    setAttribute(pause, "aria-pressed", String(isHeld));
    setText(pause, isHeld ? "Go on" : "Pause");
    if (!isHeld) look.again();
    else setText(amount, `${count(rows.length)} requests, paused`);
  };
  const set = (values) => {
    page.ask(values);
    fill();
    look.again();
  };
  const fill = () => {
    for (const { name, input } of fields) input.value = page.asked(name);
    status.value = page.asked("failed") ? "failed" : page.asked("status");
    scope.value = page.asked("scope");
    clear.hidden = ![...Object.keys(FILTERS), "failed", "status"].some((name) => page.asked(name));
  };
  const look = page.every(1, async (signal) => {
    if (isHeld) return;
    const query = queryOf(page, id);
    const { requests, nodes } = await get(`v1/requests?${query}`, signal);
    if (isHeld) return;
    rows = requests;
    table.update(requests);
    setText(amount, requests.length === SHOWN ? `the last ${count(SHOWN)}` : `${count(requests.length)} requests`);
    const silent = (nodes ?? []).filter((it) => it.fault).map((it) => `${it.name} in ${it.region} (${it.fault})`);
    setText(missing, silent.length > 0 ? `Without ${joined(silent)}.` : "");
    // An address that names a request opens it as soon as it is there.
    if (id && requests.length > 0 && !page.drawer.shown && !wasOpened) choose(requests[0]);
    else show();
  });
  let wasOpened = false;
  const choose = (entry) => {
    wasOpened = true;
    shown = entry;
    page.ask({ request: keyOf(entry) }, true);
    show();
  };
  let shown = null;
  const show = () => {
    const key = page.asked("request");
    table.choose(key || null);
    if (!key) return page.drawer.close(true);
    if (page.drawer.shown?.key === key) return;
    const entry = rows.find((it) => keyOf(it) === key) ?? (shown && keyOf(shown) === key ? shown : null);
    const onClose = () => { page.ask({ request: "" }); table.choose(null); };
    if (entry) page.drawer.open({ key, title: title(entry), content: told(entry, page), onClose });
    else if (rows.length > 0) find(key, onClose);
  };
  // A request that is no longer among the rows is looked for by its id.
  const find = async (key, onClose) => {
    const name = key.split("/").slice(2).join("/");
    const found = name ? (await get(`v1/requests?scope=cluster&limit=20&id=${part(name)}`).catch(() => null))?.requests : null;
    const entry = found?.find((it) => keyOf(it) === key) ?? found?.[0];
    if (page.asked("request") !== key) return;
    page.drawer.open(entry ? { key, title: title(entry), content: told(entry, page), onClose }
      : { key, title: "Request not found", content: h("p", {}, "No node remembers this request any more."), onClose });
  };
  const clear = h("button", { type: "button", class: "plain", onclick: () => set(Object.fromEntries([...Object.keys(FILTERS), "failed", "status"].map((name) => [name, ""]))) }, "Clear filters");
  const filters = h("div", { class: "filters" }, h("div", { class: "field" }, h("label", { for: "by-status" }, "Status"), status), fields.map((it) => it.element),
    h("div", { class: "field" }, h("label", { for: "by-scope" }, "Of"), scope), pause, clear, amount);
  const hint = h("p", { class: "hint" }, "A node remembers the last 4,096 requests that ended on it. Nothing of prompts or replies is kept. A request that was forwarded ends on two nodes.");
  fill();
  table.update([]);
  const onQuery = () => { fill(); show(); };
  const about = id ? h("p", {}, "Requests with this id on any node. ", h("a", { href: "#/requests" }, "All requests")) : filters;
  setText(table.none, id ? "No node remembers a request with this id. The client may have sent another one, or more than 4,096 requests have ended since." : table.emptyText);
  if (id) table.emptyText = table.none.textContent;
  return { title: id ? `Request ${id}` : "Requests", element: h("div", {}, about, id ? amount : null, look.problem, missing, table.element, hint), onQuery };
}

function queryOf(page, id) {
  if (id) return new URLSearchParams({ scope: "cluster", limit: SHOWN, id });
  const query = new URLSearchParams({ limit: SHOWN });
  for (const name of [...Object.keys(FILTERS), "failed", "status", "scope"]) if (page.asked(name)) query.set(name, page.asked(name));
  return query;
}

const keyOf = (it) => `${it.node}/${it.number}/${it.id ?? ""}`;

function requestTable(page, open) {
  const text = (value) => value ?? "–";
  return new Table({
    caption: "Requests that ended last", key: keyOf, sort: { at: -1, down: true }, open,
    empty: "No request like that has ended yet. Send one to a listener of this node, or leave out a filter.",
    columns: [
      { name: "Ended", of: (it) => clock(it.ended_ms), sort: (it) => it.ended_ms, cell: (it) => h("span", { title: it.id ?? "" }, clock(it.ended_ms)) },
      { name: "Status", of: (it) => `${it.status} ${it.end}`, sort: (it) => it.status, cell: statusBadge },
      { name: "Code", of: (it) => text(it.code), sort: (it) => text(it.code), cell: (it) => h("code", {}, text(it.code)), quiet: (it) => !it.code },
      { name: "Where", of: place, sort: place },
      { name: "Who", of: (it) => it.key ?? text(it.tenant), sort: (it) => it.key ?? text(it.tenant) },
      { name: "First token", number: true, of: (it) => ms(it.first_token_ms), sort: (it) => it.first_token_ms },
      { name: "Total", number: true, of: (it) => ms(it.duration_ms), sort: (it) => it.duration_ms },
      { name: "Tokens", number: true, of: tokens, sort: (it) => it.completion_tokens },
      { name: "Model", of: (it) => text(it.model), sort: (it) => text(it.model), cell: (it) => h("span", { class: "short", title: text(it.model) }, text(it.model)) },
      { name: "Node", of: (it) => it.node, sort: (it) => it.node, quiet: (it) => it.node === page.live.snapshot.node.node.name },
      { name: "Why", of: why, sort: why, cell: (it) => h("span", { class: "short", title: why(it) }, why(it)) },
    ],
  });
}

/** Prompt and generated tokens; estimated ones are marked. */
function tokens(it) {
  const mark = it.tokens_estimated ? "~" : "";
  const [prompt, completion] = [it.prompt_tokens, it.completion_tokens];
  return prompt || completion ? `${mark}${count(prompt)} + ${count(completion)}` : "–";
}

export function place({ region, replica }) {
  if (region && replica) return `${region}/${replica}`;
  return region ? `${region}` : "–";
}

/** The reason of a decision, or what the client of a failed request was told. */
function why(it) {
  const told = it.code && !it.shed ? it.detail : null;
  return told ?? reason(it) ?? "–";
}

/** What was unusual comes before what was decided. */
function reason({ end, shed, reason: chosen, replica, compared }) {
  if (end !== "complete" && end !== "answered") return worded(end, "end");
  return worded(shed, "shed") ?? worded(chosen, "replica") ?? (replica ? null : worded(compared?.reason, "region"));
}
