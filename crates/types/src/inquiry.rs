//! A request as the router sees it.

use std::net::IpAddr;

use crate::{BlockHashes, Deadline, ModelName, Residency, TenantName};

/// Everything a routing decision may know about a request. Made only by parsing, so it can't be
/// invalid later.
#[derive(Clone, Debug)]
pub struct Inquiry {
    /// The model to serve it with, aliases already resolved; `None` on routes without models.
    pub model: Option<ModelName>,
    /// Chained hashes of the prompt's blocks; empty where the request has no prompt.
    pub prefix: BlockHashes,
    /// Size of the prompt in bytes of JSON text.
    pub prompt_bytes: u32,
    /// Most tokens that the client wants to have generated; `None` if it does not say.
    pub output_tokens_max: Option<u32>,
    /// Keyed hash of what the route hashes by, e.g. a session: requests with equal values belong
    /// together. `None` if the route hashes by nothing, or the request has no such key.
    pub affinity: Option<u64>,
    /// The replica that earlier requests of the same session went to, by its identity.
    pub session: Option<u64>,
    /// The client's address, seen through trusted proxies only.
    pub client: IpAddr,
    /// When the answer becomes useless.
    pub deadline: Deadline,
    /// How many nodes have forwarded it already.
    pub hop: u8,
    /// Whose it is, by its credential; `None` where none is asked for.
    pub tenant: Option<TenantName>,
    /// Its class, by its credential: 0 is served first.
    pub priority: u8,
    /// Where it may be served, by its credential, its tenant and its route.
    pub residency: Residency,
    /// Its prompt must not look like that of another tenant.
    pub is_isolated: bool,
}
