use super::test_listener::{Note, Seen, listen, serve};
use super::world_test::{config, session};
use super::{Fault, FaultKind, News, WorldConfig};
use crate::Session;
use crate::router::RemoteRegion;

/// Returns one small request each 13 ms from this second on, in the first region.
fn asked(from_s: f64) -> Vec<Session> {
    let at_s = |number: u32| from_s + f64::from(number) * 0.013;
    (0..400).map(|number| session(at_s(number), 0, &[(u64::from(number), 32)])).collect()
}

/// Returns what nodes of the first region see of the other one, with the milliseconds since the
/// beginning.
fn others(notes: &[Note]) -> impl Iterator<Item = (u64, RemoteRegion)> {
    notes.iter().filter_map(|note| match &note.seen {
        Seen::WorldView { others, .. } => Some((note.now_ms, others[0])),
        _ => None,
    })
}

fn two_regions(news: News) -> WorldConfig {
    WorldConfig { news, ..config(&[(1, 2), (1, 2)]) }
}

#[test]
fn reports_are_as_old_as_the_way_and_the_gossip_and_older_where_datagrams_get_lost() {
    let ages = |lost| {
        let world = two_regions(News { lost, ..News::default() });
        let (_, _, notes) = listen(&world, asked(2.0), |_, _, _| serve(1));
        let reports = others(&notes).filter_map(|(_, other)| other.report);
        let ages: Vec<f32> = reports.map(|report| report.age_ms).collect();
        let mean = ages.iter().sum::<f32>() / ages.len() as f32;
        (ages.len(), ages.into_iter().fold(f32::MAX, f32::min), mean)
    };
    let (count, least, mean) = ages(0.0);
    assert_eq!(count, 400);
    // Half of a round trip takes 50 ms; then a report of the last 50 ms each 60 to 100 ms, read each
    // 50 ms.
    assert!(least >= 50.0 && (100.0..190.0).contains(&mean), "{least} {mean}");
    let (count, least, lossy) = ages(0.3);
    assert_eq!(count, 400, "seven of ten datagrams keep a region in reach");
    assert!(least >= 50.0 && lossy > mean + 15.0, "{lossy} after {mean}");
}

#[test]
fn jitter_delays_datagrams() {
    let first_ms = |jitter| {
        let world = two_regions(News { jitter, ..News::default() });
        let (_, _, notes) = listen(&world, asked(0.0), |_, _, _| serve(1));
        let known = others(&notes).find(|(_, other)| other.report.is_some());
        known.unwrap().0
    };
    let (plain, late) = (first_ms(0.0), first_ms(10.0));
    // A region is in reach when it reports that it receives this one's datagrams: there and back.
    assert!((100..350).contains(&plain), "{plain}");
    assert!(late > plain + 100, "{late} and {plain}");
}

#[test]
fn neighbours_learn_of_requests_by_gossip_or_never() {
    let first_ms = |lost| {
        let world = WorldConfig { news: News { lost, ..News::default() }, ..config(&[(2, 2)]) };
        let (_, _, notes) = listen(&world, asked(1.0), |_, _, _| serve(1));
        notes.iter().find_map(|note| match &note.seen {
            Seen::WorldView { replicas, .. } if replicas[1].elsewhere > 0 => Some(note.now_ms),
            _ => None,
        })
    };
    let first = first_ms(0.0).unwrap();
    assert!((1_001..1_250).contains(&first), "{first}");
    assert_eq!(first_ms(1.0), None);
}

#[test]
fn a_region_that_has_lost_its_last_replica_is_not_in_sight() {
    let kind = FaultKind::ReplicaLost { replica: 2 };
    let fault = Fault { begin_s: 3.0, end_s: 5.0, kind };
    let world = WorldConfig { faults: vec![fault], ..config(&[(1, 2), (1, 1)]) };
    let (_, _, notes) = listen(&world, asked(2.0), |_, _, _| serve(1));
    for (now_ms, other) in others(&notes) {
        match now_ms {
            3_000..3_400 | 5_000..5_400 => {}
            3_400..5_000 => assert!(other.report.is_none(), "{now_ms}"),
            _ => assert!(other.report.is_some(), "{now_ms}"),
        }
    }
}
