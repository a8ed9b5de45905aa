//! Series that end with the thing that they describe.

use spillway_types::{Admission, AwayReason, Outcome, Reading, SignFault, Signals, Steering};
use spillway_usage::Money;

use crate::test_page::{Page, control, live, peer, region, replica, stream};
use crate::{
    Live, LiveCluster, LiveGeo, LiveHealth, LiveLimit, LiveRegionModel, LiveReplica, Metrics,
};

fn replicas(names: &[&str]) -> Live {
    Live { replicas: names.iter().map(|name| replica(name)).collect(), ..Live::default() }
}

fn cluster(regions: &[&str], peers: &[&str]) -> Live {
    let cluster = LiveCluster {
        regions: regions.iter().map(|name| region(name)).collect(),
        peers: peers.iter().map(|name| peer(name)).collect(),
        ..LiveCluster::default()
    };
    Live { cluster, ..Live::default() }
}

/// Makes counters of every kind that is about a replica.
fn use_replica(metrics: &Metrics, name: &str) {
    metrics.record(&Outcome { replica: Some(name.into()), ..stream() }, Money::ZERO);
    metrics.record_transition(name, "ejected", "errors");
    metrics.record_fault(name, SignFault::Reset);
    metrics.record_check(name, "active", "failed");
}

#[test]
fn nothing_of_a_replica_is_left_after_it_and_others_keep_what_they_have() {
    let metrics = Metrics::new(Vec::new());
    for name in ["gone", "stays"] {
        use_replica(&metrics, name);
    }
    let before = Page::of(&metrics, &replicas(&["gone", "stays"]));
    assert_eq!(before.names_with("gone"), before.names_with("stays"));
    assert!(before.names_with("gone").len() >= 14, "{:?}", before.names_with("gone"));
    let after = Page::of(&metrics, &replicas(&["stays"]));
    assert!(after.names_with("gone").is_empty(), "{:?}", after.names_with("gone"));
    assert_eq!(after.names_with("stays"), before.names_with("stays"));
    let faults =
        after.value("spillway_replica_faults_total", &["stays", SignFault::Reset.as_str()]);
    assert_eq!(faults, 1.0);
}

#[test]
fn a_replica_that_comes_back_counts_from_zero() {
    let metrics = Metrics::new(Vec::new());
    for _ in 0..3 {
        use_replica(&metrics, "a");
    }
    Page::of(&metrics, &replicas(&["a"]));
    Page::of(&metrics, &replicas(&[]));
    use_replica(&metrics, "a");
    let page = Page::of(&metrics, &replicas(&["a"]));
    for (name, labels) in [
        ("spillway_replica_requests_total", ["a", "soonest", "2xx"]),
        ("spillway_replica_transitions_total", ["a", "ejected", "errors"]),
        ("spillway_replica_checks_total", ["a", "active", "failed"]),
    ] {
        assert_eq!(page.value(name, &labels), 1.0, "{name}");
    }
    assert_eq!(
        page.value("spillway_replica_unasked_replies_total", &["a"]),
        3.0,
        "of its own count"
    );
}

#[test]
fn replicas_whose_names_never_come_back_fill_no_page() {
    let metrics = Metrics::new(Vec::new());
    let mut longest = 0;
    for number in 0..200 {
        let name = format!("pod-{number}");
        use_replica(&metrics, &name);
        longest = longest.max(Page::of(&metrics, &replicas(&[&name])).samples.len());
    }
    let last = Page::of(&metrics, &replicas(&[]));
    assert!(longest - last.samples.len() < 40, "{longest} and {}", last.samples.len());
    assert_eq!(last.count("spillway_replica_requests_total"), 0);
}

