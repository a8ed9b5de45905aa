//! Estimate of how much a node needs of a limit.

/// Observed demand of a node for a kind of a limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Felt {
    /// Need before.
    pub(crate) before: u64,
    /// Most units in use recently, see [`recent`].
    pub(crate) recent: u64,
    /// Units refused since the need before.
    pub(crate) refused: u64,
    /// True if another node needs more than it has.
    pub(crate) is_wanted: bool,
    /// True if it is time for the need to shrink.
    pub(crate) is_tick: bool,
}

/// Returns the most units in use recently: the use at a peak fades by half with each tick.
pub(crate) fn recent(before: u64, peak: u64, is_tick: bool) -> u64 {
    let fading = if is_tick { before / 2 } else { before };
    peak.max(fading)
}

/// Returns the need of a node that uses `recent` units: a quarter more leaves room for a demand
/// that grows. Unused, a need may fade to nothing: a unit for growth would stay forever.
pub(crate) fn busy(recent: u64) -> u64 {
    if recent == 0 { 0 } else { recent + recent / 4 + 1 }
}

/// Returns the need of a kind; `u64::MAX` is all there is.
///
/// After a refusal a node needs all it can get: others keep what they need, so it gets what they
/// don't, in one step. Later its need shrinks by half in about a second of four ticks, because
/// another request for units costs requests time. If another node needs more than it has, the need
/// is what was used recently.
pub(crate) fn needed(felt: &Felt) -> u64 {
    if felt.refused > 0 {
        return u64::MAX;
    }
    let busy = busy(felt.recent);
    if felt.is_wanted {
        return busy;
    }
    let step = if felt.is_tick { felt.before.div_ceil(8) } else { 0 };
    busy.max(felt.before - step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_asks_for_all_there_is() {
        let felt = Felt { before: 10, recent: 100, refused: 1, is_wanted: true, is_tick: false };
        assert_eq!(needed(&felt), u64::MAX);
    }

    #[test]
    fn what_no_request_asks_for_is_forgotten_in_the_end() {
        let mut need = 1_000;
        let after = |before| needed(&Felt { before, is_tick: true, ..Felt::default() });
        for _ in 0..5 {
            need = after(need);
        }
        assert!((430..=520).contains(&need), "{need}");
        assert_eq!(needed(&Felt { before: need, ..Felt::default() }), need, "only with time");
        for _ in 0..80 {
            need = after(need);
        }
        assert_eq!(need, 0);
        assert_eq!(needed(&Felt { recent: 160, is_tick: true, ..Felt::default() }), 201);
    }

    #[test]
    fn where_another_node_waits_only_what_was_used_of_late_is_needed() {
        let felt = Felt { before: 1_000, recent: 40, is_wanted: true, ..Felt::default() };
        assert_eq!(needed(&felt), 51);
        let mut used = 1_000;
        for _ in 0..4 {
            used = recent(used, 0, true);
        }
        assert!(used < 70, "{used} after a second");
        assert_eq!((recent(80, 90, true), recent(80, 0, false)), (90, 80));
    }
}
