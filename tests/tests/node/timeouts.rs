//! Deadlines of clients, time-outs on replicas, and replies that break off.

use std::time::Duration;

use http::HeaderValue;
use spillway_emulator::{Close, Fault};
use spillway_tests::{
    Client, ClientBody, Closed, Page, Reply, Scripted, Setup, Wire, both, chat, eventually, post,
};

const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
const EVENT: &str = "data: {\"choices\":[]}\n\n";

fn with_deadline(deadline: &'static str) -> http::Request<ClientBody> {
    let mut request = chat("tiny", "");
    let value = HeaderValue::from_static(deadline);
    request.headers_mut().insert("x-request-timeout-ms", value);
    request
}

/// A request whose reply begins with `begun`; then both the reply and the replica's side.
async fn begun(
    client: &mut Client,
    replica: &Scripted,
    request: http::Request<ClientBody>,
    begun: &str,
) -> (http::Response<hyper::body::Incoming>, Wire) {
    let (response, wire) = tokio::join!(client.send(request), async {
        let (mut wire, _) = replica.request().await;
        wire.send(begun).await;
        wire
    });
    (response.expect("a head"), wire)
}

#[tokio::test]
async fn a_deadline_of_nothing_is_missed_without_asking_a_replica() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    for client in &mut both(&node).await {
        let reply = client.fetch(with_deadline("0")).await;
        assert_eq!((reply.status, reply.code()), (504, Some("deadline_exceeded")));
    }
    assert!(replica.is_alone().await);
}

#[tokio::test]
async fn a_deadline_that_is_no_number_is_refused() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for garbage in ["soon", "-1", "1.5", "1 2", "99999999999999999999999"] {
        let reply = client.fetch(with_deadline(garbage)).await;
        assert_eq!((reply.status, reply.code()), (400, Some("bad_request")), "{garbage:?}");
        assert!(reply.text().contains("x-request-timeout-ms"), "{}", reply.text());
    }
    assert!(replica.is_alone().await);
}

#[tokio::test]
async fn a_deadline_that_passes_before_the_reply_frees_the_replica() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    for client in &mut both(&node).await {
        let (reply, mut wire) =
            tokio::join!(client.fetch(with_deadline("150")), async { replica.request().await.0 });
        assert_eq!((reply.status, reply.code()), (504, Some("deadline_exceeded")));
        wire.end().await;
    }
}

#[tokio::test]
async fn a_deadline_that_passes_in_a_stream_ends_it_with_an_event() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    for client in &mut both(&node).await {
        let request = with_deadline("300");
        let (response, mut wire) = begun(client, &replica, request, EVENTS).await;
        wire.send(EVENT).await;
        let reply = Reply::collect(response).await.expect("an orderly end");
        let events = reply.events();
        assert_eq!(events[0], EVENT);
        check_error_event(events[1], "deadline_exceeded");
        wire.end().await;
    }
    let missed = || Page::of(&node).sum("spillway_requests_total", &[("end", "deadline_passed")]);
    eventually("both are counted", || missed() == 2.0).await;
}

fn check_error_event(event: &str, code: &str) {
    let json = event.strip_prefix("data: ").expect("a data event");
    let value: serde_json::Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(value["error"]["code"], code);
    assert!(value["error"]["message"].is_string());
}

#[tokio::test]
async fn the_replica_is_told_what_is_left_of_the_deadline() {
    let replica = Scripted::start().await.serve(spillway_tests::OK);
    let node = Setup::new().replica("a", replica.address).start().await;
    for client in &mut both(&node).await {
        client.fetch(with_deadline("60000")).await;
        let left = replica.requests.last();
        let left: u64 =
            left.header("x-request-timeout-ms").expect("told").parse().expect("a number");
        assert!((30_000..60_000).contains(&left), "{left} ms");
    }
    Client::once(node.addresses()[0], chat("tiny", "")).await;
    assert_eq!(replica.requests.last().header("x-request-timeout-ms"), None);
}

