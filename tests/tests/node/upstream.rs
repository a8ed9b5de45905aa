//! The replicas' side: credentials, pools, connections of every kind.

use http::{HeaderValue, Request};
use spillway_node::Node;
use spillway_tests::{
    Client, ClientBody, Closed, OK, Page, RAW_ROUTE, Scripted, Setup, Wire, both, chat, eventually,
    slow_emulator, spawn,
};

fn connections(node: &Node) -> f64 {
    Page::of(node).sum("spillway_replica_connections", &[])
}

fn with_keys(mut request: Request<ClientBody>) -> Request<ClientBody> {
    for name in ["authorization", "x-api-key", "api-key", "proxy-authorization"] {
        request.headers_mut().insert(name, HeaderValue::from_static("Bearer client-secret"));
    }
    request
}

#[tokio::test]
async fn a_client_s_keys_reach_no_replica_unless_the_route_says_so() {
    let replica = Scripted::start().await.serve(OK);
    let kept = "[[route]]\nname = \"kept\"\nforward_authorization = true\n";
    for (route, seen) in [("", 0), (RAW_ROUTE, 0), (kept, 1)] {
        let node = Setup::new().table(route).replica("a", replica.address).start().await;
        for client in &mut both(&node).await {
            client.fetch(with_keys(chat("tiny", ""))).await;
            let arrived = replica.requests.last();
            assert_eq!(arrived.header_count("authorization"), seen);
            assert_eq!(arrived.header_count("x-api-key"), seen);
            assert_eq!(arrived.header_count("proxy-authorization"), 0);
            assert_eq!(arrived.head.contains("client-secret"), seen == 1);
        }
    }
}

#[tokio::test]
async fn a_replica_gets_its_own_credential() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("key");
    std::fs::write(&file, "from-file\n").expect("writes");
    // Any variable that is surely set will do: tests must not change their environment.
    let path = std::env::var("PATH").expect("a path");
    let cases = [
        (
            "value = \"plain\", prefix = \"Bearer \"".to_owned(),
            "authorization",
            "Bearer plain".to_owned(),
        ),
        ("header = \"x-api-key\", value_env = \"PATH\"".to_owned(), "x-api-key", path),
        (format!("value_file = \"{}\"", file.display()), "authorization", "from-file".to_owned()),
    ];
    for (fields, name, value) in cases {
        let replica = Scripted::start().await.serve(OK);
        let lines = format!("credential = {{ {fields} }}");
        let url = format!("http://{}", replica.address);
        let node = Setup::new().replica_with("a", &url, &lines).start().await;
        Client::once(node.addresses()[0], with_keys(chat("tiny", ""))).await;
        let arrived = replica.requests.last();
        assert_eq!(arrived.header(name), Some(value.as_str()));
        assert_eq!(arrived.header_count(name), 1);
        assert!(!arrived.head.contains("client-secret"));
    }
}

#[tokio::test]
async fn no_more_requests_than_allowed_are_in_flight_at_a_replica() {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    let node = Setup::new()
        .set("spill.queue_max = 0")
        .replica_with("a", &url, "connections_max = 2")
        .start()
        .await;
    let address = node.addresses()[0];
    let held: Vec<_> = (0..2).map(|_| spawn(Client::once(address, chat("tiny", "")))).collect();
    let (mut first, _) = replica.request().await;
    let (mut second, _) = replica.request().await;
    for _ in 0..10 {
        let refused = Client::once(address, chat("tiny", "")).await;
        assert_eq!((refused.status, refused.code()), (503, Some("overloaded")));
    }
    assert!(replica.is_alone().await, "no third connection");
    first.send(OK).await;
    second.send(OK).await;
    for task in held {
        assert_eq!(task.await.expect("a reply").status, 200);
    }
    let reply = spawn(Client::once(address, chat("tiny", "")));
    // The oldest idle connection is used first.
    first.message().await;
    first.send(OK).await;
    assert_eq!(reply.await.expect("a reply").status, 200, "places are given back");
}

#[tokio::test]
async fn connections_are_used_again() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    let address = node.addresses()[0];
    let reply = spawn(Client::once(address, chat("tiny", "")));
    let (mut wire, _) = replica.request().await;
    wire.send(OK).await;
    assert_eq!(reply.await.expect("a reply").status, 200);
    for _ in 0..5 {
        let reply = spawn(Client::once(address, chat("tiny", "")));
        wire.message().await;
        wire.send(OK).await;
        assert_eq!(reply.await.expect("a reply").status, 200);
    }
    assert!(replica.is_alone().await);
    assert_eq!(connections(&node), 1.0);
}

#[tokio::test]
async fn a_connection_that_its_server_closed_fails_no_request() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for _ in 0..5 {
        let (reply, mut wire) = tokio::join!(client.fetch(chat("tiny", "")), async {
            let (mut wire, _) = replica.request().await;
            wire.send(OK).await;
            wire
        });
        assert_eq!(reply.status, 200);
        wire.finish().await;
    }
    let page = Page::of(&node);
    assert_eq!(page.sum("spillway_requests_total", &[("status", "200")]), 5.0);
}

