//! Tokens that a request is billed: those that its replica reported, or an estimate.

use spillway_types::{End, EstimateReason, TokenCounts, TokenEstimate};

/// Bytes of text that count as one token.
pub const TOKEN_BYTES: u64 = 4;
/// Bytes of sound or of an image that count as one token: far fewer tokens than text has.
pub const MEDIA_TOKEN_BYTES: u64 = 64;
/// Most tokens of a prompt or of a reply that a report can have and be believed, where the request
/// sets no lower bound.
pub const REPORTED_TOKENS_MAX: u64 = 10_000_000;

/// Status of a gateway whose time for the request was up.
const GATEWAY_TIMEOUT: u16 = 504;

/// Tokens of a request, as far as they are known before it is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTokens {
    /// Estimated tokens of the prompt.
    pub prompt: u64,
    /// Most tokens of the prompt that a replica can report and be believed.
    pub prompt_max: u64,
    /// Most tokens of all answers together.
    pub completion_max: u64,
    /// Content of replies.
    pub reply: ReplyKind,
}

impl RequestTokens {
    /// Returns true if a reply can have used so many tokens.
    #[must_use]
    pub fn can_have_used(&self, reported: TokenCounts) -> bool {
        reported.prompt <= self.prompt_max && reported.completion <= self.completion_max
    }
}

/// Content of replies, by which the tokens of one that reports none are estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyKind {
    /// Nothing is generated: vectors, scores, or facts about a model.
    #[default]
    Scores,
    /// No model works at all: the tokens of a text are counted or listed. Nothing is billed.
    Count,
    /// Generated text, whose usage is usually reported.
    Text,
    /// Generated sound or images.
    Media,
    /// Content of a protocol that reports no usage.
    Opaque,
}

/// Tokens that a reply reports, and those that can be counted in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyTokens {
    /// Last usage that the reply reported; `None` without any.
    pub reported: Option<TokenCounts>,
    /// Events of a stream, each of which counts as a token where none are reported.
    pub events: u64,
    /// Of these, events after the last report.
    pub events_since_report: u64,
    /// Bytes of a reply in one piece.
    pub bytes: u64,
}

/// End of a request, as far as it decides about its bill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Manner in which the request ended.
    pub end: End,
    /// Status that the client was sent.
    pub status: u16,
    /// True if a replica or another region may have begun to work on the request.
    pub was_sent: bool,
}

/// Tokens of a request that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    /// Tokens for prices, budgets and sums.
    pub tokens: TokenCounts,
    /// Estimated part of them; `None` if a replica reported all.
    pub estimate: Option<TokenEstimate>,
    /// Tokens that count for limits; `None` if the replica may have used as many as the request
    /// allowed.
    pub limited: Option<u64>,
    /// True if the generated tokens were reported or counted, and not taken from the reply's length.
    pub is_counted: bool,
}

/// Work of replicas for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// No replica worked, or what one did failed.
    None,
    /// A replica replied.
    Replied,
    /// The client or its deadline ended the request before a reply.
    GivenUp,
    /// The gateway reports that the request failed, after a replica may have worked on it.
    Failed,
}

impl Ending {
    /// Returns the work that this end implies.
    fn work(&self) -> Work {
        match self.end {
            _ if !self.was_sent => Work::None,
            End::CancelledBeforeReply => Work::GivenUp,
            End::Answered if self.status == GATEWAY_TIMEOUT => Work::GivenUp,
            End::Answered if self.status >= 400 => Work::Failed,
            // The error of a replica generated nothing.
            _ if self.status >= 400 => Work::None,
            _ => Work::Replied,
        }
    }
}

