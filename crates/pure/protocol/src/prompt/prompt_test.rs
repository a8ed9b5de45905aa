use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::read_facts;

/// Returns the prompt of a body as one text, with blobs in angle brackets.
fn prompt(body: &str) -> String {
    let facts = read_facts(body.as_bytes()).unwrap_or_else(|error| panic!("{body}: {error}"));
    let mut whole = Vec::new();
    read_prompt(&facts, body.as_bytes(), |piece| match piece {
        PromptPiece::Text(text) => whole.extend_from_slice(text),
        PromptPiece::Blob(url) => whole.extend_from_slice(format!("<{}>", url.len()).as_bytes()),
    });
    String::from_utf8(whole).expect("text")
}

#[track_caller]
fn check(body: &str, expected: &str) {
    assert_eq!(prompt(body), expected, "{body}");
}

#[test]
fn a_conversation_reads_as_its_messages_without_an_end() {
    check(
        r#"{"model":"m","messages":[{"role":"user","content":"a b"}]}"#,
        r#"{"role":"user","content":"a b"},"#,
    );
}

#[test]
fn the_next_turn_goes_on_where_the_last_one_ended() {
    let mut messages = vec![json!({"role": "system", "content": "Be brief."})];
    let mut before = String::new();
    for turn in 0..5 {
        messages.push(json!({"role": "user", "content": format!("question {turn}")}));
        let now = prompt(&json!({ "messages": messages }).to_string());
        assert!(now.starts_with(&before), "{now} does not go on from {before}");
        assert!(now.len() > before.len());
        before = now;
        messages.push(json!({"role": "assistant", "content": format!("answer {turn}")}));
    }
}

#[test]
fn space_and_the_order_of_role_and_content_make_no_difference() {
    let plain = r#"{"messages":[{"role":"user","content":"a  \"b\"","name":"x"}]}"#;
    let spaced = "{\n \"messages\" : [ {\t\"role\" : \"user\" , \"content\" :\r\n \
        \"a  \\\"b\\\"\", \"name\": \"x\" } ] }";
    let turned = r#"{"messages":[{"name":"x","content":"a  \"b\"","role":"user"}],"seed":1}"#;
    assert_eq!(prompt(plain), prompt(spaced));
    assert_eq!(prompt(plain), prompt(turned));
    let other = r#"{"messages":[{"role":"user","content":"a \"b\"","name":"x"}]}"#;
    assert_ne!(prompt(plain), prompt(other), "space in a string is text");
}

#[test]
fn of_members_that_come_twice_the_last_counts() {
    check(
        r#"{"messages":[{"role":"a","content":"b","role":"user","content":"hi"}]}"#,
        r#"{"role":"user","content":"hi"},"#,
    );
}

#[test]
fn what_stands_before_the_messages_comes_first() {
    check(
        r#"{"messages":[{"role":"user","content":"hi"}],"tools":[ {"a": 1}, {"b":[ 2 ]} ],
            "chat_template_kwargs":{"thinking": true},"reasoning_effort":"low"}"#,
        "chat_template_kwargs{\"thinking\":true};reasoning_effort\"low\";tools[{\"a\":1},{\"b\":[2]}];\
         {\"role\":\"user\",\"content\":\"hi\"},",
    );
    check(
        r#"{"messages":[{"role":"user","content":"hi"}],"tools":[]}"#,
        r#"{"role":"user","content":"hi"},"#,
    );
}