#[tokio::test]
async fn idle_connections_are_closed_after_their_time() {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    let node = Setup::new().replica_with("a", &url, "idle_ms = 200").start().await;
    let reply = spawn(Client::once(node.addresses()[0], chat("tiny", "")));
    let (mut wire, _) = replica.request().await;
    wire.send(OK).await;
    assert_eq!(reply.await.expect("a reply").status, 200);
    assert_eq!(wire.end().await, (Vec::new(), Closed::Fin));
    eventually("the connection is gone", || connections(&node) == 0.0).await;
}

#[tokio::test]
async fn an_http2_replica_serves_many_streams_on_one_connection() {
    let emulator = slow_emulator(1, 0.1).await;
    let url = format!("http://{}", emulator.addresses()[0]);
    for protocol in ["http2", "h2c"] {
        let lines = format!("protocol = \"{protocol}\"");
        let node = Setup::new().replica_with("a", &url, &lines).start().await;
        let mut client = Client::http2(node.addresses()[0]).await;
        // Opens the one connection; requests at the same moment would each open one.
        assert_eq!(client.fetch(chat("tiny", r#","max_tokens":1"#)).await.status, 200);
        let fields = r#","stream":true,"max_tokens":20"#;
        let tasks: Vec<_> = (0..10)
            .map(|_| spawn(Client::once(node.addresses()[0], chat("tiny", fields))))
            .collect();
        for task in tasks {
            let reply = task.await.expect("a reply");
            assert_eq!(reply.events().last(), Some(&"data: [DONE]\n\n"));
        }
        assert_eq!(connections(&node), 1.0);
    }
}

#[tokio::test]
async fn a_name_is_looked_up() {
    let replica = Scripted::start().await.serve(OK);
    let url = format!("http://localhost:{}", replica.address.port());
    let node = Setup::new().replica_with("a", &url, "").start().await;
    assert_eq!(Client::once(node.addresses()[0], chat("tiny", "")).await.status, 200);
    let host = format!("localhost:{}", replica.address.port());
    assert_eq!(replica.requests.last().header("host"), Some(host.as_str()));

    let node = Setup::new().replica_with("a", "http://nowhere.invalid:1", "").start().await;
    let reply = Client::once(node.addresses()[0], chat("tiny", "")).await;
    assert_eq!((reply.status, reply.code()), (502, Some("replica_connect")));
}

#[tokio::test]
async fn a_replica_that_hangs_up_between_two_requests_is_noticed_without_a_request() {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    let node = Setup::new().replica_with("a", &url, "idle_ms = 600000").start().await;
    let reply = spawn(Client::once(node.addresses()[0], chat("tiny", "")));
    let (mut wire, _) = replica.request().await;
    wire.send(OK).await;
    assert_eq!(reply.await.expect("a reply").status, 200);
    assert_eq!(connections(&node), 1.0);
    wire.finish().await;
    // Long before its idle time is over.
    eventually("the sweep closes it", || connections(&node) == 0.0).await;
}

#[tokio::test]
async fn what_came_before_a_cut_reaches_the_client() {
    let replica = Scripted::start().await;
    let node = Setup::new()
        .set("health.eject_after = 1000")
        .replica("cutting", replica.address)
        .start()
        .await;
    for _ in 0..20 {
        let mut client = Wire::connect(node.addresses()[0]).await;
        let body = r#"{"model":"tiny","messages":[]}"#;
        let length = body.len();
        client
            .send(format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            ))
            .await;
        let (mut wire, _) = replica.request().await;
        wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n").await;
        wire.finish().await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        let (rest, _) = client.end().await;
        assert_eq!(rest, b"4\r\nhalf\r\n");
    }
    node.stop().await;
}

#[tokio::test]
async fn bytes_that_no_request_asked_for_are_a_fault_of_the_replica() {
    let twice = format!("{OK}{OK}");
    let replica = Scripted::start().await.serve(twice);
    let node = Setup::new().replica("a", replica.address).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for _ in 0..3 {
        assert_eq!(client.fetch(chat("tiny", "")).await.body, "ok", "the first reply");
    }
    let sum = |name: &str, labels: &[(&str, &str)]| Page::of(&node).sum(name, labels);
    eventually("each is counted", || {
        sum("spillway_replica_unasked_replies_total", &[("replica", "a")]) == 3.0
    })
    .await;
    let faults =
        || sum("spillway_replica_faults_total", &[("replica", "a"), ("fault", "bad_reply")]);
    eventually("and the replica's fault", || faults() == 3.0).await;
    assert_eq!(connections(&node), 0.0, "none of them serves again");
}

#[tokio::test]
async fn a_late_second_reply_reaches_no_other_request() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    let address = node.addresses()[0];
    let ask = || spawn(Client::once(address, chat("tiny", "")));
    let (first, second) = (ask(), ask());
    let (mut one, _) = replica.request().await;
    let (mut other, _) = replica.request().await;
    one.send(OK).await;
    other.send(OK).await;
    for reply in [first, second] {
        assert_eq!(reply.await.expect("a reply").body, "ok");
    }
    eventually("both are kept", || connections(&node) == 2.0).await;
    one.send("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison").await;
    other.send("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison").await;
    let third = ask();
    let (mut fresh, _) = replica.request().await;
    fresh.send(OK).await;
    assert_eq!(third.await.expect("a reply").body, "ok");
    // One look was enough to distrust both.
    let unasked = || Page::of(&node).sum("spillway_replica_unasked_replies_total", &[]);
    eventually("it is counted", || unasked() == 1.0).await;
    // Until here they were open.
    drop((one, other));
}
