//! Logprobs of tokens: invented numbers that depend only on the token and its position.

use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::text::{detokenize, hash_tokens, mixed, tokens_of};
use crate::voice::WORDS;

/// Token with its logprob and its alternatives.
#[derive(Clone, Debug)]
pub(crate) struct Scored {
    token: String,
    logprob: f64,
    /// Likeliest tokens at this position, the token itself first.
    top: Vec<(String, f64)>,
}

impl Scored {
    fn new(token: &str, index: u32, top: usize) -> Self {
        let seed = hash_tokens(&tokens_of(token)) ^ mixed(index.into());
        let mut rng = fastrand::Rng::with_seed(seed);
        // More than one half, so that no other token is likelier.
        let likely = 0.5 + 0.499 * rng.f64();
        let logprob = likely.ln();
        let start = rng.usize(..WORDS.len());
        let words = WORDS.iter().cycle().skip(start).take(WORDS.len());
        let words = words.map(|word| word.iter().copied().map(char::from).collect::<String>());
        let mut rest = 1.0 - likely;
        let others = words.filter(|word| word != token).map(|word| {
            // Each gets half of the rest, so that the chances never add up to more than 1.
            rest /= 2.0;
            (word, rest.ln())
        });
        let top = std::iter::once((token.to_owned(), logprob)).chain(others).take(top).collect();
        Self { token: token.to_owned(), logprob, top }
    }

    /// Scores token `index` of an answer, with `top` alternatives.
    pub(crate) fn said(answer: &Answer, index: u32, top: usize) -> Self {
        Self::new(answer.piece(index), index, top)
    }

    /// Returns the entry in the form of chat completions.
    pub(crate) fn to_chat(&self) -> Value {
        let mut entry = entry(&self.token, self.logprob);
        entry["top_logprobs"] =
            self.top.iter().map(|(token, logprob)| self::entry(token, *logprob)).collect();
        entry
    }
}

fn entry(token: &str, logprob: f64) -> Value {
    json!({ "token": token, "logprob": logprob, "bytes": token.as_bytes() })
}

/// Returns the logprobs of a whole answer in the form of chat completions.
pub(crate) fn of_chat(answer: &Answer, top: usize) -> Vec<Value> {
    (0..answer.tokens).map(|index| Scored::said(answer, index, top).to_chat()).collect()
}

/// Returns the mean logprob of an answer's tokens.
pub(crate) fn mean(answer: &Answer) -> f64 {
    let sum: f64 = (0..answer.tokens).map(|index| Scored::said(answer, index, 0).logprob).sum();
    sum / f64::from(answer.tokens.max(1))
}

/// Logprobs of a text completion, as the four lists of the API.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists {
    tokens: Vec<Value>,
    token_logprobs: Vec<Value>,
    top_logprobs: Vec<Value>,
    text_offset: Vec<Value>,
}

impl Lists {
    /// Adds the tokens of the prompt. The first one has no logprob.
    pub(crate) fn push_prompt(&mut self, prompt: &[u32], top: usize) {
        let mut offset = 0;
        for (index, token) in (0..).zip(prompt) {
            let text = detokenize(&[*token]);
            self.push(&Scored::new(&text, index, top), offset);
            offset += text.chars().count();
        }
        if let (Some(logprob), Some(top)) =
            (self.token_logprobs.first_mut(), self.top_logprobs.first_mut())
        {
            (*logprob, *top) = (Value::Null, Value::Null);
        }
    }

    /// Adds token `index` of an answer that follows `before` characters.
    pub(crate) fn push_said(&mut self, answer: &Answer, index: u32, top: usize, before: usize) {
        let offset = before + answer.raw()[..answer.start_of(index)].chars().count();
        self.push(&Scored::said(answer, index, top), offset);
    }

    fn push(&mut self, scored: &Scored, offset: usize) {
        self.tokens.push(json!(scored.token));
        self.token_logprobs.push(json!(scored.logprob));
        let top: Map<String, Value> =
            scored.top.iter().map(|(token, logprob)| (token.clone(), json!(logprob))).collect();
        self.top_logprobs.push(if top.is_empty() { Value::Null } else { Value::Object(top) });
        self.text_offset.push(json!(offset));
    }

    /// Returns the lists in the form of text completions.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs,
            "text_offset": self.text_offset,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Length;

    #[test]
    fn the_chosen_token_is_the_likeliest_and_all_together_are_no_more_than_certain() {
        let answer = Answer::new(&[1, 2, 3], 7, Length::Exactly(30));
        for index in 0..30 {
            let scored = Scored::said(&answer, index, 5);
            assert_eq!((scored.top.len(), scored.top[0].0.as_str()), (5, answer.piece(index)));
            assert!(scored.top.is_sorted_by(|one, next| one.1 > next.1));
            let sum: f64 = scored.top.iter().map(|(_, logprob)| logprob.exp()).sum();
            assert!(sum <= 1.0 && scored.logprob < 0.0);
            let mut names: Vec<&str> = scored.top.iter().map(|(token, _)| token.as_str()).collect();
            names.dedup();
            assert_eq!(names.len(), 5);
        }
    }
}
