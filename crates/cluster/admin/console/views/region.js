// One region: its load, its nodes, its replicas, and what is forwarded there and here.

import { list } from "../api.js";
import { orderButton, regionPlan } from "../actions.js";
import { facts, h, section, setText } from "../dom.js";
import { count, list as joined, ms, percent, tenth } from "../format.js";
import { stateOf } from "../map.js";
import { nodeTable } from "./control.js";
import { Fleet, replicaTable, showReplica } from "./replicas.js";
import { signalTiles } from "../signals.js";
import { known } from "./world.js";

export function regionView(page, [name]) {
  const own = facts(["State", "Load", "In flight", "Slots", "Waiting", "Replicas up", "Round trip from here", "Last seen", "Weight", "Price", "Operators' order", "Models"]);
  const spill = facts(["In flight there", "Forwarded/s", "Forwarded", "Refused", "Broken", "Circuit breaker"]);
  const spillHint = h("p", { class: "hint" });
  const missing = h("p", { class: "empty", hidden: true }, `This node knows no region with the name ${name}.`);
  const nodes = nodeTable(page, "No node of this region is known.");
  const replicas = replicaTable(page, "No replica of this region is known.", false);
  const fleet = new Fleet(page);
  const buttons = h("div", { class: "buttons" });
  let record = null;
  let records = [];
  const find = () => page.live.snapshot.regions.filter((it) => it.region === name).map(known)[0];

  const update = () => {
    const region = find();
    missing.hidden = Boolean(region);
    if (!region) return;
    own.set({
      State: stateOf(region),
      "Replicas up": count(region.replicas_up), "In flight": count(region.in_flight), Slots: count(region.places),
      Load: percent(region.places ? region.in_flight / region.places : null), Waiting: count(region.waiting),
      "Round trip from here": region.is_own ? null : ms(region.rtt_ms),
      "Last seen": region.is_own ? null : region.heard_ms === null ? "never" : `${ms(region.heard_ms)} ago`,
      Weight: region.weight_percent === 100 ? null : `${tenth(region.weight_percent)} %`, Price: region.price_ms === 0 ? null : ms(region.price_ms),
      "Operators' order": record ? record.state : "none", Models: joined(region.models),
    });
    spill.set({
      "In flight there": count(region.spilling), "Forwarded/s": region.is_own ? null : tenth(page.live.sentPerS(name)), Forwarded: region.is_own ? null : count(region.sent),
      Refused: region.is_own ? null : count(region.refused), Broken: region.is_own ? null : count(region.broken), "Circuit breaker": region.is_own ? null : region.is_broken ? "open" : "closed",
    });
    setText(spillHint, region.is_own ? "This node is in this region: “in flight there” are requests that other regions forwarded here." : `What ${page.live.snapshot.node.node.name} forwards to ${name}. What ${name} forwards here is on the page of this node's own region.`);
    nodes.update(page.live.snapshot.node.nodes.filter((it) => it.region === name));
    replicas.update(fleet.rows(records).filter((it) => it.region === name));
  };
  const offer = () => {
    const actions = !record ? {} : record.state === "active" ? { drain: "Drain …", evacuate: "Evacuate …" } : { undrain: "Undrain …" };
    const all = Object.entries(actions).map(([action, label]) => orderButton(page, label, regionPlan(name, action)));
    buttons.replaceChildren(...all.filter(Boolean));
  };
  const onQuery = () => showReplica(page, replicas, fleet, () => records);
  const look = page.every(5, async (signal) => {
    await fleet.look(signal);
    update();
    onQuery();
    if (!page.live.snapshot.node.log) return;
    const [regions, found] = await Promise.all([list("regions", signal), list("replicas", signal)]);
    const before = record?.state;
    record = regions.items.find((it) => it.key === name)?.record ?? null;
    records = found.items;
    if (before !== record?.state) offer();
    update();
  });
  const element = h("div", {}, missing, look.problem, signalTiles(page, name).element, own.element, buttons,
    section("Forwarding", spill.element, spillHint), section("Nodes", nodes.element), section("Replicas", replicas.element));
  return { title: `Region ${name}`, element, update, onQuery };
}
