use proptest::prelude::*;

use super::*;

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&frame_head_of(length)[..], message].concat()
}

/// Returns a request for a model, with an input behind it, in the order of usual writers.
fn request(model: &str, version: &str) -> Vec<u8> {
    let mut message = Vec::new();
    put_bytes(&mut message, 1, model.as_bytes());
    put_bytes(&mut message, 2, version.as_bytes());
    put_bytes(&mut message, 3, b"id");
    put_bytes(&mut message, 5, &[7; 300]);
    framed(&message)
}

fn found<'m>(model: &'m str, version: &'m str) -> Peek<'m> {
    Peek::Found(ModelRef { model, version })
}

/// Peeks at longer and longer prefixes of `stream`. Returns the first result, and the bytes it
/// took.
fn peek_bytewise(stream: &[u8]) -> (usize, Peek<'_>) {
    let mut answers = (0..=stream.len()).map(|length| (length, peek_model(&stream[..length])));
    answers.find(|(_, peek)| *peek != Peek::NeedMore).unwrap_or((stream.len(), Peek::NeedMore))
}

#[test]
fn the_model_is_found_before_the_tensors_are_there() {
    let stream = request("tiny", "7");
    let (length, peek) = peek_bytewise(&stream);
    // The head, two fields, and the tag behind them.
    assert_eq!((length, peek), (5 + 6 + 3 + 1, found("tiny", "7")));
    assert_eq!(peek_model(&stream), found("tiny", "7"));
    assert_eq!(read_model(&stream), found("tiny", "7"));
}

#[test]
fn what_a_message_does_not_say_is_empty() {
    for peek in [peek_model, read_model] {
        assert_eq!(peek(&framed(b"")), found("", ""));
        assert_eq!(peek(&framed(b"\x0A\x01m")), found("m", ""));
        assert_eq!(peek(&framed(b"\x12\x011")), found("", "1"));
        assert_eq!(peek(&framed(b"\x2A\x00")), found("", ""));
    }
}

#[test]
fn the_last_of_several_names_counts() {
    let twice = framed(b"\x0A\x01a\x12\x011\x0A\x01b");
    assert_eq!(peek_model(&twice), found("b", "1"));
    let late = framed(b"\x0A\x01a\x2A\x00\x0A\x01b");
    assert_eq!(read_model(&late), found("b", ""), "a whole message is read to its end");
    assert_eq!(peek_model(&late), found("a", ""), "a stream only as far as writers write it");
}

#[test]
fn only_the_first_message_of_a_stream_is_read() {
    let stream = [framed(b"\x0A\x01a"), framed(b"\x0A\x01b")].concat();
    assert_eq!(peek_model(&stream), found("a", ""));
}

#[test]
fn compressed_and_malformed_messages_are_told_apart() {
    for peek in [peek_model, read_model] {
        assert_eq!(peek(&[1, 0, 0, 0, 9, 1]), Peek::Compressed);
        assert_eq!(peek(&[2, 0, 0, 0, 0]), Peek::Malformed);
        assert_eq!(peek(&framed(b"\x0A\x01\xFF")), Peek::Malformed, "a name that is no text");
        assert_eq!(peek(&framed(b"\x08\x01")), Peek::Malformed, "a name that is a number");
        assert_eq!(peek(&framed(b"\x0A\x09m")), Peek::Malformed, "longer than its message");
        assert_eq!(peek(&framed(b"\x02m")), Peek::Malformed, "a field without a number");
    }
    assert_eq!(peek_model(b""), Peek::NeedMore);
    assert_eq!(peek_model(&[0, 0, 0]), Peek::NeedMore);
}

#[test]
fn a_unary_body_is_one_message_and_nothing_else() {
    let body = request("tiny", "");
    assert_eq!(read_model(&body[..body.len() - 1]), Peek::Malformed);
    for behind in [&b"\0"[..], b"\x2A\x00"] {
        assert_eq!(read_model(&[&body[..], behind].concat()), Peek::Malformed, "{behind:?}");
    }
    assert_eq!(read_model(b""), Peek::Malformed);
    assert_eq!(read_model(&[0, 0, 0]), Peek::Malformed);
}

