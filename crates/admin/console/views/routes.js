// Routes, splits and models: where requests go by their path and model.

import { list } from "../api.js";
import { h, section } from "../dom.js";
import { count, list as joined } from "../format.js";
import { Table } from "../table.js";

export function routesView(page) {
  const served = servedTable();
  const routes = new Table({
    caption: "Routes", key: (it) => it.key, empty: "The cluster has no routes: the node's config file decides alone. PUT /v1/routes/NAME adds one.",
    columns: [
      { name: "Route", of: (it) => it.key, sort: (it) => it.key },
      { name: "Path begins", of: (it) => it.record.path_prefix ?? "any" },
      { name: "Models", of: (it) => joined(it.record.models) },
      { name: "Pool", of: (it) => it.record.pool || "default" },
      { name: "Policy", of: (it) => it.record.policy || "default" },
      { name: "Served in", of: (it) => joined([...(it.record.regions ?? []), ...(it.record.countries ?? [])]).replace("–", "everywhere") },
      { name: "Version", number: true, of: (it) => count(it.version), sort: (it) => it.version },
    ],
  });
  const splits = new Table({
    caption: "Splits", key: (it) => `${it.key}/${it.arm.name}`, empty: "No model is split between versions.",
    columns: [
      { name: "Model asked for", of: (it) => it.key, sort: (it) => it.key },
      { name: "Arm", of: (it) => it.arm.name || it.arm.model },
      { name: "Model served", of: (it) => it.arm.model },
      { name: "Share", number: true, of: (it) => `${it.arm.weight_percent} %`, sort: (it) => Number(it.arm.weight_percent) },
    ],
  });
  const models = new Table({
    caption: "Aliases and fallbacks", key: (it) => it.key, empty: "The cluster has no aliases or fallbacks.",
    columns: [
      { name: "Model", of: (it) => it.key, sort: (it) => it.key },
      { name: "Stands for", of: (it) => it.record.alias_of ?? "itself", sort: (it) => it.record.alias_of },
      { name: "Fallbacks", of: (it) => joined(it.record.fallbacks) },
      { name: "Version", number: true, of: (it) => count(it.version), sort: (it) => it.version },
    ],
  });
  const alone = h("p", { class: "hint", hidden: true }, "This node is in no cluster that agrees on anything: routes, splits and aliases are those of its config file.");
  const update = () => served.update(servedModels(page.live.snapshot.regions));
  const look = page.every(5, async (signal) => {
    alone.hidden = Boolean(page.live.snapshot.node.log);
    if (!page.live.snapshot.node.log) return;
    const [ofRoutes, ofSplits, ofModels] = await Promise.all(["routes", "splits", "models"].map((it) => list(it, signal)));
    routes.update(ofRoutes.items);
    splits.update(ofSplits.items.flatMap((it) => it.record.arms.map((arm) => ({ key: it.key, arm }))));
    models.update(ofModels.items);
  });
  for (const table of [routes, splits, models]) table.update([]);
  const element = h("div", {}, look.problem, alone, section("Models that are served", served.element), section("Routes", routes.element),
    section("Splits", splits.element), section("Aliases and fallbacks", models.element));
  return { title: "Routes and models", element, update };
}

function servedTable() {
  return new Table({
    caption: "Models that are served", key: (it) => it.model, empty: "No model is served anywhere.",
    columns: [
      { name: "Model", of: (it) => it.model, sort: (it) => it.model },
      { name: "Regions", of: (it) => it.regions.join(", ") },
      { name: "Here", of: (it) => (it.isHere ? "yes" : "no"), sort: (it) => (it.isHere ? 0 : 1) },
    ],
  });
}

/** Models with the regions that serve them. */
function servedModels(regions) {
  const all = new Map();
  for (const region of regions) {
    for (const model of region.models) {
      const row = all.get(model) ?? { model, regions: [], isHere: false };
      row.regions.push(region.region);
      row.isHere ||= region.is_own;
      all.set(model, row);
    }
  }
  return [...all.values()];
}
