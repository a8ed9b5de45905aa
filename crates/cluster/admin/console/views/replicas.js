// Replicas of all regions: those of this node as of now, those of others as nodes there report them.

import { get, list } from "../api.js";
import { orderButton, replicaPlan } from "../actions.js";
import { badge, h, setText } from "../dom.js";
import { list as facts } from "../drawer.js";
import { worded } from "../words.js";
import { count, list as joined, ms, percent, tenth } from "../format.js";
import { Table, bar } from "../table.js";

const LEVELS = {
  serving: "ok", ramping: "ok", trial: "warn", standby: "idle", busy: "warn", starting: "idle", "warming up": "idle", "wrong model": "bad", "without models": "bad",
  ejected: "warn", down: "bad", draining: "idle", drained: "idle", up: "ok", suspect: "warn", unknown: "idle", active: "idle",
};

export function replicasView(page) {
  const table = replicaTable(page, "No replica is known. Add a [[replica]] to a config file, or run: spillway apply replica REGION/NAME url=URL.");
  const filter = h("input", { id: "filter", type: "search", autocomplete: "off", value: page.asked("filter"), oninput: () => { page.ask({ filter: filter.value }); table.filter(filter.value); } });
  const amount = h("span", { class: "hint" });
  const missing = h("p", { class: "hint" });
  const fleet = new Fleet(page);
  let records = [];
  const update = () => {
    const rows = fleet.rows(records);
    table.update(rows);
    const serving = rows.filter((it) => LEVELS[it.state] === "ok").length;
    setText(amount, `${count(rows.length)} replicas, ${count(serving)} serving`);
    setText(missing, fleet.silent.length > 0 ? `Without the figures of ${joined(fleet.silent)}: of replicas there this shows what the cluster agrees on.` : "");
  };
  const onQuery = () => {
    filter.value = page.asked("filter");
    table.filter(filter.value);
    showReplica(page, table, fleet, () => records);
  };
  const look = page.every(5, async (signal) => {
    await fleet.look(signal);
    if (page.live.snapshot.node.log) records = (await list("replicas", signal)).items;
    update();
    showReplica(page, table, fleet, () => records);
  });
  const element = h("div", {}, h("div", { class: "tools" }, h("label", { for: "filter" }, "Filter"), filter, amount), look.problem, table.element, missing);
  return { title: "Replicas", element, update, onQuery };
}

/** Replicas of all regions, as nodes there reported them last. */
export class Fleet {
  constructor(page) {
    this.page = page;
    this.others = [];
    this.silent = [];
  }

  async look(signal) {
    if (!this.page.live.snapshot.node.node.is_in_cluster) return;
    const { replicas, nodes } = await get("v1/fleet", signal);
    const own = this.page.live.snapshot.node.node.region;
    this.others = replicas.filter((it) => it.region !== own);
    this.silent = nodes.filter((it) => it.fault).map((it) => `${it.name} in ${it.region} (${it.fault})`);
  }

  /** Rows of all replicas. `records` are those that the cluster agrees on. */
  rows(records) {
    const { node, replicas } = this.page.live.snapshot;
    const known = new Map(records.map((it) => [it.key, it]));
    const row = (it, region) => {
      const key = `${region}/${it.name}`;
      return { ...it, key, region, isLive: true, agreed: known.get(key) ?? null };
    };
    const seen = [...replicas.map((it) => row(it, node.node.region)), ...this.others.map((it) => row(it, it.region))];
    const keys = new Set(seen.map((it) => it.key));
    return [...seen, ...records.filter((it) => !keys.has(it.key)).map(agreedRow)];
  }
}

/** A replica that no node reports. */
function agreedRow(it) {
  const [region, ...rest] = it.key.split("/");
  const { state, health } = it.info;
  return {
    key: it.key, region, name: rest.join("/"), agreed: it, isLive: false, models: it.record.models,
    // Nobody has said anything against one without a report.
    state: state === "active" ? (health?.belief ?? "no report") : state, url: it.record.url, places: it.record.capacity, kind: it.record.engine,
  };
}

