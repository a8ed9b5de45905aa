// Limits, tenants, keys: what is set, what regions hold of it, and what was used.

import { get, list } from "../api.js";
import { badge, h, section } from "../dom.js";
import { count, list as joined, tenth, time } from "../format.js";
import { Table } from "../table.js";

const KINDS = [["requests_per_s", "requests/s"], ["requests_per_min", "requests/min"], ["tokens_per_min", "tokens/min"], ["concurrency", "requests at a time"]];

export function limitsView(page) {
  const tables = { limits: limitTable(), usage: usageTable(page), budgets: budgetTable(), tenants: tenantTable(), keys: keyTable() };
  const since = h("p", { class: "hint" });
  const look = page.every(5, async (signal) => {
    const hasLog = Boolean(page.live.snapshot.node.log);
    const nothing = { items: [], file: [] };
    const [limits, tenants, keys] = await Promise.all([
      list("limits", signal), hasLog ? list("tenants", signal) : nothing, hasLog ? list("keys", signal) : nothing]);
    tables.limits.update([...limits.items.flatMap((it) => ofCluster(it)), ...limits.file.flatMap((it) => ofFile(it))]);
    tables.tenants.update(tenants.items);
    tables.keys.update(keys.items);
  });
  // All nodes are asked, and read files for it.
  const lookAtUsage = page.every(30, async (signal) => {
    const { since: first, until, usage, budgets, nodes } = await get("v1/usage", signal);
    tables.usage.update(usage);
    tables.budgets.update(budgets);
    const missing = nodes.filter((it) => it.fault).map((it) => `${it.name} (${it.region}): ${it.fault}`);
    since.textContent = `${first} to ${until}, days of UTC, of clients of all nodes${missing.length ? `, without ${joined(missing)}` : ""}.`;
  });
  for (const table of Object.values(tables)) table.update([]);
  const element = h("div", {}, look.problem, lookAtUsage.problem, section("Limits", tables.limits.element), section("Used", tables.usage.element, since), section("Budgets", tables.budgets.element),
    section("Tenants", tables.tenants.element), section("Keys", tables.keys.element));
  return { title: "Limits and keys", element };
}

/** A row for each kind of a limit of the cluster. */
function ofCluster({ key, record, info }) {
  return KINDS.filter(([kind]) => record[kind] !== null && record[kind] !== undefined).map(([kind, unit]) => {
    const regions = info?.regions ?? [];
    const parts = (of) => joined(regions.filter((it) => of(it) > 0).map((it) => `${it.region} ${count(of(it))}`));
    return {
      key, unit, most: record[kind], source: "cluster", used: null,
      held: parts((it) => it.floor[kind] + it.leased[kind]), needed: parts((it) => it.needed[kind]),
    };
  });
}

function ofFile({ key, record, info }) {
  return KINDS.filter(([kind]) => record[kind] !== null && record[kind] !== undefined).map(([kind, unit]) => ({
    key, unit, most: record[kind], source: info?.file?.is_replaced ? "config file, replaced" : "config file", used: info?.file?.used[kind] ?? null, held: "this node", needed: "–",
  }));
}

function limitTable() {
  return new Table({
    caption: "Limits", key: (it) => `${it.source}/${it.key}/${it.unit}`, empty: "There are no limits. spillway limits set tenant:NAME --tokens-per-min 600000 sets one.",
    columns: [
      { name: "About", of: (it) => it.key, sort: (it) => it.key },
      { name: "Limit", number: true, of: (it) => count(it.most), sort: (it) => it.most },
      { name: "Unit", of: (it) => it.unit, sort: (it) => it.unit },
      { name: "Used now", number: true, of: (it) => count(it.used), sort: (it) => it.used },
      { name: "Held by", of: (it) => it.held },
      { name: "Asked for beyond that", of: (it) => it.needed },
      { name: "From", of: (it) => it.source, sort: (it) => it.source },
    ],
  });
}

