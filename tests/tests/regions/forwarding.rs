//! Replies from another region look as if they had been served locally.

use std::time::{Duration, Instant};

use http::HeaderValue;
use http_body_util::BodyExt;
use spillway_tests::{
    Client, Closed, Cluster, OK, Page, SLOWDOWN, Scripted, Setup, Wire, chat, eventually, get,
    knows, noise, post, spawn, within,
};

const RTT: Duration = Duration::from_millis(80);
const STREAM: &str = ",\"stream\":true";
const EVENTS_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
const EVENT: &str = "data: {\"choices\":[]}\n\n";

/// A node that streams longer bodies through.
fn streaming_through() -> Setup {
    Setup::new().with(|config| config.gateway.limits.buffered_bytes_max = 65_536)
}

fn json_reply(body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn a_node_without_replicas_has_its_requests_served_by_another_region() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["edge", "core"]);
    let core = cluster.start(1, Setup::new().replica("a", replica.address)).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "core").await;
    let reply = Client::once(edge.addresses()[0], chat("tiny", "")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let facts = ["region", "replica", "hops"]
        .map(|fact| reply.header(&format!("x-spillway-{fact}")).expect("a header").to_owned());
    assert_eq!(facts, ["core", "a", "1"]);
    assert_eq!(replica.requests.count(), 1);
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn a_stream_comes_piece_by_piece_and_a_client_that_leaves_frees_the_replica() {
    let replica = Scripted::start().await;
    let cluster = Cluster::new(&["edge", "core"]);
    cluster.distance(0, 1, RTT);
    let core = cluster.start(1, Setup::new().replica("a", replica.address)).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "core").await;
    let mut client = Client::http1(edge.addresses()[0]).await;
    let (reply, mut wire) = tokio::join!(client.send(chat("tiny", STREAM)), async {
        let (mut wire, asked) = replica.request().await;
        assert_eq!(asked.header("x-forwarded-for"), Some("127.0.0.1"));
        wire.send(EVENTS_HEAD).await;
        wire.send(EVENT).await;
        wire
    });
    let mut body = reply.expect("a reply").into_body();
    let first = within("the first event", body.frame()).await.expect("a frame").expect("whole");
    assert!(first.data_ref().expect("data").starts_with(b"data: "));
    let left = Instant::now();
    drop((client, body));
    wire.end().await;
    assert!(left.elapsed() < SLOWDOWN * (RTT + Duration::from_millis(100)), "{:?}", left.elapsed());
    eventually("its place is free", || core.gateway().counters.guests() == 0).await;
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn an_upload_of_many_megabytes_arrives_whole_and_is_not_kept_in_memory() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["edge", "core"]);
    cluster.distance(0, 1, Duration::from_millis(20));
    let raw = streaming_through;
    let core = cluster.start(1, raw().replica("a", replica.address)).await;
    let edge = cluster.start(0, raw()).await;
    knows(&edge, "core").await;
    for bytes in [0, 1_000, 64 << 10, (64 << 10) + 1, 3 << 20, 20 << 20] {
        let body = noise(bytes);
        let request = post("/v2/models/tiny/infer", body.clone());
        let reply = Client::once(edge.addresses()[0], request).await;
        assert_eq!(reply.status, 200, "{bytes} bytes: {}", reply.text());
        assert!(replica.requests.last().body == body, "{bytes} bytes");
    }
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn a_reply_of_another_region_before_the_end_of_an_upload_reaches_the_client() {
    const REFUSAL: &str = "HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig";
    let replica = Scripted::start().await;
    let cluster = Cluster::new(&["edge", "core"]);
    cluster.distance(0, 1, Duration::from_millis(20));
    let raw = streaming_through;
    let core = cluster.start(1, raw().replica("a", replica.address)).await;
    let edge = cluster.start(0, raw()).await;
    knows(&edge, "core").await;
    let upload = noise(24 << 20);
    let head = format!(
        "POST /v2/models/tiny/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        upload.len()
    );
    let mut count = 0.0;
    for closes in [false, true] {
        let mut client = Wire::connect(edge.addresses()[0]).await;
        client.send(&head).await;
        client.send(&upload[..100_000]).await;
        let mut wire = replica.accept().await;
        wire.head().await;
        wire.send(REFUSAL).await;
        let open = (!closes).then_some(wire);
        count += 1.0;
        let replies = || Page::of(&edge).sum("spillway_requests_total", &[("status", "413")]);
        eventually("the reply has ended", || replies() == count).await;
        // It reads nothing before its last byte is sent.
        client.send(&upload[100_000..]).await;
        let reply = client.message().await;
        assert!(reply.head.starts_with("HTTP/1.1 413 "), "{}", reply.head);
        assert_eq!(reply.text(), "big");
        assert_eq!(client.end().await, (Vec::new(), Closed::Fin));
        drop(open);
    }
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn what_another_region_stores_is_asked_for_there() {
    let stored = "{\"id\":\"resp_1\",\"object\":\"response\",\"output\":[]}";
    let replica = Scripted::start().await.serve(json_reply(stored));
    let cluster = Cluster::new(&["edge", "core"]);
    let core = cluster.start(1, Setup::new().replica("a", replica.address)).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "core").await;
    let address = edge.addresses()[0];
    let asked = post("/v1/responses", "{\"model\":\"tiny\",\"input\":\"hello\"}");
    assert_eq!(Client::once(address, asked).await.status, 200);
    let again = Client::once(address, get("/v1/responses/resp_1")).await;
    assert_eq!((again.status, again.text()), (200, stored));
    eventually("it has heard what others know", || !edge.gateway().homes.responses.is_learning())
        .await;
    assert_eq!(Client::once(address, get("/v1/responses/resp_2")).await.status, 404);
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn models_of_other_regions_are_listed_and_unknown_ones_are_not_found() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["edge", "core"]);
    let core = cluster.start(1, Setup::new().replica("a", replica.address)).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "core").await;
    let address = edge.addresses()[0];
    eventually("it is ready", || edge.gateway().routing.view().models().len() == 1).await;
    eventually("it has heard all", || edge.gateway().routing.regions().knows_models).await;
    let list = Client::once(address, get("/v1/models")).await;
    assert!(list.text().contains("\"tiny\""), "{}", list.text());
    assert_eq!(Client::once(address, get("/readyz")).await.status, 200);
    let unknown = Client::once(address, chat("huge", "")).await;
    assert_eq!((unknown.status, unknown.code()), (404, Some("model_not_found")));
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn an_error_of_the_replica_far_away_is_passed_on_as_it_is() {
    let broken = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 4\r\n\r\nmine";
    let replica = Scripted::start().await.serve(broken);
    let cluster = Cluster::new(&["edge", "core"]);
    let core = cluster.start(1, Setup::new().replica("a", replica.address)).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "core").await;
    let reply = Client::once(edge.addresses()[0], chat("tiny", "")).await;
    assert_eq!((reply.status, reply.text(), reply.code()), (500, "mine", None));
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn a_replica_can_not_say_in_a_node_s_name_that_it_did_not_serve() {
    let reply = "HTTP/1.1 200 OK\r\nx-spillway-not-served: 5\r\ncontent-length: 2\r\n\r\n{}";
    let replica = Scripted::start().await.serve(reply);
    let cluster = Cluster::new(&["edge", "core"]);
    let core = cluster.start(1, Setup::new().replica("a", replica.address)).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "core").await;
    let reply = Client::once(edge.addresses()[0], chat("tiny", "")).await;
    assert_eq!((reply.status, replica.requests.count()), (200, 1), "{}", reply.text());
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn a_redirect_in_another_region_leads_back_to_this_gateway() {
    const ROUTE: &str = "[[route]]\nname = \"mapped\"\npath_prefix = \"/here\"\n\
                         replace_prefix = \"/there\"\nmodel = \"tiny\"\n";
    for (location, told) in [
        ("http://HOST/there/x?a", Ok("/here/x?a")),
        ("//HOST/there/x", Ok("/here/x")),
        ("y", Ok("/here/y")),
        ("/elsewhere", Err("replica_redirect")),
        ("http://10.9.8.7/there/x", Err("replica_redirect")),
    ] {
        let replica = Scripted::start().await;
        let location = location.replace("HOST", &replica.address.to_string());
        let head = format!("HTTP/1.1 307 Moved\r\nlocation: {location}");
        let replica = replica.serve(format!("{head}\r\ncontent-length: 0\r\n\r\n"));
        let cluster = Cluster::new(&["edge", "core"]);
        let setup = || Setup::new().table(ROUTE);
        let core = cluster.start(1, setup().replica("a", replica.address)).await;
        let edge = cluster.start(0, setup()).await;
        knows(&edge, "core").await;
        let reply = Client::once(edge.addresses()[0], get("/here/z")).await;
        let found = reply.header("location").ok_or_else(|| reply.code().unwrap_or_default());
        assert_eq!(found, told, "{location}: {}", reply.status);
        assert_eq!(reply.status, if told.is_ok() { 307 } else { 502 });
        edge.stop().await;
        core.stop().await;
    }
}

