// Control plane: the log, its members, and who did what.

import { get } from "../api.js";
import { leadPlan, orderButton } from "../actions.js";
import { badge, facts, h, section, setText } from "../dom.js";
import { bytes, count, duration, ms, time } from "../format.js";
import { Table } from "../table.js";

const STATES = { "this node": "ok", up: "ok", silent: "bad", "never heard": "bad" };
const OUTCOMES = { applied: "ok", unchanged: "idle", conflict: "warn", refused: "warn" };

export function controlView(page) {
  const log = facts(["Leader", "This node", "Voters", "Term", "Applied", "Committed", "Last entry", "In snapshot", "State is", "Log on disk", "Data folder", "Digest"]);
  const none = h("p", { class: "empty", hidden: true }, "This node is in no cluster with a replicated log. Set `data` in [cluster], and a [[peer]] for each other node, to form one.");
  const nodes = nodeTable(page, "No node is known.", true);
  const where = h("p", { class: "hint" });
  const audit = auditTable();
  const trail = h("select", { id: "trail", onchange: () => look.again() }, h("option", { value: "operators" }, "operators"), h("option", { value: "system" }, "nodes"));

  const update = () => {
    const { log: status, nodes: rows, node: { data } } = page.live.snapshot.node;
    nodes.update(rows);
    none.hidden = Boolean(status);
    log.element.hidden = !status;
    if (!status) return;
    const voters = rows.filter((it) => ["leader", "voter"].includes(it.role)).length;
    log.set({
      Leader: status.leader ? `${status.leader.node} in ${status.leader.region}` : "none", "This node": status.role.replace("_", " "), Term: count(status.term),
      Applied: count(status.applied_index), Committed: count(status.committed_index), "Last entry": count(status.last_index), "In snapshot": count(status.snapshot_index),
      "State is": status.age_ms === null ? "of unknown age" : `${ms(status.age_ms)} old`, "Log on disk": bytes(status.log_bytes), "Data folder": data ? `${bytes(data.free_bytes)} of ${bytes(data.total_bytes)} free` : "–", Voters: `${voters}${status.is_joint ? ", changing" : ""}`, Digest: status.digest.slice(0, 12),
    });
    const leads = status.role === "leader";
    setText(where, page.live.mayOperate && !leads ? `Only the leader hands the lead over: open the console of ${status.leader?.node ?? "the leader"}.` : "");
  };
  const look = page.every(5, async (signal) => {
    if (!page.live.snapshot.node.log) return;
    const deeds = await get(`v1/audit?consistency=stale&limit=100&trail=${trail.value}`, signal);
    audit.update(deeds.items);
  });
  audit.update([]);
  const element = h("div", {}, none, look.problem, section("Log", log.element), section("Members", nodes.element, where),
    section("Audit", h("div", { class: "tools" }, h("label", { for: "trail" }, "Orders of"), trail), audit.element));
  return { title: "Control plane", element, update };
}

/** The table of nodes. With `canLead` it offers the lead to voters. */
export function nodeTable(page, empty, canLead = false) {
  const leads = () => page.live.snapshot.node.log?.role === "leader";
  const isOffered = (it) => canLead && it.role === "voter" && it.state === "up" && leads();
  const columns = [
    { name: "Node", of: (it) => it.name, sort: (it) => it.name },
    { name: "Region", of: (it) => it.region || "–", sort: (it) => it.region, quiet: () => !canLead },
    { name: "Role", of: (it) => it.role, sort: (it) => it.role },
    { name: "State", of: stateOf, sort: (it) => it.state, cell: (it) => badge(stateOf(it), STATES[it.state] ?? "idle") },
    { name: "Lag", number: true, of: (it) => (it.lag_entries === null ? "–" : `${count(it.lag_entries)} entries`), sort: (it) => it.lag_entries },
    { name: "Round trip", number: true, of: (it) => ms(it.rtt_ms), sort: (it) => it.rtt_ms },
    { name: "Version", of: (it) => it.version ?? "–", sort: (it) => it.version },
    { name: "Fault", of: (it) => it.fault ?? "–", quiet: (it) => !it.fault },
  ];
  if (canLead && page.live.mayOperate) columns.splice(4, 0, { name: "Order", of: (it) => (isOffered(it) ? "Hand over …" : ""), quiet: (it) => !isOffered(it), cell: (it) => (isOffered(it) ? orderButton(page, "Hand over …", leadPlan(it.name)) : "") });
  return new Table({ caption: "Nodes", key: (it) => it.name, empty, sort: { at: -1, down: false }, columns });
}

/** The API's words are those of its clients; people read these. */
const NAMES = { "never heard": "never seen" };
const stateOf = (it) => (it.silent_ms ? `${it.state} for ${duration(it.silent_ms / 1_000)}` : (NAMES[it.state] ?? it.state));

function auditTable() {
  return new Table({
    caption: "Audit", key: (it) => String(it.index), empty: "There was no order yet. Each one appears here with who gave it, for ever.", sort: { at: 0, down: true },
    columns: [
      { name: "Entry", number: true, of: (it) => count(it.index), sort: (it) => it.index },
      { name: "When", of: (it) => time(it.stamp_ms), sort: (it) => it.stamp_ms },
      { name: "Who", of: (it) => it.operator ?? `node ${it.node}`, sort: (it) => it.operator ?? it.node },
      { name: "At node", of: (it) => it.node, sort: (it) => it.node },
      { name: "What", of: (it) => it.what, cell: (it) => h("span", { class: "long" }, it.what) },
      { name: "Outcome", of: (it) => (it.cause ? `${it.outcome}: ${it.cause}` : it.outcome), sort: (it) => it.outcome, cell: (it) => h("span", { class: "long" }, badge(it.outcome, OUTCOMES[it.outcome] ?? "idle"), it.cause ? ` ${it.cause}` : "") },
    ],
  });
}
