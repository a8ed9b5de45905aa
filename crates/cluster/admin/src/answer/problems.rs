//! Judgement of problems: from a node's knowledge to [`Problem`]s, the most urgent first.

mod clocks;
mod duration;

use std::collections::BTreeSet;
use std::time::SystemTime;

use spillway_types::unix_ms;

use self::duration::duration;
use super::node_row::NodeRow;
use super::problem::{Problem, ProblemKind, Urgency};
use super::status::StatusAnswer;
use crate::overview::{
    BusiestClient, DataRoom, DiscoveryOverview, LimitedClientOverview, NodeOverview, NodePhase,
    RegionOverview, ReplicaOverview, RequestTroubleOverview,
};

/// Age of a node's knowledge from which on a majority counts as lost. Elections are over within a
/// few seconds.
pub(super) const AGE_MS_MAX: u64 = 10_000;
/// Free part of the data folder's file system below which a node warns, if less than [`ROOM_BYTES`]
/// is free, too: a tenth of a small disk, or what a log and a few snapshots take.
const ROOM_PERCENT: u64 = 10;
const ROOM_BYTES: u64 = 1 << 30;
/// Milliseconds without an answer of the disk after which a node reports a problem.
pub(super) const DISK_MS: u64 = 2_000;
/// Share of requests that fail from which on the node counts as unhealthy.
pub(super) const FAILING_PERCENT_UNHEALTHY: f64 = 50.0;
/// Part of all requests from which on a client is named when a region is full.
const MOST_PERCENT: f64 = 50.0;
/// Part of a region's slots from which on it counts as full.
const FULL: f64 = 0.95;
/// Time before the end of a certificate from which on there is a ticket, and from which on it is
/// urgent. Certificates of a few days, which some renew daily, are no fault.
const CERTIFICATE_TICKET_MS: i64 = 14 * DAY_MS;
pub(super) const CERTIFICATE_URGENT_MS: i64 = 3 * DAY_MS;
const DAY_MS: i64 = 86_400_000;
/// Causes, and problems of another node, that a text lists at most.
const NAMED_MAX: usize = 3;

/// Facts that a node is judged by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight<'a> {
    pub(super) node: &'a NodeOverview,
    pub(super) nodes: &'a [NodeRow],
    pub(super) log: Option<&'a StatusAnswer>,
    pub(super) regions: &'a [RegionOverview],
    pub(super) replicas: &'a [ReplicaOverview],
    pub(super) now: SystemTime,
}

/// Returns the problems, the most urgent first.
pub(super) fn problems(sight: Sight<'_>) -> Vec<Problem> {
    let Sight { node, nodes, log, regions, replicas, now } = sight;
    let mut all: Vec<Problem> = phase(node).into_iter().collect();
    all.extend(node.request_troubles.iter().map(requests));
    all.extend(control_plane(node, nodes, log));
    all.extend(regions.iter().filter_map(|it| region(it, node.busiest_client.as_ref())));
    all.extend(replicas.iter().filter_map(replica));
    all.extend(node.discoveries.iter().filter_map(discovery));
    all.extend(nodes.iter().filter_map(other_node));
    all.extend(versions(nodes));
    let clock = |row: &NodeRow| Some((row.name.clone(), row.clock_ahead_ms?));
    all.extend(clocks::clocks(&nodes.iter().filter_map(clock).collect::<Vec<_>>()));
    all.extend(node.data.as_ref().and_then(room));
    all.extend(disk(log));
    all.extend(node.usage_fault.as_deref().map(usage));
    all.extend(certificate(node, now));
    all.extend(refused_config(node));
    all.extend(node.limited_clients.iter().map(limited));
    // Stable, so problems of equal urgency keep this order.
    all.sort_by_key(|problem| problem.urgency);
    all
}

fn phase(node: &NodeOverview) -> Option<Problem> {
    let kind = ProblemKind::NotServing;
    let name = &node.name;
    match node.phase {
        NodePhase::Leaving => Some(Problem::new(
            kind,
            Urgency::Info,
            format!("Node {name} is stopping"),
            [
                "It takes no new clients and lets requests finish.",
                "Nothing, if the stop was meant.",
            ],
        )),
        NodePhase::AwaitingLimits => Some(Problem::new(
            kind,
            Urgency::Page,
            format!("Node {name} waits for its shares of limits"),
            [
                "It serves no client before it knows them.",
                "See whether the nodes of its region reach the leader.",
            ],
        )),
        NodePhase::Serving if node.replicas.takes_none() && !node.is_served_elsewhere => {
            Some(Problem::new(
                kind,
                Urgency::Page,
                "No request can be served",
                [
                    "No replica here takes requests, and no other region serves them.",
                    "Look at the replicas below and at their logs.",
                ],
            ))
        }
        NodePhase::Serving => None,
    }
}

