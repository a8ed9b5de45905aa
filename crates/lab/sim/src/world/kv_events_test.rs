use super::test_listener::{Note, Seen, listen, serve};
use super::world_test::{config, session};
use super::{Fault, FaultKind, News, WorldConfig};

/// Time at which a node received news of a replica's cache, the replica's number, and how many
/// blocks were stored and evicted; `None` where events got lost.
type Told = (u64, usize, Option<(usize, usize)>);

fn told(notes: &[Note], node: usize) -> Vec<Told> {
    let heard = |note: &Note| match note.seen {
        Seen::Cache { replica, blocks } => Some((note.now_ms, replica, blocks)),
        _ => None,
    };
    notes.iter().filter(|note| note.node == node).filter_map(heard).collect()
}

#[test]
fn all_nodes_of_a_region_read_what_its_engines_store_after_the_delay() {
    let told_after = |kv_events_ms| {
        let news = News { kv_events_ms, ..News::default() };
        let world = WorldConfig { news, ..config(&[(2, 2), (1, 1)]) };
        let sessions = vec![session(1.0, 0, &[(1, 640)])];
        let (_, _, notes) = listen(&world, sessions, |_, _, _| serve(1));
        [0, 1, 2].map(|node| told(&notes, node))
    };
    let [one, other, stranger] = told_after(10.0);
    assert_eq!(one, other);
    assert!(stranger.is_empty(), "it has other replicas: {stranger:?}");
    // 640 tokens are 40 blocks; with the reply they are 649, since its last token is not computed.
    let stored: usize = one.iter().map(|(_, _, blocks)| blocks.unwrap().0).sum();
    assert_eq!(stored, 40);
    assert!(one.iter().all(|(_, replica, _)| *replica == 1));
    let [late, _, _] = told_after(500.0);
    let times = |told: &[(u64, usize, _)]| told.iter().map(|(at, ..)| *at).collect::<Vec<_>>();
    let shifted: Vec<u64> = times(&one).iter().map(|at| at + 490).collect();
    assert_eq!(times(&late), shifted);
}

#[test]
fn a_central_node_reads_events_over_the_network() {
    let sessions = || vec![session(1.0, 0, &[(1, 640)])];
    let first = |world: &WorldConfig, rule| {
        let (_, _, notes) = listen(world, sessions(), rule);
        told(&notes, 0)[0].0
    };
    let world = WorldConfig { central: Some(0), ..config(&[(1, 1), (1, 1)]) };
    let (near, far) = (first(&world, |_, _, _| serve(0)), first(&world, |_, _, _| serve(1)));
    // 50 ms for the request, and as many for its events.
    assert_eq!(far, near + 100);
}

#[test]
fn what_an_engine_evicts_is_told() {
    let mut world = config(&[(1, 1)]);
    // Room for one of two prompts.
    world.engine.kv_blocks = std::num::NonZeroU32::new(64).unwrap();
    let sessions = vec![session(1.0, 0, &[(1, 640)]), session(10.0, 0, &[(2, 640)])];
    let (_, _, notes) = listen(&world, sessions, |_, _, _| serve(0));
    let told = told(&notes, 0);
    let sum = told.iter().filter_map(|(_, _, blocks)| *blocks);
    let (stored, removed) = sum.fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    // The second one takes the 24 free blocks first, and one for the end of its reply.
    assert_eq!((stored, removed), (80, 17));
}

#[test]
fn a_lost_replica_breaks_its_events_and_publishes_again_when_it_is_back() {
    let fault = Fault { begin_s: 5.0, end_s: 15.0, kind: FaultKind::ReplicaLost { replica: 0 } };
    let world = WorldConfig { faults: vec![fault], ..config(&[(1, 1)]) };
    let sessions = vec![session(1.0, 0, &[(1, 640)]), session(20.0, 0, &[(1, 640)])];
    let (_, _, notes) = listen(&world, sessions, |_, _, _| serve(0));
    let told = told(&notes, 0);
    let broken = told.iter().position(|(_, _, blocks)| blocks.is_none()).unwrap();
    assert_eq!(told[broken].0, 5_010);
    let stored = |told: &[Told]| -> usize {
        told.iter().filter_map(|(_, _, blocks)| Some((*blocks)?.0)).sum()
    };
    // It has to compute the prompt again.
    assert_eq!((stored(&told[..broken]), stored(&told[broken..])), (40, 40));
}
