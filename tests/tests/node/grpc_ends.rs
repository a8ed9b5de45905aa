//! Ends of calls over gRPC: deadlines, clients that leave, replicas that fail.

use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use spillway_emulator::kserve::StreamInferResponse;
use spillway_emulator::{Close, Fault};
use spillway_tests::{
    CallServer, Page, Reply, Setup, eventually, full, slow_emulator, spawn, within,
};
use tokio::net::TcpStream;

use crate::grpc_calls::{
    Stream, check_refused, code, connect, emulated, ending, frame, infer, kserve, next_frame,
    scripted, stream, text, tokens, unframe, with,
};

#[tokio::test]
async fn what_is_left_of_a_deadline_is_told_and_kept() {
    let mut server = CallServer::start().await;
    let node = scripted(Setup::new(), "a", &server).start().await;
    let first = || frame(&infer("tiny", &[1]));
    let cases: [(&[(&str, &str)], u128); 4] = [
        (&[("grpc-timeout", "400m")], 400),
        (&[("x-request-timeout-ms", "400")], 400),
        (&[("grpc-timeout", "1H"), ("x-request-timeout-ms", "400")], 400),
        (&[("grpc-timeout", "400000u"), ("x-request-timeout-ms", "9000")], 400),
    ];
    for (headers, most_ms) in cases {
        let request = |body| {
            headers.iter().fold(stream(body), |request, (name, value)| with(request, name, value))
        };
        let mut stream = Stream::open(&node, &mut server, request, first()).await;
        let told = stream.call.header("grpc-timeout").expect("a deadline").to_owned();
        let left = told.strip_suffix('u').expect("microseconds").parse::<u128>().expect("a number");
        assert!(0 < left && left < most_ms * 1000, "{told}");
        assert_eq!(stream.call.was_reset().await, Reason::CANCEL);
        check_refused(&stream.collect().await, "4", "deadline_exceeded");
    }
    let mut client = connect(&node).await;
    for malformed in ["5", "soon", "123456789S", "-1S"] {
        let request = with(kserve("ModelInfer", full(first())), "grpc-timeout", malformed);
        check_refused(&client.fetch(request).await, "3", "bad_request");
    }
    let request = with(kserve("ModelInfer", full(first())), "grpc-timeout", "0n");
    check_refused(&client.fetch(request).await, "4", "deadline_exceeded");
    assert!(server.is_alone());
}

#[tokio::test]
async fn a_deadline_that_passes_in_a_reply_ends_it_with_a_status() {
    let mut server = CallServer::start().await;
    let node = scripted(Setup::new(), "a", &server).start().await;
    let request = |body| with(stream(body), "grpc-timeout", "300m");
    let first = frame(&infer("tiny", &[1]));
    let mut stream = Stream::open(&node, &mut server, request, first).await;
    stream.call.begin();
    stream.call.send(Bytes::from_static(b"part"));
    let reply = stream.collect().await;
    check_refused(&reply, "4", "deadline_exceeded");
    assert_eq!(reply.body, "part");
    assert_eq!(stream.call.was_reset().await, Reason::CANCEL);
    let in_flight = || Page::of(&node).sum("spillway_replica_in_flight", &[]);
    eventually("the place is free", || in_flight() == 0.0).await;
}

#[tokio::test]
async fn a_reply_that_breaks_off_ends_with_a_status() {
    let mut server = CallServer::start().await;
    let node = scripted(Setup::new(), "a", &server).start().await;
    let first = || frame(&infer("tiny", &[1]));
    for silently in [true, false] {
        let mut stream = Stream::open(&node, &mut server, stream, first()).await;
        stream.call.begin();
        stream.call.send(Bytes::from_static(b"part"));
        let (_client, mut response) = stream.response().await;
        // A frame counts as delivered only once it has arrived, so wait for it.
        assert_eq!(next_frame(&mut response).await, "part");
        if silently {
            stream.call.end_silently();
        } else {
            stream.call.reset(Reason::INTERNAL_ERROR);
        }
        let reply = Reply::collect(response).await.expect("an orderly end");
        check_refused(&reply, "14", "stream_cut");
    }
}

