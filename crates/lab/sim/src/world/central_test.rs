use spillway_route::Policy;

use super::test_listener::{Note, Seen, listen, serve};
use super::world_test::{config, idle_ms, session, spillway};
use super::{News, WorldConfig};

/// Returns a world of two regions 100 ms from each other, the first of which has all nodes.
fn central() -> WorldConfig {
    WorldConfig { central: Some(0), ..config(&[(1, 2), (1, 1)]) }
}

#[test]
fn the_node_has_all_replicas_for_its_own_and_sees_how_far_they_are() {
    let sessions = vec![session(1.0, 1, &[(1, 500)])];
    let (_, positions, notes) = listen(&central(), sessions, |_, _, _| serve(0));
    assert_eq!(positions.len(), 1);
    let position = &positions[0];
    assert_eq!((position.region, position.replicas, position.regions), (0, 3, 2));
    assert!(position.is_central);
    assert_eq!(*position.homes, [0, 0, 1]);
    let Seen::WorldView { replicas, others, .. } = &notes[0].seen else { panic!("{notes:?}") };
    let rtt_ms: Vec<f32> = replicas.iter().map(|replica| replica.rtt_ms).collect();
    assert_eq!(rtt_ms, [0.0, 0.0, 100.0]);
    assert!(others.is_empty());
    assert_eq!(notes[0].now_ms, 1_050, "the request crosses the network first");
}

#[test]
fn a_request_pays_for_the_way_to_the_node_and_from_there_to_the_replica() {
    let sessions = vec![
        session(1.0, 0, &[(1, 500)]),
        session(20.0, 1, &[(2, 500)]),
        session(40.0, 1, &[(3, 500)]),
    ];
    let replica = |request, _, _| serve(if request == 2 { 2 } else { 0 });
    let (figures, _, _) = listen(&central(), sessions, replica);
    let first_ms: Vec<f64> =
        figures.records.iter().map(|record| record.first_token_ms.unwrap()).collect();
    for (seen, ways_ms) in first_ms.iter().zip([0.0, 100.0, 200.0]) {
        let expected = idle_ms(500) + 0.5 + ways_ms;
        assert!((seen - expected).abs() < 0.01, "{seen} instead of {expected}");
    }
    let ways: Vec<_> = figures.records.iter().map(|one| (one.region, one.served_by)).collect();
    assert_eq!(ways, [(0, Some(0)), (1, Some(0)), (1, Some(1))]);
    let is_forwarded: Vec<bool> = figures.records.iter().map(|one| one.is_forwarded).collect();
    assert_eq!(is_forwarded, [false, true, false]);
    assert_eq!(figures.regions[0].work_s.len() + figures.regions[1].work_s.len(), 3);
    assert!(figures.regions[1].work_s[0] > 0.0, "work counts in the replica's region");
}

/// Returns when the node first sees that a replica works on the request that it sent there at 1,000
/// ms. Engines report it at the end of its first step, of 2,048 tokens.
fn known_ms(replica: fn(usize, usize, u8) -> crate::RouterVerdict, at: usize) -> u64 {
    // One request each 10 ms, so that the node looks often; all but the first go to replica 1.
    let later = (1..200).map(|number| session(1.0 + f64::from(number) * 0.01, 0, &[(9, 16)]));
    let sessions = std::iter::once(session(1.0, 0, &[(1, 8_000)])).chain(later).collect();
    let (_, _, notes) = listen(&central(), sessions, replica);
    let is_known = |note: &&Note| {
        let Seen::WorldView { replicas, .. } = &note.seen else { return false };
        replicas[at].signals.running.value > 0.0
    };
    notes.iter().find(is_known).unwrap().now_ms
}

#[test]
fn reports_of_far_replicas_are_late_by_the_way_there_and_back() {
    let near = known_ms(|request, _, _| serve(usize::from(request > 0)), 0);
    let far = known_ms(|request, _, _| serve(if request > 0 { 1 } else { 2 }), 2);
    // The look at 2,100 ms is known at the next one, and so to the request after it.
    assert_eq!(near, 2_210);
    // The same look has to cross the network, and comes too late for that.
    assert_eq!(far, 2_310);
}

#[test]
fn what_is_on_its_way_to_a_far_replica_is_not_in_its_report() {
    let sessions = (0..100).map(|at| session(1.0 + f64::from(at) * 0.01, 0, &[(1, 16)])).collect();
    let (_, _, notes) = listen(&central(), sessions, |_, _, _| serve(2));
    for note in &notes {
        let Seen::WorldView { replicas, .. } = &note.seen else { continue };
        let since = replicas[2].started - replicas[2].signals.started_at;
        // Requests sent since 50 ms before the look, which is at least 150 ms old: 15 requests or
        // more.
        let expected = (note.now_ms - 1_000) / 10;
        assert!(since >= expected.min(15), "{since} of {expected} at {}", note.now_ms);
    }
}

#[test]
fn central_nodes_serve_all_clients_with_any_policy_however_bad_their_news_are() {
    let news = News { lost: 0.3, rtt_error: 0.5, ..News::default() };
    let world = config(&[(0, 2), (3, 2), (0, 1)]);
    let world = WorldConfig { central: Some(1), news, end_s: 45.0, ..world };
    let asked =
        |at: u32| session(f64::from(at) * 0.2, at as usize % 3, &[(u64::from(at % 7), 800)]);
    for &policy in Policy::ALL {
        let sessions: Vec<_> = (0..200).map(asked).collect();
        let figures = spillway(&world, policy, sessions.clone());
        assert_eq!((figures.requests, figures.failed), (200, 0), "{policy}");
        assert_eq!(figures, spillway(&world, policy, sessions), "{policy}");
        let afar = figures.records.iter().filter(|record| record.region != 1);
        let soonest_ms = afar.filter_map(|record| record.first_token_ms).fold(f64::MAX, f64::min);
        // The network to the node and back, and the reading of weights at least.
        assert!(soonest_ms > 150.0, "{policy}: {soonest_ms}");
    }
}
