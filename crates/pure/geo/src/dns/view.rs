//! State of the regions at one moment, as far as answers depend on it.

/// Immutable snapshot that answers are made from. A new snapshot replaces it after every change; no
/// quorum is asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DnsView {
    /// True after the other regions have reported, or after the wait for them is over. Until then
    /// no client is directed to a region.
    pub is_settled: bool,
    /// Index of this node's own region in [`Self::regions`]; `None` if the zone does not have it.
    pub own: Option<usize>,
    /// States in the order of [`crate::dns::Zone::regions`]. A region without an entry counts as
    /// silent.
    pub regions: Vec<RegionState>,
}

/// State of one region.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RegionState {
    /// True if clients are to be directed to this region.
    pub is_offered: bool,
    /// True if reports of the region arrive here, even if no client should be directed there.
    pub is_alive: bool,
    /// Share among regions that are equally near, in thousandths.
    pub weight_permille: u32,
    /// Round trip time from the own region, as connections measure it, in milliseconds; `None`
    /// without a measurement.
    pub measured_rtt_ms: Option<f32>,
}

impl DnsView {
    pub(crate) fn region(&self, index: usize) -> RegionState {
        self.regions.get(index).copied().unwrap_or_default()
    }
}
