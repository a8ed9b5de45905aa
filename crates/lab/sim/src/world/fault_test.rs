//! Each kind of fault: its effects, and that no request gets lost or ends twice because of it.

use spillway_route::Policy;

use super::test_listener::{Note, Seen, listen, serve};
use super::world_test::{Fixed, config, idle_ms, run_fixed, session, spillway};
use super::{Fate, Fault, FaultKind, Figures, Record, WorldConfig};
use crate::Session;
use crate::router::RouterVerdict;

const CUT: FaultKind = FaultKind::Cut { a: 0, b: 1 };
const ONE_WAY: FaultKind = FaultKind::OneWay { from: 0, to: 1 };

/// Returns a world of two regions in which this is wrong from the 10th second to the 20th.
fn broken(kind: FaultKind) -> WorldConfig {
    let fault = Fault { begin_s: 10.0, end_s: 20.0, kind };
    WorldConfig { faults: vec![fault], ..config(&[(1, 2), (1, 2)]) }
}

/// Checks that each request has ended; the world checks that none ends twice.
fn conserved(figures: &Figures, requests: usize) {
    let count = |fate| figures.records.iter().filter(|record| record.fate == fate).count();
    let ended = count(Fate::Answered) + count(Fate::Shed) + count(Fate::Failed);
    assert_eq!((ended, figures.records.len()), (requests, requests));
}

/// Returns the records of clients of the first region who ask at these moments and whose requests
/// go to the other region, or stay if they come back.
fn forwarded<const N: usize>(kind: FaultKind, at_s: [f64; N]) -> [Record; N] {
    let away = Fixed::new(RouterVerdict::Forward(1), true);
    let sessions = at_s.map(|at_s| session(at_s, 0, &[(at_s.to_bits(), 500)])).to_vec();
    let figures = run_fixed(broken(kind), sessions, away);
    conserved(&figures, N);
    figures.records.try_into().unwrap()
}

/// Checks that the first token came after so much more than the engine takes.
fn came_after(record: &Record, more_ms: f64) {
    let expected = idle_ms(500) + 0.5 + more_ms;
    let seen = record.first_token_ms.unwrap();
    assert!((seen - expected).abs() < 0.01, "{seen} instead of {expected} of {record:?}");
}

#[test]
fn what_is_under_way_over_a_path_fails_when_it_is_cut() {
    for kind in [CUT, ONE_WAY, FaultKind::OneWay { from: 1, to: 0 }] {
        let [replying, going, unseen, known, later] =
            forwarded(kind, [9.5, 9.98, 10.8, 15.0, 25.0]);
        // The client had the first token already.
        assert_eq!((replying.fate, replying.ended_ms), (Fate::Failed, None));
        assert!(replying.first_token_ms.is_some());
        // 20 ms in transit, and 50 until the break is seen; then it is served at home.
        came_after(&going, 70.0);
        // No node knows yet, 800 ms after the last datagram arrived: there and not back.
        came_after(&unseen, 100.0);
        came_after(&known, 0.0);
        assert!(![going, unseen, known].iter().any(|record| record.is_forwarded));
        came_after(&later, 100.0);
        assert!(later.is_forwarded);
        assert!([going, unseen, known, later].iter().all(|one| one.fate == Fate::Answered));
    }
}

/// Returns the notes of the nodes while requests come to both regions each 100 ms.
fn notes(config: &WorldConfig) -> Vec<Note> {
    let at = |number: u32| f64::from(number) * 0.1 + 0.01;
    let asked = |number: u32| session(at(number), number as usize % 2, &[(u64::from(number), 32)]);
    listen(config, (0..300).map(asked).collect(), |_, _, _| serve(1)).2
}

