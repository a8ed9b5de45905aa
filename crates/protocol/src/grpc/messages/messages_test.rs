use proptest::prelude::*;

use super::super::peek::{ModelRef, read_model};
use super::super::wire::put_bytes;
use super::*;

const BYTES_MAX: u64 = 1000;

fn message(model: &str, length: usize) -> Vec<u8> {
    let mut message = Vec::new();
    put_bytes(&mut message, 1, model.as_bytes());
    put_bytes(&mut message, 5, &vec![9; length]);
    framed(&message)
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&frame_head_of(u32::try_from(message.len()).unwrap())[..], message].concat()
}

/// Passes `stream` through in pieces of this length; what came out, and whether it was taken.
fn pass(
    messages: &mut Messages,
    stream: &[u8],
    piece_length: usize,
) -> (Vec<u8>, Result<(), MessageFault>) {
    let mut passed = Vec::new();
    for piece in stream.chunks(piece_length) {
        if let Err(fault) = messages.push(Bytes::copy_from_slice(piece)) {
            return (passed, Err(fault));
        }
        while let Some(piece) = messages.pop() {
            passed.extend(piece);
        }
    }
    (passed, Ok(()))
}

/// The models that the messages of a stream name.
fn models(mut stream: &[u8]) -> Vec<String> {
    let mut models = Vec::new();
    while let Some((head, _)) = stream.split_first_chunk::<FRAME_HEAD_BYTES>() {
        let length = usize::try_from(length_of(*head, BYTES_MAX).unwrap()).unwrap();
        let (message, rest) = stream.split_at(FRAME_HEAD_BYTES + length);
        let Peek::Found(ModelRef { model, .. }) = read_model(message) else { panic!("unread") };
        models.push(model.to_owned());
        stream = rest;
    }
    assert!(stream.is_empty());
    models
}

#[test]
fn a_stream_without_an_alias_goes_on_byte_for_byte_and_uncopied() {
    let stream = Bytes::from([message("a", 20), message("b", 0), framed(b"")].concat());
    let mut messages = Messages::new(BYTES_MAX);
    messages.push(stream.clone()).unwrap();
    assert_eq!(messages.pop().map(|piece| piece.as_ptr()), Some(stream.as_ptr()));
    assert_eq!(messages.pop(), None);
    assert!(!messages.is_within_message());
}

#[test]
fn every_message_that_names_the_alias_is_rewritten_and_no_other() {
    let stream =
        [message("alias", 20), message("b", 3), framed(b""), message("alias", 700)].concat();
    for piece_length in [1, 2, 3, 7, 64, 5000] {
        let mut messages = Messages::renaming(BYTES_MAX, "alias", "the-model", None);
        let (passed, result) = pass(&mut messages, &stream, piece_length);
        assert_eq!(result, Ok(()));
        assert_eq!(models(&passed), ["the-model", "b", "", "the-model"], "{piece_length}");
        assert!(!messages.is_within_message());
    }
}

#[test]
fn other_models_are_refused_where_they_may_not_be_used_whatever_stands_behind_the_name() {
    let only = || Messages::renaming(BYTES_MAX, "a", "a", None).or_refused();
    let (allowed, other) = (message("a", 20), message("b", 20));
    // The model once more behind a later field: the last one counts for whoever reads all of it.
    let sly = framed(b"\x0A\x01a\x22\x01x\x0A\x01b");
    for piece_length in [1, 7, 1_000] {
        let (passed, result) = pass(&mut only(), &[&allowed[..], &sly].concat(), piece_length);
        assert_eq!(result, Ok(()));
        assert_eq!(models(&passed), ["a", "a"], "{piece_length}");
        let stream = [&allowed[..], &other].concat();
        let (_, result) = pass(&mut only(), &stream, piece_length);
        assert_eq!(result, Err(MessageFault::OtherModel), "{piece_length}");
    }
    assert_eq!(GatewayError::from(MessageFault::OtherModel).kind, ErrorKind::ModelNotAllowed);
}

#[test]
fn a_field_whose_length_would_swallow_the_name_behind_it_is_refused() {
    // Behind the name that is read stands another one, and a field that claims three bytes more
    // than there are: as many as the name has that is put in behind it.
    let sly = framed(b"\x0A\x01a\x22\x01x\x0A\x01b\x2A\x03");
    for piece_length in [1, 7, 1_000] {
        let mut only = Messages::renaming(BYTES_MAX, "a", "a", None).or_refused();
        let (passed, result) = pass(&mut only, &sly, piece_length);
        assert_eq!(result, Err(MessageFault::Malformed), "{piece_length}: {passed:?}");
    }
}

