//! Form of a replica's replies, within what real servers do.

use serde::{Deserialize, Serialize};

/// Form of a replica's replies to inference requests. Each field is independent of the faults.
///
/// As JSON, fields that are left out have their default: `{"gzip": true, "cut_seed": 7}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplyOptions {
    /// True if replies are compressed for clients that accept gzip. Each event of a stream is
    /// flushed, so that clients can read it at once.
    pub gzip: bool,
    /// Seed of the random positions at which bodies are cut into pieces. Each piece is written by
    /// itself and may have the end of one event and the beginning of the next. `None` sends each
    /// event in a piece of its own, and any other reply in one.
    pub cut_seed: Option<u64>,
    /// True if `usage` comes before `metadata` and `tools` in responses of `/v1/responses`, as in
    /// SGLang. Otherwise it comes after them.
    pub usage_first: bool,
    /// True if streams of `/v1/messages` report cached tokens only at their end, as vLLM's do: until
    /// then, `input_tokens` has the whole prompt. Otherwise they report them at the beginning, as
    /// Anthropic's do.
    pub late_cached_tokens: bool,
    /// Members of `stream_options` that are accepted; others get 400.
    pub stream_options: StreamOptionsSchema,
}

/// Members of `stream_options` that a replica accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamOptionsSchema {
    /// All, known or not.
    #[default]
    Any,
    /// `include_usage` alone, as in strict schemas.
    IncludeUsage,
    /// None: the field itself is unknown.
    None,
}

impl StreamOptionsSchema {
    /// Returns true if a member is accepted.
    pub(crate) fn accepts(self, member: &str) -> bool {
        match self {
            Self::Any => true,
            Self::IncludeUsage => member == "include_usage",
            Self::None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_left_out_have_their_default() {
        let parse = |json| serde_json::from_str::<ReplyOptions>(json);
        assert_eq!(parse("{}").unwrap(), ReplyOptions::default());
        let expected = ReplyOptions {
            gzip: true,
            cut_seed: Some(7),
            stream_options: StreamOptionsSchema::IncludeUsage,
            ..ReplyOptions::default()
        };
        let json = r#"{"gzip":true,"cut_seed":7,"stream_options":"include_usage"}"#;
        assert_eq!(parse(json).unwrap(), expected);
        assert!(parse(r#"{"zip":true}"#).is_err());
    }
}