#[test]
fn a_reading_that_is_lost_is_not_shown_as_zero() {
    let metrics = Metrics::new(Vec::new());
    let shown = |signals: Signals| {
        let one = LiveReplica { signals, concurrency_limit: None, ..replica("a") };
        let page = Page::of(&metrics, &Live { replicas: vec![one], ..Live::default() });
        assert_eq!(page.find("spillway_replica_concurrency_limit", &["a"]), None);
        [
            page.find("spillway_replica_latency_seconds", &["a"]),
            page.find("spillway_replica_p99_seconds", &["a"]),
            page.find("spillway_replica_load", &["a", "queued"]),
            page.find("spillway_replica_load_trust", &["a", "queued"]),
        ]
    };
    let all = Signals {
        latency_ms: Reading { value: 250.0, trust: 1.0 },
        p99_ms: Reading { value: 500.0, trust: 0.1 },
        queued: Reading { value: 0.0, trust: 0.5 },
        ..Signals::UNKNOWN
    };
    assert_eq!(shown(all), [Some(0.25), Some(0.5), Some(0.0), Some(0.5)], "a known zero is shown");
    assert_eq!(shown(Signals::UNKNOWN), [None; 4]);
    let distrusted = Reading { value: 7.0, trust: 0.0 };
    assert_eq!(shown(Signals { queued: distrusted, ..Signals::UNKNOWN }), [None; 4]);
}

#[test]
fn a_replica_has_one_admission_at_a_time() {
    let metrics = Metrics::new(Vec::new());
    for admission in [Admission::Open, Admission::Down, Admission::Open] {
        let one = LiveReplica { admission, ..replica("a") };
        let page = Page::of(&metrics, &Live { replicas: vec![one], ..Live::default() });
        assert_eq!(page.count("spillway_replica_admission"), 1);
        assert_eq!(page.value("spillway_replica_admission", &["a", admission.as_str()]), 1.0);
    }
}

#[test]
fn nothing_of_a_region_or_of_a_peer_is_left_after_it() {
    let metrics = Metrics::new(Vec::new());
    let before = Page::of(&metrics, &cluster(&["mars", "venus"], &["n2", "n3"]));
    assert_eq!(before.names_with("mars"), before.names_with("venus"));
    assert!(before.names_with("mars").len() >= 8, "{:?}", before.names_with("mars"));
    assert!(before.names_with("n2").contains("spillway_link_dials_failed_total"));
    let after = Page::of(&metrics, &cluster(&["venus"], &["n3"]));
    for gone in ["mars", "n2"] {
        assert!(after.names_with(gone).is_empty(), "{gone}: {:?}", after.names_with(gone));
    }
    assert_eq!(after.names_with("venus"), before.names_with("venus"));
    assert_eq!(after.names_with("n3"), before.names_with("n3"));
}

#[test]
fn a_peer_that_comes_back_counts_the_attempts_since_then() {
    let metrics = Metrics::new(Vec::new());
    Page::of(&metrics, &cluster(&[], &["n2"]));
    Page::of(&metrics, &cluster(&[], &[]));
    let mut live = cluster(&[], &["n2"]);
    live.cluster.peers[0].connections[0].dials_failed = 1;
    let page = Page::of(&metrics, &live);
    let failed = page.value("spillway_link_dials_failed_total", &["n2", "us", "control"]);
    assert_eq!(failed, 1.0, "and not the 4 of its first life");
}

#[test]
fn requests_to_a_region_are_served_once_they_are_neither_under_way_nor_lost() {
    let metrics = Metrics::new(Vec::new());
    let shown = |in_flight, sent, refused, broken| {
        let model = LiveRegionModel { in_flight, sent, refused, broken, ..model() };
        let mut live = cluster(&["mars"], &[]);
        live.cluster.regions[0].models = vec![model];
        let page = Page::of(&metrics, &live);
        ["served", "refused", "broken"]
            .map(|result| page.value("spillway_spill_requests_total", &["mars", "tiny", result]))
    };
    assert_eq!(shown(3, 3, 0, 0), [0.0, 0.0, 0.0]);
    assert_eq!(shown(1, 6, 2, 1), [2.0, 2.0, 1.0]);
    // The counts are read one after the other, so that their sum may exceed the requests sent.
    assert_eq!(shown(5, 6, 2, 1), [2.0, 2.0, 1.0], "a counter never falls");
    assert_eq!(shown(0, 9, 2, 1), [6.0, 2.0, 1.0]);
}

