//! Calls over gRPC whose messages go both ways.

use bytes::Bytes;
use h2::Reason;
use spillway_emulator::kserve::{InferRequest, InferResponse, StreamInferResponse};
use spillway_tests::{CallServer, Reply, Setup, emulator, full, spawn, streamed};

use crate::grpc_calls::{
    OWN, Stream, call, check_refused, code, connect, emulated, frame, infer, kserve, next_frame,
    scripted, stream, text, tokens, unframe, with,
};

#[tokio::test]
async fn messages_go_both_ways_while_the_stream_is_open() {
    let mut server = CallServer::start().await;
    let node = scripted(Setup::new(), "a", &server).start().await;
    let message = |number: u8| frame(&infer("tiny", &[number]));
    let mut stream = Stream::open(&node, &mut server, stream, message(0)).await;
    assert_eq!(stream.call.message().await, Some(message(0)));
    stream.call.begin();
    let (_client, mut response) = stream.response().await;
    for number in 1..5 {
        // Each waits for the reply to the one before.
        let reply = Bytes::from(vec![number; 7]);
        stream.call.send(reply.clone());
        assert_eq!(next_frame(&mut response).await, reply);
        stream.say(message(number)).await;
        assert_eq!(stream.call.message().await, Some(message(number)));
    }
    drop(stream.messages.take());
    assert_eq!(stream.call.message().await, None);
    stream.call.end();
    let reply = Reply::collect(response).await.expect("an orderly end");
    assert_eq!(text(reply.trailers.as_ref().expect("trailers"), "grpc-status"), "0");
}

#[tokio::test]
async fn a_stream_is_routed_by_the_beginning_of_its_first_message() {
    let mut server = CallServer::start().await;
    let node = scripted(Setup::new(), "a", &server).start().await;
    let first = frame(&infer("tiny", &[1; 500]));
    // The tensor is not sent yet.
    let mut stream = Stream::open(&node, &mut server, stream, first.slice(..40)).await;
    for piece in first.slice(40..).chunks(100) {
        stream.say(Bytes::copy_from_slice(piece)).await;
    }
    assert_eq!(stream.call.message().await, Some(first));
    stream.call.reply(Bytes::new());
    assert_eq!(code(&stream.collect().await), "0");
}

#[tokio::test]
async fn an_alias_is_replaced_in_every_message_of_a_stream() {
    let mut server = CallServer::start().await;
    let setup = Setup::new().set("aliases.short = \"tiny\"");
    let node = scripted(setup, "a", &server).start().await;
    let mut stream = Stream::open(&node, &mut server, stream, frame(&infer("short", &[0]))).await;
    for name in ["tiny", "short", "other"] {
        stream.say(frame(&infer(name, &[1; 300]))).await;
    }
    drop(stream.messages.take());
    let mut names = Vec::new();
    while let Some(message) = stream.call.message().await {
        names.extend(unframe::<InferRequest>(&message).into_iter().map(|got| got.model_name));
    }
    assert_eq!(names, ["tiny", "tiny", "tiny", "other"]);
    stream.call.reply(Bytes::new());
    assert_eq!(code(&stream.collect().await), "0");
}

#[tokio::test]
async fn a_stream_for_nothing_that_is_served_is_refused() {
    let mut server = CallServer::start().await;
    let setup = Setup::new().set("limits.stall_timeout_ms = 200").table(OWN);
    let node = scripted(setup, "a", &server).start().await;
    let mut client = connect(&node).await;
    for (body, status, code) in [
        (frame(&infer("huge", &[1])), "5", "model_not_found"),
        (frame(&infer("", &[1])), "3", "bad_request"),
        (Bytes::new(), "3", "bad_request"),
        (Bytes::from_static(&[0, 0, 0, 0, 9, 0x0A]), "3", "bad_request"),
    ] {
        check_refused(&client.fetch(stream(full(body))).await, status, code);
    }
    // A name that never ends, and a client that never begins.
    let endless = [&[0, 0, 0xFF, 0xFF, 0xFF, 0x0A, 0xFF, 0xFF, 0x7F][..], &[b'x'; 70_000]].concat();
    check_refused(&client.fetch(stream(full(endless))).await, "3", "bad_request");
    let (_silent, body) = streamed();
    check_refused(&client.fetch(stream(body)).await, "4", "body_timeout");
    let (_silent, body) = streamed();
    let request = with(stream(body), "grpc-timeout", "50m");
    check_refused(&client.fetch(request).await, "4", "deadline_exceeded");
    assert!(server.is_alone());
}