#[test]
fn regions_are_out_of_reach_while_nothing_gets_through_in_either_direction() {
    for kind in [CUT, ONE_WAY] {
        for note in notes(&broken(kind)) {
            let Seen::WorldView { others, .. } = &note.seen else { continue };
            let is_known = others[0].report.is_some();
            match note.now_ms {
                // A region is out of reach 900 ms after the last datagram arrived. The other side
                // reports the silence with its next datagram, which takes 50 to 60 ms. A region is
                // in reach once it reports that it receives this one's datagrams.
                0..400 | 10_800..11_200 | 20_000..20_400 => {}
                11_200..20_000 => assert!(!is_known, "{kind:?}: {note:?}"),
                _ => assert!(is_known, "{kind:?}: {note:?}"),
            }
        }
    }
}

#[test]
fn a_slow_path_takes_longer_and_nodes_measure_it() {
    let slow = FaultKind::Slow { a: 1, b: 0, factor: 10.0 };
    let [before, meanwhile, later] = forwarded(slow, [5.0, 12.0, 25.0]);
    came_after(&before, 100.0);
    came_after(&meanwhile, 1_000.0);
    came_after(&later, 100.0);
    for note in notes(&broken(slow)) {
        let Seen::WorldView { others, .. } = &note.seen else { continue };
        let is_slow = (10_000..20_000).contains(&note.now_ms);
        assert_eq!(others[0].rtt_ms, if is_slow { 1_000.0 } else { 100.0 });
        // Slow reports are reports.
        assert!(others[0].report.is_some() || note.now_ms < 400, "{note:?}");
    }
}

/// Returns sessions of one request each 40 ms from the 5th second on, in the first region.
fn steady() -> Vec<Session> {
    let at = |number: u32| 5.0 + f64::from(number) * 0.04;
    (0..500).map(|number| session(at(number), 0, &[(u64::from(number), 32)])).collect()
}

#[test]
fn requests_of_a_lost_replica_fail_or_go_to_another_one_and_it_is_out_of_sight() {
    let lost = broken(FaultKind::ReplicaLost { replica: 0 });
    let figures = spillway(&lost, Policy::RoundRobin, steady());
    conserved(&figures, 500);
    let failed: Vec<f64> = figures
        .records
        .iter()
        .filter(|record| record.fate == Fate::Failed)
        .map(|record| record.arrived_s)
        .collect();
    // Replies that had begun broke off, and nothing else.
    assert!(
        !failed.is_empty() && failed.iter().all(|at_s| (9.0..10.0).contains(at_s)),
        "{failed:?}"
    );
    for note in notes(&lost) {
        let Seen::WorldView { replicas, .. } = &note.seen else { continue };
        let is_lost = note.node == 0 && (10_000..20_000).contains(&note.now_ms);
        assert_eq!(replicas[0].is_away, is_lost, "{note:?}");
        assert!(!replicas[1].is_away);
    }
}

#[test]
fn a_refused_connection_is_no_failure_of_the_request() {
    let kind = FaultKind::ReplicaLost { replica: 0 };
    // The nodes look at 12,000 ms and at 12,100.
    let fault = Fault { begin_s: 12.01, end_s: 20.0, kind };
    let world = WorldConfig { faults: vec![fault], ..config(&[(1, 2)]) };
    let sessions = vec![session(12.02, 0, &[(1, 500)]), session(12.9, 0, &[(2, 500)])];
    let none = |policy| {
        let figures = spillway(&world, policy, sessions.clone());
        conserved(&figures, 2);
        assert_eq!(figures.failed, 0);
        let refused = |record: &&Record| record.first_token_ms > Some(idle_ms(500) + 0.9);
        figures.records.iter().filter(refused).count()
    };
    // Whichever replica is first: one of both policies begins with the one that is lost.
    let refused = Policy::ALL.iter().map(|&policy| none(policy)).collect::<Vec<_>>();
    assert!(refused.contains(&1), "a hop there and back more: {refused:?}");
    assert!(refused.iter().all(|&count| count < 2), "once the node knows, it asks no more");
}

