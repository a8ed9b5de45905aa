//! Selector of samples on a page.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::text::Labels;

/// Name of a metric and the labels that its samples must have; written as in Prometheus:
/// `nv_trt_llm_request_metrics{request_type="waiting"}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Selector {
    name: String,
    labels: Vec<(String, String)>,
}

/// Error: the text is not a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not of the form name or name{{label=\"value\", ...}}")]
pub struct SelectorError(pub String);

impl Selector {
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), labels: Vec::new() }
    }

    /// Returns the metric's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a label that samples must have.
    #[must_use]
    pub fn with(mut self, label: &str, value: &str) -> Self {
        self.labels.push((label.to_owned(), value.to_owned()));
        self
    }

    /// Returns true if a sample with these labels has all labels of the selector.
    pub(super) fn matches(&self, labels: &[u8]) -> bool {
        self.labels.iter().all(|(label, value)| {
            Labels(labels)
                .any(|(found, text)| found == label.as_bytes() && *text == *value.as_bytes())
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (index, (label, value)) in self.labels.iter().enumerate() {
            let open = if index == 0 { "{" } else { "," };
            let value = value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
            write!(f, "{open}{label}=\"{value}\"")?;
        }
        f.write_str(if self.labels.is_empty() { "" } else { "}" })
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let bad = || SelectorError(text.to_owned());
        let (name, labels) = match text.split_once('{') {
            None => (text.trim(), ""),
            Some((name, rest)) => (name.trim(), rest.trim_end().strip_suffix('}').ok_or_else(bad)?),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(bad());
        }
        let mut parsed = Vec::new();
        let mut pairs = Labels(labels.as_bytes());
        for (label, value) in &mut pairs {
            let text =
                |bytes: Cow<'_, [u8]>| String::from_utf8(bytes.into_owned()).map_err(|_| bad());
            parsed.push((text(Cow::Borrowed(label))?, text(value)?));
        }
        // A rest means that a label could not be parsed.
        if !pairs.0.trim_ascii().is_empty() {
            return Err(bad());
        }
        Ok(Self { name: name.to_owned(), labels: parsed })
    }
}

impl TryFrom<String> for Selector {
    type Error = SelectorError;

    fn try_from(text: String) -> Result<Self, SelectorError> {
        text.parse()
    }
}

impl From<Selector> for String {
    fn from(selector: Selector) -> Self {
        selector.to_string()
    }
}

impl JsonSchema for Selector {
    fn schema_name() -> Cow<'static, str> {
        "Selector".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A metric's name, with labels where not all its samples are meant: name{label=\"value\"}.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_written_and_read_as_in_prometheus() {
        for text in ["a", ":tf:b_c", r#"a{b="c"}"#, r#"a{b="c",d="e\"\\\n}"}"#] {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.to_string(), text);
        }
        let spaced: Selector = r#" a { b = "c" , } "#.parse().unwrap();
        assert_eq!(spaced, Selector::named("a").with("b", "c"));
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for text in
            ["", "a b", "a{", r#"a{b}"#, r#"a{b=c}"#, r#"a{b="c"#, r#"{b="c"}"#, r#"a{b="c" x}"#]
        {
            assert_eq!(text.parse::<Selector>(), Err(SelectorError(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn all_labels_that_are_asked_for_must_be_there() {
        let selector: Selector = r#"a{b="c",d="e"}"#.parse().unwrap();
        assert!(selector.matches(br#"x="y",d="e",b="c""#));
        assert!(!selector.matches(br#"b="c""#));
        assert!(!selector.matches(br#"b="c",d="f""#));
        assert!(Selector::named("a").matches(b""));
        assert!(Selector::named("a").matches(b"garbage"));
    }
}
