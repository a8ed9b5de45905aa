//! Stream of a completion as its client sees it.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::chunk::{Chunk, ChunkContent, ChunkEvent};
use super::rewriter::{Rewriter, usage_json, without_role};
use super::terms::{CompletionApi, Terms, UsageTelling};
use super::unfit::Unfit;
use crate::Usage;
use crate::sse::boundary::BoundaryScanner;

/// Largest size in bytes of held events whose text ends in white space. A stream with a longer run
/// of blank lines is not continued.
const HELD_BYTES_MAX: usize = 64 << 10;

/// Stream of one completion, over all replicas that serve it. After each [`push`](Self::push), call
/// [`pop`](Self::pop) until it returns `None`.
///
/// In a chat, text that ends in white space is held back until more text comes: chat templates may
/// strip such an end, and the second replica would then generate it again.
#[derive(Debug)]
pub struct Thread {
    api: CompletionApi,
    telling: UsageTelling,
    text_bytes_max: usize,
    boundaries: BoundaryScanner,
    /// Values that all events have in common, from the first event; `None` before it.
    head: Option<Head>,
    has_role: bool,
    progress: ThreadProgress,
    /// True if a second or later replica serves the stream.
    is_taken_up: bool,
    /// Text sent to the client; empty once the stream is unfit.
    text: String,
    /// Tokens of the text from replicas that failed.
    tokens_before: u64,
    /// Tokens of the text from the replica that serves now.
    tokens_now: u64,
    /// Tokens of the prompt, without any text of the answer; `None` until a replica reports them.
    prompt_tokens: Option<u64>,
    /// Last reported usage, of the whole stream.
    usage: Option<Usage>,
    held: Vec<Passed>,
    held_bytes: usize,
    unfit: Option<Unfit>,
    ready: VecDeque<Bytes>,
}

/// Stage of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ThreadProgress {
    // Speaking => (Finished | Done)
    Speaking,
    /// The answer is complete, and the finish reason was sent.
    // Finished => (Told | Done)
    Finished,
    /// The usage was sent too.
    // Told => Done
    Told,
    Done,
}

/// Values that are equal in all events of a stream, as JSON.
#[derive(Clone, Debug, Default)]
struct Head {
    id: Option<Box<RawValue>>,
    created: Option<Box<RawValue>>,
    model: Option<Box<RawValue>>,
    system_fingerprint: Option<Box<RawValue>>,
}

/// Event for the client, with the state of the stream after it.
#[derive(Debug)]
struct Passed {
    /// Event to send; `None` if the event is for the gateway alone.
    event: Option<Bytes>,
    text: String,
    tokens: u64,
    usage: Option<Usage>,
    progress: ThreadProgress,
}

/// Next step after a replica failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing was sent yet: the same request can be sent again.
    Afresh,
    /// Another replica can continue behind the text.
    Behind,
    /// Only these last events are missing; the stream ends with them.
    Ended(Bytes),
    /// No replica can continue, for this reason.
    Unfit(Unfit),
}

impl Thread {
    /// Creates a stream that keeps at most `text_bytes_max` bytes of its text.
    #[must_use]
    pub fn new(api: CompletionApi, telling: UsageTelling, text_bytes_max: usize) -> Self {
        Self {
            api,
            telling,
            text_bytes_max,
            boundaries: BoundaryScanner::default(),
            head: None,
            has_role: false,
            progress: ThreadProgress::Speaking,
            is_taken_up: false,
            text: String::new(),
            tokens_before: 0,
            tokens_now: 0,
            prompt_tokens: None,
            usage: None,
            held: Vec::new(),
            held_bytes: 0,
            unfit: None,
            ready: VecDeque::new(),
        }
    }

    /// Takes complete events of the replica that serves now.
    pub fn push(&mut self, events: &Bytes) {
        let mut start = 0;
        while let Some(end) = self.boundaries.next_end(events, start) {
            self.take(ChunkEvent::read(events.slice(start..end)));
            start = end;
        }
        if start < events.len() {
            self.take(ChunkEvent::read(events.slice(start..)));
            self.boundaries = BoundaryScanner::default();
        }
    }

    /// Takes a part of an event that is too long to wait for. The part is passed on, and the stream
    /// becomes unfit.
    pub fn push_part(&mut self, part: Bytes) {
        self.give_up(Unfit::Unreadable);
        self.ready.push_back(part);
    }

    /// Returns the next bytes for the client, or `None` until more is pushed.
    #[must_use]
    pub fn pop(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    /// Returns true if [`pop`](Self::pop) has more.
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns true if the answer is complete. A replica that stops before that has failed.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.progress >= ThreadProgress::Finished
    }

