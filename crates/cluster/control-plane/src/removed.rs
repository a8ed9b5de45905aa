//! Words of a node that was removed from its cluster.

/// Reason for which a removed node stops.
pub(crate) const REMOVED: &str = "this node was removed from its cluster";

/// Returns the reason that a removed node gives for refusing a request.
pub(crate) fn removed_reason() -> String {
    format!("{REMOVED}: its folder has to be emptied before it joins again")
}
