//! Replicas that ask for a pause: requests wait until it is over, and clients can rely on the retry
//! times that they got.

use std::time::Duration;

use spillway_tests::{Client, OK, Scripted, Setup, chat, eventually, get, post, spawn, within};

use crate::gate::Gate;
use crate::health::stands_at_last;
use crate::shedding::{CLAIMS, ask, check_shed, one_place, with};

fn refusal(status: &str, retry_after_s: u64) -> String {
    format!("HTTP/1.1 {status}\r\nretry-after: {retry_after_s}\r\ncontent-length: 4\r\n\r\nbusy")
}

/// Answers the first request with `refusal` and all others with 200.
async fn refuse_once(replica: Scripted, refusal: String) {
    let (mut wire, _) = replica.request().await;
    wire.send(refusal).await;
    let _others = replica.serve(OK);
    while wire.has_more().await {
        wire.message().await;
        wire.send(OK).await;
    }
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn who_comes_again_when_the_replica_said_is_served() {
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let replica = Scripted::start().await;
        let node = Setup::new().replica("a", replica.address).start().await;
        let _replica = spawn(refuse_once(replica, refusal(status, 1)));
        let mut client = Client::http1(node.addresses()[0]).await;
        let reply = client.fetch(chat("tiny", "")).await;
        assert!([429, 503].contains(&reply.status), "{}", reply.text());
        assert_eq!(reply.header("retry-after"), Some("1"));
        // wait: for as long as the replica asked, as libraries do.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let reply = client.fetch(chat("tiny", "")).await;
        assert_eq!(reply.status, 200, "{status}: {}", reply.text());
    }
}

#[tokio::test]
async fn others_wait_while_the_only_replica_wants_to_be_left_alone() {
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let replica = Scripted::start().await;
        let node = Setup::new().replica("a", replica.address).start().await;
        let _replica = spawn(refuse_once(replica, refusal(status, 2)));
        let reply = ask(&node, chat("tiny", "")).await.expect("a reply");
        assert!([429, 503].contains(&reply.status), "{}", reply.text());
        if reply.status == 503 {
            stands_at_last(&node, "a", "busy").await;
        }
        let others: Vec<_> = (0..3).map(|_| ask(&node, chat("tiny", ""))).collect();
        for other in others {
            let reply = within("it is served", other).await.expect("a reply");
            assert_eq!(reply.status, 200, "{status}: {}", reply.text());
        }
    }
}

