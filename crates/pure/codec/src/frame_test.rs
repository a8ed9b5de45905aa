//! Faults that a frame must survive, and input that must be refused.

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::test_message::{Choice, Note, NoteV1};
use crate::{
    DecodeError, EncodeError, FrameHeader, HEADER_BYTES, Wire, decode, decode_payload, encode,
    payload_bytes,
};

fn choices() -> impl Strategy<Value = Choice> {
    prop_oneof![
        Just(Choice::Nothing),
        any::<u64>().prop_map(Choice::One),
        any::<(u8, u8)>().prop_map(|(a, b)| Choice::Two(a, b)),
        ".{0,9}".prop_map(|name| Choice::Named { name }),
    ]
}

fn notes() -> impl Strategy<Value = Note> {
    (
        any::<(u32, u64, i32, Option<u16>, [u8; 4])>(),
        -1e9_f32..1e9,
        ".{0,40}",
        choices(),
        prop::collection::vec((any::<u8>(), ".{0,5}"), 0..20),
        prop::collection::btree_map(".{0,5}", any::<u32>(), 0..20),
    )
        .prop_map(|((count, big, signed, maybe, id), share, text, choice, list, map)| Note {
            count,
            big,
            signed,
            share,
            text,
            maybe,
            choice,
            list,
            map,
            id,
        })
}

proptest! {
    #[test]
    fn a_message_reads_back(note in notes()) {
        let frame = encode(&note).unwrap();
        prop_assert_eq!(frame.len(), HEADER_BYTES + payload_bytes(&note).unwrap());
        prop_assert_eq!(decode::<Note>(&frame).unwrap(), note);
    }

    #[test]
    fn a_flipped_bit_is_refused(note in notes(), at in any::<prop::sample::Index>()) {
        let mut frame = encode(&note).unwrap().to_vec();
        let bit = at.index(frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(decode::<Note>(&frame).is_err());
    }

    #[test]
    fn a_truncated_frame_is_too_short(note in notes(), at in any::<prop::sample::Index>()) {
        let frame = encode(&note).unwrap();
        let bytes = at.index(frame.len());
        let needed = if bytes < HEADER_BYTES { HEADER_BYTES } else { frame.len() };
        let refusal = decode::<Note>(&frame[..bytes]);
        prop_assert_eq!(refusal, Err(DecodeError::TooShort { bytes, needed }));
    }

    #[test]
    fn appended_bytes_are_refused(note in notes(), more in prop::collection::vec(any::<u8>(), 1..9)) {
        let mut frame = encode(&note).unwrap().to_vec();
        frame.extend(&more);
        let refusal = decode::<Note>(&frame);
        prop_assert_eq!(refusal, Err(DecodeError::Trailing { bytes: more.len() }));
    }

    #[test]
    fn any_payload_with_a_right_checksum_is_read_or_refused(
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        drop(decode::<Note>(&frame_of(Note::VERSION, &payload)));
    }
}

/// Makes a frame that is valid except for the content of its payload.
fn frame_of(version: u16, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader::of(Note::KIND, version, payload.len() as u32, payload);
    [&header.to_bytes(), payload].concat()
}

#[test]
fn every_bit_of_a_frame_counts() {
    let frame = encode(&Note::sample()).unwrap();
    for bit in 0..frame.len() * 8 {
        let mut frame = frame.to_vec();
        frame[bit / 8] ^= 1 << (bit % 8);
        assert!(decode::<Note>(&frame).is_err(), "bit {bit}");
    }
}

#[test]
fn random_bytes_never_panic_and_never_pass() {
    let mut rng = fastrand::Rng::with_seed(1);
    let whole = encode(&Note::sample()).unwrap();
    for _ in 0..200_000 {
        // Half of them look like a frame, so that what comes after the header is reached too.
        let mut bytes: Vec<u8> = (0..rng.usize(0..80)).map(|_| rng.u8(..)).collect();
        if rng.bool() {
            let kept = rng.usize(0..whole.len());
            bytes.splice(0..0, whole[..kept].iter().copied());
        }
        assert!(bytes == whole || decode::<Note>(&bytes).is_err());
    }
}

#[test]
fn random_payloads_never_panic() {
    let mut rng = fastrand::Rng::with_seed(2);
    let whole = encode(&Note::sample()).unwrap();
    let mut read = 0;
    for _ in 0..200_000 {
        let mut payload = whole[HEADER_BYTES..].to_vec();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(0..payload.len());
            payload[at] = rng.u8(..);
        }
        read += usize::from(decode_payload::<Note>(&payload).is_ok());
    }
    assert!(read > 1_000, "only {read} came as far as to be read");
}

#[test]
fn each_fault_has_its_own_error() {
    let good = encode(&Note::sample()).unwrap();
    let with = |at: usize, byte: u8| {
        let mut frame = good.to_vec();
        frame[at] = byte;
        decode::<Note>(&frame).unwrap_err()
    };
    assert_eq!(with(0, 0), DecodeError::Magic { found: 0x5700 });
    assert_eq!(with(2, 9), DecodeError::Kind { found: 0x7f09, expected: 0x7f01 });
    assert_eq!(with(4, 3), DecodeError::Version { kind: 0x7f01, found: 3, newest: 2 });
    let long = DecodeError::TooLong { bytes: 0x5000_0000 + good.len() - 14, bytes_max: 4096 };
    assert_eq!(with(9, 0x50), long);
    assert_eq!(with(10, !good[10]), DecodeError::Checksum);
    assert_eq!(with(20, !good[20]), DecodeError::Checksum);
    assert_eq!(decode::<Note>(&[]), Err(DecodeError::TooShort { bytes: 0, needed: HEADER_BYTES }));
    let malformed = decode::<Note>(&frame_of(2, &[]));
    assert!(matches!(malformed, Err(DecodeError::Payload { .. })), "{malformed:?}");
}

