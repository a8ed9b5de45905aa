//! The replicas' side: connections, pools, and one attempt at one replica.

mod attempt;
mod body;
mod connect;
mod error;
mod guarded_stream;
mod http1;
mod http2;
mod lent_body;
mod line;
mod message_body;
mod news;
mod pool;
mod streamed_body;
mod tls;

pub use tls::ReplicaTlsError;

pub(crate) use attempt::{AttemptBounds, FailedAttempt, UpstreamReply, attempt};
pub(crate) use body::{OutboundBody, RequestBody};
pub(crate) use http1::Http1Connection;
pub(crate) use lent_body::LentBody;
pub(crate) use line::{GrpcLine, LineKind, Traffic, UpstreamLine};
pub(crate) use message_body::{ClientHalf, MessageBody};
pub(crate) use pool::Pool;
pub(crate) use tls::ReplicaTls;
