//! Small HTTP client: one server, one request at a time, everything bounded.

mod client;
mod connect;
mod failure;
mod h2;
mod reply_body;

pub(crate) use client::{HttpClient, HttpReply, Reuse};
pub use connect::TlsTarget;
pub(crate) use connect::{HttpServer, connect, connect_tcp, late};
pub use failure::RequestError;
use serde::{Deserialize, Serialize};

/// Largest reply that is read, in bytes. The metrics page of a server with many models is far
/// below.
pub(crate) const BODY_BYTES_MAX: usize = 4 << 20;

/// Protocol of a server.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum HttpProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2; in cleartext with prior knowledge.
    Http2,
}
