//! Interface to the node's routing: explains where one request would go.

use std::fmt::Debug;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;
use spillway_types::TenantName;

/// Explains where a request would go, without sending it. Implemented by the node's data path.
pub trait Explain: Debug + Send + Sync {
    /// Explains one request, as JSON in the form of the OpenAPI document. Must not wait for long:
    /// the answer is about this moment.
    fn explain(&self, request: ExplainRequest) -> Explaining<'_>;
}

/// An explanation that is being made.
pub type Explaining<'a> = Pin<Box<dyn Future<Output = Result<Value, ExplainError>> + Send + 'a>>;

/// A request to explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainRequest {
    /// Path that a client would send the request to.
    pub path: String,
    /// Headers that a client would send, e.g. of a session.
    pub headers: HeaderMap,
    /// Body of the request, byte for byte.
    pub body: Bytes,
    /// Tenant of the request; `None` for a client without a key.
    pub tenant: Option<TenantName>,
    /// Address of the client; `None` if its country is to be unknown.
    pub client: Option<IpAddr>,
    /// True if the caller may learn which prompts of an isolated tenant are cached.
    pub sees_isolated: bool,
}

/// Error for a request that cannot be explained: sent for real, it would be answered with an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}: {remedy}")]
pub struct ExplainError {
    /// Fault of the request.
    pub cause: String,
    /// Advice to the client.
    pub remedy: String,
}