#[test]
fn bytes_after_the_message_inside_the_payload_are_refused() {
    let good = encode(&Note::sample()).unwrap();
    let payload = [&good[HEADER_BYTES..], &[0]].concat();
    let refusal = decode::<Note>(&frame_of(2, &payload)).unwrap_err();
    assert_eq!(refusal, DecodeError::Payload { why: "bytes are left over".into() });
}

#[test]
fn an_older_version_is_read_and_an_even_older_one_refused() {
    let old = NoteV1 { count: 3, text: "old".to_owned() };
    let frame = encode(&old).unwrap();
    assert_eq!(decode::<Note>(&frame).unwrap(), Note::from(old));
    let refusal = decode::<Note>(&frame_of(0, &[])).unwrap_err();
    assert_eq!(refusal, DecodeError::Version { kind: 0x7f01, found: 0, newest: 2 });
    let refusal = decode::<NoteV1>(&frame_of(0, &[])).unwrap_err();
    assert_eq!(refusal, DecodeError::Version { kind: 0x7f01, found: 0, newest: 1 });
}

#[test]
fn a_message_as_long_as_allowed_passes_and_one_byte_more_does_not() {
    let mut note = Note::sample();
    let rest = payload_bytes(&note).unwrap() - note.text.len();
    // From 251 bytes on a string's length takes two bytes more.
    note.text = "x".repeat(Note::BYTES_MAX - rest - 2);
    let frame = encode(&note).unwrap();
    assert_eq!(frame.len(), HEADER_BYTES + Note::BYTES_MAX);
    assert_eq!(decode::<Note>(&frame).unwrap(), note);
    let long = frame_of(Note::VERSION, &[0; Note::BYTES_MAX + 1]);
    let bytes_max = Note::BYTES_MAX;
    let too_long = DecodeError::TooLong { bytes: bytes_max + 1, bytes_max };
    assert_eq!(decode::<Note>(&long), Err(too_long));
    note.text.push('x');
    assert_eq!(encode(&note), Err(EncodeError::TooLong { bytes_max: Note::BYTES_MAX }));
}

#[test]
fn a_stream_reader_knows_the_length_before_the_payload() {
    let frame = encode(&Note::sample()).unwrap();
    let (head, payload) = frame.split_first_chunk().unwrap();
    let header = FrameHeader::parse(head).unwrap();
    assert_eq!(header.admit::<Note>(), Ok(payload.len()));
    assert_eq!(header.open::<Note>(payload).unwrap(), Note::sample());
    assert!(header.open::<Note>(&payload[1..]).is_err());
}

/// Records the room that a list was asked to reserve.
#[derive(Debug)]
struct Reserved(Option<usize>);

impl<'de> Deserialize<'de> for Reserved {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ask;
        impl<'de> serde::de::Visitor<'de> for Ask {
            type Value = Reserved;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> Result<Reserved, A::Error> {
                let asked = list.size_hint();
                while list.next_element::<u8>()?.is_some() {}
                Ok(Reserved(asked))
            }
        }
        deserializer.deserialize_seq(Ask)
    }
}

#[test]
fn a_list_reserves_nothing_by_the_length_that_is_claimed() {
    let payload = bytes_of(&vec![1_u8, 2, 3]);
    assert_eq!(decode_payload::<Reserved>(&payload).unwrap().0, None);
}

#[test]
fn a_string_has_to_be_there_before_it_is_copied() {
    // A length of 2^63 as bincode writes it, and two bytes of text: allocating that would abort.
    let payload = [&[253][..], &(1_u64 << 63).to_le_bytes(), b"ab"].concat();
    assert!(decode_payload::<String>(&payload).is_err());
    assert!(decode_payload::<Vec<String>>(&payload).is_err());
    assert!(decode_payload::<Vec<u64>>(&payload).is_err());
    assert!(decode_payload::<std::sync::Arc<str>>(&payload).is_err());
}

#[test]
fn a_list_of_nothings_ends_with_the_bytes() {
    let payload = [&[253][..], &u64::MAX.to_le_bytes()].concat();
    assert!(decode_payload::<Vec<()>>(&payload).is_err());
    assert!(decode_payload::<Vec<[u8; 0]>>(&payload).is_err());
}

#[test]
fn many_fields_without_bytes_are_no_fault() {
    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Hollow {
        a: (),
        b: ((), ()),
        c: [(); 9],
        d: bool,
    }
    let payload = bytes_of(&Hollow::default());
    assert_eq!(payload.len(), 1);
    assert_eq!(decode_payload::<Hollow>(&payload).unwrap(), Hollow::default());
}

fn bytes_of<T: Serialize>(value: &T) -> Vec<u8> {
    let mut payload = Vec::new();
    crate::payload::append(value, &mut payload, usize::MAX).unwrap();
    payload
}
