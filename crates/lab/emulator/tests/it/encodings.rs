//! Tests of gzip, of bodies that are cut at random, and of the order of fields.

use std::collections::BTreeSet;
use std::io::Read;

use flate2::read::GzDecoder;
use http::Response;
use hyper::body::Incoming;
use serde_json::{Value, json};
use spillway_emulator::{ReplicaHandle, ReplyOptions};
use spillway_testkit::within;

use crate::client::{Connection, Reply, call, chat, fast, get, next_frame, post, request, slow};

const CHAT: &str = "/v1/chat/completions";

fn gzip() -> ReplyOptions {
    ReplyOptions { gzip: true, ..ReplyOptions::default() }
}

fn cut(cut_seed: u64) -> ReplyOptions {
    ReplyOptions { cut_seed: Some(cut_seed), ..ReplyOptions::default() }
}

fn expanded(reply: &Reply) -> String {
    assert_eq!(reply.headers["content-encoding"], "gzip");
    let mut text = String::new();
    GzDecoder::new(&reply.body[..]).read_to_string(&mut text).unwrap();
    text
}

async fn accepting(replica: &ReplicaHandle, coding: &str, body: &Value) -> Reply {
    call(replica, "POST", CHAT, &[("accept-encoding", coding)], body.to_string()).await
}

/// Returns the text of a reply without the fields that differ from reply to reply.
fn without_ids(text: &str) -> String {
    let parts =
        text.split("\"id\":\"").map(|part| part.split_once("\",").map_or(part, |two| two.1));
    let text: String = parts.collect();
    text.split("\"created\":")
        .map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()))
        .collect()
}

#[tokio::test]
async fn replies_are_compressed_only_if_asked_for_and_switched_on() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    for stream in [false, true] {
        let body = chat("hi", 20, stream);
        // The second one finds the same tokens in the cache as the others.
        post(replica, CHAT, &body).await;
        let plain = accepting(replica, "gzip", &body).await;
        assert!(!plain.headers.contains_key("content-encoding"), "off by default");
        replica.set_options(gzip());
        for coding in ["gzip", "br, GZIP;q=0.5", "deflate,gzip"] {
            let reply = accepting(replica, coding, &body).await;
            assert_eq!(without_ids(&expanded(&reply)), without_ids(plain.text()), "{coding}");
        }
        for coding in ["identity", "br", "gzip;q=0"] {
            let reply = accepting(replica, coding, &body).await;
            assert!(!reply.headers.contains_key("content-encoding"), "{coding}");
        }
        replica.set_options(ReplyOptions::default());
    }
    emulator.shutdown().await;
}

#[tokio::test]
async fn each_event_of_a_compressed_stream_can_be_read_at_once() {
    let emulator = slow(1).await;
    let replica = emulator.replica(0);
    replica.set_options(gzip());
    let mut connection = Connection::open(replica).await;
    let body = chat("hi", 1000, true).to_string();
    let request = request("POST", CHAT, &[("accept-encoding", "gzip")], body);
    let mut response = connection.send(request).await.unwrap();
    let mut bytes = Vec::new();
    let mut text = [0; 6];
    // The stream takes a minute, so that its end can't be what makes this work.
    while GzDecoder::new(&bytes[..]).read_exact(&mut text).is_err() {
        bytes.extend(next_frame(&mut response).await.unwrap().unwrap());
    }
    assert_eq!(&text, b"data: ");
    drop((response, connection));
    emulator.shutdown().await;
}

/// Returns the pieces of a reply as they arrive.
async fn pieces(mut response: Response<Incoming>) -> Vec<String> {
    let mut pieces = Vec::new();
    while let Some(piece) = next_frame(&mut response).await {
        pieces.push(String::from_utf8(piece.unwrap().to_vec()).unwrap());
    }
    pieces
}

