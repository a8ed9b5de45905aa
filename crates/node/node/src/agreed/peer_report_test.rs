use spillway_cluster_state::{Command, Observation, ReplicaId};
use spillway_health::{Verdict, verdict};

use super::*;
use crate::agreed::test_state::{agree, observe, registered};

const GOOD: Votes = Votes {
    active: spillway_health::Vote::Good,
    passive: spillway_health::Vote::Good,
    deep: spillway_health::Vote::Silent,
    scrape: spillway_health::Vote::Silent,
};

fn says(state: &mut State, node: &str, belief: Belief) {
    let id = ReplicaId::new("one".into(), "r".into());
    let epoch = state.records().replicas.get(&id).unwrap().epoch;
    observe(state, node, Observation { replica: "r".into(), epoch, belief, signals: 2 });
}

fn heard(state: &State, by: &str, live: &[&str]) -> Option<PeerReports> {
    let live = live.iter().map(|name| (*name).into()).collect();
    peer_reports(state, (&by.into(), &"one".into()), &live).remove(&ReplicaName::from("r"))
}

#[test]
fn a_node_hears_others_of_its_region_and_never_itself() {
    let mut state = registered("r", None);
    assert_eq!(heard(&state, "a", &["b"]), None, "nobody said anything");
    says(&mut state, "a", Belief::Down);
    assert_eq!(heard(&state, "a", &["b"]), None, "only itself");
    let by_b = heard(&state, "b", &["a"]).unwrap();
    assert_eq!(verdict(Votes::default(), by_b), Verdict::Down, "who is blind believes the other");
    assert_eq!(verdict(GOOD, by_b), Verdict::Up, "one of two is not most");
    says(&mut state, "a", Belief::Up);
    assert_eq!(heard(&state, "b", &["a"]), None);
}

#[test]
fn those_of_other_regions_say_nothing() {
    let mut state = registered("r", None);
    says(&mut state, "a", Belief::Down);
    let peer_reports = peer_reports(&state, (&"c".into(), &"two".into()), &["a".into()].into());
    assert!(peer_reports.is_empty(), "it is no replica of theirs");
    let live = ["a", "c"];
    let among = heard(&state, "b", &live).unwrap();
    assert_eq!(verdict(Votes::default(), among), Verdict::Down, "c's silence counts for nothing");
}

#[test]
fn what_was_said_long_ago_or_of_an_earlier_registration_counts_no_more() {
    let mut state = registered("r", None);
    says(&mut state, "a", Belief::Down);
    let stale = {
        let mut state = state.clone();
        let region: RegionName = "one".into();
        while state.region_clock_ms(&region).unwrap() <= 60_000 {
            let entry_at = state.stamp_ms() + 5_000;
            crate::agreed::test_state::pass(&mut state, entry_at);
        }
        state
    };
    assert!(heard(&state, "b", &["a"]).is_some());
    assert_eq!(heard(&stale, "b", &["a"]), None);
    let id = ReplicaId::new("one".into(), "r".into());
    let spec = state.records().replicas.get(&id).unwrap().spec.clone();
    let expect = spillway_cluster_state::Expect::Any;
    agree(&mut state, "a", Command::RegisterReplica { id, spec, incarnation: 7, expect });
    assert_eq!(heard(&state, "b", &["a"]), None);
}
