//! A model server: its address, this node's requests and connections there, and its observed state.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use spillway_resolver::Resolver;
use spillway_route::{HoldTime, Sharer};
use spillway_transport::coarse_clock;
use spillway_types::{DownCause, Holder};
use spillway_upstream::{ReplicaConnections, ReplicaTlsError, StreamSlot, Traffic};

use crate::concurrency::{ConcurrencyLimiter, ConcurrencySeen};
use crate::hold_times::HoldTimes;
use crate::loaded_adapters::LoadedAdapters;
use crate::overflow::OverflowCaps;
use crate::replica_spec::ReplicaSpec;
use crate::tenant_rests::TenantRests;
use crate::tenants::TenantSlot;
use crate::usage_reports::UsageReports;
use crate::wait_queues::WaitQueues;

/// Origin of the times that atomics hold.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Marks a replica without a number in the prefix index; real numbers have 16 bits.
const NO_HOLDER: u32 = u32::MAX;

/// Rest of a replica that said it has no room without naming a time. Its health check takes over
/// after that, and judges by more than one reply.
const REST: Duration = Duration::from_millis(200);
/// Longest rest that a replica may ask for here. The health check has decided by then.
pub const REST_MAX: Duration = Duration::from_secs(1);

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
    connections: ReplicaConnections,
    in_flight: AtomicU32,
    /// This node's part of the slots, if several nodes share the server.
    claim: AtomicU32,
    /// Adaptive concurrency limit, and the requests of the region's other nodes.
    concurrency: ConcurrencyLimiter,
    /// Prompt tokens of other nodes' requests that the server still has to read.
    pending_elsewhere: AtomicU32,
    started: AtomicU64,
    /// Prompt tokens of this node's requests that the server is predicted to still have to read.
    pending_tokens: AtomicU32,
    /// Prompt tokens of this node's requests in flight.
    context_tokens: AtomicU32,
    /// Prompt tokens that it has read for this node so far, by prediction; those of requests that failed
    /// before their reply count as read.
    read_tokens: AtomicU64,
    /// End of the server's rest after it said that it has no room, in milliseconds after [`EPOCH`];
    /// 0 if it does not rest.
    resting_ms: AtomicU64,
    /// Tenants that were refused alone, with the ends of their rests.
    tenant_rests: TenantRests,
    /// Adapters in the server's memory.
    loaded_adapters: LoadedAdapters,
    /// Milliseconds after [`EPOCH`] at which the server was found down, plus one; 0 while it is up.
    down_ms: AtomicU64,
    /// True if nothing but silence speaks against a server that is down.
    is_silent: AtomicBool,
    /// True while the server is being drained.
    is_leaving: AtomicBool,
    /// Statistics of the time that requests hold a slot.
    hold_times: HoldTimes,
    /// Number of the server in the prefix index; [`NO_HOLDER`] if it has none.
    holder: AtomicU32,
    /// Most usage reports that the server accepts being asked for, as a number.
    usage_limit: AtomicU8,
    /// Milliseconds after [`EPOCH`] of the last byte, or of the first request after an idle time.
    heard_ms: AtomicU64,
    /// Caps of an overflow replica; `None` for other replicas.
    overflow: Option<Box<OverflowCaps>>,
}

impl Replica {
    /// Returns a replica without connections; `workers` is its number of pools, and `resolver` looks
    /// its name up.
    ///
    /// # Errors
    /// Returns an error if the TLS settings do not work.
    pub fn new(
        spec: ReplicaSpec,
        workers: usize,
        resolver: &Resolver,
    ) -> Result<Self, ReplicaTlsError> {
        let server = ReplicaServer {
            connections: ReplicaConnections::new(spec.server(), workers, resolver)?,
            in_flight: AtomicU32::new(0),
            claim: AtomicU32::new(u32::MAX),
            concurrency: ConcurrencyLimiter::default(),
            pending_elsewhere: AtomicU32::new(0),
            started: AtomicU64::new(0),
            pending_tokens: AtomicU32::new(0),
            context_tokens: AtomicU32::new(0),
            read_tokens: AtomicU64::new(0),
            resting_ms: AtomicU64::new(0),
            tenant_rests: TenantRests::default(),
            loaded_adapters: LoadedAdapters::default(),
            down_ms: AtomicU64::new(0),
            is_silent: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            hold_times: HoldTimes::default(),
            holder: AtomicU32::new(NO_HOLDER),
            usage_limit: AtomicU8::new(UsageReports::Throughout as u8),
            heard_ms: AtomicU64::new(0),
            overflow: spec
                .overflow
                .as_ref()
                .map(|overflow| Box::new(OverflowCaps::new(overflow, coarse_clock::now()))),
        };
        Ok(Self { spec, server: Arc::new(server) })
    }

