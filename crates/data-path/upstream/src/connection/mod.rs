//! The replicas' side: connections, pools, and one attempt at one replica.

mod attempt;
mod body;
mod connect;
mod error;
mod guarded_stream;
mod http1;
mod http2;
mod kept_body;
mod lent_body;
mod line;
mod message_body;
mod open_uploads;
mod pool;
mod shared_connections;
mod stream_count;
mod streamed_body;
mod tls;

pub use tls::ReplicaTlsError;

pub use attempt::{AttemptBounds, FailedAttempt, Sending, WorkerPools, attempt};
pub use body::{OutboundBody, RequestBody};
pub use error::{AttemptError, ConnectionError};
pub use http1::{Http1Connection, Http1Error, NotUsable};
pub use http2::{FailedExchange, Http2Body, Http2Connection, Http2Error, OpenStream};
pub use kept_body::KeptBody;
pub use lent_body::LentBody;
pub use line::{GrpcLine, LineKind, Traffic, UpstreamLine};
pub use message_body::{ClientHalf, MessageBody};
pub use pool::{Pool, UnaskedBytes};
pub use shared_connections::{Found, OpeningTurn, SharedConnections};
pub use streamed_body::{StreamedBody, StreamedBodyError, UploadHold, UploadProgress};
pub use tls::ReplicaTls;
