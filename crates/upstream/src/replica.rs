//! A model server: its address, this node's requests and connections there, and its observed state.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::HeaderValue;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use spillway_route::{HoldTime, Sharer};
use spillway_types::Holder;

use crate::concurrency::{ConcurrencyLimiter, ConcurrencySeen};
use crate::connection::{GrpcLine, Pool, ReplicaTls, ReplicaTlsError};
use crate::connection_count::ConnectionCount;
use crate::hold_times::HoldTimes;
use crate::replica_spec::{ReplicaSpec, authority};
use crate::tenant_rests::TenantRests;
use crate::tenants::TenantPlace;
use crate::usage_reports::UsageReports;
use crate::wait_queues::WaitQueues;
use crate::wake;

/// Origin of the times that atomics hold.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Marks a replica without a number in the prefix index; real numbers have 16 bits.
const NO_HOLDER: u32 = u32::MAX;

/// Rest of a replica that said it has no room without naming a time. Its health check takes over
/// after that, and judges by more than one reply.
const REST: Duration = Duration::from_millis(200);
/// Longest rest that a replica may ask for here. The health check has decided by then.
const REST_MAX: Duration = Duration::from_secs(1);

/// Time after which a replica that is down and silent is given up: checks can fail while replies go
/// on.
const DOWN_GRACE: Duration = Duration::from_millis(500);

/// A replica of the current view. Survives reloads that do not change it.
#[derive(Debug)]
pub struct Replica {
    /// Settings.
    pub spec: ReplicaSpec,
    /// State of the server, shared with earlier descriptions of it, by [`Replica::with_spec`].
    pub server: Arc<ReplicaServer>,
}

/// State of one server at this node: connections, counts and observations.
#[derive(Debug)]
pub struct ReplicaServer {
    /// TLS settings; `None` for plain text.
    pub tls: Option<ReplicaTls>,
    /// Parameters of the gRPC port, if it has its own.
    pub grpc: Option<GrpcLine>,
    /// `Host` header of requests to the server.
    pub authority: HeaderValue,
    /// Resolved addresses, kept fresh by the node; requests never resolve names.
    addresses: ArcSwap<Vec<SocketAddr>>,
    in_flight: AtomicU32,
    /// This node's part of the places, if several nodes share the server.
    claim: AtomicU32,
    /// Adaptive concurrency limit, and the requests of the region's other nodes.
    concurrency: ConcurrencyLimiter,
    /// Prompt tokens of other nodes' requests that the server still has to read.
    pending_elsewhere: AtomicU32,
    started: AtomicU64,
    /// Prompt tokens of this node's requests that the server is predicted to still have to read.
    pending_tokens: AtomicU32,
    /// End of the server's rest after it said that it has no room, in milliseconds after [`EPOCH`];
    /// 0 if it does not rest.
    resting_ms: AtomicU64,
    /// Tenants that were refused alone, with the ends of their rests.
    tenant_rests: TenantRests,
    /// Milliseconds after [`EPOCH`] at which the server was found down, plus one; 0 while it is up.
    down_ms: AtomicU64,
    /// True while the server is being drained.
    is_leaving: AtomicBool,
    /// Statistics of the time that requests hold a place.
    hold_times: HoldTimes,
    /// Number of the server in the prefix index; [`NO_HOLDER`] if it has none.
    holder: AtomicU32,
    /// Most usage reports that the server accepts being asked for, as a number.
    usage_limit: AtomicU8,
    /// Milliseconds after [`EPOCH`] of the last byte, or of the first request after an idle time.
    heard_ms: AtomicU64,
    connections: Arc<AtomicU32>,
    /// Connection pools, one per worker, so that workers never share a connection.
    pools: Box<[Pool]>,
}

