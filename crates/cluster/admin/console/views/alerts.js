// Alerts: the problems that the node knows of, with what to do; and the certificates, whose end is known ahead.

import { ApiError, get } from "../api.js";
import { badge, h, section, setText } from "../dom.js";
import { count, time } from "../format.js";
import { certificateRows } from "../certificates.js";
import { Table } from "../table.js";

const LEVELS = { page: "bad", ticket: "warn", info: "info" };

export function alertsView(page) {
  const calm = h("p", { class: "empty" }, "This node knows of no problem.");
  const problems = problemList(page);
  const table = certificateTable();
  const update = () => {
    problems.update();
    calm.hidden = page.live.snapshot.node.problems.length > 0;
  };
  const look = page.every(30, async (signal) => {
    const own = await get("certificates", signal);
    const isAlone = !page.live.snapshot.node.node.is_in_cluster;
    const nodes = isAlone ? null : await get("certificates/nodes", signal).catch((error) => {
      // Another page is looking at this moment.
      if (error instanceof ApiError && error.status === 429) return null;
      throw error;
    });
    page.certificates = certificateRows(own, nodes);
    table.update(page.certificates);
  });
  table.update(page.certificates ?? []);
  const element = h("div", {}, look.problem, section("Problems", calm, problems.element), section("Certificates", table.element));
  return { title: "Alerts", element, update };
}

/** The list of problems that the node knows of. */
export function problemList(page) {
  const element = h("ul", { class: "alerts" });
  let shown = null;
  const update = () => {
    const { problems } = page.live.snapshot.node;
    // Titles count seconds, which is no reason to make a link anew that has the focus.
    const same = JSON.stringify(problems.map((it) => [it.urgency, it.kind, it.cause, it.remedy]));
    if (same === shown) {
      problems.forEach((it, at) => setText(element.children[at].querySelector("h3"), it.title));
      return;
    }
    shown = same;
    element.replaceChildren(...problems.map(item));
  };
  return { element, update };
}

/** A problem with its cause, the next step and where to read on. */
function item(problem) {
  const level = LEVELS[problem.urgency];
  return h("li", { class: level }, badge(problem.urgency, level),
    h("h3", {}, problem.title), h("p", {}, problem.cause),
    h("p", {}, h("strong", {}, "What to do: "), problem.remedy),
    h("p", { class: "hint" }, docLink(problem.doc), problem.view ? [" · ", h("a", { href: problem.view }, "The view of it")] : null));
}

/** A link to a page of the docs, which the node serves, too. */
function docLink(doc) {
  const page = doc.replace(/\.md(?=#|$)/, ".html");
  return h("a", { href: `../docs/${page}`, target: "_blank", rel: "noreferrer" }, "What to read");
}

function certificateTable() {
  const days = (it) => (it.daysLeft === null ? null : Math.floor(it.daysLeft));
  const isSeen = (it) => it.daysLeft !== null;
  const level = (it) => (!isSeen(it) ? "warn" : it.fault || it.daysLeft < 3 ? "bad" : it.daysLeft < 14 ? "warn" : "ok");
  const left = (it) => (!isSeen(it) ? "not seen" : it.fault ? "not good" : it.daysLeft < 0 ? "expired" : days(it) === 1 ? "1 day left" : `${count(days(it))} days left`);
  return new Table({
    caption: "Certificates", key: (it) => `${it.name}/${it.serial}`, empty: "This node has no certificates: it speaks cleartext and is in no cluster.", sort: { at: 2, down: false },
    columns: [
      { name: "Of", of: (it) => it.name, sort: (it) => it.name },
      { name: "Used for", of: (it) => it.use, sort: (it) => it.use },
      { name: "State", of: left, sort: (it) => it.daysLeft, cell: (it) => badge(left(it), level(it)) },
      { name: "Ends", of: (it) => time(it.endsMs), sort: (it) => it.endsMs },
      { name: "Holder", of: (it) => it.holder || "–" },
      { name: "Fault", of: (it) => it.fault ?? "–", quiet: (it) => !it.fault },
      { name: "Serial", of: (it) => it.serial || "–", cell: (it) => h("code", { class: "short", title: it.serial }, it.serial || "–") },
    ],
  });
}
