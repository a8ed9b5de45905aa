use proptest::prelude::*;
use serde_json::json;

use super::document::DocumentReader;
use super::schema::{Form, Schema};
use super::{ReplyApi, read_error};

fn reader(api: ReplyApi) -> DocumentReader {
    DocumentReader::new(Schema::new(api, Form::Whole))
}

#[test]
fn large_values_are_skipped_without_keeping_them() {
    let numbers = "-0.012345678,".repeat(100_000);
    let reply = format!(
        r#"{{"data":[{{"embedding":[{numbers}0.5],"x":"]}}"}},{{"embedding":[{numbers}1]}}],"usage":{{"total_tokens":3}}}}"#
    );
    for piece_bytes in [7, 64, 1_000, 8_192, usize::MAX] {
        let mut reader = reader(ReplyApi::Embeddings);
        for piece in reply.as_bytes().chunks(piece_bytes.min(reply.len())) {
            reader.push(piece);
        }
        assert!(reader.is_over() && !reader.is_broken());
        let usage = reader.found().usage.map(|usage| usage.prompt_tokens);
        assert_eq!((usage, reader.found().has_content), (Some(3), true));
        assert!(format!("{reader:?}").len() < 4_000, "bytes of the reply were kept");
    }
}

#[test]
fn structure_is_found_at_any_distance() {
    for distance in 0..200 {
        let fill = " ".repeat(distance);
        for value in ["[]", "{}", "\"]\"", "[{}]", "[\"\\\"]\"]"] {
            let reply = format!(r#"{{"x":[{fill}{value}{fill}],"id":"a"}}"#);
            let mut reader = reader(ReplyApi::Chat);
            reader.push(reply.as_bytes());
            assert!(reader.is_over(), "{reply}");
            assert_eq!(reader.found().id.as_deref(), Some("a"), "{reply}");
        }
    }
}

#[test]
fn nodes_of_another_type_are_skipped() {
    for reply in [
        r#"{"choices":{"finish_reason":"abort"},"id":"a"}"#,
        r#"{"choices":[[{"finish_reason":"abort"}],5,null,"x"],"id":"a"}"#,
        r#"{"choices":"x","id":"a"}"#,
        r#"{"error":[{"message":"x"}],"id":"a"}"#,
        r#"{"choices":[{"delta":["x"],"message":"x"}],"id":"a"}"#,
    ] {
        let mut reader = reader(ReplyApi::Chat);
        reader.push(reply.as_bytes());
        assert!(reader.is_over(), "{reply}");
        let found = reader.found();
        assert_eq!(found.id.as_deref(), Some("a"), "{reply}");
        assert!(found.finish.is_none() && found.error.is_none(), "{reply}");
    }
}

#[test]
fn a_reader_can_begin_again() {
    let mut reader = reader(ReplyApi::Chat);
    for broken in ["{\"id\":\"a\",\"x\":[[\"", "x", "{\"id\":\"a"] {
        reader.push(broken.as_bytes());
        reader.begin(Schema::new(ReplyApi::Chat, Form::Event));
        reader.push(b"{\"model\":\"m\"}");
        assert!(reader.is_over(), "{broken}");
        assert_eq!(
            (reader.found().id.as_deref(), reader.found().model.as_deref()),
            (None, Some("m"))
        );
    }
}

proptest! {
    #[test]
    fn depth_beyond_any_limit_is_no_problem(depth in 0..5_000_usize, braces in any::<bool>()) {
        let (open, close) = if braces { ("{\"a\":", "}") } else { ("[", "]") };
        let reply = format!("{{\"x\":{}1{},\"id\":\"a\"}}", open.repeat(depth), close.repeat(depth));
        let mut reader = reader(ReplyApi::Chat);
        reader.push(reply.as_bytes());
        prop_assert_eq!(reader.found().id.as_deref(), Some("a"));
    }

    #[test]
    fn an_error_is_that_of_its_value(message in any::<String>(), code in any::<u16>()) {
        let error = read_error(json!({"message": message, "code": code}).to_string().as_bytes()).unwrap();
        prop_assert!(message.starts_with(&*error.message));
        prop_assert_eq!(error.status, Some(code));
    }
}
