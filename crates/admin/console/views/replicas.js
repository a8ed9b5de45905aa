// Replicas: those of this node with live figures, those of other regions as the cluster agrees on them.

import { list } from "../api.js";
import { orderButton, replicaPlan } from "../actions.js";
import { badge, h } from "../dom.js";
import { worded } from "../words.js";
import { count, list as joined, ms, percent, tenth } from "../format.js";
import { Table, bar } from "../table.js";

const LEVELS = {
  serving: "ok", ramping: "ok", trial: "warn", standby: "idle", busy: "warn", starting: "idle", "warming up": "idle",
  ejected: "warn", down: "bad", draining: "idle", drained: "idle", up: "ok", suspect: "warn", unknown: "idle", active: "idle",
};

export function replicasView(page) {
  const table = replicaTable(page, "No replica is known. [[replica]] in a config file or PUT /v1/replicas adds one.");
  const filter = h("input", { id: "filter", type: "search", autocomplete: "off", oninput: () => table.filter(filter.value) });
  const amount = h("span", { class: "hint" });
  let records = [];
  const update = () => {
    const rows = replicaRows(page, records);
    table.update(rows);
    const live = rows.filter((it) => it.isLive).length;
    amount.textContent = `${rows.length} replicas, ${live} of them of this node`;
  };
  const look = page.every(5, async (signal) => {
    if (!page.live.snapshot.node.log) return;
    records = (await list("replicas", signal)).items;
    update();
  });
  const element = h("div", {}, h("div", { class: "tools" }, h("label", { for: "filter" }, "Filter"), filter, amount), look.problem, table.element,
    h("p", { class: "hint" }, "Requests are this node's own. Of replicas of other regions this node knows only what the cluster agrees on; their region's nodes have their figures."));
  return { title: "Replicas", element, update };
}

/** Rows of this node's replicas and of all that the cluster knows. */
export function replicaRows(page, records) {
  const { node, replicas } = page.live.snapshot;
  const own = node.node.region;
  const known = new Map(records.map((it) => [it.key, it]));
  const live = replicas.map((it) => {
    const key = `${own}/${it.name}`;
    return { ...it, key, region: own, isLive: true, agreed: known.get(key) ?? null };
  });
  const names = new Set(live.map((it) => it.key));
  const others = records.filter((it) => !names.has(it.key)).map((it) => {
    const [region, ...rest] = it.key.split("/");
    // Nobody has said anything against one without a report.
    const belief = it.info.health?.belief ?? "active";
    return {
      key: it.key, region, name: rest.join("/"), agreed: it, isLive: false, models: it.record.models,
      state: it.info.state === "active" ? belief : it.info.state, url: it.record.url, places: it.record.capacity, kind: it.record.engine,
    };
  });
  return [...live, ...others];
}

export function replicaTable(page, empty) {
  const share = (it) => (it.places && it.isLive ? it.in_flight / it.places : null);
  const isActive = (it) => it.agreed?.info.state === "active";
  const action = (it) => {
    if (!it.agreed) return "";
    return isActive(it) ? "Drain …" : "Undrain …";
  };
  const button = (it) => (it.agreed ? orderButton(page, action(it), replicaPlan(it.region, it.name, isActive(it))) ?? "" : "");
  const columns = [
    { name: "Replica", of: (it) => it.name, sort: (it) => it.name },
    { name: "Region", of: (it) => it.region, sort: (it) => it.region },
    { name: "State", of: (it) => it.state, sort: (it) => it.state, cell: (it) => badge(it.state, LEVELS[it.state] ?? "idle") },
    { name: "Why", of: (it) => (it.why && it.state !== "serving" ? worded(it.why) : "–") },
    { name: "Requests", number: true, of: (it) => count(it.in_flight), sort: (it) => it.in_flight },
    { name: "Places", number: true, of: (it) => count(it.places), sort: (it) => it.places },
    { name: "Load", number: true, of: (it) => percent(share(it)), sort: share, cell: (it) => [percent(share(it)), " ", share(it) === null ? "" : bar(share(it))] },
    { name: "Queue", number: true, of: (it) => count(it.queued), sort: (it) => it.queued },
    { name: "KV use", number: true, of: (it) => percent(it.kv_use), sort: (it) => it.kv_use },
    { name: "Cached", number: true, of: (it) => percent(it.cached_share), sort: (it) => it.cached_share },
    { name: "First token", number: true, of: (it) => ms(it.latency_ms), sort: (it) => it.latency_ms, level: (it) => (it.slower_than_ms ? "warn" : "ok") },
    { name: "p99", number: true, of: (it) => ms(it.p99_ms), sort: (it) => it.p99_ms },
    { name: "Report age", number: true, of: (it) => (it.report_age_ms === null || it.report_age_ms === undefined ? "–" : `${tenth(it.report_age_ms / 1_000)} s`), sort: (it) => it.report_age_ms },
    { name: "Models", of: (it) => joined(it.models), sort: (it) => joined(it.models) },
    { name: "Software", of: (it) => it.kind || "–", sort: (it) => it.kind || null },
    { name: "Address", of: (it) => it.url || "–", sort: (it) => it.url },
  ];
  // Fixed while the view is shown: a reader has no use for an empty column.
  if (page.live.mayOperate) columns.splice(4, 0, { name: "Order", of: action, cell: button });
  return new Table({ caption: "Replicas", key: (it) => it.key, empty, columns });
}
