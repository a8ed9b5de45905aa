//! Replicas that fail are found out and left out, and come back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use spillway_emulator::{Fault, ReplicaHandle};
use spillway_node::Node;
use spillway_tests::{
    Client, OK, PATIENCE, Page, Reply, SLOWDOWN, Scripted, Setup, chat, emulator, eventually, get,
    slow_emulator,
};

use crate::retries::TURNS;
use crate::starts::is_at_last;

/// Checks ten times a second, so that tests need not wait for seconds.
pub(crate) const QUICK: [&str; 5] = [
    "health.check = \"by_kind\"",
    "health.interval_ms = 100",
    "health.timeout_ms = 200",
    "health.eject_ms = 300",
    "timeouts.first_byte_ms = 1000",
];

fn quick() -> Setup {
    QUICK.into_iter().fold(Setup::new(), Setup::set)
}

/// Returns true if the replica has this admission state.
pub(crate) fn stands(node: &Node, replica: &str, admission: &str) -> bool {
    let labels = [("replica", replica), ("admission", admission)];
    Page::of(node).sum("spillway_replica_admission", &labels) == 1.0
}

pub(crate) async fn stands_at_last(node: &Node, replica: &str, admission: &str) {
    eventually(&format!("{replica} is {admission}"), || stands(node, replica, admission)).await;
}

async fn ask(node: &Node) -> Reply {
    Client::once(node.addresses()[0], chat("tiny", ",\"max_tokens\":1")).await
}

/// Asks until the replica has had another request.
async fn ask_until_it_gets_one(node: &Node, replica: &ReplicaHandle) {
    let before = replica.stats().received;
    for _ in 0..2000 {
        ask(node).await;
        if replica.stats().received > before {
            return;
        }
    }
    assert!(replica.stats().received > before, "it got none of 2,000 requests");
}

#[tokio::test]
async fn a_crashed_replica_is_soon_out_by_what_requests_meet_with() {
    let emulator = emulator(3).await;
    // No checks: only requests can show it.
    let node = Setup::new().emulated(&emulator).start().await;
    emulator.replica(1).set_fault(Fault::Crash).await.expect("a fault");
    let crashed_at = Instant::now();
    let mut out_after = None;
    while out_after.is_none() && crashed_at.elapsed() < PATIENCE {
        // All of them are answered: a refused connection is no reason to fail a request.
        assert_eq!(ask(&node).await.status, 200);
        // Many failures within a moment count as two signals.
        let is_out = stands(&node, "r1", "ejected") || stands(&node, "r1", "down");
        out_after = is_out.then(|| crashed_at.elapsed());
    }
    let out_after = out_after.expect("it is left out");
    assert!(out_after <= SLOWDOWN * Duration::from_secs(1), "out after {out_after:?}");
    node.stop().await;
}

#[tokio::test]
async fn a_crashed_replica_comes_back_after_it_healed() {
    let emulator = emulator(2).await;
    let node = quick().emulated(&emulator).start().await;
    let replica = emulator.replica(0);
    replica.set_fault(Fault::Crash).await.expect("a fault");
    stands_at_last(&node, "r0", "down").await;
    replica.set_fault(Fault::None).await.expect("healed");
    stands_at_last(&node, "r0", "open").await;
    ask_until_it_gets_one(&node, replica).await;
    node.stop().await;
}

#[tokio::test]
async fn a_hung_replica_is_down_once_its_check_and_its_metrics_agree() {
    let emulator = emulator(2).await;
    let address = emulator.addresses()[0];
    let node = quick()
        .replica_with("hung", &format!("http://{address}"), "kind = \"vllm\"")
        .replica("well", emulator.addresses()[1])
        .start()
        .await;
    eventually("its metrics are read", || {
        let labels = [("replica", "hung"), ("check", "scrape"), ("result", "good")];
        Page::of(&node).sum("spillway_replica_checks_total", &labels) >= 3.0
    })
    .await;
    emulator.replica(0).set_fault(Fault::Hang).await.expect("a fault");
    stands_at_last(&node, "hung", "down").await;
    // The other one gets everything now.
    let before = emulator.replica(0).stats().received;
    for _ in 0..20 {
        assert_eq!(ask(&node).await.status, 200);
    }
    assert_eq!(emulator.replica(0).stats().received, before);
    node.stop().await;
}

#[tokio::test]
async fn when_all_are_down_requests_are_spread_over_them_all_the_same() {
    let emulator = emulator(2).await;
    // Nothing answers this path, so that checks alone can't be right.
    let lines = "kind = \"vllm\"\nhealth = { path = \"/nothing-here\" }\nmetrics.scrape = false";
    // All but its time for replies.
    let quick = QUICK.into_iter().filter(|line| !line.starts_with("timeouts"));
    let mut setup = quick.fold(Setup::new(), Setup::set);
    for (index, address) in emulator.addresses().iter().enumerate() {
        setup = setup.replica_with(&format!("r{index}"), &format!("http://{address}"), lines);
    }
    let node = setup.start().await;
    stands_at_last(&node, "r0", "down").await;
    stands_at_last(&node, "r1", "down").await;
    eventually("it says so", || Page::of(&node).sum("spillway_last_resort", &[]) > 0.0).await;
    for _ in 0..20 {
        assert_eq!(ask(&node).await.status, 200);
    }
    for replica in emulator.replicas() {
        assert!(replica.stats().finished > 0, "both of them serve");
    }
    node.stop().await;
}