fn model() -> LiveRegionModel {
    region("mars").models.remove(0)
}

#[test]
fn a_lost_connection_has_no_round_trip_time() {
    let page = Page::of(&Metrics::new(Vec::new()), &cluster(&[], &["n2"]));
    assert_eq!(page.value("spillway_link_connected", &["n2", "us", "control"]), 1.0);
    assert_eq!(page.value("spillway_link_rtt_seconds", &["n2", "us", "control"]), 0.01);
    assert_eq!(page.value("spillway_link_connected", &["n2", "us", "data"]), 0.0);
    assert_eq!(page.find("spillway_link_rtt_seconds", &["n2", "us", "data"]), None);
}

#[test]
fn what_is_over_is_no_longer_shown() {
    type Change = fn(&mut Live);
    let cases: [(&str, &[&str], Change); 14] = [
        ("spillway_waiting", &["tiny"], |live| live.waiting.clear()),
        ("spillway_last_resort", &["llm", "tiny", "down"], |live| live.last_resorts.clear()),
        ("spillway_discovery_state", &["k8s", "working"], |live| live.discoveries.clear()),
        ("spillway_discovery_replicas", &["k8s"], |live| live.discoveries.clear()),
        ("spillway_discovery_answer_age_seconds", &["k8s"], |live| {
            live.discoveries[0].answer_age_s = None;
        }),
        ("spillway_limit_share", &["global", "concurrency"], |live| live.limits.clear()),
        ("spillway_tenant_budget_used", &["acme", "day"], |live| live.budgets.clear()),
        ("spillway_overflow_budget_used", &["hosted", "day"], |live| live.overflow.clear()),
        ("spillway_hot_blocks", &["us"], |live| live.hot = None),
        ("spillway_geo_database_built_timestamp_seconds", &["place"], |live| {
            live.geo.databases.clear();
        }),
        ("spillway_listener_certificate_expires_seconds", &["admin"], |live| {
            live.certificates.listeners.clear();
        }),
        ("spillway_control_role", &["leader"], |live| live.cluster.control = None),
        ("spillway_control_age_seconds", &[], |live| live.cluster.control = None),
        ("spillway_certificate_expires_seconds", &[], |live| {
            live.cluster.certificate_expires_s = None;
        }),
    ];
    for (name, labels, end) in cases {
        let metrics = Metrics::new(Vec::new());
        let mut live = live();
        assert!(Page::of(&metrics, &live).find(name, labels).is_some(), "{name} {labels:?}");
        end(&mut live);
        assert_eq!(Page::of(&metrics, &live).find(name, labels), None, "{name} {labels:?}");
    }
}

#[test]
fn what_goes_on_keeps_its_value_while_its_neighbour_ends() {
    let metrics = Metrics::new(Vec::new());
    let limit = |limit: &str, used| LiveLimit {
        limit: limit.to_owned(),
        kind: "concurrency",
        share: 9,
        used,
        debt: 0,
    };
    let live = |limits| Live { limits, ..Live::default() };
    Page::of(&metrics, &live(vec![limit("model:a", 1), limit("model:b", 2)]));
    let page = Page::of(&metrics, &live(vec![limit("model:b", 3)]));
    assert_eq!(page.find("spillway_limit_used", &["model:a", "concurrency"]), None);
    assert_eq!(page.value("spillway_limit_used", &["model:b", "concurrency"]), 3.0);
}

