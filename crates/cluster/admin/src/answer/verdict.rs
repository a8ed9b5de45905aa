//! Judgement of a node in one sentence: whether it serves, and whether its cluster can agree.

use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_types::unix_ms;

use super::node_row::NodeRow;
use super::problem::{Problem, ProblemKind, Urgency};
use super::problems::{
    CERTIFICATE_URGENT_MS, DISK_MS, FAILING_PERCENT_UNHEALTHY, MajorityLack, Sight, free_percent,
    is_heard, is_nearly_full, lacks_majority, time_left, voters,
};
use super::status::StatusAnswer;
use crate::overview::{CertificateEnd, LackingReplica, NodeOverview, NodePhase};

/// Names that a sentence lists at most.
const NAMED_MAX: usize = 3;

/// State of a node in one word.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// All is well.
    #[default]
    Healthy,
    /// Requests are served, and something is missing.
    Degraded,
    /// Requests are not served, or the cluster can agree on nothing.
    Unhealthy,
}

impl Health {
    /// Returns the word, as in JSON and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
        }
    }
}

/// Judges a node and sums up its problems in a sentence, beside the `problems` that were found.
pub(super) fn judge(sight: Sight<'_>, problems: &[Problem]) -> (Health, String) {
    let Sight { node, nodes, log, now, .. } = sight;
    let mut parts = vec![serving(node), cluster(node, nodes, log)];
    parts.extend(troubles(log).into_iter().chain(disk(log)).chain(discoveries(node)));
    parts.extend(regions(node).into_iter().chain(data(node)).chain(certificate(node, now)));
    parts.extend(problems.iter().filter_map(|problem| by_title(problem, node)));
    // The worst comes first. Sorting is stable, so parts of equal health keep their order.
    parts.sort_by_key(|part| std::cmp::Reverse(part.health));
    let health = parts.first().map_or(Health::Healthy, |part| part.health);
    let texts: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
    let begin = match health {
        Health::Healthy => "healthy: ",
        Health::Degraded => "degraded: ",
        // Problems speak for themselves, in capitals.
        Health::Unhealthy => "",
    };
    (health, format!("{begin}{}", texts.join("; ")))
}

/// A part of the sentence.
struct Part {
    health: Health,
    text: String,
}

impl Part {
    fn new(health: Health, text: impl Into<String>) -> Self {
        Self { health, text: text.into() }
    }
}

/// Returns the part for a problem that degrades a node and that no other part names.
fn by_title(problem: &Problem, node: &NodeOverview) -> Option<Part> {
    let is_named = match problem.kind {
        ProblemKind::RequestsFailing if is_failing(node) => {
            return Some(Part::new(Health::Unhealthy, format!("FAILING: {}", problem.title)));
        }
        ProblemKind::RequestsFailing
        | ProblemKind::RequestsRefused
        | ProblemKind::ReplicaFlaps
        | ProblemKind::ReplicaSlow
        | ProblemKind::RegionFailing
        | ProblemKind::ClockWrong
        | ProblemKind::UsageLost
        | ProblemKind::ConfigRefused => true,
        ProblemKind::NodeReports => problem.urgency == Urgency::Page,
        _ => false,
    };
    is_named.then(|| Part::new(Health::Degraded, lower_first(&problem.title)))
}

/// Returns true if so many requests fail that most clients notice.
fn is_failing(node: &NodeOverview) -> bool {
    node.request_troubles
        .iter()
        .any(|it| it.trouble == "failing" && it.percent >= FAILING_PERCENT_UNHEALTHY)
}

/// Returns a title as a part of a sentence.
fn lower_first(title: &str) -> String {
    let mut rest = title.chars();
    rest.next().map_or_else(String::new, |first| first.to_lowercase().chain(rest).collect())
}

