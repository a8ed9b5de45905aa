// Limits, tenants, keys: what is set, what was used and spent, and the orders about them.

import { get, list } from "../api.js";
import { orderButton } from "../actions.js";
import { badge, h, section, setText } from "../dom.js";
import { list as facts } from "../drawer.js";
import { count, day, list as joined, money, tenth, time } from "../format.js";
import { createKey, editKey, editLimit, removeLimitPlan, revokePlan, rotateKey } from "../keys.js";
import { MEASURES, SpendChart } from "../spend.js";
import { Table, bar } from "../table.js";

const KINDS = [["requests_per_s", "requests/s"], ["requests_per_min", "requests/min"], ["tokens_per_min", "tokens/min"], ["concurrency", "requests at a time"]];
const DAYS = 30;
/** What stands in place of tables on a node without a cluster. */
const ALONE = {
  keys: "This node is in no cluster: its keys are the [[key]] of its config file. Make one with: spillway keys create --offline",
  tenants: "This node is in no cluster: its tenants are the [[tenant]] of its config file.",
  limits: "There are no limits: every key may send what it likes. A [[limit]] of the config file sets one.",
};
const DAY_MS = 86_400_000;

export function limitsView(page) {
  // What was read last.
  const known = { limits: [], tenants: [], keys: [], usage: [], budgets: [], days: daysUntil(Date.now()) };
  const open = (name) => (it) => { page.ask({ tenant: "", key: "", [name]: it.key }, true); show(); };
  const tables = { limits: limitTable(page), usage: usageTable(page), tenants: tenantTable(open("tenant")), keys: keyTable(open("key")) };
  const since = h("p", { class: "hint" });
  const chart = new SpendChart();
  const whose = h("select", { id: "spend-of", onchange: () => { page.ask({ of: whose.value }); draw(); } });
  const measure = h("select", { id: "spend-by", onchange: () => { page.ask({ by: measure.value }); draw(); } }, Object.entries(MEASURES).map(([value, { name }]) => h("option", { value }, name)));
  const draw = () => {
    const tenants = [...new Set(known.usage.map((it) => it.tenant ?? ""))].sort();
    if (whose.dataset.of !== tenants.join()) {
      whose.dataset.of = tenants.join();
      whose.replaceChildren(h("option", { value: "" }, "all tenants"), ...tenants.map((it) => h("option", { value: it === "" ? "-" : it }, it === "" ? "requests without a tenant" : it)));
    }
    whose.value = page.asked("of");
    measure.value = MEASURES[page.asked("by")] ? page.asked("by") : "cost";
    const of = page.asked("of");
    const rows = known.usage.filter((it) => of === "" || (of === "-" ? it.tenant === null : it.tenant === of));
    chart.update(known.days, rows, measure.value);
  };
  const look = page.every(5, async (signal) => {
    const hasLog = Boolean(page.live.snapshot.node.log);
    const nothing = { items: [], file: [] };
    const [limits, tenants, keys] = await Promise.all([
      list("limits", signal), hasLog ? list("tenants", signal) : nothing, hasLog ? list("keys", signal) : nothing]);
    Object.assign(known, { limits: limits.items, tenants: tenants.items, keys: keys.items });
    tables.limits.update([...limits.items.flatMap((it) => ofCluster(it)), ...limits.file.flatMap((it) => ofFile(it))]);
    spread();
  });
  // All nodes are asked, and read files for it.
  const lookAtUsage = page.every(30, async (signal) => {
    known.days = daysUntil(Date.now());
    const { usage, budgets, nodes } = await get(`v1/usage?since=${known.days[0]}&by=day,tenant,key,model`, signal);
    Object.assign(known, { usage, budgets });
    tables.usage.update(summed(usage));
    const missing = nodes.filter((it) => it.fault).map((it) => `${it.name} in ${it.region} (${it.fault})`);
    setText(since, `The last ${DAYS} days of UTC, of clients of all nodes${missing.length ? `, without ${joined(missing)}` : ""}. Cost is by the prices of the config or the cluster.`);
    draw();
    spread();
  });
  /** Shows what comes from both. */
  const spread = () => {
    tables.keys.update(known.keys.map((it) => ({ ...it, lastDay: lastDay(known.usage, (row) => row.key === it.key) })));
    tables.tenants.update(known.tenants.map((it) => ({ ...it, budget: known.budgets.find((budget) => budget.tenant === it.key), cost: costOf(known.usage, it.key), keys: known.keys.filter((key) => key.record.tenant === it.key && !key.info.is_revoked).length })));
    // A drawer that is open shows what is new, unless the reader is in a dialog.
    if (!document.querySelector("dialog[open]")) show();
  };
  let drawn = null;
  const show = () => {
    const [tenant, key] = [page.asked("tenant"), page.asked("key")];
    tables.tenants.choose(tenant || null);
    tables.keys.choose(key || null);
    const found = tenant ? known.tenants.find((it) => it.key === tenant) : key ? known.keys.find((it) => it.key === key) : null;
    if (!found) {
      drawn = null;
      return page.drawer.close(true);
    }
    const text = JSON.stringify([found, known.usage.length, known.limits]);
    if (drawn === text && page.drawer.shown) return;
    drawn = text;
    const content = tenant ? tenantDetails(page, found, known, open("key")) : keyDetails(page, found, known);
    page.drawer.open({ key: `${tenant}/${key}`, title: tenant ? `Tenant ${tenant}` : `Key ${key}`, content, onClose: () => { page.ask({ tenant: "", key: "" }); show(); } });
  };
  draw();
  const isAlone = !page.live.snapshot.node.log;
  for (const [name, text] of Object.entries(isAlone ? ALONE : {})) tables[name].say(text);
  const mayMake = page.live.mayAdmin && Boolean(page.live.snapshot.node.log);
  for (const table of Object.values(tables)) table.update([]);
  const create = mayMake ? h("button", { type: "button", class: "main", onclick: () => createKey(page, known.tenants.map((it) => it.key)) }, "Create a key …") : null;
  const limit = mayMake ? h("button", { type: "button", class: "plain", onclick: () => editLimit(page, subjects(page, known), null) }, "Set a limit …") : null;
  const element = h("div", {}, look.problem, lookAtUsage.problem,
    section("Spend by day", h("div", { class: "tools" }, h("label", { for: "spend-of" }, "Of"), whose, h("label", { for: "spend-by" }, "Show"), measure), chart.element),
    section("Keys", create ? h("div", { class: "tools" }, create) : null, tables.keys.element),
    section("Tenants", tables.tenants.element),
    section("Limits", limit ? h("div", { class: "tools" }, limit) : null, tables.limits.element),
    section("Used", tables.usage.element, since));
  return { title: "Limits and keys", element, onQuery: () => { draw(); show(); } };
}

