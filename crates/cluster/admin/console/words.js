// Meanings of the names that decisions have in the API, as the node gives them.

import { get } from "./api.js";

/** Reasons by kind and name. */
let kinds = new Map();

/** Reads all reasons. A node that was restarted may be a newer one, with more of them. */
export async function readReasons(signal) {
  const answer = await get("v1/reasons", signal);
  kinds = new Map(answer.kinds.map(({ kind, reasons }) => [kind, new Map(reasons.map((it) => [it.name, it]))]));
}

/** A reason of the first kind that knows it, as it follows a colon. Others are shown as the API names them. */
export function worded(name, ...asked) {
  if (!name) return null;
  const text = asked.map((kind) => kinds.get(kind)?.get(name)?.text).find(Boolean);
  return text ? text[0].toLowerCase() + text.slice(1) : name.replaceAll("_", " ");
}

/** Names of the reasons of a kind, in their order. */
export const names = (kind) => [...(kinds.get(kind)?.keys() ?? [])];

/** Address of the docs about a code. */
export const docsOf = (code) => `../docs/${(kinds.get("code")?.get(code)?.docs ?? "reference/errors.md").replace(".md", ".html")}`;
