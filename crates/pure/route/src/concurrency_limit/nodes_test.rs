//! Several nodes that send to one engine: each has its own limit, and none asks another.

use super::test_engine::{Engine, best, chat, large, run, small};

const NODES: [usize; 3] = [1, 4, 8];

fn engines() -> [(&'static str, Engine); 3] {
    [("chat", chat()), ("small", small()), ("large", large())]
}

#[test]
fn however_many_nodes_there_are_the_replica_is_busy_and_its_queue_is_short() {
    for (name, engine) in engines() {
        for nodes in NODES {
            let found = run(&Engine { nodes, ..engine }, 120);
            let (ended, most) = (found.ended(20..120), best(&engine));
            assert!(ended >= 0.95 * most, "{name}, {nodes}: {ended} of {most}");
            let queued = found.queued(20..120);
            // At least one request of each node, and those that begin within a step.
            let allowed = (0.25 * engine.slots as f64).max(nodes as f64 + 1.5);
            assert!(queued <= allowed, "{name}, {nodes}: {queued} wait, {:?}", found.limits);
        }
    }
}

#[test]
#[ignore = "prints the table of docs/measured/admission.md: cargo test -p spillway-route concurrency_limit -- --ignored --nocapture"]
#[expect(clippy::print_stdout, reason = "its purpose")]
fn table() {
    for (name, engine) in engines() {
        for nodes in NODES {
            let found = run(&Engine { nodes, ..engine }, 120);
            let share = found.ended(20..120) / best(&engine) * 100.0;
            let of = |node| found.ended_of(node, 20..120);
            let (most, least) =
                ((0..nodes).map(of).max().unwrap_or(0), (0..nodes).map(of).min().unwrap_or(0));
            let queued = found.queued(20..120);
            println!(
                "{name}, {nodes} nodes: {share:.1} %, {queued:.1} wait, by node {least} to {most}"
            );
        }
    }
}

#[test]
fn nodes_with_as_much_to_do_get_as_much() {
    // One node has two of five slots.
    for (name, engine) in engines().into_iter().filter(|(name, _)| *name != "small") {
        let found = run(&Engine { nodes: 4, ..engine }, 120);
        let ended: Vec<u32> = (0..4).map(|node| found.ended_of(node, 20..120)).collect();
        let mean = f64::from(ended.iter().sum::<u32>()) / 4.0;
        let is_fair = |ended: &u32| (f64::from(*ended) - mean).abs() <= 0.2 * mean;
        assert!(ended.iter().all(is_fair), "{name}: {ended:?}");
    }
}

#[test]
fn a_node_that_comes_late_gets_its_part_and_one_alone_gets_all() {
    // First one node alone, then both, then the second alone.
    let wanted = |node, second| match (node, second) {
        (0, 0..60) | (1, 30..90) => usize::MAX,
        _ => 0,
    };
    for (name, engine) in engines() {
        let found = run(&Engine { nodes: 2, wanted, ..engine }, 90);
        let most = best(&engine);
        for seconds in [10..30, 35..60, 65..90] {
            let ended = found.ended(seconds.clone());
            assert!(ended >= 0.93 * most, "{name}, {seconds:?}: {ended} of {most}");
        }
        let (first, second) = (found.ended_of(0, 40..60), found.ended_of(1, 40..60));
        let share = f64::from(second) / f64::from(first + second);
        assert!((0.35..0.65).contains(&share), "{name}: {first} and {second}");
    }
}
