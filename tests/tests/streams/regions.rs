//! Streams of another region whose node goes away.

use http_body_util::BodyExt;
use serde_json::{Value, json};
use spillway_node::Node;
use spillway_tests::{
    Client, Cluster, OK, Page, Reply, Scripted, Setup, eventually, knows, post, spawn,
};

use crate::stream::{Api, Stream, continuing};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

fn event(id: &str, text: &str, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "text": text, "finish_reason": finish});
    let chunk = json!({"id": id, "created": 1, "model": "tiny", "choices": [choice]});
    format!("data: {chunk}\n\n")
}

/// A node with one replica that takes one request at a time.
async fn with_replica(cluster: &Cluster, index: usize) -> (Node, Scripted) {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    // A machine that is gone closes no connection: only the silence shows it.
    let setup = continuing("timeouts = { idle_ms = 1500 }");
    let setup = setup.replica_with(&format!("r{index}"), &url, "connections_max = 1");
    (cluster.start(index, setup).await, replica)
}

#[tokio::test]
async fn a_stream_goes_on_at_home_when_the_region_that_served_it_is_gone() {
    let cluster = Cluster::new(&["home", "away"]).set("spill.reserve_percent = 0");
    let (home, here) = with_replica(&cluster, 0).await;
    let (away, there) = with_replica(&cluster, 1).await;
    knows(&home, "away").await;
    let address = home.addresses()[0];

    let nothing = json!({});
    let first = spawn(Client::once(address, Api::Text.request(&nothing)));
    let (mut first_wire, _) = here.request().await;
    let mut client = Client::http1(address).await;
    let (response, second_wire) = tokio::join!(client.send(Api::Text.request(&nothing)), async {
        let (mut wire, _) = there.request().await;
        wire.send(format!("{HEAD}{}", event("a", " there", None))).await;
        wire
    });
    let mut response = response.expect("a head");
    let begin = response.body_mut().frame().await.expect("a piece").expect("a piece");
    let begin = begin.into_data().expect("data");
    // The node goes away as a machine does, and a place comes free at home.
    drop((away, second_wire));
    first_wire.send(OK).await;
    let goes_on = async {
        let kept = async {
            if !first_wire.has_more().await {
                std::future::pending::<()>().await;
            }
            (first_wire.message().await, None)
        };
        let (message, fresh) = tokio::select! {
            (message, fresh) = kept => (message, fresh),
            (wire, message) = here.request() => (message, Some(wire)),
        };
        (message, fresh)
    };
    let (message, fresh) = goes_on.await;
    let body: Value = serde_json::from_str(&message.text()).expect("JSON");
    let rest = format!("{HEAD}{}data: [DONE]\n\n", event("b", " was", Some("stop")));
    let mut wire = fresh.unwrap_or(first_wire);
    wire.send(rest).await;
    wire.finish().await;

    assert_eq!(body["prompt"], "Once upon a time there");
    let reply = Reply::collect(response).await.expect("a whole reply");
    let text = format!("{}{}", String::from_utf8_lossy(&begin), reply.text());
    let stream = Stream::read(&text);
    assert_eq!((stream.errors.len(), stream.dones, stream.heads.len()), (0, 1, 1), "{text}");
    assert_eq!(stream.text, " there was");
    assert_eq!(first.await.expect("a reply").status, 200);
    home.stop().await;
}

#[tokio::test]
async fn a_stream_of_a_node_without_replicas_goes_on_at_the_region_s_other_node() {
    let cluster = Cluster::new(&["edge", "core", "core"]).set("spill.reserve_percent = 0");
    let (one, at_one) = with_replica(&cluster, 1).await;
    let (other, at_other) = with_replica(&cluster, 2).await;
    // Long enough to notice that the node is gone, and to ask the other one.
    let edge = cluster.start(0, continuing("timeouts = { idle_ms = 30000 }")).await;
    knows(&edge, "core").await;
    let mut client = Client::http1(edge.addresses()[0]).await;
    let request = Api::Text.request(&json!({}));
    let (response, (wire, is_one)) = tokio::join!(client.send(request), async {
        let (mut wire, is_one) = tokio::select! {
            (wire, _) = at_one.request() => (wire, true),
            (wire, _) = at_other.request() => (wire, false),
        };
        wire.send(format!("{HEAD}{}", event("a", " there", None))).await;
        (wire, is_one)
    });
    let mut response = response.expect("a head");
    let begin = response.body_mut().frame().await.expect("a piece").expect("a piece");
    let begin = begin.into_data().expect("data");
    let (gone, left, next) = if is_one { (one, other, at_other) } else { (other, one, at_one) };
    drop((gone, wire));
    let (mut wire, message) = next.request().await;
    let body: Value = serde_json::from_str(&message.text()).expect("JSON");
    assert_eq!(body["prompt"], "Once upon a time there");
    wire.send(format!("{HEAD}{}data: [DONE]\n\n", event("b", " was", Some("stop")))).await;
    wire.finish().await;

    let reply = Reply::collect(response).await.expect("a whole reply");
    let text = format!("{}{}", String::from_utf8_lossy(&begin), reply.text());
    let stream = Stream::read(&text);
    assert_eq!((stream.errors.len(), stream.dones, stream.heads.len()), (0, 1, 1), "{text}");
    assert_eq!(stream.text, " there was");
    edge.stop().await;
    left.stop().await;
}

#[tokio::test]
async fn a_reply_from_another_region_that_nobody_reads_frees_its_places_in_both() {
    let event = event("a", &"word ".repeat(200), None);
    let text = format!("{}data: [DONE]\n\n", event.repeat(400));
    let replica = Scripted::start().await;
    let address = replica.address;
    let cluster = Cluster::new(&["edge", "core"]);
    let core = cluster.start(1, Setup::new().replica("a", address)).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "core").await;
    let mut client = Client::http2_with_window(edge.addresses()[0], 16 << 10).await;
    let (response, mut wire) =
        tokio::join!(client.send(post("/v1/completions", r#"{"model":"tiny"}"#)), async {
            let (mut wire, _) = replica.request().await;
            wire.send(HEAD).await;
            wire
        });
    wire.send(&text).await;
    wire.finish().await;
    let taken = || Page::of(&core).sum("spillway_replica_in_flight", &[]);
    eventually("the replica's place is free", || taken() == 0.0).await;
    eventually("the guest has left", || core.gateway().counters.guests() == 0).await;
    assert_eq!(edge.gateway().counters.unfinished(), 1);
    let held = || Page::of(&edge).sum("spillway_read_ahead_bytes", &[]);
    eventually("it is held where the client is", || held() > 0.0).await;
    let reply = Reply::collect(response.expect("a head")).await.expect("a whole reply");
    assert!(reply.text() == text, "not what the replica said");
    eventually("nothing is held any more", || held() == 0.0).await;
    edge.stop().await;
    core.stop().await;
}
