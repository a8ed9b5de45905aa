//! Decides some times a second whether new clients are to be sent to this node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_admin::{Steered, SteeredRegion};
use spillway_health::{SteeringConfig, SteeringFacts, SteeringMachine, SteeringTally};
use spillway_request::gateway::{Gateway, RoutingState, Switches};
use spillway_types::Steering;
use spillway_view::RegionSteering;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Source of the regions' steering for the admin API.
#[derive(Debug)]
pub(crate) struct SteeringSource {
    pub(crate) routing: Arc<RoutingState>,
    pub(crate) switches: Arc<Switches>,
}

impl Steered for SteeringSource {
    fn regions(&self) -> Vec<SteeredRegion> {
        let region = |region: RegionSteering| SteeredRegion {
            name: region.name,
            is_heard: region.is_heard,
            steering: region.steering,
            rtt_ms: region.rtt_ms,
        };
        self.routing.region_steering(self.switches.steering()).into_iter().map(region).collect()
    }
}

/// Period of deciding: short enough to go unnoticed.
const PERIOD: Duration = Duration::from_millis(100);

/// Decides until told to stop. A node without a cluster needs this too.
pub(crate) async fn steer(gateway: Arc<Gateway>, config: SteeringConfig, stop: CancellationToken) {
    let mut machine = SteeringMachine::new(config, Instant::now());
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => look(&gateway, &mut machine),
            () = stop.cancelled() => return,
        }
    }
}

fn look(gateway: &Gateway, machine: &mut SteeringMachine) {
    let before = machine.steering();
    let now = machine.update(Instant::now(), &facts(gateway));
    gateway.switches.steer(now);
    match (before.reason(), now.reason()) {
        (was, is) if was == is => {}
        (Some(was), None) => tracing::info!(was = was.name(), "this node takes clients"),
        (_, Some(is)) => tracing::warn!(reason = is.name(), "this node takes no clients"),
        (None, None) => {}
    }
}

fn facts(gateway: &Gateway) -> SteeringFacts {
    let regions = gateway.routing.regions();
    let (served, shed) = gateway.counters.served_and_shed();
    let others = || regions.others.iter().filter(|other| other.is_heard);
    SteeringFacts {
        // A node that leaves is not ready either, but has a reason of its own.
        is_ready: gateway.is_ready() || gateway.switches.is_leaving(),
        is_leaving: gateway.switches.is_leaving(),
        is_ordered_away: regions.is_evacuated || regions.own_terms.weight_permille == 0,
        has_usable: gateway.routing.view().has_usable() || regions.has_usable(),
        has_better: others().any(|other| other.steering == Steering::Send),
        has_other: others().any(|other| other.steering.takes_clients()),
        tally: SteeringTally { served, shed },
    }
}
