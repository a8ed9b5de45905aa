//! Other regions and nodes on the metrics page of a node.

use spillway_telemetry::GROUPS;
use spillway_tests::{Client, Cluster, OK, Page, Scripted, Setup, chat, eventually, knows, spawn};

use crate::dns::leading_clients;

/// Parts of the names of metrics that only nodes of a cluster have.
const OF_CLUSTERS: [&str; 7] =
    ["_region_", "_spill_", "_link_", "_gossip_", "_certificate_", "_guest_", "_dns_"];

/// One more listener, with a certificate of its own.
fn secured(folder: &std::path::Path) -> String {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.join(name));
    std::fs::write(&certificate, made.cert.pem()).expect("writes");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("writes");
    let tls = format!("tls = {{ certificate = {certificate:?}, key = {key:?} }}");
    format!("[[listener]]\naddress = \"127.0.0.1:0\"\n{tls}")
}

#[tokio::test]
async fn every_metric_of_clusters_appears() {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    let cluster = Cluster::new(&["edge", "core"]);
    let one_place = Setup::new().replica_with("a", &url, "connections_max = 1");
    let core = cluster.start(1, leading_clients(one_place, &[("core", "10.1.0.0/16")])).await;
    let folder = tempfile::tempdir().expect("a folder");
    let edge = cluster.start(0, Setup::new().table(secured(folder.path()))).await;
    knows(&edge, "core").await;
    let first = spawn(Client::once(edge.addresses()[0], chat("tiny", "")));
    let (mut wire, _) = replica.request().await;
    let waiting = spawn(Client::once(core.addresses()[0], chat("tiny", "")));
    eventually("it waits", || core.gateway().routing.waiting.count() == 1).await;
    let page = Page::of(&core);
    assert_eq!(page.sum("spillway_waiting", &[("model", "tiny")]), 1.0);
    assert_eq!(page.sum("spillway_guests", &[]), 1.0);
    let page = Page::of(&edge);
    assert_eq!(page.sum("spillway_spill_in_flight", &[("region", "core")]), 1.0);
    assert_eq!(page.sum("spillway_region_reachable", &[("region", "core")]), 1.0);
    assert_eq!(page.sum("spillway_link_connected", &[("peer", "n1")]), 2.0);

    wire.send(OK).await;
    assert_eq!(first.await.expect("a reply").status, 200);
    let (mut wire, _) = replica.request().await;
    wire.send(OK).await;
    assert_eq!(waiting.await.expect("a reply").status, 200);
    let served = [("region", "core"), ("result", "served")];
    eventually("it is counted", || {
        Page::of(&edge).sum("spillway_spill_requests_total", &served) == 1.0
            && Page::of(&core).sum("spillway_guest_requests_total", &[("status", "2xx")]) >= 1.0
    })
    .await;
    let names = GROUPS.iter().flat_map(|group| group.metrics).map(|metric| metric.name);
    let pages = [Page::of(&edge), Page::of(&core)];
    pages.iter().for_each(Page::is_as_documented);
    for name in names.filter(|name| OF_CLUSTERS.iter().any(|part| name.contains(part))) {
        let mut samples = pages.iter().flat_map(|page| &page.samples);
        assert!(samples.any(|sample| sample.name.starts_with(name)), "{name} is missing");
    }
    edge.stop().await;
    core.stop().await;
}
