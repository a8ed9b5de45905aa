//! Connection parameters of a replica: those of its main address, or of a separate one for gRPC.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderValue;

use crate::replica::{GrpcTarget, Replica, ReplicaProtocol, authority};
use crate::upstream::tls::{ReplicaTls, ReplicaTlsError};

/// Kind of traffic over a connection to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    Http,
    Grpc,
}

/// Parameters of a connection.
#[derive(Debug)]
pub(crate) struct UpstreamLine<'r> {
    pub(crate) kind: LineKind,
    pub(crate) tls: Option<&'r ReplicaTls>,
    /// Authority, for `Host` or `:authority`.
    pub(crate) authority: &'r HeaderValue,
    pub(crate) addresses: Arc<Vec<SocketAddr>>,
}

/// Kinds of connections to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineKind {
    /// HTTP/1.1, with one connection for each request.
    Http1,
    /// HTTP/2 to the main address; also for gRPC if there is no separate address.
    Http2,
    /// HTTP/2 to the separate address for gRPC.
    Grpc,
}

/// Separate address of a replica for gRPC.
#[derive(Debug)]
pub(crate) struct GrpcLine {
    tls: Option<ReplicaTls>,
    authority: HeaderValue,
    /// Resolved addresses, kept fresh by the node.
    addresses: ArcSwap<Vec<SocketAddr>>,
}

impl GrpcLine {
    /// Returns the address without resolved addresses yet.
    ///
    /// # Errors
    /// Returns an error if the TLS settings do not work.
    pub(crate) fn new(target: &GrpcTarget) -> Result<Self, ReplicaTlsError> {
        let tls = target.tls.as_ref();
        let tls = tls.map(|tls| ReplicaTls::new(tls, &target.host, ReplicaProtocol::Http2));
        Ok(Self {
            tls: tls.transpose()?,
            authority: authority(&target.host, target.port, target.tls.is_some()),
            addresses: ArcSwap::default(),
        })
    }

    pub(crate) fn set_addresses(&self, addresses: Vec<SocketAddr>) {
        if **self.addresses.load() != addresses {
            self.addresses.store(Arc::new(addresses));
        }
    }
}

impl Replica {
    /// Returns true if gRPC requests can be sent to this replica.
    pub(crate) fn speaks_grpc(&self) -> bool {
        self.server.grpc.is_some() || self.spec.protocol == ReplicaProtocol::Http2
    }

    /// Returns the connection parameters for this traffic. gRPC goes only to replicas that speak
    /// it.
    pub(crate) fn line(&self, traffic: Traffic) -> UpstreamLine<'_> {
        if traffic == Traffic::Grpc
            && let Some(grpc) = &self.server.grpc
        {
            return UpstreamLine {
                kind: LineKind::Grpc,
                tls: grpc.tls.as_ref(),
                authority: &grpc.authority,
                addresses: grpc.addresses.load_full(),
            };
        }
        UpstreamLine {
            kind: match self.spec.protocol {
                ReplicaProtocol::Http1 => LineKind::Http1,
                ReplicaProtocol::Http2 => LineKind::Http2,
            },
            tls: self.server.tls.as_ref(),
            authority: &self.server.authority,
            addresses: self.addresses(),
        }
    }
}
