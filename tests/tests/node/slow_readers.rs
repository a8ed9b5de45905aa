//! Clients that take their replies slowly or not at all, and what that costs others.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use spillway_node::Node;
use spillway_rate_limit::{Holding, LimitKind, LimitTerms, RequestWindow, Scope, Units};
use spillway_tests::{
    CallServer, Client, Page, Reply, Scripted, Setup, both, chat, eventually, full, noise, spawn,
    within,
};

use crate::grpc_calls::{code, connect, frame, infer, kserve, scripted};

/// More than the sockets of a connection on loopback hold, and an HTTP/2 client's window.
const LONG: usize = 12 << 20;
/// Bytes that an HTTP/2 client with a narrow window takes of a reply that it does not read.
const WINDOW: u32 = 16 << 10;
const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                      transfer-encoding: chunked\r\n\r\n";

/// Events of `length` bytes together, no two alike.
fn events(length: usize) -> String {
    let mut text = String::with_capacity(length + 4096);
    while text.len() < length {
        let number = text.len();
        let words = "words ".repeat(1 + number % 300);
        text.push_str(&format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{number} {words}\"}}}}]}}\n\n"
        ));
    }
    text.push_str("data: [DONE]\n\n");
    text
}

/// Chunks whose ends fall anywhere in `text`.
fn chunked(text: &str) -> String {
    let mut chunks = String::with_capacity(text.len() + (text.len() >> 6));
    for piece in text.as_bytes().chunks(1999) {
        let piece = std::str::from_utf8(piece).expect("ASCII");
        chunks.push_str(&format!("{:x}\r\n{piece}\r\n", piece.len()));
    }
    chunks
}

fn streaming(text: &str) -> String {
    format!("{EVENTS}{}0\r\n\r\n", chunked(text))
}

