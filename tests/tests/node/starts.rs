//! Replicas that have not answered yet, or are not there: the reason that operators see, and requests
//! that wait for them.

use std::time::Duration;

use serde_json::Value;
use spillway_emulator::{Emulator, Fault};
use spillway_node::Node;
use spillway_tests::{
    Client, Scripted, Setup, chat, eventually, get, slow_emulator, spawn, within,
};

use crate::health::{QUICK, stands_at_last};
use crate::splits::with_header;

fn quick() -> Setup {
    QUICK.into_iter().fold(Setup::new(), Setup::set)
}

/// Returns the row of a replica in `GET /replicas`.
async fn member(node: &Node, name: &str) -> Value {
    let address = node.admin_address().expect("an admin listener");
    let reply = Client::once(address, get("/replicas")).await;
    let members: Value = serde_json::from_str(reply.text()).expect("JSON");
    let members = members.as_array().expect("a list");
    members.iter().find(|member| member["name"] == name).cloned().expect("the replica")
}

/// Waits until a replica has this state and reason.
pub(crate) async fn is_at_last(node: &Node, name: &str, state: &str, reason: Option<&str>) {
    let looking = async {
        loop {
            let seen = member(node, name).await;
            if seen["state"] == state && seen["reason"].as_str() == reason {
                return;
            }
            // wait: between two looks at the page.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within(&format!("{name} is {state}, {reason:?}"), looking).await;
}

#[tokio::test]
async fn a_replica_that_nothing_listens_for_is_down_since_connections_are_refused() {
    let node = quick().replica("gone", Scripted::refusing()).start().await;
    is_at_last(&node, "gone", "down", Some("connection refused")).await;
}

#[tokio::test]
async fn a_replica_that_does_not_speak_tls_is_down_for_that() {
    let emulator = slow_emulator(1, 0.1).await;
    let url = format!("https://{}", emulator.addresses()[0]);
    let node = quick().replica_with("plain", &url, "kind = \"vllm\"").start().await;
    let reason = "TLS handshake failed: the server does not speak TLS";
    is_at_last(&node, "plain", "down", Some(reason)).await;
}

#[tokio::test]
async fn a_replica_whose_check_is_not_allowed_says_so() {
    let locked = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
    let locked = Scripted::start().await.serve(locked);
    let url = format!("http://{}", locked.address);
    let lines = "kind = \"vllm\"\nmetrics.scrape = false";
    let node = quick().replica_with("locked", &url, lines).start().await;
    is_at_last(&node, "locked", "down", Some("its check got status 401")).await;
}

#[tokio::test]
async fn a_replica_that_never_answered_is_starting_and_the_node_is_not_healthy() {
    let silent = Scripted::start().await;
    let url = format!("http://{}", silent.address);
    let node = Setup::new()
        .set("health.check = \"by_kind\"")
        .replica_with("silent", &url, "kind = \"vllm\"")
        .start()
        .await;
    let seen = member(&node, "silent").await;
    assert_eq!(
        (&seen["state"], &seen["reason"]),
        (&"starting".into(), &"never answered yet".into())
    );
}

#[tokio::test]
async fn a_replica_that_does_not_show_its_models_says_so() {
    let locked = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
    let locked = Scripted::start().await.serve(locked);
    let url = format!("http://{}", locked.address);
    let lines = "kind = \"vllm\"\nhealth = { check = \"tcp\" }\nmetrics.scrape = false";
    let table = format!("[[replica]]\nname = \"locked\"\nurl = \"{url}\"\n{lines}");
    let node = quick().table(table).start().await;
    let reason = "/v1/models gets status 401: set its credential";
    is_at_last(&node, "locked", "serving", Some(reason)).await;
}

async fn stopped() -> Emulator {
    let emulator = slow_emulator(1, 0.1).await;
    emulator.replica(0).set_fault(Fault::Crash).await.expect("a fault");
    emulator
}

/// Starts a node with that replica, whose route waits for so long.
async fn waiting(emulator: &Emulator, start_wait_ms: u32) -> Node {
    let url = format!("http://{}", emulator.addresses()[0]);
    let route = format!("[[route]]\nname = \"llm\"\nstart_wait_ms = {start_wait_ms}\n");
    quick().table(route).replica_with("late", &url, "kind = \"vllm\"").start().await
}

#[tokio::test]
async fn a_request_waits_for_its_replica_to_start_where_the_route_says_so() {
    let emulator = stopped().await;
    let node = waiting(&emulator, 600_000).await;
    // One comes before the node knows that the replica is not there, the other after that.
    let address = node.addresses()[0];
    let first = spawn(Client::once(address, chat("tiny", ",\"max_tokens\":1")));
    stands_at_last(&node, "late", "down").await;
    let second = spawn(Client::once(address, chat("tiny", ",\"max_tokens\":1")));
    eventually("both wait", || node.gateway().routing.waiting.count() == 2).await;
    emulator.replica(0).set_fault(Fault::None).await.expect("a healthy replica");
    for reply in [first, second] {
        let reply = within("it is served", reply).await.expect("a reply");
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

#[tokio::test]
async fn a_request_waits_for_a_replica_whose_models_are_not_known_either() {
    let emulator = stopped().await;
    let route = "[[route]]\nname = \"llm\"\nstart_wait_ms = 600_000\n";
    let url = format!("http://{}", emulator.addresses()[0]);
    let replica = format!("[[replica]]\nname = \"late\"\nurl = \"{url}\"\nkind = \"vllm\"");
    let node = quick().table(route).table(replica).start().await;
    let address = node.addresses()[0];
    let ask = |model: &str, more: &str| spawn(Client::once(address, chat(model, more)));
    let waiting = ["tiny", "nobody"].map(|model| ask(model, ",\"max_tokens\":1"));
    let hasty = with_header(chat("tiny", ""), "x-request-timeout-ms", "300");
    let impatient = Client::once(address, hasty);
    let refused = within("its time ends", impatient).await;
    assert_eq!((refused.status, refused.code()), (503, Some("no_replica")));
    assert!(waiting.iter().all(|request| !request.is_finished()), "they wait");
    emulator.replica(0).set_fault(Fault::None).await.expect("a healthy replica");
    let [served, unknown] = waiting;
    let served = within("it is served", served).await.expect("a reply");
    assert_eq!(served.status, 200, "{}", served.text());
    let unknown = within("the model is known to be none", unknown).await.expect("a reply");
    assert_eq!((unknown.status, unknown.code()), (404, Some("model_not_found")));
}

#[tokio::test]
async fn a_request_for_a_replica_that_does_not_start_ends_when_its_wait_is_over() {
    let emulator = stopped().await;
    let node = waiting(&emulator, 1_000).await;
    let reply = Client::once(node.addresses()[0], chat("tiny", ",\"max_tokens\":1"));
    let reply = within("it ends", reply).await;
    assert!([502, 503].contains(&reply.status), "{}", reply.text());
    assert!(reply.header("retry-after").is_some(), "{}", reply.text());
}

#[tokio::test]
async fn by_default_a_request_without_a_replica_is_answered_at_once_with_a_time_to_retry() {
    let emulator = stopped().await;
    let node = waiting(&emulator, 0).await;
    let reply = Client::once(node.addresses()[0], chat("tiny", ",\"max_tokens\":1")).await;
    assert_eq!((reply.status, reply.code()), (502, Some("replica_connect")), "{}", reply.text());
    assert!(reply.header("retry-after").is_some(), "{}", reply.text());
}