impl Replica {
    /// Returns a replica without connections; `workers` is its number of pools.
    ///
    /// # Errors
    /// Returns an error if the TLS settings do not work.
    pub fn new(spec: ReplicaSpec, workers: usize) -> Result<Self, ReplicaTlsError> {
        let tls = spec
            .tls
            .as_ref()
            .map(|tls| ReplicaTls::new(tls, &spec.host, spec.protocol))
            .transpose()?;
        let server = ReplicaServer {
            authority: authority(&spec.host, spec.port, spec.tls.is_some()),
            grpc: spec.grpc.as_ref().map(GrpcLine::new).transpose()?,
            tls,
            addresses: ArcSwap::default(),
            in_flight: AtomicU32::new(0),
            claim: AtomicU32::new(u32::MAX),
            concurrency: ConcurrencyLimiter::default(),
            pending_elsewhere: AtomicU32::new(0),
            started: AtomicU64::new(0),
            pending_tokens: AtomicU32::new(0),
            resting_ms: AtomicU64::new(0),
            tenant_rests: TenantRests::default(),
            down_ms: AtomicU64::new(0),
            is_leaving: AtomicBool::new(false),
            hold_times: HoldTimes::default(),
            holder: AtomicU32::new(NO_HOLDER),
            usage_limit: AtomicU8::new(UsageReports::Throughout as u8),
            heard_ms: AtomicU64::new(0),
            connections: Arc::default(),
            pools: (0..workers.max(1)).map(|_| Pool::new(spec.in_flight_max)).collect(),
        };
        Ok(Self { spec, server: Arc::new(server) })
    }

    /// Returns the replica with another description and the state of the same server: connections,
    /// requests in flight, limits. `None` if connections made by one spec can't serve the other;
    /// models, versions, pool, weight and optional features may differ.
    #[must_use]
    pub fn with_spec(&self, spec: &ReplicaSpec) -> Option<Self> {
        let ReplicaSpec { models, versions, pool, weight, continues_chats, salt_field, .. } =
            spec.clone();
        let known = self.spec.clone();
        let (usage_reports, kv_events_port) = (spec.usage_reports, spec.kv_events_port);
        // These fields may differ; all others must be equal.
        let alike = ReplicaSpec {
            models,
            versions,
            pool,
            weight,
            continues_chats,
            salt_field,
            usage_reports,
            kv_events_port,
            ..known
        };
        (alike == *spec).then(|| Self { spec: alike, server: Arc::clone(&self.server) })
    }

