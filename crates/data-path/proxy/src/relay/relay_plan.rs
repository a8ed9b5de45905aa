//! Plan of a relay.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_protocol::{CacheMask, ReplyApi, WholeReader};
use spillway_request::flavour::Flavour;
use spillway_request::reply_hasher::ReplyHasher;
use spillway_types::{Deadline, ModelName, TenantName};
use spillway_upstream::ClientHalf;
use spillway_view::ForwardReplied;

use crate::request::StreamContinuation;
use crate::worker::Worker;

/// Plan for relaying a reply.
#[derive(Debug)]
pub(crate) struct RelayPlan {
    pub(crate) worker: Arc<Worker>,
    /// API of the request, which decides where its reply has facts.
    pub(crate) api: ReplyApi,
    /// Facts of the reply, if all of it was read before.
    pub(crate) reader: Option<Box<WholeReader>>,
    /// True if the engine is known to give a reason for the end of each answer.
    pub(crate) is_known_engine: bool,
    pub(crate) flavour: Flavour,
    pub(crate) strip_usage: bool,
    /// Model that the client named, if the replica stores the reply.
    pub(crate) stored_for: Option<ModelName>,
    /// Tenant that alone may ask for the stored reply again.
    pub(crate) tenant: Option<TenantName>,
    /// Longest time from the request to the first content or byte of the reply.
    pub(crate) first_byte: Duration,
    /// Longest silence after the first content or byte.
    pub(crate) idle: Duration,
    /// Silence towards the client of a stream after which a keep-alive is sent; `None` sends none.
    pub(crate) keep_alive: Option<Duration>,
    /// Time at which the replica or region was asked.
    pub(crate) asked_at: Instant,
    pub(crate) deadline: Deadline,
    /// Hides cached tokens in replies of a replica that does not keep the caches of isolated
    /// tenants apart.
    pub(crate) mask: Option<Box<CacheMask>>,
    /// Client's half of a gRPC stream.
    pub(crate) client_half: Option<ClientHalf>,
    /// Hasher of the reply for the prefix index; `None` if the index does not learn it.
    pub(crate) hasher: Option<Box<ReplyHasher>>,
    /// Report on the reply of another region, for the index of forwards.
    pub(crate) forwarded: Option<Box<ForwardReplied>>,
    /// Means to continue the stream at another replica if it fails.
    pub(crate) resume: Option<Box<StreamContinuation>>,
}