#[test]
fn it_is_known_whether_the_sender_owes_the_rest_of_a_message() {
    let stream = message("a", 50);
    for mut messages in [Messages::new(BYTES_MAX), Messages::renaming(BYTES_MAX, "a", "b", None)] {
        assert!(!messages.is_within_message());
        for piece in stream[..stream.len() - 1].chunks(1) {
            messages.push(Bytes::copy_from_slice(piece)).unwrap();
            assert!(messages.is_within_message());
        }
        messages.push(Bytes::copy_from_slice(&stream[stream.len() - 1..])).unwrap();
        assert!(!messages.is_within_message());
    }
}

#[test]
fn a_message_above_the_limit_is_refused_by_its_head_alone() {
    let length = u32::try_from(BYTES_MAX).unwrap();
    for mut messages in [Messages::new(BYTES_MAX), Messages::renaming(BYTES_MAX, "a", "b", None)] {
        assert_eq!(messages.push(frame_head_of(length)), Ok(()));
    }
    let fault = MessageFault::TooLarge { bytes_max: BYTES_MAX };
    for mut messages in [Messages::new(BYTES_MAX), Messages::renaming(BYTES_MAX, "a", "b", None)] {
        let stream = [framed(b"\x0A\x01a"), frame_head_of(length + 1).to_vec()].concat();
        assert_eq!(pass(&mut messages, &stream, 3).1, Err(fault));
    }
    assert_eq!(GatewayError::from(fault).kind, ErrorKind::BodyTooLarge);
}

#[test]
fn compressed_messages_pass_unless_they_have_to_be_read() {
    let compressed = [1, 0, 0, 0, 2, 8, 8];
    let mut messages = Messages::new(BYTES_MAX);
    assert_eq!(pass(&mut messages, &compressed, 2), (compressed.to_vec(), Ok(())));
    let mut messages = Messages::renaming(BYTES_MAX, "a", "b", None);
    assert_eq!(pass(&mut messages, &compressed, 2).1, Err(MessageFault::Compressed));
    let bad = [2, 0, 0, 0, 2, 8, 8];
    for mut messages in [Messages::new(BYTES_MAX), Messages::renaming(BYTES_MAX, "a", "b", None)] {
        assert_eq!(pass(&mut messages, &bad, 7).1, Err(MessageFault::Malformed));
    }
}

#[test]
fn a_name_that_does_not_end_is_not_waited_for() {
    let mut endless = vec![0x0A, 0xFF, 0xFF, 0x7F];
    endless.resize(2 << 20, b'x');
    let mut messages = Messages::renaming(u64::MAX, "a", "b", None);
    let (passed, result) = pass(&mut messages, &framed(&endless), 1 << 10);
    assert_eq!((passed.len(), result), (0, Err(MessageFault::Malformed)));
}

proptest! {
    #[test]
    fn pieces_make_no_difference(
        stream: Vec<u8>,
        names in prop::collection::vec(("[ab]", 0_usize..40), 0..5),
        piece_length in 1_usize..50,
        is_renamed: bool,
    ) {
        let sane: Vec<u8> = names.iter().flat_map(|(name, length)| message(name, *length)).collect();
        let stream = [sane, stream].concat();
        let fresh = || match is_renamed {
            true => Messages::renaming(BYTES_MAX, "a", "other", None),
            false => Messages::new(BYTES_MAX),
        };
        let (whole, whole_result) = pass(&mut fresh(), &stream, usize::MAX);
        let (parts, parts_result) = pass(&mut fresh(), &stream, piece_length);
        prop_assert_eq!(whole_result, parts_result);
        if whole_result.is_ok() {
            prop_assert_eq!(whole, parts);
        }
    }
}

#[test]
fn a_compressed_message_is_told_by_its_first_byte_however_long_it_is() {
    let head = [1, 0, 0, 4, 0];
    for piece_length in 1..=head.len() {
        let mut messages = Messages::renaming(BYTES_MAX, "a", "b", None);
        let (_, result) = pass(&mut messages, &head, piece_length);
        assert_eq!(result, Err(MessageFault::Compressed), "{piece_length}");
    }
}