#[test]
fn instructions_and_a_text_read_as_the_messages_that_engines_make_of_them() {
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]);
    let chat = prompt(&json!({ "messages": messages }).to_string());
    assert_eq!(prompt(r#"{"instructions":"Be brief.","input":"hi"}"#), chat);
    assert_eq!(
        prompt(r#"{"instructions":"Be brief.","input":[{"role":"user","content":"hi"}]}"#),
        chat
    );
}

#[test]
fn a_text_and_tokens_are_left_open() {
    check(r#"{"prompt":"once upon"}"#, "\"once upon");
    check(r#"{"prompt":["once upon","a time"]}"#, "\"once upon");
    check(r#"{"prompt":[1, 20,300]}"#, "[1,20,300,");
    check(r#"{"prompt":[[1,2],[3]]}"#, "[1,2,");
    check(r#"{"input":["a","b"]}"#, r#"{"role":"user","content":"a"},"#);
    check(r#"{"query":"q","documents":["d"]}"#, "\"q");
    for nothing in [r#"{"model":"m"}"#, r#"{"prompt":[]}"#, r#"{"messages":[]}"#] {
        check(nothing, "");
    }
}

#[test]
fn what_continues_a_stored_response_shows_too_little() {
    check(r#"{"input":"hi","previous_response_id":"resp_1"}"#, "");
}

#[test]
fn a_long_data_url_is_a_blob_and_a_short_one_text() {
    let url = |bytes: usize| format!("data:image/png;base64,{}", "A".repeat(bytes));
    let body = |url: &str| {
        let part = json!({"type": "image_url", "image_url": {"url": url}});
        let text = json!({"type": "text", "text": "what is it?"});
        json!({"messages": [{"role": "user", "content": [part, text]}]}).to_string()
    };
    let long = url(5_000);
    let expected = format!("{{\"url\":<{}>}}", long.len() + 2);
    assert!(prompt(&body(&long)).contains(&expected), "{}", prompt(&body(&long)));
    assert!(prompt(&body(&url(10))).contains(&url(10)));
    let talk = format!("data: {}", "x".repeat(5_000));
    assert!(!prompt(&body("u")).contains('<'));
    check(&json!({"prompt": talk}).to_string(), json!(talk).to_string().trim_end_matches('"'));
}

#[test]
fn content_that_is_not_in_the_body_is_noticed_wherever_it_stands() {
    let has_media = |body: Value| {
        let body = body.to_string();
        let facts = read_facts(body.as_bytes()).unwrap();
        read_prompt(&facts, body.as_bytes(), |_| {}).has_media
    };
    let of = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let url = json!({"url": "https://example.org/a.png"});
    for part in [
        json!({"type": "image_url", "image_url": url}),
        json!({"type": "video_url", "video_url": url}),
        json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
        json!({"type": "image", "source": {"type": "base64", "data": "AAAA"}}),
        json!({"type": "image_url", "image_url": null, "uuid": "kept"}),
    ] {
        assert!(has_media(of(json!([{"type": "text", "text": "this"}, part]))), "{part}");
    }
    assert!(has_media(json!({"input": [{"type": "input_file", "file_id": "file-1"}]})));
    assert!(has_media(json!({"input": [{"type": "item_reference", "id": "msg_1"}]})));
    assert!(!has_media(of(json!("an image_url of https://example.org/a.png"))));
    assert!(!has_media(of(json!([{"type": "text", "text": "an image"}]))));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z\"\\\\ \n{}\\[\\],:]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,8}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_message() -> impl Strategy<Value = Value> {
    (any_json(), any_json(), any_json())
        .prop_map(|(role, content, other)| json!({"role": role, "content": content, "x": other}))
}

proptest! {
    #[test]
    fn pretty_and_plain_json_read_the_same(
        messages in prop::collection::vec(any_message(), 0..6),
        tools in prop::collection::vec(any_json(), 0..3),
    ) {
        let body = json!({"messages": messages, "tools": tools});
        let pretty = serde_json::to_string_pretty(&body).unwrap();
        prop_assert_eq!(prompt(&body.to_string()), prompt(&pretty));
    }

    #[test]
    fn a_conversation_s_beginning_reads_as_the_beginning_of_the_whole(
        messages in prop::collection::vec(any_message(), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = prompt(&json!({ "messages": messages }).to_string());
        let part = &messages[..cut.index(messages.len())];
        let part = prompt(&json!({ "messages": part }).to_string());
        prop_assert!(whole.starts_with(&part));
    }

    #[test]
    fn different_conversations_read_differently(
        left in prop::collection::vec(any_message(), 0..4),
        right in prop::collection::vec(any_message(), 0..4),
    ) {
        let read = |messages: &[Value]| prompt(&json!({ "messages": messages }).to_string());
        prop_assert_eq!(left == right, read(&left) == read(&right));
    }

    #[test]
    fn the_text_is_the_json_without_space(content in any_json()) {
        let body = serde_json::to_string_pretty(&json!({"messages": [content]})).unwrap();
        // Messages, texts and lists are written in an order of their own.
        if !matches!(content, Value::Object(_) | Value::String(_) | Value::Array(_)) {
            prop_assert_eq!(prompt(&body), format!("[{content},"));
        }
    }

    #[test]
    fn no_bytes_make_the_walk_panic_or_go_on_for_ever(
        json in prop::collection::vec(prop::sample::select(b"{}[]\",:\\ a1\n\xff".to_vec()), 0..200),
    ) {
        let mut pieces = 0;
        let whole = 0..json.len();
        let mut writer = Writer::new(&json, &[], |_| pieces += 1);
        conversation(&mut writer, whole.clone());
        plain(&mut writer, whole.clone());
        writer.compact(whole);
        writer.finish();
        prop_assert!(pieces <= json.len() + 1);
    }
}