/** The table; `hasRegion` is false where all are of one. */
export function replicaTable(page, empty, hasRegion = true) {
  const share = (it) => (it.places && it.isLive ? it.in_flight / it.places : null);
  const button = (it) => (it.agreed ? orderButton(page, orderOf(it), replicaPlan(it.region, it.name, isActive(it))) ?? "" : "");
  const none = (name) => (it) => !it[name];
  const columns = [
    { name: "Replica", of: (it) => it.name, sort: (it) => it.name },
    { name: "Region", of: (it) => it.region, sort: (it) => it.region, quiet: () => !hasRegion },
    { name: "State", of: (it) => it.state, sort: (it) => it.state, cell: (it) => badge(it.state, LEVELS[it.state] ?? "idle") },
    { name: "Load", number: true, of: (it) => percent(share(it)), sort: share, cell: (it) => [percent(share(it)), " ", share(it) === null ? "" : bar(share(it))] },
    { name: "In flight", number: true, of: (it) => count(it.in_flight), sort: (it) => it.in_flight },
    { name: "Slots", number: true, of: (it) => count(it.places), sort: (it) => it.places },
    { name: "Queue", number: true, of: (it) => count(it.queued), sort: (it) => it.queued },
    { name: "First token", number: true, of: (it) => ms(it.latency_ms), sort: (it) => it.latency_ms, level: (it) => (it.slower_than_ms ? "warn" : "ok") },
    { name: "p99", number: true, of: (it) => ms(it.p99_ms), sort: (it) => it.p99_ms },
    { name: "KV use", number: true, of: (it) => percent(it.kv_use), sort: (it) => it.kv_use, quiet: (it) => it.kv_use === null || it.kv_use === undefined },
    { name: "Cached", number: true, of: (it) => percent(it.cached_share), sort: (it) => it.cached_share, quiet: (it) => it.cached_share === null || it.cached_share === undefined },
    { name: "Ejections", number: true, of: (it) => count(it.ejections), sort: (it) => it.ejections, quiet: none("ejections") },
    { name: "Models", of: (it) => joined(it.models), sort: (it) => joined(it.models), cell: (it) => h("span", { class: "short", title: joined(it.models) }, joined(it.models)) },
  ];
  // Fixed while the view is shown: a reader has no use for an empty column.
  if (page.live.mayOperate) columns.push({ name: "Order", of: orderOf, cell: button });
  return new Table({ caption: "Replicas", key: (it) => it.key, empty, columns, open: (it) => openReplica(page, it.key) });
}

const isActive = (it) => it.agreed?.info.state === "active";

function orderOf(it) {
  if (!it.agreed) return "";
  return isActive(it) ? "Drain …" : "Undrain …";
}

/** Opens the details of a replica by its address. */
function openReplica(page, key) {
  page.ask({ replica: key }, true);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Shows the replica that the address names. */
export function showReplica(page, table, fleet, records) {
  const key = page.asked("replica");
  table.choose(key || null);
  if (!key) return page.drawer.close(true);
  const body = h("div");
  let shown = null;
  const update = () => {
    const row = fleet.rows(records()).find((it) => it.key === key);
    const text = JSON.stringify(row ?? null);
    if (text === shown) return;
    shown = text;
    body.replaceChildren(...(row ? details(page, row) : [h("p", {}, "No replica of this name is known now.")]));
  };
  if (page.drawer.shown?.key === key) return page.drawer.update();
  update();
  page.drawer.open({ key, title: `Replica ${key}`, content: body, update, onClose: () => { page.ask({ replica: "" }); table.choose(null); } });
}

function details(page, it) {
  const [isKnown, age] = [typeof it.report_age_ms === "number", it.report_age_ms / 1_000];
  const button = it.agreed ? orderButton(page, orderOf(it), replicaPlan(it.region, it.name, isActive(it))) : null;
  const requests = `#/requests?replica=${encodeURIComponent(it.name)}&scope=cluster`;
  return [
    facts([
      ["State", [badge(it.state, LEVELS[it.state] ?? "idle"), it.reason ? ` ${it.reason}` : ""]],
      ["Operators' order", it.agreed ? it.agreed.info.state : "none: it is in a config file alone"],
      ["In flight", `${count(it.in_flight)} of ${count(it.places)} slots`], ["Queue", count(it.queued)],
      ["First token", it.slower_than_ms ? `${ms(it.latency_ms)}; others need ${ms(it.slower_than_ms)}` : ms(it.latency_ms)], ["First token, p99", ms(it.p99_ms)],
      ["KV cache in use", percent(it.kv_use)], ["Prompt tokens from cache", percent(it.cached_share)],
      ["Ejections in ten minutes", count(it.ejections)],
      ["Load report", isKnown ? `${tenth(age)} s old` : "none"],
      ["Models", joined(it.models)], ["Models it lacks", it.models_missing?.length > 0 ? joined(it.models_missing) : null],
      ["Software", it.kind ? it.kind : "unknown"], ["Address", h("code", {}, it.url || "–")], ["Why", it.why && it.state !== "serving" ? worded(it.why) : null],
    ]),
    h("div", { class: "buttons" }, h("a", { href: requests }, "Requests of this replica"), button),
  ];
}
