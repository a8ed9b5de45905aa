//! Sampling fields of a request, checked like in vLLM.

use serde::Deserialize;
use serde_json::{Value, json};

use super::ApiError;
use crate::answer::Length;
use crate::text::{hash_tokens, tokens_of};

/// Largest number of answers to one prompt.
const ANSWERS_MAX: i64 = 128;
/// Largest number of alternatives reported with a token, the default of vLLM.
const LOGPROBS_MAX: i64 = 20;

/// Fields that control generation. Others, like `logit_bias`, have no effect here.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Sampling {
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    max_output_tokens: Option<i64>,
    min_tokens: Option<i64>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<i64>,
    best_of: Option<i64>,
    ignore_eos: Option<bool>,
    seed: Option<i64>,
    stop: Option<StopSequences>,
    include_stop_str_in_output: Option<bool>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
    min_p: Option<f64>,
    presence_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
    repetition_penalty: Option<f64>,
    /// Salt that separates cache entries, under the name that vLLM and SGLang use.
    cache_salt: Option<Value>,
    /// Salt that separates cache entries, under another name that SGLang uses.
    extra_key: Option<Value>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
    continuous_usage_stats: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum StopSequences {
    One(String),
    Several(Vec<String>),
}

impl Sampling {
    /// Returns parameters for exactly `tokens` tokens.
    pub(crate) fn exactly(tokens: u32) -> Self {
        Self { max_tokens: Some(tokens.into()), ignore_eos: Some(true), ..Self::default() }
    }

    /// Removes `best_of`, which only text completions know.
    pub(crate) fn ignore_best_of(&mut self) {
        self.best_of = None;
    }

    /// Checks all values. Zero tokens are allowed only if the prompt is echoed.
    ///
    /// # Errors
    /// Returns 400 with the first wrong field.
    pub(crate) fn check(&self, echoes: bool) -> Result<(), ApiError> {
        let at_least_one = [
            ("max_tokens", self.max_tokens.filter(|most| *most != 0 || !echoes)),
            ("max_completion_tokens", self.max_completion_tokens),
            ("max_output_tokens", self.max_output_tokens),
            ("n", self.n),
            ("best_of", self.best_of),
        ];
        for (name, value) in at_least_one {
            check(name, value.is_none_or(|value| value >= 1), "must be at least 1")?;
        }
        let few = |count: Option<i64>| count.is_none_or(|count| count <= ANSWERS_MAX);
        check("n", few(self.n), &format!("must be at most {ANSWERS_MAX}"))?;
        check("best_of", few(self.best_of), &format!("must be at most {ANSWERS_MAX}"))?;
        let enough = self.best_of.is_none_or(|best_of| best_of >= self.n.unwrap_or(1));
        check("best_of", enough, "must be at least n")?;
        // At temperature 0 all answers of a real model would be equal.
        let greedy = self.temperature == Some(0.0) && self.answers() > 1;
        check("n", !greedy, "must be 1 when using greedy sampling")?;
        // The best answers are known only at the end, too late for a stream.
        let several = self.is_stream() && self.candidates() > self.answers();
        check("best_of", !several, "must equal n in a stream")?;
        self.check_ranges()?;
        let options = self.stream_options.is_none() || self.is_stream();
        check("stream_options", options, "can only be defined when `stream=True`")?;
        let named = self.stops().iter().all(|stop| !stop.is_empty());
        check("stop", named, "cannot contain an empty string")
    }

    fn check_ranges(&self) -> Result<(), ApiError> {
        let ranges = [
            ("temperature", self.temperature, 0.0..=2.0),
            ("min_p", self.min_p, 0.0..=1.0),
            ("presence_penalty", self.presence_penalty, -2.0..=2.0),
            ("frequency_penalty", self.frequency_penalty, -2.0..=2.0),
        ];
        for (name, value, range) in ranges {
            let (least, most) = (range.start(), range.end());
            let message = format!("must be in [{least}, {most}]");
            check(name, value.is_none_or(|value| range.contains(&value)), &message)?;
        }
        let positive = |value: Option<f64>| value.is_none_or(|value| value > 0.0);
        let in_top_p = positive(self.top_p) && self.top_p.is_none_or(|value| value <= 1.0);
        check("top_p", in_top_p, "must be in (0, 1]")?;
        check("repetition_penalty", positive(self.repetition_penalty), "must be greater than 0")?;
        let in_top_k = self.top_k.is_none_or(|value| value >= -1);
        check("top_k", in_top_k, "must be -1 or 0 (both disable it), or at least 1")?;
        let least = self.min_tokens.unwrap_or(0);
        check("min_tokens", least >= 0, "must be at least 0")?;
        let in_limit = self.limit().is_none_or(|most| least <= most);
        check("min_tokens", in_limit, "must be at most max_tokens")
    }

