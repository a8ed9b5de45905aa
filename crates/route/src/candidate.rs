//! A replica as a policy sees it.

use spillway_types::ReplicaSlot;

/// One replica that may serve the requests of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where it stands in the view.
    pub slot: ReplicaSlot,
    /// Its capacity in proportion to the others of its group; at least 1, and 0 is taken as 1.
    pub weight: u32,
    /// It takes no further request while this many are in flight; `u32::MAX` means no limit.
    pub in_flight_max: u32,
}