/// One tenant waits until its pause is over, and does not delay another one.
#[tokio::test]
async fn a_tenant_that_is_to_leave_the_replica_alone_keeps_nobody_else_waiting() {
    let replica = Scripted::start().await;
    let node = Setup::new().listener(CLAIMS).replica("a", replica.address).start().await;
    let _replica = spawn(refuse_once(replica, refusal("429 Too Many Requests", 29)));
    let of = |tenant: &str| with(chat("tiny", ""), "x-spillway-tenant", tenant);
    let reply = ask(&node, of("spender")).await.expect("a reply");
    assert_eq!(reply.status, 429, "{}", reply.text());
    let waits: Vec<_> = (0..3).map(|_| ask(&node, of("spender"))).collect();
    eventually("they wait", || node.gateway().routing.waiting.count() == 3).await;
    for _ in 0..10 {
        let reply = within("it is served", ask(&node, of("other"))).await.expect("a reply");
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    eventually("they wait still", || node.gateway().routing.waiting.count() == 3).await;
    for request in waits {
        request.abort();
    }
}

#[tokio::test]
async fn what_is_told_names_the_rest_and_no_limit() {
    let replica = Scripted::start().await.serve(refusal("503 Service Unavailable", 20));
    let route = "[[route]]\nname = \"llm\"\nqueue_ms = 2000\n";
    let node = Setup::new().table(route).replica("a", replica.address).start().await;
    assert_eq!(ask(&node, chat("tiny", "")).await.expect("a reply").status, 503);
    stands_at_last(&node, "a", "busy").await;
    // It would have to wait for longer than its route lets requests wait.
    let reply = within("it is told at once", ask(&node, chat("tiny", ""))).await;
    let reply = reply.expect("a reply");
    let seconds = check_shed(&reply, (503, "overloaded"), "replica_busy");
    assert!((10..=21).contains(&seconds), "{seconds}");
    assert!(reply.text().contains("replicas are overloaded"), "{}", reply.text());
    assert_eq!(replica.requests.count(), 1);
}

/// A request that only one replica can answer waits for a place there, until its deadline.
#[tokio::test]
async fn a_request_for_a_full_replica_alone_ends_at_its_deadline() {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    let node = Setup::new().replica_with("a", &url, "connections_max = 1").start().await;
    let body = r#"{"id":"resp_1","object":"response"}"#;
    let stored = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let make = ask(&node, post("/v1/responses", r#"{"model":"tiny","input":"x"}"#));
    let (mut wire, _) = replica.request().await;
    wire.send(stored).await;
    assert_eq!(make.await.expect("a reply").status, 200);
    let _served = ask(&node, chat("tiny", ""));
    wire.message().await;
    let request = with(get("/v1/responses/resp_1"), "x-request-timeout-ms", "300");
    let reply = within("it ends", ask(&node, request)).await.expect("a reply");
    assert_eq!((reply.status, reply.code()), (504, Some("deadline_exceeded")), "{}", reply.text());
    // And it is answered as soon as there is a place.
    let waits = ask(&node, get("/v1/responses/resp_1"));
    wire.send(OK).await;
    wire.message().await;
    wire.send(OK).await;
    assert_eq!(within("it is served", waits).await.expect("a reply").status, 200);
}

#[tokio::test]
async fn a_client_waits_no_longer_than_its_library_says() {
    let gate = Gate::start().await;
    let node = one_place(&gate).start().await;
    let _served = ask(&node, chat("tiny", ""));
    eventually("it is served", || gate.held("") == 1).await;
    for (name, value) in [("x-stainless-read-timeout", "0.4"), ("x-stainless-timeout", "1")] {
        let reply = within("it is told", ask(&node, with(chat("tiny", ""), name, value))).await;
        check_shed(&reply.expect("a reply"), (503, "overloaded"), "waited");
    }
}

#[tokio::test]
async fn a_burst_after_calm_is_told_to_come_back_one_after_the_other() {
    let gate = Gate::start().await;
    let route = "[[route]]\nname = \"llm\"\nqueue_max = 2\n";
    let node = one_place(&gate).table(route).start().await;
    for _ in 0..4 {
        let calm = ask(&node, chat("tiny", ""));
        eventually("it is served", || gate.held("") == 1).await;
        // wait: for as long as a request takes here.
        tokio::time::sleep(Duration::from_millis(500)).await;
        gate.release("", 1);
        assert_eq!(calm.await.expect("a reply").status, 200);
    }
    let burst: Vec<_> = (0..20)
        .map(|number| ask(&node, chat("tiny", &format!(",\"user\":\"{number}\""))))
        .collect();
    let mut told = Vec::new();
    for request in burst {
        // Three of them are not answered: one is served and two wait.
        if told.len() == 17 {
            break;
        }
        let Ok(reply) = tokio::time::timeout(Duration::from_millis(500), request).await else {
            continue;
        };
        told.push(check_shed(&reply.expect("a reply"), (503, "overloaded"), "queue_full"));
    }
    // Seventeen requests of at least half a second each, after three others.
    let last = told.iter().max().copied().expect("some are told");
    assert!(last >= 8, "{told:?}");
    let mut seconds = told.clone();
    seconds.sort_unstable();
    seconds.dedup();
    assert!(seconds.len() >= 5, "{told:?}");
}

#[tokio::test]
async fn what_waits_for_replicas_that_rest_is_explained_so() {
    let replica = Scripted::start().await.serve(refusal("503 Service Unavailable", 20));
    let node = Setup::new().replica("a", replica.address).start().await;
    let explained = || async {
        let order = r#"{"body":{"model":"tiny","messages":[]}}"#;
        let address = node.admin_address().expect("one");
        Client::once(address, post("/v1/explain", order)).await.json()
    };
    assert_eq!(explained().await["rests_ms"], serde_json::Value::Null);
    assert_eq!(ask(&node, chat("tiny", "")).await.expect("a reply").status, 503);
    stands_at_last(&node, "a", "busy").await;
    let told = explained().await;
    assert_eq!(
        (&told["decision"], &told["reason"]),
        (&"wait".into(), &"all_resting".into()),
        "{told}"
    );
    let rests_ms = told["rests_ms"].as_u64().expect("a time");
    assert!((5_000..=21_000).contains(&rests_ms), "{told}");
    let candidate = &told["candidates"][0];
    assert_eq!((&candidate["name"], &candidate["why"]), (&"a".into(), &"resting".into()), "{told}");
    assert_eq!(candidate["cost_ms"], serde_json::Value::Null, "nothing is predicted of it");
}