/** Days of UTC up to now, the oldest first. */
const daysUntil = (nowMs) => Array.from({ length: DAYS }, (_, at) => day(nowMs - (DAYS - 1 - at) * DAY_MS));

/** Names that limits may be about. */
function subjects(page, known) {
  const models = [...new Set(page.live.snapshot.regions.flatMap((it) => it.models))];
  return ["global", ...known.tenants.map((it) => `tenant:${it.key}`), ...known.keys.map((it) => `key:${it.key}`), ...models.map((it) => `model:${it}`)];
}

/** Rows of usage without their days. */
function summed(usage) {
  const all = new Map();
  for (const row of usage) {
    const key = JSON.stringify([row.tenant, row.key, row.model]);
    const sum = all.get(key);
    if (!sum) {
      all.set(key, { ...row, cost: Number(row.cost) });
      continue;
    }
    for (const name of ["requests", "errors", "prompt_tokens", "cached_tokens", "completion_tokens", "estimated_tokens"]) sum[name] += row[name];
    sum.cost += Number(row.cost);
  }
  return [...all.values()];
}

const costOf = (usage, tenant) => usage.filter((it) => it.tenant === tenant).reduce((sum, it) => sum + Number(it.cost), 0);

/** The last day on which a row of usage was counted; null for none. */
const lastDay = (usage, is) => usage.filter(is).reduce((last, it) => (last === null || it.day > last ? it.day : last), null);

