//! State of regions, as answers to clients depend on it.

use spillway_geo::dns::{DnsView, RegionState, ZoneRegion};
use spillway_types::RegionName;
use spillway_view::{RegionSteering, Regions};

use crate::NameServerState;

impl NameServerState {
    /// Takes over the state of regions. `own` is this node's region; `measured` returns the round
    /// trip to a region by its connections, in milliseconds.
    pub fn publish(
        &self,
        regions: &Regions,
        own: &RegionName,
        measured: impl Fn(&RegionName) -> Option<f32>,
    ) {
        let zone = self.zone().regions();
        let steering = regions.steering(own);
        let state = |region: &ZoneRegion| {
            let said = steering.iter().find(|said| said.name == region.name);
            said.map_or_else(RegionState::default, |said| {
                let measured_rtt_ms = measured(&region.name);
                RegionState { measured_rtt_ms, ..state_of(said, weight_permille(regions, said)) }
            })
        };
        self.replace_view(DnsView {
            // Stays true once it is: a region that falls silent later is known to be silent.
            is_settled: self.is_settled() || regions.knows_models,
            own: zone.iter().position(|region| region.name == *own),
            regions: zone.iter().map(state).collect(),
        });
    }
}

/// Decides, in this one place, whether clients are directed to a region: its reports arrive, it
/// takes clients by its own report, and it has a weight here.
fn state_of(said: &RegionSteering, weight_permille: u32) -> RegionState {
    RegionState {
        is_offered: said.takes_clients() && weight_permille > 0,
        is_alive: said.is_heard,
        weight_permille,
        measured_rtt_ms: None,
    }
}

/// Returns the part that a region gets among equally near ones. A region that came back begins with
/// a small part, as it does for forwarded requests, but never with none.
fn weight_permille(regions: &Regions, said: &RegionSteering) -> u32 {
    let other = regions.others.iter().find(|other| other.name == said.name);
    let Some(other) = other else { return regions.own_terms.weight_permille.into() };
    let weight = u32::from(other.terms.weight_permille);
    let ramped = weight * u32::from(other.ramp_permille) / 1_000;
    ramped.max(weight.min(1))
}

#[cfg(test)]
mod tests {
    use spillway_types::{AwayReason, Steering};

    use super::*;

    fn said(is_heard: bool, steering: Steering) -> RegionSteering {
        RegionSteering { name: "eu".into(), is_heard, steering, rtt_ms: 1.0 }
    }

    #[test]
    fn clients_are_led_to_who_is_heard_takes_them_and_has_a_weight() {
        let away = Steering::Away(AwayReason::Shedding);
        for (said, weight, is_offered, is_alive) in [
            (said(true, Steering::Send), 1_000, true, true),
            (said(true, Steering::SendShedding), 1, true, true),
            (said(true, Steering::Send), 0, false, true),
            (said(true, away), 1_000, false, true),
            (said(false, Steering::Send), 1_000, false, false),
        ] {
            let state = state_of(&said, weight);
            assert_eq!((state.is_offered, state.is_alive), (is_offered, is_alive), "{said:?}");
        }
    }

    #[test]
    fn a_region_alone_has_its_own_weight() {
        let mut regions = Regions::alone(std::time::Instant::now());
        regions.own_terms.weight_permille = 300;
        assert_eq!(weight_permille(&regions, &said(true, Steering::Send)), 300);
    }
}