#[test]
fn a_rewritten_message_names_the_other_model_and_keeps_the_rest() {
    let body = Bytes::from(request("alias", "3"));
    let bytes = |segments: Segments| segments.iter().flatten().copied().collect::<Vec<u8>>();
    let versioned = bytes(rewrite_model(&body, "tiny", Some("4")));
    assert_eq!(read_model(&versioned), found("tiny", "4"));
    let rewritten = bytes(rewrite_model(&body, "tiny", None));
    assert_eq!(read_model(&rewritten), found("tiny", "3"));
    assert_eq!(rewritten[FRAME_HEAD_BYTES..body.len()], body[FRAME_HEAD_BYTES..]);
    assert_eq!(rewritten.len(), body.len() + 6);
    let empty = bytes(rewrite_model(&Bytes::from(framed(b"")), "m", None));
    assert_eq!(read_model(&empty), found("m", ""));
}

fn some_stream() -> impl Strategy<Value = Vec<u8>> {
    let name = "[a-zö]{0,20}";
    let sane = (name, name, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(a, b, tail)| {
        let mut message = Vec::new();
        put_bytes(&mut message, 1, a.as_bytes());
        put_bytes(&mut message, 2, b.as_bytes());
        message.extend(tail);
        framed(&message)
    });
    // Bytes from a small set form fields that end in odd places.
    let field_like = prop::sample::select(vec![0_u8, 1, 2, 8, 0x0A, 0x12, 0x1A, 0x80, b'm']);
    let odd = prop::collection::vec(field_like, 0..30).prop_map(|message| framed(&message));
    prop_oneof![sane, odd, prop::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #[test]
    fn however_a_stream_is_split_the_answer_is_the_same(stream in some_stream()) {
        let (_, first) = peek_bytewise(&stream);
        for length in 0..=stream.len() {
            let peek = peek_model(&stream[..length]);
            prop_assert!(peek == Peek::NeedMore || peek == first, "{peek:?} and then {first:?}");
        }
        prop_assert_eq!(peek_model(&stream), first);
    }

    #[test]
    fn bytes_behind_the_message_change_nothing(stream in some_stream(), tail: Vec<u8>) {
        let longer = [&stream[..], &tail].concat();
        let peek = peek_model(&stream);
        prop_assert!(peek == Peek::NeedMore || peek == peek_model(&longer));
    }

    #[test]
    fn no_bytes_make_it_panic_and_a_whole_body_is_never_waited_for(stream: Vec<u8>) {
        drop(format!("{:?}", peek_model(&stream)));
        prop_assert_ne!(read_model(&stream), Peek::NeedMore);
    }

    #[test]
    fn a_name_that_was_rewritten_is_the_one_that_is_read(stream in some_stream(), name in ".{1,30}") {
        let Peek::Found(before) = read_model(&stream) else { return Ok(()) };
        let body = Bytes::from(stream.clone());
        let rewritten = rewrite_model(&body, &name, None);
        let rewritten: Vec<u8> = rewritten.iter().flatten().copied().collect();
        prop_assert_eq!(read_model(&rewritten), found(&name, before.version));
    }
}

#[test]
fn parameters_that_steer_an_engine_are_found_wherever_they_stand() {
    let entry = |key: &[u8]| {
        let mut entry = Vec::new();
        put_bytes(&mut entry, 2, b"\x10\x01");
        put_bytes(&mut entry, 1, key);
        entry
    };
    let mut message = Vec::new();
    put_bytes(&mut message, 5, &[7; 300]);
    put_bytes(&mut message, 4, &entry(b"temperature"));
    put_bytes(&mut message, 1, b"m");
    let check = |message: &[u8], allowed| check_parameters(&framed(message).into(), allowed);
    assert_eq!(check(&message, EngineFields::NONE), Ok(()));
    put_bytes(&mut message, 4, &entry(b"Priority"));
    let refused = Err(MessageError::Parameter("priority"));
    assert_eq!(check(&message, EngineFields::NONE), refused);
    assert_eq!(check(&message, EngineFields::named("lora_path").unwrap()), refused);
    assert_eq!(check(&message, EngineFields::named("priority").unwrap()), Ok(()));
}

#[test]
fn a_parameter_behind_what_this_reader_does_not_read_is_refused() {
    // An empty group, which servers skip, and then the key.
    let mut entry = vec![0x1B, 0x1C];
    put_bytes(&mut entry, 1, b"priority");
    let mut message = Vec::new();
    put_bytes(&mut message, 1, b"m");
    put_bytes(&mut message, 4, &entry);
    let body = Bytes::from(framed(&message));
    assert!(matches!(read_model(&body), Peek::Found(_)));
    assert_eq!(check_parameters(&body, EngineFields::NONE), Err(MessageError::Malformed));
}
