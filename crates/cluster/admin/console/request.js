// One request in words: what happened to it, and where.

import { badge, h } from "./dom.js";
import { list } from "./drawer.js";
import { clock, count, ms, tenth, time } from "./format.js";
import { docsOf, worded } from "./words.js";

const isWell = (it) => it.status < 400 && (it.end === "complete" || it.end === "answered");
const level = (it) => (it.status >= 500 || (it.status < 400 && !isWell(it)) ? "bad" : it.status >= 400 ? "warn" : "ok");

/** The status as a badge; of a reply that broke off the word is there, too. */
export function statusBadge(it) {
  const isBroken = it.status < 400 && !isWell(it);
  return badge(isBroken ? `${it.status} ${it.end.replaceAll("_", " ")}` : String(it.status), level(it));
}

/** What happened, in one line. */
export function title(it) {
  if (it.shed) return `Refused with ${it.status} after ${ms(it.duration_ms)}`;
  const from = it.replica ? ` from ${it.replica}` : it.region ? ` from region ${it.region}` : ` by node ${it.node}`;
  if (isWell(it)) return `${it.status}${from} in ${ms(it.duration_ms)}`;
  const what = it.status >= 400 ? String(it.status) : `Reply ${it.end.replaceAll("_", " ")}`;
  return `${what}${from} after ${ms(it.duration_ms)}`;
}

/** The request as the content of a drawer. */
export function told(it, page) {
  const facts = list([
    ["Status", [statusBadge(it), it.code ? [" ", h("code", {}, it.code)] : null]],
    ["Detail", it.detail ?? null],
    ["Ended", `${time(it.ended_ms)}, on node ${it.node}`],
    ["First token", it.first_token_ms === null ? null : ms(it.first_token_ms)], ["Total", ms(it.duration_ms)], ["Gateway's own time", ms(it.overhead_ms)],
    ["Prompt tokens", known(it, it.prompt_tokens)], ["Of them cached", count(it.cached_tokens)], ["Generated tokens", known(it, it.completion_tokens)],
    ["Tenant", filter("tenant", it.tenant)], ["Key", filter("key", it.key)], ["Model", filter("model", it.model)], ["Stood in for", it.fallback_for], ["Split", it.arm_reason ? `${it.arm}: ${worded(it.arm_reason, "arm")}` : it.arm],
    ["Route", it.route], ["Region", filter("region", it.region)], ["Replica", filter("replica", it.replica)], ["May be served", it.residency ?? null],
    ["Id", h("code", {}, it.id ?? "–")], ["Trace", it.trace_id ? h("code", {}, it.trace_id) : null],
  ]);
  const tries = it.tries?.length > 0 ? [h("h3", {}, "Tried before"), h("ul", {}, it.tries.map((one) => h("li", {}, tried(one))))] : [];
  const others = it.left_out?.length > 0 ? [h("h3", {}, "Regions that were left out"), h("ul", {}, it.left_out.map((one) => h("li", {}, `${one.region}: ${worded(one.reason, "left_out")}`)))] : [];
  const docs = it.code && page ? h("p", {}, h("a", { href: docsOf(it.code), target: "_blank", rel: "noreferrer" }, "What the codes mean")) : null;
  return h("div", {}, sentences(it).map((line) => h("p", { class: level(it) }, line)), tries, others, docs, facts);
}

const known = (it, number) => (it.tokens_estimated && number > 0 ? `${count(number)}, estimated` : count(number));

/** A value with a link to the requests that share it. */
function filter(name, value) {
  return value ? h("a", { href: `#/requests?${new URLSearchParams({ [name]: value })}`, title: `Requests with this ${name}` }, value) : null;
}

function tried({ region, replica, code, status, after_ms: after }) {
  const where = replica ? `${region}/${replica}` : `region ${region}`;
  return `${where}: ${status ? `${status}, ` : ""}${code.replaceAll("_", " ")} after ${ms(after)}`;
}

function sentences(it) {
  const lines = [];
  const where = it.region && it.replica ? `${it.region}/${it.replica}` : it.region;
  if (it.shed) lines.push(`It was refused: ${worded(it.shed, "shed")}.`);
  else if (it.replica) lines.push(`It went to ${where}: ${worded(it.reason, "replica") ?? "no reason is known"}.`);
  else if (it.region) lines.push(`It was forwarded to ${it.region}: ${worded(it.compared?.reason, "region") ?? "no other way was left"}.`);
  else if (it.tries?.length > 0) lines.push(`No place that it asked could serve it: node ${it.node} answered.`);
  else lines.push(`No replica was asked: node ${it.node} answered it itself.`);
  if (it.is_guest) lines.push("Another region forwarded it here.");
  if (it.compared) {
    const here = it.compared.here_ms === null ? "nothing here could serve it" : `${tenth(it.compared.here_ms)} ms here`;
    const there = it.compared.best ? `${tenth(it.compared.best_ms)} ms in ${it.compared.best}, the best other region` : "no other region could take it";
    lines.push(`Regions were compared: ${here}, ${there}.`);
  }
  if (it.expected && isWell(it)) {
    const { first_token_ms: first, wait_ms: wait, prefill_ms: prefill, prompt_tokens: prompt, cached_tokens: cached, running } = it.expected;
    const came = it.first_token_ms !== null ? `it came after ${ms(it.first_token_ms)}` : it.is_stream ? "it never came" : "the reply came in one piece";
    lines.push(`The first token was expected after ${ms(first)} (${ms(wait)} waiting, ${ms(prefill)} reading ${count(prompt - cached)} of ${count(prompt)} tokens, ${count(running)} running there); ${came}.`);
  }
  const retries = it.retries > 0 ? `, with ${count(it.retries)} ${it.retries === 1 ? "retry" : "retries"}` : "";
  const code = it.code ? ` (${it.code}${it.detail && it.detail.length < 80 ? `: ${it.detail}` : ""})` : "";
  const end = isWell(it) ? `It was served whole at ${clock(it.ended_ms)}${retries}.`
    : it.status >= 400 ? `Its client got ${it.status}${code}${retries}.` : `The reply did not end well: ${worded(it.end, "end")}${code}${retries}.`;
  // What went wrong comes first.
  return isWell(it) ? [...lines, end] : [end, ...lines];
}