#[tokio::test]
async fn silence_is_a_stall_only_when_both_sides_are_silent() {
    let mut server = CallServer::start().await;
    let setup = Setup::new().set("timeouts.idle_ms = 400");
    let node = scripted(setup, "a", &server).start().await;
    let message = frame(&infer("tiny", &[1]));
    let mut stream = Stream::open(&node, &mut server, stream, message.clone()).await;
    stream.call.begin();
    for _ in 0..4 {
        // wait: less than the time-out, but more than it in all.
        tokio::time::sleep(Duration::from_millis(200)).await;
        stream.say(message.clone()).await;
    }
    stream.call.send(Bytes::from_static(b"still here"));
    let reply = stream.collect().await;
    check_refused(&reply, "14", "stream_stalled");
    assert_eq!(reply.body, "still here");
    assert_eq!(stream.call.was_reset().await, Reason::CANCEL);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_call_along() {
    let mut server = CallServer::start().await;
    let node = scripted(Setup::new(), "a", &server).start().await;
    let tcp = TcpStream::connect(node.addresses()[0]).await.expect("connects");
    let (mut client, connection) = h2::client::handshake(tcp).await.expect("a handshake");
    spawn(connection);
    for has_begun in [false, true] {
        let mut request = stream(full(Bytes::new())).map(|_| ());
        let uri = format!("http://x{}", request.uri().path());
        *request.uri_mut() = uri.parse().expect("a URI");
        let (response, mut half) = client.send_request(request, false).expect("a stream");
        half.send_data(frame(&infer("tiny", &[1])), false).expect("room");
        let mut call = server.call().await;
        let mut head = None;
        if has_begun {
            call.begin();
            head = Some(within("a head", response).await.expect("a head"));
        }
        // As gRPC clients cancel: the stream ends, its connection stays.
        half.send_reset(Reason::CANCEL);
        assert_eq!(call.was_reset().await, Reason::CANCEL, "{has_begun}");
        drop(head);
    }
    let in_flight = || Page::of(&node).sum("spillway_replica_in_flight", &[]);
    eventually("all places are free", || in_flight() == 0.0).await;
    assert_eq!(Page::of(&node).sum("spillway_replica_connections", &[]), 1.0, "it lives on");
}

#[tokio::test]
async fn a_replica_that_ends_a_call_early_frees_both_sides() {
    let mut server = CallServer::start().await;
    let node = scripted(Setup::new(), "a", &server).start().await;
    let first = frame(&infer("tiny", &[1]));
    let mut stream = Stream::open(&node, &mut server, stream, first).await;
    stream.call.reply(Bytes::from_static(b"enough"));
    let reply = stream.collect().await;
    assert_eq!((code(&reply), &reply.body[..]), ("0", &b"enough"[..]));
    stream.call.was_reset().await;
    let messages = stream.messages.take().expect("still open");
    within("the client's half ends", messages.closed()).await;
}

#[tokio::test]
async fn faults_in_a_token_stream_end_it_with_a_status_and_are_counted_once() {
    let emulator = slow_emulator(1, 0.05).await;
    let setup = Setup::new().set("timeouts.idle_ms = 300");
    let node = emulated(setup, &emulator).start().await;
    let replica = emulator.replica(0);
    let faults = [
        (Fault::Cut { after_events: 3, close: Close::Reset }, "stream_cut"),
        (Fault::Stall { after_events: 3 }, "stream_stalled"),
    ];
    for (fault, code) in faults {
        replica.set_fault(fault).await.expect("a fault");
        let mut client = connect(&node).await;
        let reply = client.fetch(stream(full(frame(&tokens("tiny", 50))))).await;
        check_refused(&reply, "14", code);
        assert_eq!(unframe::<StreamInferResponse>(&reply.body).len(), 3, "whole messages");
    }
    eventually("both are gone", || replica.stats().aborted == 2).await;
    assert_eq!(replica.stats().received, 2);
    replica.set_fault(Fault::Hang).await.expect("a fault");
    let request = with(stream(full(frame(&tokens("tiny", 50)))), "grpc-timeout", "200m");
    let reply = connect(&node).await.fetch(request).await;
    check_refused(&reply, "4", "deadline_exceeded");
    assert!(text(ending(&reply), "grpc-message").contains("deadline"));
    eventually("the hanging one too", || replica.stats().aborted == 3).await;
}
