//! Facts that a request teaches about the replica that served it: caches and speed.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use spillway_route::LearnedReply;
use spillway_types::{BlockHashes, End, ModelName, Prediction, RegionName};

/// Message of the data path to the task that keeps the prefix index and the latency models. Holds
/// hashes only, never a prompt.
#[derive(Clone, Debug, PartialEq)]
pub enum Learning {
    /// A request with these blocks is being sent to a replica of this region: the connection
    /// stands.
    Sent {
        /// The replica, by [`spillway_route::Candidate::identity_of`].
        identity: u64,
        /// The prompt's blocks; never empty.
        chain: BlockHashes,
        /// True if another node forwarded the request.
        is_guest: bool,
    },
    /// The replica did not read the request of [`Sent`](Self::Sent): it broke the connection before
    /// it replied, or replied with an error.
    Unread {
        /// The replica, by [`spillway_route::Candidate::identity_of`].
        identity: u64,
        /// The prompt's blocks; never empty.
        chain: BlockHashes,
    },
    /// The first token of a stream has come from a replica of this region. [`Replied`](Self::Replied)
    /// follows at its end, which may be minutes later.
    Begun(Arc<BegunStream>),
    /// A replica of this region replied, or was given up: the client left, or the time was up.
    Replied(Box<Replied>),
    /// Another region has begun to reply to a request with these blocks.
    Forwarded {
        /// The region.
        region: RegionName,
        /// The prompt's blocks; never empty.
        chain: BlockHashes,
    },
    /// The reply of another region has ended whole.
    ForwardReplied(Box<ForwardReplied>),
}

/// Whole reply of another region, with what it shows about the caches there.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardReplied {
    /// The region.
    pub region: RegionName,
    /// The prompt's blocks; never empty.
    pub chain: BlockHashes,
    /// Blocks of the reply behind those of the prompt; empty if they are not known.
    pub written: BlockHashes,
    /// Size of the prompt in bytes as it was hashed.
    pub prompt_bytes: u32,
    /// Tokens of the prompt; `None` if the reply did not say.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the prompt served from the replica's cache; `None` if the reply did not say.
    pub cached_tokens: Option<u64>,
}

/// First token of a stream, with what it shows about speed.
#[derive(Clone, Debug, PartialEq)]
pub struct BegunStream {
    /// The replica, by [`spillway_route::Candidate::identity_of`].
    pub identity: u64,
    /// The model.
    pub model: ModelName,
    /// Prediction of the route's policy. Its token counts are used until the end of the reply,
    /// which brings the real ones.
    pub predicted: Prediction,
    /// Time from sending the request to the first byte of the reply's body.
    pub first_byte: Duration,
    /// The reply as the latency model has learned it, so that the end of the reply can correct it.
    /// Empty until then; the task that learns sets it.
    pub learned: OnceLock<LearnedReply>,
}

/// A replica's reply, with what it shows about caches and speed.
#[derive(Clone, Debug, PartialEq)]
pub struct Replied {
    /// The replica, by [`spillway_route::Candidate::identity_of`].
    pub identity: u64,
    /// The model.
    pub model: ModelName,
    /// The prompt's blocks; empty if the prompt has no full block.
    pub chain: BlockHashes,
    /// Blocks of the reply, as the next prompt will have them behind those of this one. Empty if the
    /// reply was not whole, if no prompt will repeat it, or if it has no full block.
    pub written: BlockHashes,
    /// Size of the prompt in bytes as it was hashed.
    pub prompt_bytes: u32,
    /// Tokens of the prompt; `None` if the reply did not say.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the prompt served from the replica's cache; `None` if the reply did not say.
    pub cached_tokens: Option<u64>,
    /// Tokens generated, as the reply said or else as counted.
    pub output_tokens: u64,
    /// Answers that these tokens are of, which were generated side by side; at least 1.
    pub answers: u32,
    /// Time from sending the request to the first byte of the reply's body; `None` if none came.
    pub first_byte: Option<Duration>,
    /// Time from sending the request to the end of the reply.
    pub duration: Duration,
    /// True if the reply was a stream of events: only then is the first byte the first token. A reply
    /// in one piece begins when all of it is generated.
    pub is_stream: bool,
    /// The report on the first token; `None` if there was none.
    pub begun: Option<Arc<BegunStream>>,
    /// End of the reply. An incomplete reply does not show how long the rest would have taken.
    pub end: End,
    /// True if the status was one of success.
    pub is_success: bool,
    /// Prediction of the route's policy; `None` if the policy predicts nothing.
    pub predicted: Option<Prediction>,
    /// Mean prompt tokens of all requests at the replica while the reply was generated.
    pub context_tokens: f32,
    /// Prompt tokens that the replica read for this node during that time.
    pub read_tokens: u64,
    /// Requests of this node in flight at the replica when this one was sent, itself included.
    pub in_flight: u32,
}
