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
mod open_uploads;
mod pool;
mod streamed_body;
mod tls;

pub use tls::ReplicaTlsError;

pub use attempt::{AttemptBounds, FailedAttempt, WorkerPools, attempt};
pub use body::{OutboundBody, RequestBody};
pub use error::{AttemptError, ConnectionError};
pub use http1::{Http1Connection, Http1Error};
pub use http2::{Http2Body, Http2Connection};
pub use lent_body::LentBody;
pub use line::{GrpcLine, LineKind, Traffic, UpstreamLine};
pub use message_body::{ClientHalf, MessageBody};
pub use pool::Pool;
pub use streamed_body::{StreamedBody, StreamedBodyError, UploadHold, UploadProgress};
pub use tls::ReplicaTls;
