//! Regions that can't be reached, and that come back.

use std::time::{Duration, Instant};

use spillway_node::Node;
use spillway_tests::{
    Client, Cluster, OK, PATIENCE, SLOWDOWN, Scripted, Setup, chat, eventually, is_open, knows,
};

/// Longest time until an unreachable region is taken out.
const OUT_WITHIN: Duration = Duration::from_secs(1);

async fn takes_out(node: &Node, region: &str, since: Instant) -> Duration {
    eventually("it is out", || !is_open(node, region)).await;
    since.elapsed()
}

#[tokio::test]
async fn a_region_that_is_cut_off_is_soon_out_in_each_direction_and_comes_back() {
    let replicas = [Scripted::start().await.serve(OK), Scripted::start().await.serve(OK)];
    let cluster = Cluster::new(&["one", "two"]).set("cluster.silence_ms = 900");
    cluster.distance(0, 1, Duration::from_millis(40));
    let setup = |index: usize| Setup::new().replica("a", replicas[index].address);
    let one = cluster.start(0, setup(0)).await;
    let two = cluster.start(1, setup(1)).await;
    for cuts in [&[(0, 1)][..], &[(1, 0)], &[(0, 1), (1, 0)]] {
        knows(&one, "two").await;
        knows(&two, "one").await;
        let since = Instant::now();
        cuts.iter().for_each(|&(from, to)| cluster.cut(from, to, true));
        let (by_one, by_two) =
            tokio::join!(takes_out(&one, "two", since), takes_out(&two, "one", since));
        assert!(
            by_one.max(by_two) <= 2 * SLOWDOWN * OUT_WITHIN,
            "{cuts:?}: {by_one:?} and {by_two:?}"
        );
        // A side that receives nothing notices first. The other one learns it from its peer, or
        // receives nothing itself.
        assert!(by_one.min(by_two) <= SLOWDOWN * OUT_WITHIN, "{cuts:?}: {by_one:?} and {by_two:?}");
        let reply = Client::once(one.addresses()[0], chat("tiny", "")).await;
        assert_eq!((reply.status, reply.header("x-spillway-region")), (200, Some("one")));
        cuts.iter().for_each(|&(from, to)| cluster.cut(from, to, false));
    }
    knows(&one, "two").await;
    knows(&two, "one").await;
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_node_that_ends_is_no_candidate_and_one_that_starts_again_is() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["edge", "core"]);
    let with_replica = || Setup::new().replica("a", replica.address);
    let edge = cluster.start(0, Setup::new()).await;
    let began = Instant::now();
    for _ in 0..2 {
        let core = cluster.start(1, with_replica()).await;
        knows(&edge, "core").await;
        let since = Instant::now();
        loop {
            let reply = Client::once(edge.addresses()[0], chat("tiny", "")).await;
            if reply.status == 200 {
                break;
            }
            // Its reports arrive, but the connection for requests may not be open yet.
            assert!(reply.status == 503 && since.elapsed() < PATIENCE, "{}", reply.text());
        }
        core.stop().await;
        eventually("it is out", || !is_open(&edge, "core")).await;
        let reply = Client::once(edge.addresses()[0], chat("tiny", "")).await;
        assert_eq!(reply.status, 503, "{}", reply.text());
        // It may be back at any moment. But a worker that served no request during that time has
        // refused since the first round, and gives a retry time of up to as long again.
        let most = 3 + began.elapsed().as_secs() as u32;
        let seconds = reply.header("retry-after").and_then(|text| text.parse::<u32>().ok());
        assert!(seconds.is_some_and(|seconds| (1..=most).contains(&seconds)), "{seconds:?}");
    }
    edge.stop().await;
}