#[tokio::test]
async fn a_replica_that_does_not_begin_in_time_is_given_up() {
    let replica = Scripted::start().await;
    let route = "[[route]]\nname = \"llm\"\ntimeouts = { first_byte_ms = 150 }\n";
    let in_route = Setup::new().table(route);
    for setup in [Setup::new().set("timeouts.first_byte_ms = 150"), in_route] {
        let node = setup.replica("a", replica.address).start().await;
        for client in &mut both(&node).await {
            let (reply, mut wire) =
                tokio::join!(client.fetch(chat("tiny", "")), async { replica.request().await.0 });
            assert_eq!((reply.status, reply.code()), (504, Some("first_byte_timeout")));
            wire.end().await;
        }
    }
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_given_up() {
    let replica = Scripted::start().await;
    let certificates = crate::certificates::Certificates::for_name("localhost");
    let setup = Setup::new().set("timeouts.connect_ms = 150").set("retry.attempts_max = 1");
    let lines = format!("tls = {{ ca = \"{}\" }}", certificates.ca_file().display());
    let url = format!("https://{}", replica.address);
    let node = setup.replica_with("a", &url, &lines).start().await;
    let (reply, mut wire) =
        tokio::join!(Client::once(node.addresses()[0], chat("tiny", "")), replica.accept());
    assert_eq!((reply.status, reply.code()), (502, Some("replica_connect")));
    wire.end().await;
}

#[tokio::test]
async fn a_stream_that_stalls_ends_with_an_event_of_its_own_kind() {
    let replica = Scripted::start().await;
    let raw = "[[route]]\nname = \"raw\"\npath_prefix = \"/raw\"\nmodel = \"tiny\"\n";
    let custom = "[[route]]\nname = \"c\"\npath_prefix = \"/custom\"\nprotocol = \"openai\"\n";
    let setup = Setup::new().set("timeouts.idle_ms = 150").table(raw).table(custom);
    let node = setup.replica("a", replica.address).start().await;
    let body = r#"{"model":"tiny"}"#;
    for client in &mut both(&node).await {
        for (path, start) in [
            ("/v1/chat/completions", "data: {\"error\":{\"message\":"),
            ("/v1/completions", "data: {\"error\":{\"message\":"),
            (
                "/v1/responses",
                "event: error\ndata: {\"type\":\"error\",\"code\":\"stream_stalled\"",
            ),
            ("/v2/models/tiny/generate_stream", "data: {\"error\":\""),
            ("/raw", "event: error\ndata: {\"error\":{\"code\":\"stream_stalled\""),
            ("/custom/v1/messages", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":"),
            ("/custom/v1/chat/completions", "data: {\"error\":{\"message\":"),
            ("/custom/v1/responses", "event: error\ndata: {\"type\":\"error\",\"code\":"),
            ("/custom/stream", "event: error\ndata: {\"error\":{\"message\":"),
            ("/v1/images/generations", "event: error\ndata: {\"error\":{\"message\":"),
        ] {
            let (response, mut wire) = begun(client, &replica, post(path, body), EVENTS).await;
            // Half an event is not passed on: the client would read the error as its rest.
            wire.send(EVENT).await;
            wire.send("data: {\"cho").await;
            let reply = Reply::collect(response).await.expect("an orderly end");
            let events = reply.events();
            assert_eq!((events.len(), events[0]), (2, EVENT), "{path}: {}", reply.text());
            assert!(events[1].starts_with(start), "{path}: {}", events[1]);
            assert!(events[1].contains("stream_stalled"), "{path}: {}", events[1]);
            wire.end().await;
        }
    }
    let stalled = || Page::of(&node).sum("spillway_requests_total", &[("end", "stalled")]);
    eventually("all are counted", || stalled() == 20.0).await;
}

#[tokio::test]
async fn the_first_event_of_a_stream_may_take_as_long_as_a_reply_may_take_to_begin() {
    let replica = Scripted::start().await;
    let setup = Setup::new().set("timeouts.idle_ms = 200").set("timeouts.first_byte_ms = 60000");
    let node = setup.replica("a", replica.address).start().await;
    for client in &mut both(&node).await {
        let request = chat("tiny", ",\"stream\":true");
        let (response, mut wire) = begun(client, &replica, request, EVENTS).await;
        // wait: longer than a stream that has begun may be silent, with a comment as some engines send.
        tokio::time::sleep(Duration::from_millis(500)).await;
        wire.send(": still reading the prompt\n\n").await;
        // wait: the same after the comment.
        tokio::time::sleep(Duration::from_millis(500)).await;
        wire.send(EVENT).await;
        let reply = Reply::collect(response).await.expect("an orderly end");
        let events = reply.events();
        assert_eq!(events[1], EVENT, "{}", reply.text());
        // From then on it may not be silent for longer.
        check_error_event(events[2], "stream_stalled");
        wire.end().await;
    }
}

#[tokio::test]
async fn a_stream_whose_first_event_does_not_come_in_time_is_given_up() {
    let replica = Scripted::start().await;
    let setup = Setup::new().set("timeouts.first_byte_ms = 600").replica("a", replica.address);
    let node = setup.start().await;
    for client in &mut both(&node).await {
        let request = chat("tiny", ",\"stream\":true");
        let (response, mut wire) = begun(client, &replica, request, EVENTS).await;
        // Comments are no answer, however many they are.
        let comments = async {
            while wire.try_send(": wait\n\n").await.is_ok() {
                // wait: the pause between two comments.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let (reply, ()) = tokio::join!(Reply::collect(response), comments);
        let reply = reply.expect("an orderly end");
        check_error_event(reply.events().last().expect("an event"), "first_byte_timeout");
    }
}

#[tokio::test]
async fn a_reply_that_takes_longer_than_all_may_take_is_ended() {
    let replica = Scripted::start().await;
    let setup = Setup::new().set("timeouts.total_ms = 300").replica("a", replica.address);
    let node = setup.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let (response, mut wire) = begun(&mut client, &replica, chat("tiny", ""), EVENTS).await;
    // Never silent for long, and yet without end.
    let endless = async {
        while wire.try_send(EVENT).await.is_ok() {
            // wait: the pause between two events, shorter than the idle time-out.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let (reply, ()) = tokio::join!(Reply::collect(response), endless);
    let reply = reply.expect("an orderly end");
    check_error_event(reply.events().last().expect("an event"), "deadline_exceeded");
}

#[tokio::test]
async fn a_unary_reply_that_stalls_is_broken_off_for_all_to_see() {
    let replica = Scripted::start().await;
    let setup = Setup::new().set("timeouts.idle_ms = 150").replica("a", replica.address);
    let node = setup.start().await;
    for length in ["transfer-encoding: chunked", "x-length: until the end"] {
        let head = format!("HTTP/1.1 200 OK\r\n{length}\r\n\r\n5\r\nhello\r\n");
        for client in &mut both(&node).await {
            let (response, mut wire) = begun(client, &replica, chat("tiny", ""), &head).await;
            assert!(Reply::collect(response).await.is_err(), "{length}");
            wire.end().await;
        }
    }
    // A short reply of a known length is held until it is whole, so that the client gets an error.
    for client in &mut both(&node).await {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nhello";
        let (response, mut wire) = begun(client, &replica, chat("tiny", ""), head).await;
        let reply = Reply::collect(response).await.expect("a whole error");
        assert_eq!((reply.status, reply.code()), (504, Some("first_byte_timeout")));
        wire.end().await;
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_ends_with_an_event() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    let chunked = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                   transfer-encoding: chunked\r\n\r\n";
    for client in &mut both(&node).await {
        for closed in [Closed::Fin, Closed::Reset] {
            let (response, mut wire) = begun(client, &replica, chat("tiny", ""), chunked).await;
            wire.send(format!("{:x}\r\n{EVENT}\r\n", EVENT.len())).await;
            // A reset overtakes bytes that were not read yet, so the event must have arrived.
            let (head, mut body) = response.into_parts();
            let first = http_body_util::BodyExt::frame(&mut body).await.expect("a piece");
            assert_eq!(first.expect("a piece").into_data().expect("data"), EVENT);
            match closed {
                Closed::Fin => wire.finish().await,
                Closed::Reset => wire.reset(),
            }
            let reply = Reply::collect(http::Response::from_parts(head, body)).await;
            let reply = reply.expect("an orderly end");
            check_error_event(reply.text(), "stream_cut");
        }
    }
    let cut = || Page::of(&node).sum("spillway_requests_total", &[("end", "cut")]);
    eventually("all are counted", || cut() == 4.0).await;
}

#[tokio::test]
async fn a_stream_whose_last_word_was_said_is_complete_however_it_ends() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let chunked = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                   transfer-encoding: chunked\r\n\r\ne\r\ndata: [DONE]\n\n\r\n";
    let (response, mut wire) = begun(&mut client, &replica, chat("tiny", ""), chunked).await;
    wire.finish().await;
    let reply = Reply::collect(response).await.expect("an orderly end");
    assert_eq!(reply.text(), "data: [DONE]\n\n");
}

#[tokio::test]
async fn a_reply_over_http2_that_is_cut_or_stalls_is_told_too() {
    let emulator = spillway_tests::slow_emulator(1, 0.1).await;
    let url = format!("http://{}", emulator.addresses()[0]);
    let setup = Setup::new().set("timeouts.idle_ms = 300");
    let node = setup.replica_with("a", &url, "protocol = \"http2\"").start().await;
    for client in &mut both(&node).await {
        for (fault, code) in [
            (Fault::Cut { after_events: 3, close: Close::Reset }, "stream_cut"),
            (Fault::Stall { after_events: 3 }, "stream_stalled"),
        ] {
            emulator.replica(0).set_fault(fault).await.expect("breaks");
            let reply = client.fetch(chat("tiny", r#","stream":true,"max_tokens":20"#)).await;
            check_error_event(reply.events().last().expect("an event"), code);
            let reply = client.fetch(chat("tiny", r#","max_tokens":5"#)).await;
            assert!(reply.status >= 500, "{code}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn a_cut_reply_that_is_no_stream_is_broken_off_for_all_to_see() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    for closed in [Closed::Fin, Closed::Reset] {
        for length in ["x-length: none", "transfer-encoding: chunked"] {
            if (closed, length) == (Closed::Fin, "x-length: none") {
                // A close without reset is the regular end of such a body.
                continue;
            }
            for (client, is_http2) in both(&node).await.iter_mut().zip([false, true]) {
                let head = format!("HTTP/1.1 200 OK\r\n{length}\r\n\r\n5\r\nhello\r\n");
                let (response, mut wire) = begun(client, &replica, chat("tiny", ""), &head).await;
                match closed {
                    Closed::Fin => wire.finish().await,
                    Closed::Reset => wire.reset(),
                }
                assert!(Reply::collect(response).await.is_err(), "{length} {closed:?}");
                if is_http2 {
                    assert!(client.is_open(), "only the stream is reset");
                } else {
                    eventually("the connection ends", || !client.is_open()).await;
                }
            }
        }
    }
}
