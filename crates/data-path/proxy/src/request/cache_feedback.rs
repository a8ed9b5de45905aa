//! Reports an attempt's effect on the replica's cache and speed.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use http::{Response, StatusCode};
use spillway_protocol::{Usage, is_encoded};
use spillway_request::prepared::Prepared;
use spillway_route::{Attempt, Candidate};
use spillway_transport::coarse_clock;
use spillway_types::{BlockHashes, End, Inquiry, ModelName, Prediction};
use spillway_usage::TOKEN_BYTES;
use spillway_view::{
    BegunStream, ForwardReplied, HeldContext, HeldSlot, Learning, PromptReading, Replica, Replied,
};

use crate::worker::Worker;

/// Expected time to first token without a prediction, in milliseconds.
const USUAL_MS: f32 = 100.0;

/// Least prediction used, in milliseconds: below it the network and this node matter, not the
/// replica.
const IDLE_MS_MIN: f32 = 5.0;

/// Observer of one attempt at a replica. Every prompt reported as sent is followed by one report of
/// its result, and that of a stream by one of its first token before, so that the index can forget a request that failed. A prompt that was never sent is
/// not reported.
#[derive(Debug)]
pub(crate) struct CacheFeedback {
    worker: Arc<Worker>,
    asked_at: Instant,
    /// Unread prompt tokens at the replica, until the reply begins.
    reading: Option<PromptReading>,
    /// The prompt at the replica, until the reply ends.
    context: HeldContext,
    progress: FeedbackProgress,
    /// True if another node forwarded the request.
    is_guest: bool,
    /// The report; taken when it is sent.
    replied: Option<Box<Replied>>,
}

/// Progress of the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FeedbackProgress {
    // Unsent => Sent
    /// No connection stands yet.
    Unsent,
    // Sent => Unread
    /// The prompt was sent, and may have been read.
    Sent,
    /// The prompt was not read, and will not be.
    Unread,
}

impl CacheFeedback {
    /// Begins to observe an attempt at `replica` for `inquiry`. `None` if there is nothing to
    /// learn: without a prompt neither caches nor speeds show.
    pub(crate) fn begin(
        worker: &Arc<Worker>,
        replica: &Arc<Replica>,
        inquiry: &Inquiry,
        attempt: &Attempt,
    ) -> Option<Self> {
        let model = inquiry.model.as_ref().filter(|_| inquiry.prompt_bytes > 0)?;
        let identity = Candidate::identity_of(&replica.spec().name);
        let chain = inquiry.prefix.clone();
        let predicted = attempt.prediction;
        let prompt_tokens =
            predicted.map_or(inquiry.prompt_bytes / TOKEN_BYTES as u32, |p| p.prompt_tokens);
        let uncached = predicted.map_or(0, |p| p.prompt_tokens.saturating_sub(p.cached_tokens));
        let replied = Replied {
            prompt_bytes: inquiry.prompt_bytes,
            answers: inquiry.answers.max(1),
            predicted,
            in_flight: replica.in_flight(),
            ..unanswered(identity, model.clone(), chain)
        };
        Some(Self {
            worker: Arc::clone(worker),
            asked_at: coarse_clock::now(),
            reading: (uncached > 0).then(|| replica.begin_reading(uncached)),
            context: replica.hold_context(prompt_tokens),
            progress: FeedbackProgress::Unsent,
            is_guest: inquiry.hop > 0,
            replied: Some(Box::new(replied)),
        })
    }

    /// Reports that the request is being sent, since the connection stands. Reported at once:
    /// requests with the same prompt should follow it before the reply comes.
    pub(crate) fn sent(&mut self) {
        let Some(replied) =
            self.replied.as_ref().filter(|_| self.progress == FeedbackProgress::Unsent)
        else {
            return;
        };
        self.progress = FeedbackProgress::Sent;
        if !replied.chain.as_slice().is_empty() {
            let (identity, chain) = (replied.identity, replied.chain.clone());
            self.worker.teach(Learning::Sent { identity, chain, is_guest: self.is_guest });
        }
    }

    /// Notes that the attempt failed before the replica can have read the prompt.
    pub(crate) fn unread(&mut self) {
        // A prompt that never went out was not reported as sent, so there is nothing to take back.
        if self.progress == FeedbackProgress::Sent {
            self.progress = FeedbackProgress::Unread;
        }
    }

    /// Notes the reply's status, and whether it is a stream of events.
    pub(crate) fn head(&mut self, status: StatusCode, is_stream: bool) {
        if status.is_client_error() || status.is_server_error() {
            // The request was refused or failed, so the replica's cache did not gain the prompt.
            self.unread();
        }
        let Some(replied) = &mut self.replied else { return };
        replied.is_success = status == StatusCode::OK;
        replied.is_stream = is_stream;
    }

