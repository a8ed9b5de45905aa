//! One model server: how to reach it, what this node has there now, and the connections it keeps.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::{HeaderName, HeaderValue};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use spillway_protocol::SaltField;
use spillway_route::{HoldTime, Sharer};
use spillway_types::{Holder, ModelName, ModelVersion, ReplicaName};

use crate::crowd::{Crowd, CrowdSeen};
use crate::held::Held;
use crate::tenant_rests::TenantRests;
use crate::tenants::TenantPlace;
use crate::upstream::{GrpcLine, Pool, ReplicaTls, ReplicaTlsError};
use crate::waiting::Waitings;

/// The moment that times in atomics count from.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// No number of a holder, since those have 16 bits.
const NO_HOLDER: u32 = u32::MAX;

/// How long a replica gets nothing new that said it has no room, and not for how long: until those
/// who watch over its health know, who judge by more than one word.
const REST: Duration = Duration::from_millis(200);
/// The same where it said for how long: health bounds the rest, and has had its say by then.
const REST_MAX: Duration = Duration::from_secs(1);

/// How often a request that waits for a replica looks whether that is down.
pub(crate) const DOWN_LOOK: Duration = Duration::from_millis(250);
/// How long a replica that is down may still be heard of: checks can fail while replies go on.
const DOWN_GRACE: Duration = Duration::from_millis(500);

/// What a replica is made from. Equal specs mean that a reload keeps the replica as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSpec {
    /// Unique name, as in metrics and headers.
    pub name: ReplicaName,
    /// Host name or address to connect to.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// TLS; `None` speaks cleartext.
    pub tls: Option<TlsSpec>,
    /// What it speaks.
    pub protocol: ReplicaProtocol,
    /// Where it takes gRPC, if that is another address. Without one, gRPC goes to the main address
    /// if HTTP/2 is spoken there, else not to this replica.
    pub grpc: Option<GrpcTarget>,
    /// Models it serves, names as clients use them (aliases resolved).
    pub models: Vec<ModelName>,
    /// Versions that it serves, of the models that it says this of; a model without an entry is
    /// served in whatever version the replica takes.
    pub versions: BTreeMap<ModelName, Vec<ModelVersion>>,
    /// The pool that routes refer to.
    pub pool: String,
    /// Share of the work against its peers; at least 1.
    pub weight: u32,
    /// Requests at a time from this node; HTTP/1.1 uses a connection for each.
    pub in_flight_max: u32,
    /// Idle connections are closed after this long: below the server's own keep-alive time, so that
    /// no request meets a closing connection.
    pub idle: Duration,
    /// It goes on with a chat's last message when it is told to (`continue_final_message`).
    pub continues_chats: bool,
    /// By which field it keeps cache entries of prompts apart; `None` if by none.
    pub salt_field: Option<SaltField>,
    /// Header that this replica wants, e.g. its API key. Replaces what the client sent.
    pub credential: Option<(HeaderName, HeaderValue)>,
}

/// A replica's address for gRPC, which is always HTTP/2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcTarget {
    /// Host name or address to connect to.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// TLS; `None` speaks cleartext with prior knowledge.
    pub tls: Option<TlsSpec>,
}

/// TLS towards a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSpec {
    /// CA certificates to trust instead of the system's, as PEM text.
    pub ca_pem: Option<Vec<u8>>,
    /// Name to ask for and to verify, where it is not the host.
    pub server_name: Option<String>,
}

/// The protocol spoken to a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplicaProtocol {
    /// HTTP/1.1, a connection per request in flight.
    #[default]
    Http1,
    /// HTTP/2, with prior knowledge in cleartext; one connection per worker.
    Http2,
}

/// A replica of the current view. Lives on through reloads that do not change it.
#[derive(Debug)]
pub struct Replica {
    pub(crate) spec: ReplicaSpec,
    /// Shared with the replicas that the same server was before, by [`Replica::with_spec`].
    pub(crate) server: Arc<Server>,
}

