//! State that all workers of a node share: the view, and a handful of counters.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use spillway_front::access::{Authenticator, KeyTable};
use spillway_front::front_door::FrontDoor;
use spillway_prefix::PrefixHasher;
use spillway_rate_limit::Quotas;
use spillway_route::{RetryBudget, RetryBudgetConfig};
use spillway_transport::{Limits, Memory};
use spillway_types::{AwayReason, Country, ModelName, RegionName, Residency, Steering};
use spillway_usage::BudgetGate;
use spillway_view::{
    AffinityMoves, Continuations, ControlAge, Conversations, CountryCounts, HomeOutbox, Knowledge,
    Locations, Regions, Remote, Retry, StoredResponses, View, WaitQueues, WaitTotals,
};
use tokio_util::task::TaskTracker;

use crate::cors::Cors;
use crate::model_lookups::ModelLookups;
use crate::readiness_polls::ReadinessPolls;

/// Share of traces that is all of them.
const TRACES_ALL: u64 = 1_000_000;

/// States of a node that is about to end: it finishes its requests, and then breaks off those left.
const LEAVING: usize = 1;
const ENDING: usize = 2;

/// Facts and switches that hold for the whole life of a node.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// Name of the own region, for headers.
    pub region: String,
    /// Country of the own region, if that is known.
    pub country: Option<Country>,
    /// Bounds on clients.
    pub limits: Limits,
    /// Terms on which another replica is tried.
    pub retry: Retry,
    /// Seed of routing's random numbers.
    pub seed: u64,
    /// True if replies carry `x-spillway-*` headers on their routing, at first.
    pub expose_routing: bool,
    /// Bounds on all requests that wait here for a place.
    pub waiting: WaitTotals,
}

/// State that requests share. All of it is read without waiting.
pub struct Gateway {
    /// Facts and switches of the node.
    pub config: GatewayConfig,
    /// True if the config that was loaded last exposes routing.
    expose_routing: AtomicBool,
    /// Share of the new traces that are recorded, in parts of [`TRACES_ALL`].
    trace_share: AtomicU64,
    /// Hashes keys of requests. The hasher never changes, while prompts' keys do: the homes of
    /// sessions and of keys must not all move at once.
    pub key_hasher: PrefixHasher,
    /// Hashes prompts.
    prompt_hasher: ArcSwap<PrefixHasher>,
    /// Knowledge of the replicas' caches.
    knowledge: Knowledge,
    /// Budget of retries.
    pub retry_budget: RetryBudget,
    /// Replicas that store responses.
    pub responses: StoredResponses,
    /// Regions that served conversations before.
    pub conversations: Conversations,
    /// Homes of responses, sessions and conversations that have to be sent to the other nodes.
    pub home_outbox: HomeOutbox,
    /// Checks the keys and tokens of clients.
    pub authenticator: Authenticator,
    /// Counters for metrics.
    pub counters: Counters,
    /// State of client connections.
    door: Arc<FrontDoor>,
    quotas: Quotas,
    budgets: BudgetGate,
    /// Connections to replicas that drive themselves: they live as long as their pools, and
    /// draining does not wait for them.
    pub background: TaskTracker,
    /// Requests that wait here for a place at a replica.
    pub waiting: Arc<WaitQueues>,
    view: ArcSwap<View>,
    model_lookups: ModelLookups,
    cors: ArcSwap<Cors>,
    regions: ArcSwap<Regions>,
    locations: ArcSwap<Locations>,
    control_age: ControlAge,
    readiness_polls: ReadinessPolls,
    remote: OnceLock<Arc<dyn Remote>>,
    started_s: u64,
    decisions: AtomicU64,
    /// Steering of clients as [`Steering::code`].
    steering: AtomicU8,
    /// True while this node receives the cluster's messages but can't follow them.
    is_misled: AtomicBool,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Creates a gateway that serves `view`. Keys of requests are hashed with `hasher` for good,
    /// prompts until [`Gateway::replace_hasher`].
    #[must_use]
    pub fn new(config: GatewayConfig, hasher: PrefixHasher, view: View, started_s: u64) -> Self {
        let budget = RetryBudgetConfig {
            share_percent: config.retry.share_percent,
            in_hand: config.retry.in_hand,
            per_second_min: config.retry.per_second_min,
        };
        Self {
            expose_routing: AtomicBool::new(config.expose_routing),
            trace_share: AtomicU64::new(0),
            prompt_hasher: ArcSwap::from_pointee(hasher.clone()),
            key_hasher: hasher,
            knowledge: Knowledge::default(),
            retry_budget: RetryBudget::new(budget, Instant::now()),
            responses: StoredResponses::default(),
            conversations: Conversations::default(),
            home_outbox: HomeOutbox::default(),
            authenticator: Authenticator::new(),
            counters: Counters::default(),
            door: Arc::new(FrontDoor::new(config.limits.clone())),
            quotas: Quotas::new(Instant::now()),
            budgets: BudgetGate::default(),
            background: TaskTracker::new(),
            waiting: Arc::new(WaitQueues::new(config.waiting)),
            view: ArcSwap::from_pointee(view),
            model_lookups: ModelLookups::new(Instant::now()),
            cors: ArcSwap::default(),
            locations: ArcSwap::default(),
            regions: ArcSwap::from_pointee(Regions {
                own_country: config.country,
                ..Regions::alone(Instant::now())
            }),
            control_age: ControlAge::new(Instant::now()),
            readiness_polls: ReadinessPolls::default(),
            remote: OnceLock::new(),
            started_s,
            decisions: AtomicU64::new(config.seed),
            // No client is to come before the node is ready.
            steering: AtomicU8::new(Steering::Away(AwayReason::Starting).code()),
            is_misled: AtomicBool::new(false),
            config,
        }
    }

