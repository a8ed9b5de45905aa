//! Tests of the fast walk against one that is too simple to be wrong, and against hashes that nodes
//! in service use.

use proptest::prelude::*;
use spillway_prefix::{PrefixConfig, PrefixHasher, Scope};

use super::quotes::Quotes;
use super::*;
use crate::read_facts;

/// Removes spaces outside of strings, byte by byte; blobs become their length.
fn stripped(json: &str) -> String {
    let (mut whole, mut string) = (String::new(), String::new());
    let mut is_escaped = false;
    for letter in json.chars() {
        if string.is_empty() {
            match letter {
                '"' => string.push(letter),
                ' ' | '\n' | '\r' | '\t' => {}
                _ => whole.push(letter),
            }
            continue;
        }
        string.push(letter);
        if letter == '"' && !is_escaped {
            let is_blob = string.starts_with("\"data:") && string.len() >= 1024;
            whole += &if is_blob { format!("<{}>", string.len()) } else { string.clone() };
            string.clear();
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    whole
}

/// Returns the elements or members of an object or array without spaces.
fn parts(container: &str) -> Vec<&str> {
    let inner = &container[1..container.len() - 1];
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0);
    let (mut is_string, mut is_escaped) = (false, false);
    for (at, letter) in inner.char_indices() {
        match letter {
            '"' if !is_escaped => is_string = !is_string,
            '{' | '[' if !is_string => depth += 1,
            '}' | ']' if !is_string => depth -= 1,
            ',' if !is_string && depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    if start < inner.len() {
        parts.push(&inner[start..]);
    }
    parts
}

/// Returns the expected prompt of a list of messages.
fn model(messages: &str) -> String {
    let stripped = stripped(messages);
    let turned = |message: &&str| {
        let mut members = parts(message);
        members.sort_by_key(|member| match () {
            () if member.starts_with("\"role\":") => 0,
            () if member.starts_with("\"content\":") => 1,
            () => 2,
        });
        format!("{{{}}},", members.join(","))
    };
    parts(&stripped).iter().map(turned).collect()
}

/// Returns the prompt of a body, with blobs as their length.
fn read(body: &str) -> String {
    let facts = read_facts(body.as_bytes()).unwrap_or_else(|error| panic!("{body}: {error}"));
    let mut whole = Vec::new();
    read_prompt(&facts, body.as_bytes(), |piece| match piece {
        PromptPiece::Text(text) => whole.extend_from_slice(text),
        PromptPiece::Blob(url) => whole.extend_from_slice(format!("<{}>", url.len()).as_bytes()),
    });
    String::from_utf8(whole).expect("text")
}

fn any_space() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "", "", "", " ", " ", "\n    ", "\r\n\t  "])
}

/// Generates short and long strings, with quotes and backslashes everywhere, and files.
fn any_string() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec!["a", "\\\\", "\\\"", "{", "]", ", ", "\\n", "ü"]);
    let dense = prop::collection::vec(piece, 0..90).prop_map(|pieces| pieces.concat());
    let long = (0..1_500_usize).prop_map(|length| "x".repeat(length));
    let file = (1_000..1_200_usize).prop_map(|length| format!("data:{}", "A".repeat(length)));
    let around = (dense.clone(), long, dense.clone());
    let around = around.prop_map(|(before, long, after)| format!("{before}{long}{after}"));
    prop_oneof![4 => dense, 2 => around, 1 => file].prop_map(|text| format!("\"{text}\""))
}

fn any_value() -> impl Strategy<Value = String> {
    let number = any::<i32>().prop_map(|number| number.to_string());
    let leaf = prop_oneof![3 => any_string(), 1 => Just("null".to_owned()), 1 => number];
    leaf.prop_recursive(3, 30, 6, |inner| {
        let array = (prop::collection::vec(inner.clone(), 0..6), any_space());
        let member = (any_string(), inner, any_space());
        let member = member.prop_map(|(key, value, space)| format!("{key}{space}:{space}{value}"));
        let object = (prop::collection::vec(member, 0..6), any_space());
        let join = |values: Vec<String>, space| values.join(&format!("{space},{space}"));
        prop_oneof![
            array.prop_map(move |(values, space)| format!("[{space}{}]", join(values, space))),
            object.prop_map(move |(values, space)| format!("{{{}{space}}}", join(values, space))),
        ]
    })
}

/// Generates a message with its members in any order, none of them twice.
fn any_message() -> impl Strategy<Value = String> {
    let names = ["role", "content", "name", "tool_calls", "role2"];
    let names = prop::sample::subsequence(names.to_vec(), 0..=5);
    let names = prop_oneof![names.clone(), names.prop_shuffle()];
    let values = prop::collection::vec(any_value(), 5);
    let odd =
        (names, values, any_space(), any_space()).prop_map(|(names, values, space, outer)| {
            let member = |(name, value)| format!("{outer}\"{name}\"{space}:{space}{value}{outer}");
            let members: Vec<_> = names.into_iter().zip(values).map(member).collect();
            format!("{{{}{outer}}}", members.join(","))
        });
    let role = prop::sample::select(vec!["user", "assistant", "a-very-long-role", "r\\\"", ""]);
    let more = prop::sample::select(vec!["", " ", ",\"name\":\"x\""]);
    let usual = (role, any_string(), more);
    let usual = usual.prop_map(|(role, content, more)| {
        format!("{{\"role\":\"{role}\",\"content\":{content}{more}}}")
    });
    prop_oneof![odd, usual]
}

