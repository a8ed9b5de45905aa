// World: how the node is, what its requests do, every region on a map, what is wrong, and the regions as a table.

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
  const key = h("p", { class: "hint" }, "A ring fills with the requests at a region's replicas. An arrow is what this node sends there; a dashed line has the round-trip time.");
  const table = regionTable(page);
  const problems = problemList(page);
  const wrong = section("What is wrong", problems.element);
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
  const element = h("div", {}, sentence, signalTiles(page), box, key, unplaced, wrong, section("Regions", table.element,
    h("p", { class: "hint" }, "Sent, refused and broken count this node's own requests since it started. In the own region, “there now” are requests of other regions.")));
  return { title: "World", element, update };
}

/** A region with the figures that are known: of one that is not heard, those of before are none. */
export function known(region) {
  return region.is_heard ? region : { ...region, replicas_up: null, in_flight: null, places: null, waiting: null, rtt_ms: null };
}

function regionTable(page) {
  const share = (it) => (it.places ? it.in_flight / it.places : null);
  const rate = (it) => page.live.sentPerS(it.region);
  return new Table({
    caption: "Regions",
    key: (it) => it.region,
    empty: "No region is known.",
    sort: { at: -1, down: false },
    columns: [
      { name: "Region", of: (it) => it.region, sort: (it) => it.region, cell: (it) => h("a", { href: `#/regions/${encodeURIComponent(it.region)}` }, it.region) },
      { name: "State", of: stateOf, sort: stateOf, cell: (it) => badge(stateOf(it), levelOf(it)) },
      { name: "Replicas up", number: true, of: (it) => count(it.replicas_up), sort: (it) => it.replicas_up },
      { name: "Requests", number: true, of: (it) => count(it.in_flight), sort: (it) => it.in_flight },
      { name: "Places", number: true, of: (it) => count(it.places), sort: (it) => it.places },
      { name: "Load", number: true, of: (it) => percent(share(it)), sort: share, cell: (it) => [percent(share(it)), " ", share(it) === null ? "" : bar(share(it))] },
      { name: "Last minutes", of: (it) => page.live.loads(it.region).join(" "), cell: (it) => sparkline(page.live.loads(it.region), it.places) },
      { name: "Waiting", number: true, of: (it) => count(it.waiting), sort: (it) => it.waiting },
      { name: "Round trip", number: true, of: (it) => (it.is_own ? "–" : ms(it.rtt_ms)), sort: (it) => (it.is_own ? null : it.rtt_ms) },
      { name: "There now", number: true, of: (it) => count(it.spilling), sort: (it) => it.spilling },
      { name: "Sent/s", number: true, of: (it) => tenth(rate(it)), sort: rate },
      { name: "Sent", number: true, of: (it) => count(it.sent), sort: (it) => it.sent },
      { name: "Refused", number: true, of: (it) => count(it.refused), sort: (it) => it.refused },
      { name: "Broken", number: true, of: (it) => count(it.broken), sort: (it) => it.broken },
      { name: "Weight", number: true, of: (it) => `${tenth(it.weight_percent)} %`, sort: (it) => it.weight_percent },
      { name: "Price", number: true, of: (it) => ms(it.price_ms), sort: (it) => it.price_ms },
    ],
  });
}