fn requests(trouble: &RequestTroubleOverview) -> Problem {
    let is_failing = trouble.trouble == "failing";
    let (kind, what) = if is_failing {
        (ProblemKind::RequestsFailing, "fail")
    } else {
        (ProblemKind::RequestsRefused, "are refused")
    };
    let causes = trouble.causes.iter().take(NAMED_MAX).map(|it| it.cause.as_str());
    let causes = causes.collect::<Vec<_>>().join(", ");
    let title = format!("{} of requests {what} ({causes})", percent(trouble.percent));
    let usual = match trouble.usual_percent {
        Some(usual) => format!("In the last hour it was {}.", percent(usual)),
        None => "There were no requests before.".to_owned(),
    };
    let shares = trouble.causes.iter().take(NAMED_MAX);
    let shares = shares.map(|it| format!("{} of them: {}", percent(it.percent), it.cause));
    let cause = format!("{}. {usual}", shares.collect::<Vec<_>>().join("; "));
    let remedy = if is_failing {
        "spillway tail --failed shows each of them; look at the logs of the replicas that are named."
    } else {
        "Add replicas, or let more requests be forwarded; a limit holds back a client that takes too much."
    };
    Problem::new(kind, Urgency::Page, title, [&cause, remedy])
}

fn control_plane(
    node: &NodeOverview,
    nodes: &[NodeRow],
    log: Option<&StatusAnswer>,
) -> Vec<Problem> {
    let Some(log) = log else { return Vec::new() };
    let kind = ProblemKind::ControlPlane;
    if let Some(fault) = &log.fault {
        let remedy = "The cause says what to do. Requests are served meanwhile.";
        return vec![Problem::new(kind, Urgency::Page, "The log has stopped", [fault, remedy])];
    }
    if log.cluster.is_none() {
        return vec![Problem::new(
            kind,
            Urgency::Page,
            "The cluster is not formed yet",
            ["The first nodes have not met.", "Start the nodes that the config names as peers."],
        )];
    }
    let mut all: Vec<Problem> = log
        .troubles
        .iter()
        .map(|trouble| {
            let title = "A disk or a state is not what the cluster knows";
            Problem::new(
                ProblemKind::StateTrouble,
                Urgency::Page,
                title,
                [trouble, "See what to do in the guide."],
            )
        })
        .collect();
    if let Some(lack) = lacks_majority(nodes, log) {
        let title = match lack {
            MajorityLack::Quorum => "No majority of voters can be reached",
            MajorityLack::Leader => "The voters have no leader",
        };
        let cause = format!(
            "Node {} can agree on nothing: orders are refused. Requests are served by what is known.",
            node.name
        );
        let remedy =
            "Bring voters back. If they are lost for good, begin a new cluster from this state.";
        all.push(Problem::new(kind, Urgency::Page, title, [&cause, remedy]));
    }
    all
}

/// Condition that a log without agreement lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MajorityLack {
    /// A majority of voters.
    Quorum,
    /// A leader.
    Leader,
}

/// Returns what the log needs to reach agreement; `None` if it needs nothing.
pub(super) fn lacks_majority(nodes: &[NodeRow], log: &StatusAnswer) -> Option<MajorityLack> {
    let (heard, all) = voters(nodes);
    let is_cut_off = log.freshness.age_ms.is_none_or(|age_ms| age_ms > AGE_MS_MAX);
    match () {
        () if heard * 2 <= all => Some(MajorityLack::Quorum),
        () if log.leader.is_none() => Some(MajorityLack::Leader),
        () if is_cut_off || log.role == "isolated_leader" => Some(MajorityLack::Quorum),
        () => None,
    }
}

/// Returns the number of voters whose reports arrive, and of all.
pub(super) fn voters(nodes: &[NodeRow]) -> (usize, usize) {
    let voters = || nodes.iter().filter(|row| matches!(row.role.as_str(), "leader" | "voter"));
    (voters().filter(|row| is_heard(row)).count(), voters().count())
}

