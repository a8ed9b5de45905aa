//! The stream as its client sees it.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::chunk::{Chunk, Event, Said};
use super::rewriter::{Rewriter, usage_json, without_role};
use super::terms::{CompletionApi, Terms, UsageTelling};
use super::unfit::Unfit;
use crate::Usage;
use crate::sse::boundary::BoundaryScanner;

/// Bytes of events that end in white space which are held until more comes. A model that writes more
/// blank lines than this in one run is not continued.
const HELD_BYTES_MAX: usize = 64 << 10;

/// One stream of a completion, whichever replicas serve it. After each [`push`](Self::push),
/// [`pop`](Self::pop) until it is empty.
///
/// Of a chat, text that ends in white space is held back until more comes: templates may take such
/// an end away, and then the replica that goes on would say it once more.
#[derive(Debug)]
pub struct Thread {
    api: CompletionApi,
    telling: UsageTelling,
    text_bytes_max: usize,
    boundaries: BoundaryScanner,
    /// What all events have in common; known from the first one.
    head: Option<Head>,
    has_role: bool,
    progress: Progress,
    /// A replica goes on behind another one.
    is_taken_up: bool,
    /// What the client has been sent; empty once it is unfit.
    text: String,
    /// Tokens of the text by replicas that broke off.
    tokens_before: u64,
    /// Those of the replica that serves now.
    tokens_now: u64,
    /// Those of the prompt, without any text of the answer.
    prompt_tokens: Option<u64>,
    /// The last usage told, in terms of the whole stream.
    usage: Option<Usage>,
    held: Vec<Passed>,
    held_bytes: usize,
    unfit: Option<Unfit>,
    /// An error by which the replica says that it breaks off, and what it says behind it.
    fault: Vec<Bytes>,
    ready: VecDeque<Bytes>,
}

/// How much has been said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    // Speaking => (Finished | Done)
    Speaking,
    /// The answer is over, and why.
    // Finished => (Told | Done)
    Finished,
    /// So is its usage.
    // Told => Done
    Told,
    Done,
}

/// Values that are the same in all events of a stream, as JSON.
#[derive(Clone, Debug, Default)]
struct Head {
    id: Option<Box<RawValue>>,
    created: Option<Box<RawValue>>,
    model: Option<Box<RawValue>>,
    system_fingerprint: Option<Box<RawValue>>,
}

/// An event as the client gets it, and what has been said once it has.
#[derive(Debug)]
struct Passed {
    /// `None` if it was for the gateway alone.
    event: Option<Bytes>,
    text: String,
    tokens: u64,
    usage: Option<Usage>,
    progress: Progress,
}

/// What is to be done after a replica broke off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing was said: the same request can be sent again.
    Afresh,
    /// Another replica can go on behind the text.
    Behind,
    /// Nothing was missing but these last events.
    Ended(Bytes),
    /// No replica can go on.
    Unfit(Unfit),
}

impl Thread {
    /// A stream that begins. At most so many bytes of its text are kept.
    #[must_use]
    pub fn new(api: CompletionApi, telling: UsageTelling, text_bytes_max: usize) -> Self {
        Self {
            api,
            telling,
            text_bytes_max,
            boundaries: BoundaryScanner::default(),
            head: None,
            has_role: false,
            progress: Progress::Speaking,
            is_taken_up: false,
            text: String::new(),
            tokens_before: 0,
            tokens_now: 0,
            prompt_tokens: None,
            usage: None,
            held: Vec::new(),
            held_bytes: 0,
            unfit: None,
            fault: Vec::new(),
            ready: VecDeque::new(),
        }
    }

    /// Takes whole events of the replica that serves now.
    pub fn push(&mut self, events: &Bytes) {
        let mut start = 0;
        while let Some(end) = self.boundaries.next_end(events, start) {
            self.take(Event::read(events.slice(start..end)));
            start = end;
        }
        if start < events.len() {
            self.take(Event::read(events.slice(start..)));
            self.boundaries = BoundaryScanner::default();
        }
    }

