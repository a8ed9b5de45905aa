//! What a request teaches about the replica that served it: caches and speed.

use std::time::Duration;

use spillway_types::{BlockHashes, End, ModelName, Prediction};

/// One lesson, left by the data path for the task that keeps the prefix index and the latency
/// models. Holds hashes only, never a prompt.
#[derive(Clone, Debug, PartialEq)]
pub enum Learning {
    /// A request with these blocks is being sent to a replica of this region: there is a connection.
    Sent {
        /// The replica, by [`spillway_route::Candidate::identity_of`].
        identity: u64,
        /// The prompt's blocks; never empty.
        chain: BlockHashes,
    },
    /// The replica did not read what was [`Sent`](Self::Sent): it broke the connection before it
    /// replied, or replied with an error.
    Unread {
        /// The replica, by [`spillway_route::Candidate::identity_of`].
        identity: u64,
        /// The prompt's blocks; never empty.
        chain: BlockHashes,
    },
    /// A replica of this region replied, or might have: whoever asked left, or its time was up.
    Replied(Box<Replied>),
}

/// A reply of a replica, as far as it tells about caches and speed.
#[derive(Clone, Debug, PartialEq)]
pub struct Replied {
    /// The replica, by [`spillway_route::Candidate::identity_of`].
    pub identity: u64,
    /// The model.
    pub model: ModelName,
    /// The prompt's blocks; empty where it has no full one.
    pub chain: BlockHashes,
    /// Size of the prompt in bytes as it was hashed.
    pub prompt_bytes: u32,
    /// Tokens of the prompt; `None` if the reply did not tell.
    pub prompt_tokens: Option<u64>,
    /// Of these, served from the replica's cache; `None` if the reply did not tell.
    pub cached_tokens: Option<u64>,
    /// Tokens generated, as told or else counted.
    pub output_tokens: u64,
    /// From sending the request to the first byte of the reply's body; `None` if none came.
    pub first_byte: Option<Duration>,
    /// From sending the request to the reply's end.
    pub duration: Duration,
    /// The reply was a stream of events: only then does the first byte tell of the first token.
    pub is_stream: bool,
    /// How it ended. Nothing of a reply that was not complete says how long the rest would take.
    pub end: End,
    /// Whether the replica served it: its status was one of success.
    pub is_success: bool,
    /// What its policy predicted; `None` where the policy predicts nothing.
    pub predicted: Option<Prediction>,
    /// Requests that this node had in flight there when it was sent, itself included.
    pub in_flight: u32,
}
