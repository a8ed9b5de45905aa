//! Scenarios of the simulation, and their results.

use crate::spill::SpillTerms;

/// Input of a run.
#[derive(Clone, Debug)]
pub(in crate::spill) struct Scenario {
    /// Round-trip time between each two regions.
    pub(in crate::spill) rtt_ms: Vec<Vec<u64>>,
    /// Load of each region's clients, as a part of its capacity.
    pub(in crate::spill) load: Vec<f64>,
    /// Number of regions without replicas, which come first; their load is a part of the capacity
    /// of a region with replicas.
    pub(in crate::spill) edges: usize,
    /// Nodes of each region.
    pub(in crate::spill) nodes: usize,
    pub(in crate::spill) terms: SpillTerms,
    /// True if other regions are looked at.
    pub(in crate::spill) does_spill: bool,
    /// True if a node assumes that its siblings send as much as itself.
    pub(in crate::spill) knows_siblings: bool,
    /// True if waiting requests are decided about again at each report.
    pub(in crate::spill) decides_again: bool,
    /// Second at which measuring begins, and second at which arrivals end.
    pub(in crate::spill) seconds: [u64; 2],
    pub(in crate::spill) seed: u64,
}

/// Results for the requests that arrived while measuring.
#[derive(Clone, Debug, Default)]
pub(in crate::spill) struct Results {
    /// Milliseconds to the first token, by region of the client; sorted.
    pub(in crate::spill) first_token_ms: Vec<Vec<f64>>,
    /// Requests shed, by region of the client.
    pub(in crate::spill) shed: Vec<u64>,
    /// Requests shed while another region had room for guests, in truth and by its last report.
    pub(in crate::spill) shed_beside_room: [u64; 2],
    /// Guests served, by region.
    pub(in crate::spill) guests: Vec<u64>,
    /// Forwarded requests that came back.
    pub(in crate::spill) refused: u64,
}

impl Results {
    /// Returns the time to first token in milliseconds that this share of all requests does not
    /// exceed.
    pub(in crate::spill) fn quantile_ms(&self, share: f64) -> f64 {
        let mut all = self.first_token_ms.concat();
        all.sort_by(f64::total_cmp);
        all[(all.len() as f64 * share) as usize]
    }

    /// Returns the time to first token in milliseconds that this share of one region's clients does
    /// not exceed.
    pub(in crate::spill) fn region_quantile_ms(&self, region: usize, share: f64) -> f64 {
        let sorted = &self.first_token_ms[region];
        sorted[(sorted.len() as f64 * share) as usize]
    }

    pub(in crate::spill) fn all_shed(&self) -> u64 {
        self.shed.iter().sum()
    }

    pub(in crate::spill) fn all_guests(&self) -> u64 {
        self.guests.iter().sum()
    }
}
