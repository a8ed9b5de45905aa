// Keys: making, changing, rotating and revoking them.

import { NEW, order as give, part } from "./api.js";
import { openDialog, order } from "./actions.js";
import { h } from "./dom.js";
import { askFor, names } from "./form.js";
import { day } from "./format.js";

const HOUR_MS = 3_600_000;
/** Times that an old key goes on, in hours. */
const GRACE = { "at once": 0, "in 1 hour": 1, "in 1 day": 24, "in 7 days": 168 };

/** Fields of a key's record. */
function fieldsOf(page, record) {
  const { regions } = page.live.snapshot;
  const models = [...new Set(regions.flatMap((it) => it.models))].sort();
  return [
    { name: "models", label: "Models", value: record.models.join(", "), options: models, isFree: true, hint: "Names with commas between; empty for all." },
    { name: "regions", label: "Regions", value: record.regions.join(", "), options: regions.map((it) => it.region), isFree: true, hint: "Regions that may serve its requests; empty for all." },
    { name: "priority", label: "Priority class", type: "number", min: 0, value: String(record.priority), hint: "0 is served first." },
    { name: "expires", label: "Ends on", type: "date", value: record.expires_ms ? day(record.expires_ms) : "", hint: "At midnight UTC; empty for never." },
  ];
}

const termsOf = ({ models, regions, priority, expires }) => ({
  models: names(models), regions: names(regions), priority: Number(priority || 0), expires_ms: expires ? Date.parse(`${expires}T00:00:00Z`) : null,
});

/** Asks for a new key, and shows its secret. */
export function createKey(page, tenants, tenant = "") {
  const blank = { models: [], regions: [], priority: 0, expires_ms: null };
  askFor({
    title: "Create a key", verb: "Create", about: "All nodes take it at once. Its secret is shown this once and kept nowhere.",
    fields: [
      { name: "key", label: "Name", hint: "As it appears in lists and logs; drawn at random if it is empty." },
      { name: "tenant", label: "Tenant", value: tenant, options: tenants, isFree: true, hint: "Who is charged; a key for clients needs one." },
      { name: "role", label: "Role", options: ["client", "read", "operate", "admin"], value: "client", hint: "client: requests to models. The others: this console and the admin API." },
      ...fieldsOf(page, blank),
      { name: "creates", label: "Make the tenant if it is new, and take all names as they are", type: "checkbox" },
    ],
    submit: async (values) => {
      const record = { role: values.role, tenant: values.tenant || null, ...termsOf(values) };
      const made = await give("POST", `v1/keys${values.creates ? "?create=true" : ""}`, { key: values.key || null, record });
      page.refresh();
      queueMicrotask(() => showSecret(page, made, "The key is made."));
    },
  });
}

/** Asks for other terms of a key, and shows what changes. */
export function editKey(page, { key, record, version }) {
  askFor({
    title: `Limit key ${key}`, verb: "Review", fields: fieldsOf(page, record),
    submit: async (values) => {
      const plan = { title: `Change key ${key}`, verb: `Change ${key}`, method: "PATCH", path: `v1/keys/${part(key)}`, body: termsOf(values), version, about: "It holds for requests that begin from now on." };
      queueMicrotask(() => order(page, plan));
    },
  });
}

/** Asks for a key in place of an old one, which goes on for a while. */
export function rotateKey(page, { key, record, version }) {
  askFor({
    title: `Rotate key ${key}`, verb: "Rotate", about: "Makes a key with the same rights. The old one goes on until its clients have the new one.",
    fields: [
      { name: "key", label: "Name of the new key", value: nextName(key), required: true },
      { name: "grace", label: `End ${key}`, options: Object.keys(GRACE), value: "in 1 day" },
    ],
    submit: async (values) => {
      const made = await give("POST", "v1/keys", { key: values.key, record });
      const endsMs = Date.now() + GRACE[values.grace] * HOUR_MS;
      const isSooner = !record.expires_ms || endsMs < record.expires_ms;
      // The new key is there whatever becomes of the old one, and its secret must be shown.
      const failed = isSooner ? await give("PATCH", `v1/keys/${part(key)}`, { expires_ms: endsMs }, version).then(() => null, (error) => error) : null;
      page.refresh();
      const about = failed ? `The new key is made, but ${key} goes on: ${failed.message}. Set its end, or revoke it.` : `${values.key} is made. ${key} ends ${values.grace}.`;
      queueMicrotask(() => showSecret(page, made, about));
    },
  });
}

