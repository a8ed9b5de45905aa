//! Connection parameters of a replica: those of its main address, or of a separate one for gRPC.

use http::HeaderValue;
use spillway_resolver::{Endpoint, Resolver};
use spillway_types::BasePath;

use crate::connection::tls::{ReplicaTls, ReplicaTlsError};
use crate::replica::Replica;
use crate::replica_spec::{GrpcTarget, ReplicaProtocol, authority};

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
    pub endpoint: &'r Endpoint,
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
    tls: Option<ReplicaTls>,
    authority: HeaderValue,
    endpoint: Endpoint,
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

impl Replica {
    /// Returns true if gRPC requests can be sent to this replica.
    pub fn speaks_grpc(&self) -> bool {
        self.server.grpc.is_some() || self.spec.protocol == ReplicaProtocol::Http2
    }

    /// Returns the kind of connection for this traffic.
    pub(crate) fn line_kind(&self, traffic: Traffic) -> LineKind {
        match (traffic, self.spec.protocol) {
            (Traffic::Grpc, _) if self.server.grpc.is_some() => LineKind::Grpc,
            (_, ReplicaProtocol::Http1) => LineKind::Http1,
            (_, ReplicaProtocol::Http2) => LineKind::Http2,
        }
    }

    /// Returns the connection parameters for this traffic. gRPC goes only to replicas that speak
    /// it.
    pub fn line(&self, traffic: Traffic) -> UpstreamLine<'_> {
        if traffic == Traffic::Grpc
            && let Some(grpc) = &self.server.grpc
        {
            return UpstreamLine {
                kind: LineKind::Grpc,
                tls: grpc.tls.as_ref(),
                authority: &grpc.authority,
                base: None,
                endpoint: &grpc.endpoint,
            };
        }
        UpstreamLine {
            kind: self.line_kind(traffic),
            tls: self.server.tls.as_ref(),
            authority: &self.server.authority,
            base: self.spec.base.as_ref(),
            endpoint: &self.server.endpoint,
        }
    }
}
