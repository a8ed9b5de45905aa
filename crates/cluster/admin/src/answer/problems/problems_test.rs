use std::time::UNIX_EPOCH;

use super::*;
use crate::overview::{CertificateEnd, NodeProblem, RefusedConfig, ReplicaTally, TroubleCause};

fn node() -> NodeOverview {
    let replicas = ReplicaTally { known: 2, up: 2, ..ReplicaTally::default() };
    NodeOverview { name: "us".into(), replicas, ..NodeOverview::default() }
}

fn replica(state: &str) -> ReplicaOverview {
    ReplicaOverview { name: "gpu-b".into(), state: state.into(), ..ReplicaOverview::default() }
}

fn region() -> RegionOverview {
    RegionOverview {
        region: "eu".into(),
        is_heard: true,
        places: Some(10.0),
        ..RegionOverview::default()
    }
}

/// Returns kind, urgency and title of the problems.
fn found(
    node: &NodeOverview,
    nodes: &[NodeRow],
    regions: &[RegionOverview],
    replicas: &[ReplicaOverview],
) -> Vec<(ProblemKind, Urgency, String)> {
    let sight = Sight { node, nodes, log: None, regions, replicas, now: UNIX_EPOCH };
    problems(sight).into_iter().map(|it| (it.kind, it.urgency, it.title)).collect()
}

#[test]
fn a_calm_node_has_no_problem() {
    let replicas = ["serving", "ramping", "standby", "busy", "drained"].map(replica);
    assert_eq!(found(&node(), &[], &[region()], &replicas), []);
}

#[test]
fn requests_that_fail_are_named_with_their_causes_and_the_hour_before() {
    let cause = |cause: &str, percent| TroubleCause { cause: cause.into(), percent };
    let causes = vec![cause("500 from gpu-a", 60.0), cause("500 from gpu-c", 40.0)];
    let mut trouble = RequestTroubleOverview {
        trouble: "failing".into(),
        percent: 29.2,
        usual_percent: Some(0.14),
        causes,
    };
    let mut node = NodeOverview { request_troubles: vec![trouble.clone()], ..node() };
    let title = "29 % of requests fail (500 from gpu-a, 500 from gpu-c)".to_owned();
    assert_eq!(found(&node, &[], &[], &[]), [(ProblemKind::RequestsFailing, Urgency::Page, title)]);
    let sight =
        Sight { node: &node, nodes: &[], log: None, regions: &[], replicas: &[], now: UNIX_EPOCH };
    let [problem] = problems(sight).try_into().unwrap();
    let begin = "60 % of them: 500 from gpu-a; 40 % of them: 500 from gpu-c. In the last hour it was 0.1 %.";
    assert_eq!(problem.cause, begin);
    assert_eq!(problem.view.as_deref(), Some("#/requests"));
    trouble.trouble = "refused".into();
    trouble.causes = vec![cause("queue_full", 100.0)];
    node.request_troubles = vec![trouble];
    let title = "29 % of requests are refused (queue_full)".to_owned();
    assert_eq!(found(&node, &[], &[], &[]), [(ProblemKind::RequestsRefused, Urgency::Page, title)]);
}