    /// Returns the replica with another description and the state of the same server: connections,
    /// requests in flight, limits. `None` if connections made by one spec can't serve the other;
    /// models, versions, pool, weight, credential and optional features may differ.
    #[must_use]
    pub fn with_spec(&self, spec: &ReplicaSpec) -> Option<Self> {
        let ReplicaSpec { models, versions, pool, weight, continues_chats, salt_field, .. } =
            spec.clone();
        let known = self.spec.clone();
        let (usage_reports, kv_events_port) = (spec.usage_reports, spec.kv_events_port);
        let credential = spec.credential.clone();
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
            credential,
            ..known
        };
        (alike == *spec).then(|| Self { spec: alike, server: Arc::clone(&self.server) })
    }

    /// Returns true if both share one server state.
    #[must_use]
    pub fn is_same_server(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.server, &other.server)
    }

    /// Returns this node's connections to the replica.
    pub fn connections(&self) -> &ReplicaConnections {
        &self.server.connections
    }

    /// Returns the configuration.
    #[must_use]
    pub fn spec(&self) -> &ReplicaSpec {
        &self.spec
    }

    /// Returns the caps of an overflow replica; `None` for other replicas.
    #[must_use]
    pub fn overflow(&self) -> Option<&OverflowCaps> {
        self.server.overflow.as_deref()
    }

    /// Returns true if it is an overflow replica.
    #[must_use]
    pub fn is_overflow(&self) -> bool {
        self.spec.overflow.is_some()
    }

    /// Returns the number of this node's requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.server.in_flight.load(Ordering::Relaxed)
    }

    /// Returns this node's part of the slots; `u32::MAX` if it may use them all.
    #[must_use]
    pub fn claim(&self) -> u32 {
        self.server.claim.load(Ordering::Relaxed)
    }

    /// Sets this node's part of the slots; requests in flight stay.
    pub fn set_claim(&self, slots: u32) {
        self.server.claim.store(slots, Ordering::Relaxed);
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

    /// Returns the requests that the replica takes at once from all nodes of the region together:
    /// what is configured, found or guessed, whichever is least. `None` if nothing bounds it. It is
    /// the one figure of capacity that routing, guests, other regions and consoles use.
    #[must_use]
    pub fn capacity(&self) -> Option<u32> {
        let most = self.spec().in_flight_max.min(self.server.concurrency.limit());
        (most < u32::MAX).then_some(most)
    }

    /// Returns true if the concurrency limit was never needed yet.
    pub fn has_guessed_limit(&self) -> bool {
        self.concurrency_limit().is_some() && !self.server.concurrency.is_found()
    }

    /// Returns the requests of this node in flight at which the replica takes no more guests for now:
    /// while its limit is a guess, guests come as fast as replies begin. `u32::MAX` if nothing but the
    /// limit bounds them.
    pub fn slots_for_guests(&self) -> u32 {
        let concurrency = &self.server.concurrency;
        match concurrency.guests_unbegun_max() {
            u32::MAX => u32::MAX,
            most => self.in_flight().saturating_add(most.saturating_sub(concurrency.unbegun())),
        }
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

    /// Returns this node's part of the slots now: 0 while the replica rests.
    pub fn slots(&self) -> u32 {
        let resting_ms = self.server.resting_ms.load(Ordering::Relaxed);
        // The usual case needs no look at the clock.
        if resting_ms == 0 {
            return self.claim();
        }
        if since_epoch_ms(coarse_clock::now()) < resting_ms {
            return 0;
        }
        // Keeps a longer rest that was asked for in between; the next call sees it.
        let order = Ordering::Relaxed;
        let _: Result<u64, u64> =
            self.server.resting_ms.compare_exchange(resting_ms, 0, order, order);
        self.claim()
    }

    /// Returns the slots for a request that can or cannot wait at this node. A waiting request
    /// respects the adaptive limit; a request that cannot wait would be refused because of it.
    pub fn slots_for(&self, can_wait: bool) -> u32 {
        let slots = self.slots();
        if can_wait { slots.min(self.server.concurrency.part()) } else { slots }
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

    /// Returns the adapters in the server's memory.
    pub fn loaded_adapters(&self) -> &LoadedAdapters {
        &self.server.loaded_adapters
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

    /// Marks the replica as down, when signals agree that it serves nothing, or as up again. See
    /// [`Self::lost`].
    pub fn set_down(&self, cause: Option<DownCause>, now: Instant) {
        let Some(cause) = cause else {
            self.server.down_ms.store(0, Ordering::Relaxed);
            return;
        };
        self.server.is_silent.store(cause == DownCause::Silence, Ordering::Relaxed);
        // Only the first signal counts; later ones do not move the moment.
        let order = Ordering::Relaxed;
        let _: Result<u64, u64> =
            self.server.down_ms.compare_exchange(0, since_epoch_ms(now) + 1, order, order);
    }

    /// Marks the replica as being drained, or as one that stays: streams leave a draining replica
    /// where another slot can continue them.
    pub fn set_leaving(&self, is_leaving: bool) {
        self.server.is_leaving.store(is_leaving, Ordering::Relaxed);
    }

    /// Returns true while the replica is being drained.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.server.is_leaving.load(Ordering::Relaxed)
    }

    /// Returns true while the replica is down.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.server.down_ms.load(Ordering::Relaxed) > 0
    }

    /// Returns the cause if the replica went down after a request was sent there at `asked_at`, and
    /// no request got a byte since. After a failure the request is lost. After mere silence it may
    /// still be answered, and is worth giving up only if another replica can serve it. Requests that
    /// were sent while the replica was down are not judged by that.
    pub fn lost(&self, asked_at: Instant, now: Instant) -> Option<DownCause> {
        let down_ms = self.server.down_ms.load(Ordering::Relaxed).checked_sub(1)?;
        let grace_ms = u64::try_from(DOWN_GRACE.as_millis()).unwrap_or(u64::MAX);
        let is_lost = since_epoch_ms(asked_at) < down_ms
            && self.server.heard_ms.load(Ordering::Relaxed) < down_ms
            && since_epoch_ms(now) >= down_ms.saturating_add(grace_ms);
        let is_silent = self.server.is_silent.load(Ordering::Relaxed);
        is_lost.then_some(if is_silent { DownCause::Silence } else { DownCause::Failure })
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

    /// Takes a slot for one more request, of `slots` in all; `None` if all are taken, or all streams
    /// of this traffic. Its release wakes the waiting requests.
    pub fn lease(
        self: &Arc<Self>,
        queues: &Arc<WaitQueues>,
        slots: u32,
        traffic: Traffic,
    ) -> Option<Lease> {
        let stream = Some(self.connections().take_stream(traffic)?);
        let most = self.spec.in_flight_max.min(slots);
        let more = |taken: u32| (taken < most).then(|| taken + 1);
        let order = Ordering::Relaxed;
        let taken = self.server.in_flight.fetch_update(order, order, more).ok()? + 1;
        self.server.concurrency.note_most(taken);
        let now = coarse_clock::now();
        // The silence of an idle replica means nothing, so it is measured from here.
        if taken == 1 {
            self.note_byte(now);
        }
        self.server.started.fetch_add(1, order);
        let (replica, queues) = (Arc::clone(self), Arc::clone(queues));
        Some(Lease { replica, queues, stream, tenant: None, tokens: 0, taken_at: now })
    }

    /// Returns statistics of the time that recent requests of this node held a slot.
    pub fn hold_time(&self) -> HoldTime {
        self.server.hold_times.get()
    }

    /// Returns the prompt tokens of this node's requests in flight there.
    pub fn context_tokens(&self) -> u32 {
        self.server.context_tokens.load(Ordering::Relaxed)
    }

    /// Returns the prompt tokens of all requests in flight there: those of other nodes are taken to be
    /// as long as those of this one.
    pub fn context_of_all(&self) -> f32 {
        let (own, in_flight) = (self.context_tokens() as f32, self.in_flight());
        if in_flight == 0 { own } else { own * (1.0 + self.elsewhere() as f32 / in_flight as f32) }
    }

    /// Counts a prompt's tokens as context that the replica holds until the returned guard is dropped.
    pub fn hold_context(self: &Arc<Self>, tokens: u32) -> HeldContext {
        self.server.context_tokens.fetch_add(tokens, Ordering::Relaxed);
        HeldContext { replica: Arc::clone(self), tokens }
    }

    /// Counts a prompt's tokens as unread until the returned guard is dropped.
    pub fn begin_reading(self: &Arc<Self>, tokens: u32) -> PromptReading {
        self.server.pending_tokens.fetch_add(tokens, Ordering::Relaxed);
        PromptReading { replica: Arc::clone(self), tokens }
    }

    /// Notes that a byte of a reply arrived.
    pub fn note_byte(&self, now: Instant) {
        self.server.heard_ms.store(since_epoch_ms(now), Ordering::Relaxed);
    }
}

fn since_epoch_ms(at: Instant) -> u64 {
    let passed = at.saturating_duration_since(*EPOCH).as_millis();
    u64::try_from(passed).unwrap_or(u64::MAX)
}

/// Slot of one request at a replica; released when dropped.
#[derive(Debug)]
pub struct Lease {
    replica: Arc<Replica>,
    queues: Arc<WaitQueues>,
    /// Slot of its stream; `None` once released.
    stream: Option<StreamSlot>,
    /// Slot of the same request in its tenant's count.
    tenant: Option<TenantSlot>,
    /// Size of the request in tokens.
    tokens: u32,
    /// Start of the lease.
    taken_at: Instant,
}

impl Lease {
    /// Returns the replica that the slot is at.
    pub fn replica(&self) -> &Arc<Replica> {
        &self.replica
    }

    /// Assigns the slot to a tenant's count, and notes the request's size in tokens.
    pub fn of(self, tenant: Option<TenantSlot>, tokens: u32) -> Self {
        // Field by field, since a type with `Drop` cannot be taken apart.
        let mut lease = self;
        (lease.tenant, lease.tokens) = (tenant, tokens);
        lease
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.replica.server.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.replica.server.hold_times.note(self.tokens, coarse_clock::since(self.taken_at));
        // Released first, so that the woken requests see these slots as free.
        drop(self.tenant.take());
        drop(self.stream.take());
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
        self.replica.server.read_tokens.fetch_add(self.tokens.into(), Ordering::Relaxed);
    }
}

/// Prompt of a request in flight, whose KV each decode step of the replica reads.
#[derive(Debug)]
pub struct HeldContext {
    replica: Arc<Replica>,
    tokens: u32,
}

impl HeldContext {
    /// Returns the prompt tokens of all requests in flight at the replica.
    pub fn of_all(&self) -> f32 {
        self.replica.context_of_all()
    }

    /// Returns the prompt tokens that the replica has read for this node so far, by prediction.
    pub fn read_tokens(&self) -> u64 {
        self.replica.server.read_tokens.load(Ordering::Relaxed)
    }
}

impl Drop for HeldContext {
    fn drop(&mut self) {
        self.replica.server.context_tokens.fetch_sub(self.tokens, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "replica_test.rs"]
mod replica_test;
