//! A node's connections to one replica: addresses, pools, and what they have shown of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::HeaderValue;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use spillway_resolver::{HostPort, Resolver};
use spillway_types::BasePath;

use crate::connection_count::ConnectionCount;
use crate::http1::Http1Connection;
use crate::line::{GrpcLine, LineKind, Traffic, UpstreamLine};
use crate::pool::{Pool, UnaskedBytes};
use crate::server_spec::{ReplicaProtocol, ServerSpec, authority};
use crate::stream_slots::{StreamSlot, StreamSlots};
use crate::tls::{ReplicaTls, ReplicaTlsError};

/// Connections of this node to one replica, shared by its workers. Locks nothing.
#[derive(Debug)]
pub struct ReplicaConnections {
    protocol: ReplicaProtocol,
    /// TLS settings; `None` for plain text.
    tls: Option<ReplicaTls>,
    /// Parameters of the gRPC port, if it has its own.
    grpc: Option<GrpcLine>,
    /// `Host` header of requests to the server.
    authority: HeaderValue,
    base: Option<BasePath>,
    /// Host and port, with the addresses that the resolver keeps; requests never wait for names.
    endpoint: HostPort,
    resolver: Resolver,
    /// Time after which an idle connection is closed.
    idle: Duration,
    /// Open connections.
    open: Arc<AtomicU32>,
    /// Connection pools, one per worker, so that workers never share a connection.
    pools: Box<[Pool]>,
    /// Slots for streams at the main address, and at the one for gRPC.
    streams: [Arc<StreamSlots>; 2],
    /// Times that the server sent bytes which no request had asked for.
    unasked: AtomicU64,
    /// Number of these times that were reported.
    unasked_reported: AtomicU64,
}

impl ReplicaConnections {
    /// Returns the parameters without any connection. `workers` is the number of pools, and
    /// `resolver` looks the name up.
    ///
    /// # Errors
    /// Returns an error if the TLS settings do not work.
    pub fn new(
        spec: ServerSpec<'_>,
        workers: usize,
        resolver: &Resolver,
    ) -> Result<Self, ReplicaTlsError> {
        let tls = spec.tls.map(|tls| ReplicaTls::new(tls, spec.host, spec.protocol)).transpose()?;
        Ok(Self {
            protocol: spec.protocol,
            authority: authority(spec.host, spec.port, spec.tls.is_some()),
            grpc: spec.grpc.map(|grpc| GrpcLine::new(grpc, resolver)).transpose()?,
            tls,
            base: spec.base.cloned(),
            endpoint: resolver.endpoint(spec.host, spec.port),
            resolver: resolver.clone(),
            idle: spec.idle,
            open: Arc::default(),
            pools: (0..workers.max(1)).map(|_| Pool::new(spec.in_flight_max)).collect(),
            streams: Default::default(),
            unasked: AtomicU64::new(0),
            unasked_reported: AtomicU64::new(0),
        })
    }

    /// Returns true if gRPC requests can be sent to this replica.
    pub fn speaks_grpc(&self) -> bool {
        self.grpc.is_some() || self.protocol == ReplicaProtocol::Http2
    }

    /// Returns the kind of connection for this traffic.
    pub(crate) fn line_kind(&self, traffic: Traffic) -> LineKind {
        match (traffic, self.protocol) {
            (Traffic::Grpc, _) if self.grpc.is_some() => LineKind::Grpc,
            (_, ReplicaProtocol::Http1) => LineKind::Http1,
            (_, ReplicaProtocol::Http2) => LineKind::Http2,
        }
    }

