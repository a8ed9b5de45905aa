//! Retries at another replica, and requests that may not be retried.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Method;
use spillway_node::Node;
use spillway_tests::{
    Client, Closed, OK, Page, RAW_ROUTE, Scripted, Serving, Setup, Wire, chat, eventually, message,
    spawn, streamed,
};

/// Takes turns, so that a test knows that each replica is asked first at times.
pub(crate) const TURNS: &str = "[[route]]\nname = \"llm\"\npolicy = \"round_robin\"\n";

fn retries(node: &Node, cause: &str) -> f64 {
    Page::of(node).sum("spillway_retries_total", &[("cause", cause)])
}

/// Reads a request off each connection, then ends it in this way. Returns the count of them.
fn ending(replica: Scripted, closed: Closed) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    spawn(async move {
        loop {
            let (mut wire, _) = replica.request().await;
            counter.fetch_add(1, Ordering::SeqCst);
            match closed {
                Closed::Fin => wire.finish().await,
                Closed::Reset => wire.reset(),
            }
        }
    });
    count
}

#[tokio::test]
async fn a_refused_connection_is_tried_elsewhere() {
    let alive = Scripted::start().await.serve(OK);
    // It has its turns to the end, however long these requests take.
    let setup = Setup::new().set("health.eject_after = 1000").set("health.check = \"off\"");
    let setup = setup.table(TURNS);
    let setup = setup.replica("dead", Scripted::refusing());
    let node = setup.replica("alive", alive.address).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for _ in 0..10 {
        assert_eq!(client.fetch(chat("tiny", "")).await.status, 200);
    }
    assert_eq!(alive.requests.count(), 10);
    eventually("retries are counted", || retries(&node, "unsent") == 5.0).await;
    assert_eq!(retries(&node, "reset"), 0.0);
}

#[tokio::test]
async fn a_connection_cut_before_the_reply_is_tried_elsewhere_and_counted_apart() {
    for closed in [Closed::Reset, Closed::Fin] {
        let broken = Scripted::start().await;
        let alive = Scripted::start().await.serve(OK);
        let setup = Setup::new().table(TURNS).replica("broken", broken.address);
        let node = setup.replica("alive", alive.address).start().await;
        let seen = ending(broken, closed);
        let mut client = Client::http1(node.addresses()[0]).await;
        for _ in 0..10 {
            assert_eq!(client.fetch(chat("tiny", "")).await.status, 200, "{closed:?}");
        }
        assert_eq!((seen.load(Ordering::SeqCst), alive.requests.count()), (5, 10));
        eventually("retries are counted", || retries(&node, "reset") == 5.0).await;
        assert_eq!(retries(&node, "unsent"), 0.0);
    }
}

#[tokio::test]
async fn a_kept_connection_that_breaks_under_a_request_costs_no_request() {
    let (first, second) = (Scripted::start().await, Scripted::start().await);
    let setup = Setup::new().table(TURNS).replica("a", first.address);
    let node = setup.replica("b", second.address).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let mut wires = Vec::new();
    for _ in 0..2 {
        let (reply, wire) = tokio::join!(client.fetch(chat("tiny", "")), async {
            let (mut wire, _) = tokio::select! {
                taken = first.request() => taken,
                taken = second.request() => taken,
            };
            wire.send(OK).await;
            wire
        });
        assert_eq!(reply.status, 200);
        wires.push(wire);
    }
    // The third request goes out on the first's kept connection, which ends in that moment.
    let [mut stale, alive] = <[Wire; 2]>::try_from(wires).expect("two");
    let (reply, ()) = tokio::join!(client.fetch(chat("tiny", "")), async {
        stale.message().await;
        stale.reset();
        // On a kept connection a second break would look like a death of the engine.
        let (mut fresh, _) = tokio::select! {
            taken = first.request() => taken,
            taken = second.request() => taken,
        };
        fresh.send(OK).await;
    });
    drop(alive);
    assert_eq!(reply.status, 200);
    eventually("it is counted", || retries(&node, "reset") == 1.0).await;
}