/// What this node has at one server: connections, counts, and what was seen of it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) tls: Option<ReplicaTls>,
    pub(crate) grpc: Option<GrpcLine>,
    /// `Host` of requests to it.
    pub(crate) authority: HeaderValue,
    /// Kept fresh by the node; requests never resolve names.
    addresses: ArcSwap<Vec<SocketAddr>>,
    in_flight: AtomicU32,
    /// This node's part of the places there, where several nodes share them.
    claim: AtomicU32,
    /// What was found out about how many it can take, and what the region's other nodes have there.
    crowd: Crowd,
    /// Prompt tokens that it has to read still for those.
    pending_elsewhere: AtomicU32,
    started: AtomicU64,
    /// Prompt tokens that it is predicted to have to read still, of this node's requests.
    pending_tokens: AtomicU32,
    /// Milliseconds after [`EPOCH`] until which it gets nothing new, since it said that it has no room;
    /// 0 if it did not.
    resting_ms: AtomicU64,
    /// Tenants that alone it asked to leave it alone.
    tenant_rests: TenantRests,
    /// Milliseconds after [`EPOCH`] at which it was found to be down, and one more; 0 while it is not.
    down_ms: AtomicU64,
    /// How long requests keep a place there.
    held: Held,
    /// Its number in the prefix index; [`NO_HOLDER`] if it has none.
    holder: AtomicU32,
    /// Milliseconds after [`EPOCH`] at which it was last heard, or first had something to say.
    heard_ms: AtomicU64,
    connections: Arc<AtomicU32>,
    /// One pool per worker, so that workers never share a connection.
    pools: Box<[Pool]>,
}

impl Replica {
    /// A replica without connections yet; `workers` is the number of pools it gets.
    ///
    /// # Errors
    /// If its TLS settings do not work.
    pub fn new(spec: ReplicaSpec, workers: usize) -> Result<Self, ReplicaTlsError> {
        let tls = spec
            .tls
            .as_ref()
            .map(|tls| ReplicaTls::new(tls, &spec.host, spec.protocol))
            .transpose()?;
        let server = Server {
            authority: authority(&spec.host, spec.port, spec.tls.is_some()),
            grpc: spec.grpc.as_ref().map(GrpcLine::new).transpose()?,
            tls,
            addresses: ArcSwap::default(),
            in_flight: AtomicU32::new(0),
            claim: AtomicU32::new(u32::MAX),
            crowd: Crowd::default(),
            pending_elsewhere: AtomicU32::new(0),
            started: AtomicU64::new(0),
            pending_tokens: AtomicU32::new(0),
            resting_ms: AtomicU64::new(0),
            tenant_rests: TenantRests::default(),
            down_ms: AtomicU64::new(0),
            held: Held::default(),
            holder: AtomicU32::new(NO_HOLDER),
            heard_ms: AtomicU64::new(0),
            connections: Arc::default(),
            pools: (0..workers.max(1)).map(|_| Pool::new(spec.in_flight_max)).collect(),
        };
        Ok(Self { spec, server: Arc::new(server) })
    }

    /// The same server with another description, and all that this node has there: connections,
    /// requests in flight, limits. `None` if connections made by one spec can't serve the other; models,
    /// versions, pool, weight and what its software understands may differ.
    #[must_use]
    pub fn with_spec(&self, spec: &ReplicaSpec) -> Option<Self> {
        let ReplicaSpec { models, versions, pool, weight, continues_chats, salt_field, .. } =
            spec.clone();
        let known = self.spec.clone();
        let alike =
            ReplicaSpec { models, versions, pool, weight, continues_chats, salt_field, ..known };
        (alike == *spec).then(|| Self { spec: alike, server: Arc::clone(&self.server) })
    }

