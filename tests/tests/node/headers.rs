//! Headers that are added to requests and replies.

use http::HeaderValue;
use spillway_tests::{Client, OK, Scripted, Setup, both, chat, get, post};

#[tokio::test]
async fn a_request_is_marked_on_its_way() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().replica("a", replica.address).start().await;
    for client in &mut both(&node).await {
        let mut request = chat("tiny", "");
        request.headers_mut().insert("x-kept", HeaderValue::from_static("1"));
        let reply = client.fetch(request).await;
        let seen = replica.requests.last();
        let host = node.addresses()[0].to_string();
        for (name, value) in [
            ("via", "1.1 spillway"),
            ("x-forwarded-for", "127.0.0.1"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", host.as_str()),
            ("host", &replica.address.to_string()),
            ("x-kept", "1"),
        ] {
            assert_eq!(seen.header(name), Some(value), "{name}");
            assert_eq!(seen.header_count(name), 1, "{name}");
        }
        let id = reply.header("x-request-id").expect("an id");
        assert_eq!(seen.header("x-request-id"), Some(id));
        assert_eq!(id.len(), 32, "{id}");
        let trace = seen.header("traceparent").expect("a trace");
        assert_eq!((trace.len(), &trace[..3]), (55, "00-"), "{trace}");
    }
}

#[tokio::test]
async fn a_client_s_own_id_and_trace_go_on() {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().replica("a", replica.address).start().await;
    for client in &mut both(&node).await {
        let mut request = chat("tiny", "");
        request.headers_mut().insert("x-request-id", HeaderValue::from_static("mine-7"));
        request.headers_mut().insert("traceparent", HeaderValue::from_static(PARENT));
        request.headers_mut().insert("tracestate", HeaderValue::from_static("a=1"));
        let reply = client.fetch(request).await;
        let seen = replica.requests.last();
        assert_eq!(reply.header("x-request-id"), Some("mine-7"));
        let at_replica = seen.header("x-request-id").expect("an id");
        assert!(at_replica.starts_with("mine-7-"), "{at_replica}");
        assert_eq!(seen.header("tracestate"), Some("a=1"));
        let trace = seen.header("traceparent").expect("a trace");
        assert_eq!((&trace[..35], &trace[52..]), (&PARENT[..35], &PARENT[52..]));
        assert_ne!(trace, PARENT, "a span of its own");
    }
}

#[tokio::test]
async fn errors_and_local_answers_have_an_id_too() {
    let node = Setup::new().start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for request in [get("/v1/models"), get("/nothing"), post("/v1/completions", "{")] {
        let reply = client.fetch(request).await;
        assert!(reply.header("x-request-id").is_some_and(|id| id.len() == 32));
    }
}

#[tokio::test]
async fn how_a_request_was_routed_is_told_if_the_config_says_so() {
    let replica = Scripted::start().await.serve(OK);
    let names = [
        "x-spillway-region",
        "x-spillway-replica",
        "x-spillway-policy",
        "x-spillway-reason",
        "x-spillway-hops",
        "x-spillway-cached-tokens",
    ];
    let setup = Setup::new().set("node.region = \"mars\"").replica("a", replica.address);
    let silent = setup.clone().start().await;
    let reply = Client::once(silent.addresses()[0], chat("tiny", "")).await;
    assert!(names.iter().all(|name| reply.header(name).is_none()));
    let telling = setup.set("node.expose_routing = true").start().await;
    let reply = Client::once(telling.addresses()[0], chat("tiny", "")).await;
    let told = names.map(|name| reply.header(name).expect("told"));
    assert_eq!(told, ["mars", "a", "predicted_latency", "only", "0", "0"]);
}

#[tokio::test]
async fn headers_of_one_hop_go_no_further() {
    let reply = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: x-hop\r\nx-hop: 1\r\n\
                 keep-alive: timeout=5\r\nx-spillway-code: forged\r\nx-kept: 1\r\n\r\nok";
    let replica = Scripted::start().await.serve(reply);
    let node = Setup::new().replica("a", replica.address).start().await;
    for client in &mut both(&node).await {
        let mut request = chat("tiny", "");
        request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
        let reply = client.fetch(request).await;
        assert_eq!(reply.header("x-kept"), Some("1"));
        for name in ["x-hop", "keep-alive", "connection", "x-spillway-code"] {
            assert_eq!(reply.header(name), None, "{name}");
        }
        assert_eq!(replica.requests.last().header("te"), None);
    }
}