function usedOn(date) {
  if (date === null) return `not in ${DAYS} days`;
  const ago = Math.round((Date.parse(day(Date.now())) - Date.parse(date)) / DAY_MS);
  return ago <= 0 ? "today" : ago === 1 ? "yesterday" : date;
}

/** A row for each kind of a limit of the cluster. */
function ofCluster({ key, record, info, version }) {
  return KINDS.filter(([kind]) => record[kind] !== null && record[kind] !== undefined).map(([kind, unit]) => {
    const regions = info?.regions ?? [];
    const sum = (of) => regions.reduce((all, it) => all + of(it), 0);
    const parts = (of) => joined(regions.filter((it) => of(it) > 0).map((it) => `${it.region} ${count(of(it))}`));
    return {
      key, unit, most: record[kind], source: "cluster", used: null, item: { key, record, version },
      held: parts((it) => it.floor[kind] + it.leased[kind]), demand: sum((it) => it.needed[kind]),
    };
  });
}

function ofFile({ key, record, info }) {
  return KINDS.filter(([kind]) => record[kind] !== null && record[kind] !== undefined).map(([kind, unit]) => ({
    key, unit, most: record[kind], source: info?.file?.is_replaced ? "config file, replaced" : "config file", used: info?.file?.used[kind] ?? null, held: "this node", demand: null, item: null,
  }));
}

function limitTable(page) {
  const share = (it) => (it.most > 0 ? (it.demand ?? it.used ?? 0) / it.most : 0);
  const columns = [
    { name: "Of", of: (it) => it.key, sort: (it) => it.key },
    { name: "Limit", number: true, of: (it) => count(it.most), sort: (it) => it.most },
    { name: "Unit", of: (it) => it.unit, sort: (it) => it.unit },
    { name: "Demand", number: true, of: (it) => count(it.demand), sort: (it) => it.demand, cell: (it) => [count(it.demand), " ", it.demand === null ? "" : bar(share(it))], quiet: (it) => it.demand === null },
    { name: "Used now", number: true, of: (it) => count(it.used), sort: (it) => it.used, cell: (it) => [count(it.used), " ", it.used === null ? "" : bar(share(it))], quiet: (it) => it.used === null },
    { name: "Held by", of: (it) => it.held, cell: (it) => h("span", { class: "long" }, it.held) },
    { name: "From", of: (it) => it.source, sort: (it) => it.source },
  ];
  if (page.live.mayAdmin) {
    const edit = (it) => h("button", { type: "button", class: "plain", "aria-label": `Change the limit of ${it.key}`, onclick: () => editLimit(page, [], it.item) }, "Change …");
    columns.push({ name: "Order", of: (it) => JSON.stringify(it.item), cell: (it) => (it.item ? [edit(it), " ", orderButton(page, "Remove …", removeLimitPlan(it.item), "mayAdmin")] : "") });
  }
  return new Table({ caption: "Limits", key: (it) => `${it.source}/${it.key}/${it.unit}`, columns,
    empty: "There are no limits: every key may send what it likes. Set one with: spillway limits set tenant:NAME --tokens-per-min 600000" });
}

