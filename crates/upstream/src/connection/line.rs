//! Connection parameters of a replica: those of its main address, or of a separate one for gRPC.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderValue;

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
    /// Addresses to connect to, in the order of preference.
    pub addresses: Arc<Vec<SocketAddr>>,
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
    /// Resolved addresses, kept fresh by the node.
    addresses: ArcSwap<Vec<SocketAddr>>,
}

impl GrpcLine {
    /// Returns the address without resolved addresses yet.
    ///
    /// # Errors
    /// Returns an error if the TLS settings do not work.
    pub fn new(target: &GrpcTarget) -> Result<Self, ReplicaTlsError> {
        let tls = target.tls.as_ref();
        let tls = tls.map(|tls| ReplicaTls::new(tls, &target.host, ReplicaProtocol::Http2));
        Ok(Self {
            tls: tls.transpose()?,
            authority: authority(&target.host, target.port, target.tls.is_some()),
            addresses: ArcSwap::default(),
        })
    }

    /// Sets the addresses that the gRPC port's name resolved to.
    pub fn set_addresses(&self, addresses: Vec<SocketAddr>) {
        if **self.addresses.load() != addresses {
            self.addresses.store(Arc::new(addresses));
        }
    }
}

impl Replica {
    /// Returns true if gRPC requests can be sent to this replica.
    pub fn speaks_grpc(&self) -> bool {
        self.server.grpc.is_some() || self.spec.protocol == ReplicaProtocol::Http2
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
