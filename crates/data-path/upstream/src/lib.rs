//! Connections to replicas: pools, requests and replies over HTTP/1.1 and HTTP/2, and one attempt at
//! one replica.

mod attempt;
mod body;
mod connect;
mod connection_count;
mod error;
mod executor;
mod guarded_stream;
mod http1;
mod http2;
mod kept_body;
mod lent_body;
mod line;
mod message_body;
mod open_uploads;
mod pool;
mod replica_connections;
mod server_spec;
mod shared_connections;
mod stream_count;
mod stream_slots;
mod streamed_body;
mod timeouts;
mod tls;
mod upstream_body;

pub use attempt::{AttemptBounds, FailedAttempt, Sending, WorkerPools, attempt};
pub use body::{OutboundBody, RequestBody};
pub use connection_count::ConnectionCount;
pub use error::{AttemptError, ConnectionError};
pub use http1::{Http1Connection, Http1Error, NotUsable};
pub use http2::{FailedExchange, Http2Body, Http2Connection, Http2Error, OpenStream};
pub use kept_body::KeptBody;
pub use lent_body::LentBody;
pub use line::{GrpcLine, LineKind, Traffic, UpstreamLine};
pub use message_body::{ClientHalf, MessageBody};
pub use pool::{Pool, UnaskedBytes};
pub use replica_connections::ReplicaConnections;
pub use server_spec::{
    ClientIdentity, GrpcTarget, ReplicaProtocol, ServerSpec, TlsSpec, authority,
};
pub use shared_connections::{OpeningTurn, SharedConnections, StreamOrTurn};
pub use stream_slots::StreamSlot;
pub use streamed_body::{StreamedBody, StreamedBodyError, UploadHold, UploadProgress};
pub use timeouts::Timeouts;
pub use tls::{ReplicaTls, ReplicaTlsError};
pub use upstream_body::{BegunBody, UpstreamBody, UpstreamBodyError};