#[test]
fn a_replica_has_the_problem_that_explains_most() {
    let of = |replica: ReplicaOverview| {
        let found = found(&node(), &[], &[], &[replica]);
        found.into_iter().next().map(|(kind, _, title)| (kind, title))
    };
    let times = ReplicaOverview {
        latency_ms: Some(480.0),
        slower_than_ms: Some(60.0),
        ..replica("serving")
    };
    let slow = "Replica gpu-b is slow: its first token takes 480 ms, that of others 60 ms";
    assert_eq!(of(times.clone()), Some((ProblemKind::ReplicaSlow, slow.into())));
    // The time of a replica that is back may be of before.
    assert_eq!(of(ReplicaOverview { state: "ramping".into(), ..times.clone() }), None);
    let flaps = ReplicaOverview { ejections: 3, flaps: true, ..times };
    let ejected = "Replica gpu-b was ejected 3 times in ten minutes";
    assert_eq!(of(flaps), Some((ProblemKind::ReplicaFlaps, ejected.into())));
    let once = |state| ReplicaOverview { ejections: 1, ..replica(state) };
    assert_eq!(of(once("serving")), None);
    assert_eq!(
        of(once("trial")),
        Some((ProblemKind::ReplicaAway, "Replica gpu-b is on trial".into()))
    );
    assert_eq!(
        of(replica("down")),
        Some((ProblemKind::ReplicaAway, "Replica gpu-b is down".into()))
    );
    let missing = ReplicaOverview { models_missing: vec!["tiny".into()], ..replica("serving") };
    let title = "Replica gpu-b does not have tiny";
    assert_eq!(of(missing), Some((ProblemKind::ModelMissing, title.into())));
    let title = "Replica gpu-b has no model to serve";
    assert_eq!(of(replica("wrong model")), Some((ProblemKind::ModelMissing, title.into())));
}

#[test]
fn an_ejection_of_a_moment_ago_wakes_nobody() {
    let urgency = |is_ejected_briefly, state| {
        let replica = ReplicaOverview { ejections: 1, is_ejected_briefly, ..replica(state) };
        found(&node(), &[], &[], &[replica]).into_iter().next().map(|(_, urgency, _)| urgency)
    };
    for state in ["ejected", "trial"] {
        assert_eq!(urgency(true, state), Some(Urgency::Info), "{state}");
        assert_eq!(urgency(false, state), Some(Urgency::Ticket), "{state}");
    }
}

#[test]
fn a_region_is_lost_failing_or_full_and_names_the_client_that_fills_it() {
    let of = |region: RegionOverview, busiest: Option<(&str, f64)>| {
        let busiest =
            busiest.map(|(client, percent)| BusiestClient { client: client.into(), percent });
        let node = NodeOverview { busiest_client: busiest, ..node() };
        let regions = [region];
        let sight = Sight {
            node: &node,
            nodes: &[],
            log: None,
            regions: &regions,
            replicas: &[],
            now: UNIX_EPOCH,
        };
        problems(sight).into_iter().next().map(|it| (it.kind, it.cause))
    };
    assert_eq!(of(region(), None), None);
    let lost = RegionOverview { is_heard: false, heard_ms: Some(65_000), ..region() };
    let cause = "Its last report came 65 s ago. Its clients are redirected, and nothing is forwarded there.";
    assert_eq!(of(lost, None), Some((ProblemKind::RegionLost, cause.into())));
    let failing = RegionOverview { is_broken: true, ..region() };
    assert_eq!(of(failing, None).map(|it| it.0), Some(ProblemKind::RegionFailing));
    let full = RegionOverview { in_flight: 10.0, waiting: 3.0, is_own: true, ..region() };
    let waits = "3 requests wait for a slot.".to_owned();
    assert_eq!(
        of(full.clone(), Some(("key acme-1", 40.0))),
        Some((ProblemKind::RegionFull, waits.clone()))
    );
    let most = format!("{waits} 80 % of the requests are of key initech-1.");
    let busiest = Some(("key initech-1", 80.0));
    assert_eq!(of(full.clone(), busiest), Some((ProblemKind::RegionFull, most)));
    let elsewhere = RegionOverview { is_own: false, ..full.clone() };
    assert_eq!(of(elsewhere, busiest), Some((ProblemKind::RegionFull, waits)));
    assert_eq!(of(RegionOverview { waiting: 0.0, ..full }, busiest), None);
}

