//! Request as it moves through the world.

use std::time::Instant;

use spillway_route::WaitTicket;
use spillway_types::{BlockHashes, Inquiry, Prediction};

use super::record::Fate;
use crate::Time;

/// State and history of one request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) session: usize,
    pub(super) turn: usize,
    /// Region that the client is nearest to.
    pub(super) region: usize,
    /// Node that the client asks.
    pub(super) entry: usize,
    /// Node that decides about the request now: a node of another region while it is a guest.
    pub(super) node: usize,
    /// Moment at which the client sent the request.
    pub(super) arrived: Time,
    pub(super) inquiry: Inquiry,
    /// Chain of the engine's blocks of prompt and reply.
    pub(super) engine_chain: Vec<u64>,
    pub(super) prompt_tokens: u32,
    pub(super) reply_tokens: u32,
    pub(super) state: RequestState,
    /// Handle in the node's queue, while the request waits.
    pub(super) ticket: Option<WaitTicket>,
    /// Moment at which its turn was predicted when it began to wait.
    pub(super) turn_by: Option<Instant>,
    /// Pauses of the waits so far: the end of an earlier one means nothing any more.
    pub(super) pauses: u32,
    pub(super) cached_tokens: u32,
    /// Milliseconds from the arrival to the first token, at the client.
    pub(super) first_token_ms: Option<f64>,
    /// Milliseconds from the arrival to the last token, at the client.
    pub(super) ended_ms: Option<f64>,
    /// Replica that the request went to last.
    pub(super) replica: Option<usize>,
    /// Region that the request was forwarded to, until it came back or was over.
    pub(super) forwarded_to: Option<usize>,
    /// True if the first token of another region's reply has come to the node that the client asked.
    pub(super) is_answered: bool,
    /// Number of attempts that faults have ended.
    pub(super) attempt: u32,
    /// Times that the client retried at the promised time.
    pub(super) returns: u32,
    /// Milliseconds from the arrival to the last time that the client asked.
    pub(super) asked_again_ms: f64,
    /// Fate of the request.
    pub(super) fate: Fate,
    /// True if the request waited in a node.
    pub(super) waited: bool,
    /// Client's request whose stream this one continues; `None` if it is a client's request.
    pub(super) part_of: Option<usize>,
    /// Tokens that a replica has generated.
    pub(super) generated: u32,
    /// Moment at which the last token so far comes to the node that the client asked.
    pub(super) brought: Time,
}

/// Stations of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RequestState {
    // Moving => (Waiting | Assigned | Over)
    /// In transit between nodes, being decided about, or rejected for some time.
    Moving,
    // Waiting => (Moving | Over)
    /// In the queue of its node.
    Waiting,
    // Assigned => (Moving | Over)
    /// At a replica, or in transit to it.
    Assigned(Assignment),
    /// Answered, shed or given up.
    Over,
}

/// Replica that a request was sent to, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Assignment {
    /// Number of the replica in the world.
    pub(super) replica: usize,
    pub(super) sent: Time,
    pub(super) prediction: Option<Prediction>,
    /// Prompt tokens that the node counts as still to be read there.
    pub(super) pending_tokens: u32,
    /// Tokens of context at the replica when the reply began.
    pub(super) context_tokens: f32,
    /// Prompt tokens that the replica had read by then.
    pub(super) read_tokens: u64,
    /// Moment at which the first token arrived at the node; `None` before.
    pub(super) first_token: Option<Time>,
}

/// Stage of a forwarded request, as reported to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Station {
    /// Sent to the other region.
    Sent,
    /// The first token came back.
    Replied,
    /// The whole reply came back.
    Ended,
    /// The other region refused it.
    Refused,
}

impl Request {
    /// Returns a turn of a session whose client is nearest to a region, before anything happens to
    /// it.
    pub(super) fn new(
        (session, turn): (usize, usize),
        region: usize,
        arrived: Time,
        inquiry: Inquiry,
    ) -> Self {
        Self {
            session,
            turn,
            region,
            entry: 0,
            node: 0,
            arrived,
            inquiry,
            engine_chain: Vec::new(),
            prompt_tokens: 0,
            reply_tokens: 0,
            state: RequestState::Moving,
            ticket: None,
            turn_by: None,
            pauses: 0,
            cached_tokens: 0,
            first_token_ms: None,
            ended_ms: None,
            replica: None,
            forwarded_to: None,
            is_answered: false,
            attempt: 0,
            returns: 0,
            asked_again_ms: 0.0,
            fate: Fate::Open,
            waited: false,
            part_of: None,
            generated: 0,
            brought: Time(0),
        }
    }

    /// Returns the prompt's blocks as routers see them.
    pub(super) fn chain(&self) -> &BlockHashes {
        &self.inquiry.prefix
    }
}
