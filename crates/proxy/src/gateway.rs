//! What all workers of a node share: the view, and a handful of counters.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use spillway_prefix::PrefixHasher;
use spillway_quota::Quotas;
use spillway_route::{RetryBudget, RetryBudgetConfig};
use spillway_types::{Country, ModelName};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::{Doorkeeper, KeyTable};
use crate::client::{BodyHolder, BodyShares, CloseReason, Share, Shares};
use crate::continuations::Continuations;
use crate::control_age::ControlAge;
use crate::conversations::Conversations;
use crate::cors::Cors;
use crate::knowledge::Knowledge;
use crate::memory::Memory;
use crate::moves::Moves;
use crate::queue_spec::WaitTotals;
use crate::regions::Regions;
use crate::remote::Remote;
use crate::settings::{Limits, Retry};
use crate::stored_responses::StoredResponses;
use crate::view::View;
use crate::waiting::Waitings;

/// Facts and switches that hold for the whole life of a node.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// Name of the own region, for headers.
    pub region: String,
    /// The country that it is in, if that is known.
    pub country: Option<Country>,
    /// Bounds on clients.
    pub limits: Limits,
    /// When another replica is tried.
    pub retry: Retry,
    /// Seed of routing's random numbers.
    pub seed: u64,
    /// Whether replies carry `x-spillway-*` headers that tell how they were routed, at first.
    pub expose_routing: bool,
    /// Bounds on all that waits here for a place.
    pub waiting: WaitTotals,
}