    /// Returns true if replies carry `x-spillway-*` headers on their routing.
    pub fn exposes_routing(&self) -> bool {
        self.expose_routing.load(Ordering::Relaxed)
    }

    /// Shows or hides those headers, in replies that begin from now on.
    pub fn set_expose_routing(&self, expose_routing: bool) {
        self.expose_routing.store(expose_routing, Ordering::Relaxed);
    }

    /// Records this share of the traces that begin here from now on, 0 to 1.
    pub fn set_trace_share(&self, share: f64) {
        self.trace_share.store((share * TRACES_ALL as f64) as u64, Ordering::Relaxed);
    }

    /// Draws whether a trace that begins here is recorded.
    pub fn draws_trace(&self, dice: &mut fastrand::Rng) -> bool {
        let share = self.trace_share.load(Ordering::Relaxed);
        share > 0 && dice.u64(..TRACES_ALL) < share
    }

    /// Returns true if a request with this residency may be served in that region, by the rules of now.
    pub fn may_serve(&self, region: &RegionName, residency: &Residency) -> bool {
        let (regions, own) = (self.regions(), self.config.region.as_str());
        match region.as_str() == own {
            true => residency.may_serve(own, regions.own_country),
            false => regions.may_serve(region, residency),
        }
    }

    /// Returns the view that serves requests starting now.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Serves requests by another view from now on; requests under way keep theirs.
    pub fn replace_view(&self, view: View) {
        self.view.store(Arc::new(view));
    }

    /// Returns the lookups of models that no view has.
    #[must_use]
    pub fn model_lookups(&self) -> &ModelLookups {
        &self.model_lookups
    }

    /// Lets web pages of these origins use the gateway from now on.
    pub fn replace_cors(&self, cors: Cors) {
        self.cors.store(Arc::new(cors));
    }

    /// Returns the origins whose pages may use the gateway.
    pub fn cors(&self) -> Guard<Arc<Cors>> {
        self.cors.load()
    }

    /// Returns the keys that clients may use.
    #[must_use]
    pub fn keys(&self) -> Arc<KeyTable> {
        self.authenticator.table()
    }

    /// Accepts these keys alone from now on. Requests under way go on.
    pub fn replace_keys(&self, keys: KeyTable) {
        self.authenticator.replace(keys);
    }

    /// Returns the knowledge of the replicas' caches.
    #[must_use]
    pub fn knowledge(&self) -> &Knowledge {
        &self.knowledge
    }

    /// Returns the hasher of prompts.
    pub fn prompt_hasher(&self) -> Guard<Arc<PrefixHasher>> {
        self.prompt_hasher.load()
    }

    /// Hashes prompts with another key from now on. Hashes by the old key mean nothing any more:
    /// clear the index too.
    pub fn replace_hasher(&self, hasher: PrefixHasher) {
        self.prompt_hasher.store(Arc::new(hasher));
    }

    /// Returns once a worker has learned something since the last call; then call
    /// `drain_learnings` of each. For one task.
    pub async fn learned(&self) {
        self.knowledge.learned().await;
    }

    /// Returns the facts and switches that hold for the node's whole life.
    #[must_use]
    pub fn config(&self) -> &GatewayConfig {
        &self.config
    }

