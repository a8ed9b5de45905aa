//! State that all workers of a node share, in parts by who writes them.

mod client_state;
mod counters;
mod home_state;
mod routing_state;
mod switches;

use std::sync::Arc;
use std::time::Instant;

use spillway_front::front_door::FrontDoor;
use spillway_prefix::PrefixHasher;
use spillway_route::{RetryBudget, RetryBudgetConfig};
use spillway_transport::Limits;
use spillway_types::Country;
use spillway_view::{Retry, View, WaitTotals};
use tokio_util::task::TaskTracker;

pub use self::client_state::ClientState;
pub use self::counters::Counters;
pub use self::home_state::HomeState;
pub use self::routing_state::RoutingState;
pub use self::switches::Switches;

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
///
/// Requests read all parts. A task of the node that writes holds its own part alone.
#[derive(Debug)]
pub struct Gateway {
    /// State by which requests are routed.
    pub routing: Arc<RoutingState>,
    /// State by which clients are admitted and limited.
    pub clients: Arc<ClientState>,
    /// Replicas and regions to which later requests of a client go back.
    pub homes: Arc<HomeState>,
    /// Counters that requests keep.
    pub counters: Arc<Counters>,
    /// Switches that operators, reloads and tasks of the node turn.
    pub switches: Arc<Switches>,
    /// State of client connections.
    pub door: Arc<FrontDoor>,
    /// Bounds on retries.
    pub retries: Retries,
    /// Connections to replicas that drive themselves: they live as long as their pools, and
    /// draining does not wait for them.
    pub background: TaskTracker,
    started_s: u64,
}

/// Bounds on retries.
#[derive(Debug)]
pub struct Retries {
    /// Most attempts of a request, the first included.
    pub attempts_max: u32,
    /// Retries that all requests together have left.
    pub budget: RetryBudget,
}

impl Retries {
    fn new(terms: &Retry, now: Instant) -> Self {
        let budget = RetryBudgetConfig {
            share_percent: terms.budget_percent,
            in_hand: terms.budget_in_hand,
            per_second_min: terms.budget_min_per_second,
        };
        Self { attempts_max: terms.attempts(), budget: RetryBudget::new(budget, now) }
    }
}

impl Gateway {
    /// Creates a gateway that serves `view`. Keys of requests are hashed with `hasher` for good,
    /// prompts until [`RoutingState::replace_hasher`].
    #[must_use]
    pub fn new(config: GatewayConfig, hasher: PrefixHasher, view: View, started_s: u64) -> Self {
        let now = Instant::now();
        Self {
            routing: Arc::new(RoutingState::new(&config, hasher, view)),
            clients: Arc::new(ClientState::new(now)),
            homes: Arc::default(),
            counters: Arc::default(),
            switches: Arc::new(Switches::new(config.expose_routing)),
            door: Arc::new(FrontDoor::new(config.limits)),
            retries: Retries::new(&config.retry, now),
            background: TaskTracker::new(),
            started_s,
        }
    }

    /// Returns true if requests that come now can be served.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_ready_with(&self.routing.view())
    }

    /// Returns true if requests that come with this view can be served.
    #[must_use]
    pub fn is_ready_with(&self, view: &View) -> bool {
        self.admits_clients() && !view.serves_nothing()
    }

    /// Returns true if the node stays, and knows the keys and limits of clients.
    #[must_use]
    pub fn admits_clients(&self) -> bool {
        let is_sure = !self.switches.is_misled() && self.clients.quotas.is_ready();
        !self.switches.is_leaving() && is_sure
    }

    /// Stops accepting, lets requests finish, and asks HTTP/2 clients to go elsewhere.
    pub fn start_draining(&self) {
        self.switches.announce_leaving();
        self.door.start_draining();
    }

    /// Returns when the node started, in seconds since the Unix epoch.
    #[must_use]
    pub fn started_s(&self) -> u64 {
        self.started_s
    }
}

#[cfg(test)]
mod tests {
    use spillway_prefix::PrefixConfig;
    use spillway_types::{AwayReason, Steering};

    use super::*;

    fn gateway() -> Gateway {
        let config = GatewayConfig {
            region: "mars".to_owned(),
            country: None,
            limits: Limits::default(),
            retry: Retry::default(),
            seed: 1,
            expose_routing: false,
            waiting: WaitTotals::default(),
        };
        let hasher = PrefixHasher::new([1; 4], PrefixConfig::default()).expect("a hasher");
        Gateway::new(config, hasher, View::empty(), 0)
    }

    #[test]
    fn clients_are_admitted_while_keys_and_limits_are_known_and_the_node_stays() {
        let gateway = gateway();
        assert!(gateway.admits_clients());
        assert!(!gateway.is_ready(), "an empty view serves nothing");
        gateway.switches.set_misled(true);
        assert!(!gateway.admits_clients());
        gateway.switches.set_misled(false);
        gateway.clients.quotas.set_ready(false);
        assert!(!gateway.admits_clients());
        gateway.clients.quotas.set_ready(true);
        assert!(gateway.admits_clients());
        gateway.switches.announce_leaving();
        assert!(!gateway.admits_clients());
    }

    #[test]
    fn a_node_that_drains_leaves_and_closes_its_door() {
        let gateway = gateway();
        gateway.switches.steer(Steering::Send);
        gateway.start_draining();
        assert!(gateway.door.is_draining() && gateway.switches.is_leaving());
        assert_eq!(gateway.switches.steering(), Steering::Away(AwayReason::Draining));
        assert!(!gateway.switches.is_ending(), "requests under way are finished");
    }

    #[test]
    fn each_request_has_random_numbers_of_its_own() {
        let routing = gateway().routing;
        let drawn: Vec<u64> = (0..100).map(|_| routing.dice().u64(..)).collect();
        let distinct: std::collections::BTreeSet<u64> = drawn.iter().copied().collect();
        assert_eq!(distinct.len(), drawn.len());
        // Two nodes of one seed decide alike.
        assert_eq!(gateway().routing.dice().u64(..), drawn[0]);
    }
}