#[tokio::test]
async fn errors_of_the_server_eject_a_replica_and_errors_of_the_request_do_not() {
    let emulator = emulator(2).await;
    let node = Setup::new().set("health.eject_ms = 60000").emulated(&emulator).start().await;
    let status = |code| Fault::Status { code, retry_after_s: None, probability: 1.0 };
    emulator.replica(0).set_fault(status(422)).await.expect("a fault");
    for _ in 0..100 {
        assert!([200, 422].contains(&ask(&node).await.status));
    }
    assert!(emulator.replica(0).stats().rejected >= 10, "it refused some");
    // wait: for the keeper to check the signals twice; no event shows that it took no action.
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert!(stands(&node, "r0", "open"), "a 4xx blames the request");
    emulator.replica(0).set_fault(status(500)).await.expect("a fault");
    // Ten in a row within a moment count as two signals.
    let is_out = || stands(&node, "r0", "ejected") || stands(&node, "r0", "down");
    for asked in 0.. {
        if is_out() {
            break;
        }
        ask(&node).await;
        assert!(asked < 1000, "it is never left out");
    }
    assert_eq!(ask(&node).await.status, 200);
    node.stop().await;
}

#[tokio::test]
async fn a_busy_replica_is_left_alone_for_as_long_as_it_asks() {
    let emulator = emulator(2).await;
    let node = Setup::new().emulated(&emulator).start().await;
    let busy = Fault::Status { code: 503, retry_after_s: Some(2), probability: 1.0 };
    emulator.replica(0).set_fault(busy).await.expect("a fault");
    // From before it asks for it: the machine may take its time to come back here.
    let mut told_at = Instant::now();
    while emulator.replica(0).stats().received == 0 {
        told_at = Instant::now();
        assert_eq!(ask(&node).await.status, 200, "the other one has room");
    }
    stands_at_last(&node, "r0", "busy").await;
    emulator.replica(0).set_fault(Fault::None).await.expect("healed");
    let before = emulator.replica(0).stats().received;
    while told_at.elapsed() < Duration::from_millis(1_500) {
        ask(&node).await;
    }
    assert_eq!(emulator.replica(0).stats().received, before, "it got a request too soon");
    stands_at_last(&node, "r0", "open").await;
    let left_alone = told_at.elapsed();
    assert!(left_alone < SLOWDOWN * Duration::from_secs(3), "left alone for {left_alone:?}");
    let page = node.metrics();
    assert!(!page.contains("spillway_replica_faults_total{"), "being busy is no fault: {page}");
    node.stop().await;
}

#[tokio::test]
async fn when_all_are_busy_the_client_is_told_when_to_come_back() {
    let emulator = emulator(1).await;
    // Without a queue no request waits for the end of the back-off.
    let node = Setup::new().set("spill.queue_max = 0").emulated(&emulator).start().await;
    let busy = Fault::Status { code: 503, retry_after_s: Some(7), probability: 1.0 };
    emulator.replica(0).set_fault(busy).await.expect("a fault");
    assert_eq!(ask(&node).await.status, 503);
    stands_at_last(&node, "r0", "busy").await;
    let before = emulator.replica(0).stats().received;
    let reply = ask(&node).await;
    assert_eq!(reply.code(), Some("overloaded"));
    let seconds: u64 = reply.header("retry-after").expect("a header").parse().expect("a number");
    assert!((5..=9).contains(&seconds), "Retry-After is {seconds}");
    assert_eq!(emulator.replica(0).stats().received, before);
    node.stop().await;
}

#[tokio::test]
async fn a_model_that_fails_is_left_out_and_the_replica_s_others_go_on() {
    let well = Scripted::start().await.serve(OK);
    let broken = Scripted::start().await;
    let address = broken.address;
    let models = "models = [\"a\", \"b\"]";
    let node = Setup::new()
        .set("health.eject_after = 1000")
        .with_health(|health| health.breaker.requests_min = 10)
        .with_health(|health| health.breaker.open_ms = 60000)
        .replica_with("broken", &format!("http://{address}"), models)
        .replica_with("well", &format!("http://{}", well.address), models)
        .start()
        .await;
    let serving = spillway_tests::spawn(async move {
        loop {
            let (mut wire, request) = broken.request().await;
            let is_a = request.text().contains("\"a\"");
            let head = if is_a { "500 Internal Server Error" } else { "200 OK" };
            wire.send(format!(
                "HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}"
            ))
            .await;
            wire.finish().await;
        }
    });
    let ask_for =
        async |model: &str| Client::once(node.addresses()[0], chat(model, "")).await.status;
    let open =
        || Page::of(&node).sum("spillway_replica_breakers_open", &[("replica", "broken")]) == 1.0;
    let mut asked = 0;
    while !open() {
        ask_for("a").await;
        asked += 1;
        assert!(asked < 1000, "the breaker never opens");
    }
    for _ in 0..30 {
        assert_eq!(ask_for("a").await, 200, "the other one serves this model");
        assert_eq!(ask_for("b").await, 200);
    }
    assert!(stands(&node, "broken", "open"), "only the model is left out");
    serving.abort();
    node.stop().await;
}