    /// Returns the connection parameters for this traffic. gRPC goes only to replicas that speak
    /// it.
    pub fn line(&self, traffic: Traffic) -> UpstreamLine<'_> {
        if traffic == Traffic::Grpc
            && let Some(grpc) = &self.grpc
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
            tls: self.tls.as_ref(),
            authority: &self.authority,
            base: self.base.as_ref(),
            endpoint: &self.endpoint,
        }
    }

    /// Returns the number of this node's connections, idle ones included.
    #[must_use]
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns the TLS settings and the expected name of the certificate; `None` for cleartext.
    #[must_use]
    pub fn tls_client(&self) -> Option<(&Arc<ClientConfig>, &ServerName<'static>)> {
        self.tls.as_ref().map(|tls| (&tls.config, &tls.server_name))
    }

    /// Returns the resolver that looks the replica's name up.
    #[must_use]
    pub fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Returns true if an address of the replica's name is known. Without one, the replica can be
    /// given no request.
    #[must_use]
    pub fn has_address(&self) -> bool {
        self.endpoint.host().has_address()
    }

    /// Returns when the first look-up of the replica's name has ended.
    pub async fn resolved(&self) {
        self.endpoint.host().ready().await;
    }

    /// Takes an idle HTTP/1.1 connection of a worker that is usable; `None` if there is none.
    pub fn take_idle(&self, worker: usize, now: Instant) -> Option<Box<Http1Connection>> {
        self.trusting(self.pool(worker).take(self.idle, now)).flatten()
    }

    /// Keeps an HTTP/1.1 connection whose reply has ended, if it can serve again.
    pub fn keep(&self, worker: usize, connection: Box<Http1Connection>, now: Instant) {
        self.trusting(self.pool(worker).put(connection, now));
    }

    /// Closes connections that were idle for too long or that the server closed. Call it now and then.
    pub fn sweep(&self, worker: usize, now: Instant) {
        let pool = self.pool(worker);
        self.trusting(pool.sweep(self.idle, now));
        for kind in [LineKind::Http2, LineKind::Grpc] {
            if let Some(max) = pool.shared(kind).newest_max() {
                self.note_streams_max(kind, max);
            }
        }
    }

    /// Counts bytes that no request had asked for, and closes all idle connections: similar bytes
    /// may be in transit on any of them, and would be taken for the reply to the next request.
    fn trusting<T>(&self, checked: Result<T, UnaskedBytes>) -> Option<T> {
        match checked {
            Ok(value) => Some(value),
            Err(UnaskedBytes) => {
                self.unasked.fetch_add(1, Ordering::Relaxed);
                self.pools.iter().for_each(Pool::close_idle);
                None
            }
        }
    }

    /// Returns how often the server sent bytes on a kept connection that no request had asked for.
    #[must_use]
    pub fn unasked(&self) -> u64 {
        self.unasked.load(Ordering::Relaxed)
    }

    /// Returns those since the last call.
    #[must_use]
    pub fn take_unasked(&self) -> u64 {
        let all = self.unasked();
        all.saturating_sub(self.unasked_reported.swap(all, Ordering::Relaxed))
    }

    /// Notes the most streams that the server takes on a connection; `u32::MAX` for no limit.
    pub(crate) fn note_streams_max(&self, kind: LineKind, each: u32) {
        self.streams_of(kind).note_max(each);
    }

    /// Returns how many more streams the server takes for this traffic, over all connections that are
    /// opened for them; `u32::MAX` over HTTP/1.1, where requests have no streams.
    pub fn streams_free(&self, traffic: Traffic) -> u32 {
        match self.line_kind(traffic) {
            LineKind::Http1 => u32::MAX,
            kind => self.streams_of(kind).free(),
        }
    }

    /// Takes a slot for a stream of this traffic; `None` if the server takes no more streams.
    #[must_use]
    pub fn take_stream(&self, traffic: Traffic) -> Option<StreamSlot> {
        match self.line_kind(traffic) {
            LineKind::Http1 => Some(StreamSlot::NONE),
            kind => self.streams_of(kind).take(),
        }
    }

    fn streams_of(&self, kind: LineKind) -> &Arc<StreamSlots> {
        match kind {
            LineKind::Http1 | LineKind::Http2 => &self.streams[0],
            LineKind::Grpc => &self.streams[1],
        }
    }

    /// Returns the connection pool of a worker.
    pub fn pool(&self, worker: usize) -> &Pool {
        &self.pools[worker % self.pools.len()]
    }

    /// Counts a connection until the returned guard is dropped.
    pub fn count_connection(&self) -> ConnectionCount {
        self.open.fetch_add(1, Ordering::Relaxed);
        ConnectionCount::new(&self.open)
    }
}
