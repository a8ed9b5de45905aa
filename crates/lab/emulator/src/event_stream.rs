//! Answers in generation, as a stream of events in the form of one API.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::answer::{Answer, EarlyEnd};
use crate::driver::{DriverProgress, Generation, Lost};
use crate::usage::TokenUsage;

/// Writer of a stream's events in the form of one API. Each item added to `events` is one event.
pub(crate) trait EventFormat: Send {
    /// Writes the events before the first token.
    fn start(&mut self, events: &mut VecDeque<Bytes>);
    /// Notes before the first token how many tokens of the prompt were cached. Only APIs that begin
    /// a stream with its usage need the number.
    fn note_cached(&mut self, _cached_tokens: u32) {}
    /// Writes the events of token `token` of answer `index`.
    fn token(&mut self, index: usize, answer: &Answer, token: u32, events: &mut VecDeque<Bytes>);
    /// Writes the events after the last token of answer `index`.
    fn done(&mut self, index: usize, answer: &Answer, events: &mut VecDeque<Bytes>);
    /// Writes the events after the last answer; `cached_tokens` of the prompts were cached.
    fn finish(&mut self, cached_tokens: u32, events: &mut VecDeque<Bytes>);
    /// Writes the end of a stream that ends without a reason and without usage.
    fn leave(&mut self, events: &mut VecDeque<Bytes>);
    /// Writes the end of a stream whose engine has died.
    fn fail(&mut self, events: &mut VecDeque<Bytes>);
}

/// Answer to a request, with its progress.
#[derive(Debug)]
pub(crate) struct Track {
    pub(crate) generation: Generation,
    pub(crate) answer: Answer,
    /// True if the cached tokens of this answer count in the usage.
    pub(crate) tells_cached: bool,
    next_token: u32,
    is_over: bool,
}

impl Track {
    pub(crate) fn new(generation: Generation, answer: Answer, tells_cached: bool) -> Self {
        Self { generation, answer, tells_cached, next_token: 0, is_over: false }
    }
}

/// Answers in generation, as a stream of events.
pub(crate) struct EventStream {
    tracks: Vec<Track>,
    format: Box<dyn EventFormat>,
    events: VecDeque<Bytes>,
    /// Number of answers that are not complete.
    open: usize,
    /// Index of the answer that is polled first, so that all answers have their turn.
    turn: usize,
    /// Tokens whose events are written, taken or not.
    written: TokenUsage,
    /// Tokens whose events were all taken.
    taken: TokenUsage,
}

impl EventStream {
    /// Creates the stream of answers to prompts of `prompt_tokens` tokens.
    pub(crate) fn new(
        tracks: Vec<Track>,
        mut format: Box<dyn EventFormat>,
        prompt_tokens: u32,
    ) -> Self {
        let mut events = VecDeque::new();
        format.start(&mut events);
        let open = tracks.len();
        let usage = TokenUsage { prompt_tokens, ..TokenUsage::default() };
        Self { tracks, format, events, open, turn: 0, written: usage, taken: usage }
    }

    /// Polls for the next event; `None` after the last one.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Lost>>> {
        while self.events.is_empty() {
            if self.open == 0 {
                return Poll::Ready(None);
            }
            match ready!(self.poll_tracks(cx)) {
                Ok((index, progress)) => self.advance(index, progress),
                Err(lost) => return Poll::Ready(Some(Err(lost))),
            }
        }
        let event = self.events.pop_front();
        if self.events.is_empty() {
            self.taken = self.written;
        }
        Poll::Ready(event.map(Ok))
    }

    /// Returns the usage of the request, with the generated tokens whose events were all taken.
    pub(crate) fn usage(&self) -> TokenUsage {
        self.taken
    }

    /// Returns true if the last event was taken.
    pub(crate) fn is_over(&self) -> bool {
        self.open == 0 && self.events.is_empty()
    }

    /// Returns true if answers are in generation, and every event of their tokens was taken. Faults
    /// that write an end of their own do so only then.
    pub(crate) fn is_between_tokens(&self) -> bool {
        self.open > 0 && self.events.is_empty()
    }

    /// Ends the answers that are not complete, as an injected fault demands.
    pub(crate) fn end_early(&mut self, end: EarlyEnd) {
        self.open = 0;
        let (format, events) = (&mut self.format, &mut self.events);
        if end == EarlyEnd::Unexplained {
            format.leave(events);
            return;
        }
        for (index, track) in self.tracks.iter_mut().enumerate().filter(|(_, track)| !track.is_over)
        {
            track.answer.end_early(track.next_token, end);
            format.done(index, &track.answer, events);
        }
        format.finish(self.written.cached_tokens, events);
    }

    /// Ends all answers with the error of an engine that died.
    pub(crate) fn fail(&mut self) {
        self.open = 0;
        self.format.fail(&mut self.events);
    }

    /// Polls for the next progress of any answer. Returns the index of the answer with it.
    fn poll_tracks(&mut self, cx: &mut Context<'_>) -> Poll<Result<(usize, DriverProgress), Lost>> {
        let count = self.tracks.len();
        for index in (0..count).map(|step| (self.turn + step) % count) {
            let track = &mut self.tracks[index];
            if track.is_over {
                continue;
            }
            if let Poll::Ready(progress) = track.generation.poll_progress(cx) {
                self.turn = index + 1;
                return Poll::Ready(progress.map(|progress| (index, progress)));
            }
        }
        Poll::Pending
    }

    fn advance(&mut self, index: usize, progress: DriverProgress) {
        let (track, events) = (&mut self.tracks[index], &mut self.events);
        match progress {
            DriverProgress::Token => {
                if track.next_token == 0 && track.tells_cached {
                    self.written.cached_tokens += track.generation.cached_tokens();
                    self.format.note_cached(self.written.cached_tokens);
                }
                self.format.token(index, &track.answer, track.next_token, events);
                track.next_token += 1;
                self.written.completion_tokens += 1;
                return;
            }
            DriverProgress::Finished { cached_tokens } => {
                // A listener, or an answer without tokens, learns the number only now.
                if track.tells_cached && track.generation.cached_tokens() == 0 {
                    self.written.cached_tokens += cached_tokens;
                }
                self.format.done(index, &track.answer, events);
            }
            DriverProgress::Cancelled => {}
        }
        track.is_over = true;
        self.open -= 1;
        // A cancelled stream ends without its last events.
        if self.open == 0 && progress != DriverProgress::Cancelled {
            self.format.finish(self.written.cached_tokens, events);
        }
    }
}
