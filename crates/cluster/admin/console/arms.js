// Arms of splits: how each did at this node since its start, read from its page of metrics.

import { send } from "./api.js";

const SAMPLE = /^spillway_split_([a-z_]+)\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)+)\} (\S+)/;
const LABEL = /([a-z_]+)="((?:[^"\\]|\\.)*)"/g;
const ESCAPED = { n: "\n" };

/** Reads the figures of this node's arms. */
export async function readArms(signal) {
  return armsOf(await (await send("GET", "metrics", { signal })).text());
}

/** The figures on a page of metrics, by `split/arm`. */
export function armsOf(page) {
  const all = new Map();
  for (const line of page.split("\n")) {
    const found = SAMPLE.exec(line);
    if (!found) continue;
    const labels = Object.fromEntries([...found[2].matchAll(LABEL)].map(([, name, text]) => [name, text.replace(/\\(.)/g, (_, it) => ESCAPED[it] ?? it)]));
    const key = `${labels.split}/${labels.arm}`;
    const arm = all.get(key) ?? { split: labels.split, arm: labels.arm, sums: new Map() };
    all.set(key, arm);
    const name = labels.kind ? `${found[1]}/${labels.kind}` : found[1];
    arm.sums.set(name, (arm.sums.get(name) ?? 0) + Number(found[3]));
  }
  return new Map([...all].map(([key, { split, arm, sums }]) => [key, { split, arm, ...figures(sums) }]));
}

function figures(sums) {
  const sum = (name) => sums.get(name) ?? 0;
  const meanMs = (name) => (sum(`${name}_count`) > 0 ? (sum(`${name}_sum`) / sum(`${name}_count`)) * 1_000 : null);
  return {
    requests: sum("requests_total"), errors: sum("errors_total"), firstTokenMs: meanMs("time_to_first_token_seconds"), replyMs: meanMs("reply_seconds"),
    promptTokens: sum("tokens_total/prompt"), tokens: sum("tokens_total/completion"),
  };
}
