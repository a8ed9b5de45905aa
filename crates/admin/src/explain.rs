//! What the node adds to the API: where one request would go, and why.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;
use spillway_types::TenantName;

/// Says where a request would go, without sending it there. The node's data path does.
pub trait Explain: Debug + Send + Sync {
    /// Explains one request: JSON as the OpenAPI document has it. Must not wait for long: the
    /// answer is about this moment.
    fn explain(&self, request: ExplainRequest) -> Explaining<'_>;
}

/// An explanation that is being made.
pub type Explaining<'a> = Pin<Box<dyn Future<Output = Result<Value, ExplainFault>> + Send + 'a>>;

/// A request that somebody asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainRequest {
    /// Where a client would send it.
    pub path: String,
    /// What a client would say besides, e.g. a session.
    pub headers: HeaderMap,
    /// Its body, byte for byte.
    pub body: Bytes,
    /// Whose request it would be; none for a client without a key.
    pub tenant: Option<TenantName>,
}

/// There is nothing to explain: the request itself would be answered with an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}: {remedy}")]
pub struct ExplainFault {
    /// What is wrong with the request.
    pub cause: String,
    /// What to do about it.
    pub remedy: String,
}