fn serving(node: &NodeOverview) -> Part {
    match node.phase {
        NodePhase::Leaving => return Part::new(Health::Unhealthy, "STOPPING: takes no clients"),
        NodePhase::AwaitingLimits => {
            return Part::new(Health::Unhealthy, "NOT READY: waits for its shares of limits");
        }
        NodePhase::Serving => {}
    }
    let replicas = &node.replicas;
    let (up, known) = (replicas.up, replicas.known);
    let some = |number: u32, what: &str| match number {
        0 => String::new(),
        number => format!(", {number} {what}"),
    };
    let others = some(replicas.ramping, "ramping")
        + &some(replicas.ejected, "ejected")
        + &some(replicas.draining, "drained");
    let lacking = named(replicas.lacking.iter().map(lacking_text).collect());
    let of = format!("{up} of {known} replicas");
    match (known, replicas.takes_none()) {
        (0, _) if node.is_served_elsewhere => {
            Part::new(Health::Healthy, "no replicas here, other regions serve")
        }
        (0, _) => Part::new(Health::Unhealthy, "SERVES NOTHING: no replica here or elsewhere"),
        (_, true) if node.is_served_elsewhere => {
            Part::new(Health::Degraded, format!("{of} up{others}{lacking}, other regions serve"))
        }
        (_, true) => {
            Part::new(Health::Unhealthy, format!("SERVES NOTHING: {of} up{others}{lacking}"))
        }
        _ if !replicas.lacking.is_empty() => {
            Part::new(Health::Degraded, format!("serves {of}{others}{lacking}"))
        }
        _ => Part::new(Health::Healthy, format!("serves {of}{others}")),
    }
}

fn cluster(node: &NodeOverview, nodes: &[NodeRow], log: Option<&StatusAnswer>) -> Part {
    let missing = nodes.iter().filter(|row| !is_heard(row) || row.fault.is_some());
    let missing = named(missing.map(missing_text).collect());
    let Some(log) = log else {
        return match (node.is_in_cluster, missing.is_empty()) {
            (false, _) => Part::new(Health::Healthy, "no cluster: this node alone"),
            (true, true) => Part::new(Health::Healthy, format!("{} nodes, no log", nodes.len())),
            (true, false) => Part::new(Health::Degraded, format!("nodes are missing{missing}")),
        };
    };
    if let Some(fault) = &log.fault {
        return Part::new(Health::Unhealthy, format!("LOG STOPPED: {fault}"));
    }
    if log.cluster.is_none() {
        return Part::new(
            Health::Unhealthy,
            format!("NO CLUSTER YET: waits for the nodes that begin it{missing}"),
        );
    }
    let (heard, all) = voters(nodes);
    let of = format!("{heard} of {all} voters");
    match lacks_majority(nodes, log) {
        Some(MajorityLack::Leader) => {
            Part::new(Health::Unhealthy, format!("NO LEADER: {of} reporting{missing}"))
        }
        Some(MajorityLack::Quorum) if heard * 2 <= all => {
            Part::new(Health::Unhealthy, format!("NO QUORUM: {of} reporting{missing}"))
        }
        Some(MajorityLack::Quorum) => Part::new(
            Health::Unhealthy,
            format!("NO QUORUM: {of} reporting, and no majority answers"),
        ),
        None if !missing.is_empty() => {
            Part::new(Health::Degraded, format!("{of} reporting{missing}"))
        }
        None => Part::new(Health::Healthy, of),
    }
}

/// Returns what disks and states of nodes lack, though the log runs.
fn troubles(log: Option<&StatusAnswer>) -> Option<Part> {
    let log = log.filter(|log| !log.troubles.is_empty())?;
    let all = log.troubles.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join("; ");
    Some(Part::new(Health::Degraded, all))
}

/// Returns the part about a disk that does not answer.
fn disk(log: Option<&StatusAnswer>) -> Option<Part> {
    let waiting_ms = log?.disk_waiting_ms.filter(|waiting_ms| *waiting_ms >= DISK_MS)?;
    let text = format!("the disk of the data folder has not answered for {} s", waiting_ms / 1_000);
    Some(Part::new(Health::Degraded, text))
}

/// Returns the discoveries whose replicas may be missing.
fn discoveries(node: &NodeOverview) -> Option<Part> {
    let faults = node.discoveries.iter().filter(|it| it.is_fault());
    let texts: Vec<String> = faults.map(|it| format!("{} is {}", it.name, it.state)).collect();
    let text = format!("discoveries lack answers{}", named(texts.clone()));
    (!texts.is_empty()).then(|| Part::new(Health::Degraded, text))
}

fn regions(node: &NodeOverview) -> Option<Part> {
    let silent = node.silent_regions.clone();
    let text = || format!("regions not reporting{}", named(silent.clone()));
    (!silent.is_empty()).then(|| Part::new(Health::Degraded, text()))
}

fn data(node: &NodeOverview) -> Option<Part> {
    let data = node.data.as_ref().filter(|data| is_nearly_full(data))?;
    let state = if data.free_bytes == 0 { "full" } else { "nearly full" };
    let (mib, percent) = (data.free_bytes >> 20, free_percent(data));
    let text = format!("data folder {state} ({mib} MiB free, {percent} %)");
    Some(Part::new(Health::Degraded, text))
}

