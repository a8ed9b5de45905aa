// Problems that the node knows of now, each with what to do.

import { bytes, count, duration, percent } from "./format.js";
import { worded } from "./words.js";

/** Days before the end of a certificate at which it is a problem, and at which it is urgent. */
const DAYS_WARN = 14;
const DAYS_BAD = 3;
/** Share of a region's places from which on it counts as full. */
const FULL = 0.95;
/** Free share and bytes of the data folder below both of which it is nearly full, as in the node's own sentence. */
const ROOM_SHARE = 0.1;
const ROOM_BYTES = 2 ** 30;
/** Ratio to the median of others, and milliseconds above it, from which on a replica is slow, as `spillway replicas` has it. */
const SLOW_RATIO = 3;
const SLOW_MS = 50;
/** Refused requests per second from which on a client is named, as the alert SpillwayTenantOverLimit has it. */
const REFUSED_PER_S = 1;
/** Share of all requests from which on a client is named when a region is full. */
const MOST = 0.5;

/** Problems, the worst first. `level` is `bad`, `warn` or `info`. */
export function problemsOf(snapshot, certificates, clients) {
  if (!snapshot) return [];
  const all = [...ofNode(snapshot.node), ...ofDiscoveries(snapshot.node.node), ...ofLog(snapshot.node), ...ofData(snapshot.node), ...ofNodes(snapshot.node.nodes),
    ...ofRegions(snapshot.regions, clients), ...ofReplicas(snapshot.replicas), ...ofModels(snapshot.replicas), ...ofSlow(snapshot.replicas), ...ofClients(clients), ...ofCertificates(seen(certificates ?? [], snapshot.node.nodes))];
  const rank = { bad: 0, warn: 1, info: 2 };
  return all.sort((one, other) => rank[one.level] - rank[other.level]);
}

function ofNode({ node }) {
  if (node.phase === "leaving") return [problem("info", `Node ${node.name} is stopping`, "It takes no new clients and lets requests finish.", "Nothing, if that was meant.", "guides/upgrade.md")];
  if (node.phase === "awaiting_limits") return [problem("bad", `Node ${node.name} waits for its shares of limits`, "It serves nobody before it knows them.", "See whether its region's nodes reach the leader.", "explanation/limits.md")];
  if (node.replicas.up === 0 && !node.is_served_elsewhere) return [problem("bad", "Nothing can be served", "No replica here is up, and no other region serves.", "Look at the replicas below and at their logs.", "explanation/replicas.md")];
  return [];
}

function ofDiscoveries({ discoveries }) {
  const levels = { unanswered: "bad", stale: "warn", pending: "info" };
  return (discoveries ?? []).filter((it) => it.state in levels).map((it) => {
    const age = it.answered_ms === null ? "It was never answered." : `Its last answer is ${duration(it.answered_ms / 1_000)} old; ${count(it.replicas)} replicas stay in use.`;
    return problem(levels[it.state], `Discovery ${it.name} is ${it.state}`, `It asks ${it.source}. ${age}${it.failure ? ` The last try: ${it.failure}.` : ""}`, "Ask the name server yourself, or read the file.", "explanation/replicas.md", "#/replicas");
  });
}

function ofLog({ node, log, summary }) {
  if (!log) return [];
  if (log.fault) return [problem("bad", "The log has stopped", log.fault, "The reason says what to do. Requests are served meanwhile.", "guides/incidents.md")];
  if (!log.cluster) return [problem("bad", "The cluster is not formed yet", "The first nodes have not met.", "Start the nodes that the config names as peers.", "start/three-regions.md")];
  const troubles = (log.troubles ?? []).map((it) => problem("bad", "A disk or a state is not what the cluster knows", it, "See what to do in the guide.", "guides/disaster-recovery.md", "#/control"));
  if (troubles.length > 0) return troubles;
  if (/NO (QUORUM|LEADER)/.test(summary)) return [problem("bad", "No majority of voters can be reached", `Node ${node.name} can agree on nothing: orders are refused. Requests are served by what is known.`, "Bring voters back. If they are lost for good, begin a new cluster from this state.", "guides/disaster-recovery.md")];
  return [];
}

function ofData({ node: { data } }) {
  if (!data || data.total_bytes === 0) return [];
  const share = data.free_bytes / data.total_bytes;
  if (share >= ROOM_SHARE || data.free_bytes >= ROOM_BYTES) return [];
  return [problem(share < 0.01 ? "bad" : "warn", `The data folder is nearly full: ${bytes(data.free_bytes)} of ${bytes(data.total_bytes)} are free`,
    `It is ${data.folder}. When nothing can be written, the log of this node stops.`, "Make room on that disk.", "guides/incidents.md", "#/control")];
}