    /// Notes a piece of the reply's body. The first piece of a stream is reported as its first token.
    pub(crate) fn piece(&mut self, now: Instant) {
        // A reply that has begun shows that the prompt was read.
        self.reading = None;
        let is_sent = self.progress == FeedbackProgress::Sent;
        let Some(replied) = &mut self.replied else { return };
        if replied.first_byte.is_some() {
            return;
        }
        let first_byte = now.saturating_duration_since(self.asked_at);
        replied.first_byte = Some(first_byte);
        replied.context_tokens = self.context.of_all();
        replied.read_tokens = self.context.read_tokens();
        let is_first_token = replied.is_stream && replied.is_success && is_sent;
        // Without a prediction, only the end of the reply shows how much there was to read.
        if let Some(predicted) = replied.predicted.filter(|_| is_first_token) {
            let begun = Arc::new(BegunStream {
                identity: replied.identity,
                model: replied.model.clone(),
                predicted,
                first_byte,
                learned: OnceLock::new(),
            });
            replied.begun = Some(Arc::clone(&begun));
            // At once: the stream may take minutes, and until then others would follow it to a
            // replica that has become slow.
            self.worker.teach(Learning::Begun(begun));
        }
    }

    /// Returns the time to first token, relative to the prediction without waiting; `None` if the
    /// reply is no stream: a reply in one piece takes the time of all its tokens.
    pub(crate) fn first_token(&self, passed_ms: f32) -> Option<f32> {
        let replied = self.replied.as_ref().filter(|replied| replied.is_stream)?;
        let idle_ms = replied.predicted.map_or(USUAL_MS, |predicted| {
            (predicted.first_token_ms - predicted.wait_ms).max(IDLE_MS_MIN)
        });
        Some(passed_ms / idle_ms)
    }

    /// Reports the end of the reply, with the number of tokens sent, its token usage, and its blocks
    /// behind those of the prompt, as far as they are known.
    pub(crate) fn end(
        &mut self,
        end: End,
        output_tokens: u64,
        usage: Option<Usage>,
        written: BlockHashes,
    ) {
        if let Some(replied) = &mut self.replied {
            replied.written = if replied.is_success { written } else { BlockHashes::default() };
            replied.prompt_tokens = usage.map(|usage| usage.prompt_tokens);
            replied.cached_tokens = usage.and_then(|usage| usage.cached_tokens);
            replied.output_tokens = output_tokens;
        }
        self.tell(end);
    }

    fn tell(&mut self, end: End) {
        let Some(mut replied) = self.replied.take() else { return };
        replied.end = end;
        replied.duration = coarse_clock::since(self.asked_at);
        replied.context_tokens = (replied.context_tokens + self.context.of_all()) / 2.0;
        replied.read_tokens = self.context.read_tokens() - replied.read_tokens;
        let Replied { identity, ref chain, .. } = *replied;
        match self.progress {
            FeedbackProgress::Unsent => {}
            FeedbackProgress::Sent => self.worker.teach(Learning::Replied(replied)),
            // A prompt without a full block was not reported as sent.
            FeedbackProgress::Unread if chain.as_slice().is_empty() => {}
            FeedbackProgress::Unread => {
                self.worker.teach(Learning::Unread { identity, chain: chain.clone() });
            }
        }
    }
}

impl Drop for CacheFeedback {
    fn drop(&mut self) {
        let has_begun = self.replied.as_ref().is_some_and(|replied| replied.first_byte.is_some());
        self.tell(if has_begun { End::CancelledInReply } else { End::CancelledBeforeReply });
    }
}

/// Returns the report on the reply of another region, to be completed at its end; `None` if there is
/// nothing to learn from it.
pub(super) fn forward_report<B>(
    target: &HeldSlot,
    reply: &Response<B>,
    prepared: &Prepared,
) -> Option<Box<ForwardReplied>> {
    let HeldSlot::Region(target) = target else { return None };
    let chain = prepared.inquiry.prefix.clone();
    let is_learned = prepared.route.spec.policy.reads_caches() && !chain.as_slice().is_empty();
    if !is_learned || reply.status() != StatusCode::OK {
        return None;
    }
    Some(Box::new(ForwardReplied {
        region: target.region.clone(),
        chain,
        written: BlockHashes::default(),
        prompt_bytes: prepared.inquiry.prompt_bytes,
        prompt_tokens: None,
        cached_tokens: None,
    }))
}

/// Returns true if a reply is the answer to its prompt, and not compressed.
pub(super) fn is_readable<B>(reply: &Response<B>) -> bool {
    reply.status() == StatusCode::OK && !is_encoded(reply.headers())
}

/// Returns a report without a reply.
fn unanswered(identity: u64, model: ModelName, chain: BlockHashes) -> Replied {
    Replied {
        identity,
        model,
        chain,
        written: BlockHashes::default(),
        prompt_bytes: 0,
        prompt_tokens: None,
        cached_tokens: None,
        output_tokens: 0,
        answers: 1,
        first_byte: None,
        duration: Duration::ZERO,
        is_stream: false,
        begun: None,
        end: End::CancelledBeforeReply,
        is_success: false,
        predicted: None::<Prediction>,
        context_tokens: 0.0,
        read_tokens: 0,
        in_flight: 0,
    }
}

#[cfg(test)]
#[path = "cache_feedback_test.rs"]
mod tests;
