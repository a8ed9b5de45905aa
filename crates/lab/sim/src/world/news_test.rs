use super::test_listener::{Note, Seen, listen, serve};
use super::world_test::{config, session};
use super::{News, WorldConfig};
use crate::RouterVerdict;

/// Sends clients' requests to the second of two regions, which serves them.
fn away(_request: usize, _region: usize, hop: u8) -> RouterVerdict {
    if hop == 0 { RouterVerdict::Forward(1) } else { serve(0) }
}

/// Returns a node's notes of forwarded requests: the stage, the milliseconds since the beginning,
/// and whether the node sent the request itself.
fn forwarded(notes: &[Note], node: usize) -> Vec<(&'static str, u64, bool)> {
    let heard = |note: &Note| match note.seen {
        Seen::Forwarded { stage, is_own, region: 1, .. } => Some((stage, note.now_ms, is_own)),
        _ => None,
    };
    notes.iter().filter(|note| note.node == node).filter_map(heard).collect()
}

#[test]
fn a_forwarded_request_is_told_of_at_each_station_and_to_neighbours_somewhat_later() {
    let world = config(&[(2, 1), (1, 1)]);
    let (figures, _, notes) = listen(&world, vec![session(1.0, 0, &[(1, 640)])], away);
    let record = figures.records[0];
    assert!(record.is_forwarded && record.served_by == Some(1), "{record:?}");
    let both = [0, 1].map(|node| forwarded(&notes, node));
    let own = both.iter().position(|heard| heard.iter().all(|(_, _, is_own)| *is_own)).unwrap();
    let stages: Vec<_> = both[own].iter().map(|(stage, _, _)| *stage).collect();
    assert_eq!(stages, ["sent", "replied", "ended"]);
    let times: Vec<f64> = both[own].iter().map(|(_, now_ms, _)| *now_ms as f64).collect();
    assert_eq!(times[0], 1_000.0);
    assert!((times[1] - 1_000.0 - record.first_token_ms.unwrap()).abs() <= 1.0, "{times:?}");
    assert!((times[2] - 1_000.0 - record.ended_ms.unwrap()).abs() <= 1.0, "{times:?}");
    let later: Vec<_> = both[own].iter().map(|(stage, at, _)| (*stage, at + 30, false)).collect();
    assert_eq!(both[1 - own], later);
    let whole = notes.iter().filter_map(|note| match note.seen {
        Seen::Forwarded { stage: "ended", whole, .. } => Some(whole),
        _ => None,
    });
    // 640 tokens of the prompt and 10 of the reply are 10 full blocks of 64.
    assert_eq!(whole.collect::<Vec<_>>(), [10, 10]);
}

#[test]
fn nodes_learn_which_blocks_a_reply_has_added() {
    let mut asked = session(1.0, 0, &[(1, 600)]);
    asked.turns[0].reply.tokens = 50;
    let (_, _, notes) = listen(&config(&[(2, 1)]), vec![asked], |_, _, _| serve(0));
    let written: Vec<_> = notes
        .iter()
        .filter_map(|note| match note.seen {
            Seen::Written { replica, blocks, is_own } => {
                Some((note.now_ms, replica, blocks, is_own))
            }
            _ => None,
        })
        .collect();
    assert_eq!(written.len(), 2, "{notes:?}");
    // 600 tokens of the prompt alone are 9 full blocks, with the reply they are 10.
    assert_eq!((written[0].1, written[0].2, written[0].3), (0, 10, true));
    assert_eq!(written[1], (written[0].0 + 30, 0, 10, false));
}

#[test]
fn reports_tell_what_a_region_has_left_and_lost_news_never_arrive() {
    let sessions = || {
        // A long prompt that all others wait for, in a region that can batch one request.
        let busy = (0..6_u32).map(|at| session(1.0, 1, &[(u64::from(at), 8_000)]));
        busy.chain([session(3.0, 0, &[(99, 64)])]).collect::<Vec<_>>()
    };
    let news = |lost| News { lost, ..News::default() };
    let mut world = config(&[(2, 1), (1, 1)]);
    world.engine.running_max = std::num::NonZeroU32::MIN;
    let seen = |lost| {
        let world = WorldConfig { news: news(lost), ..world.clone() };
        let (_, _, notes) = listen(&world, sessions(), |_, _, _| serve(0));
        let others = notes.iter().find_map(|note| match &note.seen {
            Seen::WorldView { request: 6, others, .. } => Some(others[0]),
            _ => None,
        });
        let neighbours =
            notes.iter().filter(|note| matches!(note.seen, Seen::Written { is_own: false, .. }));
        (others.unwrap(), neighbours.count())
    };
    let (other, neighbours) = seen(0.0);
    assert_eq!((other.region, other.replicas, other.available), (1, 1, 0));
    assert_eq!(other.waiting, 0, "five wait at the replica, and none in the node");
    assert!(other.kv_use > 0.15 && other.kv_use < 0.25, "8,000 of 40,000: {}", other.kv_use);
    assert_eq!(neighbours, 1);
    let (other, neighbours) = seen(1.0);
    assert!(other.report.is_none() && neighbours == 0, "{other:?}");
    assert_eq!((other.replicas, other.available, other.waiting), (1, 0, 0));
}

#[test]
fn believed_round_trip_times_are_off_by_no_more_than_the_error_and_never_change() {
    let believed = |rtt_error, seed| {
        let news = News { rtt_error, ..News::default() };
        let world = WorldConfig { news, seed, end_s: 10.0, ..config(&[(1, 1), (1, 1), (1, 1)]) };
        let sessions = (0..9).map(|at| session(f64::from(at), 0, &[(at as u64, 64)])).collect();
        let (_, _, notes) = listen(&world, sessions, |_, _, _| serve(0));
        let rtts = notes.iter().filter_map(|note| match &note.seen {
            Seen::WorldView { others, .. } => Some([others[0].rtt_ms, others[1].rtt_ms]),
            _ => None,
        });
        let mut rtts: Vec<[f32; 2]> = rtts.collect();
        rtts.dedup();
        assert_eq!(rtts.len(), 1);
        rtts[0]
    };
    assert_eq!(believed(0.0, 1), [100.0, 100.0]);
    let all: Vec<f32> = (0..20).flat_map(|seed| believed(0.5, seed)).collect();
    assert!(all.iter().all(|ms| (66.6..=150.1).contains(ms)), "{all:?}");
    assert!(all.iter().any(|&ms| ms < 75.0) && all.iter().any(|&ms| ms > 133.0), "{all:?}");
}

#[test]
fn a_latency_counts_less_the_older_it_is_so_that_a_replica_once_slow_is_tried_again() {
    let sessions = [1.0, 10.0, 40.0, 70.0].map(|at| session(at, 0, &[(1, 640)])).to_vec();
    let first = |request, _, _| serve(usize::from(request > 0));
    let (_, _, notes) = listen(&config(&[(1, 2)]), sessions, first);
    let trusts: Vec<f32> = notes
        .iter()
        .filter_map(|note| match &note.seen {
            Seen::WorldView { replicas, .. } => Some(replicas[0].signals.latency_ms.trust),
            _ => None,
        })
        .collect();
    assert_eq!(trusts[0], 0.0);
    assert!(trusts[1] > 0.8 && trusts[1] < 1.0, "{trusts:?}");
    // It halves in 30 seconds.
    assert!((trusts[2] / trusts[1] - 0.5).abs() < 0.01, "{trusts:?}");
    assert!((trusts[3] / trusts[2] - 0.5).abs() < 0.01, "{trusts:?}");
}
