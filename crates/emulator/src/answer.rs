//! Answers: all that is said is known before the first token is due.

use crate::text::{TOKEN_BYTES, tokens_of};
use crate::voice::Voice;

/// How long an answer may or must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// As long as the model likes, but at most so many tokens.
    AtMost(u32),
    /// The same, but not before so many tokens.
    Between(u32, u32),
    /// Exactly so many tokens: the model is told to ignore its end.
    Exactly(u32),
}

impl Length {
    /// Most tokens.
    pub(crate) fn most(self) -> u32 {
        match self {
            Self::AtMost(most) | Self::Between(_, most) | Self::Exactly(most) => most,
        }
    }
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The model had said it all, or a stop sequence.
    Stop,
    /// It reached the limit.
    Length,
}

impl Finish {
    /// OpenAI's and vLLM's word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// What a part of the generated text is to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Content.
    Said,
    /// Not shown: stop sequences, and what stands around calls.
    Unsaid,
    /// The arguments of this call of a tool.
    Arguments(usize),
}

/// Which tools an answer calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    /// Their names.
    pub(crate) names: Vec<String>,
    /// The client named the tool itself.
    pub(crate) is_named: bool,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// All that is generated.
    raw: String,
    /// What it consists of, each part with the byte at which it ends.
    parts: Vec<(Part, usize)>,
    pub(crate) calls: Calls,
    pub(crate) tokens: u32,
    pub(crate) finish: Finish,
    /// The stop sequence that ended it.
    pub(crate) stop: Option<String>,
}

impl Answer {
    /// What the model says to `prompt`. As of a real model that always takes the likeliest token, each
    /// token follows from the text before it and the seed alone: whoever is given the beginning of
    /// an answer as its prompt says the rest.
    pub(crate) fn new(prompt: &[u32], seed: u64, length: Length) -> Self {
        let mut voice = Voice::new(prompt, seed);
        let (least, most) = match length {
            Length::Exactly(tokens) => (tokens, tokens),
            Length::AtMost(most) => (0, most),
            Length::Between(least, most) => (least, most),
        };
        let mut text = String::new();
        let mut tokens = 0;
        let mut finish = Finish::Length;
        while tokens < most {
            if voice.has_ended && tokens >= least {
                finish = Finish::Stop;
                break;
            }
            // An answer that reaches its limit is cut, though it might have ended there.
            let may_end = tokens + 1 >= least && tokens + 1 < most;
            text.extend(voice.next(may_end).iter().copied().map(char::from));
            tokens += 1;
        }
        let parts = vec![(Part::Said, text.len())];
        Self { raw: text, parts, calls: Calls::default(), tokens, finish, stop: None }
    }

    /// A text of a prescribed form, at most `most` tokens of it. Who has said the beginning of it
    /// already goes on from there.
    pub(crate) fn of_parts(parts: Vec<(Part, String)>, said: &str, most: u32) -> Self {
        let whole: String = parts.iter().map(|(_, text)| text.as_str()).collect();
        let skipped = if whole.starts_with(said) { said.len() } else { 0 };
        let mut end = 0;
        let ends = parts.iter().map(|(part, text)| {
            end += text.len();
            (*part, end.saturating_sub(skipped))
        });
        let mut answer = Self {
            parts: ends.collect(),
            raw: whole[skipped..].to_owned(),
            calls: Calls::default(),
            tokens: 0,
            finish: Finish::Stop,
            stop: None,
        };
        if answer.raw.len().div_ceil(TOKEN_BYTES) >= most as usize {
            answer.finish = Finish::Length;
        }
        answer.cut(most);
        answer
    }

    /// The answer that ends with the first stop sequence in it, which is shown only if `shown`.
    pub(crate) fn stopped_at(mut self, stops: &[String], shown: bool) -> Self {
        let found = stops.iter().filter_map(|stop| {
            let start = self.raw.find(stop.as_str())?;
            Some((start + stop.len(), start, stop))
        });
        let Some((end, start, stop)) = found.min() else { return self };
        self.stop = Some(stop.clone());
        self.finish = Finish::Stop;
        self.cut(u32::try_from(end.div_ceil(TOKEN_BYTES)).unwrap_or(u32::MAX));
        let visible = if shown { end } else { start };
        self.parts.iter_mut().for_each(|(_, end)| *end = (*end).min(visible));
        self.parts.push((Part::Unsaid, self.raw.len()));
        self
    }

    /// The content.
    pub(crate) fn text(&self) -> &str {
        self.part(Part::Said).unwrap_or("")
    }

    /// The arguments of call `call`, if it came to that call.
    pub(crate) fn arguments(&self, call: usize) -> Option<&str> {
        self.part(Part::Arguments(call)).filter(|text| !text.is_empty())
    }

    /// How many calls it came to.
    pub(crate) fn calls_made(&self) -> usize {
        (0..self.calls.names.len()).take_while(|call| self.arguments(*call).is_some()).count()
    }

    /// OpenAI's word for why it ended. A tool that the client itself named is no reason, as there.
    pub(crate) fn reason(&self) -> &'static str {
        match self.finish {
            Finish::Stop if self.calls_made() > 0 && !self.calls.is_named => "tool_calls",
            finish => finish.as_str(),
        }
    }

    /// All that is generated, shown or not.
    pub(crate) fn raw(&self) -> &str {
        &self.raw
    }

    /// The text of token `index`; empty past the end. A character that is spread over tokens comes
    /// with the last of them.
    pub(crate) fn piece(&self, index: u32) -> &str {
        &self.raw[self.start_of(index)..self.start_of(index.saturating_add(1))]
    }

    /// The same, by what its parts are.
    pub(crate) fn pieces(&self, index: u32) -> impl Iterator<Item = (Part, &str)> {
        let (from, to) = (self.start_of(index), self.start_of(index.saturating_add(1)));
        let mut start = 0;
        let ranges = self.parts.iter().map(move |(part, end)| {
            let range = (start.max(from), (*end).min(to));
            start = start.max(*end);
            (*part, range)
        });
        ranges
            .filter(|(_, (from, to))| from < to)
            .map(|(part, (from, to))| (part, &self.raw[from..to]))
    }

    /// Where the text of token `index` begins in what is generated, bytes.
    pub(crate) fn start_of(&self, index: u32) -> usize {
        self.raw.floor_char_boundary((index as usize).saturating_mul(TOKEN_BYTES))
    }

    /// Its tokens.
    pub(crate) fn to_tokens(&self) -> Vec<u32> {
        let mut tokens = tokens_of(&self.raw);
        tokens.resize(self.tokens as usize, 0);
        tokens
    }

    fn part(&self, wanted: Part) -> Option<&str> {
        let at = self.parts.iter().position(|(part, _)| *part == wanted)?;
        let start = at.checked_sub(1).map_or(0, |before| self.parts[before].1);
        self.raw.get(start..self.parts[at].1)
    }

    /// Keeps the first `most` tokens.
    fn cut(&mut self, most: u32) {
        let end = self.start_of(most);
        self.raw.truncate(end);
        self.parts.iter_mut().for_each(|(_, part_end)| *part_end = (*part_end).min(end));
        self.tokens = u32::try_from(self.raw.len().div_ceil(TOKEN_BYTES)).unwrap_or(u32::MAX);
    }
}

#[cfg(test)]
#[path = "answer_test.rs"]
mod answer_test;
