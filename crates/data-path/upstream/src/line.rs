//! Connection parameters of a replica: those of its main address, or of a separate one for gRPC.

use http::HeaderValue;
use spillway_resolver::{HostPort, Resolver};
use spillway_types::BasePath;

use crate::server_spec::{GrpcTarget, ReplicaProtocol, authority};
use crate::tls::{ReplicaTls, ReplicaTlsError};

/// Kind of traffic over a connection to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Plain HTTP.
    Http,
    /// gRPC.
    Grpc,
}

/// Parameters of a connection.
#[derive(Debug)]
pub struct UpstreamLine<'r> {
    /// Protocol of the connection.
    pub kind: LineKind,
    /// TLS settings; `None` for plain text.
    pub tls: Option<&'r ReplicaTls>,
    /// Authority, for `Host` or `:authority`.
    pub authority: &'r HeaderValue,
    /// Path below which the server has its API; `None` for the root.
    pub base: Option<&'r BasePath>,
    /// Host and port to connect to.
    pub endpoint: &'r HostPort,
}

/// Kinds of connections to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// HTTP/1.1, with one connection for each request.
    Http1,
    /// HTTP/2 to the main address; also for gRPC if there is no separate address.
    Http2,
    /// HTTP/2 to the separate address for gRPC.
    Grpc,
}

/// Separate address of a replica for gRPC.
#[derive(Debug)]
pub struct GrpcLine {
    pub(crate) tls: Option<ReplicaTls>,
    pub(crate) authority: HeaderValue,
    pub(crate) endpoint: HostPort,
}

impl GrpcLine {
    /// Returns the parameters of this address.
    ///
    /// # Errors
    /// Returns an error if the TLS settings do not work.
    pub fn new(target: &GrpcTarget, resolver: &Resolver) -> Result<Self, ReplicaTlsError> {
        let tls = target.tls.as_ref();
        let tls = tls.map(|tls| ReplicaTls::new(tls, &target.host, ReplicaProtocol::Http2));
        Ok(Self {
            tls: tls.transpose()?,
            authority: authority(&target.host, target.port, target.tls.is_some()),
            endpoint: resolver.endpoint(&target.host, target.port),
        })
    }
}