    /// Returns true if the client wants a stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Returns true if a stream ends with its usage.
    pub(crate) fn include_usage(&self) -> bool {
        self.stream_options.and_then(|options| options.include_usage).unwrap_or(false)
    }

    /// Returns true if each event of a stream reports the usage so far. As in vLLM, both options
    /// are needed.
    pub(crate) fn usage_throughout(&self) -> bool {
        let told = self.stream_options.and_then(|options| options.continuous_usage_stats);
        self.include_usage() && told.unwrap_or(false)
    }

    /// Returns the number of answers that the client gets for each prompt.
    pub(crate) fn answers(&self) -> usize {
        self.n.and_then(|n| usize::try_from(n).ok()).unwrap_or(1)
    }

    /// Returns the number of answers generated for each prompt; the client gets the best of them.
    pub(crate) fn candidates(&self) -> usize {
        let best_of = self.best_of.and_then(|best_of| usize::try_from(best_of).ok());
        best_of.unwrap_or(1).max(self.answers())
    }

    /// Returns the seed of answer `index` to a prompt.
    pub(crate) fn seed(&self, index: usize) -> u64 {
        self.seed.unwrap_or(0).cast_unsigned().wrapping_add(index as u64)
    }

    /// Returns the stop sequences.
    pub(crate) fn stops(&self) -> &[String] {
        match &self.stop {
            None => &[],
            Some(StopSequences::One(stop)) => std::slice::from_ref(stop),
            Some(StopSequences::Several(stops)) => stops,
        }
    }

    /// Returns true if the stop sequence is part of the answer.
    pub(crate) fn shows_stop(&self) -> bool {
        self.include_stop_str_in_output.unwrap_or(false)
    }

    /// Returns the salt that separates cache entries; 0 without a salt.
    pub(crate) fn cache_salt(&self) -> u64 {
        let salts = [&self.cache_salt, &self.extra_key];
        // Without a salt all requests share their cache entries.
        if salts.iter().all(|salt| salt.as_ref().is_none_or(Value::is_null)) {
            return 0;
        }
        hash_tokens(&tokens_of(&json!(salts).to_string()))
    }

    /// Returns the bounds on the answer to a prompt of `prompt_tokens`.
    ///
    /// # Errors
    /// Returns 400 if prompt and answer together exceed `tokens_max`.
    pub(crate) fn length(&self, prompt_tokens: usize, tokens_max: u32) -> Result<Length, ApiError> {
        let asked = self.limit().map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        let room = u64::from(tokens_max).saturating_sub(prompt_tokens as u64);
        let least = u64::from(asked.unwrap_or(1));
        if least > room {
            return Err(ApiError::context_exceeded(tokens_max, prompt_tokens, least));
        }
        let most = asked.unwrap_or_else(|| u32::try_from(room).unwrap_or(u32::MAX));
        // Without a limit from the client, only the model's own end token ends the answer.
        if self.ignore_eos.unwrap_or(false) && asked.is_some() {
            return Ok(Length::Exactly(most));
        }
        Ok(match self.min_tokens.map(|least| u32::try_from(least).unwrap_or(0)) {
            None | Some(0) => Length::AtMost(most),
            Some(least) => Length::Between(least, most),
        })
    }

    fn limit(&self) -> Option<i64> {
        // Of several limits, the newer name of OpenAI's API counts.
        self.max_completion_tokens.or(self.max_tokens).or(self.max_output_tokens)
    }
}