#[tokio::test]
async fn a_message_above_the_limit_ends_its_stream_and_a_long_stream_does_not() {
    let mut server = CallServer::start().await;
    let setup = Setup::new().set("limits.body_bytes_max = 1000").table(OWN);
    let node = scripted(setup, "a", &server).start().await;
    let message = frame(&infer("tiny", &[1; 900]));
    for has_begun in [false, true] {
        let mut stream = Stream::open(&node, &mut server, stream, message.clone()).await;
        assert_eq!(stream.call.message().await, Some(message.clone()));
        for _ in 0..5 {
            stream.say(message.clone()).await;
            assert_eq!(stream.call.message().await, Some(message.clone()));
        }
        if has_begun {
            stream.call.begin();
            stream.call.send(Bytes::from_static(b"early"));
        }
        stream.say(frame(&infer("tiny", &[1; 1000]))).await;
        assert_eq!(stream.call.was_reset().await, Reason::CANCEL);
        let reply = stream.collect().await;
        check_refused(&reply, "8", "body_too_large");
        assert_eq!(reply.body, if has_begun { "early" } else { "" });
    }
}

#[tokio::test]
async fn another_service_is_passed_through_unread() {
    let mut server = CallServer::start().await;
    let node = scripted(Setup::new().table(OWN), "a", &server).start().await;
    let request = |body| call("/my.pkg.Service/Chat", body);
    // Compressed in an unknown form: the gateway does not look inside.
    let strange = Bytes::from_static(&[1, 0, 0, 0, 3, 7, 7, 7]);
    let mut stream = Stream::open(&node, &mut server, request, strange.clone()).await;
    assert_eq!(stream.call.head.uri.path(), "/my.pkg.Service/Chat");
    assert_eq!(stream.call.message().await, Some(strange));
    stream.call.begin();
    stream.call.send(Bytes::from_static(b"reply"));
    let (_client, mut response) = stream.response().await;
    assert_eq!(next_frame(&mut response).await, "reply");
    stream.call.end();
    let reply = Reply::collect(response).await.expect("an orderly end");
    assert_eq!(text(reply.trailers.as_ref().expect("trailers"), "grpc-status"), "0");
    // The client never ended its half, and need not.
    stream.call.was_reset().await;
}

#[tokio::test]
async fn a_token_stream_of_the_emulator_is_passed_on_reply_by_reply() {
    let emulator = emulator(1).await;
    let node = emulated(Setup::new().set("aliases.short = \"tiny\""), &emulator).start().await;
    let mut client = connect(&node).await;
    let body = [frame(&tokens("short", 20)), frame(&infer("short", &[7]))].concat();
    let reply = client.fetch(stream(full(body))).await;
    assert_eq!(code(&reply), "0");
    let replies: Vec<StreamInferResponse> = unframe(&reply.body);
    assert_eq!(replies.len(), 21);
    assert!(replies.iter().all(|reply| reply.error_message.is_empty()));
    assert_eq!(emulator.replica(0).stats().finished, 1);
}

#[tokio::test]
async fn one_stream_that_is_not_read_hinders_no_other_at_the_same_replica() {
    let mut server = CallServer::start().await;
    let node = scripted(Setup::new(), "a", &server).start().await;
    let first = || frame(&infer("tiny", &[1]));
    let mut held = Vec::new();
    // Together they hold more than a connection may hold by default.
    for _ in 0..12 {
        let mut stream = Stream::open(&node, &mut server, stream, first()).await;
        stream.call.begin();
        let response = stream.response().await;
        stream.call.send_until_blocked().await;
        held.push((response, stream));
    }
    let mut client = connect(&node).await;
    let request = kserve("ModelInfer", full(first()));
    let waiting = spawn(async move { client.fetch(request).await });
    let reply = vec![frame(&InferResponse::default()); 10_000].concat();
    server.call().await.reply(reply.clone());
    assert_eq!(waiting.await.expect("a reply").body, reply);
}

#[tokio::test]
async fn a_message_in_many_pieces_is_gathered() {
    let mut server = CallServer::start().await;
    let setup = Setup::new().set("aliases.short = \"tiny\"");
    let node = scripted(setup, "a", &server).start().await;
    let mut client = connect(&node).await;
    let (pieces, body) = streamed();
    let waiting = spawn(async move { client.fetch(kserve("ModelInfer", body)).await });
    for piece in frame(&infer("short", &[9; 50])).chunks(3) {
        pieces.send(Bytes::copy_from_slice(piece)).await.expect("is read");
    }
    drop(pieces);
    let mut call = server.call().await;
    let got: Vec<InferRequest> = unframe(&call.message().await.expect("a message"));
    assert_eq!(got, [infer("tiny", &[9; 50])]);
    call.reply(frame(&InferResponse::default()));
    assert_eq!(code(&waiting.await.expect("a reply")), "0");
}