    /// Returns true if the client has been sent the last event of the stream.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.progress == ThreadProgress::Done
    }

    /// Returns the reason why no replica could continue the stream, if one is known already.
    #[must_use]
    pub fn unfit(&self) -> Option<Unfit> {
        self.unfit
    }

    /// Releases the events held back, for a stream that ends here in any case.
    pub fn release(&mut self) {
        for passed in std::mem::take(&mut self.held) {
            self.pass(passed);
        }
        self.held_bytes = 0;
    }

    /// Returns the usage of the whole stream: as the replicas reported it, or counted by events
    /// with text.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens.unwrap_or(0),
            completion_tokens: self.tokens(),
            cached_tokens: self.usage.and_then(|usage| usage.cached_tokens),
        }
    }

    /// Returns the text sent to the client; empty if the stream is unfit.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the number of tokens of that text.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens_before + self.tokens_now
    }

    /// Returns the next step if the serving replica fails now. Events held back are no part of the
    /// text: the next replica generates them again.
    #[must_use]
    pub fn next(&self, terms: Result<&Terms, Unfit>) -> Next {
        if self.is_whole() {
            return self.ending(None);
        }
        // No chunk has passed yet, so the request can be sent again as it is.
        if self.head.is_none() && self.unfit.is_none() {
            return Next::Afresh;
        }
        let terms = match (self.unfit, terms) {
            (Some(unfit), _) | (None, Err(unfit)) => return Next::Unfit(unfit),
            (None, Ok(terms)) => terms,
        };
        // The limit was reached, so only the finish reason is missing.
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

    /// Prepares for another replica, which serves from here on.
    pub fn take_up(&mut self) {
        self.boundaries = BoundaryScanner::default();
        self.is_taken_up = self.head.is_some();
        self.tokens_before = self.tokens();
        self.tokens_now = 0;
        self.held.clear();
        self.held_bytes = 0;
    }

    fn fault_of_text(&self, terms: &Terms) -> Option<Unfit> {
        let is_chat = self.api == CompletionApi::Chat;
        // The engine replaced the bytes of an incomplete character.
        if self.text.ends_with('\u{fffd}') {
            Some(Unfit::HalfCharacter)
        } else if is_chat && self.text.starts_with(char::is_whitespace) {
            Some(Unfit::LeadingSpace)
        // Chat templates cut reasoning out of earlier messages.
        } else if is_chat && ["<think>", "</think>"].iter().any(|tag| self.text.contains(tag)) {
            Some(Unfit::Reasoning)
        } else if terms.has_stop_begun(&self.text) {
            Some(Unfit::StopBegun)
        } else {
            None
        }
    }

    /// Returns the events that a stream with complete text still lacks.
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
        if self.telling != UsageTelling::Never && self.progress < ThreadProgress::Told {
            let Some(usage) = self.usage.filter(|usage| usage.prompt_tokens > 0) else {
                return Next::Unfit(Unfit::UsageUnknown);
            };
            self.write_event(&mut events, "", Some(usage));
        }
        if self.progress < ThreadProgress::Done {
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

    fn take(&mut self, event: ChunkEvent) {
        match event {
            ChunkEvent::Empty(bytes) => self.ready.push_back(bytes),
            ChunkEvent::Done(bytes) => {
                self.release();
                self.tell_usage_late();
                self.progress = ThreadProgress::Done;
                self.ready.push_back(bytes);
            }
            ChunkEvent::Data(bytes, at) => match Chunk::read(&bytes[at]) {
                Some(chunk) if chunk.error.is_none() => self.take_chunk(&bytes, &chunk),
                _ => {
                    self.give_up(Unfit::Unreadable);
                    self.ready.push_back(bytes);
                }
            },
        }
    }

    /// Sends the usage at the end. Some engines report usage only with the last piece of text,
    /// where the client does not expect it.
    fn tell_usage_late(&mut self) {
        if self.progress == ThreadProgress::Finished
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
        let usage = chunk.reported_usage().map(|told| self.whole_usage(told));
        let latest = self.held.last().map_or(self.tokens_now, |held| held.tokens);
        let counted = latest + u64::from(!said.text.is_empty());
        let passed = Passed {
            event: self.for_client(bytes, chunk, &said, usage),
            tokens: usage.map_or(counted, |u| u.completion_tokens - self.tokens_before),
            usage,
            progress: match (said.has_finish, chunk.is_of_usage()) {
                (true, _) => ThreadProgress::Finished,
                (false, true) => ThreadProgress::Told,
                (false, false) => ThreadProgress::Speaking,
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

    /// Converts usage of the serving replica to usage of the whole stream. Its prompt has a part of
    /// the answer in it.
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

    /// Returns the event as the client gets it; `None` if the client does not get it.
    fn for_client(
        &self,
        bytes: &Bytes,
        chunk: &Chunk<'_>,
        said: &ChunkContent<'_>,
        usage: Option<Usage>,
    ) -> Option<Bytes> {
        let mut rewriter = Rewriter::new(bytes);
        // Events of a second replica must look like those of the first.
        if self.is_taken_up {
            let is_repeated = self.has_role && said.role_in.is_some();
            // The event only repeats the role, which the client already has.
            if is_repeated && said.text.is_empty() && !said.has_finish {
                return None;
            }
            if let Some(delta) = said.role_in.filter(|_| is_repeated) {
                rewriter.replace(delta, without_role(delta));
            }
            self.rewrite_head(&mut rewriter, chunk);
        }
        let is_of_usage = chunk.is_of_usage();
        match (self.telling, chunk.usage) {
            (_, None) => {}
            // The gateway asked for this usage, not the client.
            (UsageTelling::Never, Some(_)) if chunk.is_spent() => return None,
            (UsageTelling::Never, Some(value)) => rewriter.remove("usage", value),
            (UsageTelling::AtEnd, Some(value)) if !is_of_usage => rewriter.replace(value, "null"),
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
        // At the end, or once unfit, nothing needs to be held.
        let is_open = passed.progress == ThreadProgress::Speaking && self.unfit.is_none();
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
        // A longer text is not kept, so the stream cannot be continued any more.
        if self.text.len() + text.len() > self.text_bytes_max {
            return self.give_up(Unfit::TooLong);
        }
        self.text.push_str(&text);
    }

    /// Marks the stream as unfit for a continuation, and drops its text.
    fn give_up(&mut self, unfit: Unfit) {
        self.unfit.get_or_insert(unfit);
        // The text serves a continuation alone, so its memory is given back.
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
