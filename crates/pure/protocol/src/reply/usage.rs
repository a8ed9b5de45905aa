//! Token counts that a reply reports.

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

/// Count in a usage object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Prompt,
    Input,
    CacheCreation,
    CacheRead,
    Completion,
    Output,
    Total,
    /// Cached tokens in the details of the prompt's.
    DetailsCached,
}

impl Count {
    /// Returns the count of a name in the API of OpenAI or of Anthropic.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"prompt_tokens" => Self::Prompt,
            b"input_tokens" => Self::Input,
            b"cache_creation_input_tokens" => Self::CacheCreation,
            b"cache_read_input_tokens" => Self::CacheRead,
            b"completion_tokens" => Self::Completion,
            b"output_tokens" => Self::Output,
            b"total_tokens" => Self::Total,
            _ => return None,
        })
    }
}

/// Counts of one usage object, as they are given.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts([Option<u64>; 8]);

impl Counts {
    /// Takes the JSON of a count. Values that are no counts are passed over.
    pub(super) fn put(&mut self, count: Count, json: &[u8]) {
        let digit = |byte: &u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
        let next = |number: u64, byte: &u8| number.checked_mul(10)?.checked_add(digit(byte)?);
        if let Some(number) = json.iter().try_fold(0, next).filter(|_| !json.is_empty()) {
            self.0[count as usize] = Some(number);
        }
    }

    /// Returns the usage; `None` if there is no count.
    pub(super) fn usage(&self) -> Option<Usage> {
        let of = |count: Count| self.0[count as usize];
        // Anthropic's input lacks the tokens that were read from the cache or written to it.
        let inputs = [of(Count::Input), of(Count::CacheCreation), of(Count::CacheRead)];
        let whole_input = inputs.into_iter().flatten().reduce(u64::saturating_add);
        let total_without =
            |part: u64| of(Count::Total).map_or(0, |total| total.saturating_sub(part));
        let prompt_tokens = of(Count::Prompt).or(whole_input);
        let completion_tokens = of(Count::Completion).or_else(|| of(Count::Output));
        let (prompt_tokens, completion_tokens) = match (prompt_tokens, completion_tokens) {
            // Some replies, e.g. of embeddings, report only a total, which is all prompt.
            (None, None) => (of(Count::Total)?, 0),
            (Some(prompt), None) => (prompt, total_without(prompt)),
            (None, Some(completion)) => (total_without(completion), completion),
            (Some(prompt), Some(completion)) => (prompt, completion),
        };
        let cached_tokens = of(Count::DetailsCached).or_else(|| of(Count::CacheRead));
        Some(Usage { prompt_tokens, completion_tokens, cached_tokens })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::read_usage;
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
            r#"{"prompt_tokens":+5}"#,
            r#"{"prompt_tokens":5.5}"#,
            r#"{"prompt_tokens":5e3}"#,
            r#"{"prompt_tokens":184467440737095516160}"#,
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