    /// Whether both are the same server with the same connections and counts.
    #[must_use]
    pub fn is_same_server(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.server, &other.server)
    }

    /// What it was made from.
    #[must_use]
    pub fn spec(&self) -> &ReplicaSpec {
        &self.spec
    }

    /// Requests that it serves for this node now.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.server.in_flight.load(Ordering::Relaxed)
    }

    /// This node's part of the places there; `u32::MAX` if they are all its own.
    #[must_use]
    pub fn claim(&self) -> u32 {
        self.server.claim.load(Ordering::Relaxed)
    }

    /// Gives this node so many of the places there from now on; requests under way stay.
    pub fn set_claim(&self, places: u32) {
        self.server.claim.store(places, Ordering::Relaxed);
    }

    /// Requests of the region's other nodes in flight there, as they said last.
    #[must_use]
    pub fn elsewhere(&self) -> u32 {
        self.server.crowd.elsewhere()
    }

    /// Prompt tokens that it is predicted to have to read still for those.
    #[must_use]
    pub fn pending_elsewhere(&self) -> u32 {
        self.server.pending_elsewhere.load(Ordering::Relaxed)
    }

    /// Notes how many requests the region's other nodes have in flight there, what each of them wants,
    /// and how many prompt tokens it still has to read for them.
    pub fn set_elsewhere(&self, requests: u32, sharers: Vec<Sharer>, pending_tokens: u32) {
        self.server.crowd.set_elsewhere(requests, sharers);
        self.server.pending_elsewhere.store(pending_tokens, Ordering::Relaxed);
    }

    /// Most requests that the region's nodes together may have there, by what was found out;
    /// `None` if nobody looks after that.
    #[must_use]
    pub fn concurrency_limit(&self) -> Option<u32> {
        Some(self.server.crowd.limit()).filter(|&limit| limit < u32::MAX)
    }

    /// The same, once more than that was seen to be too much.
    #[must_use]
    pub fn found_limit(&self) -> Option<u32> {
        self.concurrency_limit().filter(|_| self.server.crowd.is_found())
    }

    /// The region's nodes together may have so many requests there from now on, of those that can wait
    /// in a node; `None` for as many as the spec says. `is_found` says whether more was seen to be
    /// too much, or it is a guess.
    pub fn set_concurrency_limit(&self, limit: Option<u32>, is_found: bool) {
        self.server.crowd.set_limit(limit.unwrap_or(u32::MAX), is_found);
    }

    /// What requests showed since this was called last. One caller only.
    #[must_use]
    pub fn take_crowd(&self) -> CrowdSeen {
        self.server.crowd.take(self.in_flight())
    }

    /// This node's part of the places there at this moment: none while the replica rests.
    pub(crate) fn places(&self) -> u32 {
        let resting_ms = self.server.resting_ms.load(Ordering::Relaxed);
        if resting_ms == 0 {
            return self.claim();
        }
        if since_epoch_ms(Instant::now()) < resting_ms {
            return 0;
        }
        // Unless it asked for more rest meanwhile; then the next look sees that.
        let order = Ordering::Relaxed;
        let _: Result<u64, u64> =
            self.server.resting_ms.compare_exchange(resting_ms, 0, order, order);
        self.claim()
    }

    /// The same for a request which can wait in this node, or can't: one that can gets no place beyond
    /// what was found to be enough there, and another would be refused for it.
    pub(crate) fn places_for(&self, can_wait: bool) -> u32 {
        let places = self.places();
        if can_wait { places.min(self.server.crowd.part()) } else { places }
    }

    pub(crate) fn crowd(&self) -> &Crowd {
        &self.server.crowd
    }

    /// It said at `now` that it has no room, and asked to be left alone for that long: it gets nothing
    /// new until then. What watches over its health learns it a little later and takes over, so
    /// that without such a word it rests only until then.
    pub(crate) fn rest(&self, now: Instant, asked: Option<Duration>) {
        let rest = asked.unwrap_or(REST).min(REST_MAX);
        self.server.resting_ms.fetch_max(since_epoch_ms(now + rest), Ordering::Relaxed);
    }

    /// Tenants that alone it asked to leave it alone.
    pub(crate) fn tenant_rests(&self) -> &TenantRests {
        &self.server.tenant_rests
    }

    /// Prompt tokens of this node's requests that it is predicted to have to read still: those that
    /// are in no cache, of requests whose reply has not begun.
    #[must_use]
    pub fn pending_tokens(&self) -> u32 {
        self.server.pending_tokens.load(Ordering::Relaxed)
    }

    /// Its number in the prefix index; `None` while it has none.
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        u16::try_from(self.server.holder.load(Ordering::Relaxed)).ok().map(Holder)
    }

    /// Gives it this number in the prefix index from now on, or takes its number away. A replica
    /// starts without one, also where it takes the place of one of the same name.
    pub fn set_holder(&self, holder: Option<Holder>) {
        let number = holder.map_or(NO_HOLDER, |holder| u32::from(holder.0));
        self.server.holder.store(number, Ordering::Relaxed);
    }

    /// Notes whether it is down: independent signals agree that it serves nothing. Requests that were
    /// sent before and hear nothing of it are given up.
    pub fn set_down(&self, is_down: bool, now: Instant) {
        if !is_down {
            self.server.down_ms.store(0, Ordering::Relaxed);
            return;
        }
        let order = Ordering::Relaxed;
        let _: Result<u64, u64> =
            self.server.down_ms.compare_exchange(0, since_epoch_ms(now) + 1, order, order);
    }

    /// Whether a request that it was sent at `asked_at` is lost: it went down after that, and no request
    /// has heard of it since. One that was sent to it although it was down is not judged by that.
    pub(crate) fn is_gone(&self, asked_at: Instant, now: Instant) -> bool {
        let Some(down_ms) = self.server.down_ms.load(Ordering::Relaxed).checked_sub(1) else {
            return false;
        };
        let grace_ms = u64::try_from(DOWN_GRACE.as_millis()).unwrap_or(u64::MAX);
        since_epoch_ms(asked_at) < down_ms
            && self.server.heard_ms.load(Ordering::Relaxed) < down_ms
            && since_epoch_ms(now) >= down_ms.saturating_add(grace_ms)
    }

    /// Requests ever sent to it by this node.
    #[must_use]
    pub fn started(&self) -> u64 {
        self.server.started.load(Ordering::Relaxed)
    }

    /// How long it has been silent at `now` although it has requests to answer; `None` if it has
    /// none.
    #[must_use]
    pub fn silent_for(&self, now: Instant) -> Option<Duration> {
        if self.in_flight() == 0 {
            return None;
        }
        let heard_at = *EPOCH + Duration::from_millis(self.server.heard_ms.load(Ordering::Relaxed));
        Some(now.saturating_duration_since(heard_at))
    }

    /// Connections this node holds to it, idle ones included.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.server.connections.load(Ordering::Relaxed)
    }

    /// How TLS to it is spoken and which name its certificate must have; `None` for cleartext.
    #[must_use]
    pub fn tls_client(&self) -> Option<(&Arc<ClientConfig>, &ServerName<'static>)> {
        self.server.tls.as_ref().map(|tls| (&tls.config, &tls.server_name))
    }

    /// Where new connections go, in this order.
    pub fn set_addresses(&self, addresses: Vec<SocketAddr>) {
        if **self.server.addresses.load() != addresses {
            self.server.addresses.store(Arc::new(addresses));
        }
    }

    /// The same for its gRPC address, if it has one.
    pub fn set_grpc_addresses(&self, addresses: Vec<SocketAddr>) {
        if let Some(grpc) = &self.server.grpc {
            grpc.set_addresses(addresses);
        }
    }

    /// Closes connections that were idle for too long or that the server closed.
    pub(crate) fn sweep(&self, worker: usize, now: Instant) {
        self.pool(worker).sweep(self.spec.idle, now);
    }

    pub(crate) fn pool(&self, worker: usize) -> &Pool {
        &self.server.pools[worker % self.server.pools.len()]
    }

    pub(crate) fn addresses(&self) -> Arc<Vec<SocketAddr>> {
        self.server.addresses.load_full()
    }

    /// One of so many places for one more request; `None` if the replica has all it may have.
    /// When it is given back, those that wait for one are woken.
    pub(crate) fn lease(self: &Arc<Self>, waitings: &Arc<Waitings>, places: u32) -> Option<Lease> {
        let taken = self.server.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        let now = Instant::now();
        let (replica, waitings) = (Arc::clone(self), Arc::clone(waitings));
        let mut lease = Lease { replica, waitings, tenant: None, tokens: 0, taken_at: None };
        if taken > self.spec.in_flight_max.min(places) {
            return None;
        }
        self.server.crowd.note_most(taken);
        if taken == 1 {
            self.heard(now);
        }
        self.server.started.fetch_add(1, Ordering::Relaxed);
        lease.taken_at = Some(now);
        Some(lease)
    }

    /// How long requests of this node have kept a place there lately.
    pub(crate) fn hold_time(&self) -> HoldTime {
        self.server.held.get()
    }

    /// Counts a prompt's tokens as still to be read until the returned guard is dropped.
    pub(crate) fn begin_reading(self: &Arc<Self>, tokens: u32) -> Reading {
        self.server.pending_tokens.fetch_add(tokens, Ordering::Relaxed);
        Reading { replica: Arc::clone(self), tokens }
    }

    /// Notes that a byte of a reply came from it.
    pub(crate) fn heard(&self, now: Instant) {
        self.server.heard_ms.store(since_epoch_ms(now), Ordering::Relaxed);
    }

    /// Counts a connection for as long as the returned guard lives.
    pub(crate) fn count_connection(&self) -> ConnectionCount {
        self.server.connections.fetch_add(1, Ordering::Relaxed);
        ConnectionCount(Arc::clone(&self.server.connections))
    }
}