#[tokio::test]
async fn streams_are_cut_anywhere_and_stay_the_same() {
    for h2 in [false, true] {
        let emulator = fast(1).await;
        let replica = emulator.replica(0);
        let body = chat("hi", 20, true);
        post(replica, CHAT, &body).await;
        let plain = post(replica, CHAT, &body).await;
        replica.set_options(cut(7));
        let (mut within, mut across) = (0, 0);
        for _ in 0..10 {
            let mut connection = match h2 {
                true => Connection::open_h2(replica).await,
                false => Connection::open(replica).await,
            };
            let pieces = pieces(connection.post(CHAT, &body).await.unwrap()).await;
            assert_eq!(without_ids(&pieces.concat()), without_ids(plain.text()));
            within += pieces.iter().filter(|piece| !piece.ends_with("\n\n")).count();
            // The end of one event and the beginning of the next.
            let both = |piece: &&String| piece.trim_end_matches('\n').contains("\n\n");
            across += pieces.iter().filter(both).count();
        }
        assert!(within > 100, "{within} cuts within events");
        assert!(across > 0, "{across} pieces across events");
        emulator.shutdown().await;
    }
}

#[tokio::test]
async fn whole_replies_are_cut_anywhere_and_stay_the_same() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let body = chat("hi", 100, false);
    post(replica, CHAT, &body).await;
    let plain = post(replica, CHAT, &body).await;
    replica.set_options(cut(7));
    // A client that is late reads several pieces as one, so it tries until it has seen enough.
    let mut firsts = BTreeSet::new();
    let tries = async {
        while firsts.len() < 4 {
            let mut connection = Connection::open(replica).await;
            let response = connection.post(CHAT, &body).await.unwrap();
            let length = response.headers()["content-length"].to_str().unwrap().parse::<usize>();
            let pieces = pieces(response).await;
            assert_eq!(Ok(pieces.concat().len()), length);
            assert_eq!(without_ids(&pieces.concat()), without_ids(plain.text()));
            firsts.insert(pieces[0].len());
        }
    };
    within("different cuts", tries).await;
    // Compressed and cut at the same time.
    replica.set_options(ReplyOptions { cut_seed: Some(7), ..gzip() });
    for stream in [false, true] {
        let reply = accepting(replica, "gzip", &chat("hi", 100, stream)).await;
        assert!(expanded(&reply).contains("chatcmpl-"));
    }
    emulator.shutdown().await;
}

#[tokio::test]
async fn responses_repeat_metadata_before_or_behind_their_usage() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let forged = json!({ "usage": "{\"input_tokens\":0}" });
    let mut body = json!({ "model": "tiny", "input": "hi", "metadata": forged });
    body["max_output_tokens"] = 4.into();
    for usage_first in [false, true] {
        replica.set_options(ReplyOptions { usage_first, ..ReplyOptions::default() });
        body["stream"] = false.into();
        let whole = post(replica, "/v1/responses", &body).await;
        assert_eq!(whole.json()["metadata"], forged);
        body["stream"] = true.into();
        let events = post(replica, "/v1/responses", &body).await.named_events();
        let (_, last) = events.last().unwrap();
        let response = serde_json::from_str::<Value>(last).unwrap()["response"].clone();
        assert_eq!(response["usage"]["output_tokens"], 4);
        assert_eq!(response["metadata"], forged);
        for text in [whole.text(), last] {
            let usage = text.find(r#""usage":{"input_tokens":"#).unwrap();
            assert_eq!(usage < text.find(r#""metadata":"#).unwrap(), usage_first, "{text}");
            assert_eq!(usage < text.find(r#""tools":"#).unwrap(), usage_first, "{text}");
        }
    }
    emulator.shutdown().await;
}

#[tokio::test]
async fn options_are_set_over_http_on_any_replica() {
    let emulator = fast(2).await;
    let set = async |body: Value| post(emulator.replica(0), "/emulator/options", &body).await;
    let on = json!({ "options": { "gzip": true, "cut_seed": 3 }, "replica": 1 });
    let reply = set(on).await.json();
    assert_eq!((&reply["replica"], &reply["options"]["cut_seed"]), (&json!(1), &json!(3)));
    let expected = ReplyOptions { cut_seed: Some(3), ..gzip() };
    assert_eq!(emulator.replica(1).options(), expected);
    assert_eq!(emulator.replica(0).options(), ReplyOptions::default());
    let shown = get(emulator.replica(1), "/emulator/options").await.json();
    assert_eq!(shown["options"], serde_json::to_value(expected).unwrap());
    assert_eq!(set(json!({ "options": { "zip": true } })).await.status, 400);
    assert_eq!(set(json!({ "options": {}, "replica": 9 })).await.status, 404);
    emulator.shutdown().await;
}
