//! A node that stops lets what runs finish, and takes nothing new.

use spillway_node::Node;
use spillway_tests::{
    Client, Reply, Scripted, Setup, Wire, both, chat, eventually, get, slow_emulator, spawn, within,
};
use tokio::net::TcpStream;

const EVENTS: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"choices\":[]}\n\n";

async fn streaming(
    client: &mut Client,
    replica: &Scripted,
) -> (http::Response<hyper::body::Incoming>, Wire) {
    let (response, wire) = tokio::join!(client.send(chat("tiny", "")), async {
        let (mut wire, _) = replica.request().await;
        wire.send(EVENTS).await;
        wire
    });
    (response.expect("a head"), wire)
}

async fn stopped(node: Node) -> bool {
    within("the node to stop", node.stop()).await.is_whole()
}

#[tokio::test]
async fn streams_finish_and_nothing_new_begins() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    let (address, admin) = (node.addresses()[0], node.admin_address().expect("one"));
    let mut streams = Vec::new();
    for mut client in both(&node).await {
        streams.push(streaming(&mut client, &replica).await);
    }
    assert_eq!(Client::once(admin, get("/readyz")).await.status, 200);
    let stopping = spawn(stopped(node));
    let refuses = || async { TcpStream::connect(address).await.is_err() };
    while !refuses().await {
        tokio::task::yield_now().await;
    }
    let reply = Client::once(admin, get("/readyz")).await;
    assert_eq!(reply.status, 503);
    assert_eq!(Client::once(admin, get("/livez")).await.status, 200);
    assert!(!stopping.is_finished());
    for (response, mut wire) in streams {
        wire.send("data: [DONE]\n\n").await;
        wire.finish().await;
        let reply = Reply::collect(response).await.expect("a whole stream");
        assert_eq!(reply.events().last(), Some(&"data: [DONE]\n\n"));
    }
    assert!(stopping.await.expect("stops"), "all requests finished");
}

#[tokio::test]
async fn who_connected_before_the_drain_is_served_though_it_has_said_nothing_yet() {
    // One worker accepts by itself; for several a thread of its own does.
    for workers in [1, 2] {
        let replica = Scripted::start().await;
        let setup = Setup::new().set(format!("node.workers = {workers}"));
        let node = setup.replica("a", replica.address).start().await;
        let replica = replica.serve("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(Client::http1(node.addresses()[0]).await);
        }
        // Immediately: the node may not have accepted any of them yet.
        node.gateway().start_draining();
        let asked: Vec<_> = clients
            .into_iter()
            .map(|mut client| spawn(async move { client.fetch(chat("tiny", "")).await }))
            .collect();
        for reply in asked {
            let reply = within("a reply", reply).await.expect("no panic");
            assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
        }
        assert_eq!(replica.requests.count(), 3);
        assert!(stopped(node).await, "all requests finished");
    }
}

#[tokio::test]
async fn what_takes_longer_than_the_limit_is_cut_and_told() {
    let replica = Scripted::start().await;
    let setup = Setup::new().set("node.drain_ms = 200").replica("a", replica.address);
    let node = setup.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let (response, mut wire) = streaming(&mut client, &replica).await;
    assert!(!stopped(node).await, "one request did not finish");
    assert!(Reply::collect(response).await.is_err());
    wire.end().await;
}

#[tokio::test]
async fn idle_connections_delay_nothing() {
    let emulator = slow_emulator(1, 0.01).await;
    let url = format!("http://{}", emulator.addresses()[0]);
    for protocol in ["http1", "http2"] {
        let lines = format!("protocol = \"{protocol}\"");
        let setup = Setup::new().set("node.drain_ms = 600000").replica_with("a", &url, &lines);
        let node = setup.start().await;
        let mut clients = both(&node).await;
        for client in &mut clients {
            assert_eq!(client.fetch(chat("tiny", r#","max_tokens":2"#)).await.status, 200);
        }
        let silent = Wire::connect(node.addresses()[0]).await;
        // Were they waited for, this would take longer than a test waits for anything.
        assert!(stopped(node).await, "{protocol}");
        for client in &clients {
            eventually("it is closed", || !client.is_open()).await;
        }
        drop(silent);
    }
}

#[tokio::test]
async fn a_node_that_is_dropped_frees_its_address() {
    let node = Setup::new().start().await;
    let address = node.addresses()[0];
    drop(node);
    eventually("it refuses", || std::net::TcpStream::connect(address).is_err()).await;
}

#[tokio::test]
async fn a_node_that_is_told_to_stop_says_so_before_it_refuses_anybody() {
    let replica = Scripted::start().await;
    let setup = Setup::new().set("node.drain_notice_ms = 60000").replica("a", replica.address);
    let node = setup.start().await;
    let (address, admin) = (node.addresses()[0], node.admin_address().expect("one"));
    let gateway = std::sync::Arc::clone(node.gateway());
    let replica = replica.serve("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let before = Client::once(address, chat("tiny", "")).await;
    assert_eq!((before.status, before.header("connection")), (200, None));
    let stopping = spawn(node.stop());
    eventually("it is leaving", || gateway.switches.is_leaving()).await;
    for at in [address, admin] {
        assert_eq!(Client::once(at, get("/readyz")).await.status, 503);
        assert_eq!(Client::once(at, get("/livez")).await.status, 200);
    }
    // Clients that have not noticed yet are served as before, on new connections, too. Connections
    // are not kept, since they would end under a later request.
    let reply = Client::once(address, chat("tiny", "")).await;
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    let reply = Client::http2(address).await.fetch(chat("tiny", "")).await;
    assert_eq!((reply.status, reply.header("connection")), (200, None));
    assert_eq!(replica.requests.count(), 3);
    assert!(!stopping.is_finished() && !gateway.door.is_draining());
    stopping.abort();
}

#[tokio::test]
async fn a_node_that_is_polled_serves_on_without_a_setting_until_balancers_have_seen_it() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    let (address, admin) = (node.addresses()[0], node.admin_address().expect("one"));
    let gateway = std::sync::Arc::clone(node.gateway());
    let replica = replica.serve("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    for at in [admin, address, admin] {
        assert_eq!(Client::once(at, get("/readyz")).await.status, 200);
    }
    let stopping = spawn(node.stop());
    eventually("it is leaving", || gateway.switches.is_leaving()).await;
    assert_eq!(Client::once(admin, get("/readyz")).await.status, 503);
    assert_eq!(Client::once(address, chat("tiny", "")).await.status, 200);
    assert!(!stopping.is_finished() && !gateway.door.is_draining());
    assert_eq!(replica.requests.count(), 1);
    stopping.abort();
}

#[tokio::test]
async fn what_is_broken_off_is_counted() {
    let replica = Scripted::start().await;
    let setup = Setup::new().set("node.drain_ms = 200").replica("a", replica.address);
    let node = setup.start().await;
    let mut streams = Vec::new();
    for mut client in both(&node).await {
        streams.push((streaming(&mut client, &replica).await, client));
    }
    assert_eq!(node.gateway().counters.unfinished(), 2);
    let stopped = within("the node to stop", node.stop()).await;
    assert_eq!(stopped.broken_off, 2);
    drop(streams);
}
