//! Answers of the emulated model: the whole text is computed before the first token is due.

use crate::text::{TOKEN_BYTES, tokens_of};
use crate::voice::Voice;

/// Bounds on the length of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// Any length up to this number of tokens.
    AtMost(u32),
    /// Any length between these numbers of tokens.
    Between(u32, u32),
    /// Exactly this number of tokens: the model ignores its end token.
    Exactly(u32),
}

impl Length {
    /// Returns the largest number of tokens.
    pub(crate) fn most(self) -> u32 {
        match self {
            Self::AtMost(most) | Self::Between(_, most) | Self::Exactly(most) => most,
        }
    }
}

/// Reason why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The model reached its end token or a stop sequence.
    Stop,
    /// The answer reached its limit of tokens.
    Length,
}

impl Finish {
    /// Returns the word of OpenAI and vLLM for the reason.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// End of an answer that an injected fault ends before its own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlyEnd {
    /// The engine aborts the answer with an error.
    Aborted,
    /// The answer ends without a reason.
    Unexplained,
}

/// Role of a part of the generated text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerPart {
    /// Content for the client.
    Said,
    /// Text not shown to the client: stop sequences, and the frame around tool calls.
    Unsaid,
    /// Arguments of the tool call with this index.
    Arguments(usize),
}

/// Tools that an answer calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    /// Names of the called tools, in the order of the calls.
    pub(crate) names: Vec<String>,
    /// True if the client itself named the tool.
    pub(crate) is_named: bool,
}

/// Answer of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Everything that is generated, shown or not.
    raw: String,
    /// Parts of `raw`, each with the byte offset at which it ends.
    parts: Vec<(AnswerPart, usize)>,
    pub(crate) calls: Calls,
    pub(crate) tokens: u32,
    pub(crate) finish: Finish,
    /// Stop sequence that ended the answer; `None` if there was none.
    pub(crate) stop: Option<String>,
    /// End that an injected fault gave the answer; `None` if it reached its own end.
    pub(crate) early_end: Option<EarlyEnd>,
}

impl Answer {
    /// Generates the answer to `prompt`.
    ///
    /// Each token depends only on the text before it and on the seed, as in a real model that
    /// always takes the likeliest token. A prompt that ends with the beginning of an answer is
    /// therefore continued with the rest of that answer.
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
            // An answer that reaches its limit is cut, even if it could have ended there.
            let may_end = tokens + 1 >= least && tokens + 1 < most;
            text.extend(voice.next(may_end).iter().copied().map(char::from));
            tokens += 1;
        }
        let parts = vec![(AnswerPart::Said, text.len())];
        let calls = Calls::default();
        Self { raw: text, parts, calls, tokens, finish, stop: None, early_end: None }
    }

    /// Creates an answer of a prescribed form, at most `most` tokens long. If `said` is the
    /// beginning of the text, the answer continues after it.
    pub(crate) fn of_parts(parts: Vec<(AnswerPart, String)>, said: &str, most: u32) -> Self {
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
            early_end: None,
        };
        // A text that just fills the limit counts as cut, as in free answers.
        if answer.raw.len().div_ceil(TOKEN_BYTES) >= most as usize {
            answer.finish = Finish::Length;
        }
        answer.cut(most);
        answer
    }

    /// Returns the answer cut at the first stop sequence in it. The sequence itself is part of the
    /// content only if `shown`.
    pub(crate) fn stopped_at(mut self, stops: &[String], shown: bool) -> Self {
        let found = stops.iter().filter_map(|stop| {
            let start = self.raw.find(stop.as_str())?;
            Some((start + stop.len(), start, stop))
        });
        // The stop that ends first counts, since the model stops there.
        let Some((end, start, stop)) = found.min() else { return self };
        self.stop = Some(stop.clone());
        self.finish = Finish::Stop;
        self.cut(u32::try_from(end.div_ceil(TOKEN_BYTES)).unwrap_or(u32::MAX));
        let visible = if shown { end } else { start };
        self.parts.iter_mut().for_each(|(_, end)| *end = (*end).min(visible));
        // The text after that was generated, but is not shown.
        self.parts.push((AnswerPart::Unsaid, self.raw.len()));
        self
    }

    /// Ends the answer after its first `tokens` tokens.
    pub(crate) fn end_early(&mut self, tokens: u32, end: EarlyEnd) {
        self.cut(tokens);
        self.stop = None;
        self.early_end = Some(end);
    }

    /// Returns the content.
    pub(crate) fn text(&self) -> &str {
        self.part(AnswerPart::Said).unwrap_or("")
    }

    /// Returns the arguments of call `call`; `None` if the answer ended before that call.
    pub(crate) fn arguments(&self, call: usize) -> Option<&str> {
        self.part(AnswerPart::Arguments(call)).filter(|text| !text.is_empty())
    }

    /// Returns the number of calls that have arguments.
    pub(crate) fn calls_made(&self) -> usize {
        (0..self.calls.names.len()).take_while(|call| self.arguments(*call).is_some()).count()
    }

    /// Returns OpenAI's word for the reason of the end; `None` for an unexplained end. As in
    /// OpenAI's API, a call of the tool that the client named does not count as a reason.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        match (self.early_end, self.finish) {
            (Some(EarlyEnd::Aborted), _) => Some("abort"),
            (Some(EarlyEnd::Unexplained), _) => None,
            (None, Finish::Stop) if self.calls_made() > 0 && !self.calls.is_named => {
                Some("tool_calls")
            }
            (None, finish) => Some(finish.as_str()),
        }
    }

    /// Returns everything that is generated, shown or not.
    pub(crate) fn raw(&self) -> &str {
        &self.raw
    }

    /// Returns the text of token `index`; empty past the end. A character that is spread over
    /// several tokens comes with the last of them.
    pub(crate) fn piece(&self, index: u32) -> &str {
        &self.raw[self.start_of(index)..self.start_of(index.saturating_add(1))]
    }

    /// Returns the text of token `index`, split into its parts.
    pub(crate) fn pieces(&self, index: u32) -> impl Iterator<Item = (AnswerPart, &str)> {
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

    /// Returns the byte offset at which the text of token `index` begins.
    pub(crate) fn start_of(&self, index: u32) -> usize {
        self.raw.floor_char_boundary((index as usize).saturating_mul(TOKEN_BYTES))
    }

    /// Returns the tokens of the answer.
    pub(crate) fn to_tokens(&self) -> Vec<u32> {
        let mut tokens = tokens_of(&self.raw);
        tokens.resize(self.tokens as usize, 0);
        tokens
    }

    fn part(&self, wanted: AnswerPart) -> Option<&str> {
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