fn certificate(node: &NodeOverview, now: SystemTime) -> Option<Part> {
    let CertificateEnd { of, begins_ms, ends_ms } = node.first_certificate.as_ref()?;
    let now_ms = i64::try_from(unix_ms(now)).unwrap_or(i64::MAX);
    let left_ms = ends_ms.saturating_sub(now_ms);
    let text = match left_ms {
        _ if now_ms < *begins_ms => {
            format!("certificate of {of} IS NOT VALID YET: look at this machine's clock")
        }
        CERTIFICATE_URGENT_MS.. => return None,
        0.. => format!("certificate of {of} ends in {}", time_left(left_ms)),
        _ => {
            format!(
                "certificate of {of} HAS ENDED {} ago by this machine's clock",
                time_left(left_ms)
            )
        }
    };
    Some(Part::new(Health::Degraded, text))
}

fn lacking_text(replica: &LackingReplica) -> String {
    let LackingReplica { name, state, reason } = replica;
    let what = match state.as_str() {
        "wrong model" => format!("{name} has the wrong model"),
        "trial" => format!("{name} is on trial"),
        state => format!("{name} is {state}"),
    };
    reason.as_ref().map_or_else(|| what.clone(), |reason| format!("{what}: {reason}"))
}

fn missing_text(row: &NodeRow) -> String {
    match row.silent_ms {
        _ if is_heard(row) => format!("the log of {} has stopped", row.name),
        Some(silent_ms) => format!("{} is silent for {} s", row.name, silent_ms / 1_000),
        None => format!("{} never reported", row.name),
    }
}

