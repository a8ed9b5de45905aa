//! Expected content of a reply to a check.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Largest difference of a number in a reply from the expected one, as a share of the larger. Sums
/// in another order differ by less, wrong weights by more.
const NUMBER_TOLERANCE: f64 = 1e-3;

/// Expected body of a reply. In the config: `{ contains = "4" }`, `{ equals = "ok" }` or
/// `{ json = { pointer = "/outputs/0/data/0", value = 2 } }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Expectation {
    /// The body contains this text.
    Contains(String),
    /// The body is this text; white space around both is ignored.
    Equals(String),
    /// The body is JSON with a certain value at a certain place.
    Json {
        /// JSON pointer, e.g. `/choices/0/text`.
        pointer: String,
        /// Value at that place. Numbers may differ by a thousandth. Without this field any value is
        /// accepted.
        #[serde(default)]
        value: Option<Value>,
    },
}

impl Expectation {
    /// Returns true if `body` is as expected.
    #[must_use]
    pub fn is_met(&self, body: &[u8]) -> bool {
        match self {
            Self::Contains(text) => memchr::memmem::find(body, text.as_bytes()).is_some(),
            Self::Equals(text) => body.trim_ascii() == text.as_bytes().trim_ascii(),
            Self::Json { pointer, value } => serde_json::from_slice::<Value>(body)
                .ok()
                .and_then(|found| found.pointer(pointer).map(|found| is_like(found, value)))
                .unwrap_or(false),
        }
    }
}

fn is_like(found: &Value, expected: &Option<Value>) -> bool {
    match expected {
        None => true,
        Some(expected) => is_close(found, expected),
    }
}

fn is_close(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Number(found), Value::Number(expected)) => {
            // A number that `f64` can't hold is compared exactly.
            let (Some(found), Some(expected)) = (found.as_f64(), expected.as_f64()) else {
                return found == expected;
            };
            (found - expected).abs() <= NUMBER_TOLERANCE * found.abs().max(expected.abs())
        }
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(found, expected)| is_close(found, expected))
        }
        _ => found == expected,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn json_at(pointer: &str, value: Value) -> Expectation {
        Expectation::Json { pointer: pointer.to_owned(), value: Some(value) }
    }

    #[test]
    fn text_is_found_anywhere_or_compared_as_a_whole() {
        assert!(Expectation::Contains("up".to_owned()).is_met(b"is up now"));
        assert!(!Expectation::Contains("up".to_owned()).is_met(b"is down"));
        assert!(Expectation::Equals("up".to_owned()).is_met(b" up\n"));
        assert!(!Expectation::Equals("up".to_owned()).is_met(b"is up"));
    }

    #[test]
    fn json_is_compared_at_its_place_and_numbers_nearly() {
        let body = br#"{"outputs":[{"data":[0.5001, 2]}], "name": "a"}"#;
        assert!(json_at("/name", json!("a")).is_met(body));
        assert!(json_at("/outputs/0/data", json!([0.5, 2.0])).is_met(body));
        assert!(!json_at("/outputs/0/data", json!([0.5])).is_met(body));
        assert!(!json_at("/outputs/0/data/0", json!(0.51)).is_met(body));
        assert!(!json_at("/outputs/0/data/1", json!("2")).is_met(body));
        assert!(!json_at("/outputs/1", json!("2")).is_met(body));
        let any = Expectation::Json { pointer: "/name".to_owned(), value: None };
        assert!(any.is_met(body) && !any.is_met(b"{}") && !any.is_met(b"name"));
    }

    #[test]
    fn the_config_names_each_form() {
        let parse =
            |text: &str| toml::from_str::<std::collections::BTreeMap<String, Expectation>>(text);
        let parsed =
            parse("a = { contains = \"4\" }\nb = { json = { pointer = \"/x\", value = 2 } }");
        let parsed = parsed.unwrap();
        assert_eq!(parsed["a"], Expectation::Contains("4".to_owned()));
        assert_eq!(parsed["b"], json_at("/x", json!(2)));
        assert!(parse("a = { matches = \"4\" }").is_err());
    }
}