    /// Takes a part of an event that was too long to wait for: it is not understood.
    pub fn push_part(&mut self, part: Bytes) {
        self.give_up(Unfit::Unreadable);
        self.ready.push_back(part);
    }

    /// The next bytes for the client, or `None` until more is pushed.
    #[must_use]
    pub fn pop(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    /// Whether the answer has come to its end; a replica that stops before it broke off.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.progress >= Progress::Finished
    }

    /// Whether the client has been sent the stream's last word.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.progress == Progress::Done
    }

    /// Why nobody could go on with it, if that is known already.
    #[must_use]
    pub fn unfit(&self) -> Option<Unfit> {
        self.unfit
    }

    /// Whether the replica has said by an error event that it can't go on. The event is kept until
    /// somebody else takes the stream up, or it is [released](Self::release_fault).
    #[must_use]
    pub fn has_fault(&self) -> bool {
        !self.fault.is_empty()
    }

    /// Hands out the replica's own error, since nobody goes on.
    pub fn release_fault(&mut self) {
        self.give_up(Unfit::Unreadable);
        self.ready.extend(std::mem::take(&mut self.fault));
    }

    /// Hands out what was held back, for a stream that ends here whatever comes.
    pub fn release(&mut self) {
        for passed in std::mem::take(&mut self.held) {
            self.pass(passed);
        }
        self.held_bytes = 0;
    }

    /// Tokens of the whole stream: as its replicas told, or as many as there were events with text.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens.unwrap_or(0),
            completion_tokens: self.tokens(),
            cached_tokens: self.usage.and_then(|usage| usage.cached_tokens),
        }
    }

    /// What the client has been sent; empty if the stream is unfit.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The tokens of that text.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens_before + self.tokens_now
    }

    /// Says what is to be done, its replica having broken off. Whatever was held back is forgotten:
    /// whoever goes on says it again.
    #[must_use]
    pub fn broke_off(&mut self, terms: Result<&Terms, Unfit>) -> Next {
        if self.is_whole() {
            return self.ending(None);
        }
        self.held.clear();
        self.held_bytes = 0;
        if self.head.is_none() && self.unfit.is_none() {
            return Next::Afresh;
        }
        let terms = match (self.unfit, terms) {
            (Some(unfit), _) | (None, Err(unfit)) => return Next::Unfit(unfit),
            (None, Ok(terms)) => terms,
        };
        if terms.tokens_max().is_some_and(|most| most > 0 && self.tokens() >= most) {
            return self.ending(Some("length"));
        }
        if self.text.is_empty() {
            return Next::Afresh;
        }
        match self.fault_of_text(terms) {
            Some(unfit) => Next::Unfit(unfit),
            None => Next::Behind,
        }
    }

    /// Another replica serves from here on.
    pub fn take_up(&mut self) {
        self.boundaries = BoundaryScanner::default();
        self.is_taken_up = self.head.is_some();
        self.tokens_before = self.tokens();
        self.tokens_now = 0;
        self.fault.clear();
    }

    fn fault_of_text(&self, terms: &Terms) -> Option<Unfit> {
        let is_chat = self.api == CompletionApi::Chat;
        if self.text.ends_with('\u{fffd}') {
            Some(Unfit::HalfCharacter)
        } else if is_chat && self.text.starts_with(char::is_whitespace) {
            Some(Unfit::LeadingSpace)
        } else if is_chat && ["<think>", "</think>"].iter().any(|tag| self.text.contains(tag)) {
            Some(Unfit::Reasoning)
        } else if terms.has_stop_begun(&self.text) {
            Some(Unfit::StopBegun)
        } else {
            None
        }
    }

    /// The events that are missing of a stream whose text is complete.
    fn ending(&self, finish: Option<&str>) -> Next {
        let mut events = String::new();
        if let Some(finish) = finish {
            let text = match self.api {
                CompletionApi::Chat => "\"delta\":{}",
                CompletionApi::Text => "\"text\":\"\"",
            };
            let choices =
                format!("{{\"index\":0,{text},\"logprobs\":null,\"finish_reason\":\"{finish}\"}}");
            self.write_event(&mut events, &choices, None);
        }
        if self.telling != UsageTelling::Never && self.progress < Progress::Told {
            let Some(usage) = self.usage.filter(|usage| usage.prompt_tokens > 0) else {
                return Next::Unfit(Unfit::UsageUnknown);
            };
            self.write_event(&mut events, "", Some(usage));
        }
        if self.progress < Progress::Done {
            events.push_str("data: [DONE]\n\n");
        }
        Next::Ended(events.into())
    }

    fn write_event(&self, events: &mut String, choices: &str, usage: Option<Usage>) {
        let head = self.head.clone().unwrap_or_default();
        let object = match self.api {
            CompletionApi::Chat => "chat.completion.chunk",
            CompletionApi::Text => "text_completion",
        };
        events.push_str("data: {");
        for (name, value) in [("id", &head.id), ("created", &head.created), ("model", &head.model)]
        {
            if let Some(value) = value {
                events.push_str(&format!("\"{name}\":{value},"));
            }
        }
        events.push_str(&format!("\"object\":\"{object}\",\"choices\":[{choices}]"));
        if let Some(usage) = usage {
            events.push_str(&format!(",\"usage\":{}", usage_json(None, usage)));
        } else if self.telling != UsageTelling::Never {
            events.push_str(",\"usage\":null");
        }
        events.push_str("}\n\n");
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Empty(bytes) | Event::Done(bytes) | Event::Data(bytes, _)
                if self.has_fault() =>
            {
                self.fault.push(bytes);
            }
            Event::Empty(bytes) => self.ready.push_back(bytes),
            Event::Done(bytes) => {
                self.release();
                self.tell_usage_late();
                self.progress = Progress::Done;
                self.ready.push_back(bytes);
            }
            Event::Data(bytes, at) => match Chunk::read(&bytes[at]) {
                Some(chunk) if chunk.error.is_none() => self.take_chunk(&bytes, &chunk),
                Some(chunk) if chunk.is_server_fault() && self.may_break() => {
                    self.fault.push(bytes);
                }
                _ => {
                    self.give_up(Unfit::Unreadable);
                    self.ready.push_back(bytes);
                }
            },
        }
    }

    /// Whether it would make a difference that the replica breaks off here.
    fn may_break(&self) -> bool {
        self.progress == Progress::Speaking && self.unfit.is_none()
    }

    /// Some engines tell usage with the last piece of text alone, where the client does not expect it.
    fn tell_usage_late(&mut self) {
        if self.progress == Progress::Finished
            && self.telling == UsageTelling::AtEnd
            && let Some(usage) = self.usage
        {
            let mut events = String::new();
            self.write_event(&mut events, "", Some(usage));
            self.ready.push_back(events.into());
        }
    }

    fn take_chunk(&mut self, bytes: &Bytes, chunk: &Chunk<'_>) {
        let said = chunk.said(self.api);
        if let Some(unfit) = said.unfit {
            self.give_up(unfit);
        }
        self.head.get_or_insert_with(|| Head::of(chunk));
        let usage = chunk.told_usage().map(|told| self.whole_usage(told));
        let latest = self.held.last().map_or(self.tokens_now, |held| held.tokens);
        let counted = latest + u64::from(!said.text.is_empty());
        let passed = Passed {
            event: self.for_client(bytes, chunk, (&said, usage)),
            tokens: usage.map_or(counted, |u| u.completion_tokens - self.tokens_before),
            usage,
            progress: match (said.has_finish, chunk.is_usage_alone()) {
                (true, _) => Progress::Finished,
                (false, true) => Progress::Told,
                (false, false) => Progress::Speaking,
            },
            text: said.text,
        };
        self.has_role |= said.role_in.is_some();
        if self.must_hold(&passed) {
            self.held_bytes += passed.event.as_ref().map_or(0, Bytes::len);
            self.held.push(passed);
            if self.held_bytes > HELD_BYTES_MAX {
                self.give_up(Unfit::TooLong);
            }
            return;
        }
        self.release();
        self.pass(passed);
    }

    /// Usage that the present replica told, in terms of the whole stream: what it takes for prompt is
    /// partly the answer.
    fn whole_usage(&self, told: Usage) -> Usage {
        let prompt_tokens = match self.prompt_tokens {
            Some(known) => known,
            None => told.prompt_tokens.saturating_sub(self.tokens_before),
        };
        Usage {
            prompt_tokens,
            completion_tokens: self.tokens_before + told.completion_tokens,
            cached_tokens: told.cached_tokens.map(|cached| cached.min(prompt_tokens)),
        }
    }

    /// The event as the client is to see it; `None` if it is not.
    fn for_client(
        &self,
        bytes: &Bytes,
        chunk: &Chunk<'_>,
        (said, usage): (&Said<'_>, Option<Usage>),
    ) -> Option<Bytes> {
        let mut rewriter = Rewriter::new(bytes);
        if self.is_taken_up {
            let is_repeated = self.has_role && said.role_in.is_some();
            if is_repeated && said.text.is_empty() && !said.has_finish {
                return None;
            }
            if let Some(delta) = said.role_in.filter(|_| is_repeated) {
                rewriter.replace(delta, without_role(delta));
            }
            self.rewrite_head(&mut rewriter, chunk);
        }
        let is_alone = chunk.is_usage_alone();
        match (self.telling, chunk.usage) {
            (_, None) => {}
            (UsageTelling::Never, Some(_)) if is_alone => return None,
            (UsageTelling::Never, Some(value)) => rewriter.remove("usage", value),
            (UsageTelling::AtEnd, Some(value)) if !is_alone => rewriter.replace(value, "null"),
            (_, Some(value)) => {
                if let Some(usage) = usage.filter(|_| self.is_taken_up) {
                    rewriter.replace(value, usage_json(Some(value), usage));
                }
            }
        }
        Some(rewriter.finish())
    }

    fn rewrite_head(&self, rewriter: &mut Rewriter<'_>, chunk: &Chunk<'_>) {
        let Some(head) = &self.head else { return };
        let values = [
            (chunk.id, &head.id),
            (chunk.created, &head.created),
            (chunk.model, &head.model),
            (chunk.system_fingerprint, &head.system_fingerprint),
        ];
        for (value, first) in values {
            if let (Some(value), Some(first)) = (value, first) {
                rewriter.replace(value, first.get());
            }
        }
    }

    fn must_hold(&self, passed: &Passed) -> bool {
        let is_open = passed.progress == Progress::Speaking && self.unfit.is_none();
        let ends_open = match passed.text.as_str() {
            "" => !self.held.is_empty(),
            text => text.ends_with(char::is_whitespace),
        };
        self.api == CompletionApi::Chat && is_open && ends_open
    }

    fn pass(&mut self, passed: Passed) {
        let Passed { event, text, tokens, usage, progress } = passed;
        self.ready.extend(event);
        self.tokens_now = tokens;
        self.progress = self.progress.max(progress);
        if let Some(usage) = usage {
            self.usage = Some(usage);
            if usage.prompt_tokens > 0 {
                self.prompt_tokens = Some(usage.prompt_tokens);
            }
        }
        if self.unfit.is_some() {
            return;
        }
        if self.text.len() + text.len() > self.text_bytes_max {
            return self.give_up(Unfit::TooLong);
        }
        self.text.push_str(&text);
    }

    /// The stream is not to be continued, whatever comes.
    fn give_up(&mut self, unfit: Unfit) {
        self.unfit.get_or_insert(unfit);
        self.text = String::new();
        self.release();
    }
}

impl Head {
    fn of(chunk: &Chunk<'_>) -> Self {
        let owned = |value: Option<&RawValue>| value.map(RawValue::to_owned);
        Self {
            id: owned(chunk.id),
            created: owned(chunk.created),
            model: owned(chunk.model),
            system_fingerprint: owned(chunk.system_fingerprint),
        }
    }
}
