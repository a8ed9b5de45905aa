//! A request on its way through the world.

use spillway_route::WaitTicket;
use spillway_types::{BlockHashes, Inquiry, Prediction};

use crate::Time;

/// Everything about one request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) session: usize,
    pub(super) turn: usize,
    /// The region that its client is nearest to.
    pub(super) region: usize,
    /// The node that its client asked.
    pub(super) entry: usize,
    /// The node that decides about it now: another one while it is a guest.
    pub(super) node: usize,
    pub(super) arrived: Time,
    pub(super) inquiry: Inquiry,
    /// Chain of the engine's blocks of prompt and reply.
    pub(super) engine_chain: Vec<u64>,
    pub(super) prompt_tokens: u32,
    pub(super) reply_tokens: u32,
    pub(super) refused: Vec<usize>,
    pub(super) state: State,
    /// Its place in a queue, while it waits.
    pub(super) ticket: Option<WaitTicket>,
    pub(super) cached_tokens: u32,
    /// From its arrival to the first token, as its client sees it.
    pub(super) first_token_ms: Option<f64>,
    /// How far that was from what was predicted, as a part of it; `None` without a prediction.
    pub(super) prediction_error: Option<f64>,
    /// From its arrival to the last token.
    pub(super) ended_ms: Option<f64>,
    /// The replica that it went to last.
    pub(super) replica: Option<usize>,
    /// A replica's queue was full.
    pub(super) was_refused: bool,
    /// It waited in a node.
    pub(super) waited: bool,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    // Moving => (Waiting | Placed | Over)
    /// On its way between nodes, or being decided about.
    Moving,
    // Waiting => (Moving | Over)
    /// In the queue of its node.
    Waiting,
    // Placed => Over
    /// At a replica, or on the way there.
    Placed(Placed),
    /// It was answered, or given up.
    Over,
}

/// Where a request was sent, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Placed {
    /// The replica, by its number in the world.
    pub(super) replica: usize,
    pub(super) sent: Time,
    pub(super) prediction: Option<Prediction>,
    /// Prompt tokens that the node counts as still to be read there.
    pub(super) pending_tokens: u32,
    /// When its first token was on its way.
    pub(super) first_token: Option<Time>,
}

impl Request {
    /// The prompt's blocks as routers see them.
    pub(super) fn chain(&self) -> &BlockHashes {
        &self.inquiry.prefix
    }
}