#[tokio::test]
async fn a_replica_that_answers_wrongly_is_found_by_a_known_answer() {
    let right = Scripted::start().await.serve(OK);
    let wrong = Scripted::start().await.serve(OK);
    let deep = |expected: &str| {
        format!(
            "deep = {{ path = \"/v1/chat/completions\", body = '{{\"model\":\"tiny\"}}', \
             interval_ms = 100, expect = {{ contains = \"{expected}\" }} }}"
        )
    };
    let node = Setup::new()
        .replica_with("right", &format!("http://{}", right.address), &deep("ok"))
        .replica_with("wrong", &format!("http://{}", wrong.address), &deep("forty-two"))
        .start()
        .await;
    stands_at_last(&node, "wrong", "ejected").await;
    assert!(stands(&node, "right", "open"));
    node.stop().await;
}

#[tokio::test]
async fn what_is_known_of_replicas_is_shown_to_operators() {
    let emulator = emulator(2).await;
    let node = quick().emulated(&emulator).start().await;
    let admin = node.admin_address().expect("an address");
    let shown = Client::once(admin, get("/replicas")).await;
    assert_eq!(shown.status, 200);
    let shown = shown.json();
    let names: Vec<_> = shown.as_array().expect("a list").iter().map(|m| &m["name"]).collect();
    assert_eq!(names, ["r0", "r1"]);
    is_at_last(&node, "r0", "serving", None).await;
    let unknown = Client::once(admin, spillway_tests::post("/replicas/nobody/drain", "")).await;
    assert_eq!(unknown.status, 404);
    let malformed =
        Client::once(admin, spillway_tests::post("/replicas/r0/drain", "{\"x\":1}")).await;
    assert_eq!(malformed.status, 400);
    let wrong_method = Client::once(admin, get("/replicas/r0/drain")).await;
    assert_eq!(wrong_method.status, 405);
    node.stop().await;
}

#[tokio::test]
async fn one_that_looks_bad_is_asked_before_a_request_is_given_up() {
    let emulator = emulator(2).await;
    let node = Setup::new()
        .table(TURNS)
        .set("health.eject_after = 2")
        .set("health.eject_ms = 60000")
        .emulated(&emulator)
        .start()
        .await;
    let (first, second) = (emulator.replica(0), emulator.replica(1));
    first.set_fault(Fault::Crash).await.expect("a fault");
    while stands(&node, "r0", "open") {
        assert_eq!(ask(&node).await.status, 200);
    }
    first.set_fault(Fault::None).await.expect("healed");
    let before = first.stats().received;
    assert_eq!(ask(&node).await.status, 200);
    assert_eq!(first.stats().received, before, "there is a better one");
    second.set_fault(Fault::Crash).await.expect("a fault");
    assert_eq!(ask(&node).await.status, 200, "better than no answer");
    assert!(!stands(&node, "r0", "open"), "it is still taken for broken");
    assert!(stands(&node, "r1", "open"), "one failure is no reason");
    assert_eq!(first.stats().received, before + 1);
    node.stop().await;
}

/// An answer in one piece takes as long as it is long: its first byte comes when that of a stream is
/// long past.
#[tokio::test]
async fn who_answers_in_one_piece_is_not_slow_beside_those_that_stream() {
    let emulator = slow_emulator(3, 0.05).await;
    let policy = "policy = \"consistent_hash\"\nhash_by = \"header:x-session\"\n";
    let route = format!("[[route]]\nname = \"llm\"\n{policy}");
    let node = Setup::new()
        .set("node.expose_routing = true")
        .table(&route)
        .emulated(&emulator)
        .start()
        .await;
    let ask = async |session: &str, more: &str| {
        let mut request = chat("tiny", more);
        request.headers_mut().insert("x-session", session.parse().expect("a header"));
        Client::once(node.addresses()[0], request).await
    };
    let mut of_replica = BTreeMap::new();
    for session in 0..100 {
        let session = session.to_string();
        let reply = ask(&session, ",\"max_tokens\":1,\"stream\":true").await;
        let replica = reply.header("x-spillway-replica").expect("routing").to_owned();
        of_replica.entry(replica).or_insert(session);
    }
    let sessions: Vec<&String> = of_replica.values().collect();
    let [whole, streamed, streamed_too] = sessions[..] else { panic!("{of_replica:?}") };
    for _ in 0..10 {
        assert_eq!(ask(whole, ",\"max_tokens\":200").await.status, 200);
        for session in [streamed, streamed_too] {
            assert_eq!(ask(session, ",\"max_tokens\":1,\"stream\":true").await.status, 200);
        }
    }
    let page = Page::of(&node);
    let open = page.sum("spillway_replica_admission", &[("admission", "open")]);
    assert_eq!(open, 3.0, "{page:?}");
    node.stop().await;
}
