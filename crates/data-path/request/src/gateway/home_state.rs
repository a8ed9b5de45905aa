//! Replicas and regions to which later requests of a client go back.

use spillway_view::{Conversations, HomeOutbox, StoredResponses};

/// Homes of responses and conversations. Requests and the exchange between nodes write them.
#[derive(Debug, Default)]
pub struct HomeState {
    /// Replicas that store responses.
    pub responses: StoredResponses,
    /// Regions that served conversations before.
    pub conversations: Conversations,
    /// Homes of responses, sessions and conversations that have to be sent to the other nodes.
    pub outbox: HomeOutbox,
}
