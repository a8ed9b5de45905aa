// One region: its load, its nodes, its replicas, and what spills in and out.

import { list } from "../api.js";
import { orderButton, regionPlan } from "../actions.js";
import { facts, h, section, setText } from "../dom.js";
import { count, list as joined, ms, percent, tenth } from "../format.js";
import { stateOf } from "../map.js";
import { nodeTable } from "./control.js";
import { replicaRows, replicaTable } from "./replicas.js";
import { known } from "./world.js";

export function regionView(page, [name]) {
  const own = facts(["State", "Replicas up", "Requests", "Places", "Load", "Waiting", "Round trip from here", "Heard", "Weight", "Price", "Operators' order", "Models"]);
  const spill = facts(["Requests there now", "Sent per second", "Sent", "Refused", "Broken", "Circuit breaker"]);
  const spillHint = h("p", { class: "hint" });
  const missing = h("p", { class: "empty", hidden: true }, `This node knows no region with the name ${name}.`);
  const nodes = nodeTable(page, "No node of this region is known.");
  const replicas = replicaTable(page, "No replica of this region is known.");
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
      "Replicas up": count(region.replicas_up), Requests: count(region.in_flight), Places: count(region.places),
      Load: percent(region.places ? region.in_flight / region.places : null), Waiting: count(region.waiting),
      "Round trip from here": region.is_own ? "–" : ms(region.rtt_ms),
      Heard: region.is_own ? "–" : region.heard_ms === null ? "never" : `${ms(region.heard_ms)} ago`,
      Weight: `${tenth(region.weight_percent)} %`, Price: ms(region.price_ms),
      "Operators' order": record ? record.state : "none", Models: joined(region.models),
    });
    spill.set({
      "Requests there now": count(region.spilling), "Sent per second": tenth(page.live.sentPerS(name)), Sent: count(region.sent),
      Refused: count(region.refused), Broken: count(region.broken), "Circuit breaker": region.is_own ? "–" : region.is_broken ? "open" : "closed",
    });
    setText(spillHint, region.is_own ? "This node is in this region: “there now” are requests that other regions sent here." : `What ${page.live.snapshot.node.node.name} sends to ${name}. What comes back from there is on the page of this node's own region.`);
    nodes.update(page.live.snapshot.node.nodes.filter((it) => it.region === name));
    replicas.update(replicaRows(page, records).filter((it) => it.region === name));
  };
  const offer = () => {
    const isActive = !record || record.state === "active";
    const button = record ? orderButton(page, isActive ? "Drain …" : "Undrain …", regionPlan(name, isActive)) : null;
    buttons.replaceChildren(...(button ? [button] : []));
  };
  const look = page.every(5, async (signal) => {
    if (!page.live.snapshot.node.log) return;
    const [regions, found] = await Promise.all([list("regions", signal), list("replicas", signal)]);
    const before = record?.state;
    record = regions.items.find((it) => it.key === name)?.record ?? null;
    records = found.items;
    if (before !== record?.state) offer();
    update();
  });
  const element = h("div", {}, missing, look.problem, own.element, buttons,
    section("Spill", spill.element, spillHint), section("Nodes", nodes.element), section("Replicas", replicas.element));
  return { title: `Region ${name}`, element, update };
}