#[tokio::test]
async fn the_only_replica_is_asked_again_when_its_kept_connection_breaks() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let (reply, mut kept) = tokio::join!(client.fetch(chat("tiny", "")), async {
        let (mut wire, _) = replica.request().await;
        wire.send(OK).await;
        wire
    });
    assert_eq!(reply.status, 200);
    let (reply, ()) = tokio::join!(client.fetch(chat("tiny", "")), async {
        kept.message().await;
        kept.reset();
        let (mut fresh, _) = replica.request().await;
        fresh.send(OK).await;
    });
    assert_eq!(reply.status, 200);
    eventually("it is counted", || retries(&node, "reset") == 1.0).await;
}

#[tokio::test]
async fn a_replica_s_own_error_is_passed_on_and_not_retried() {
    for status in ["500 Internal Server Error", "502 Bad Gateway", "400 Bad Request"] {
        let broken =
            format!("HTTP/1.1 {status}\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nmine");
        let broken = Scripted::start().await.serve(broken);
        let alive = Scripted::start().await.serve(OK);
        let setup = Setup::new().table(TURNS).replica("broken", broken.address);
        let node = setup.replica("alive", alive.address).start().await;
        let mut client = Client::http1(node.addresses()[0]).await;
        let mut failed = 0;
        for _ in 0..10 {
            let reply = client.fetch(chat("tiny", "")).await;
            if reply.status != 200 {
                failed += 1;
                assert_eq!(reply.status.to_string(), status[..3]);
                assert_eq!((reply.text(), reply.header("retry-after")), ("mine", Some("7")));
                assert_eq!(reply.code(), None, "it is not the gateway's error");
            }
        }
        // Each error it gave was one client's.
        assert!((1..=5).contains(&failed), "{status}: {failed} of 10");
        assert_eq!((broken.requests.count(), alive.requests.count()), (failed, 10 - failed));
    }
}