#[test]
fn other_nodes_report_their_own_problems() {
    let row = |problems: Vec<NodeProblem>| NodeRow {
        name: "b".into(),
        region: "eu".into(),
        state: "up".into(),
        problems,
        ..NodeRow::default()
    };
    let problem = |is_urgent, title: &str| NodeProblem { is_urgent, title: title.into() };
    assert_eq!(found(&node(), &[row(Vec::new())], &[], &[]), []);
    let disk = problem(false, "The data folder is nearly full");
    let title = "Node b in eu: The data folder is nearly full".to_owned();
    assert_eq!(
        found(&node(), &[row(vec![disk])], &[], &[]),
        [(ProblemKind::NodeReports, Urgency::Ticket, title)]
    );
    let failing = problem(true, "29 % of requests fail");
    let title = "Node b in eu: 29 % of requests fail".to_owned();
    assert_eq!(
        found(&node(), &[row(vec![failing])], &[], &[]),
        [(ProblemKind::NodeReports, Urgency::Page, title)]
    );
    let silent = NodeRow { state: "silent".into(), silent_ms: Some(12_000), ..row(Vec::new()) };
    assert_eq!(
        found(&node(), &[silent], &[], &[]),
        [(ProblemKind::NodeAway, Urgency::Ticket, "Node b is silent for 12 s".to_owned())]
    );
    let of = |version: &str| NodeRow { version: Some(version.into()), ..row(Vec::new()) };
    assert_eq!(
        found(&node(), &[of("0.1.0"), of("0.2.0")], &[], &[]),
        [(ProblemKind::VersionSkew, Urgency::Info, "Nodes run different versions".to_owned())]
    );
}

#[test]
fn what_the_next_start_or_the_bill_needs_is_a_problem() {
    let refused = RefusedConfig { at_ms: 1, error: "us.toml:9:1: unknown key `bogus`".into() };
    let refused = NodeOverview {
        refused_config: Some(refused),
        config_file: Some("us.toml".into()),
        ..node()
    };
    let usage = NodeOverview { usage_fault: Some("no space left on device".into()), ..node() };
    let kinds = |node: &NodeOverview| {
        found(node, &[], &[], &[]).into_iter().map(|it| (it.0, it.1)).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&refused), [(ProblemKind::ConfigRefused, Urgency::Ticket)]);
    assert_eq!(kinds(&usage), [(ProblemKind::UsageLost, Urgency::Page)]);
    let certificate = |begins_ms, ends_ms| {
        let first_certificate = Some(CertificateEnd { of: "links".into(), begins_ms, ends_ms });
        found(&NodeOverview { first_certificate, ..node() }, &[], &[], &[])
    };
    assert_eq!(certificate(0, 14 * DAY_MS), []);
    let urgency =
        |days| certificate(-90 * DAY_MS, days * DAY_MS).into_iter().next().map(|it| (it.1, it.2));
    let ends = |text: &str| format!("The certificate of links {text}");
    assert_eq!(urgency(13), Some((Urgency::Ticket, ends("ends in 13 d"))));
    assert_eq!(urgency(2), Some((Urgency::Page, ends("ends in 2 d"))));
    assert_eq!(urgency(-3), Some((Urgency::Page, ends("ended 3 d ago"))));
    let early = certificate(DAY_MS, 90 * DAY_MS);
    assert_eq!(early, [(ProblemKind::Certificate, Urgency::Page, ends("is not valid yet"))]);
}

#[test]
fn the_most_urgent_problem_comes_first() {
    let limited = LimitedClientOverview {
        client: "key acme-1".into(),
        tenant: Some("acme".into()),
        reason: "request_rate".into(),
        refused_per_s: 38.6,
    };
    let usage_fault = Some("no space left on device".into());
    let node = NodeOverview { limited_clients: vec![limited], usage_fault, ..node() };
    let starting = [replica("starting")];
    let urgencies: Vec<Urgency> =
        found(&node, &[], &[], &starting).into_iter().map(|it| it.1).collect();
    assert_eq!(urgencies, [Urgency::Page, Urgency::Ticket, Urgency::Info]);
    let titles: Vec<String> = found(&node, &[], &[], &[]).into_iter().map(|it| it.2).collect();
    assert_eq!(titles[1], "39 requests per second of key acme-1 are refused");
}
