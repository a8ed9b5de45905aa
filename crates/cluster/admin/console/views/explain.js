// Explain: where a request would go from this node, and why not elsewhere. Sends it nowhere.

import { send } from "../api.js";
import { badge, facts, h, section, setText } from "../dom.js";
import { count, tenth } from "../format.js";
import { Table } from "../table.js";
import { names, worded } from "../words.js";

export function explainView(page) {
  const models = [...new Set(page.live.snapshot.regions.flatMap((it) => it.models))].sort();
  const field = (id, label, input, hint = null) => h("div", { class: "field" }, h("label", { for: id }, label), input, hint ? h("p", { class: "hint", id: `${id}-hint` }, hint) : null);
  const model = h("input", { id: "model", list: "models", required: true, autocomplete: "off", value: page.asked("model") || (models[0] ?? "") });
  const prompt = h("textarea", { id: "prompt", rows: 4, required: true, value: "Hello" });
  const tenant = h("input", { id: "tenant", autocomplete: "off", value: page.asked("tenant") });
  const client = h("input", { id: "client", autocomplete: "off", "aria-describedby": "client-hint" });
  const path = h("input", { id: "path", value: "/v1/chat/completions", required: true });
  const headers = h("textarea", { id: "headers", rows: 2, "aria-describedby": "headers-hint" });
  const answer = h("div", { class: "answer", "aria-live": "polite" });
  const problem = h("p", { class: "problem", role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    setText(problem, "");
    // The prompt stays out of the address, which ends up in histories and chats.
    page.ask({ model: model.value.trim(), tenant: tenant.value.trim() });
    try {
      const body = order({ model, prompt, tenant, client, path, headers });
      answer.replaceChildren(...shown(await (await send("POST", "v1/explain", { body })).json()));
    } catch (error) {
      answer.replaceChildren();
      setText(problem, error.remedy ? `${error.message}: ${error.remedy}` : error.message);
    }
  };
  const form = h("form", { class: "explain", onsubmit: submit }, h("datalist", { id: "models" }, models.map((it) => h("option", { value: it }))),
    field("model", "Model", model), field("tenant", "Tenant (may be empty)", tenant),
    field("client", "Client's address (may be empty)", client, "Its country decides where it may be served, if rules say so."), field("path", "Path", path),
    field("prompt", "Prompt", prompt), field("headers", "Headers (may be empty)", headers, "One a line, such as x-session-id: 7"),
    h("div", { class: "buttons" }, h("button", { class: "main", type: "submit" }, "Explain")));
  const intro = h("p", { class: "hint" }, "The request is sent nowhere. The answer is about this node and this moment.");
  return { title: "Explain", element: h("div", {}, intro, form, problem, answer) };
}

function order({ model, prompt, tenant, client, path, headers }) {
  const lines = headers.value.split("\n").map((line) => line.trim()).filter(Boolean);
  const pairs = lines.map((line) => {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`“${line}” is no header: write name: value`);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
  const content = path.value.endsWith("/completions") && !path.value.endsWith("/chat/completions")
    ? { prompt: prompt.value } : { messages: [{ role: "user", content: prompt.value }] };
  return {
    path: path.value.trim(), headers: Object.fromEntries(pairs), tenant: tenant.value.trim() || null,
    client: client.value.trim() || null, body: { model: model.value.trim(), ...content },
  };
}

function shown(answer) {
  const table = candidates("Replicas here", answer.candidates ?? [], "replica");
  const regions = candidates("Other regions", answer.regions ?? [], "region");
  const known = facts(["Decision", "Reason", "Model", "Route", "Policy", "Prompt blocks", "Most in one cache", "Client's country", "May be served"]);
  known.set({
    Decision: answer.decision ?? "–", Reason: because(answer) ?? "–", Model: answer.model ?? "–", Route: answer.route ?? "–", Policy: answer.policy ?? "–", "Prompt blocks": count(answer.blocks),
    "Most in one cache": count(answer.cached_blocks), "Client's country": answer.client_country ?? "unknown", "May be served": answer.may_be_served ?? "everywhere",
  });
  const level = { replica: "ok", region: "ok", wait: "warn", shed: "bad", refuse: "bad" }[answer.decision] ?? "ok";
  return [h("p", { class: `sentence ${level}` }, sentence(answer)), known.element, section("Replicas here", table), section("Other regions", regions)];
}

function sentence(answer) {
  const { decision, chosen, reason, model } = answer;
  const why = reason ? ` (${because(answer)})` : "";
  const words = {
    replica: `The request would go to replica ${chosen} of this region${why}.`, region: `The request would go to region ${chosen}${why}.`,
    wait: `The request would wait here for a slot${why}.`, shed: `The request would be refused${why}.`, refuse: `The request would be refused${why}.`,
  };
  return words[decision] ?? (chosen ? `${model ?? "The request"} would be served by ${chosen}${why}.` : `The request would go nowhere${why}.`);
}

/** Kinds that the reason of a decision can be of: a session's region is chosen like its replica, and all replicas may have asked for a pause. */
const REASONS = { replica: ["replica"], region: ["region", "refusal"], wait: ["region", "refusal"], shed: ["shed", "region", "refusal"] };
const because = ({ decision, reason }) => worded(reason, ...(REASONS[decision] ?? ["refusal"]));

/** Candidates of a kind with each term of their cost in a column, without those that are zero everywhere. */
function candidates(caption, rows, kind) {
  const short = (name) => name.replace(/_ms$/, "");
  const places = names(`${kind}_cost`);
  const place = (name) => (places.includes(name) ? places.indexOf(name) : places.length);
  const counts = (name) => rows.some((it) => Math.abs(it.terms?.[name] ?? 0) >= 0.05);
  const terms = [...new Set(rows.flatMap((it) => Object.keys(it.terms ?? {})))].filter(counts).sort((one, other) => place(one) - place(other));
  const table = new Table({
    caption, key: (it) => `${it.region}/${it.name}`, empty: "None was weighed.", sort: { at: 2, down: false },
    columns: [
      { name: "Name", of: (it) => it.name, sort: (it) => it.name },
      { name: "Chosen", of: (it) => (it.chosen ? "chosen" : ""), sort: (it) => (it.chosen ? 0 : 1), cell: (it) => (it.chosen ? badge("chosen", "ok") : "") },
      { name: "Cost", number: true, of: (it) => (it.cost_ms === null ? "–" : `${tenth(it.cost_ms)} ms`), sort: (it) => it.cost_ms },
      ...terms.map((name) => ({ name: short(name).replaceAll("_", " "), number: true, of: (it) => (it.terms?.[name] === null || it.terms?.[name] === undefined ? "–" : tenth(it.terms[name])), sort: (it) => it.terms?.[name] })),
      { name: "Why not", of: (it) => worded(it.why, `${kind}_obstacle`) ?? "–", quiet: (it) => !it.why },
    ],
  });
  table.update(rows);
  const known = terms.filter((name) => places.includes(name));
  const legend = known.map((name) => h("div", {}, h("dt", {}, short(name).replaceAll("_", " ")), h("dd", {}, worded(name, `${kind}_cost`))));
  return [table.element, legend.length > 0 ? h("dl", { class: "legend" }, legend) : null];
}