#[test]
fn clients_of_a_lost_region_fail_until_they_are_moved_and_come_back_with_it() {
    let lost = FaultKind::RegionLost { region: 0, moved_after_s: 4.0 };
    let at_s = [9.9, 12.0, 15.0, 21.0];
    let mut sessions: Vec<Session> =
        at_s.iter().map(|&at_s| session(at_s, 0, &[(at_s.to_bits(), 500)])).collect();
    sessions.push(session(15.0, 1, &[(1, 500)]));
    let figures = run_fixed(broken(lost), sessions, Fixed::new(serve(0), true));
    conserved(&figures, 5);
    let fates: Vec<_> = figures
        .records
        .iter()
        .map(|record| (record.region, record.fate, record.served_by))
        .collect();
    assert_eq!(fates[..2], [(0, Fate::Failed, Some(0)), (0, Fate::Failed, None)]);
    assert!(fates[2..4].contains(&(0, Fate::Answered, Some(1))), "{fates:?}");
    assert!(fates[2..4].contains(&(1, Fate::Answered, Some(1))), "{fates:?}");
    assert_eq!(fates[4], (0, Fate::Answered, Some(0)));
    let moved = figures.records.iter().find(|one| (one.region, one.served_by) == (0, Some(1)));
    assert!(moved.unwrap().first_token_ms.unwrap() > idle_ms(500) + 100.0);
}

#[test]
fn requests_elsewhere_fail_when_their_region_is_lost_and_guests_of_it_come_home() {
    let lost = |region| FaultKind::RegionLost { region, moved_after_s: 60.0 };
    let [out] = forwarded(lost(0), [9.98]);
    assert_eq!((out.fate, out.first_token_ms), (Fate::Failed, None));
    let [back, known] = forwarded(lost(1), [9.98, 15.0]);
    came_after(&back, 70.0);
    came_after(&known, 0.0);
}

#[test]
fn a_lying_replica_is_busy_and_says_that_it_is_idle() {
    let lying = broken(FaultKind::Lying { replica: 0 });
    let (_, _, notes) = listen(&lying, steady(), |_, _, _| serve(0));
    let running = |note: &Note| match &note.seen {
        Seen::WorldView { replicas, .. } => Some(replicas[0].signals.running.value),
        _ => None,
    };
    let between = |from_ms: u64, until_ms: u64| {
        let is_then = move |note: &&Note| (from_ms..until_ms).contains(&note.now_ms);
        notes.iter().filter(is_then).filter_map(running).collect::<Vec<f32>>()
    };
    assert!(between(7_000, 10_000).iter().all(|&running| running > 0.0));
    assert!(between(10_200, 20_000).iter().all(|&running| running == 0.0));
    assert!(between(20_200, 25_000).iter().all(|&running| running > 0.0));
}

#[test]
fn no_request_is_lost_in_a_world_where_everything_breaks() {
    let kinds = [
        CUT,
        FaultKind::OneWay { from: 2, to: 0 },
        FaultKind::Slow { a: 1, b: 2, factor: 10.0 },
        FaultKind::ReplicaLost { replica: 3 },
        FaultKind::RegionLost { region: 2, moved_after_s: 2.0 },
        FaultKind::Lying { replica: 1 },
    ];
    let fault = |(at, kind): (usize, FaultKind)| {
        let begin_s = 5.0 + 3.0 * at as f64;
        Fault { begin_s, end_s: begin_s + 8.0, kind }
    };
    let faults = kinds.into_iter().enumerate().map(fault).collect();
    let world = config(&[(2, 2), (1, 2), (2, 1)]);
    let world = WorldConfig { faults, patience_s: 3.0, end_s: 45.0, ..world };
    let asked = |at: u32| {
        let prompts = [(u64::from(at % 5), 900), (u64::from(at % 5), 1_200)];
        session(f64::from(at) * 0.07, at as usize % 3, &prompts)
    };
    for policy in [Policy::PredictedLatency, Policy::RoundRobin] {
        let sessions: Vec<Session> = (0..450).map(asked).collect();
        let figures = spillway(&world, policy, sessions.clone());
        conserved(&figures, 900);
        let failed = figures.records.iter().filter(|one| one.fate == Fate::Failed).count();
        assert!((1..900).contains(&failed), "{policy}: {failed}");
        assert_eq!(figures, spillway(&world, policy, sessions), "{policy}");
    }
}