function usageTable(page) {
  return new Table({
    caption: "Used", key: (it) => `${it.tenant}/${it.key}/${it.model}`, empty: `No request has ended in ${DAYS} days. It appears here some seconds after its end.`, sort: { at: 3, down: true },
    columns: [
      { name: "Tenant", of: (it) => it.tenant ?? "none", sort: (it) => it.tenant },
      { name: "Key", of: (it) => it.key ?? "none", sort: (it) => it.key },
      { name: "Model", of: (it) => it.model ?? "unknown", sort: (it) => it.model },
      { name: "Cost", number: true, of: (it) => money(it.cost), sort: (it) => it.cost },
      { name: "Requests", number: true, of: (it) => count(it.requests), sort: (it) => it.requests },
      { name: "Now per second", number: true, of: (it) => tenth(page.clients.rate(it)), sort: (it) => page.clients.rate(it) },
      { name: "Errors", number: true, of: (it) => count(it.errors), sort: (it) => it.errors, quiet: (it) => it.errors === 0 },
      { name: "Prompt tokens", number: true, of: (it) => count(it.prompt_tokens), sort: (it) => it.prompt_tokens },
      { name: "From cache", number: true, of: (it) => count(it.cached_tokens), sort: (it) => it.cached_tokens },
      { name: "Generated", number: true, of: (it) => count(it.completion_tokens), sort: (it) => it.completion_tokens },
      { name: "Estimated", number: true, of: (it) => count(it.estimated_tokens), sort: (it) => it.estimated_tokens, quiet: (it) => it.estimated_tokens === 0 },
    ],
  });
}

function tenantTable(open) {
  const budget = (it) => (it.budget?.budget_per_day ? `${money(it.budget.spent_today)} of ${money(it.budget.budget_per_day)} today` : it.budget?.budget_per_month ? `${money(it.budget.spent_this_month)} of ${money(it.budget.budget_per_month)} this month` : "none");
  const state = (it) => (it.record.is_suspended ? "suspended" : it.budget?.refused_until ? `refused until ${it.budget.refused_until}` : "active");
  return new Table({
    caption: "Tenants", key: (it) => it.key, open, empty: "The cluster has no tenants. Make one with its first key: spillway keys create --tenant NAME --create",
    columns: [
      { name: "Tenant", of: (it) => it.key, sort: (it) => it.key },
      { name: "Title", of: (it) => it.record.title || "–", sort: (it) => it.record.title, quiet: (it) => !it.record.title },
      { name: "State", of: state, sort: state, cell: (it) => badge(state(it), state(it) === "active" ? "ok" : "warn") },
      { name: `Cost, ${DAYS} days`, number: true, of: (it) => money(it.cost), sort: (it) => it.cost },
      { name: "Budget", of: budget },
      { name: "Keys", number: true, of: (it) => count(it.keys), sort: (it) => it.keys },
      { name: "Served in", of: (it) => joined([...(it.record.regions ?? []), ...(it.record.countries ?? [])]).replace("–", "everywhere") },
    ],
  });
}

const stateOfKey = (it) => {
  if (it.info.is_revoked) return "revoked";
  return it.record.expires_ms && it.record.expires_ms < Date.now() ? "expired" : "valid";
};

function keyTable(open) {
  return new Table({
    caption: "Keys", key: (it) => it.key, open, empty: "The cluster has no keys. Create one with: spillway keys create --tenant NAME --create",
    columns: [
      { name: "Key", of: (it) => it.key, sort: (it) => it.key, cell: (it) => h("code", {}, it.key) },
      { name: "State", of: stateOfKey, sort: stateOfKey, cell: (it) => badge(stateOfKey(it), stateOfKey(it) === "valid" ? "ok" : "idle") },
      { name: "Tenant", of: (it) => it.record.tenant ?? "none", sort: (it) => it.record.tenant },
      { name: "Last used", of: (it) => usedOn(it.lastDay), sort: (it) => it.lastDay },
      { name: "Models", of: (it) => joined(it.record.models).replace("–", "all"), cell: (it) => h("span", { class: "short" }, joined(it.record.models).replace("–", "all")) },
      { name: "Ends", of: (it) => (it.record.expires_ms ? time(it.record.expires_ms) : "never"), sort: (it) => it.record.expires_ms },
      { name: "Role", of: (it) => it.record.role, sort: (it) => it.record.role },
      { name: "Regions", of: (it) => joined(it.record.regions).replace("–", "all"), quiet: (it) => it.record.regions.length === 0 },
      { name: "Priority", number: true, of: (it) => count(it.record.priority), sort: (it) => it.record.priority, quiet: (it) => it.record.priority === 0 },
    ],
  });
}

