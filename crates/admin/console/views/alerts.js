// Alerts: what is wrong now and what to do; and the certificates, whose end is known ahead.

import { ApiError, get } from "../api.js";
import { badge, h, section, setText } from "../dom.js";
import { count, time } from "../format.js";
import { certificateRows, problemsOf } from "../problems.js";
import { Table } from "../table.js";

const WORDS = { bad: "urgent", warn: "look soon", info: "for your information" };

export function alertsView(page) {
  const calm = h("p", { class: "empty" }, "This node knows of no problem.");
  const list = h("ul", { class: "alerts" });
  const table = certificateTable();
  let shown = null;
  const update = () => {
    const problems = problemsOf(page.live.snapshot, page.certificates, page.clients);
    // Titles count seconds, which is no reason to make a link anew that has the focus.
    const same = JSON.stringify(problems.map((it) => [it.level, it.detail, it.todo]));
    calm.hidden = problems.length > 0;
    if (same === shown) {
      problems.forEach((it, at) => setText(list.children[at].querySelector("h3"), it.title));
      return;
    }
    shown = same;
    list.replaceChildren(...problems.map(item));
  };
  const look = page.every(30, async (signal) => {
    const own = await get("certificates", signal);
    const isAlone = !page.live.snapshot.node.node.is_in_cluster;
    const nodes = isAlone ? null : await get("certificates/nodes", signal).catch((error) => {
      // Somebody else is looking at this moment.
      if (error instanceof ApiError && error.status === 429) return null;
      throw error;
    });
    page.certificates = certificateRows(own, nodes);
    table.update(page.certificates);
    page.count();
    update();
  });
  table.update(page.certificates ?? []);
  list.replaceChildren();
  const element = h("div", {}, look.problem, calm, list, section("Certificates", table.element));
  return { title: "Alerts", element, update };
}

function item(problem) {
  return h("li", { class: problem.level }, badge(WORDS[problem.level], problem.level),
    h("h3", {}, problem.title), h("p", {}, problem.detail),
    h("p", {}, h("strong", {}, "What to do: "), problem.todo),
    h("p", { class: "hint" }, "See ", h("code", {}, problem.doc), problem.link ? [" and ", h("a", { href: problem.link }, "the view of it")] : null, "."));
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
      { name: "Serial", of: (it) => it.serial || "–", cell: (it) => h("code", {}, it.serial || "–") },
      { name: "Fault", of: (it) => it.fault ?? "–" },
    ],
  });
}
