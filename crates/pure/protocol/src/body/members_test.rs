use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

static NAMES: NameTable<4> = NameTable::new(["model", "messages", "stream", "tools"]);

/// Pieces of the text in a string.
const TEXT: [&str; 9] =
    ["so it is ", r"\n", r#"\""#, r"\\", r"\/\b\f\r\t", r"\u00e9\uD83D", "é", "{[:,]}", "'\u{7f}"];
/// Pieces that break JSON in most places.
const ODD: [&str; 14] =
    ["\"", "\\", "\\\\", "\\u12", "\\x", "{", "}", "[", ",", ":", "\u{1}", "\u{1f}", "\n", "null"];

/// Returns a string with so many pieces of text.
fn string(pieces: Range<usize>) -> impl Strategy<Value = String> {
    proptest::collection::vec(select(&TEXT[..]), pieces)
        .prop_map(|all| format!("\"{}\"", all.concat()))
}

fn member(name_pieces: usize) -> impl Strategy<Value = String> {
    let name = prop_oneof![
        4 => select(&["model", "messages", "stream", "tools", "Model", "x", r"\u006dodel"][..])
            .prop_map(|name| format!("\"{name}\"")),
        1 => string(0..name_pieces),
    ];
    let value = prop_oneof![
        string(0..4),
        string(60..400),
        string(60..400)
            .prop_map(|text| format!("[{{\"content\": {text}, \"n\": 1}}, {text}, {text}]")),
        select(&["null", "true", "-1.5e3", "[]", "{ }"][..]).prop_map(str::to_owned),
    ];
    (name, value).prop_map(|(name, value)| format!("{name}: {value}"))
}

/// Returns an object that is long enough to be abridged, with a long text to be left out of it. Names
/// of its members have fewer than so many pieces.
fn object(name_pieces: usize) -> impl Strategy<Value = String> {
    let long = "all of it is new\\n".repeat(300);
    proptest::collection::vec(member(name_pieces), 0..8)
        .prop_map(move |members| format!("{{\"long\":\"{long}\",{}\"end\":0}}", join(&members)))
}

fn join(members: &[String]) -> String {
    members.iter().map(|member| format!("{member} ,")).collect()
}

/// Returns all that the members say, with the places of their values in memory.
fn said(members: &Members<'_, 4>) -> String {
    let place = |value: &str| (value.as_ptr().addr(), value.len());
    let values: Vec<_> = (0..4).map(|at| members.value(at).map(place)).collect();
    let conflict = members.conflict.as_ref().map(|it| (place(it.value), &it.kind));
    format!("{values:?} {} {conflict:?}", members.is_empty)
}

proptest! {
    #[test]
    fn an_object_says_the_same_without_the_text_of_its_long_strings(object in object(20)) {
        let whole = whole_members(&object, &NAMES).ok();
        let abridged = abridged_members(&object, &NAMES);
        prop_assert_eq!(abridged.as_ref().map(said), whole.as_ref().map(said));
        let long_texts = abridged.map(|abridged| abridged.long_texts).unwrap_or_default();
        prop_assert!(!long_texts.is_empty() || whole.is_none());
        for text in long_texts {
            let around = [text.start - 1, text.end].map(|at| object.as_bytes()[at]);
            prop_assert_eq!((around, text.len() >= 256), ([b'"'; 2], true));
        }
    }

    #[test]
    fn an_odd_object_says_the_same_or_is_read_as_a_whole(
        object in object(200),
        odd in proptest::collection::vec((any::<Index>(), select(&ODD[..]), 0..3_usize), 0..3),
    ) {
        let mut object = object;
        for (at, piece, replaced) in odd {
            let start = object.floor_char_boundary(at.index(object.len()));
            let end = object.ceil_char_boundary((start + replaced).min(object.len()));
            object.replace_range(start..end, piece);
        }
        if let Some(abridged) = abridged_members(&object, &NAMES) {
            let whole = whole_members(&object, &NAMES).ok();
            prop_assert_eq!(whole.as_ref().map(said), Some(said(&abridged)));
        }
    }
}
