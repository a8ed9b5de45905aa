use http::{HeaderMap, HeaderValue, Method, StatusCode};
use proptest::prelude::*;
use spillway_codec::{Wire, decode, encode, golden};

use super::head::{BodyPlan, ForwardHead, HeadMessage};
use super::word::{ForwardWord, Refused, RefusedReason, ReplyHead, Trailers};
use crate::hello::Hello;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.append("content-type", HeaderValue::from_static("application/json"));
    headers.append("x-twice", HeaderValue::from_static("1"));
    headers.append("x-twice", HeaderValue::from_bytes(b"\xfc2").unwrap());
    headers
}

fn head() -> ForwardHead {
    ForwardHead {
        method: Method::POST,
        uri: "/v1/chat/completions?stream=true".parse().unwrap(),
        headers: headers(),
        model: Some("llama-3.1-8b".into()),
        pin: Some("2".into()),
        deadline_ms: Some(30_000),
        hop: 1,
        priority: 5,
        tenant: Some("acme".to_owned()),
        client: Some("2001:db8::1".parse().unwrap()),
        prefix: vec![0, 1, u64::MAX],
        body: BodyPlan::Waits(Some(123_456)),
    }
}

#[test]
fn the_bytes_of_all_messages_are_those_on_file() {
    golden::check(FOLDER, "hello", &Hello { process: 0x0123_4567_89ab_cdef });
    golden::check(FOLDER, "head", &HeadMessage::of(head()).unwrap());
    let refused = Refused { reason: RefusedReason::Reserved, wait_ms: Some(250) };
    golden::check(FOLDER, "word", &ForwardWord::Refused(refused));
    let reply = ReplyHead::of(StatusCode::TOO_MANY_REQUESTS, &headers()).unwrap();
    golden::check(FOLDER, "reply_head", &reply);
    golden::check(FOLDER, "trailers", &Trailers::of(&headers()).unwrap());
}

#[test]
fn a_head_survives_whole() {
    for head in [head(), ForwardHead::new(Method::GET, "/".parse().unwrap())] {
        let frame = encode(&HeadMessage::of(head.clone()).unwrap()).unwrap();
        assert_eq!(decode::<HeadMessage>(&frame).unwrap().into_head().unwrap(), head);
    }
}

#[test]
fn every_word_survives() {
    let refusals =
        RefusedReason::ALL.map(|reason| ForwardWord::Refused(Refused { reason, wait_ms: None }));
    for word in refusals.into_iter().chain([ForwardWord::Accepted]) {
        assert_eq!(decode::<ForwardWord>(&encode(&word).unwrap()).unwrap(), word);
    }
}

#[test]
fn the_longest_of_each_fits_its_limit() {
    let mut longest = HeaderMap::new();
    // 64 KiB of headers in all, as HTTP servers allow.
    for number in 0..128 {
        let name = http::HeaderName::from_bytes(format!("x-{number}").as_bytes()).unwrap();
        longest.insert(name, HeaderValue::from_bytes(&[b'x'; 500]).unwrap());
    }
    let mut head = head();
    head.headers = longest.clone();
    head.prefix = vec![u64::MAX; 16 << 10];
    encode(&HeadMessage::of(head).unwrap()).unwrap();
    // 512 KiB, as replicas may send.
    for number in 128..1_000 {
        let name = http::HeaderName::from_bytes(format!("x-{number}").as_bytes()).unwrap();
        longest.insert(name, HeaderValue::from_bytes(&[b'x'; 500]).unwrap());
    }
    encode(&ReplyHead::of(StatusCode::OK, &longest).unwrap()).unwrap();
    encode(&Trailers::of(&longest).unwrap()).unwrap();
    let word = Refused { reason: RefusedReason::Deadline, wait_ms: Some(u32::MAX) };
    encode(&ForwardWord::Refused(word)).unwrap();
}

/// Checks a frame whose payload was changed and whose checksum is right again, as only a peer could
/// send it: no panic, and only content that is valid in HTTP.
fn tamper<T: Wire>(sample: &T, random: &mut fastrand::Rng, check: impl Fn(T)) {
    let frame = encode(sample).unwrap();
    let header = frame.first_chunk::<{ spillway_codec::HEADER_BYTES }>().unwrap();
    let mut payload = frame[spillway_codec::HEADER_BYTES..].to_vec();
    for _ in 0..random.usize(1..4) {
        let at = random.usize(0..payload.len());
        match random.u8(0..3) {
            0 => payload[at] = random.u8(..),
            1 => payload.truncate(at.max(1)),
            _ => payload.insert(at, random.u8(..)),
        }
    }
    // Only the payload's own parser is tested, because the checksum would refuse every change.
    assert_eq!(spillway_codec::FrameHeader::parse(header).unwrap().kind, T::KIND);
    if let Ok(message) = spillway_codec::decode_payload::<T>(&payload) {
        check(message);
    }
}

#[test]
fn tampered_messages_never_panic() {
    let mut random = fastrand::Rng::with_seed(23);
    let head = HeadMessage::of(head()).unwrap();
    let reply = ReplyHead::of(StatusCode::OK, &headers()).unwrap();
    let trailers = Trailers::of(&headers()).unwrap();
    for _ in 0..30_000 {
        tamper(&head, &mut random, |message| drop(message.into_head()));
        tamper(&reply, &mut random, |message| drop(message.into_parts()));
        tamper(&trailers, &mut random, |message| drop(message.into_map()));
        tamper(&ForwardWord::Accepted, &mut random, |_| {});
    }
}

proptest! {
    #[test]
    fn any_payload_is_read_without_a_panic(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(message) = spillway_codec::decode_payload::<HeadMessage>(&payload) {
            drop(message.into_head());
        }
        if let Ok(message) = spillway_codec::decode_payload::<ReplyHead>(&payload) {
            drop(message.into_parts());
        }
        drop(spillway_codec::decode_payload::<Hello>(&payload));
    }
}
