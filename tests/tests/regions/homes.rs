//! Requests return to the region that served them before: sessions by their cookie, conversations
//! by their prompt. A request that may go to one region only goes there whatever that region's
//! share is.

use std::time::Duration;

use http::{HeaderValue, Request};
use serde_json::{Value, json};
use spillway_emulator::Emulator;
use spillway_node::Node;
use spillway_tests::{
    Client, ClientBody, Cluster, OK, Page, Reply, Scripted, Setup, chat, emulator, eventually,
    is_open, knows, post,
};

const REGIONS: [&str; 3] = ["edge", "east", "west"];
/// A route with sessions, whose policy spreads requests by itself.
const BY_COOKIE: &str = "[[route]]\nname = \"llm\"\npolicy = \"random\"\n\
                         session = { cookie = \"home\", idle_s = 60 }";

fn fact(reply: &Reply, name: &str) -> String {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.header(&format!("x-spillway-{name}")).expect("a fact").to_owned()
}

fn place(reply: &Reply) -> (String, String) {
    (fact(reply, "region"), fact(reply, "replica"))
}

/// Returns the cookies of the reply without their attributes.
fn cookies(reply: &Reply) -> Vec<String> {
    let lines = reply.headers.get_all("set-cookie").iter();
    let text = lines.map(|line| line.to_str().expect("text").to_owned());
    text.map(|line| line.split(';').next().unwrap_or_default().to_owned()).collect()
}

async fn ask(node: &Node, cookie: Option<&str>) -> Reply {
    let mut request = chat("tiny", ",\"max_tokens\":2");
    if let Some(cookie) = cookie {
        let value = HeaderValue::from_str(&format!("a=b; {cookie}")).expect("a value");
        request.headers_mut().insert("cookie", value);
    }
    Client::once(node.addresses()[0], request).await
}

/// An edge, and two regions of two replicas each.
async fn with_sessions(cluster: &Cluster) -> (Node, Vec<Node>, Vec<Emulator>) {
    let emulators = vec![emulator(2).await, emulator(2).await];
    let mut regions = Vec::new();
    for (index, emulator) in emulators.iter().enumerate() {
        let setup = Setup::new().table(BY_COOKIE).emulated(emulator);
        regions.push(cluster.start(index + 1, setup).await);
    }
    let edge = cluster.start(0, Setup::new().table(BY_COOKIE)).await;
    knows(&edge, "east").await;
    knows(&edge, "west").await;
    (edge, regions, emulators)
}

#[tokio::test]
async fn a_session_stays_with_its_region_and_replica_through_an_edge() {
    let cluster = Cluster::new(&REGIONS);
    let (edge, mut regions, _emulators) = with_sessions(&cluster).await;
    for _ in 0..4 {
        let first = ask(&edge, None).await;
        let (home, cookie) = (place(&first), cookies(&first));
        assert_eq!(cookie.len(), 1, "{cookie:?}");
        for _ in 0..8 {
            let next = ask(&edge, Some(&cookie[0])).await;
            assert_eq!(place(&next), home);
            assert_eq!(cookies(&next), Vec::<String>::new(), "nothing new to tell");
        }
    }
    // Its region goes, and the session moves once.
    let first = ask(&edge, None).await;
    let home = fact(&first, "region");
    let index = REGIONS.iter().position(|region| *region == home).expect("a region");
    regions.swap_remove(index - 1).stop().await;
    eventually("it is gone", || !is_open(&edge, &home)).await;
    let moved = ask(&edge, Some(&cookies(&first)[0])).await;
    assert_ne!(fact(&moved, "region"), home);
    assert_eq!(changes(&edge, "session", "region"), 1.0);
    let (home, cookie) = (place(&moved), cookies(&moved));
    for _ in 0..8 {
        assert_eq!(place(&ask(&edge, Some(&cookie[0])).await), home);
    }
    edge.stop().await;
    regions.pop().expect("the other one").stop().await;
}

