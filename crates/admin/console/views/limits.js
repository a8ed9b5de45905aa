// Limits, tenants, keys: what is set, what regions hold of it, and what was used.

import { get, list } from "../api.js";
import { badge, h, section } from "../dom.js";
import { count, list as joined, time } from "../format.js";
import { Table } from "../table.js";

const KINDS = [["requests_per_s", "requests/s"], ["requests_per_min", "requests/min"], ["tokens_per_min", "tokens/min"], ["concurrency", "requests at a time"]];

export function limitsView(page) {
  const tables = { limits: limitTable(), usage: usageTable(), tenants: tenantTable(), keys: keyTable() };
  const since = h("p", { class: "hint" });
  const look = page.every(5, async (signal) => {
    const hasLog = Boolean(page.live.snapshot.node.log);
    const nothing = { items: [], file: [] };
    const [limits, tenants, keys, usage] = await Promise.all([
      list("limits", signal), hasLog ? list("tenants", signal) : nothing, hasLog ? list("keys", signal) : nothing, get("usage", signal)]);
    tables.limits.update([...limits.items.flatMap((it) => ofCluster(it)), ...limits.file.flatMap((it) => ofFile(it))]);
    tables.tenants.update(tenants.items);
    tables.keys.update(keys.items);
    tables.usage.update(usage.usage);
    since.textContent = `Since ${time(usage.since_ms)}, of clients of this node.`;
  });
  for (const table of Object.values(tables)) table.update([]);
  const element = h("div", {}, look.problem, section("Limits", tables.limits.element), section("Used", tables.usage.element, since),
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

function usageTable() {
  return new Table({
    caption: "Used", key: (it) => `${it.tenant}/${it.key}/${it.model}`, empty: "No request has ended yet.", sort: { at: 3, down: true },
    columns: [
      { name: "Tenant", of: (it) => it.tenant ?? "none", sort: (it) => it.tenant },
      { name: "Key", of: (it) => it.key ?? "none", sort: (it) => it.key },
      { name: "Model", of: (it) => it.model ?? "unknown", sort: (it) => it.model },
      { name: "Requests", number: true, of: (it) => count(it.requests), sort: (it) => it.requests },
      { name: "Errors", number: true, of: (it) => count(it.errors), sort: (it) => it.errors },
      { name: "Prompt tokens", number: true, of: (it) => count(it.prompt_tokens), sort: (it) => it.prompt_tokens },
      { name: "Of these cached", number: true, of: (it) => count(it.cached_tokens), sort: (it) => it.cached_tokens },
      { name: "Generated tokens", number: true, of: (it) => count(it.completion_tokens), sort: (it) => it.completion_tokens },
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
