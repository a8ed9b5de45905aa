//! State by which requests are routed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use spillway_prefix::PrefixHasher;
use spillway_types::{Country, RegionName, Residency};
use spillway_view::{Knowledge, Locations, Regions, Remote, View, WaitQueues};

use super::GatewayConfig;
use crate::model_lookups::ModelLookups;

/// Replicas, regions, caches and locations by which requests are routed.
///
/// Each has one writer: the keeper of replicas publishes views, gossip publishes regions, the task
/// that learns writes the knowledge of caches, and that of the location databases writes locations.
/// A request reads a snapshot of each without waiting.
pub struct RoutingState {
    /// Name of the own region.
    pub own_region: String,
    /// Country of the own region by this node's config.
    pub own_country: Option<Country>,
    /// Seed of routing's random numbers.
    pub seed: u64,
    /// Hashes keys of requests. The hasher never changes, while prompts' keys do: the homes of
    /// sessions and of keys must not all move at once.
    pub key_hasher: PrefixHasher,
    /// Knowledge of the replicas' caches.
    pub knowledge: Knowledge,
    /// Requests that wait here for a place at a replica.
    pub waiting: Arc<WaitQueues>,
    /// Lookups of models that no view has.
    pub model_lookups: ModelLookups,
    prompt_hasher: ArcSwap<PrefixHasher>,
    view: ArcSwap<View>,
    regions: ArcSwap<Regions>,
    locations: ArcSwap<Locations>,
    remote: OnceLock<Arc<dyn Remote>>,
    decisions: AtomicU64,
}

impl std::fmt::Debug for RoutingState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RoutingState").field("own_region", &self.own_region).finish_non_exhaustive()
    }
}

impl RoutingState {
    pub(super) fn new(config: &GatewayConfig, hasher: PrefixHasher, view: View) -> Self {
        let now = Instant::now();
        let regions = Regions { own_country: config.country, ..Regions::alone(now) };
        Self {
            own_region: config.region.clone(),
            own_country: config.country,
            seed: config.seed,
            prompt_hasher: ArcSwap::from_pointee(hasher.clone()),
            key_hasher: hasher,
            knowledge: Knowledge::default(),
            waiting: Arc::new(WaitQueues::new(config.waiting)),
            model_lookups: ModelLookups::new(now),
            view: ArcSwap::from_pointee(view),
            regions: ArcSwap::from_pointee(regions),
            locations: ArcSwap::default(),
            remote: OnceLock::new(),
            decisions: AtomicU64::new(config.seed),
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

    /// Returns the state of all regions.
    #[must_use]
    pub fn regions(&self) -> Arc<Regions> {
        self.regions.load_full()
    }

    /// Makes decisions by this state of the regions from now on.
    pub fn replace_regions(&self, regions: Regions) {
        self.regions.store(Arc::new(regions));
    }

    /// Returns true if a request with this residency may be served in that region, by the rules of now.
    pub fn may_serve(&self, region: &RegionName, residency: &Residency) -> bool {
        let (regions, own) = (self.regions(), self.own_region.as_str());
        match region.as_str() == own {
            true => residency.may_serve(own, regions.own_country),
            false => regions.may_serve(region, residency),
        }
    }

    /// Returns the locations of clients. A request reads them without waiting.
    #[must_use]
    pub fn locations(&self) -> Arc<Locations> {
        self.locations.load_full()
    }

    /// Locates clients by these networks from now on. Have waiting requests checked again after it.
    pub fn replace_locations(&self, locations: Locations) {
        self.locations.store(Arc::new(locations));
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

    /// Sets the connection to other regions; only the first call counts.
    pub fn connect(&self, remote: Arc<dyn Remote>) {
        drop(self.remote.set(remote));
    }

    /// Returns the connection to other regions; `None` for a node outside a cluster.
    pub fn remote(&self) -> Option<&Arc<dyn Remote>> {
        self.remote.get()
    }

    /// Returns a random generator for one request, so that no generator is shared or locked.
    pub fn dice(&self) -> fastrand::Rng {
        // An odd constant spreads consecutive numbers over all seeds.
        let number = self.decisions.fetch_add(1, Ordering::Relaxed);
        fastrand::Rng::with_seed(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
}
