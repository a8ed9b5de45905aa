//! Names of replicas: look-ups in the background, and servers that move to other addresses.

use std::time::{Duration, Instant};

use spillway_node::Node;
use spillway_resolver::{NameServers, SystemFiles};
use spillway_testkit::{DnsServer, Mood};
use spillway_tests::{
    Client, OK, Page, Scripted, Setup, chat, emulator, eventually, get, spawn, within,
};
use tempfile::TempDir;

use crate::health::stands_at_last;
use crate::reload::{File, reloads};

/// Hosts file and name server of a test.
struct Names {
    folder: TempDir,
    server: DnsServer,
}

impl Names {
    async fn new(hosts: &str) -> Self {
        let names = Self {
            folder: tempfile::tempdir().expect("a folder"),
            server: DnsServer::start().await,
        };
        names.set(hosts);
        names
    }

    fn set(&self, hosts: &str) {
        std::fs::write(self.folder.path().join("hosts"), hosts).expect("writes");
    }

    fn files(&self) -> SystemFiles {
        let servers = NameServers::Fixed(vec![self.server.address]);
        SystemFiles { hosts: self.folder.path().join("hosts"), servers }
    }

    async fn start(&self, setup: &Setup) -> Node {
        let mut config = setup.config();
        config.system_files = self.files();
        Node::start(config).await.expect("a node")
    }
}

async fn ask(node: &Node) -> u16 {
    Client::once(node.addresses()[0], chat("tiny", "")).await.status
}

/// A node with one replica, `engine.test`, whose idle connections stay.
fn named(port: u16, lines: &str) -> Setup {
    let lines = format!("idle_ms = 600_000\n{lines}");
    Setup::new().replica_with("a", &format!("http://engine.test:{port}"), &lines)
}

#[tokio::test]
async fn connections_to_an_address_that_the_name_lost_are_closed_and_not_used_again() {
    let old = Scripted::start().await;
    let port = old.address.port();
    let new = Scripted::at(([127, 0, 0, 2], port).into()).await.serve(OK);
    let names = Names::new("127.0.0.1 engine.test").await;
    let node = names.start(&named(port, "")).await;
    let address = node.addresses()[0];
    let asking = [(); 2].map(|()| spawn(Client::once(address, chat("tiny", ""))));
    let (mut idle, _) = old.request().await;
    let (mut busy, _) = old.request().await;
    idle.send(OK).await;
    names.set("127.0.0.2 engine.test");
    let (rest, _) = within("the end of the idle connection", idle.end()).await;
    assert!(rest.is_empty(), "{rest:?}");
    assert_eq!(ask(&node).await, 200);
    assert_eq!(new.requests.count(), 1);
    // The request in flight is not disturbed, and its connection then ends.
    busy.send(OK).await;
    for reply in asking {
        assert_eq!(reply.await.expect("a reply").status, 200);
    }
    within("the end of the busy connection", busy.end()).await;
    node.stop().await;
}

#[tokio::test]
async fn a_shared_connection_to_an_address_that_the_name_lost_is_closed() {
    let old = emulator(1).await;
    let names = Names::new("127.0.0.1 engine.test").await;
    let setup = named(old.addresses()[0].port(), "protocol = \"http2\"");
    let node = names.start(&setup).await;
    assert_eq!(ask(&node).await, 200);
    let connections = || Page::of(&node).sum("spillway_replica_connections", &[("replica", "a")]);
    assert_eq!(connections(), 1.0);
    names.set("127.0.0.3 engine.test");
    eventually("the end of the connection", || connections() == 0.0).await;
    node.stop().await;
}

#[tokio::test]
async fn a_failed_connection_has_the_name_looked_up_at_once() {
    let port = Scripted::refusing().port();
    let new = Scripted::at(([127, 0, 0, 2], port).into()).await.serve(OK);
    let names = Names::new("").await;
    names.server.addresses("engine.test.", 3600, &["127.0.0.1"]);
    let node = names.start(&named(port, "")).await;
    names.server.addresses("engine.test.", 3600, &["127.0.0.2"]);
    let moved = Instant::now();
    while ask(&node).await != 200 {
        assert!(moved.elapsed() < Duration::from_secs(20), "the TTL counts as 30 s");
        tokio::task::yield_now().await;
    }
    assert_eq!(new.requests.count(), 1);
    node.stop().await;
}

#[tokio::test]
async fn a_replica_whose_name_is_not_answered_gets_nothing_and_holds_up_nothing() {
    let other = Scripted::start().await.serve(OK);
    let names = Names::new("").await;
    names.server.mood(Mood::Silent);
    let mut setup = Setup::new().replica("local", other.address);
    for index in 0..40 {
        let url = format!("http://gpu-{index}.test:8000");
        setup = setup.replica_with(&format!("r{index}"), &url, "");
    }
    let node = names.start(&setup).await;
    for _ in 0..20 {
        assert_eq!(ask(&node).await, 200);
    }
    assert_eq!(other.requests.count(), 20);
    stands_at_last(&node, "r0", "down").await;
    names.set("127.0.0.1 gpu-39.test");
    stands_at_last(&node, "r39", "open").await;
    let stopping = Instant::now();
    node.stop().await;
    assert!(stopping.elapsed() < Duration::from_secs(10), "{:?}", stopping.elapsed());
}

#[tokio::test]
async fn a_reload_waits_for_no_name() {
    let other = Scripted::start().await.serve(OK);
    let names = Names::new("").await;
    names.server.mood(Mood::Silent);
    let setup = Setup::new().replica("local", other.address);
    let file = File::new(&setup);
    let node = file.start_with(|config| config.system_files = names.files()).await;
    let more = (0..40).fold(setup, |setup, index| {
        setup.replica_with(&format!("r{index}"), &format!("http://gpu-{index}.test:8000"), "")
    });
    file.replace(&more.clone().table("[aliases]\nother = \"tiny\"").text());
    eventually("the reload", || reloads(&node, "applied") == 1.0).await;
    let list = Client::once(node.addresses()[0], get("/v1/models")).await;
    assert!(list.text().contains("\"other\""), "{}", list.text());
    assert!(names.server.questions() < 600, "only some names are asked for at a time");
    assert_eq!(ask(&node).await, 200);
    node.stop().await;
}

#[tokio::test]
async fn the_only_replica_without_an_address_is_reported_as_such() {
    let names = Names::new("").await;
    let node = names.start(&named(8000, "")).await;
    let reply = Client::once(node.addresses()[0], chat("tiny", "")).await;
    assert_eq!(reply.status, 502, "{}", reply.text());
    assert!(reply.text().contains("does not resolve"), "{}", reply.text());
    node.stop().await;
}

#[tokio::test]
async fn a_name_with_an_underscore_is_asked_for() {
    let server = Scripted::start().await.serve(OK);
    let names = Names::new("").await;
    names.server.addresses("gpu_worker.stack_net.", 30, &["127.0.0.1"]);
    let url = format!("http://gpu_worker.stack_net:{}", server.address.port());
    let node = names.start(&Setup::new().replica_with("a", &url, "")).await;
    assert_eq!(ask(&node).await, 200);
    node.stop().await;
}