pub(super) fn is_heard(row: &NodeRow) -> bool {
    matches!(row.state.as_str(), "this node" | "up")
}

fn region(it: &RegionOverview, busiest: Option<&BusiestClient>) -> Option<Problem> {
    let name = &it.region;
    let load = it.places.filter(|slots| *slots > 0.0).map_or(0.0, |slots| it.in_flight / slots);
    let problem = if !it.is_heard {
        let cause = match it.heard_ms {
            Some(ms) => format!("Its last report came {} ago.", duration(ms)),
            None => "It has never reported.".to_owned(),
        };
        let cause = format!("{cause} Its clients are redirected, and nothing is forwarded there.");
        let remedy = "See whether its nodes run, and look at the network to them.";
        Problem::new(
            ProblemKind::RegionLost,
            Urgency::Page,
            format!("Region {name} is lost"),
            [&cause, remedy],
        )
    } else if it.is_broken {
        let cause = "Its circuit breaker is open: nothing is forwarded there for a moment.";
        let title = format!("Replies of region {name} fail");
        Problem::new(
            ProblemKind::RegionFailing,
            Urgency::Ticket,
            title,
            [cause, "Look at the replicas of that region."],
        )
    } else if load >= FULL && it.waiting >= 1.0 {
        // A node knows the clients of its own region alone.
        let busiest = busiest.filter(|most| it.is_own && most.percent >= MOST_PERCENT);
        let most = busiest
            .map(|most| format!(" {:.0} % of the requests are of {}.", most.percent, most.client));
        let cause =
            format!("{:.0} requests wait for a slot.{}", it.waiting, most.unwrap_or_default());
        let remedy = "Add replicas, or let more requests be forwarded. A limit holds back a client that takes too much.";
        Problem::new(
            ProblemKind::RegionFull,
            Urgency::Ticket,
            format!("Region {name} is full"),
            [&cause, remedy],
        )
    } else {
        return None;
    };
    Some(problem.at(format!("#/regions/{name}")))
}

fn replica(it: &ReplicaOverview) -> Option<Problem> {
    let (name, state) = (&it.name, it.state.as_str());
    let reason = it.reason.as_deref().unwrap_or("not known");
    let look = "Look at the server's log; other replicas serve meanwhile.";
    let repair = "Drain it, and look at its server.";
    let load = "Load the model there, or correct the replica's models in the config.";
    let away = ProblemKind::ReplicaAway;
    let (kind, title, cause, remedy) = match (state, it.slower_than_ms) {
        ("wrong model" | "without models", _) => {
            let title = format!("Replica {name} has no model to serve");
            (ProblemKind::ModelMissing, title, reason.to_owned(), load)
        }
        ("down", _) => (away, format!("Replica {name} is down"), reason.to_owned(), look),
        ("serving" | "ramping" | "trial" | "ejected", _) if it.flaps => {
            let title = format!("Replica {name} was ejected {} times in ten minutes", it.ejections);
            let cause =
                format!("It is {state} now: {reason}. It works for a while, and fails again.");
            (ProblemKind::ReplicaFlaps, title, cause, repair)
        }
        ("ejected", _) => (away, format!("Replica {name} is ejected"), reason.to_owned(), look),
        ("serving" | "trial", Some(usual_ms)) => {
            let own_ms = it.latency_ms.unwrap_or_default();
            let title = format!(
                "Replica {name} is slow: its first token takes {own_ms:.0} ms, that of others {usual_ms:.0} ms"
            );
            let cause = "The policy gives it less if it decides by times.".to_owned();
            (ProblemKind::ReplicaSlow, title, cause, repair)
        }
        ("trial", None) => {
            let cause = format!("It was ejected, and is tried with a few requests: {reason}.");
            (away, format!("Replica {name} is on trial"), cause, look)
        }
        ("starting" | "warming up", _) => {
            let title = format!("Replica {name} is {state}");
            (away, title, reason.to_owned(), "Nothing yet: it takes a while.")
        }
        _ if !it.models_missing.is_empty() => {
            let title = format!("Replica {name} does not have {}", it.models_missing.join(", "));
            let cause =
                "Its list of models or its replies show it. Other replicas get the requests.";
            (ProblemKind::ModelMissing, title, cause.to_owned(), load)
        }
        _ => return None,
    };
    let urgency = match state {
        "wrong model" | "without models" => Urgency::Page,
        "starting" | "warming up" => Urgency::Info,
        // Ejection is the remedy, and the replica may be back before an operator has looked.
        "ejected" | "trial" if it.is_ejected_briefly => Urgency::Info,
        _ => Urgency::Ticket,
    };
    Some(Problem::new(kind, urgency, title, [&cause, remedy]))
}