/// Returns the tokens that a request is billed. Reported tokens count as they are, part by part,
/// where they can be true. The estimate takes the place of the others: the prompt by its length, the
/// reply by its events or its length. Requests on which no replica worked, or whose replica failed,
/// cost nothing unless a replica reported otherwise.
#[must_use]
pub fn bill(request: &RequestTokens, reply: &ReplyTokens, ending: Ending) -> Bill {
    if request.reply == ReplyKind::Count {
        let limited = if ending.work() == Work::None { 0 } else { request.prompt };
        return Bill { limited: Some(limited), ..Bill::default() };
    }
    let work = ending.work();
    // Whatever became of the request, a replica that reports tokens has used them.
    let is_reported = reply.reported.is_some_and(|reported| reported != TokenCounts::default());
    match work {
        Work::Replied => {}
        _ if is_reported => {}
        Work::None => return Bill { limited: Some(0), ..Bill::default() },
        Work::Failed => return Bill::default(),
        Work::GivenUp => {}
    }
    let prompt = prompt_part(request, reply.reported);
    let completion = completion_part(request, reply, ending.end == End::Complete);
    let cached = reply.reported.filter(|_| !prompt.is_estimate());
    let tokens = TokenCounts {
        prompt: prompt.tokens,
        completion: completion.tokens,
        cached: cached.map_or(0, |reported| reported.cached.min(prompt.tokens)),
    };
    let estimated = prompt.estimated.saturating_add(completion.estimated);
    let is_implausible = prompt.is_implausible || completion.is_implausible;
    let reason = match ending.end {
        _ if is_implausible => EstimateReason::Implausible,
        End::Complete => EstimateReason::Unreported,
        _ => EstimateReason::EarlyEnd,
    };
    let is_counted = completion.is_counted;
    // The length of a reply that should have reported its usage is no proof, since it may be
    // compressed. It may have been as long as it was allowed to be.
    let is_known = is_counted
        || ending.end == End::Complete
            && match request.reply {
                ReplyKind::Opaque => reply.bytes > 0,
                ReplyKind::Scores => true,
                ReplyKind::Text | ReplyKind::Media | ReplyKind::Count => false,
            };
    let limited = (is_known && work != Work::GivenUp)
        .then(|| tokens.prompt.saturating_add(tokens.completion));
    Bill {
        tokens,
        estimate: (estimated > 0).then_some(TokenEstimate { tokens: estimated, reason }),
        limited,
        is_counted,
    }
}

/// Prompt or reply of a bill.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    tokens: u64,
    /// Of these, tokens that are estimated.
    estimated: u64,
    /// True if the report can't be true.
    is_implausible: bool,
    /// True if the tokens were reported or counted.
    is_counted: bool,
}

impl Part {
    fn is_estimate(&self) -> bool {
        self.estimated > 0
    }
}

fn prompt_part(request: &RequestTokens, reported: Option<TokenCounts>) -> Part {
    let reported = reported.map_or(0, |reported| reported.prompt);
    // Some servers report the reply alone; no prompt of any length has no tokens.
    if reported > 0 && reported <= request.prompt_max {
        return Part { tokens: reported, is_counted: true, ..Part::default() };
    }
    let tokens = request.prompt;
    Part { tokens, estimated: tokens, is_implausible: reported > 0, is_counted: false }
}

fn completion_part(request: &RequestTokens, reply: &ReplyTokens, is_complete: bool) -> Part {
    let most = request.completion_max;
    let reported = reply.reported.map(|reported| reported.completion);
    if let Some(reported) = reported.filter(|reported| *reported <= most) {
        // The last report of a stream that ended early may be older than its last event.
        let since = if is_complete { 0 } else { reply.events_since_report };
        let estimated = since.min(most - reported);
        let tokens = reported + estimated;
        return Part { tokens, estimated, is_implausible: false, is_counted: true };
    }
    let by_length = match request.reply {
        ReplyKind::Scores | ReplyKind::Count => 0,
        ReplyKind::Text | ReplyKind::Opaque => reply.bytes.div_ceil(TOKEN_BYTES),
        ReplyKind::Media => reply.bytes.div_ceil(MEDIA_TOKEN_BYTES),
    };
    let is_counted = reply.events > 0;
    let tokens = if is_counted { reply.events } else { by_length }.min(most);
    Part { tokens, estimated: tokens, is_implausible: reported.is_some(), is_counted }
}

#[cfg(test)]
#[path = "bill_test.rs"]
mod tests;
