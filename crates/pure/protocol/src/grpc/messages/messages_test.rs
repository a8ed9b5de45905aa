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

/// Passes `stream` through in pieces of this length. Returns the output, and the error if it was
/// refused.
fn pass(
    messages: &mut Messages,
    stream: &[u8],
    piece_length: usize,
) -> (Vec<u8>, Result<(), MessageError>) {
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

/// Returns the models that the messages of a stream name.
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
    // The model again behind a later field: a reader of the whole message takes the last one.
    let sly = framed(b"\x0A\x01a\x22\x01x\x0A\x01b");
    for piece_length in [1, 7, 1_000] {
        let (passed, result) = pass(&mut only(), &[&allowed[..], &sly].concat(), piece_length);
        assert_eq!(result, Ok(()));
        assert_eq!(models(&passed), ["a", "a"], "{piece_length}");
        let stream = [&allowed[..], &other].concat();
        let (_, result) = pass(&mut only(), &stream, piece_length);
        assert_eq!(result, Err(MessageError::OtherModel), "{piece_length}");
    }
    assert_eq!(GatewayError::from(MessageError::OtherModel).kind, ErrorKind::ModelNotAllowed);
}

#[test]
fn a_field_whose_length_would_swallow_the_name_behind_it_is_refused() {
    // Behind the name that is read stands another one, and a field that claims three bytes more
    // than there are: as many as the inserted name has.
    let sly = framed(b"\x0A\x01a\x22\x01x\x0A\x01b\x2A\x03");
    for piece_length in [1, 7, 1_000] {
        let mut only = Messages::renaming(BYTES_MAX, "a", "a", None).or_refused();
        let (passed, result) = pass(&mut only, &sly, piece_length);
        assert_eq!(result, Err(MessageError::Malformed), "{piece_length}: {passed:?}");
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
    let fault = MessageError::TooLarge { bytes_max: BYTES_MAX };
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
    assert_eq!(pass(&mut messages, &compressed, 2).1, Err(MessageError::Compressed));
    let bad = [2, 0, 0, 0, 2, 8, 8];
    for mut messages in [Messages::new(BYTES_MAX), Messages::renaming(BYTES_MAX, "a", "b", None)] {
        assert_eq!(pass(&mut messages, &bad, 7).1, Err(MessageError::Malformed));
    }
}

#[test]
fn a_name_that_does_not_end_is_not_waited_for() {
    let mut endless = vec![0x0A, 0xFF, 0xFF, 0x7F];
    endless.resize(2 << 20, b'x');
    let mut messages = Messages::renaming(u64::MAX, "a", "b", None);
    let (passed, result) = pass(&mut messages, &framed(&endless), 1 << 10);
    assert_eq!((passed.len(), result), (0, Err(MessageError::Malformed)));
}

/// Returns a message with a parameter of this name behind its tensors, where no writer puts it.
fn with_parameter(name: &str) -> Vec<u8> {
    let mut entry = Vec::new();
    put_bytes(&mut entry, 2, b"\x10\x01");
    put_bytes(&mut entry, 1, name.as_bytes());
    let mut message = Vec::new();
    put_bytes(&mut message, 1, b"a");
    put_bytes(&mut message, 7, &[0x22; 300]);
    put_bytes(&mut message, 4, &entry);
    framed(&message)
}

/// Returns the number of complete messages in a stream.
fn whole_messages(mut stream: &[u8]) -> usize {
    let mut count = 0;
    while let Some((head, rest)) = stream.split_first_chunk::<FRAME_HEAD_BYTES>() {
        let length = usize::try_from(length_of(*head, BYTES_MAX).unwrap()).unwrap();
        let Some((_, rest)) = rest.split_at_checked(length) else { break };
        (count, stream) = (count + 1, rest);
    }
    count
}

/// Returns relays with and without a new name that accept no parameter except `priority`.
fn watched() -> [Messages; 3] {
    let priority = EngineFields::named("priority").unwrap();
    [
        Messages::new(BYTES_MAX),
        Messages::renaming(BYTES_MAX, "a", "b", None),
        Messages::renaming(BYTES_MAX, "x", "b", None),
    ]
    .map(|messages| messages.refusing_parameters_but(priority))
}

#[test]
fn parameters_that_steer_the_model_server_are_refused_in_every_message_of_a_stream() {
    let sane =
        [message("a", 200), with_parameter("priority"), with_parameter("top_k"), framed(b"")]
            .concat();
    for name in ["request_id", "Lora_Path", "ses\u{17f}ion_id"] {
        let stream = [&sane[..], &with_parameter(name)].concat();
        for piece_length in [1, 3, 40, 5_000] {
            for mut messages in watched() {
                let (_, result) = pass(&mut messages, &sane, piece_length);
                assert_eq!(result, Ok(()));
                assert!(!messages.is_within_message());
            }
            for mut messages in watched() {
                let (passed, result) = pass(&mut messages, &stream, piece_length);
                let Err(MessageError::Parameter(known)) = result else { panic!("{result:?}") };
                assert_eq!(EngineFields::named(known), EngineFields::named(name));
                assert!(whole_messages(&passed) <= 4, "the whole message was passed on");
                let error = GatewayError::from(MessageError::Parameter(known));
                assert_eq!((error.kind, error.param), (ErrorKind::BadRequest, Some(known)));
            }
        }
    }
}

#[test]
fn a_message_whose_parameters_can_not_be_read_is_refused() {
    let entry = |content: &[u8]| {
        let mut message = vec![0x0A, 1, b'a'];
        put_bytes(&mut message, 4, content);
        framed(&message)
    };
    for (stream, fault) in [
        // A group before the key, a key that is longer than its entry, a value that never ends.
        (entry(b"\x1B\x1C\x0A\x08priority"), MessageError::Malformed),
        (entry(b"\x0A\x09priority"), MessageError::Malformed),
        (framed(b"\x0A\x01a\x22\x7F\x0A\x08priority"), MessageError::Malformed),
        (framed(b"\x0A\x01a\x2B\x2C"), MessageError::Malformed),
        (b"\x01\0\0\0\x02\x08\x08".to_vec(), MessageError::Compressed),
    ] {
        for piece_length in [1, 4, 1_000] {
            for mut messages in watched() {
                let (_, result) = pass(&mut messages, &stream, piece_length);
                assert_eq!(result, Err(fault), "{stream:?} in pieces of {piece_length}");
            }
        }
    }
}

#[test]
fn long_keys_and_tensors_pass_a_watched_stream_uncopied() {
    let stream = Bytes::from(with_parameter(&"priority".repeat(40)));
    let [mut messages, ..] = watched();
    messages.push(stream.clone()).unwrap();
    assert_eq!(messages.pop().map(|piece| piece.as_ptr()), Some(stream.as_ptr()));
    assert!(!messages.is_within_message());
}

proptest! {
    #[test]
    fn a_watched_stream_passes_no_parameter_that_whoever_reads_it_finds(
        fields in prop::collection::vec((1_u32..9, prop::sample::select(vec![
            &b""[..], b"\x0A\x08priority", b"\x0A\x03rid", b"\x0A\x01x\x0A\x03rid", b"rid", b"\x12\x02\x10\x01",
        ])), 0..6),
        piece_length in 1_usize..50,
    ) {
        let mut message = Vec::new();
        for (number, value) in &fields {
            put_bytes(&mut message, *number, value);
        }
        let mut messages =
            Messages::new(BYTES_MAX).refusing_parameters_but(EngineFields::named("priority").unwrap());
        let (_, result) = pass(&mut messages, &framed(&message), piece_length);
        let parameters = fields.iter().filter(|(number, _)| *number == 4);
        let is_refused = parameters.clone().any(|(_, value)| value.ends_with(b"rid"));
        prop_assert_eq!(result.is_err(), is_refused, "{:?}", result);
    }

    #[test]
    fn pieces_make_no_difference(
        stream: Vec<u8>,
        names in prop::collection::vec(("[ab]", 0_usize..40), 0..5),
        piece_length in 1_usize..50,
        is_renamed: bool,
        is_watched: bool,
    ) {
        let sane: Vec<u8> = names.iter().flat_map(|(name, length)| message(name, *length)).collect();
        let stream = [sane, stream].concat();
        let fresh = || {
            let messages = match is_renamed {
                true => Messages::renaming(BYTES_MAX, "a", "other", None),
                false => Messages::new(BYTES_MAX),
            };
            match is_watched {
                true => messages.refusing_parameters_but(EngineFields::NONE),
                false => messages,
            }
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
        assert_eq!(result, Err(MessageError::Compressed), "{piece_length}");
    }
}
