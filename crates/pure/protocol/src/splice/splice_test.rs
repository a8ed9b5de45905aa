use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::body::body_test::{any_members, render};
use crate::read_facts;

/// Returns the rewritten body in one piece.
fn rewritten(body: &Bytes, new_model: Option<&str>, inject_usage: bool) -> Vec<u8> {
    let facts = read_facts(body).unwrap();
    let segments = rewrite(body, &facts, new_model, inject_usage);
    let whole: Vec<u8> = segments.iter().flatten().copied().collect();
    assert_eq!(segments.len(), whole.len());
    assert_eq!(segments.is_empty(), whole.is_empty());
    assert!(segments.iter().all(|slice| !slice.is_empty()));
    whole
}

#[track_caller]
fn check(body: &'static str, new_model: Option<&str>, inject_usage: bool, expected: &str) {
    let whole = rewritten(&Bytes::from_static(body.as_bytes()), new_model, inject_usage);
    assert_eq!(String::from_utf8(whole).unwrap(), expected);
}

#[test]
fn without_an_edit_the_body_is_the_one_slice_it_was() {
    let body = Bytes::from_static(br#"{"model":"a","stream":false}"#);
    let segments = rewrite(&body, &read_facts(&body).unwrap(), None, true);
    let slices: Vec<Bytes> = segments.into_iter().collect();
    assert_eq!(slices.len(), 1);
    assert_eq!(slices[0].as_ptr(), body.as_ptr());
}

#[test]
fn the_models_bytes_are_replaced_and_no_others() {
    check(r#"{ "model" : "a" , "x": "a"}"#, Some("b"), false, r#"{ "model" : "b" , "x": "a"}"#);
    check(r#"{"mod\u0065l":"\u0061"}"#, Some("b"), false, r#"{"mod\u0065l":"b"}"#);
    check(r#"{"model":"a"}"#, Some("q\"\\\n"), false, r#"{"model":"q\"\\\n"}"#);
    check(r#"{"model":null}"#, Some("b"), false, r#"{"model":"b"}"#);
}

#[test]
fn a_missing_model_is_put_in_first() {
    check(r#" {"x":1}"#, Some("b"), false, r#" {"model":"b","x":1}"#);
    check(" { } ", Some("b"), false, r#" {"model":"b" } "#);
}

#[test]
fn usage_is_asked_for_wherever_the_option_belongs() {
    check(
        r#"{"stream":true}"#,
        None,
        true,
        r#"{"stream_options":{"include_usage":true},"stream":true}"#,
    );
    check(
        r#"{"stream":true,"stream_options":{}}"#,
        None,
        true,
        r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
    );
    check(
        r#"{"stream":true,"stream_options":{ "x":1}}"#,
        None,
        true,
        r#"{"stream":true,"stream_options":{"include_usage":true, "x":1}}"#,
    );
    check(
        r#"{"stream":true,"stream_options":{"include_usage":false,"x":1}}"#,
        None,
        true,
        r#"{"stream":true,"stream_options":{"include_usage":true,"x":1}}"#,
    );
    check(
        r#"{"stream":true,"stream_options":{"include_usage":null}}"#,
        None,
        true,
        r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
    );
    check(
        r#"{"stream":true,"stream_options":null}"#,
        None,
        true,
        r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
    );
}

#[test]
fn usage_is_not_asked_for_twice_nor_without_a_stream() {
    let asked = r#"{"stream":true,"stream_options":{"include_usage":true}}"#;
    check(asked, None, true, asked);
    check(r#"{"stream":false}"#, None, true, r#"{"stream":false}"#);
    check(r#"{"model":"a"}"#, None, true, r#"{"model":"a"}"#);
    // Engines refuse these options, so that they are not made right.
    let wrong = r#"{"stream":true,"stream_options":false}"#;
    check(wrong, None, true, wrong);
}

#[test]
fn both_edits_fit_in_either_order() {
    check(
        r#"{"model":"a","stream":true,"stream_options":{"x":1}}"#,
        Some("b"),
        true,
        r#"{"model":"b","stream":true,"stream_options":{"include_usage":true,"x":1}}"#,
    );
    check(
        r#"{"stream_options":null,"stream":true,"model":"a"}"#,
        Some("b"),
        true,
        r#"{"stream_options":{"include_usage":true},"stream":true,"model":"b"}"#,
    );
    check(
        r#"{"stream":true}"#,
        Some("b"),
        true,
        r#"{"model":"b","stream_options":{"include_usage":true},"stream":true}"#,
    );
}

#[test]
fn two_edits_need_no_heap_for_the_list() {
    let body = Bytes::from_static(br#"{"model":"a","stream":true,"stream_options":{"x":1}}"#);
    let segments = rewrite(&body, &read_facts(&body).unwrap(), Some("b"), true);
    assert_eq!(segments.iter().count(), 5);
    assert!(!segments.0.spilled());
}

#[test]
fn the_part_of_a_wish_that_the_client_does_not_ask_for_is_known() {
    use UsageWish::{AsSent, AtEnd, Throughout};
    for (body, wish, expected) in [
        (r#"{"stream":true}"#, AsSent, AsSent),
        (r#"{"stream":true}"#, AtEnd, AtEnd),
        (r#"{"stream":true}"#, Throughout, Throughout),
        (r#"{"stream":false}"#, Throughout, AsSent),
        (r#"{"stream":true,"stream_options":{"include_usage":false}}"#, AtEnd, AtEnd),
        (r#"{"stream":true,"stream_options":{"include_usage":true}}"#, AtEnd, AsSent),
        (r#"{"stream":true,"stream_options":{"include_usage":true}}"#, Throughout, Throughout),
        (r#"{"stream":true,"stream_options":{"continuous_usage_stats":true}}"#, Throughout, AtEnd),
    ] {
        let bytes = Bytes::from_static(body.as_bytes());
        let draft = BodyDraft::new(&bytes, &read_facts(&bytes).unwrap(), None, None);
        assert_eq!(draft.beyond_client(wish), expected, "{body} {wish:?}");
    }
}

#[test]
fn a_string_is_quoted_as_json() {
    assert_eq!(&json_string("a\"\u{1}é")[..], "\"a\\\"\\u0001é\"".as_bytes());
}

/// Returns the tree that the edits should lead to.
fn edited(mut tree: Value, new_model: Option<&str>, inject_usage: bool) -> Value {
    if let Some(model) = new_model {
        tree["model"] = model.into();
    }
    if inject_usage && tree.get("stream") == Some(&Value::Bool(true)) {
        if tree.get("stream_options").is_none_or(Value::is_null) {
            tree["stream_options"] = json!({});
        }
        tree["stream_options"]["include_usage"] = true.into();
    }
    tree
}

proptest! {
    #[test]
    fn only_the_intended_change_is_made(
        mut members in any_members(),
        streams in any::<bool>(),
        space in prop::sample::select(vec!["", " ", "\r\n\t"]),
        escape_keys in any::<bool>(),
        new_model in prop::option::of(any::<String>()),
        inject_usage in any::<bool>(),
    ) {
        if streams {
            members.retain(|(name, _)| name != "stream");
            members.push(("stream".to_owned(), true.into()));
        }
        let body = Bytes::from(render(&members, space, escape_keys));
        let tree: Value = serde_json::from_slice(&body).unwrap();
        let whole = rewritten(&body, new_model.as_deref(), inject_usage);

        let expected = edited(tree, new_model.as_deref(), inject_usage);
        prop_assert_eq!(serde_json::from_slice::<Value>(&whole).unwrap(), expected);
        // A second `model` or `include_usage` would not show in the tree, but is refused by
        // `read_facts`.
        let after = read_facts(&whole).unwrap();
        if let Some(model) = new_model {
            prop_assert_eq!(after.model.unwrap().value, model);
        }
        if inject_usage && after.stream {
            prop_assert_eq!(after.include_usage, Some(true));
        }
    }

    #[test]
    fn a_salt_takes_the_place_of_the_clients_own_whatever_else_is_changed(
        members in any_members(),
        space in prop::sample::select(vec!["", " ", "\r\n\t"]),
        escape_keys in any::<bool>(),
        model in prop::option::of("[a-z\"]{0,8}"),
        usage in prop::sample::select(vec![
            UsageWish::AsSent, UsageWish::AtEnd, UsageWish::Throughout
        ]),
        field in prop::sample::select(vec![SaltField::CacheSalt, SaltField::ExtraKey]),
    ) {
        let body = Bytes::from(render(&members, space, escape_keys));
        let facts = read_facts(&body).unwrap();
        let plain = Changes { model: model.as_deref(), usage, salt: None };
        let whole = |changes: &Changes<'_>| {
            let pieces: Vec<u8> = change(&body, &facts, changes).iter().flatten().copied().collect();
            serde_json::from_slice::<Value>(&pieces).map(|tree| (tree, pieces)).unwrap()
        };
        let (mut expected, _) = whole(&plain);
        expected[field.name()] = "5a17".into();
        let (tree, pieces) = whole(&Changes { salt: Some((field, "5a17")), ..plain });
        prop_assert_eq!(tree, expected);
        prop_assert!(read_facts(&pieces).is_ok(), "no field is there twice");
    }

    #[test]
    fn a_draft_makes_the_bodies_that_its_facts_would_have_made(
        mut members in any_members(),
        streams in any::<bool>(),
        options in prop::option::of(prop::sample::select(vec![
            json!(null),
            json!({}),
            json!({"include_usage": true}),
            json!({"include_usage": false}),
            json!({"continuous_usage_stats": true}),
            json!({"include_usage": true, "continuous_usage_stats": true}),
        ])),
        model in prop::option::of("[a-z\"]{0,8}"),
        usage in prop::sample::select(vec![
            UsageWish::AsSent, UsageWish::AtEnd, UsageWish::Throughout
        ]),
        field in prop::option::of(prop::sample::select(vec![
            SaltField::CacheSalt, SaltField::ExtraKey
        ])),
    ) {
        members.retain(|(name, _)| name != "stream" && name != "stream_options");
        members.push(("stream".to_owned(), streams.into()));
        members.extend(options.map(|options| ("stream_options".to_owned(), options)));
        let body = Bytes::from(render(&members, " ", false));
        let facts = read_facts(&body).unwrap();
        let salt = field.map(|field| (field, "5a17"));
        let model = model.as_deref();
        let whole = |body: &Segments| body.iter().flatten().copied().collect::<Vec<u8>>();
        let parsed = |body: &Segments| serde_json::from_slice::<Value>(&whole(body)).unwrap();
        let expected = change(&body, &facts, &Changes { model, usage, salt });
        let named = change(&body, &facts, &Changes { model, ..Changes::default() });
        let draft = BodyDraft::new(&body, &facts, model, Some("5a17".to_owned()));
        let drafted = draft.apply(&named, usage, field);
        prop_assert_eq!(parsed(&drafted), parsed(&expected));
        prop_assert_eq!(drafted.len(), expected.len());
        prop_assert!(read_facts(&whole(&drafted)).is_ok(), "no field is there twice");
        let is_changed = whole(&draft.apply(&named, usage, None)) != whole(&named);
        prop_assert_eq!(is_changed, draft.beyond_client(usage) != UsageWish::AsSent);
        // The same of the body as it is now.
        let again = draft.with_body(&named).unwrap();
        prop_assert_eq!(whole(&again.apply(&named, usage, field)), whole(&drafted));
    }

    #[test]
    fn the_prompt_is_never_copied(members in any_members(), model in any::<String>()) {
        let body = Bytes::from(render(&members, " ", false));
        let facts = read_facts(&body).unwrap();
        let Some(prompt) = facts.prompt.clone() else { return Ok(()) };
        let start = body[prompt.clone()].as_ptr();
        let segments = replace_model(&body, &facts, &model);
        let holds_it = |slice: &Bytes| {
            slice.as_ptr_range().contains(&start) && slice.len() >= prompt.len()
        };
        prop_assert!(segments.iter().any(holds_it));
    }
}