function usageTable(page) {
  return new Table({
    caption: "Used", key: (it) => `${it.tenant}/${it.key}/${it.model}`, empty: "No request has ended yet.", sort: { at: 3, down: true },
    columns: [
      { name: "Tenant", of: (it) => it.tenant ?? "none", sort: (it) => it.tenant },
      { name: "Key", of: (it) => it.key ?? "none", sort: (it) => it.key },
      { name: "Model", of: (it) => it.model ?? "unknown", sort: (it) => it.model },
      { name: "Requests", number: true, of: (it) => count(it.requests), sort: (it) => it.requests },
      { name: "Now per second", number: true, of: (it) => tenth(page.clients.rate(it)), sort: (it) => page.clients.rate(it) },
      { name: "Errors", number: true, of: (it) => count(it.errors), sort: (it) => it.errors },
      { name: "Prompt tokens", number: true, of: (it) => count(it.prompt_tokens), sort: (it) => it.prompt_tokens },
      { name: "Of these cached", number: true, of: (it) => count(it.cached_tokens), sort: (it) => it.cached_tokens },
      { name: "Generated tokens", number: true, of: (it) => count(it.completion_tokens), sort: (it) => it.completion_tokens },
      { name: "Estimated tokens", number: true, of: (it) => count(it.estimated_tokens), sort: (it) => it.estimated_tokens },
      { name: "Cost", number: true, of: (it) => it.cost, sort: (it) => Number(it.cost) },
    ],
  });
}

function budgetTable() {
  return new Table({
    caption: "Budgets", key: (it) => it.tenant, empty: "No tenant has a budget. budget_per_day and budget_per_month in [[tenant]] of the config set one.",
    columns: [
      { name: "Tenant", of: (it) => it.tenant, sort: (it) => it.tenant },
      { name: "A day", number: true, of: (it) => it.budget_per_day ?? "–" },
      { name: "Spent today", number: true, of: (it) => it.spent_today, sort: (it) => Number(it.spent_today) },
      { name: "A month", number: true, of: (it) => it.budget_per_month ?? "–" },
      { name: "Spent this month", number: true, of: (it) => it.spent_this_month, sort: (it) => Number(it.spent_this_month) },
      { name: "State", of: (it) => (it.refused_until ? `refused until ${it.refused_until}` : "let in"), cell: (it) => badge(it.refused_until ? `refused until ${it.refused_until}` : "let in", it.refused_until ? "warn" : "ok") },
    ],
  });
}

function tenantTable() {
  const state = (it) => (it.record.is_suspended ? "suspended" : "active");
  return new Table({
    caption: "Tenants", key: (it) => it.key, empty: "The cluster has no tenants.",
    columns: [
      { name: "Tenant", of: (it) => it.key, sort: (it) => it.key },
      { name: "Title", of: (it) => it.record.title || "–", sort: (it) => it.record.title },
      { name: "State", of: state, sort: state, cell: (it) => badge(state(it), state(it) === "active" ? "ok" : "warn") },
      { name: "Served in", of: (it) => joined([...(it.record.regions ?? []), ...(it.record.countries ?? [])]).replace("–", "everywhere") },
      { name: "Version", number: true, of: (it) => count(it.version), sort: (it) => it.version },
    ],
  });
}

function keyTable() {
  const state = (it) => {
    if (it.info.is_revoked) return "revoked";
    return it.record.expires_ms && it.record.expires_ms < Date.now() ? "expired" : "valid";
  };
  return new Table({
    caption: "Keys", key: (it) => it.key, empty: "The cluster has no keys. spillway keys create makes one.",
    columns: [
      { name: "Key", of: (it) => it.key, sort: (it) => it.key, cell: (it) => h("code", {}, it.key) },
      { name: "Role", of: (it) => it.record.role, sort: (it) => it.record.role },
      { name: "Tenant", of: (it) => it.record.tenant ?? "none", sort: (it) => it.record.tenant },
      { name: "State", of: state, sort: state, cell: (it) => badge(state(it), state(it) === "valid" ? "ok" : "idle") },
      { name: "Models", of: (it) => joined(it.record.models).replace("–", "all") },
      { name: "Regions", of: (it) => joined(it.record.regions).replace("–", "all") },
      { name: "Priority", number: true, of: (it) => count(it.record.priority), sort: (it) => it.record.priority },
      { name: "Ends", of: (it) => (it.record.expires_ms ? time(it.record.expires_ms) : "never"), sort: (it) => it.record.expires_ms },
    ],
  });
}