    /// Returns true if both share one server state.
    #[must_use]
    pub fn is_same_server(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.server, &other.server)
    }

    /// Returns the configuration.
    #[must_use]
    pub fn spec(&self) -> &ReplicaSpec {
        &self.spec
    }

    /// Returns the number of this node's requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.server.in_flight.load(Ordering::Relaxed)
    }

    /// Returns this node's part of the places; `u32::MAX` if it may use them all.
    #[must_use]
    pub fn claim(&self) -> u32 {
        self.server.claim.load(Ordering::Relaxed)
    }

    /// Sets this node's part of the places; requests in flight stay.
    pub fn set_claim(&self, places: u32) {
        self.server.claim.store(places, Ordering::Relaxed);
    }

    /// Returns the requests of the region's other nodes in flight, by their last report.
    #[must_use]
    pub fn elsewhere(&self) -> u32 {
        self.server.concurrency.elsewhere()
    }

    /// Returns the prompt tokens that the server is predicted to still have to read for other
    /// nodes.
    #[must_use]
    pub fn pending_elsewhere(&self) -> u32 {
        self.server.pending_elsewhere.load(Ordering::Relaxed)
    }

    /// Notes the load by the region's other nodes: their requests in flight, the demand of each
    /// node, and the prompt tokens still to be read for them.
    pub fn set_elsewhere(&self, requests: u32, sharers: Vec<Sharer>, pending_tokens: u32) {
        self.server.concurrency.set_elsewhere(requests, sharers);
        self.server.pending_elsewhere.store(pending_tokens, Ordering::Relaxed);
    }

    /// Notes the requests of the region's other nodes, and the prompt tokens still to be read for
    /// them; the demand of each node stays as [`Self::set_elsewhere`] noted it.
    pub fn note_elsewhere(&self, requests: u32, pending_tokens: u32) {
        self.server.concurrency.note_elsewhere(requests);
        self.server.pending_elsewhere.store(pending_tokens, Ordering::Relaxed);
    }

    /// Returns the adaptive concurrency limit for the region's nodes together; `None` if there is
    /// none.
    #[must_use]
    pub fn concurrency_limit(&self) -> Option<u32> {
        Some(self.server.concurrency.limit()).filter(|&limit| limit < u32::MAX)
    }

    /// Returns the concurrency limit if it was ever needed; `None` for a guess.
    #[must_use]
    pub fn found_limit(&self) -> Option<u32> {
        self.concurrency_limit().filter(|_| self.server.concurrency.is_found())
    }

    /// Returns true if the concurrency limit was never needed yet.
    pub fn has_guessed_limit(&self) -> bool {
        self.concurrency_limit().is_some() && self.found_limit().is_none()
    }

    /// Sets the concurrency limit for the region's nodes together, for requests that can wait;
    /// `None` for no limit below the spec's. `is_found` is true if more requests were seen to be
    /// too much, false if the limit is a guess.
    pub fn set_concurrency_limit(&self, limit: Option<u32>, is_found: bool) {
        self.server.concurrency.set_limit(limit.unwrap_or(u32::MAX), is_found);
    }

    /// Takes out the observations since the last call. Only one task may call it.
    #[must_use]
    pub fn take_concurrency(&self) -> ConcurrencySeen {
        self.server.concurrency.take(self.in_flight())
    }

    /// Returns this node's part of the places now: 0 while the replica rests.
    pub fn places(&self) -> u32 {
        let resting_ms = self.server.resting_ms.load(Ordering::Relaxed);
        // The usual case needs no look at the clock.
        if resting_ms == 0 {
            return self.claim();
        }
        if since_epoch_ms(wake::now()) < resting_ms {
            return 0;
        }
        // Keeps a longer rest that was asked for meanwhile; the next call sees it.
        let order = Ordering::Relaxed;
        let _: Result<u64, u64> =
            self.server.resting_ms.compare_exchange(resting_ms, 0, order, order);
        self.claim()
    }

    /// Returns the places for a request that can or cannot wait at this node. A waiting request
    /// respects the adaptive limit; a request that cannot wait would be refused because of it.
    pub fn places_for(&self, can_wait: bool) -> u32 {
        let places = self.places();
        if can_wait { places.min(self.server.concurrency.part()) } else { places }
    }

    /// Returns the limit of concurrent requests.
    pub fn concurrency(&self) -> &ConcurrencyLimiter {
        &self.server.concurrency
    }

    /// Stops new requests for the time that the replica asked for at `now` when it had no room. The
    /// health check takes over a little later, so the rest is short, and shorter still if no time
    /// was named.
    pub fn rest(&self, now: Instant, asked: Option<Duration>) {
        let rest = asked.unwrap_or(REST).min(REST_MAX);
        // A shorter rest does not end a longer one.
        self.server.resting_ms.fetch_max(since_epoch_ms(now + rest), Ordering::Relaxed);
    }

    /// Returns the rests of tenants that were refused alone.
    pub fn tenant_rests(&self) -> &TenantRests {
        &self.server.tenant_rests
    }

    /// Returns the prompt tokens that the server is predicted to still have to read for this node:
    /// the uncached tokens of requests whose reply has not begun.
    #[must_use]
    pub fn pending_tokens(&self) -> u32 {
        self.server.pending_tokens.load(Ordering::Relaxed)
    }

    /// Returns the number in the prefix index; `None` while there is none.
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        u16::try_from(self.server.holder.load(Ordering::Relaxed)).ok().map(Holder)
    }

    /// Sets or removes the number in the prefix index. A new replica has none, even if it replaces
    /// one of the same name.
    pub fn set_holder(&self, holder: Option<Holder>) {
        let number = holder.map_or(NO_HOLDER, |holder| u32::from(holder.0));
        self.server.holder.store(number, Ordering::Relaxed);
    }

    /// Returns the most usage reports that the server accepts being asked for, as far as its replies
    /// have shown.
    #[must_use]
    pub fn usage_limit(&self) -> UsageReports {
        UsageReports::of_number(self.server.usage_limit.load(Ordering::Relaxed))
    }

    /// Notes that the server refuses to be asked for more than `most`. Returns true if this was not
    /// known. Holds until the replica is replaced.
    pub fn limit_usage(&self, most: UsageReports) -> bool {
        self.server.usage_limit.fetch_min(most as u8, Ordering::Relaxed) > most as u8
    }

    /// Marks the replica as down, when independent signals agree that it serves nothing, or as up
    /// again. Requests that were sent before and get no more bytes are given up.
    pub fn set_down(&self, is_down: bool, now: Instant) {
        if !is_down {
            self.server.down_ms.store(0, Ordering::Relaxed);
            return;
        }
        // Only the first signal counts; later ones do not move the moment.
        let order = Ordering::Relaxed;
        let _: Result<u64, u64> =
            self.server.down_ms.compare_exchange(0, since_epoch_ms(now) + 1, order, order);
    }

    /// Marks the replica as being drained, or as one that stays: streams leave a draining replica
    /// where another place can continue them.
    pub fn set_leaving(&self, is_leaving: bool) {
        self.server.is_leaving.store(is_leaving, Ordering::Relaxed);
    }

    /// Returns true while the replica is being drained.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.server.is_leaving.load(Ordering::Relaxed)
    }

    /// Returns true if a request sent at `asked_at` is lost: the replica went down after that, and
    /// no request got a byte since. Requests that were sent while it was down are not judged by
    /// that.
    pub fn is_gone(&self, asked_at: Instant, now: Instant) -> bool {
        let Some(down_ms) = self.server.down_ms.load(Ordering::Relaxed).checked_sub(1) else {
            return false;
        };
        let grace_ms = u64::try_from(DOWN_GRACE.as_millis()).unwrap_or(u64::MAX);
        since_epoch_ms(asked_at) < down_ms
            && self.server.heard_ms.load(Ordering::Relaxed) < down_ms
            && since_epoch_ms(now) >= down_ms.saturating_add(grace_ms)
    }

    /// Returns the number of requests ever sent to the replica by this node.
    #[must_use]
    pub fn started(&self) -> u64 {
        self.server.started.load(Ordering::Relaxed)
    }

    /// Returns the time without a byte at `now` while requests are in flight; `None` without
    /// requests.
    #[must_use]
    pub fn silent_for(&self, now: Instant) -> Option<Duration> {
        if self.in_flight() == 0 {
            return None;
        }
        let heard_at = *EPOCH + Duration::from_millis(self.server.heard_ms.load(Ordering::Relaxed));
        Some(now.saturating_duration_since(heard_at))
    }

    /// Returns the number of this node's connections, idle ones included.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.server.connections.load(Ordering::Relaxed)
    }

    /// Returns the TLS settings and the expected name of the certificate; `None` for cleartext.
    #[must_use]
    pub fn tls_client(&self) -> Option<(&Arc<ClientConfig>, &ServerName<'static>)> {
        self.server.tls.as_ref().map(|tls| (&tls.config, &tls.server_name))
    }

    /// Sets the addresses for new connections, in the order of preference.
    pub fn set_addresses(&self, addresses: Vec<SocketAddr>) {
        if **self.server.addresses.load() != addresses {
            self.server.addresses.store(Arc::new(addresses));
        }
    }

    /// Sets the addresses for new gRPC connections, if the replica has a separate gRPC address.
    pub fn set_grpc_addresses(&self, addresses: Vec<SocketAddr>) {
        if let Some(grpc) = &self.server.grpc {
            grpc.set_addresses(addresses);
        }
    }

    /// Closes connections that were idle for too long or that the server closed.
    pub fn sweep(&self, worker: usize, now: Instant) {
        self.pool(worker).sweep(self.spec.idle, now);
    }

    /// Returns the connection pool of a worker.
    pub fn pool(&self, worker: usize) -> &Pool {
        &self.server.pools[worker % self.server.pools.len()]
    }

    /// Returns the addresses that the name resolved to last.
    pub fn addresses(&self) -> Arc<Vec<SocketAddr>> {
        self.server.addresses.load_full()
    }

    /// Takes a place for one more request, of `places` in all; `None` if all are taken. Its release
    /// wakes the waiting requests.
    pub fn lease(self: &Arc<Self>, queues: &Arc<WaitQueues>, places: u32) -> Option<Lease> {
        let most = self.spec.in_flight_max.min(places);
        let more = |taken: u32| (taken < most).then(|| taken + 1);
        let order = Ordering::Relaxed;
        let taken = self.server.in_flight.fetch_update(order, order, more).ok()? + 1;
        self.server.concurrency.note_most(taken);
        let now = wake::now();
        // The silence of an idle replica means nothing, so it is measured from here.
        if taken == 1 {
            self.heard(now);
        }
        self.server.started.fetch_add(1, order);
        let (replica, queues) = (Arc::clone(self), Arc::clone(queues));
        Some(Lease { replica, queues, tenant: None, tokens: 0, taken_at: now })
    }

    /// Returns statistics of the time that recent requests of this node held a place.
    pub fn hold_time(&self) -> HoldTime {
        self.server.hold_times.get()
    }

    /// Counts a prompt's tokens as unread until the returned guard is dropped.
    pub fn begin_reading(self: &Arc<Self>, tokens: u32) -> PromptReading {
        self.server.pending_tokens.fetch_add(tokens, Ordering::Relaxed);
        PromptReading { replica: Arc::clone(self), tokens }
    }

    /// Notes that a byte of a reply arrived.
    pub fn heard(&self, now: Instant) {
        self.server.heard_ms.store(since_epoch_ms(now), Ordering::Relaxed);
    }

    /// Counts a connection until the returned guard is dropped.
    pub fn count_connection(&self) -> ConnectionCount {
        self.server.connections.fetch_add(1, Ordering::Relaxed);
        ConnectionCount::new(&self.server.connections)
    }
}