/** `acme-2` after `acme-1`, and `acme-2` after `acme`. */
function nextName(key) {
  const [, name, number] = /^(.*?)(?:-(\d{1,6}))?$/.exec(key);
  return `${name}-${number ? Number(number) + 1 : 2}`;
}

/** Plan of ending a key for good. */
export const revokePlan = ({ key, version }) => ({
  title: `Revoke key ${key}`, verb: `Revoke ${key}`, path: `v1/keys/${part(key)}/revoke`, version,
  about: `Every node refuses ${key} from now on. A revoked key never works again; requests in flight finish.`,
});

function showSecret(page, { key, secret }, about) {
  const text = h("code", { class: "secret" }, secret);
  const copied = h("span", { role: "status", class: "hint" });
  const copy = h("button", { type: "button", class: "main", onclick: async () => {
    // A browser may refuse, such as over plain HTTP from elsewhere: the text is marked to be copied by hand.
    await navigator.clipboard?.writeText(secret).then(() => { copied.textContent = "Copied."; }, () => mark(text));
    if (!navigator.clipboard) mark(text);
  } }, "Copy");
  openDialog(`Secret of ${key}`, [h("p", {}, about), text, h("p", { class: "hint" }, "It is shown this once: no node keeps it. "), copied], [copy], "Done");
}

function mark(element) {
  getSelection().selectAllChildren(element);
}

/** Asks for a limit, and shows what changes. `item` is the record of a limit that exists. */
export function editLimit(page, about, item) {
  const record = item?.record ?? {};
  const number = (name) => (record[name] ?? "") === "" ? "" : String(record[name]);
  const isKnown = Boolean(item);
  askFor({
    title: isKnown ? `Limit ${item.key}` : "Set a limit", verb: "Review", about: "It holds in all regions together. An empty field sets no limit.",
    fields: [
      isKnown ? null : { name: "about", label: "Of", value: about.length === 1 ? about[0] : "", options: about, isFree: true, required: true, hint: "global, tenant:NAME, key:NAME or model:NAME." },
      { name: "requests_per_min", label: "Requests per minute", type: "number", min: 0, value: number("requests_per_min") },
      record.requests_per_s ? { name: "requests_per_s", label: "Requests per second", type: "number", min: 0, value: number("requests_per_s") } : null,
      { name: "tokens_per_min", label: "Tokens per minute", type: "number", min: 0, value: number("tokens_per_min") },
      { name: "concurrency", label: "Requests at a time", type: "number", min: 0, value: number("concurrency") },
    ].filter(Boolean),
    submit: async ({ about: name, ...values }) => {
      const key = item?.key ?? name;
      const body = Object.fromEntries(Object.entries(values).map(([field, text]) => [field, text === "" ? null : Number(text)]));
      if (!isKnown && Object.values(body).every((it) => it === null)) throw new Error("No field is set: a limit needs a number");
      const plan = { title: `Limit ${key}`, verb: "Set the limit", method: isKnown ? "PATCH" : "PUT", path: `v1/limits/${part(key)}`, body, version: item?.version ?? NEW, about: "It holds for requests that begin from now on." };
      queueMicrotask(() => order(page, plan));
    },
  });
}

/** Plan of removing a limit. */
export const removeLimitPlan = ({ key, version }) => ({
  title: `Remove the limit of ${key}`, verb: "Remove the limit", method: "DELETE", path: `v1/limits/${part(key)}`, version, about: `Requests of ${key} are limited no more.`,
});
