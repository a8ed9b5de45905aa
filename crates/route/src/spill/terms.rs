//! Settings of the decision between regions.

use serde::{Deserialize, Serialize};

/// How regions are weighed against each other, and what of a region is open to guests.
///
/// Best the same on all nodes: a sender reckons with the reserve that it has itself. A number that
/// is negative or not finite counts as 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpillTerms {
    /// Milliseconds by which another region has to cost less than the own one. More keeps requests
    /// at home that would be served sooner elsewhere: 50 ms raise the mean time to first token by a
    /// fifth. Where replies cost money on their way, the region's price says it better.
    pub margin_ms: f32,
    /// Milliseconds by which another region has to cost less than the own one while that has room,
    /// beside the margin. Only more of the prompt in its caches can make it so. Less sends more
    /// requests away for little.
    pub gain_min_ms: f32,
    /// The same as a part of what the own region costs. Less sends away what a prediction that is a
    /// little off made look better elsewhere.
    pub gain_share: f32,
    /// How often a request is served here all the same, so that the caches here get to hold its
    /// prompt: at 1 with a probability of what going away costs over what staying does, so that
    /// about as much is spent on the way as reading the prompt here once would have taken. At 0 never:
    /// best where prompts are too many for the caches.
    pub invest: f32,
    /// Milliseconds by which the region that the last request went to is preferred to other regions.
    /// More keeps requests together; it made nothing faster in any measurement.
    pub hysteresis_ms: f32,
    /// Regions whose costs differ from the least by no more than these milliseconds count as equal,
    /// and chance decides. More spreads requests wider and sends some of them further; the doubt
    /// spreads them as well and knows better when.
    pub tie_ms: f32,
    /// How much a request that waits costs those that come behind it, as a multiple of its own wait.
    /// At 0 each request goes where it is soonest itself, and all together are later for it; the more
    /// the shorter queues are, and the more requests go to other regions.
    pub crowding: f32,
    /// How much the way to a region that might refuse counts: at 1 as much as the risk of it says. At
    /// 0 regions that are all but full are asked as readily as idle ones, and refuse more often.
    pub doubt: f32,
    /// The wait, in milliseconds, of a region that reports nothing to predict one from, if no other
    /// region does either. About what requests wait on average when they wait.
    pub unknown_wait_ms: f32,
    /// Share of a region's capacity that is kept free for its own clients, in thousandths; at least
    /// one place where there are two. More refuses guests earlier; 0 keeps nothing back.
    pub reserve_permille: u16,
    /// Most guests at a time, in thousandths of the capacity, or of the requests being worked on
    /// where that is unknown. `None`: as many as find room beside the reserve, which protects the
    /// region's own clients as well and wastes nothing. Set it only for contracts: 200 multiplied
    /// the mean time to first token by ten where six regions had to help two.
    pub guests_max_permille: Option<u16>,
}

impl Default for SpillTerms {
    fn default() -> Self {
        Self {
            margin_ms: 0.0,
            gain_min_ms: 20.0,
            gain_share: 0.5,
            invest: 0.2,
            hysteresis_ms: 0.0,
            tie_ms: 0.0,
            crowding: 1.0,
            doubt: 1.0,
            unknown_wait_ms: 100.0,
            reserve_permille: 100,
            guests_max_permille: None,
        }
    }
}