fn discovery(it: &DiscoveryOverview) -> Option<Problem> {
    let urgency = match it.state.as_str() {
        "unanswered" => Urgency::Page,
        "stale" => Urgency::Ticket,
        "pending" => Urgency::Info,
        _ => return None,
    };
    let age = match it.answered_ms {
        Some(ms) => format!(
            "Its last answer is {} old; {} replicas stay in use.",
            duration(ms),
            it.replicas
        ),
        None => "It was never answered.".to_owned(),
    };
    let failure = it.failure.as_ref().map(|failure| format!(" The last try: {failure}."));
    let cause = format!("It asks {}. {age}{}", it.source, failure.unwrap_or_default());
    let title = format!("Discovery {} is {}", it.name, it.state);
    let remedy = "Ask the name server yourself, or read the file.";
    Some(Problem::new(ProblemKind::DiscoveryFails, urgency, title, [&cause, remedy]))
}

fn other_node(row: &NodeRow) -> Option<Problem> {
    let name = &row.name;
    match (row.state.as_str(), &row.fault) {
        ("up", Some(fault)) => {
            let cause = format!("{fault}. It serves its clients by what it knew last.");
            let remedy = "Look at that node's disk and log, then start it again.";
            let title = format!("The log of node {name} has stopped");
            Some(Problem::new(ProblemKind::NodeAway, Urgency::Ticket, title, [&cause, remedy]))
        }
        ("up", None) => reported(row),
        (state @ ("silent" | "never heard"), fault) => {
            let since = row.silent_ms.map(|ms| format!(" for {}", duration(ms)));
            let title = format!("Node {name} is {state}{}", since.unwrap_or_default());
            let region =
                if row.region.is_empty() { "a region that is not known" } else { &row.region };
            let fault = fault.as_ref().map(|it| format!(" The last attempt to connect: {it}."));
            let cause = format!("It is in {region}.{}", fault.unwrap_or_default());
            let remedy = "See whether it runs and whether its address can be reached.";
            Some(Problem::new(ProblemKind::NodeAway, Urgency::Ticket, title, [&cause, remedy]))
        }
        _ => None,
    }
}

/// Returns what another node reports of itself.
fn reported(row: &NodeRow) -> Option<Problem> {
    let first = row.problems.first()?;
    let is_urgent = row.problems.iter().any(|it| it.is_urgent);
    let urgency = if is_urgent { Urgency::Page } else { Urgency::Ticket };
    let titles: Vec<&str> = row.problems.iter().map(|it| it.title.as_str()).collect();
    let title = format!("Node {} in {}: {}", row.name, row.region, first.title);
    let cause = format!("It reports: {}.", titles.join("; "));
    let remedy = "Ask that node: its console and spillway status have causes and next steps.";
    Some(Problem::new(ProblemKind::NodeReports, urgency, title, [&cause, remedy]))
}

fn versions(nodes: &[NodeRow]) -> Option<Problem> {
    let versions: BTreeSet<&str> = nodes.iter().filter_map(|row| row.version.as_deref()).collect();
    (versions.len() > 1).then(|| {
        let all: Vec<&str> = versions.into_iter().collect();
        let cause = format!("They run {}. New features wait for the oldest.", all.join(" and "));
        let title = "Nodes run different versions";
        Problem::new(
            ProblemKind::VersionSkew,
            Urgency::Info,
            title,
            [&cause, "Finish the upgrade."],
        )
    })
}

/// Returns true if the data folder is nearly full.
pub(super) fn is_nearly_full(data: &DataRoom) -> bool {
    data.total_bytes > 0
        && free_percent(data) < u128::from(ROOM_PERCENT)
        && data.free_bytes < ROOM_BYTES
}

pub(super) fn free_percent(data: &DataRoom) -> u128 {
    u128::from(data.free_bytes) * 100 / u128::from(data.total_bytes.max(1))
}