#[test]
fn one_state_of_several_is_shown_as_true() {
    let metrics = Metrics::new(Vec::new());
    for state in ["healthy", "degraded", "unhealthy", "degraded"] {
        let health = LiveHealth { state, problems: Vec::new() };
        let page = Page::of(&metrics, &Live { health, ..Live::default() });
        for other in ["healthy", "degraded", "unhealthy"] {
            let expected = f64::from(u8::from(other == state));
            assert_eq!(page.value("spillway_health", &[other]), expected, "{other} in {state}");
        }
    }
    for steering in AwayReason::ALL.map(Steering::Away).into_iter().chain([Steering::Send]) {
        let page = Page::of(&metrics, &Live { steering, ..Live::default() });
        let takes = f64::from(u8::from(steering.takes_clients()));
        assert_eq!(page.value("spillway_takes_clients", &[]), takes);
        for reason in AwayReason::ALL {
            let expected = f64::from(u8::from(steering.reason() == Some(reason)));
            let shown = page.value("spillway_clients_steered_away", &[reason.name()]);
            assert_eq!(shown, expected, "{reason:?} in {steering:?}");
        }
    }
}

#[test]
fn a_new_role_replaces_the_old_one_and_a_new_log_lowers_no_counter() {
    let metrics = Metrics::new(Vec::new());
    let shown = |change: fn(&mut crate::LiveControl)| {
        let mut control = control();
        change(&mut control);
        let cluster = LiveCluster { control: Some(control), ..LiveCluster::default() };
        Page::of(&metrics, &Live { cluster, ..Live::default() })
    };
    shown(|_| {});
    let page = shown(|control| {
        control.role = "follower";
        control.troubles.clear();
        control.items.clear();
        (control.disk_writes, control.disk_write_s) = (1, 0.5);
    });
    assert_eq!(page.find("spillway_control_role", &["leader"]), None);
    assert_eq!(page.value("spillway_control_role", &["follower"]), 1.0);
    assert_eq!(page.count("spillway_control_troubles"), 0);
    assert_eq!(page.count("spillway_control_items"), 0);
    assert_eq!(page.value("spillway_control_disk_writes_total", &[]), 7.0);
    assert_eq!(page.value("spillway_control_disk_write_seconds_total", &[]), 1.5);
    let page = shown(|control| (control.disk_writes, control.disk_write_s) = (9, 2.0));
    assert_eq!(page.value("spillway_control_disk_writes_total", &[]), 9.0);
    assert_eq!(page.value("spillway_control_disk_write_seconds_total", &[]), 2.0);
}

#[test]
fn totals_that_are_counted_elsewhere_are_shown_as_they_are_at_every_scrape() {
    let metrics = Metrics::new(Vec::new());
    let scrape = |factor: u64| {
        let live = Live {
            retries_refused: 2 * factor,
            connections_closed: vec![("idle", 3 * factor)],
            home_changes: vec![("session", "region", 4 * factor)],
            continuations: vec![("failed", "stalled", 5 * factor)],
            access: vec![("acme".to_owned(), "refused", 6 * factor)],
            geo: LiveGeo { countries: vec![("FR".to_owned(), 7 * factor)], databases: Vec::new() },
            ..Live::default()
        };
        let page = Page::of(&metrics, &live);
        [
            page.value("spillway_retries_refused_total", &[]),
            page.value("spillway_client_connections_closed_total", &["idle"]),
            page.value("spillway_home_changes_total", &["session", "region"]),
            page.value("spillway_stream_continuations_total", &["failed", "stalled"]),
            page.value("spillway_access_total", &["acme", "refused"]),
            page.value("spillway_client_country_requests_total", &["FR"]),
        ]
    };
    let once = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
    assert_eq!(scrape(1), once);
    assert_eq!(scrape(1), once, "a second scrape counts nothing again");
    assert_eq!(scrape(3), once.map(|total| 3.0 * total));
    assert_eq!(scrape(0), once.map(|total| 3.0 * total), "a counter never falls");
}