    /// Returns the state of all regions.
    #[must_use]
    pub fn regions(&self) -> Arc<Regions> {
        self.regions.load_full()
    }

    /// Makes decisions by this state of the regions from now on.
    pub fn replace_regions(&self, regions: Regions) {
        self.regions.store(Arc::new(regions));
    }

    /// Returns the locations of clients. A request reads them without waiting.
    #[must_use]
    pub fn locations(&self) -> Arc<Locations> {
        self.locations.load_full()
    }

    /// Locates clients by these networks from now on. Waiting requests are checked again.
    pub fn replace_locations(&self, locations: Locations) {
        self.locations.store(Arc::new(locations));
    }

    /// Lets waiting requests look again for a place: other places may be open to them now.
    pub fn review_waiting(&self) {
        self.waiting.review();
    }

    /// Returns how many requests wait here for a place.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.count()
    }

    /// Returns how many requests wait here for a place, by model.
    #[must_use]
    pub fn waiting_by_model(&self) -> BTreeMap<ModelName, u32> {
        self.waiting.by_model()
    }

    /// Returns how many requests of other nodes are served here now.
    #[must_use]
    pub fn guests(&self) -> u32 {
        self.counters.guests.load(Ordering::Relaxed)
    }

    /// Sets the connection to other regions; only the first call counts.
    pub fn connect(&self, remote: Arc<dyn Remote>) {
        drop(self.remote.set(remote));
        self.home_outbox.open();
    }

    /// Returns the connection to other regions; `None` for a node outside a cluster.
    pub fn remote(&self) -> Option<&Arc<dyn Remote>> {
        self.remote.get()
    }

    /// Returns the seed of routing's random numbers.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.config.seed
    }

    /// Returns the counters for metrics.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns totals since start of replies of `/v1/responses` whose ids this node did not keep,
    /// by reason: their clients cannot ask for them again.
    #[must_use]
    pub fn responses_not_kept(&self) -> Vec<(&'static str, u64)> {
        self.responses.not_kept()
    }

    /// Returns the limits on clients' requests. There are none until they are set there.
    #[must_use]
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Returns the tenants whose budgets are spent. There are none until they are set there.
    #[must_use]
    pub fn budgets(&self) -> &BudgetGate {
        &self.budgets
    }

    /// Returns the memory budget. The task that measures memory calls [`Memory::note`].
    #[must_use]
    pub fn memory(&self) -> &Memory {
        self.door.memory()
    }

    /// Returns the age of this node's copy of the cluster's state.
    #[must_use]
    pub fn control_age(&self) -> &ControlAge {
        &self.control_age
    }

    /// Returns the observation of the clients that ask whether the node is ready.
    #[must_use]
    pub fn readiness_polls(&self) -> &ReadinessPolls {
        &self.readiness_polls
    }

    /// Reports the node as not ready, and takes no more guests. Clients are served as before.
    pub fn announce_leaving(&self) {
        self.counters.leaving.store(LEAVING, Ordering::Relaxed);
    }

    /// Notes that the time of requests is over: those that are left are broken off now.
    pub fn announce_end(&self) {
        self.counters.leaving.store(ENDING, Ordering::Relaxed);
    }

    /// Returns true if [`Gateway::announce_end`] was called.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.counters.leaving.load(Ordering::Relaxed) == ENDING
    }

    /// Returns the steering of new clients: to this node or away from it.
    #[must_use]
    pub fn steering(&self) -> Steering {
        if self.is_leaving() {
            // At once, not with the next sample: no client is to come to a node that ends.
            return Steering::Away(AwayReason::Draining);
        }
        Steering::of_code(self.steering.load(Ordering::Relaxed))
    }

    /// Sets the steering of new clients. The caller decides it some times a second.
    pub fn steer(&self, steering: Steering) {
        self.steering.store(steering.code(), Ordering::Relaxed);
    }

    /// Returns true if requests that come now can be served.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_ready_with(&self.view())
    }

    /// Returns true if requests that come with this view can be served.
    #[must_use]
    pub fn is_ready_with(&self, view: &View) -> bool {
        let is_sure = !self.is_misled() && self.quotas().is_ready();
        !self.is_leaving() && is_sure && !view.serves_nothing()
    }

    /// Returns true while this node receives the cluster's messages but can't follow them: its
    /// knowledge of keys may be wrong for good.
    #[must_use]
    pub fn is_misled(&self) -> bool {
        self.is_misled.load(Ordering::Relaxed)
    }

    /// Sets whether this node receives the cluster's messages but can't follow them.
    pub fn set_misled(&self, is_misled: bool) {
        self.is_misled.store(is_misled, Ordering::Relaxed);
    }

    /// Returns true if [`Gateway::announce_leaving`] or [`Gateway::start_draining`] was called.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.counters.leaving.load(Ordering::Relaxed) != 0
    }

    /// Returns how many requests of clients and guests are under way.
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        self.counters.requests.load(Ordering::Relaxed)
    }

    /// Stops accepting, lets requests finish, and asks HTTP/2 clients to go elsewhere.
    pub fn start_draining(&self) {
        self.announce_leaving();
        self.door.start_draining();
    }

    /// Returns true if [`Gateway::start_draining`] was called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.door.is_draining()
    }

    /// Returns once every connection and request has ended. Call it after
    /// [`Gateway::start_draining`].
    pub async fn drained(&self) {
        self.door.drained().await;
    }

    /// Returns the bounds on clients.
    pub fn limits(&self) -> &Limits {
        &self.config.limits
    }

    /// Returns when the node started, in seconds since the Unix epoch.
    pub fn started_s(&self) -> u64 {
        self.started_s
    }

    /// Returns a random generator for one request, so that no generator is shared or locked.
    pub fn dice(&self) -> fastrand::Rng {
        // An odd constant spreads consecutive numbers over all seeds.
        let number = self.decisions.fetch_add(1, Ordering::Relaxed);
        fastrand::Rng::with_seed(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Returns the state of client connections.
    #[must_use]
    pub fn front_door(&self) -> &Arc<FrontDoor> {
        &self.door
    }
}

/// Counters that requests keep.
#[derive(Debug, Default)]
pub struct Counters {
    leaving: AtomicUsize,
    /// Requests of other nodes that are served now.
    pub guests: AtomicU32,
    /// Requests that are served now, guests included.
    pub requests: AtomicU64,
    /// Requests of clients that were refused because only regions that may not serve them could.
    pub residency_refused: AtomicU64,
    /// Requests that were about to be sent to a region that may not serve them.
    pub residency_sent: AtomicU64,
    /// Guests that may not be served here.
    pub residency_received: AtomicU64,
    /// Retries that the budget has refused.
    pub retries_refused: AtomicU64,
    /// Requests that were given up after a second engine had died with them.
    pub engines_died: AtomicU64,
    /// Requests of clients that were replied to.
    pub served: AtomicU64,
    /// Requests of clients that were rejected for lack of room.
    pub without_room: AtomicU64,
    /// Requests by country of the client.
    pub countries: CountryCounts,
    /// Moves of sessions and conversations.
    pub affinity_moves: AffinityMoves,
    /// Streams whose replica broke off.
    pub continuations: Continuations,
}

impl Counters {
    /// Returns totals since start of streams whose replica broke off, on routes that continue them:
    /// result, reason, and number.
    #[must_use]
    pub fn continuations(&self) -> Vec<(&'static str, &'static str, u64)> {
        self.continuations.totals()
    }

    /// Returns totals since start of sessions and conversations that moved: what was kept until
    /// then, the new place, and number.
    #[must_use]
    pub fn affinity_moves(&self) -> Vec<(&'static str, &'static str, u64)> {
        self.affinity_moves.totals()
    }

    /// Returns totals since start of clients' requests: replied to, and shed for lack of room.
    /// Requests refused for their content, or by a limit of their client, are neither.
    #[must_use]
    pub fn served_and_shed(&self) -> (u64, u64) {
        let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (total(&self.served), total(&self.without_room))
    }

    /// Returns how many requests were given up after two engines had died with them, since start.
    #[must_use]
    pub fn engines_died(&self) -> u64 {
        self.engines_died.load(Ordering::Relaxed)
    }

    /// Returns how many retries the budget has refused since start.
    #[must_use]
    pub fn retries_refused(&self) -> u64 {
        self.retries_refused.load(Ordering::Relaxed)
    }

    /// Returns totals since start of requests that were not served because of their residency, by
    /// the place that found it: `entry` refuses a client whose request no region may serve.
    /// `sending` and `receiving` are second looks, which find nothing unless a first one was wrong
    /// or regions' rules just changed.
    #[must_use]
    pub fn residency(&self) -> Vec<(&'static str, u64)> {
        let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("entry", total(&self.residency_refused)),
            ("sending", total(&self.residency_sent)),
            ("receiving", total(&self.residency_received)),
        ]
    }

    /// Returns requests since start by country of the client; empty without a location database.
    #[must_use]
    pub fn client_countries(&self) -> Vec<(String, u64)> {
        self.countries.totals()
    }
}