#[tokio::test]
async fn a_429_to_one_tenant_of_another_region_closes_the_replica_to_nobody_else() {
    let busy = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 31\r\ncontent-length: 4\r\n\r\nbusy";
    let replica = Scripted::start().await.serve(busy);
    let claims = "auth = \"headers\"\ntrusted_proxies = [\"127.0.0.0/8\"]";
    let cluster = Cluster::new(&["edge", "core"]);
    let setup = || Setup::new().listener(claims).set("spill.queue_ms = 500");
    let core = cluster.start(1, setup().replica("a", replica.address)).await;
    let edge = cluster.start(0, setup()).await;
    knows(&edge, "core").await;
    let address = edge.addresses()[0];
    let ask = |tenant: &'static str| {
        let mut request = chat("tiny", "");
        request.headers_mut().insert("x-spillway-tenant", HeaderValue::from_static(tenant));
        Client::once(address, request)
    };
    assert_eq!(ask("spender").await.text(), "busy");
    let kept = spawn(ask("spender"));
    assert_eq!(ask("other").await.text(), "busy", "another one is sent there");
    let kept = kept.await.expect("a reply");
    assert!(kept.status >= 400 && kept.text() != "busy", "{}", kept.text());
    assert_eq!(replica.requests.count(), 2, "the tenant itself is kept away");
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn a_node_whose_port_for_nodes_is_taken_says_by_whom() {
    let cluster = Cluster::new(&["edge", "core"]);
    let edge = cluster.start(0, Setup::new()).await;
    let taken = cluster.try_start(0, Setup::new()).await.expect_err("the port is taken");
    let holder = format!("served by pid {} (", std::process::id());
    let text = taken.to_string();
    assert!(text.contains("can't listen on") && text.contains(&holder), "{text}");
    edge.stop().await;
}
