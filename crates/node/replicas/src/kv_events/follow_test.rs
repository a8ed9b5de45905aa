use bytes::Bytes;
use serde_json::json;

use super::*;

fn message(number: u64, events: &serde_json::Value) -> Message {
    let payload = rmp_serde::to_vec(&json!([0.0, events, 0])).unwrap();
    vec![Bytes::new(), Bytes::from(number.to_be_bytes().to_vec()), payload.into()]
}

#[test]
fn a_gap_or_a_broken_message_is_told_before_what_follows() {
    let cleared = json!([{ "type": "AllBlocksCleared" }]);
    let events = || KvNews::Events(vec![KvEvent::Cleared]);
    let mut sequence = Sequence::default();
    let mut read = |message: &Message| sequence.read(message).collect::<Vec<_>>();
    // The first number may be any: the publisher was there before.
    assert_eq!(read(&message(41, &cleared)), [events()]);
    assert_eq!(read(&message(42, &json!([]))), []);
    assert_eq!(read(&message(43, &cleared)), [events()]);
    let missed = KvNews::Missed("the publisher left messages out");
    assert_eq!(read(&message(45, &cleared)), [missed.clone(), events()]);
    assert_eq!(read(&message(0, &cleared)), [missed, events()], "it began anew");
    let malformed = KvNews::Missed("a message was malformed");
    let alone: Message = vec![Bytes::new()];
    assert_eq!(read(&alone), std::slice::from_ref(&malformed));
    let broken = vec![Bytes::new(), Bytes::from(1_u64.to_be_bytes().to_vec()), Bytes::from("?")];
    assert_eq!(read(&broken), [malformed]);
    assert_eq!(read(&message(2, &cleared)), [events()]);
}
