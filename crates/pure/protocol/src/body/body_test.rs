use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::{ErrorKind, GatewayError};

/// Returns the facts of a body that must be readable.
fn facts(body: &str) -> Facts<'_> {
    read_facts(body.as_bytes()).unwrap_or_else(|error| panic!("{body}: {error}"))
}

/// Returns the kind and offset of the error of a body that must be refused.
fn refused(body: impl AsRef<[u8]>) -> (BodyErrorKind, usize) {
    let error = read_facts(body.as_ref()).expect_err("must be refused");
    (error.kind().clone(), error.offset())
}

#[test]
fn a_response_is_stored_unless_the_body_says_no_or_chooses_its_id() {
    let is_stored = |body: &str| read_facts(body.as_bytes()).unwrap().is_stored;
    for body in [r#"{}"#, r#"{"store":true}"#, r#"{"store":null}"#, r#"{"request_id":null}"#] {
        assert!(is_stored(body), "{body}");
    }
    for body in [r#"{"store":false}"#, r#"{"request_id":"resp_1"}"#] {
        assert!(!is_stored(body), "{body}");
    }
}

#[test]
fn a_chat_request_tells_all_its_facts() {
    let body = r#" {"model": "tiny", "stream": true, "stream_options": {"include_usage": false},
        "tools": [{"type": "function"}], "user": "u-1", "max_tokens": 7, "n": 2,
        "messages": [{"role": "user", "content": "a \"b\" \n"}], "seed": 1}"#;
    let facts = facts(body);
    let model = facts.model.as_ref().unwrap();
    assert_eq!(model.value, "tiny");
    assert_eq!(&body[model.span.clone()], r#""tiny""#);
    assert!(facts.stream);
    assert_eq!(facts.include_usage, Some(false));
    assert_eq!(&body[facts.stream_options.unwrap()], r#"{"include_usage": false}"#);
    assert_eq!(&body[facts.include_usage_value.unwrap()], "false");
    assert_eq!(&body[facts.prompt.unwrap()], r#"[{"role": "user", "content": "a \"b\" \n"}]"#);
    assert_eq!(&body[facts.tools.unwrap()], r#"[{"type": "function"}]"#);
    assert_eq!(facts.user.as_deref(), Some("u-1"));
    assert_eq!(facts.max_tokens, Some(7));
    assert_eq!(facts.answers, 2);
    assert_eq!(&body[..facts.insert_at], " {");
    assert!(!facts.is_empty_object);
}

#[test]
fn a_responses_request_tells_what_it_continues() {
    let body = r#"{"model":"m","instructions":"Be brief.","input":"hi","max_output_tokens":5,
        "previous_response_id":"resp_1"}"#;
    let facts = facts(body);
    assert_eq!(facts.previous_response_id.as_deref(), Some("resp_1"));
    assert!(facts.is_stored);
    assert_eq!(&body[facts.prompt.unwrap()], r#""hi""#);
    assert_eq!(&body[facts.instructions.unwrap()], r#""Be brief.""#);
    assert_eq!(facts.max_tokens, Some(5));
    assert!(!facts.stream);
}

#[test]
fn the_prompt_is_the_first_of_its_names_that_is_not_null() {
    let check = |body: &str, expected: Option<&str>| {
        assert_eq!(facts(body).prompt.map(|span| &body[span]), expected, "{body}");
    };
    check(r#"{"query":"q","documents":["d"]}"#, Some(r#""q""#));
    check(r#"{"query":"q","input":"i"}"#, Some(r#""i""#));
    check(r#"{"input":"i","prompt":"p"}"#, Some(r#""p""#));
    check(r#"{"prompt":[1,2],"messages":null}"#, Some("[1,2]"));
    check(r#"{"prompt":"p","messages":[]}"#, Some("[]"));
    check(r#"{"documents":[]}"#, None);
}

#[test]
fn null_is_the_same_as_absent() {
    let body = r#"{"model":null,"stream":null,"stream_options":null,"messages":null,"user":null,
        "max_tokens":null,"n":null,"previous_response_id":null,"tools":null}"#;
    let facts = facts(body);
    assert_eq!(facts.model, None);
    assert!(!facts.stream);
    assert_eq!(facts.include_usage, None);
    assert_eq!(facts.prompt, None);
    assert_eq!(facts.tools, None);
    assert_eq!((facts.user, facts.previous_response_id), (None, None));
    assert_eq!((facts.max_tokens, facts.answers), (None, 1));
}

#[test]
fn an_empty_object_is_readable_and_says_so() {
    let facts = facts(" \r\n\t{ } ");
    assert!(facts.is_empty_object);
    assert_eq!(facts.insert_at, 5);
}

#[test]
fn keys_and_values_spelt_with_escapes_mean_what_they_decode_to() {
    let body = r#"{"mod\u0065l":"ti\u006ey","str\u0065am":true,"us\u0065r":"\ud83d\ude00"}"#;
    let facts = facts(body);
    let model = facts.model.unwrap();
    assert_eq!(model.value, "tiny");
    assert_eq!(&body[model.span], r#""ti\u006ey""#);
    assert!(facts.stream);
    assert_eq!(facts.user.as_deref(), Some("😀"));
}

#[test]
fn a_plain_string_is_borrowed_and_only_an_escaped_one_copied() {
    let facts = facts(r#"{"model":"tiny","user":"a\tb"}"#);
    assert!(matches!(facts.model.unwrap().value, Cow::Borrowed("tiny")));
    assert!(matches!(facts.user.unwrap(), Cow::Owned(_)));
}

#[test]
fn fields_of_the_same_name_deeper_down_mean_nothing() {
    let body = r#"{"metadata":{"model":"other","stream":true},"messages":[{"model":"x"}]}"#;
    let facts = facts(body);
    assert_eq!(facts.model, None);
    assert!(!facts.stream);
}

#[test]
fn the_largest_of_all_token_limits_counts() {
    let most = |body: &str| facts(body).max_tokens;
    assert_eq!(most(r#"{"max_tokens":900,"max_output_tokens":1}"#), Some(900));
    assert_eq!(most(r#"{"max_tokens":1,"max_completion_tokens":2,"n_predict":7}"#), Some(7));
    assert_eq!(most(r#"{"max_tokens":1,"max_completion_tokens":null}"#), Some(1));
    assert_eq!(most(r#"{"max_tokens":0}"#), None);
    assert_eq!(facts(r#"{"n":2,"best_of":5}"#).answers, 5);
    assert_eq!(facts(r#"{"n":0}"#).answers, 1);
    let facts = facts(r#"{"max_tokens":-1,"max_completion_tokens":5}"#);
    assert_eq!((facts.max_tokens, facts.is_unbounded), (Some(5), true));
}

#[test]
fn numbers_that_some_engines_convert_count_as_converted() {
    for field in ["max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"] {
        for value in [r#""4096""#, "4096.0", "4.096e3"] {
            let body = format!(r#"{{"x":1,"{field}":{value}}}"#);
            let facts = facts(&body);
            assert_eq!((facts.max_tokens, facts.is_converted), (Some(4096), true), "{body}");
            assert!(!facts.is_unbounded, "{body}");
        }
        let body = format!(r#"{{"{field}":1000000000000}}"#);
        assert_eq!((facts(&body).max_tokens, facts(&body).is_converted), (Some(u32::MAX), false));
    }
    for value in ["2", "2.0", r#""2""#] {
        let body = format!(r#"{{"max_tokens":5,"n":{value}}}"#);
        let facts = facts(&body);
        assert_eq!((facts.answers, facts.is_converted, facts.is_unbounded), (2, false, false));
    }
    assert_eq!(facts(r#"{"max_tokens":false,"n":false}"#).max_tokens, None);
}

#[test]
fn what_is_no_number_bounds_no_answer() {
    for field in ["max_tokens", "max_completion_tokens", "n", "best_of"] {
        for value in [r#""many""#, "[5]", "{}", "NaN", "-1", "-1.5", r#""-1""#] {
            let body = format!(r#"{{"x":1,"{field}":{value}}}"#);
            assert!(facts(&body).is_unbounded, "{body}");
        }
    }
}

#[test]
fn flags_count_as_engines_convert_them() {
    for (body, stream, usage) in [
        (r#"{"stream":1,"stream_options":{"include_usage":"yes"}}"#, true, Some(true)),
        (r#"{"stream":"true","stream_options":{"include_usage":0}}"#, true, Some(false)),
        (r#"{"stream":"false","stream_options":{"include_usage":[]}}"#, false, None),
        (r#"{"stream":0,"stream_options":false}"#, false, None),
        (r#"{"stream":[],"stream_options":[{"include_usage":true}]}"#, false, None),
    ] {
        let facts = facts(body);
        assert_eq!((facts.stream, facts.include_usage), (stream, usage), "{body}");
    }
}

#[test]
fn a_number_is_no_id_of_a_stored_response_nor_a_users_name() {
    let facts = facts(r#"{"user":7,"previous_response_id":7}"#);
    assert_eq!((facts.user, facts.previous_response_id), (None, None));
    assert!(facts.has_stored_text);
}

#[test]
fn numbers_that_are_not_finite_pass_as_in_python() {
    let body =
        r#"{"a":NaN,"model":"m","logit_bias":{"1":-Infinity},"max_tokens":Infinity,"b":"NaN"}"#;
    let facts = facts(body);
    let model = facts.model.unwrap();
    assert_eq!((&*model.value, &body[model.span]), ("m", r#""m""#));
    assert_eq!(facts.max_tokens, Some(u32::MAX));
    assert_eq!(refused(r#"{"n":1,"a":NaN,"n":2}"#).0, BodyErrorKind::Duplicate { field: "n" });
}

#[test]
fn a_byte_order_mark_is_skipped() {
    let body = "\u{feff} {\"model\":\"m\",\"prompt\":\"x\"}";
    let facts = facts(body);
    assert_eq!(&body[facts.model.unwrap().span], r#""m""#);
    assert_eq!(&body[facts.prompt.unwrap()], r#""x""#);
    assert_eq!(&body[..facts.insert_at], "\u{feff} {");
    assert_eq!(refused("\u{feff}\u{feff}{}").1, 3);
}

#[test]
fn fields_that_steer_engines_are_noted_unless_null() {
    let named = |name| EngineFields::named(name).unwrap();
    let facts =
        facts(r#"{"priority":-5,"lora_path":"x","rid":null,"metadata":{"request_id":"r"}}"#);
    assert_eq!(facts.engine_fields, named("priority").with(named("lora_path")));
    assert_eq!(facts.adapter, Some(27..30));
}

#[test]
fn letters_that_fold_to_those_of_a_field_are_refused_as_its_misspelling() {
    for (key, field) in [
        ("\\u017ftream", "stream"),
        ("\u{17f}tream", "stream"),
        ("max_to\u{212a}ens", "max_tokens"),
        ("me\u{17f}\u{17f}age\u{17f}", "messages"),
        ("PRIORITY", "priority"),
    ] {
        let body = format!(r#"{{"{key}":null}}"#);
        assert_eq!(refused(&body).0, BodyErrorKind::Misspelt { field }, "{body}");
    }
}

#[test]
fn a_routing_field_given_twice_is_refused_at_its_second_value() {
    for name in FIELD_NAMES {
        let body = format!(r#"{{"{name}":null,"x":1,"{name}":null}}"#);
        let at = body.rfind("null").unwrap();
        assert_eq!(refused(&body), (BodyErrorKind::Duplicate { field: name }, at), "{body}");
    }
    let (kind, _) = refused(r#"{"model":"a","mod\u0065l":"b"}"#);
    assert_eq!(kind, BodyErrorKind::Duplicate { field: "model" });
    let (kind, _) = refused(r#"{"stream_options":{"include_usage":true,"include_usage":false}}"#);
    assert_eq!(kind, BodyErrorKind::Duplicate { field: "include_usage" });
}

#[test]
fn other_fields_may_stand_there_twice() {
    assert_eq!(facts(r#"{"x":1,"model":"m","x":2}"#).model.unwrap().value, "m");
}

#[test]
fn a_field_in_another_case_is_refused_because_some_engines_take_it() {
    let body = r#"{"model":"small","Model":"large"}"#;
    let at = body.find(r#""large""#).unwrap();
    assert_eq!(refused(body), (BodyErrorKind::Misspelt { field: "model" }, at));
    assert_eq!(refused(r#"{"STREAM":true}"#).0, BodyErrorKind::Misspelt { field: "stream" });
}

#[test]
fn names_that_are_no_text_are_refused() {
    let check = |body: &str, field: &'static str, value: &str| {
        let at = body.find(value).unwrap();
        let kind = BodyErrorKind::WrongType { field, expected: "a string" };
        assert_eq!(refused(body), (kind, at), "{body}");
        assert_eq!(read_facts(body.as_bytes()).unwrap_err().param(), Some(field));
    };
    check(r#"{"model":5}"#, "model", "5");
    check(r#"{"model":["a"]}"#, "model", "[");
    check(r#"{"previous_response_id":["resp_1"]}"#, "previous_response_id", "[");
}

#[test]
fn what_is_no_json_is_refused_where_it_goes_wrong() {
    let check = |body: &[u8], offset: usize| {
        let (kind, at) = refused(body);
        let text = String::from_utf8_lossy(body);
        assert!(matches!(kind, BodyErrorKind::NotJson(_)), "{text}: {kind:?}");
        assert_eq!(at, offset, "{text}: {kind:?}");
    };
    check(b"", 0);
    check(b"{", 0);
    check(b"nope", 1);
    check(br#"{"model":"m"} x"#, 14);
    check(br#"{"model":"m"}{"#, 13);
    check(br#"{"model":"m",}"#, 13);
    check(br#"{"temperature":nan}"#, 16);
    check(br#"{"temperature":NaN,"x":oops}"#, 15);
    check(br#"{"seed":01}"#, 9);
    check(br#"{'model':"m"}"#, 1);
    // The library stops before a control character instead of after it.
    check(b"{\"model\":\"a\nb\"}", 10);
    check(b"{\n  \"a\": 1,\n  \"b\": oops}", 19);
    check(br#"{"model":"\ud800"}"#, 16);
}

#[test]
fn a_position_is_given_as_line_and_column_too() {
    let error = read_facts(b"{\n  \"a\": 1,\n  \"b\": oops}").unwrap_err();
    assert_eq!((error.line(), error.column(), error.offset()), (3, 8, 19));
    let text = error.to_string();
    assert!(text.starts_with("The request body is not valid JSON: expected"), "{text}");
    assert!(text.ends_with("(line 3, column 8, byte 19)."), "{text}");
    assert_eq!(text.matches("column").count(), 1, "{text}");
}

#[test]
fn a_broken_body_is_called_broken_even_after_a_conflict() {
    assert!(matches!(refused(r#"{"n":1,"n":2,"#).0, BodyErrorKind::NotJson(_)));
}

#[test]
fn bytes_that_are_not_utf8_are_refused_wherever_they_stand() {
    for body in [&b"{\"x\":\"\xff\"}"[..], b"{\"\xc3\":1}", b"{} \x80", b"\xff\xfe{\0}\0"] {
        let at = body.iter().position(|byte| *byte >= 0x80).unwrap();
        assert_eq!(refused(body), (BodyErrorKind::NotUtf8, at));
    }
    let utf16: Vec<u8> = r#"{"model":"m"}"#.encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(matches!(refused(utf16).0, BodyErrorKind::NotJson(_)));
}

#[test]
fn json_that_is_no_object_is_refused_as_such() {
    for body in ["[]", "null", "\"model\"", " 5", "true"] {
        let start = body.len() - body.trim_start().len();
        assert_eq!(refused(body), (BodyErrorKind::NotAnObject, start), "{body}");
    }
}

#[test]
fn a_million_levels_cost_neither_the_stack_nor_a_tree() {
    let depth = 1_000_000;
    let open = format!(r#"{{"messages":{}"#, "[".repeat(depth));
    assert!(matches!(refused(&open).0, BodyErrorKind::NotJson(_)));
    let closed = format!("{open}{}}}", "]".repeat(depth));
    assert_eq!(facts(&closed).prompt.unwrap().len(), 2 * depth);
    assert!(matches!(refused("[".repeat(depth)).0, BodyErrorKind::NotJson(_)));
    assert!(matches!(refused(r#"{"a":"#.repeat(depth)).0, BodyErrorKind::NotJson(_)));
}

#[test]
fn the_clients_error_names_the_field_and_nothing_of_the_prompt() {
    let body = br#"{"prompt":"my secret","model":7}"#;
    let error = GatewayError::from(read_facts(body).unwrap_err());
    assert_eq!(error.kind, ErrorKind::BadRequest);
    assert_eq!(error.param, Some("model"));
    assert_eq!(error.message, "The field 'model' must be a string (line 1, column 31, byte 30).");
}

// === properties ===

/// Generates any JSON value, some levels deep.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(|number: f64| json!(number)),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((any_key(), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Generates keys, routing names too: inside another value they must have no meaning.
fn any_key() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), prop::sample::select(&FIELD_NAMES[..]).prop_map(str::to_owned)]
}

fn is_number(name: &str) -> bool {
    let fields = OUTPUT_FIELDS.into_iter().chain(ANSWER_FIELDS);
    fields.into_iter().any(|field| FACT_NAMES[field as usize] == name)
}

/// Returns true if a field that occurs by chance has a value that is not refused.
fn is_readable(name: &str, value: &Value) -> bool {
    !is_number(name)
        || value.is_null()
        || value.as_u64().is_some_and(|number| u32::try_from(number).is_ok())
}

/// Generates a value of a type that is not refused for this field.
fn value_of(name: &'static str) -> BoxedStrategy<Value> {
    let text = prop_oneof![Just(Value::Null), any::<String>().prop_map(Value::from)];
    let flag = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from)];
    match name {
        "model" | "previous_response_id" => text.boxed(),
        "stream" => flag.boxed(),
        _ if is_number(name) => {
            prop_oneof![Just(Value::Null), any::<u32>().prop_map(Value::from)].boxed()
        }
        "stream_options" => prop_oneof![
            Just(Value::Null),
            Just(json!({})),
            flag.clone().prop_map(|flag| json!({ "include_usage": flag })),
            (flag, any_value()).prop_map(|(flag, other)| json!({
                "a": other, "include_usage": flag, "z": other
            })),
            any_value().prop_map(|other| json!({ "z": other })),
        ]
        .boxed(),
        _ => any_value().boxed(),
    }
}

/// Generates members of a valid request in any order, each name once.
pub(crate) fn any_members() -> impl Strategy<Value = Vec<(String, Value)>> {
    let known = prop::sample::select(&FIELD_NAMES[..])
        .prop_flat_map(|name| value_of(name).prop_map(move |value| (name.to_owned(), value)));
    let unknown = ("[a-zA-Z_\"\\\\\u{e9}]{0,9}", any_value());
    prop::collection::vec(prop_oneof![3 => known, 1 => unknown], 0..10).prop_map(|mut members| {
        let mut seen = Vec::new();
        members.retain(|(name, value)| {
            let is_new = !seen.contains(&name.to_lowercase());
            let is_exact =
                FIELD_NAMES.iter().all(|known| known == name || !known.eq_ignore_ascii_case(name));
            seen.push(name.to_lowercase());
            is_new && is_exact && is_readable(name, value)
        });
        members
    })
}

/// Returns the members as JSON, with or without white space, and with or without needless escapes
/// in keys.
pub(crate) fn render(members: &[(String, Value)], space: &str, escape_keys: bool) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(name, value)| {
            let key = if escape_keys {
                let units = name.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
                format!("\"{}\"", units.collect::<String>())
            } else {
                Value::from(name.as_str()).to_string()
            };
            let value = if space.is_empty() {
                value.to_string()
            } else {
                serde_json::to_string_pretty(value).unwrap()
            };
            format!("{space}{key}{space}:{space}{value}{space}")
        })
        .collect();
    format!("{space}{{{space}{}}}{space}", members.join(","))
}

/// Checks that all places in the result lie within the body.
fn check_sane(body: &[u8]) {
    match read_facts(body) {
        Ok(facts) => {
            assert_eq!(body[facts.insert_at - 1], b'{');
            let spans = [facts.prompt, facts.tools, facts.model_value, facts.stream_options];
            assert!(spans.into_iter().flatten().all(|span| !body[span].is_empty()));
        }
        Err(error) => assert!(error.offset() <= body.len() && !error.to_string().is_empty()),
    }
}

fn is_given(tree: &Map<String, Value>, name: &str) -> bool {
    tree.get(name).is_some_and(|value| !value.is_null())
}

proptest! {
    #[test]
    fn facts_agree_with_a_full_parse(
        members in any_members(),
        space in prop::sample::select(vec!["", " ", "\n\t", "\r\n  "]),
        escape_keys in any::<bool>(),
    ) {
        let body = render(&members, space, escape_keys);
        let tree: Map<String, Value> = serde_json::from_str(&body).unwrap();
        let facts = facts(&body);
        let at = |span: &Range<usize>| serde_json::from_str::<Value>(&body[span.clone()]).unwrap();
        let text = |name: &str| tree.get(name).and_then(Value::as_str);

        prop_assert_eq!(facts.model.as_ref().map(|field| &*field.value), text("model"));
        if let Some(model) = &facts.model {
            prop_assert_eq!(at(&model.span), tree["model"].clone());
        }
        prop_assert_eq!(facts.stream, tree.get("stream") == Some(&Value::Bool(true)));
        let options = tree.get("stream_options");
        prop_assert_eq!(facts.stream_options.as_ref().map(at), options.cloned());
        let include = options.and_then(|options| options.get("include_usage")?.as_bool());
        prop_assert_eq!(facts.include_usage, include);
        let prompt = ["messages", "prompt", "input", "query"];
        let prompt = prompt.into_iter().find(|name| is_given(&tree, name));
        prop_assert_eq!(facts.prompt.as_ref().map(at), prompt.map(|name| tree[name].clone()));
        prop_assert_eq!(facts.tools.is_some(), is_given(&tree, "tools"));
        prop_assert_eq!(facts.instructions.is_some(), is_given(&tree, "instructions"));
        prop_assert_eq!(facts.user.as_deref(), text("user"));
        let answers = ["n", "best_of", "n_cmpl", "num_return_sequences"];
        let answers = answers.iter().filter_map(|name| tree.get(*name)?.as_u64()).max();
        prop_assert_eq!(u64::from(facts.answers), answers.unwrap_or(1).max(1));
        prop_assert_eq!(facts.previous_response_id.as_deref(), text("previous_response_id"));
        prop_assert_eq!(facts.is_empty_object, tree.is_empty());
        prop_assert_eq!(body[..facts.insert_at].trim_start(), "{");
    }

    #[test]
    fn a_damaged_body_is_read_as_a_full_parse_reads_it_or_refused(
        members in any_members(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut body = render(&members, "", false).into_bytes();
        for (index, byte) in damage {
            let at = index.index(body.len());
            body[at] = byte;
        }
        match (read_facts(&body), serde_json::from_slice::<Value>(&body)) {
            (Ok(facts), Ok(tree)) => {
                prop_assert_eq!(facts.model.map(|m| m.value.into_owned()),
                    tree.get("model").and_then(Value::as_str).map(str::to_owned));
            }
            // Values that a full parse refuses may pass where they are not read.
            (Ok(_), Err(error)) => {
                let text = error.to_string();
                let known = ["surrogate", "hex escape", "number out of range"];
                prop_assert!(known.iter().any(|reason| text.contains(reason)), "{text}");
            }
            (Err(error), _) => {
                prop_assert!(error.offset() <= body.len());
                prop_assert!(error.line() >= 1 && error.column() >= 1);
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        check_sane(&body);
    }

    #[test]
    fn no_json_like_text_makes_it_panic(body in r#"[\[\]{}",:\\ a-fu0-9\n.eE+-]{0,80}"#) {
        check_sane(body.as_bytes());
    }
}

#[test]
fn text_that_the_engine_has_stored_is_noticed() {
    let has = |body: &str| read_facts(body.as_bytes()).unwrap().has_stored_text;
    assert!(has(r#"{"input":"x","previous_response_id":"resp_1"}"#));
    assert!(has(r#"{"input":"x","conversation":"conv_1"}"#));
    assert!(has(r#"{"input":"x","conversation":{"id":"conv_1"}}"#));
    assert!(has(r#"{"input":"x","prompt":{"id":"pmpt_1"}}"#));
    assert!(!has(r#"{"input":"x","conversation":null,"previous_response_id":null}"#));
    assert!(!has(r#"{"prompt":["x"]}"#));
}
