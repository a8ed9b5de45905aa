//! Where a replica is reached and how: its one address, or a second one for gRPC.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderValue;

use crate::replica::{GrpcTarget, Replica, ReplicaProtocol, authority};
use crate::upstream::tls::{ReplicaTls, ReplicaTlsError};

/// What goes over a connection to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    Http,
    Grpc,
}

/// What a connection is made from.
#[derive(Debug)]
pub(crate) struct Line<'r> {
    pub(crate) kind: LineKind,
    pub(crate) tls: Option<&'r ReplicaTls>,
    /// As `Host` or `:authority` has it.
    pub(crate) authority: &'r HeaderValue,
    pub(crate) addresses: Arc<Vec<SocketAddr>>,
}

/// Which of a replica's connections are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineKind {
    /// HTTP/1.1, a connection for each request.
    Http1,
    /// HTTP/2 to the main address; gRPC too, where there is no second one.
    Http2,
    /// HTTP/2 to the address for gRPC.
    Grpc,
}

/// A replica's second address.
#[derive(Debug)]
pub(crate) struct GrpcLine {
    tls: Option<ReplicaTls>,
    authority: HeaderValue,
    /// Kept fresh by the node.
    addresses: ArcSwap<Vec<SocketAddr>>,
}

impl GrpcLine {
    /// # Errors
    /// If the TLS settings do not work.
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
    /// Whether gRPC requests can be sent to it.
    pub(crate) fn speaks_grpc(&self) -> bool {
        self.server.grpc.is_some() || self.spec.protocol == ReplicaProtocol::Http2
    }

    /// The way for this traffic. gRPC goes only to replicas that speak it.
    pub(crate) fn line(&self, traffic: Traffic) -> Line<'_> {
        if traffic == Traffic::Grpc
            && let Some(grpc) = &self.server.grpc
        {
            return Line {
                kind: LineKind::Grpc,
                tls: grpc.tls.as_ref(),
                authority: &grpc.authority,
                addresses: grpc.addresses.load_full(),
            };
        }
        Line {
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
