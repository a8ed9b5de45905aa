//! What is simulated, and what came of it.

use crate::spill::SpillTerms;

/// What is to happen.
#[derive(Clone, Debug)]
pub(in crate::spill) struct Scenario {
    /// Time there and back between each two regions.
    pub(in crate::spill) rtt_ms: Vec<Vec<u64>>,
    /// Requests of each region's clients, as a share of what it can serve.
    pub(in crate::spill) load: Vec<f64>,
    /// The first so many regions have no replicas; their load is in shares of what one region with
    /// replicas can serve.
    pub(in crate::spill) edges: usize,
    /// Nodes of each region.
    pub(in crate::spill) nodes: usize,
    pub(in crate::spill) terms: SpillTerms,
    /// Whether other regions are looked at.
    pub(in crate::spill) does_spill: bool,
    /// Whether a node reckons with what its siblings send.
    pub(in crate::spill) knows_siblings: bool,
    /// Whether what waits is decided again whenever a report comes.
    pub(in crate::spill) decides_again: bool,
    /// When measuring begins, and when arrivals end.
    pub(in crate::spill) seconds: [u64; 2],
    pub(in crate::spill) seed: u64,
}

/// What requests that arrived while it was measured met with.
#[derive(Clone, Debug, Default)]
pub(in crate::spill) struct Results {
    /// Milliseconds to the first token, by region of the client; sorted.
    pub(in crate::spill) first_token_ms: Vec<Vec<f64>>,
    /// Requests shed, by region of the client.
    pub(in crate::spill) shed: Vec<u64>,
    /// Those of them while another region had room for guests, in truth and by its last report.
    pub(in crate::spill) shed_beside_room: [u64; 2],
    /// Guests served, by region.
    pub(in crate::spill) guests: Vec<u64>,
    /// Forwarded requests that came back.
    pub(in crate::spill) refused: u64,
}

impl Results {
    /// The milliseconds to the first token that this share of all requests does not exceed.
    pub(in crate::spill) fn quantile_ms(&self, share: f64) -> f64 {
        let mut all = self.first_token_ms.concat();
        all.sort_by(f64::total_cmp);
        all[(all.len() as f64 * share) as usize]
    }

    /// The same for the clients of one region.
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