proptest! {
    #[test]
    fn messages_read_as_those_of_the_simple_model(
        messages in prop::collection::vec(any_message(), 0..8),
        space in any_space(),
    ) {
        let messages = format!("[{space}{}]", messages.join(&format!("{space},{space}")));
        let body = format!("{{\"messages\":{space}{messages},\"model\":\"m\"}}");
        prop_assert_eq!(read(&body), model(&messages));
    }

    #[test]
    fn tools_read_as_those_of_the_simple_model(tools in prop::collection::vec(any_value(), 1..6)) {
        let tools = format!("[{}]", tools.join(", "));
        let body = format!("{{\"prompt\":\"p\",\"tools\":{tools}}}");
        prop_assert_eq!(read(&body), format!("tools{};\"p", stripped(&tools)));
    }

    #[test]
    fn tokens_read_as_those_of_the_simple_model(
        tokens in prop::collection::vec((any::<u32>(), any_space(), any_space()), 1..300),
    ) {
        let token = |(token, before, after): &(u32, _, _)| format!("{before}{token}{after}");
        let tokens: Vec<_> = tokens.iter().map(token).collect();
        let body = format!("{{\"prompt\":[{}]}}", tokens.join(","));
        prop_assert_eq!(read(&body), format!("{},", stripped(&format!("[{}", tokens.join(",")))));
    }

    #[test]
    fn quotes_are_those_found_byte_by_byte(
        runs in prop::collection::vec((prop::sample::select(b"\"\\\\a".to_vec()), 1..9_usize), 0..80),
        far in (0..300_usize, any::<prop::sample::Index>()),
        is_known in prop::collection::vec(any::<bool>(), 400),
    ) {
        let mut text: Vec<u8> = Vec::new();
        for (at, (byte, length)) in runs.iter().enumerate() {
            let far_bytes = if at == far.1.index(runs.len()) { far.0 } else { 0 };
            text.extend(std::iter::repeat_n(*byte, *length));
            text.extend(std::iter::repeat_n(b'x', far_bytes));
        }
        let (mut expected, mut is_escaped) = (Vec::new(), false);
        for (at, byte) in text.iter().enumerate() {
            if *byte == b'"' && !is_escaped {
                expected.push(at);
            }
            is_escaped = *byte == b'\\' && !is_escaped;
        }
        let strings = expected.chunks_exact(2).map(|ends| ends[0] + 1..ends[1]);
        let known = strings.zip(is_known).filter(|(_, is_known)| *is_known);
        let known: Vec<_> = known.map(|(text, _)| text).collect();
        let (mut quotes, mut found, mut from) = (Quotes::new(&text, 0, &known), Vec::new(), 0);
        loop {
            let at = quotes.next(from);
            if at >= text.len() {
                break;
            }
            found.push(at);
            from = at + 1;
        }
        prop_assert_eq!(found, expected);
        prop_assert_eq!(quotes.next(text.len() + 1), text.len());
    }
}

/// Nodes of different versions exchange hashes: after a change here they would no longer match.
#[test]
fn the_hashes_are_those_that_other_nodes_know() {
    let text = "She said \\\"no\\\" \\\\ ".repeat(40);
    let url = format!("data:image/png;base64,{}", "A".repeat(2_000));
    let tokens = (1_000..1_200).map(|token| token.to_string()).collect::<Vec<_>>().join(", ");
    let bodies = [
        format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}]}}"#),
        format!(r#"{{"messages": [{{"role": "user", "content": "{text}"}}, {{"role": "user"}}]}}"#),
        format!(r#"{{"messages":[{{"role":"tool","tool_call_id":"1","content":"{text}"}}]}}"#),
        format!(r#"{{"messages":[{{"content":[{{"url":"{url}"}}],"role":"user","x":"{text}"}}]}}"#),
        format!(r#"{{"prompt": [{tokens}]}}"#),
        format!(r#"{{"prompt": [[{tokens}], [1]]}}"#),
        format!(r#"{{"input": ["{text}", "b"]}}"#),
        format!(r#"{{"prompt":"{text}","tools":[ {{"a": 1}}, "{text}" ]}}"#),
        format!(r#"{{"input":"{text}","instructions":"{text}","reasoning_effort":"low"}}"#),
        format!(r#"{{"query":"{text}","chat_template_kwargs":{{"a": [true, "{text}"]}}}}"#),
    ];
    let known: [(usize, u64); 10] = [
        (3, 0xD425_6722_F7A8_DFD4),
        (3, 0xD425_6722_F7A8_DFD4),
        (3, 0xE263_2526_C1DA_40F6),
        (11, 0x90A7_454C_8204_5681),
        (3, 0xBC4F_F80B_0624_0826),
        (3, 0xBC4F_F80B_0624_0826),
        (3, 0xD425_6722_F7A8_DFD4),
        (6, 0x3560_D889_021E_4451),
        (6, 0x978E_B339_4A90_40A9),
        (6, 0xC6F6_86BA_8E18_1E55),
    ];
    let hasher = PrefixHasher::new([1, 2, 3, 4], PrefixConfig::default()).expect("a hasher");
    let hashes = bodies.map(|body| {
        let facts = read_facts(body.as_bytes()).expect("facts");
        let mut stream = hasher.start(&Scope { model: "m", ..Scope::default() });
        read_prompt(&facts, body.as_bytes(), |piece| match piece {
            PromptPiece::Text(text) | PromptPiece::Blob(text) => stream.update(text),
        });
        let chain = stream.finish();
        (chain.as_slice().len(), chain.as_slice().last().copied().unwrap_or_default())
    });
    assert_eq!(hashes, known, "{hashes:#x?}");
}
