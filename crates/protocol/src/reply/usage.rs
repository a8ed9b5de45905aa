//! Token counts that a reply reports.

use serde::Deserialize;

/// Token counts of one request, from the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, cached or not.
    pub prompt_tokens: u64,
    /// Generated tokens; 0 if nothing is generated.
    pub completion_tokens: u64,
    /// Tokens of the prompt that were in the engine's cache; `None` if the engine does not report
    /// it.
    pub cached_tokens: Option<u64>,
}

impl Usage {
    /// Returns the larger count of each kind, of two reports about the same reply.
    #[must_use]
    pub fn largest(self, other: Self) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens.max(other.prompt_tokens),
            completion_tokens: self.completion_tokens.max(other.completion_tokens),
            // `None` is less than any number.
            cached_tokens: self.cached_tokens.max(other.cached_tokens),
        }
    }
}

/// Reads a usage object at the beginning of `value`, under the names of all APIs. Returns `None` if
/// it has no count.
pub(crate) fn read_usage(value: &[u8]) -> Option<Usage> {
    if !value.starts_with(b"{") {
        return None;
    }
    // Reads one value and ignores the rest.
    let fields = UsageFields::deserialize(&mut serde_json::Deserializer::from_slice(value)).ok()?;
    let prompt_tokens = fields.prompt_tokens.or_else(|| fields.whole_input());
    let completion_tokens = fields.completion_tokens.or(fields.output_tokens);
    let (prompt_tokens, completion_tokens) = match (prompt_tokens, completion_tokens) {
        // Some replies, e.g. of embeddings, report only a total, which is all prompt.
        (None, None) => (fields.total_tokens?, 0),
        (Some(prompt), None) => {
            (prompt, fields.total_tokens.map_or(0, |total| total.saturating_sub(prompt)))
        }
        (prompt, Some(completion)) => {
            let rest = || fields.total_tokens.map_or(0, |total| total.saturating_sub(completion));
            (prompt.unwrap_or_else(rest), completion)
        }
    };
    let details = fields.prompt_tokens_details.or(fields.input_tokens_details);
    let cached_tokens = details.and_then(|details| details.cached_tokens);
    Some(Usage {
        prompt_tokens,
        completion_tokens,
        cached_tokens: cached_tokens.or(fields.cache_read_input_tokens),
    })
}

#[derive(Deserialize)]
struct UsageFields {
    prompt_tokens: Option<u64>,
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    output_tokens: Option<u64>,
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    input_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

impl UsageFields {
    /// Returns the tokens of the whole input. Anthropic's `input_tokens` lack those that were read
    /// from the cache or written to it.
    fn whole_input(&self) -> Option<u64> {
        let parts =
            [self.input_tokens, self.cache_creation_input_tokens, self.cache_read_input_tokens];
        parts.into_iter().flatten().reduce(u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(json: &str, expected: Option<(u64, u64, Option<u64>)>) {
        let usage = read_usage(json.as_bytes());
        let counts = usage.map(|u| (u.prompt_tokens, u.completion_tokens, u.cached_tokens));
        assert_eq!(counts, expected, "{json}");
    }

    #[test]
    fn counts_are_read_under_the_names_of_all_apis() {
        check(
            r#"{"prompt_tokens":5,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":3}}"#,
            Some((5, 4, Some(3))),
        );
        check(
            r#"{"input_tokens":5,"output_tokens":4,"input_tokens_details":{"cached_tokens":0}}"#,
            Some((5, 4, Some(0))),
        );
        check(r#"{"prompt_tokens":8,"total_tokens":8}"#, Some((8, 0, None)));
        check(r#"{"prompt_tokens":8,"prompt_tokens_details":null}"#, Some((8, 0, None)));
        check(r#"{"total_tokens":8}"#, Some((8, 0, None)));
        check(r#"{"completion_tokens":3,"total_tokens":8}"#, Some((5, 3, None)));
    }

    #[test]
    fn the_whole_prompt_of_messages_is_the_sum_of_its_parts() {
        check(
            r#"{"input_tokens":500,"cache_creation_input_tokens":100,"cache_read_input_tokens":400,
                "output_tokens":7}"#,
            Some((1000, 7, Some(400))),
        );
        check(r#"{"input_tokens":5,"cache_read_input_tokens":null}"#, Some((5, 0, None)));
        check(r#"{"input_tokens":5,"cache_creation_input_tokens":0}"#, Some((5, 0, None)));
        check(r#"{"cache_read_input_tokens":9}"#, Some((9, 0, Some(9))));
        let most = u64::MAX;
        check(
            &format!(r#"{{"input_tokens":{most},"cache_read_input_tokens":{most}}}"#),
            Some((most, 0, Some(most))),
        );
    }

    #[test]
    fn values_that_are_no_counts_are_no_usage() {
        for json in [
            "null",
            "{}",
            "5",
            "[]",
            "",
            r#"{"prompt_tokens":"5"}"#,
            r#"{"prompt_tokens":-5}"#,
            r#"{"prompt_tokens":1"#,
        ] {
            check(json, None);
        }
    }

    proptest! {
        #[test]
        fn the_largest_counts_never_decrease(
            counts in prop::collection::vec((any::<u64>(), any::<u64>(), any::<Option<u64>>()), 1..9),
        ) {
            let reports = counts.iter().map(|(prompt_tokens, completion_tokens, cached_tokens)| Usage {
                prompt_tokens: *prompt_tokens,
                completion_tokens: *completion_tokens,
                cached_tokens: *cached_tokens,
            });
            let mut so_far = Usage::default();
            for report in reports {
                let next = so_far.largest(report);
                for one in [so_far, report] {
                    prop_assert!(next.prompt_tokens >= one.prompt_tokens);
                    prop_assert!(next.completion_tokens >= one.completion_tokens);
                    prop_assert!(next.cached_tokens >= one.cached_tokens);
                }
                so_far = next;
            }
        }
    }
}