function ofNodes(nodes) {
  const stopped = nodes.filter((it) => it.state === "up" && it.fault).map((it) =>
    problem("warn", `The log of node ${it.name} has stopped`, `${it.fault}. It serves its clients by what it knew last.`, "Look at that node's disk and log, then start it again.", "guides/incidents.md", "#/control"));
  const silent = nodes.filter((it) => ["silent", "never heard"].includes(it.state)).map((it) => {
    const since = it.silent_ms ? ` for ${duration(it.silent_ms / 1_000)}` : "";
    const why = it.fault ? ` The last attempt to connect said: ${it.fault}.` : "";
    return problem("warn", `Node ${it.name} is ${it.state}${since}`, `It is in ${it.region || "a region that is not known"}.${why}`, "See whether it runs and whether its address can be reached.", "guides/disaster-recovery.md");
  });
  return [...stopped, ...silent];
}

function ofRegions(regions, clients) {
  const all = [];
  for (const it of regions) {
    const link = `#/regions/${encodeURIComponent(it.region)}`;
    const load = it.places ? it.in_flight / it.places : 0;
    if (!it.is_heard) {
      const age = it.heard_ms ? `It was heard ${duration(it.heard_ms / 1_000)} ago.` : "It was never heard.";
      all.push(problem("bad", `Region ${it.region} is lost`, `${age} Its clients are led elsewhere, and nothing spills there.`, "See whether its nodes run, and the network to them.", "guides/incidents.md", link));
    } else if (it.is_broken) {
      all.push(problem("warn", `Replies of ${it.region} fail`, "Its circuit breaker is open: nothing spills there for a moment.", "Look at that region's replicas.", "explanation/regions.md", link));
    } else if (load >= FULL && it.waiting > 0) {
      all.push(problem("warn", `Region ${it.region} is full`, `${count(it.waiting)} requests wait for a place.${it.is_own ? mostOf(clients) : ""}`, "Add replicas, or let more spill over. A limit holds back a client that takes too much.", "guides/capacity.md", link));
    }
  }
  return all;
}

/** Names the client that sends most of the requests, if one does. */
function mostOf(clients) {
  const busiest = clients.busiest();
  return busiest && busiest.share >= MOST ? ` ${percent(busiest.share)} of the requests are of ${busiest.who}.` : "";
}

function ofClients(clients) {
  return clients.refused.filter((it) => it.perS >= REFUSED_PER_S).map((it) =>
    problem("warn", `${count(it.perS)} requests per second of ${it.who} are refused`, `Of tenant ${it.tenant ?? "none"}: ${worded(it.shed)}. All others are served.`,
      "Nothing, if that limit is meant. spillway limits set raises it, spillway keys revoke ends the key.", "guides/incidents.md", "#/limits"));
}

/** Median time to first token of others that serve one of a replica's models, if it is much slower than that; else null. */
export function usualIfSlow(it, replicas) {
  if (it.latency_ms === null) return null;
  const others = replicas.filter((other) => other !== it && other.latency_ms !== null && ["serving", "ramping"].includes(other.state) && other.models.some((model) => it.models.includes(model)));
  const times = others.map((other) => other.latency_ms).sort((one, other) => one - other);
  // Of two the slower one: a single idle replica is no measure for those that work.
  const usual = times[Math.floor(times.length / 2)];
  // The average of a replica that is given nothing stays; the percentile is of the last seconds.
  const least = Math.max(usual * SLOW_RATIO, usual + SLOW_MS);
  return it.latency_ms >= least && it.p99_ms >= least ? usual : null;
}

/** Replicas that serve and are slow. The times of one that ramps up may be those of before. */
function ofSlow(replicas) {
  return replicas.filter((it) => ["serving", "trial"].includes(it.state)).flatMap((it) => {
    const usual = usualIfSlow(it, replicas);
    if (usual === null) return [];
    return [problem("warn", `Replica ${it.name} is slow: its first token takes ${count(it.latency_ms)} ms, that of others ${count(usual)} ms`, "It serves what is given to it. The policy gives it less if it goes by times.",
      "Drain it, and look at its server.", "guides/incidents.md", "#/replicas")];
  });
}

function ofReplicas(replicas) {
  const levels = { down: "bad", ejected: "warn", starting: "info", "warming up": "info" };
  return replicas.filter((it) => it.state in levels).map((it) =>
    problem(levels[it.state], `Replica ${it.name} is ${it.state}`, `Why: ${it.reason ?? "not known"}.`, levels[it.state] === "info" ? "Nothing yet: it takes a while." : "Look at the server's log; other replicas serve meanwhile.", "explanation/replicas.md", "#/replicas"));
}

/** Replicas that say they do not have a model that they should serve. */
function ofModels(replicas) {
  return replicas.filter((it) => it.models_missing.length > 0).map((it) =>
    problem(it.state === "wrong model" ? "bad" : "warn", `Replica ${it.name} does not have ${it.models_missing.join(", ")}`, "It says so by its list of models, or in reply to requests. Other replicas get the requests.",
      "Load the model there, or correct the replica's models in the config.", "explanation/replicas.md", "#/replicas"));
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
    all.push(problem(level, title, `${some.length === 1 ? "" : `${some.map((it) => it.name).join(", ")}. `}With an expired certificate nodes refuse each other's links, and clients refuse a listener.`,
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
