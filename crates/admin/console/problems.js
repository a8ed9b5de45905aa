// Problems that the node knows of now, each with what to do.

import { duration } from "./format.js";

/** Days before the end of a certificate at which it is a problem, and at which it is urgent. */
const DAYS_WARN = 14;
const DAYS_BAD = 3;
/** Share of a region's places from which on it counts as full. */
const FULL = 0.95;

/** Problems, the worst first. `level` is `bad`, `warn` or `info`. */
export function problemsOf(snapshot, certificates) {
  if (!snapshot) return [];
  const all = [...ofNode(snapshot.node), ...ofLog(snapshot.node), ...ofNodes(snapshot.node.nodes),
    ...ofRegions(snapshot.regions), ...ofReplicas(snapshot.replicas), ...ofCertificates(seen(certificates ?? [], snapshot.node.nodes))];
  const rank = { bad: 0, warn: 1, info: 2 };
  return all.sort((one, other) => rank[one.level] - rank[other.level]);
}

function ofNode({ node }) {
  if (node.phase === "leaving") return [problem("info", `Node ${node.name} is stopping`, "It takes no new clients and lets requests finish.", "Nothing, if that was meant.", "guides/upgrade.md")];
  if (node.phase === "awaiting_limits") return [problem("bad", `Node ${node.name} waits for its shares of limits`, "It serves nobody before it knows them.", "See whether its region's nodes reach the leader.", "explanation/limits.md")];
  if (node.replicas.up === 0 && !node.is_served_elsewhere) return [problem("bad", "Nothing can be served", "No replica here is up, and no other region serves.", "Look at the replicas below and at their logs.", "explanation/replicas.md")];
  return [];
}

function ofLog({ node, log, summary }) {
  if (!log) return [];
  if (log.fault) return [problem("bad", "The log has stopped", log.fault, "Often the disk is full or broken: repair it, then start the node again.", "guides/disaster-recovery.md")];
  if (!log.cluster) return [problem("bad", "The cluster is not formed yet", "The first nodes have not met.", "Start the nodes that the config names as peers.", "start/three-regions.md")];
  if (/NO (QUORUM|LEADER)/.test(summary)) return [problem("bad", "No majority of voters can be reached", `Node ${node.name} can agree on nothing: orders are refused. Requests are served by what is known.`, "Bring voters back. If they are lost for good, begin a new cluster from this state.", "guides/disaster-recovery.md")];
  return [];
}

function ofNodes(nodes) {
  return nodes.filter((it) => ["silent", "never heard"].includes(it.state)).map((it) => {
    const since = it.silent_ms ? ` for ${duration(it.silent_ms / 1_000)}` : "";
    const why = it.fault ? ` The last attempt to connect said: ${it.fault}.` : "";
    return problem("warn", `Node ${it.name} is ${it.state}${since}`, `It is in ${it.region || "a region that is not known"}.${why}`, "See whether it runs and whether its address can be reached.", "guides/disaster-recovery.md");
  });
}

function ofRegions(regions) {
  const all = [];
  for (const it of regions) {
    const link = `#/regions/${encodeURIComponent(it.region)}`;
    const load = it.places ? it.in_flight / it.places : 0;
    if (!it.is_heard) {
      const age = it.heard_ms ? `It was heard ${duration(it.heard_ms / 1_000)} ago.` : "It was never heard.";
      all.push(problem("bad", `Region ${it.region} is lost`, `${age} Its clients are led elsewhere, and nothing spills there.`, "See whether its nodes run, and the network to them.", "guides/disaster-recovery.md", link));
    } else if (it.is_broken) {
      all.push(problem("warn", `Replies of ${it.region} fail`, "Its circuit breaker is open: nothing spills there for a moment.", "Look at that region's replicas.", "explanation/regions.md", link));
    } else if (load >= FULL && it.waiting > 0) {
      all.push(problem("warn", `Region ${it.region} is full`, `${Math.round(it.waiting)} requests wait for a place.`, "Add replicas, or let more spill over.", "guides/capacity.md", link));
    }
  }
  return all;
}

function ofReplicas(replicas) {
  const levels = { down: "bad", ejected: "warn", starting: "info", "warming up": "info" };
  return replicas.filter((it) => it.state in levels).map((it) =>
    problem(levels[it.state], `Replica ${it.name} is ${it.state}`, `${it.why}.`, levels[it.state] === "info" ? "Nothing yet: it takes a while." : "Look at the server's log; other replicas serve meanwhile.", "explanation/replicas.md", "#/replicas"));
}

/** Certificates without those of nodes that are gone: that is a problem of its own. */
function seen(certificates, nodes) {
  const gone = new Set(nodes.filter((it) => ["silent", "never heard"].includes(it.state)).map((it) => `node ${it.name}`));
  return certificates.filter((it) => !gone.has(it.name));
}

function ofCertificates(certificates) {
  const all = certificates.filter((it) => it.fault).map((it) =>
    problem("bad", `The certificate of ${it.name} is not good`, `${it.fault}.`, "Give it a certificate of the cluster's authority.", "guides/certificates.md"));
  const ending = certificates.filter((it) => !it.fault && it.daysLeft !== null && it.daysLeft < DAYS_WARN);
  // Made on one day, they end on one day: that is one problem.
  for (const [level, some] of [["bad", ending.filter((it) => it.daysLeft < DAYS_BAD)], ["warn", ending.filter((it) => it.daysLeft >= DAYS_BAD)]]) {
    if (some.length === 0) continue;
    const first = Math.min(...some.map((it) => it.daysLeft));
    const when = first < 0 ? "has expired" : `expires in ${duration(first * 86_400)}`;
    const title = some.length === 1 ? `The certificate of ${some[0].name} ${when}` : `${some.length} certificates: the first ${when}`;
    all.push(problem(level, title, `${some.map((it) => it.name).join(", ")}. With an expired certificate nodes refuse each other's links, and clients refuse a listener.`,
      "Renew them with spillway certs renew; an authority is replaced by another.", "guides/certificates.md"));
  }
  return all;
}

const problem = (level, title, detail, todo, doc, link = null) => ({ level, title, detail, todo, doc: `docs/${doc}`, link });

/** Certificates as rows, from `/certificates` and `/certificates/nodes`. */
export function certificateRows(own, nodes) {
  const row = (name, use, certificate, fault = null) => ({
    name, use, fault,
    endsMs: certificate?.not_after_ms ?? null,
    daysLeft: certificate ? (certificate.not_after_ms - Date.now()) / 86_400_000 : null,
    holder: certificate?.name ?? "",
    serial: certificate?.serial ?? "",
  });
  const listeners = (own?.listeners ?? []).map((it) => row(`listener ${it.listener}`, "clients", it.certificate));
  const authorities = (own?.cluster?.authorities ?? []).map((it, at) => row(`authority ${at + 1}`, "cluster", it));
  const ofNodes = (nodes?.nodes ?? []).map((it) => row(`node ${it.node}`, "links", it.certificate, it.fault));
  const mine = !nodes && own?.cluster ? [row("this node", "links", own.cluster.certificate)] : [];
  return [...ofNodes, ...mine, ...authorities, ...listeners];
}