/// The state that requests share. Everything in it is read without waiting.
pub struct Gateway {
    pub(crate) config: GatewayConfig,
    /// As the config that was loaded last says.
    expose_routing: AtomicBool,
    /// Hashes keys of requests. It stays as it is while prompts' keys change: the homes of sessions
    /// and of keys must not all move at once.
    pub(crate) key_hasher: PrefixHasher,
    /// Hashes prompts.
    prompt_hasher: ArcSwap<PrefixHasher>,
    /// What is known of caches.
    knowledge: Knowledge,
    pub(crate) retry_budget: RetryBudget,
    pub(crate) responses: StoredResponses,
    pub(crate) conversations: Conversations,
    /// Who lets clients in.
    pub(crate) doorkeeper: Doorkeeper,
    pub(crate) counters: Counters,
    /// Connections of each client.
    clients: Arc<Shares>,
    /// Bodies in memory of each client.
    bodies: BodyShares,
    memory: Memory,
    quotas: Quotas,
    pub(crate) draining: CancellationToken,
    /// Client connections and their requests: draining waits for these.
    pub(crate) tracker: TaskTracker,
    /// Connections to replicas that drive themselves: they live as long as their pools, and
    /// draining does not wait for them.
    pub(crate) background: TaskTracker,
    /// What waits here for a place at a replica.
    pub(crate) waiting: Arc<Waitings>,
    view: ArcSwap<View>,
    cors: ArcSwap<Cors>,
    regions: ArcSwap<Regions>,
    control_age: ControlAge,
    remote: OnceLock<Arc<dyn Remote>>,
    started_s: u64,
    decisions: AtomicU64,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Gateway {
    /// A gateway that serves `view`. It hashes keys of requests with `hasher` all its life, and prompts
    /// until [`Gateway::replace_hasher`].
    #[must_use]
    pub fn new(config: GatewayConfig, hasher: PrefixHasher, view: View, started_s: u64) -> Self {
        let budget = RetryBudgetConfig {
            share_percent: config.retry.share_percent,
            in_hand: config.retry.in_hand,
            per_second_min: config.retry.per_second_min,
        };
        Self {
            expose_routing: AtomicBool::new(config.expose_routing),
            prompt_hasher: ArcSwap::from_pointee(hasher.clone()),
            key_hasher: hasher,
            knowledge: Knowledge::default(),
            retry_budget: RetryBudget::new(budget, Instant::now()),
            responses: StoredResponses::default(),
            conversations: Conversations::default(),
            doorkeeper: Doorkeeper::new(),
            counters: Counters::default(),
            clients: Arc::new(Shares::new(config.limits.connections_per_client_max)),
            bodies: BodyShares::default(),
            memory: Memory::new(config.limits.read_ahead_bytes_total_max),
            quotas: Quotas::new(Instant::now()),
            draining: CancellationToken::new(),
            tracker: TaskTracker::new(),
            background: TaskTracker::new(),
            waiting: Arc::new(Waitings::new(config.waiting)),
            view: ArcSwap::from_pointee(view),
            cors: ArcSwap::default(),
            regions: ArcSwap::from_pointee(Regions {
                own_country: config.country,
                ..Regions::alone(Instant::now())
            }),
            control_age: ControlAge::new(Instant::now()),
            remote: OnceLock::new(),
            started_s,
            decisions: AtomicU64::new(config.seed),
            config,
        }
    }

    /// Whether replies carry `x-spillway-*` headers that tell how they were routed.
    pub(crate) fn exposes_routing(&self) -> bool {
        self.expose_routing.load(Ordering::Relaxed)
    }

    /// Changes whether they do, for replies that begin from now on.
    pub fn set_expose_routing(&self, expose_routing: bool) {
        self.expose_routing.store(expose_routing, Ordering::Relaxed);
    }

    /// The view that requests starting now are served by.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Serves requests by another view from now on; those under way keep theirs.
    pub fn replace_view(&self, view: View) {
        self.view.store(Arc::new(view));
    }

    /// Lets pages of these origins use it from now on.
    pub fn replace_cors(&self, cors: Cors) {
        self.cors.store(Arc::new(cors));
    }

    pub(crate) fn cors(&self) -> Guard<Arc<Cors>> {
        self.cors.load()
    }

    /// The keys that clients are let in by.
    #[must_use]
    pub fn keys(&self) -> Arc<KeyTable> {
        self.doorkeeper.table()
    }

    /// Lets clients in by these keys alone from now on. Requests under way go on.
    pub fn replace_keys(&self, keys: KeyTable) {
        self.doorkeeper.replace(keys);
    }

    /// What is known of caches.
    #[must_use]
    pub fn knowledge(&self) -> &Knowledge {
        &self.knowledge
    }

    /// What prompts are hashed with now.
    pub fn prompt_hasher(&self) -> Guard<Arc<PrefixHasher>> {
        self.prompt_hasher.load()
    }

    /// Hashes prompts with another key from now on. What was learned of hashes by the old one is
    /// worth nothing any more: clear the index too.
    pub fn replace_hasher(&self, hasher: PrefixHasher) {
        self.prompt_hasher.store(Arc::new(hasher));
    }

    /// Returns once a worker has learned something since the last call; then
    /// [`Worker::drain_learnings`] is worth a call on each. For one task.
    ///
    /// [`Worker::drain_learnings`]: crate::Worker::drain_learnings
    pub async fn learned(&self) {
        self.knowledge.learned().await;
    }

    /// Facts and switches that hold for its whole life.
    #[must_use]
    pub fn config(&self) -> &GatewayConfig {
        &self.config
    }

    /// What is known of regions.
    #[must_use]
    pub fn regions(&self) -> Arc<Regions> {
        self.regions.load_full()
    }

    /// Makes decisions go by this from now on.
    pub fn replace_regions(&self, regions: Regions) {
        self.regions.store(Arc::new(regions));
    }

    /// Lets those that wait look for a place again: what they may have may have changed.
    pub fn review_waiting(&self) {
        self.waiting.review();
    }

    /// Requests that wait here for a place.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.count()
    }

    /// The same by model.
    #[must_use]
    pub fn waiting_by_model(&self) -> BTreeMap<ModelName, u32> {
        self.waiting.by_model()
    }

    /// Requests of other nodes that are served here now.
    #[must_use]
    pub fn guests(&self) -> u32 {
        self.counters.guests.load(Ordering::Relaxed)
    }

