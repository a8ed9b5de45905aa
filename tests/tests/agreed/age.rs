//! The age of its state that a node reports before it has ever reached a quorum.

use spillway_raft::Trouble;
use spillway_tests::{Cluster, OK, Page, Scripted, Setup, eventually};

use crate::world::REGIONS;

#[tokio::test]
async fn the_age_counts_from_the_start_at_a_node_that_never_heard_a_quorum() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&REGIONS).agreeing();
    let node = cluster.start(0, Setup::new().replica("a", replica.address)).await;
    let age = || Page::of(&node).sum("spillway_control_age_seconds", &[]);
    eventually("it grows", || age() > 0.5).await;
    assert_eq!(node.control_plane().expect("a part in the cluster").status().age, None);
    let page = Page::of(&node);
    page.is_as_documented();
    for kind in Trouble::KINDS {
        let samples = page.samples.iter().filter(|it| it.name == "spillway_control_troubles");
        let of_kind = |labels: &[String]| labels.iter().any(|label| label == kind);
        let values = samples.map(|it| it.labels.values().cloned().collect::<Vec<_>>());
        assert!(values.into_iter().any(|labels| of_kind(&labels)), "{kind} is missing");
    }
    node.stop().await;
}