/// Returns the first of these texts in parentheses; an empty text if there are none.
fn named(texts: Vec<String>) -> String {
    match texts.len() {
        0 => String::new(),
        count if count <= NAMED_MAX => format!(" ({})", texts.join(", ")),
        count => format!(" ({}, and {} more)", texts[..NAMED_MAX].join(", "), count - NAMED_MAX),
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::super::node_row::rows;
    use super::super::problems::problems;
    use super::*;
    use crate::answer::freshness::Freshness;
    use crate::answer::status::MemberInfo;
    use crate::error::LeaderHint;
    use crate::overview::{
        DataRoom, DiscoveryOverview, LackingReplica, PeerOverview, ReplicaTally,
    };

    const DAY_MS: i64 = 86_400_000;

    fn node(up: u32, lacking: &[(&str, &str)]) -> NodeOverview {
        let lacking = lacking.iter().map(|(name, state)| LackingReplica {
            name: (*name).to_owned(),
            state: (*state).to_owned(),
            reason: (*state == "down").then(|| "connection refused".to_owned()),
        });
        let lacking: Vec<LackingReplica> = lacking.collect();
        let known = up + lacking.len() as u32;
        NodeOverview {
            name: "a".into(),
            replicas: ReplicaTally { known, up, lacking, ..ReplicaTally::default() },
            ..NodeOverview::default()
        }
    }

    fn peer(name: &str, silent_ms: Option<u64>) -> PeerOverview {
        let is_heard = silent_ms.is_none();
        PeerOverview { name: name.into(), is_heard, silent_ms, ..PeerOverview::default() }
    }

    fn log_of(leader: Option<&str>) -> StatusAnswer {
        let member = |(id, name): (u64, &str)| MemberInfo {
            id,
            name: name.into(),
            region: "r".into(),
            is_voter: true,
            matched_index: None,
        };
        let freshness = Freshness { age_ms: Some(5), ..Freshness::default() };
        StatusAnswer {
            freshness,
            cluster: Some("1".into()),
            leader: leader.map(|node| LeaderHint { node: node.into(), region: "r".into() }),
            members: [(1, "a"), (2, "b"), (3, "c")].into_iter().map(member).collect(),
            ..StatusAnswer::default()
        }
    }

    fn said(node: &NodeOverview, log: Option<&StatusAnswer>) -> String {
        let nodes = rows(node, log);
        let (regions, replicas, now) = (&[], &[], UNIX_EPOCH);
        let sight = Sight { node, nodes: &nodes, log, regions, replicas, now };
        let (health, text) = judge(sight, &problems(sight));
        let is_named = |word: &str| text.starts_with(word);
        assert_eq!(is_named("healthy: "), health == Health::Healthy, "{text}");
        assert_eq!(is_named("degraded: "), health == Health::Degraded, "{text}");
        text
    }

    #[test]
    fn a_node_alone_is_judged_by_its_replicas() {
        let alone = "no cluster: this node alone";
        let of = |up, lacking: &[(&str, &str)]| said(&node(up, lacking), None);
        assert_eq!(of(2, &[]), format!("healthy: serves 2 of 2 replicas; {alone}"));
        assert_eq!(
            of(1, &[("gpu-b", "down")]),
            format!(
                "degraded: serves 1 of 2 replicas (gpu-b is down: connection refused); {alone}"
            )
        );
        assert_eq!(
            of(0, &[("gpu-b", "down")]),
            format!(
                "SERVES NOTHING: 0 of 1 replicas up (gpu-b is down: connection refused); {alone}"
            )
        );
        assert_eq!(
            of(1, &[("gpu-b", "wrong model")]),
            format!("degraded: serves 1 of 2 replicas (gpu-b has the wrong model); {alone}")
        );
        assert_eq!(of(0, &[]), format!("SERVES NOTHING: no replica here or elsewhere; {alone}"));
        let down = [("a", "down"), ("b", "down"), ("c", "down"), ("d", "down")];
        assert!(
            of(0, &down).contains("c is down: connection refused, and 1 more"),
            "{}",
            of(0, &down)
        );
    }

    #[test]
    fn a_discovery_without_an_answer_degrades_a_node() {
        let discovery = |name: &str, state: &str| DiscoveryOverview {
            name: name.into(),
            state: state.into(),
            ..DiscoveryOverview::default()
        };
        let with = |discoveries| NodeOverview { discoveries, ..node(1, &[]) };
        for state in ["answered", "empty"] {
            let text = said(&with(vec![discovery("d", state)]), None);
            assert!(text.starts_with("healthy: serves 1 of 1 replicas"), "{text}");
        }
        for state in ["pending", "stale", "unanswered"] {
            let text = said(&with(vec![discovery("d", state), discovery("e", "empty")]), None);
            let begin = format!(
                "degraded: discoveries lack answers (d is {state}); serves 1 of 1 replicas"
            );
            assert!(text.starts_with(&begin), "{text}");
        }
    }

    #[test]
    fn an_ejection_is_a_fault_when_it_lasts() {
        let mut node = node(2, &[]);
        node.replicas.known = 3;
        node.replicas.ejected = 1;
        assert!(said(&node, None).starts_with("healthy: serves 2 of 3 replicas, 1 ejected"));
        node.replicas.up = 0;
        assert!(said(&node, None).starts_with("SERVES NOTHING: 0 of 3 replicas up, 1 ejected"));
    }

    #[test]
    fn an_order_to_drain_is_no_fault() {
        let mut node = node(1, &[]);
        node.replicas.known = 2;
        node.replicas.draining = 1;
        assert!(said(&node, None).starts_with("healthy: serves 1 of 2 replicas, 1 drained"));
        node.phase = NodePhase::Leaving;
        assert!(said(&node, None).starts_with("STOPPING"));
    }

    #[test]
    fn voters_that_are_not_heard_degrade_a_node_until_they_are_most() {
        let with =
            |peers: Vec<PeerOverview>| NodeOverview { peers, is_in_cluster: true, ..node(2, &[]) };
        let log = log_of(Some("b"));
        let mut old = log_of(Some("b"));
        old.freshness.age_ms = Some(20_000);
        let all = with(vec![peer("b", None), peer("c", None)]);
        assert_eq!(said(&all, Some(&log)), "healthy: serves 2 of 2 replicas; 3 of 3 voters");
        let one = with(vec![peer("b", None), peer("c", Some(12_400))]);
        assert_eq!(
            said(&one, Some(&log)),
            "degraded: 2 of 3 voters reporting (c is silent for 12 s); serves 2 of 2 replicas"
        );
        let none = with(vec![peer("b", Some(1_000)), peer("c", Some(12_400))]);
        assert!(said(&none, Some(&log)).starts_with("NO QUORUM: 1 of 3 voters reporting (b"));
        let stopped = PeerOverview { fault: Some("no space left".into()), ..peer("c", None) };
        assert_eq!(
            said(&with(vec![peer("b", None), stopped]), Some(&log)),
            "degraded: 3 of 3 voters reporting (the log of c has stopped); serves 2 of 2 replicas"
        );
        // The connections may outlive the processes for a while.
        assert!(said(&all, Some(&old)).starts_with("NO QUORUM: 3 of 3 voters"));
        assert!(said(&all, Some(&log_of(None))).starts_with("NO LEADER: 3 of"));
    }

    #[test]
    fn a_node_whose_state_or_disk_is_another_one_is_told() {
        let all = NodeOverview {
            peers: vec![peer("b", None), peer("c", None)],
            is_in_cluster: true,
            ..node(2, &[])
        };
        let troubles = vec!["the disk of c is from the past".to_owned()];
        let log = StatusAnswer { troubles, ..log_of(Some("b")) };
        let text = said(&all, Some(&log));
        assert!(
            text.starts_with("degraded: the disk of c is from the past; serves 2 of"),
            "{text}"
        );
    }

    #[test]
    fn a_cluster_that_is_not_formed_says_for_whom_it_waits() {
        let unformed = StatusAnswer { cluster: None, members: Vec::new(), ..log_of(None) };
        let peer = PeerOverview { name: "b".into(), ..PeerOverview::default() };
        let node = NodeOverview { peers: vec![peer], is_in_cluster: true, ..node(1, &[]) };
        let text = said(&node, Some(&unformed));
        assert!(text.starts_with("NO CLUSTER YET: waits"), "{text}");
        assert!(text.contains("(b never reported); serves 1 of 1 replicas"), "{text}");
    }

    #[test]
    fn a_node_without_replicas_is_well_while_others_serve() {
        let edge = NodeOverview { is_served_elsewhere: true, is_in_cluster: true, ..node(0, &[]) };
        assert!(said(&edge, None).starts_with("healthy: no replicas here, other regions"));
        let lost = NodeOverview { silent_regions: vec!["eu".into()], ..edge };
        assert!(said(&lost, None).starts_with("degraded: regions not reporting (eu)"));
    }
    #[test]
    fn little_room_for_data_is_told_before_it_is_none() {
        let with = |free_bytes: u64, total_bytes: u64| {
            let data = Some(DataRoom { folder: "data".into(), free_bytes, total_bytes });
            said(&NodeOverview { data, ..node(1, &[]) }, None)
        };
        let mib = 1 << 20;
        assert!(with(50 * mib, 100 * mib).starts_with("healthy: serves"));
        assert!(with(10 * mib, 100 * mib).starts_with("healthy: serves"));
        assert!(
            with(9 * mib, 100 * mib)
                .starts_with("degraded: data folder nearly full (9 MiB free, 9 %); serves 1 of 1")
        );
        // A large disk has enough for a log long before a tenth of it is free.
        assert!(with(2_000 * mib, 1_000_000 * mib).starts_with("healthy: serves"));
        assert!(with(0, 0).starts_with("healthy: serves"), "a file system that does not tell");
    }

    #[test]
    fn a_disk_that_hangs_degrades_a_node() {
        let with = |disk_waiting_ms| {
            let log = StatusAnswer { disk_waiting_ms, ..log_of(Some("a")) };
            let peers = vec![peer("b", None), peer("c", None)];
            said(&NodeOverview { peers, is_in_cluster: true, ..node(1, &[]) }, Some(&log))
        };
        assert!(with(None).starts_with("healthy: "));
        assert!(with(Some(1_999)).starts_with("healthy: "));
        let text = with(Some(9_100));
        let begin = "degraded: the disk of the data folder has not answered for 9 s; ";
        assert!(text.starts_with(begin), "{text}");
    }

    #[test]
    fn a_certificate_is_told_in_its_last_days() {
        let valid = |begins_ms: i64, ends_ms: i64| {
            let first_certificate = Some(CertificateEnd { of: "links".into(), begins_ms, ends_ms });
            said(&NodeOverview { first_certificate, ..node(1, &[]) }, None)
        };
        let ending = |ends_ms| valid(-DAY_MS, ends_ms);
        assert!(ending(CERTIFICATE_URGENT_MS).starts_with("healthy: serves"));
        let ends_in = |text: &str| format!("degraded: certificate of links {text}; serves 1 of 1");
        assert!(ending(CERTIFICATE_URGENT_MS - 1).starts_with(&ends_in("ends in 2 d")));
        assert!(ending(DAY_MS - 1).starts_with(&ends_in("ends in 23 h")));
        let clock = "by this machine's clock";
        assert!(ending(-9_000).starts_with(&ends_in(&format!("HAS ENDED 9 s ago {clock}"))));
        let early = "IS NOT VALID YET: look at this machine's clock";
        assert!(valid(1, CERTIFICATE_URGENT_MS * 9).starts_with(&ends_in(early)));
    }
}