fn room(data: &DataRoom) -> Option<Problem> {
    let percent = free_percent(data);
    let (free, total) = (data.free_bytes >> 20, data.total_bytes >> 20);
    let state = if data.free_bytes == 0 { "full" } else { "nearly full" };
    is_nearly_full(data).then(|| {
        let urgency = if percent < 1 { Urgency::Page } else { Urgency::Ticket };
        let title = format!("The data folder is {state}: {free} MiB of {total} MiB are free");
        let cause = format!(
            "It is {}. When nothing can be written, the log of this node stops.",
            data.folder
        );
        Problem::new(ProblemKind::Disk, urgency, title, [&cause, "Make room on that disk."])
    })
}

fn disk(log: Option<&StatusAnswer>) -> Option<Problem> {
    let ms = log?.disk_waiting_ms.filter(|waiting_ms| *waiting_ms >= DISK_MS)?;
    let title = format!("The disk of the data folder has not answered for {}", duration(ms));
    let cause = "Requests are served. Nothing is agreed here until the disk answers.";
    Some(Problem::new(
        ProblemKind::Disk,
        Urgency::Page,
        title,
        [cause, "Look at the disk and the system's log."],
    ))
}

fn usage(fault: &str) -> Problem {
    let cause = format!("{fault}. What clients use stays in memory, and is lost if the node ends.");
    let remedy = "Make room on the disk of the usage folder, or correct its rights.";
    Problem::new(ProblemKind::UsageLost, Urgency::Page, "Usage can't be written", [&cause, remedy])
}

fn certificate(node: &NodeOverview, now: SystemTime) -> Option<Problem> {
    let it = node.first_certificate.as_ref()?;
    let now_ms = i64::try_from(unix_ms(now)).unwrap_or(i64::MAX);
    let left_ms = it.ends_ms.saturating_sub(now_ms);
    let of = &it.of;
    let new = |urgency, title, texts| Problem::new(ProblemKind::Certificate, urgency, title, texts);
    let renew = "spillway certs renew replaces it; an authority is replaced by another.";
    let refused = "With an expired certificate nodes refuse each other's links, and clients refuse a listener.";
    if now_ms < it.begins_ms {
        let title = format!("The certificate of {of} is not valid yet");
        let cause =
            "This machine's clock is behind, or the machine that made the certificate was ahead.";
        return Some(new(Urgency::Page, title, [cause, "Correct the clock (timedatectl)."]));
    }
    let (urgency, title) = match left_ms {
        CERTIFICATE_TICKET_MS.. => return None,
        CERTIFICATE_URGENT_MS.. => {
            (Urgency::Ticket, format!("The certificate of {of} ends in {}", time_left(left_ms)))
        }
        0.. => (Urgency::Page, format!("The certificate of {of} ends in {}", time_left(left_ms))),
        _ => (Urgency::Page, format!("The certificate of {of} ended {} ago", time_left(left_ms))),
    };
    Some(new(urgency, title, [refused, renew]))
}

/// Returns the time until or since the end of a certificate, in the largest unit that fits.
pub(super) fn time_left(left_ms: i64) -> String {
    duration(left_ms.unsigned_abs())
}

fn refused_config(node: &NodeOverview) -> Option<Problem> {
    let refused = node.refused_config.as_ref()?;
    let file = node.config_file.as_deref().unwrap_or("The config file");
    let cause = format!(
        "{file} was changed and refused: {}. The config before it stays in use.",
        refused.error
    );
    let title = "The next start would fail: the config on disk is refused";
    let remedy = "spillway config check shows all errors, with line and remedy.";
    Some(Problem::new(ProblemKind::ConfigRefused, Urgency::Ticket, title, [&cause, remedy]))
}

fn limited(client: &LimitedClientOverview) -> Problem {
    let (per_s, who) = (client.refused_per_s, &client.client);
    let title = format!("{per_s:.0} requests per second of {who} are refused");
    let tenant = client.tenant.as_deref().unwrap_or("none");
    let cause =
        format!("Tenant {tenant}, reason {}. Requests of others are served.", client.reason);
    let remedy = "Nothing, if that limit is meant. spillway limits set raises it, spillway keys revoke ends the key.";
    Problem::new(ProblemKind::ClientLimited, Urgency::Ticket, title, [&cause, remedy])
}

fn percent(value: f64) -> String {
    if value > 0.0 && value < 9.95 { format!("{value:.1} %") } else { format!("{value:.0} %") }
}

#[cfg(test)]
mod problems_test;
