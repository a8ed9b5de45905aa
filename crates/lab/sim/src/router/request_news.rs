//! News of requests: events of a router's own requests and of those of its neighbours.

use spillway_types::{KvEvent, Prediction};

/// Request that was sent to an own replica.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    /// Number of the request in the world.
    pub request: usize,
    /// Number of the replica.
    pub replica: usize,
    /// Blocks of the prompt, as a chain of hashes.
    pub chain: &'a [u64],
    /// True if this node sent the request itself.
    pub is_own: bool,
    /// Moment at which this node learns of the request, in milliseconds since the beginning.
    pub now_ms: u64,
}

/// Reply that began.
#[derive(Clone, Copy, Debug)]
pub struct Replied<'a> {
    /// Number of the request in the world.
    pub request: usize,
    /// Number of the replica.
    pub replica: usize,
    /// Blocks of the prompt, as a chain of hashes.
    pub chain: &'a [u64],
    /// Length of the prompt in tokens.
    pub prompt_tokens: u32,
    /// Prompt tokens found in the replica's cache.
    pub cached_tokens: u32,
    /// Milliseconds from sending the request to the first token.
    pub first_token_ms: f64,
    /// Bytes of the prompt.
    pub prompt_bytes: u32,
    /// Prediction at the moment of sending.
    pub prediction: Option<Prediction>,
    /// Present moment, in milliseconds since the beginning.
    pub now_ms: u64,
}

/// Reply that ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// Number of the request in the world.
    pub request: usize,
    /// Number of the replica.
    pub replica: usize,
    /// Blocks of prompt and reply, as a chain of hashes: the replica now has them cached.
    pub chain: &'a [u64],
    /// Number of the chain's leading blocks that are blocks of the prompt.
    pub prompt_blocks: usize,
    /// Tokens after the first one.
    pub tokens: u32,
    /// Milliseconds from the first token to the last.
    pub span_ms: f64,
    /// Mean tokens of context at the replica during that time.
    pub context_tokens: f32,
    /// Prompt tokens that the replica read for this node during that time.
    pub read_tokens: f32,
}

/// Prompt with its reply that an own replica now has cached.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// Number of the replica.
    pub replica: usize,
    /// Blocks of prompt and reply, as a chain of hashes.
    pub chain: &'a [u64],
    /// Number of those blocks that are of the prompt.
    pub prompt_blocks: usize,
    /// Length of the prompt in tokens.
    pub prompt_tokens: u32,
    /// Prompt tokens found in the replica's cache.
    pub cached_tokens: u32,
    /// Length of the reply in tokens.
    pub reply_tokens: u32,
    /// Moment at which this node learns of the reply's end, in milliseconds since the beginning.
    pub now_ms: u64,
    /// True if this node sent the request itself.
    pub is_own: bool,
}

/// News that the engine of an own replica published of its cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheReport<'a> {
    /// Number of the replica.
    pub replica: usize,
    /// Published changes.
    pub news: CacheNews<'a>,
    /// Moment at which this node learns of it, in milliseconds since the beginning.
    pub now_ms: u64,
}

/// News of an engine's cache.
#[derive(Clone, Copy, Debug)]
pub enum CacheNews<'a> {
    /// Blocks that were stored and evicted, in their order.
    Events(&'a [KvEvent]),
    /// Events got lost: the effects of earlier ones may be wrong.
    Missed,
}

/// Station of a request that went to another region.
#[derive(Clone, Copy, Debug)]
pub struct Forwarded<'a> {
    /// Number of the request in the world.
    pub request: usize,
    /// Number of the other region.
    pub region: usize,
    /// Blocks of the prompt, as a chain of hashes.
    pub chain: &'a [u64],
    /// Moment at which this node learns of it, in milliseconds since the beginning.
    pub now_ms: u64,
    /// True if this node sent the request itself.
    pub is_own: bool,
    /// Station that the request has reached.
    pub stage: Stage<'a>,
}

/// Stations of a request that goes to another region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage<'a> {
    // Sent => (Replied | Refused), or nothing more if the client leaves
    /// Sent to the other region.
    Sent,
    // Replied => Ended
    /// The first token of the reply came back.
    Replied {
        /// Prompt tokens found in the cache of the replica there.
        cached_tokens: u32,
    },
    /// The whole reply came back.
    Ended {
        /// Blocks of prompt and reply, as a chain of hashes: the region now has them cached.
        whole: &'a [u64],
    },
    /// The other region refused the request.
    Refused,
}