#[tokio::test]
async fn a_session_that_an_edge_began_is_known_in_its_region() {
    let cluster = Cluster::new(&REGIONS);
    let (edge, regions, _emulators) = with_sessions(&cluster).await;
    let first = ask(&edge, None).await;
    let home = place(&first);
    let index = REGIONS.iter().position(|region| *region == home.0).expect("a region");
    for _ in 0..8 {
        let next = ask(&regions[index - 1], Some(&cookies(&first)[0])).await;
        assert_eq!(place(&next), home);
    }
    edge.stop().await;
    for node in regions {
        node.stop().await;
    }
}

fn changes(node: &Node, kept: &str, to: &str) -> f64 {
    Page::of(node).sum("spillway_home_changes_total", &[("kept", kept), ("to", to)])
}

fn turn(messages: &[Value]) -> Request<ClientBody> {
    let body = json!({"model": "tiny", "messages": messages, "max_tokens": 2});
    post("/v1/chat/completions", body.to_string())
}

#[tokio::test]
async fn a_conversation_stays_in_its_region_through_an_edge() {
    let replicas = [Scripted::start().await.serve(OK), Scripted::start().await.serve(OK)];
    let cluster = Cluster::new(&REGIONS);
    cluster.distance(0, 1, Duration::from_millis(4));
    cluster.distance(0, 2, Duration::from_millis(60));
    let west = cluster.start(2, Setup::new().replica("a", replicas[1].address)).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "west").await;
    let first = |number: usize| {
        let content = format!("This is conversation {number}. ").repeat(40);
        vec![json!({"role": "user", "content": content})]
    };
    let mut conversations: Vec<_> = (0..4).map(first).collect();
    for messages in &conversations {
        let reply = Client::once(edge.addresses()[0], turn(messages)).await;
        assert_eq!(fact(&reply, "region"), "west");
    }
    // A nearer region is better for all requests except those of the session.
    let east = cluster.start(1, Setup::new().replica("a", replicas[0].address)).await;
    knows(&edge, "east").await;
    for messages in &mut conversations {
        for _ in 0..3 {
            messages.push(json!({"role": "assistant", "content": "And so on. ".repeat(30)}));
            messages.push(json!({"role": "user", "content": "Go on. ".repeat(30)}));
            let reply = Client::once(edge.addresses()[0], turn(messages)).await;
            assert_eq!(fact(&reply, "region"), "west");
        }
    }
    let reply = Client::once(edge.addresses()[0], turn(&first(9))).await;
    assert_eq!(fact(&reply, "region"), "east");
    assert_eq!(changes(&edge, "conversation", "region"), 0.0);
    // Its region goes, and it moves once.
    west.stop().await;
    eventually("it is gone", || !is_open(&edge, "west")).await;
    for _ in 0..2 {
        let reply = Client::once(edge.addresses()[0], turn(&conversations[0])).await;
        assert_eq!(fact(&reply, "region"), "east");
    }
    assert_eq!(changes(&edge, "conversation", "region"), 1.0);
    edge.stop().await;
    east.stop().await;
}

#[tokio::test]
async fn a_small_weight_refuses_nobody_who_may_be_served_nowhere_else() {
    let replicas = [Scripted::start().await.serve(OK), Scripted::start().await.serve(OK)];
    let cluster = Cluster::new(&["here", "there"]);
    let there = cluster.start(1, Setup::new().replica("b", replicas[1].address)).await;
    let here = Setup::new()
        .table("[[route]]\nname = \"bound\"\nregions = [\"there\"]")
        .table("[[region]]\nname = \"there\"\nweight_percent = 5");
    let here = cluster.start(0, here.replica("a", replicas[0].address)).await;
    knows(&here, "there").await;
    for _ in 0..40 {
        let reply = Client::once(here.addresses()[0], chat("tiny", "")).await;
        assert_eq!(fact(&reply, "region"), "there");
    }
    assert_eq!((replicas[0].requests.count(), replicas[1].requests.count()), (0, 40));
    here.stop().await;
    there.stop().await;
}