    /// Opens the way to other regions; only the first call counts.
    pub fn connect(&self, remote: Arc<dyn Remote>) {
        drop(self.remote.set(remote));
    }

    pub(crate) fn remote(&self) -> Option<&Arc<dyn Remote>> {
        self.remote.get()
    }

    /// Seed of routing's random numbers.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.config.seed
    }

    /// Counters for metrics.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Totals since start of replies of `/v1/responses` whose ids this node did not keep, by reason:
    /// their clients can't ask for them again.
    #[must_use]
    pub fn responses_not_kept(&self) -> Vec<(&'static str, u64)> {
        self.responses.not_kept()
    }

    /// Limits on what clients may ask for. Whoever knows them sets them there; before that there are
    /// none.
    #[must_use]
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// What memory allows. Whoever watches it calls [`Memory::note`].
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// How old what the cluster agreed on can be here.
    #[must_use]
    pub fn control_age(&self) -> &ControlAge {
        &self.control_age
    }

    /// Says that it is not ready any more, and takes no more guests; clients are served as ever.
    pub fn announce_leaving(&self) {
        self.counters.leaving.store(1, Ordering::Relaxed);
    }

    /// Whether [`Gateway::announce_leaving`] or [`Gateway::start_draining`] was called.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.counters.leaving.load(Ordering::Relaxed) != 0
    }

    /// Requests of clients and guests whose replies have not ended.
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        self.counters.requests.load(Ordering::Relaxed)
    }

    /// Stops accepting, lets requests finish, and tells HTTP/2 clients to go elsewhere.
    pub fn start_draining(&self) {
        self.announce_leaving();
        self.counters.draining.store(1, Ordering::Relaxed);
        self.draining.cancel();
        self.tracker.close();
    }

    /// Whether [`Gateway::start_draining`] was called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.counters.draining.load(Ordering::Relaxed) != 0
    }

    /// Returns once every connection and request has ended; only after
    /// [`Gateway::start_draining`].
    pub async fn drained(&self) {
        self.tracker.wait().await;
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.config.limits
    }

    /// When the node started, in seconds since the Unix epoch.
    pub fn started_s(&self) -> u64 {
        self.started_s
    }

    /// Random numbers for one request: a generator of its own, so that none is shared or locked.
    pub(crate) fn dice(&self) -> fastrand::Rng {
        // An odd constant spreads consecutive numbers over all seeds.
        let number = self.decisions.fetch_add(1, Ordering::Relaxed);
        fastrand::Rng::with_seed(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// A place for one more client connection; `None` (and counted) if there is none. It takes one of
    /// the client's own places too, if it is known who that is.
    pub(crate) fn admit_connection(
        self: &Arc<Self>,
        client: Option<IpAddr>,
    ) -> Option<ConnectionPermit> {
        let open = self.counters.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let mut permit = ConnectionPermit { gateway: Arc::clone(self), _share: None };
        if open > self.config.limits.connections_max {
            self.counters.closed_full.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if !self.memory.admits_connection() {
            self.counters.closed_memory.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if let Some(client) = client {
            permit._share = Some(self.admit_client(client)?);
        }
        Some(permit)
    }

    /// One of a client's own places for connections; `None` (and counted) if it has used them up.
    pub(crate) fn admit_client(&self, client: IpAddr) -> Option<Share> {
        let share = self.clients.take(client);
        if share.is_none() {
            self.counters.closed_client.fetch_add(1, Ordering::Relaxed);
        }
        share
    }

    /// Whose count of bodies in memory a client's are.
    pub(crate) fn body_holder(&self, client: IpAddr) -> BodyHolder {
        self.bodies.holder(client, &self.key_hasher)
    }

    /// Counts what the requests of one client hold of bodies.
    pub(crate) fn bodies(&self) -> &BodyShares {
        &self.bodies
    }
}

/// Counts that requests and connections keep as they go.
#[derive(Debug, Default)]
pub struct Counters {
    connections: AtomicUsize,
    pub(crate) body_bytes: AtomicU64,
    draining: AtomicUsize,
    leaving: AtomicUsize,
    closed_full: AtomicU64,
    closed_client: AtomicU64,
    closed_memory: AtomicU64,
    closed_handshake: AtomicU64,
    closed_slow_head: AtomicU64,
    closed_idle: AtomicU64,
    closed_stalled: AtomicU64,
    closed_resets: AtomicU64,
    closed_frames: AtomicU64,
    pub(crate) streams_stalled: AtomicU64,
    pub(crate) guests: AtomicU32,
    /// Requests that are served now, guests included.
    pub(crate) requests: AtomicU64,
    /// Requests that no region may serve which could.
    pub(crate) residency_refused: AtomicU64,
    /// Requests that were about to be sent where they may not be served.
    pub(crate) residency_sent: AtomicU64,
    /// Guests that may not be served here.
    pub(crate) residency_received: AtomicU64,
    pub(crate) retries_refused: AtomicU64,
    pub(crate) moves: Moves,
    pub(crate) continuations: Continuations,
}

impl Counters {
    /// Client connections open now.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed) as u64
    }

    /// Bytes of request bodies held now.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes.load(Ordering::Relaxed)
    }

    /// Streams since start whose replica broke off, on routes that continue them: what came of it and
    /// why.
    #[must_use]
    pub fn continuations(&self) -> Vec<(&'static str, &'static str, u64)> {
        self.continuations.totals()
    }

    /// Sessions and conversations since start that went on somewhere else: what was kept until then,
    /// where it went, and how often.
    #[must_use]
    pub fn moves(&self) -> Vec<(&'static str, &'static str, u64)> {
        self.moves.totals()
    }

    /// Retries that the budget refused since start.
    #[must_use]
    pub fn retries_refused(&self) -> u64 {
        self.retries_refused.load(Ordering::Relaxed)
    }

    /// Requests since start that were not served because of where they may be, by the place that
    /// found it: `entry` refuses a client whose request none may serve; `sending` and `receiving` are
    /// second looks that find nothing unless a first one was wrong or regions' rules just changed.
    #[must_use]
    pub fn residency(&self) -> Vec<(&'static str, u64)> {
        let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("entry", total(&self.residency_refused)),
            ("sending", total(&self.residency_sent)),
            ("receiving", total(&self.residency_received)),
        ]
    }

    /// Client connections that the gateway closed since start, by reason.
    #[must_use]
    pub fn connections_closed(&self) -> Vec<(&'static str, u64)> {
        let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("full", total(&self.closed_full)),
            ("client", total(&self.closed_client)),
            ("memory", total(&self.closed_memory)),
            ("handshake", total(&self.closed_handshake)),
            ("slow_head", total(&self.closed_slow_head)),
            ("idle", total(&self.closed_idle)),
            ("stalled", total(&self.closed_stalled)),
            ("resets", total(&self.closed_resets)),
            ("frames", total(&self.closed_frames)),
        ]
    }

    /// Streams of HTTP/2 connections that the gateway closed since start, by reason; the connections
    /// went on.
    #[must_use]
    pub fn streams_closed(&self) -> [(&'static str, u64); 1] {
        [("stalled", self.streams_stalled.load(Ordering::Relaxed))]
    }

    pub(crate) fn closed_in_handshake(&self) {
        self.closed_handshake.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed_by_watchdog(&self, reason: CloseReason) {
        let counter = match reason {
            CloseReason::SlowHead => &self.closed_slow_head,
            CloseReason::Idle => &self.closed_idle,
            CloseReason::Stalled => &self.closed_stalled,
            CloseReason::Resets => &self.closed_resets,
            CloseReason::Frames => &self.closed_frames,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// One client connection's place; given back when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    gateway: Arc<Gateway>,
    /// Its client's own place.
    _share: Option<Share>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.gateway.counters.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