/// Takes HTTP/2 connections and answers the first request on each with `answer`.
async fn http2_refuser(answer: &'static [u8]) -> Scripted {
    let replica = Scripted::start().await;
    let address = replica.address;
    spawn(async move {
        loop {
            let mut wire = replica.accept().await;
            wire.until(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
            // Our settings, empty.
            wire.send([0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
            loop {
                let head = wire.exactly(9).await;
                let length = usize::from(head[1]) << 8 | usize::from(head[2]);
                wire.exactly(length).await;
                if head[3] == 1 {
                    break;
                }
            }
            wire.send(answer).await;
            // Stays open until the gateway closes it.
            spawn(async move { wire.end().await });
        }
    });
    // Only the address is of use now: the task has the listener.
    let mut told = Scripted::start().await;
    told.address = address;
    told
}

#[tokio::test]
async fn http2_refusals_promise_that_nothing_was_done_and_are_tried_elsewhere() {
    // RST_STREAM of stream 1 with REFUSED_STREAM; GOAWAY that took no stream.
    const REFUSED: &[u8] = &[0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 7];
    const GOAWAY: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for answer in [REFUSED, GOAWAY] {
        let refuser = http2_refuser(answer).await;
        let alive = Scripted::start().await.serve(OK);
        let url = format!("http://{}", refuser.address);
        let setup = Setup::new().table(TURNS).replica_with("refuser", &url, "protocol = \"http2\"");
        let node = setup.replica("alive", alive.address).start().await;
        let mut client = Client::http1(node.addresses()[0]).await;
        for _ in 0..2 {
            assert_eq!(client.fetch(chat("tiny", "")).await.status, 200);
        }
        eventually("it is counted", || retries(&node, "unsent") == 1.0).await;
        assert_eq!(alive.requests.count(), 2);
    }
}

#[tokio::test]
async fn an_outage_makes_no_storm_of_retries() {
    let setup = Setup::new()
        .with(|config| config.gateway.retry.budget_min_per_second = 1)
        .set("retry.budget_percent = 20")
        .set("retry.attempts_max = 5");
    let mut setup = setup;
    for name in ["a", "b", "c", "d"] {
        setup = setup.replica(name, Scripted::refusing());
    }
    let node = setup.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for _ in 0..200 {
        let reply = client.fetch(chat("tiny", "")).await;
        assert_eq!((reply.status, reply.code()), (502, Some("replica_connect")));
    }
    let asked = || Page::of(&node).sum("spillway_requests_total", &[]);
    eventually("all are counted", || asked() == 200.0).await;
    let done = retries(&node, "unsent");
    // A fifth of 200, and one for each second of the test with 10 s in hand at its start.
    assert!((10.0..=80.0).contains(&done), "{done} retries");
    let refused = Page::of(&node).sum("spillway_retries_refused_total", &[]);
    assert!(refused >= 100.0, "{refused} refused");
}

#[tokio::test]
async fn a_streamed_body_is_not_sent_twice() {
    let (first, second) = (Scripted::start().await, Scripted::start().await);
    let route = format!("{RAW_ROUTE}policy = \"round_robin\"\n");
    let setup = Setup::new().table(route).replica("a", first.address);
    let node = setup.replica("b", second.address).start().await;
    let seen = [ending_in_body(first), ending_in_body(second)];
    for _ in 0..4 {
        let (pieces, body) = streamed();
        let request = message(Method::POST, "/raw/x", "a/b", body);
        let reply = spawn(Client::once(node.addresses()[0], request));
        pieces.send(Bytes::from_static(b"piece")).await.expect("is read");
        let reply = reply.await.expect("a reply");
        assert_eq!((reply.status, reply.code()), (502, Some("replica_reset")));
    }
    let seen: usize = seen.iter().map(|count| count.load(Ordering::SeqCst)).sum();
    assert_eq!(seen, 4, "each request was sent once");
}

/// Resets each connection after the first piece of a body, and counts them.
fn ending_in_body(replica: Scripted) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    spawn(async move {
        loop {
            let mut wire = replica.accept().await;
            wire.until(b"piece").await;
            counter.fetch_add(1, Ordering::SeqCst);
            wire.reset();
        }
    });
    count
}

#[tokio::test]
async fn a_streamed_body_of_which_nothing_was_sent_goes_elsewhere() {
    let alive = Scripted::start().await.serve(OK);
    let route = format!("{RAW_ROUTE}policy = \"round_robin\"\n");
    let setup = Setup::new().table(route).replica("dead", Scripted::refusing());
    let node = setup.replica("alive", alive.address).start().await;
    for _ in 0..4 {
        let (pieces, body) = streamed();
        let request = message(Method::POST, "/raw/x", "a/b", body);
        let reply = spawn(Client::once(node.addresses()[0], request));
        // Fails if the gateway gave up on the body, which the reply's status shows.
        drop(pieces.send(Bytes::from_static(b"piece")).await);
        drop(pieces);
        assert_eq!(reply.await.expect("a reply").status, 200);
        assert_eq!(alive.requests.last().text(), "piece");
    }
}

#[tokio::test]
async fn a_request_is_attempted_no_more_often_than_allowed() {
    for (attempts_max, expected) in [(1, 0.0), (3, 2.0)] {
        let mut setup = Setup::new().set(format!("retry.attempts_max = {attempts_max}"));
        for name in ["a", "b", "c", "d", "e"] {
            setup = setup.replica(name, Scripted::refusing());
        }
        let node = setup.start().await;
        let reply = Client::once(node.addresses()[0], chat("tiny", "")).await;
        assert_eq!((reply.status, reply.code()), (502, Some("replica_connect")));
        let requests = || Page::of(&node).sum("spillway_requests_total", &[]);
        eventually("it is counted", || requests() == 1.0).await;
        assert_eq!(retries(&node, "unsent"), expected);
    }
}

#[tokio::test]
async fn nothing_is_sent_again_once_a_reply_has_begun() {
    let partial = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    let events = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n";
    let head = "HTTP/1.1 200 OK\r\ncontent-le";
    for begun in [partial, events, head] {
        let (first, second) = (Scripted::start().await, Scripted::start().await);
        let setup = Setup::new().table(TURNS).replica("a", first.address);
        let node = setup.replica("b", second.address).start().await;
        let mut client = Client::http1(node.addresses()[0]).await;
        let (response, wire) = tokio::join!(client.send(chat("tiny", "")), async {
            let (mut wire, _) = tokio::select! {
                taken = first.request() => taken,
                taken = second.request() => taken,
            };
            wire.send(begun).await;
            wire.finish().await;
            wire
        });
        drop((response, wire));
        assert!(first.is_alone().await && second.is_alone().await, "sent twice: {begun:?}");
        assert_eq!(retries(&node, "reset"), 0.0);
    }
}

#[tokio::test]
async fn a_whole_reply_that_breaks_off_before_the_client_has_any_of_it_is_tried_elsewhere() {
    let (first, second) = (Scripted::start().await, Scripted::start().await);
    let setup = Setup::new().table(TURNS).replica("a", first.address);
    let node = setup.replica("b", second.address).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let (reply, ()) = tokio::join!(client.fetch(chat("tiny", "")), async {
        for answer in ["HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", OK] {
            let (mut wire, _) = tokio::select! {
                taken = first.request() => taken,
                taken = second.request() => taken,
            };
            wire.send(answer).await;
            wire.finish().await;
        }
    });
    assert_eq!(reply.status, 200, "{}", reply.text());
    eventually("it is counted", || retries(&node, "reset") == 1.0).await;
}

/// Two replicas of which one answers everything with 500, and how many requests each got.
async fn one_fails_with_500() -> (Node, Serving, Serving) {
    let failing = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 2\r\n\r\nno";
    let failing = Scripted::start().await.serve(failing);
    let well = Scripted::start().await.serve(OK);
    let node = Setup::new()
        .set("health.eject_after = 1000")
        .with_health(|health| health.breaker.requests_min = 1000)
        .set("retry.budget_percent = 100")
        .with(|config| config.gateway.retry.budget_min_per_second = 100)
        .replica("failing", failing.address)
        .replica("well", well.address)
        .table("[[route]]\nname = \"all\"\npolicy = \"round_robin\"")
        .start()
        .await;
    (node, failing, well)
}

#[tokio::test]
async fn a_request_with_an_idempotency_key_is_asked_elsewhere_after_an_error_reply() {
    let (node, failing, well) = one_fails_with_500().await;
    for number in 0..10 {
        let mut request = chat("tiny", "");
        let key = format!("key-{number}").parse().expect("a value");
        request.headers_mut().insert("idempotency-key", key);
        let reply = Client::once(node.addresses()[0], request).await;
        assert_eq!(reply.status, 200);
    }
    assert_eq!(well.requests.count(), 10);
    let asked = failing.requests.all();
    assert_eq!(asked.len(), 5, "it was its turn every other time");
    assert!(asked[0].header("idempotency-key").is_some(), "the replica sees the key");
    node.stop().await;
}

#[tokio::test]
async fn without_such_a_key_an_error_reply_is_the_reply() {
    let (node, failing, well) = one_fails_with_500().await;
    let mut failures = 0;
    for _ in 0..10 {
        let reply = Client::once(node.addresses()[0], chat("tiny", "")).await;
        failures += u32::from(reply.status == 500 && reply.text() == "no");
    }
    assert_eq!(failures, 5);
    assert_eq!((failing.requests.count(), well.requests.count()), (5, 5));
    node.stop().await;
}

#[tokio::test]
async fn if_nobody_does_better_the_first_error_reply_is_passed_on() {
    let failing = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 2\r\n\r\nno";
    let failing = Scripted::start().await.serve(failing);
    let node = Setup::new()
        .replica("failing", failing.address)
        .replica("gone", Scripted::refusing())
        .start()
        .await;
    for _ in 0..4 {
        let mut request = chat("tiny", "");
        request.headers_mut().insert("idempotency-key", "k".parse().expect("a value"));
        let reply = Client::once(node.addresses()[0], request).await;
        assert_eq!((reply.status, reply.text()), (500, "no"));
    }
    node.stop().await;
}
