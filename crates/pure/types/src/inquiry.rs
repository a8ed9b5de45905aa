//! A request as the router sees it.

use std::net::IpAddr;

use crate::{BlockHashes, Deadline, ModelName, Residency, TenantName};

/// Everything that a routing decision may know about a request. Only parsing makes one, so later
/// code never sees an invalid one.
#[derive(Clone, Debug)]
pub struct Inquiry {
    /// The model that is to serve the request, aliases resolved; `None` on routes without models.
    pub model: Option<ModelName>,
    /// Chained hashes of the prompt's blocks; empty where the request has no prompt.
    pub prefix: BlockHashes,
    /// Size of the prompt in bytes of JSON text.
    pub prompt_bytes: u32,
    /// Most tokens that the client wants generated; `None` if the client sets no limit.
    pub output_tokens_max: Option<u32>,
    /// Tokens that replies of this model on this route usually have; `None` while that is unknown.
    pub output_tokens: Option<u32>,
    /// Tokens that the reply is expected to have if the client gets it in one piece, so that none of
    /// it is of use before its last token. `None` for a stream, and for a reply that is no generated
    /// text.
    pub whole_tokens: Option<u32>,
    /// Answers that the client wants, which an engine generates side by side; at least 1.
    pub answers: u32,
    /// Keyed hash of what the route hashes by, e.g. a session: requests with equal values belong
    /// together. `None` if the route hashes by nothing, or the request lacks that key.
    pub affinity: Option<u64>,
    /// Identity of the replica that served the session's earlier requests.
    pub session: Option<u64>,
    /// The client's address, seen through trusted proxies only.
    pub client: IpAddr,
    /// Moment after which the answer is useless.
    pub deadline: Deadline,
    /// Number of nodes that have forwarded the request already.
    pub hop: u8,
    /// Tenant of the request's credential; `None` where none is asked for.
    pub tenant: Option<TenantName>,
    /// Priority class of the credential; 0 is served first.
    pub priority: u8,
    /// Regions and countries that credential, tenant and route allow.
    pub residency: Residency,
    /// True if the tenant's prompts must not share cache entries with equal prompts of other
    /// tenants.
    pub is_isolated: bool,
}