fn whole(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn in_flight(node: &Node) -> f64 {
    Page::of(node).sum("spillway_replica_in_flight", &[])
}

fn held_bytes(node: &Node) -> f64 {
    Page::of(node).sum("spillway_read_ahead_bytes", &[])
}

fn replies(node: &Node, state: &str) -> f64 {
    Page::of(node).sum("spillway_read_ahead_replies_total", &[("state", state)])
}

fn streams_closed(node: &Node) -> f64 {
    Page::of(node).sum("spillway_client_streams_closed_total", &[("reason", "stalled")])
}

async fn held(client: &mut Client) -> Response<Incoming> {
    client.send(chat("tiny", "")).await.expect("a head")
}

async fn body_of(response: Response<Incoming>) -> Bytes {
    Reply::collect(response).await.expect("a whole reply").body
}

#[tokio::test]
async fn a_reply_that_nobody_reads_frees_its_place_and_is_whole_when_it_is_read() {
    let stream = events(LONG);
    let piece = noise(LONG);
    for (reply, body) in
        [(streaming(&stream).into_bytes(), Bytes::from(stream)), (whole(&piece), piece)]
    {
        let replica = Scripted::start().await.serve(reply);
        let setup =
            Setup::new().with(|config| config.gateway.limits.read_ahead_bytes_max = 2 * LONG);
        let node = setup.replica("a", replica.address).start().await;
        for client in &mut both(&node).await {
            let response = held(client).await;
            eventually("the place is free", || in_flight(&node) == 0.0).await;
            assert!(held_bytes(&node) > 0.0, "what was read is counted");
            let left = Page::of(&node).sum("spillway_requests_total", &[("end", "complete")]);
            assert!(body_of(response).await == body, "not what the replica said");
            assert_eq!(client.fetch(chat("tiny", "")).await.body, body, "the next is whole too");
            eventually("both are complete", || {
                let complete = [("end", "complete")];
                Page::of(&node).sum("spillway_requests_total", &complete) == left + 2.0
            })
            .await;
        }
        eventually("nothing is held any more", || held_bytes(&node) == 0.0).await;
        assert!(replies(&node, "begun") >= 2.0);
        assert_eq!(replies(&node, "full"), 0.0);
        let aborted = Page::of(&node).sum("spillway_client_cancels_total", &[]);
        assert_eq!(aborted, 0.0);
    }
}

#[tokio::test]
async fn where_nothing_is_read_ahead_the_replica_waits_for_the_client() {
    let body = noise(LONG);
    let replica = Scripted::start().await;
    let setup = Setup::new().with(|config| config.gateway.limits.read_ahead_bytes_max = 0);
    let node = setup.replica("a", replica.address).start().await;
    for client in &mut both(&node).await {
        let (response, mut wire) = tokio::join!(held(client), async {
            let (mut wire, _) = replica.request().await;
            wire.send(&whole(&body)[..100]).await;
            wire
        });
        let reply = whole(&body);
        let (_, sent) = reply.split_at(100);
        let taken = wire.send_until_blocked(sent, sent.len()).await;
        assert!(taken < sent.len(), "all of it was taken");
        assert_eq!((in_flight(&node), held_bytes(&node)), (1.0, 0.0));
        drop(response);
        wire.end().await;
    }
    assert_eq!(replies(&node, "begun"), 0.0);
}

#[tokio::test]
async fn a_hundred_slow_readers_leave_sixty_four_places_to_others() {
    let body = events(200 << 10);
    let replica = Scripted::start().await.serve(streaming(&body));
    let url = format!("http://{}", replica.address);
    let node = Setup::new().replica_with("a", &url, "connections_max = 64").start().await;
    let mut slow = Client::http2_with_window(node.addresses()[0], WINDOW).await;
    let mut unread = Vec::new();
    for _ in 0..100 {
        unread.push(held(&mut slow).await);
    }
    let mut quick = Client::http1(node.addresses()[0]).await;
    for _ in 0..20 {
        assert_eq!(quick.fetch(chat("tiny", "")).await.body, body);
    }
    eventually("no place is taken", || in_flight(&node) == 0.0).await;
    assert_eq!(replies(&node, "begun"), 100.0, "who keeps up is not read ahead");
    for response in unread {
        assert!(body_of(response).await == body, "not what the replica said");
    }
    eventually("nothing is held any more", || held_bytes(&node) == 0.0).await;
}

#[tokio::test]
async fn all_that_is_read_ahead_has_a_bound_beyond_which_replicas_wait() {
    const ROOM: usize = 100 << 10;
    let body = Bytes::from(events(LONG));
    let replica =
        Scripted::start().await.serve(streaming(std::str::from_utf8(&body).expect("text")));
    let setup = Setup::new()
        .with(move |config| config.gateway.limits.read_ahead_bytes_total_max = ROOM as u64);
    let node = setup.replica("a", replica.address).start().await;
    let mut slow = Client::http2_with_window(node.addresses()[0], WINDOW).await;
    let mut unread = Vec::new();
    for _ in 0..4 {
        unread.push(held(&mut slow).await);
    }
    eventually("no reply has room", || replies(&node, "full") == 4.0).await;
    let held = held_bytes(&node);
    assert!(held <= ROOM as f64 && held > (ROOM / 2) as f64, "{held} bytes");
    assert_eq!(in_flight(&node), 4.0, "the replica waits");
    let reading: Vec<_> = unread
        .into_iter()
        .map(|response| {
            spawn(async move {
                let (head, mut pieces) = response.into_parts();
                let mut body = Vec::new();
                while let Some(piece) = within("a piece", pieces.frame()).await {
                    body.extend(piece.expect("a piece").into_data().expect("data"));
                }
                (head.status, body)
            })
        })
        .collect();
    let mut most: f64 = 0.0;
    for reading in reading {
        while !reading.is_finished() {
            most = most.max(held_bytes(&node));
            // wait: the pause between two looks at the metric.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let (status, read) = reading.await.expect("reads");
        assert_eq!(status, 200);
        assert!(body == read, "not what the replica said");
    }
    assert!(most <= ROOM as f64, "{most} bytes");
    eventually("nothing is held any more", || held_bytes(&node) == 0.0).await;
    assert_eq!(in_flight(&node), 0.0);
}

#[tokio::test]
async fn room_that_others_make_is_found_though_the_client_does_nothing() {
    const ROOM: usize = 200 << 10;
    let replica = Scripted::start().await;
    let setup = Setup::new()
        .with(move |config| config.gateway.limits.read_ahead_bytes_total_max = ROOM as u64);
    let node = setup.replica("a", replica.address).start().await;
    // It needs half of the room beyond what its client's window and the sockets take.
    let short = streaming(&events(ROOM / 2 + WINDOW as usize));
    let mut unread = Vec::new();
    for text in [streaming(&events(LONG)), short] {
        let mut client = Client::http2_with_window(node.addresses()[0], WINDOW).await;
        let (response, ()) = tokio::join!(held(&mut client), async {
            let (mut wire, _) = replica.request().await;
            spawn(async move {
                drop(wire.try_send(text).await);
                wire.end().await
            });
        });
        unread.push((client, response));
        let full = unread.len() as f64;
        eventually("there is no room", || replies(&node, "full") == full).await;
    }
    assert_eq!(in_flight(&node), 2.0, "both replicas wait");
    drop(unread.remove(0));
    eventually("the other's place is free", || in_flight(&node) == 0.0).await;
    assert!(held_bytes(&node) > 0.0, "its client has not read it yet");
    let (_client, response) = unread.remove(0);
    assert!(body_of(response).await.len() > ROOM / 2);
}

#[tokio::test]
async fn a_stream_that_is_not_taken_is_cut_off_while_others_of_its_connection_go_on() {
    let replica = Scripted::start().await;
    let setup = Setup::new()
        .set("limits.stall_timeout_ms = 300")
        .with(|config| config.gateway.limits.read_ahead_bytes_max = 64 << 10)
        .replica("a", replica.address);
    let node = setup.start().await;
    let mut client = Client::http2_with_window(node.addresses()[0], WINDOW).await;
    let event = "data: {\"choices\":[]}\n\n";
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    let (read, mut read_wire) = tokio::join!(held(&mut client), async {
        let (mut wire, _) = replica.request().await;
        wire.send(format!("{EVENTS}{chunk}")).await;
        wire
    });
    let reading = spawn(async move { Reply::collect(read).await.expect("a whole reply") });
    for length in [LONG, 50_000] {
        // One text is longer than the read-ahead, one fits in it.
        let text = streaming(&events(length));
        let before = streams_closed(&node);
        let (unread, mut wire) = tokio::join!(held(&mut client), async {
            let (mut wire, _) = replica.request().await;
            wire.send(&text[..20_000]).await;
            wire
        });
        let mut events = 0;
        let rest = spawn(async move {
            let taken = wire.try_send(&text[20_000..]).await.is_ok();
            (wire, taken)
        });
        while streams_closed(&node) == before {
            read_wire.send(&chunk).await;
            events += 1;
            assert!(events < 2_000, "it is not cut off");
            // wait: the pause between two events, shorter than the time of a stall.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (_wire, taken) = rest.await.expect("sends");
        assert_eq!(taken, length < LONG, "of {length} bytes");
        assert!(Reply::collect(unread).await.is_err(), "it is no whole reply");
        eventually("its place is free", || in_flight(&node) == 1.0).await;
        eventually("nothing is held of it", || held_bytes(&node) == 0.0).await;
    }
    read_wire.send("0\r\n\r\n").await;
    let reply = reading.await.expect("reads");
    assert!(reply.events().len() > 20 && reply.events().iter().all(|each| *each == event));
    let closed = Page::of(&node).sum("spillway_client_connections_closed_total", &[]);
    assert_eq!((closed, streams_closed(&node)), (0.0, 2.0));
}

#[tokio::test]
async fn a_client_that_leaves_takes_what_was_read_ahead_along() {
    for room in [64 << 10, 2 * LONG] {
        let replica = Scripted::start().await;
        let setup =
            Setup::new().with(move |config| config.gateway.limits.read_ahead_bytes_max = room);
        let node = setup.replica("a", replica.address).start().await;
        for client in &mut both(&node).await {
            let cancels =
                || Page::of(&node).sum("spillway_client_cancels_total", &[("phase", "in_reply")]);
            let before = cancels();
            let text = format!("{EVENTS}{}", chunked(&events(LONG)));
            let (response, mut wire) = tokio::join!(held(client), async {
                let (mut wire, _) = replica.request().await;
                wire.send(&text[..100]).await;
                wire
            });
            let sending = spawn(async move {
                // Ends early where there is no room for all of it.
                drop(wire.try_send(&text[100..]).await);
                wire
            });
            let is_read = || held_bytes(&node) >= (64 << 10) as f64;
            eventually("it is read ahead", is_read).await;
            client.abort();
            drop(response);
            sending.await.expect("sends").end().await;
            eventually("it is counted", || cancels() == before + 1.0).await;
            eventually("nothing is held of it", || held_bytes(&node) == 0.0).await;
            assert_eq!(in_flight(&node), 0.0);
        }
    }
}

#[tokio::test]
async fn a_reply_that_ended_but_was_not_taken_counts_as_left() {
    let replica = Scripted::start().await.serve(streaming(&events(200 << 10)));
    let node = Setup::new().replica("a", replica.address).start().await;
    let mut client = Client::http2_with_window(node.addresses()[0], WINDOW).await;
    let response = held(&mut client).await;
    eventually("the place is free", || in_flight(&node) == 0.0).await;
    assert_eq!(node.gateway().counters.unfinished(), 1, "draining waits for the client");
    drop(response);
    let ends = |end| Page::of(&node).sum("spillway_requests_total", &[("end", end)]);
    eventually("it is counted", || ends("cancelled_in_reply") == 1.0).await;
    assert_eq!((ends("complete"), node.gateway().counters.unfinished()), (0.0, 0));
    eventually("nothing is held of it", || held_bytes(&node) == 0.0).await;
}

#[tokio::test]
async fn a_deadline_frees_the_place_of_a_reply_that_nobody_reads() {
    let text = events(LONG);
    let replica = Scripted::start().await.serve(streaming(&text));
    let setup = Setup::new().with(|config| config.gateway.limits.read_ahead_bytes_max = 64 << 10);
    let node = setup.replica("a", replica.address).start().await;
    for client in &mut both(&node).await {
        let mut request = chat("tiny", ",\"stream\":true");
        let deadline = HeaderValue::from_static("1500");
        request.headers_mut().insert("x-request-timeout-ms", deadline);
        let response = client.send(request).await.expect("a head");
        let full = replies(&node, "full");
        eventually("there is no room", || replies(&node, "full") > full || full > 0.0).await;
        assert_eq!(in_flight(&node), 1.0);
        eventually("the place is free", || in_flight(&node) == 0.0).await;
        let read = body_of(response).await;
        let read = std::str::from_utf8(&read).expect("text");
        let (told, last) = read.rsplit_once("data: ").expect("events");
        assert!(text.starts_with(told) && told.ends_with("\n\n"), "no part is missing");
        assert!(last.contains("deadline_exceeded"), "{last}");
    }
}

#[tokio::test]
async fn a_replica_that_breaks_off_while_it_is_read_ahead_is_told_behind_what_it_said() {
    let replica = Scripted::start().await;
    let setup = Setup::new().with(|config| config.gateway.limits.read_ahead_bytes_max = 2 * LONG);
    let node = setup.replica("a", replica.address).start().await;
    let text = events(LONG);
    let text = text.strip_suffix("data: [DONE]\n\n").expect("an end");
    for client in &mut both(&node).await {
        for is_stream in [true, false] {
            let head = if is_stream {
                EVENTS
            } else {
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
            };
            let (response, ()) = tokio::join!(held(client), async {
                let (mut wire, _) = replica.request().await;
                wire.send(format!("{head}{}", chunked(text))).await;
                wire.finish().await;
            });
            eventually("the place is free", || in_flight(&node) == 0.0).await;
            let reply = Reply::collect(response).await;
            if !is_stream {
                assert!(reply.is_err(), "it can't be taken for a whole one");
                continue;
            }
            let reply = reply.expect("an orderly end");
            let last = reply.text().strip_prefix(text).expect("all that was said");
            assert!(last.starts_with("data: ") && last.contains("stream_cut"), "{last}");
        }
        // The connection ended with the broken reply where it is HTTP/1.1.
        *client = match client.is_open() {
            true => Client::http2(node.addresses()[0]).await,
            false => Client::http1(node.addresses()[0]).await,
        };
    }
}

#[tokio::test]
async fn trailers_come_behind_what_was_read_ahead() {
    let mut server = CallServer::start().await;
    let setup = Setup::new().with(|config| config.gateway.limits.read_ahead_bytes_max = 2 * LONG);
    let node = scripted(setup, "a", &server).start().await;
    let mut client = connect(&node).await;
    let message = noise(LONG);
    let (response, ()) =
        tokio::join!(client.send(kserve("ModelInfer", full(frame(&infer("tiny", &[1]))))), async {
            server.call().await.reply(message.clone());
        });
    eventually("the place is free", || in_flight(&node) == 0.0).await;
    assert!(held_bytes(&node) > 0.0);
    let reply = Reply::collect(response.expect("a head")).await.expect("a whole reply");
    assert!(reply.body == message, "not what the replica said");
    assert_eq!(code(&reply), "0");
}

#[tokio::test]
async fn a_limit_on_concurrency_counts_a_reply_until_its_replica_is_done() {
    let replica = Scripted::start().await.serve(streaming(&events(200 << 10)));
    let node = Setup::new().replica("a", replica.address).start().await;
    let quotas = &node.gateway().clients.quotas;
    let whole = LimitKind::ALL.map(|kind| (kind == LimitKind::Concurrency).then_some(1));
    quotas.set_limits(&[LimitTerms {
        scope: Scope::Global,
        whole,
        requests: RequestWindow::Second,
    }]);
    let floor = Units::each(|kind| u64::from(kind == LimitKind::Concurrency));
    quotas.hold(&Scope::Global, &Holding { floor, ..Holding::default() });
    let mut client = Client::http2_with_window(node.addresses()[0], WINDOW).await;
    let mut unread = Vec::new();
    for _ in 0..5 {
        let response = held(&mut client).await;
        assert_eq!(response.status(), 200, "none of those before counts any more");
        unread.push(response);
        eventually("the replica is done", || in_flight(&node) == 0.0).await;
    }
    assert_eq!(node.gateway().counters.unfinished(), 5);
}

/// Pauses at random, so that both sides are ahead of each other in turn.
async fn pause(dice: &mut fastrand::Rng) {
    if dice.u8(0..8) == 0 {
        // wait: the test is about pauses, some longer than a client is given.
        tokio::time::sleep(Duration::from_millis(dice.u64(0..60))).await;
    }
}

#[tokio::test]
async fn a_replica_that_had_to_wait_is_not_blamed_for_its_silence_meanwhile() {
    let replica = Scripted::start().await;
    let setup = Setup::new()
        .set("timeouts.idle_ms = 400")
        .with(|config| config.gateway.limits.read_ahead_bytes_max = 64 << 10)
        .replica("a", replica.address);
    let node = setup.start().await;
    let mut client = Client::http2_with_window(node.addresses()[0], WINDOW).await;
    let (response, mut wire) = tokio::join!(held(&mut client), async {
        let (mut wire, _) = replica.request().await;
        wire.send(EVENTS).await;
        wire
    });
    let text = events(1 << 20);
    let mut rest = text.as_str();
    // Small pieces, so that no bytes are left in sockets once the buffer is full, and silence
    // follows.
    while replies(&node, "full") == 0.0 {
        // One chunk, or the rest of them would wait unread.
        let (piece, behind) = rest.split_at(1_900);
        wire.send(chunked(piece)).await;
        rest = behind;
        // wait: for the node to read it.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // wait: longer than a replica may be silent.
    tokio::time::sleep(Duration::from_millis(800)).await;
    let reading = spawn(body_of(response));
    eventually("there is room again", || held_bytes(&node) < 65536.0).await;
    // wait: some silence, shorter than is allowed.
    tokio::time::sleep(Duration::from_millis(100)).await;
    wire.send(format!("{}0\r\n\r\n", chunked(rest))).await;
    assert!(reading.await.expect("reads") == text, "not what the replica said");
}

#[tokio::test]
async fn however_both_sides_pause_nothing_is_lost_or_comes_twice() {
    let mut worlds: tokio::task::JoinSet<()> = (0..16).map(both_pause).collect();
    while let Some(checked) = worlds.join_next().await {
        checked.expect("holds");
    }
}

async fn both_pause(seed: u64) {
    let mut dice = fastrand::Rng::with_seed(seed);
    let room = [0, 5_000, 20_000, 200_000][dice.usize(0..4)];
    let shared = [10_000, 1 << 20][dice.usize(0..2)];
    let replica = Scripted::start().await;
    let setup = Setup::new().with(move |config| {
        config.gateway.limits.read_ahead_bytes_max = room;
        config.gateway.limits.read_ahead_bytes_total_max = shared;
    });
    let node = setup.replica("a", replica.address).start().await;
    let text = events(600_000);
    let reply = streaming(&text);
    let address = node.addresses()[0];
    let mut clients =
        [Client::http1(address).await, Client::http2_with_window(address, WINDOW).await];
    let mut readers = Vec::new();
    for client in &mut clients {
        let (response, mut wire) = tokio::join!(held(client), async {
            let (mut wire, _) = replica.request().await;
            wire.send(&reply[..100]).await;
            wire
        });
        let (mut here, mut there) = (dice.fork(), dice.fork());
        let reply = reply.clone();
        spawn(async move {
            let mut rest = &reply.as_bytes()[100..];
            while !rest.is_empty() {
                let longest = rest.len().min(30_000);
                let (piece, behind) = rest.split_at(there.usize(1..=longest));
                wire.send(piece).await;
                rest = behind;
                pause(&mut there).await;
            }
        });
        readers.push(spawn(async move {
            let mut body = response.into_body();
            let mut read = Vec::new();
            while let Some(piece) = within("a piece", body.frame()).await {
                read.extend(piece.expect("a piece").into_data().expect("data"));
                pause(&mut here).await;
            }
            read
        }));
    }
    for reader in readers {
        assert!(reader.await.expect("reads") == text.as_bytes(), "seed {seed}");
    }
    eventually("nothing is held any more", || held_bytes(&node) == 0.0).await;
    assert_eq!(in_flight(&node), 0.0);
}
