// World: how the node is, what requests do, every region on a map, what is wrong, and the regions as a table.

import { badge, h, section, setText } from "../dom.js";
import { count, ms, percent, tenth } from "../format.js";
import { WorldMap, levelOf, stateOf } from "../map.js";
import { signalTiles } from "../signals.js";
import { Table, bar, sparkline } from "../table.js";
import { problemList } from "./alerts.js";

const HEALTH = { healthy: "ok", degraded: "warn", unhealthy: "bad" };

export function worldView(page) {
  const word = h("strong");
  const rest = h("span");
  // Read aloud when it changes, which is when something happens.
  const sentence = h("p", { class: "sentence", role: "status" }, word, rest);
  const map = new WorldMap();
  const box = h("div", { class: "map-box" }, map.svg);
  const unplaced = h("p", { class: "hint", hidden: true });
  const key = h("p", { class: "hint key" }, "A ring fills with the load of a region. An arrow is what this node forwards there; a dashed line has the round-trip time (RTT).");
  const table = regionTable(page);
  const problems = problemList(page);
  const wrong = section("What is wrong", problems.element);
  const tiles = signalTiles(page);
  const update = () => {
    const { node, regions } = page.live.snapshot;
    problems.update();
    wrong.hidden = node.problems.length === 0;
    // The sentence begins with the word, unless it begins with what is wrong.
    const begins = node.summary.startsWith(`${node.health}: `);
    setText(word, begins ? node.health : node.summary.split(":")[0]);
    setText(rest, node.summary.slice(word.textContent.length));
    sentence.className = `sentence ${HEALTH[node.health]}`;
    map.update(regions, (region) => page.live.sentPerS(region));
    const names = regions.filter((it) => !it.place).map((it) => it.region);
    unplaced.hidden = names.length === 0;
    box.hidden = names.length === regions.length;
    key.hidden = box.hidden;
    setText(unplaced, `Not on the map: ${names.join(", ")}. A [[region]] with latitude and longitude in this node's config places a region.`);
    table.update(regions.map(known));
  };
  const element = h("div", { class: "world" }, h("div", { class: "headline" }, sentence, tiles.choice), tiles.element, box, wrong, key, unplaced,
    section("Regions", table.element,
      h("p", { class: "hint" }, "Forwarded are this node's own requests; refused and broken count them since it started. Of the own region, “in flight there” are requests that other regions forwarded here.")));
  return { title: "World", element, update, onQuery: tiles.onQuery };
}

/** A region with the figures that are known: of one that is not heard, those of before are none. */
export function known(region) {
  return region.is_heard ? region : { ...region, replicas_up: null, in_flight: null, places: null, waiting: null, rtt_ms: null };
}

function regionTable(page) {
  const share = (it) => (it.places ? it.in_flight / it.places : null);
  const rate = (it) => page.live.sentPerS(it.region);
  const none = (name) => (it) => !it[name];
  return new Table({
    caption: "Regions",
    key: (it) => it.region,
    empty: "No region is known.",
    sort: { at: -1, down: false },
    columns: [
      { name: "Region", of: (it) => it.region, sort: (it) => it.region, cell: (it) => h("a", { href: `#/regions/${encodeURIComponent(it.region)}` }, it.region) },
      { name: "State", of: stateOf, sort: stateOf, cell: (it) => badge(stateOf(it), levelOf(it)) },
      { name: "Load", number: true, of: (it) => percent(share(it)), sort: share, cell: (it) => [percent(share(it)), " ", share(it) === null ? "" : bar(share(it))] },
      { name: "In flight", number: true, of: (it) => count(it.in_flight), sort: (it) => it.in_flight },
      { name: "Slots", number: true, of: (it) => count(it.places), sort: (it) => it.places },
      { name: "Waiting", number: true, of: (it) => count(it.waiting), sort: (it) => it.waiting },
      { name: "Replicas", number: true, of: (it) => count(it.replicas_up), sort: (it) => it.replicas_up },
      { name: "Two minutes", of: (it) => (it.is_heard ? page.live.loads(it.region).join(" ") : "–"), cell: (it) => (it.is_heard ? sparkline(page.live.loads(it.region), it.places) : "–") },
      { name: "RTT", number: true, of: (it) => (it.is_own ? "–" : ms(it.rtt_ms)), sort: (it) => (it.is_own ? null : it.rtt_ms) },
      { name: "In flight there", number: true, of: (it) => count(it.spilling), sort: (it) => it.spilling, quiet: none("spilling") },
      { name: "Forwarded/s", number: true, of: (it) => tenth(rate(it)), sort: rate },
      { name: "Refused", number: true, of: (it) => count(it.refused), sort: (it) => it.refused, quiet: none("refused") },
      { name: "Broken", number: true, of: (it) => count(it.broken), sort: (it) => it.broken, quiet: none("broken") },
      { name: "Weight", number: true, of: (it) => `${tenth(it.weight_percent)} %`, sort: (it) => it.weight_percent, quiet: (it) => it.weight_percent === 100 },
      { name: "Price", number: true, of: (it) => ms(it.price_ms), sort: (it) => it.price_ms, quiet: none("price_ms") },
    ],
  });
}