/** Limits about one thing, in a line each. */
function limitLines(known, key) {
  const lines = known.limits.filter((it) => it.key === key).flatMap(ofCluster).map((it) => h("li", {}, `${count(it.most)} ${it.unit}`));
  return lines.length > 0 ? h("ul", {}, lines) : "none of its own";
}

function chartOf(known, is) {
  const chart = new SpendChart();
  chart.update(known.days, known.usage.filter(is), "cost");
  return chart.element;
}

function limitButton(page, known, key) {
  if (!page.live.mayAdmin) return null;
  const item = known.limits.find((it) => it.key === key) ?? null;
  return h("button", { type: "button", class: "plain", onclick: () => editLimit(page, [key], item) }, "Set limits …");
}

function keyDetails(page, it, known) {
  const { record } = it;
  const isOver = stateOfKey(it) !== "valid";
  // As it is when the button is pressed, which may be long after it was made.
  const now = () => known.keys.find((key) => key.key === it.key) ?? it;
  const button = (label, title, act) => (page.live.mayAdmin && !isOver ? h("button", { type: "button", class: "plain", "aria-label": title, onclick: act }, label) : null);
  const requests = `#/requests?key=${encodeURIComponent(it.key)}&scope=cluster`;
  return [
    facts([
      ["State", badge(stateOfKey(it), isOver ? "idle" : "ok")], ["Role", record.role], ["Tenant", record.tenant ?? "none"], ["Models", joined(record.models).replace("–", "all")],
      ["Regions", joined(record.regions).replace("–", "all")], ["Priority class", count(record.priority)], ["Ends", record.expires_ms ? time(record.expires_ms) : "never"],
      ["Last used", usedOn(lastDay(known.usage, (row) => row.key === it.key))], ["Limits", limitLines(known, `key:${it.key}`)],
    ]),
    chartOf(known, (row) => row.key === it.key),
    h("div", { class: "buttons" }, button("Change …", `Change key ${it.key}`, () => editKey(page, now())), limitButton(page, known, `key:${it.key}`),
      button("Rotate …", `Rotate key ${it.key}`, () => rotateKey(page, now())), it.info.is_revoked ? null : orderButton(page, "Revoke …", { ...revokePlan(it), fresh: () => ({ version: now().version }) }, "mayAdmin"), h("a", { href: requests }, "Its requests")),
  ];
}

function tenantDetails(page, it, known, openKey) {
  const keys = known.keys.filter((key) => key.record.tenant === it.key);
  const budget = known.budgets.find((one) => one.tenant === it.key);
  const spent = (now, most) => (most ? `${money(now)} of ${money(most)}` : null);
  const make = page.live.mayAdmin ? h("button", { type: "button", class: "plain", onclick: () => createKey(page, known.tenants.map((one) => one.key), it.key) }, "Create a key …") : null;
  const requests = `#/requests?tenant=${encodeURIComponent(it.key)}&scope=cluster`;
  return [
    facts([
      ["Title", it.record.title || null], ["State", it.record.is_suspended ? "suspended" : "active"], [`Cost in ${DAYS} days`, money(costOf(known.usage, it.key))],
      ["Budget of today", spent(budget?.spent_today, budget?.budget_per_day)], ["Budget of this month", spent(budget?.spent_this_month, budget?.budget_per_month)],
      ["Refused until", budget?.refused_until ?? null], ["Served in", joined([...it.record.regions, ...it.record.countries]).replace("–", "everywhere")],
      ["Limits", limitLines(known, `tenant:${it.key}`)],
      ["Keys", keys.length > 0 ? h("ul", {}, keys.map((key) => h("li", {}, h("button", { type: "button", class: "link", onclick: () => openKey(key) }, key.key), ` ${stateOfKey(key)}`))) : "none"],
    ]),
    chartOf(known, (row) => row.tenant === it.key),
    h("div", { class: "buttons" }, make, limitButton(page, known, `tenant:${it.key}`), h("a", { href: requests }, "Its requests")),
  ];
}
