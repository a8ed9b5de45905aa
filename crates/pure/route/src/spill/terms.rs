//! Settings of the decision between regions.

use serde::{Deserialize, Serialize};

/// Weights between regions, and the part of a region that is open to guests.
///
/// Keep them equal on all nodes: a sender assumes that the other region has the sender's own
/// reserve. A number that is negative or not finite counts as 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpillTerms {
    /// Milliseconds by which another region has to cost less than the own one while that has room.
    /// A smaller value sends more requests away for little gain.
    pub gain_min_ms: f32,
    /// Least gain as a part of the own region's cost, in addition to `gain_min_ms`. A smaller value
    /// sends requests away because of small errors in predictions.
    pub gain_share: f32,
    /// Cost of a waiting request to those behind it, as a multiple of its own wait. At 0 each
    /// request goes where it is soonest itself, and all together are later. A larger value makes
    /// queues shorter and sends more requests to other regions.
    pub crowding: f32,
    /// Weight of the time lost at a region that might refuse: at 1 it counts in proportion to the
    /// risk. At 0 regions that are nearly full are asked as readily as idle ones, and refuse more
    /// often.
    pub doubt: f32,
    /// Wait in milliseconds of a region without a report to predict it from, if no other region has
    /// one either. Choose about the mean wait of requests that have to wait.
    pub unknown_wait_ms: f32,
    /// Share of a region's capacity that is kept free for its own clients, in thousandths; at least
    /// one slot where there are two. A larger value refuses guests earlier; 0 keeps nothing back.
    pub reserve_permille: u16,
    /// Most guests at a time, in thousandths of the capacity, or of the running requests where that
    /// is unknown. `None`: as many as find room beside the reserve, which protects the region's own
    /// clients as well and wastes nothing. Set it only for contracts: 200 multiplied the mean time
    /// to first token by ten where six regions had to help two.
    pub guests_max_permille: Option<u16>,
}

impl Default for SpillTerms {
    fn default() -> Self {
        Self {
            gain_min_ms: 20.0,
            gain_share: 0.2,
            crowding: 1.0,
            doubt: 1.0,
            unknown_wait_ms: 100.0,
            reserve_permille: 100,
            guests_max_permille: None,
        }
    }
}