fn since_epoch_ms(at: Instant) -> u64 {
    let passed = at.saturating_duration_since(*EPOCH).as_millis();
    u64::try_from(passed).unwrap_or(u64::MAX)
}

/// One request's place at a replica; gives it back when dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    replica: Arc<Replica>,
    waitings: Arc<Waitings>,
    /// The same place as its tenant's.
    tenant: Option<TenantPlace>,
    /// The request's size.
    tokens: u32,
    /// When it was taken; `None` if there was none left.
    taken_at: Option<Instant>,
}

impl Lease {
    pub(crate) fn replica(&self) -> &Arc<Replica> {
        &self.replica
    }

    /// Says whose request has the place, which then counts as that tenant's too, and how many tokens
    /// the request has.
    pub(crate) fn of(self, tenant: Option<TenantPlace>, tokens: u32) -> Self {
        // Written out, since what gives a place back can't be taken apart.
        let mut lease = self;
        (lease.tenant, lease.tokens) = (tenant, tokens);
        lease
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.replica.server.in_flight.fetch_sub(1, Ordering::Relaxed);
        if let Some(taken_at) = self.taken_at {
            self.replica.server.held.note(self.tokens, taken_at.elapsed());
        }
        // Before anybody looks for what has come free.
        drop(self.tenant.take());
        self.waitings.wake();
    }
}

/// A prompt that a replica has to read before its reply begins.
#[derive(Debug)]
pub(crate) struct Reading {
    replica: Arc<Replica>,
    tokens: u32,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.replica.server.pending_tokens.fetch_sub(self.tokens, Ordering::Relaxed);
    }
}

/// Part of a connection: counts it.
#[derive(Debug)]
pub(crate) struct ConnectionCount(Arc<AtomicU32>);

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Host and port as a `Host` header has them; the port is left out where it is the scheme's own.
pub(crate) fn authority(host: &str, port: u16, is_tls: bool) -> HeaderValue {
    let default_port = if is_tls { 443 } else { 80 };
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let text = if port == default_port { host } else { format!("{host}:{port}") };
    // A host that can't stand in a header can't be resolved either; the connect error will say so.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("invalid"))
}

#[cfg(test)]
#[path = "replica_test.rs"]
mod replica_test;
