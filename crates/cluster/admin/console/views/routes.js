// Routes, splits and models: where requests go by their path and model.

import { get, list } from "../api.js";
import { readArms } from "../arms.js";
import { h, section } from "../dom.js";
import { count, list as joined, ms, percent } from "../format.js";
import { Table } from "../table.js";

export function routesView(page) {
  const served = servedTable();
  const routes = routeTable();
  const splits = new Table({
    caption: "Splits", key: (it) => keyOf(it), empty: "No model is split between versions. Set one with: spillway splits set NAME --arm ARM=MODEL:PERCENT",
    columns: [
      { name: "Model asked for", of: (it) => it.key, sort: (it) => it.key },
      { name: "Arm", of: (it) => it.arm.name || it.arm.model },
      { name: "Model served", of: (it) => it.arm.model ?? "–" },
      { name: "Share", number: true, of: (it) => (it.arm.model ? `${it.arm.weight_percent} %` : "–"), sort: (it) => Number(it.arm.weight_percent) },
      { name: "Requests", number: true, of: (it) => count(it.did?.requests), sort: (it) => it.did?.requests },
      { name: "Errors", number: true, of: errors, sort: errorShare, level: (it) => errorLevel(errorShare(it)) },
      { name: "First token", number: true, of: (it) => ms(it.did?.firstTokenMs), sort: (it) => it.did?.firstTokenMs },
      { name: "Reply", number: true, of: (it) => ms(it.did?.replyMs), sort: (it) => it.did?.replyMs },
      { name: "Prompt tokens", number: true, of: (it) => count(it.did?.promptTokens), sort: (it) => it.did?.promptTokens },
      { name: "Tokens", number: true, of: (it) => count(it.did?.tokens), sort: (it) => it.did?.tokens },
    ],
  });
  const models = new Table({
    caption: "Aliases and fallbacks", key: (it) => it.key, empty: "No model has another name or a model that stands in for it. Set one with: spillway apply model NAME alias_of=MODEL",
    columns: [
      { name: "Model", of: (it) => it.key, sort: (it) => it.key },
      { name: "Stands for", of: (it) => it.record.alias_of ?? "itself", sort: (it) => it.record.alias_of },
      { name: "Fallbacks", of: (it) => joined(it.record.fallbacks) },
    ],
  });
  const alone = h("p", { class: "hint", hidden: true }, "This node is in no cluster that agrees on anything: routes, splits and aliases are those of its config file.");
  const update = () => served.update(servedModels(page.live.snapshot.regions));
  const look = page.every(5, async (signal) => {
    alone.hidden = Boolean(page.live.snapshot.node.log);
    const [arms, effective] = await Promise.all([readArms(signal), get("v1/effective-routes", signal)]);
    const agreed = page.live.snapshot.node.log ? (await list("routes", signal)).items : [];
    const names = new Map(agreed.map((it) => [it.key, it]));
    routes.update(effective.routes.map((it, at) => ({ ...it, at, agreed: names.get(it.name) ?? null })));
    if (!page.live.snapshot.node.log) {
      splits.update(armRows([], arms));
      return;
    }
    const [ofSplits, ofModels] = await Promise.all(["splits", "models"].map((it) => list(it, signal)));
    splits.update(armRows(ofSplits.items, arms));
    models.update(ofModels.items);
  });
  for (const table of [routes, splits, models]) table.update([]);
  const element = h("div", {}, look.problem, alone, section("Models that are served", served.element), section("Routes", routes.element, h("p", { class: "hint" }, "Those that this node uses, in the order in which requests meet them. A [[route]] of the config file, or spillway apply route NAME FIELD=VALUE, adds one.")),
    section("Splits", splits.element, h("p", { class: "hint" }, "Figures are of this node since its start; times are means of replies that went well.")), section("Aliases and fallbacks", models.element));
  return { title: "Routes and models", element, update };
}

/** Routes that the node uses. */
function routeTable() {
  const served = (it) => joined([...(it.agreed?.record.regions ?? []), ...(it.agreed?.record.countries ?? [])]).replace("–", "everywhere");
  const yes = (is) => (is ? "yes" : "no");
  return new Table({
    caption: "Routes", key: (it) => it.name, empty: "This node has no routes.", sort: { at: -1, down: false },
    columns: [
      { name: "Route", of: (it) => it.name },
      { name: "Paths", of: (it) => (it.path_prefix ? `${it.path_prefix}…` : "endpoints of models") },
      { name: "Models", of: (it) => joined(it.models).replace("–", "all"), cell: (it) => h("span", { class: "short" }, joined(it.models).replace("–", "all")) },
      { name: "Policy", of: (it) => it.policy },
      { name: "Pool", of: (it) => it.pool ?? "all replicas", quiet: (it) => !it.pool },
      { name: "Continues streams", of: (it) => yes(it.continues_streams) },
      { name: "First byte within", number: true, of: (it) => (it.slo_ms === null ? "any time" : ms(it.slo_ms)) },
      { name: "Waits at most", number: true, of: (it) => ms(it.wait_ms) },
      { name: "Sessions", of: (it) => yes(it.keeps_sessions), quiet: (it) => !it.keeps_sessions },
      { name: "Hedges", of: (it) => yes(it.hedges), quiet: (it) => !it.hedges },
      { name: "Served in", of: served, quiet: (it) => served(it) === "everywhere" },
      { name: "From", of: (it) => (it.agreed ? "cluster" : "config file") },
    ],
  });
}

const keyOf = ({ key, arm }) => `${key}/${arm.name || arm.model}`;

/** Arms of the records with what they did here; behind them those of the node's config file. */
function armRows(items, did) {
  const rows = items.flatMap((it) => it.record.arms.map((arm) => ({ key: it.key, arm })));
  const known = new Set(rows.map(keyOf));
  const ofFile = [...did.values()].filter((it) => !known.has(`${it.split}/${it.arm}`)).map((it) => ({ key: it.split, arm: { name: it.arm } }));
  return [...rows, ...ofFile].map((row) => ({ ...row, did: did.get(keyOf(row)) }));
}

const errorShare = ({ did }) => (did?.requests > 0 ? did.errors / did.requests : null);
const errorLevel = (share) => (share === null ? "idle" : share >= 0.05 ? "bad" : share >= 0.01 ? "warn" : "ok");

function errors(row) {
  const share = errorShare(row);
  return share > 0 ? `${count(row.did.errors)} (${percent(share)})` : count(row.did?.errors);
}

function servedTable() {
  return new Table({
    caption: "Models that are served", key: (it) => it.model, empty: "No model is served anywhere. It appears here as soon as a replica is up that serves it.",
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