fn since_epoch_ms(at: Instant) -> u64 {
    let passed = at.saturating_duration_since(*EPOCH).as_millis();
    u64::try_from(passed).unwrap_or(u64::MAX)
}

/// Place of one request at a replica; released when dropped.
#[derive(Debug)]
pub struct Lease {
    replica: Arc<Replica>,
    queues: Arc<WaitQueues>,
    /// Place of the same request in its tenant's count.
    tenant: Option<TenantPlace>,
    /// Size of the request in tokens.
    tokens: u32,
    /// Start of the lease.
    taken_at: Instant,
}

impl Lease {
    /// Returns the replica that the place is at.
    pub fn replica(&self) -> &Arc<Replica> {
        &self.replica
    }

    /// Assigns the place to a tenant's count, and notes the request's size in tokens.
    pub fn of(self, tenant: Option<TenantPlace>, tokens: u32) -> Self {
        // Field by field, since a type with `Drop` cannot be taken apart.
        let mut lease = self;
        (lease.tenant, lease.tokens) = (tenant, tokens);
        lease
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.replica.server.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.replica.server.hold_times.note(self.tokens, wake::since(self.taken_at));
        // Released first, so that the woken requests see the tenant's place as free.
        drop(self.tenant.take());
        self.queues.wake();
    }
}

/// Prompt that a replica has to read before its reply begins.
#[derive(Debug)]
pub struct PromptReading {
    replica: Arc<Replica>,
    tokens: u32,
}

impl Drop for PromptReading {
    fn drop(&mut self) {
        self.replica.server.pending_tokens.fetch_sub(self.tokens, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "replica_test.rs"]
mod replica_test;
