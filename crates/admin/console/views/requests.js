// Requests: those that ended last on this node, where each went and why.

import { get } from "../api.js";
import { badge, h, section, setText } from "../dom.js";
import { count, ms, tenth } from "../format.js";
import { Table } from "../table.js";
import { worded } from "../words.js";

const SHOWN = 100;

export function requestsView(page) {
  const table = requestTable((entry) => tell(entry));
  const story = h("div", { class: "answer", "aria-live": "polite" });
  const filter = h("input", { id: "filter", type: "search", autocomplete: "off", oninput: () => table.filter(filter.value) });
  const failed = h("input", { id: "failed", type: "checkbox", onchange: () => look.again() });
  const amount = h("span", { class: "hint" });
  const tell = (entry) => story.replaceChildren(section("One request", ...told(entry)));
  const look = page.every(1, async (signal) => {
    const only = failed.checked ? "&failed=true" : "";
    const { requests } = await get(`v1/requests?limit=${SHOWN}${only}`, signal);
    table.update(requests);
    setText(amount, `the last ${count(requests.length)}${failed.checked ? " that failed" : ""}`);
  });
  const tools = h("div", { class: "tools" }, h("label", { for: "filter" }, "Filter"), filter, h("label", { for: "failed" }, failed, " Failed only"), amount);
  const hint = h("p", { class: "hint" }, "A node remembers the last 4,096 requests that ended on it. Nothing of prompts or replies is kept.");
  return { title: "Requests", element: h("div", {}, tools, look.problem, story, table.element, hint) };
}

function requestTable(tell) {
  const text = (value) => value ?? "–";
  return new Table({
    caption: "Requests that ended last", key: (it) => String(it.number), empty: "No request has ended yet.", sort: { at: 0, down: true },
    columns: [
      { name: "Ended", of: (it) => new Date(it.ended_ms).toISOString().slice(11, 23), sort: (it) => it.number },
      { name: "Status", of: (it) => String(it.status), sort: (it) => it.status, cell: (it) => badge(String(it.status), level(it)) },
      { name: "First token", number: true, of: (it) => ms(it.first_token_ms), sort: (it) => it.first_token_ms },
      { name: "Total", number: true, of: (it) => ms(it.duration_ms), sort: (it) => it.duration_ms },
      { name: "Prompt", number: true, of: (it) => tokens(it, it.prompt_tokens), sort: (it) => it.prompt_tokens },
      { name: "Cached", number: true, of: (it) => count(it.cached_tokens), sort: (it) => it.cached_tokens },
      { name: "Generated", number: true, of: (it) => tokens(it, it.completion_tokens), sort: (it) => it.completion_tokens },
      { name: "Model", of: (it) => text(it.model), sort: (it) => text(it.model) },
      { name: "Who", of: (it) => it.key ?? text(it.tenant), sort: (it) => it.key ?? text(it.tenant) },
      { name: "Where", of: place, sort: place },
      { name: "Why", of: (it) => worded(reason(it)) ?? "–", sort: (it) => reason(it) ?? "" },
      { name: "More", of: (it) => text(it.id), cell: (it) => h("button", { type: "button", "aria-label": `More of the request ${text(it.id)}`, onclick: () => tell(it) }, "More") },
    ],
  });
}

/** Estimated tokens are marked. */
const tokens = (it, number) => (it.tokens_estimated && number > 0 ? `~${count(number)}` : count(number));

const level = (it) => (it.status >= 500 ? "bad" : it.status >= 400 ? "warn" : it.end === "complete" || it.end === "answered" ? "ok" : "bad");

function place({ region, replica }) {
  if (region && replica) return `${region}/${replica}`;
  return region ? `${region} (forwarded)` : "–";
}

/** What was unusual comes before what was decided. */
function reason({ end, shed, reason: chosen, replica, compared }) {
  if (end !== "complete" && end !== "answered") return end;
  return shed ?? chosen ?? (replica ? null : compared?.reason) ?? null;
}

/** A request in sentences. */
function told(it) {
  const lines = [];
  if (it.shed) lines.push(`It was turned away: ${worded(it.shed)}.`);
  else if (it.replica) lines.push(`It went to ${place(it)}: ${worded(it.reason) ?? "no reason is known"}.`);
  else if (it.region) lines.push(`It was forwarded to ${it.region}: ${worded(it.compared?.reason) ?? "no other way was left"}.`);
  else lines.push(`No replica was asked: ${it.node} answered it itself.`);
  if (it.compared) {
    const here = it.compared.here_ms === null ? "nothing here could serve it" : `${tenth(it.compared.here_ms)} ms here`;
    const there = it.compared.best ? `${tenth(it.compared.best_ms)} ms in ${it.compared.best}, the best other region` : "no other region could take it";
    lines.push(`Regions were compared: ${here}, ${there}.`);
  }
  if (it.expected) {
    const { first_token_ms: first, wait_ms: wait, prefill_ms: prefill, prompt_tokens: prompt, cached_tokens: cached, running } = it.expected;
    const isWhole = !it.is_stream && it.status >= 200 && it.status < 300;
    const came = it.first_token_ms !== null ? `it came after ${ms(it.first_token_ms)}` : isWhole ? "the reply came in one piece" : "it never came";
    lines.push(`The first token was expected after ${ms(first)} (${ms(wait)} waiting, ${ms(prefill)} reading ${count(prompt - cached)} of ${count(prompt)} tokens, ${count(running)} running there); ${came}.`);
  }
  const retries = it.retries > 0 ? `, ${count(it.retries)} retries` : "";
  lines.push(`It ended as ${it.end.replaceAll("_", " ")} with status ${it.status}, after ${ms(it.duration_ms)}${retries}.`);
  lines.push(`Id ${it.id ?? "–"}, trace ${it.trace_id ?? "–"}, route ${it.route ?? "–"}, tenant ${it.tenant ?? "–"}.`);
  return lines.map((line) => h("p", {}, line));
}
