// Hot prompts: the beginnings that many requests share, as the trie of the cluster has them.

import { get } from "../api.js";
import { facts, h, section } from "../dom.js";
import { bytes, count, list as joined, percent, tenth } from "../format.js";
import { Table, bar } from "../table.js";

// Blocks that are asked for; the hottest come first.
const TOP = 300;

export function promptsView(page) {
  const none = h("p", { class: "empty", hidden: true }, "This node is in no cluster, so there is nothing to share. It knows by itself which replica has which prompt cached; Explain shows it.");
  const size = facts(["Hot blocks", "Bytes on each node", "Log entries", "Written", "Put off", "Key epoch"]);
  const regions = regionTable();
  const trie = branchTable();
  const what = h("p", { class: "hint" }, "Prompts are cut into blocks of one length. A keyed hash names a block, so that its text is known nowhere outside of requests. A row is a part of prompts without a fork; rows below it, set further in, go on from its end. Heat is the number of recent requests, older ones counting less.");
  const look = page.every(5, async (signal) => {
    none.hidden = Boolean(page.live.snapshot.node.log);
    if (!page.live.snapshot.node.log) return;
    const hot = await get(`v1/trie?consistency=stale&top=${TOP}`, signal);
    size.set({ "Hot blocks": count(hot.blocks), "Bytes on each node": bytes(hot.bytes), "Log entries": `${tenth(hot.entries_per_s)}/s`, Written: `${bytes(hot.bytes_per_s)}/s`, "Put off": count(hot.put_off), "Key epoch": count(hot.key_epoch) });
    regions.update(hot.regions.map((it) => ({ ...it, share: it.blocks / hot.blocks })));
    trie.update(branches(hot.top));
  });
  regions.update([]);
  trie.update([]);
  const element = h("div", {}, none, look.problem, size.element, section("Trie", what, trie.element), section("Regions", regions.element));
  return { title: "Hot prompts", element };
}

/** The parts of the trie without a fork, each before those that go on from its end, the hottest first. */
function branches(blocks) {
  const known = new Set(blocks.map((it) => it.block));
  const after = new Map();
  for (const it of blocks) {
    // A block whose parent is not among the hottest begins a branch of its own.
    const parent = known.has(it.parent) ? it.parent : null;
    after.set(parent, [...(after.get(parent) ?? []), it]);
  }
  const most = Math.max(1, ...blocks.map((it) => it.heat));
  const rows = [];
  const waiting = [];
  const follow = (parent, level) => {
    const next = after.get(parent) ?? [];
    next.sort((one, other) => one.heat - other.heat || (one.block < other.block ? 1 : -1));
    waiting.push(...next.map((first) => ({ first, level })));
  };
  follow(null, 0);
  while (waiting.length > 0) {
    const { first, level } = waiting.pop();
    let last = first;
    for (;;) {
      const next = after.get(last.block) ?? [];
      const goesOn = next.length === 1 && next[0].heat === first.heat && joined(next[0].regions) === joined(first.regions);
      if (!goesOn) break;
      [last] = next;
    }
    rows.push({ block: last.block, from: first.depth, to: last.depth, heat: first.heat, share: first.heat / most, regions: first.regions, level });
    follow(last.block, level + 1);
  }
  return rows;
}

function branchTable() {
  const place = (it) => `${"\u2003".repeat(Math.min(it.level, 12))}${it.level ? "└ " : ""}${it.from === it.to ? it.from : `${it.from} to ${it.to}`}`;
  const heat = (it) => count(it.heat);
  return new Table({
    caption: "Hottest beginnings of prompts", key: (it) => `${it.block}/${it.from}/${it.level}`, sort: { at: -1, down: false },
    empty: "No beginning of a prompt is hot. It appears here after several requests with the same long beginning.",
    columns: [
      { name: "Blocks", of: place },
      { name: "Heat", number: true, of: (it) => `${heat(it)} ${it.share}`, cell: (it) => [heat(it), " ", bar(it.share, "ok")] },
      { name: "Hot in", of: (it) => joined(it.regions) },
      { name: "Hash of the last block", of: (it) => it.block, cell: (it) => h("code", {}, it.block) },
    ],
  });
}

function regionTable() {
  return new Table({
    caption: "Hot blocks of regions", key: (it) => it.region, empty: "No region has hot blocks.", sort: { at: 1, down: true },
    columns: [
      { name: "Region", of: (it) => it.region, sort: (it) => it.region },
      { name: "Blocks", number: true, of: (it) => count(it.blocks), sort: (it) => it.blocks },
      { name: "Share", number: true, of: (it) => percent(it.share), sort: (it) => it.share, cell: (it) => [percent(it.share), " ", bar(it.share, "ok")] },
      { name: "Bytes on each node", number: true, of: (it) => bytes(it.bytes), sort: (it) => it.bytes },
    ],
  });
}