/// Returns the number of alternatives that a chat completion reports with each token; `None`
/// without logprobs.
///
/// # Errors
/// Returns 400 if the fields are malformed or contradict each other.
pub(crate) fn chat_logprobs(body: &Value) -> Result<Option<usize>, ApiError> {
    let asked = match &body["logprobs"] {
        Value::Null => false,
        value => value.as_bool().ok_or_else(|| wrong("logprobs", "must be true or false"))?,
    };
    let top = alternatives(body, "top_logprobs")?;
    check("top_logprobs", asked || top.is_none(), "needs `logprobs` to be set to true")?;
    Ok(asked.then_some(top.unwrap_or(0)))
}

/// Returns the number of alternatives in a field; `None` if the field is absent.
///
/// # Errors
/// Returns 400 if the value is no number within the limits.
pub(crate) fn alternatives(body: &Value, field: &'static str) -> Result<Option<usize>, ApiError> {
    if body[field].is_null() {
        return Ok(None);
    }
    let count = body[field].as_i64().filter(|count| (0..=LOGPROBS_MAX).contains(count));
    let message = format!("must be in [0, {LOGPROBS_MAX}]");
    let count = count.ok_or_else(|| wrong(field, &message))?;
    Ok(usize::try_from(count).ok())
}

fn check(name: &'static str, is_so: bool, message: &str) -> Result<(), ApiError> {
    is_so.then_some(()).ok_or_else(|| wrong(name, message))
}

fn wrong(name: &'static str, message: &str) -> ApiError {
    ApiError::invalid(format!("{name} {message}"), Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: Value) -> Option<String> {
        let sampling: Sampling = serde_json::from_value(body).unwrap();
        sampling.check(false).err().map(|error| error.message())
    }

    #[test]
    fn what_is_out_of_range_is_refused_by_its_name() {
        for (body, name) in [
            (json!({"temperature": -0.1}), "temperature"),
            (json!({"temperature": 2.1}), "temperature"),
            (json!({"top_p": 0}), "top_p"),
            (json!({"top_p": 1.1}), "top_p"),
            (json!({"top_k": -2}), "top_k"),
            (json!({"min_p": 2}), "min_p"),
            (json!({"presence_penalty": -3}), "presence_penalty"),
            (json!({"frequency_penalty": 3}), "frequency_penalty"),
            (json!({"repetition_penalty": 0}), "repetition_penalty"),
            (json!({"n": 0}), "n"),
            (json!({"n": 129}), "n"),
            (json!({"n": 2, "temperature": 0}), "n"),
            (json!({"n": 3, "best_of": 2}), "best_of"),
            (json!({"best_of": 2, "stream": true}), "best_of"),
            (json!({"max_tokens": -1}), "max_tokens"),
            (json!({"max_tokens": 0}), "max_tokens"),
            (json!({"max_completion_tokens": 0}), "max_completion_tokens"),
            (json!({"min_tokens": 5, "max_tokens": 4}), "min_tokens"),
            (json!({"stream_options": {"include_usage": true}}), "stream_options"),
            (json!({"stop": ["a", ""]}), "stop"),
        ] {
            let message = refused(body.clone()).unwrap_or_else(|| panic!("{body} passed"));
            assert!(message.starts_with(&format!("{name} ")), "{body}: {message}");
        }
        let fine = json!({"temperature": 2, "top_p": 1, "top_k": -1, "n": 128, "stop": "a",
                          "max_tokens": 1, "seed": null, "stream_options": null});
        assert_eq!(refused(fine), None);
    }

    #[test]
    fn logprobs_are_asked_for_in_their_own_way() {
        assert_eq!(chat_logprobs(&json!({"logprobs": true})).unwrap(), Some(0));
        assert_eq!(chat_logprobs(&json!({"logprobs": true, "top_logprobs": 3})).unwrap(), Some(3));
        assert_eq!(chat_logprobs(&json!({"logprobs": false})).unwrap(), None);
        for body in [
            json!({"top_logprobs": 3}),
            json!({"logprobs": 3}),
            json!({"logprobs": true, "top_logprobs": 21}),
        ] {
            assert!(chat_logprobs(&body).is_err(), "{body}");
        }
    }
}
