//! Estimate of how much a node needs of a limit.

use crate::LimitKind;
use crate::limiter::Demand;

/// Returns the need of a kind, from the need before, the demand since then, and the units held.
///
/// After a refusal the need grows to at least twice the units held, so that a sudden demand has all
/// there is after a few statements. Without one it is a quarter more than was used, which leaves
/// room for a demand that grows. It shrinks slowly, by half in six seconds of four looks each,
/// since asking anew costs requests time. If `is_wanted`, another node needs more than it has, and
/// the need is halved in half a second.
pub(crate) fn needed(
    before: u64,
    demand: &Demand,
    kind: LimitKind,
    held: u64,
    is_wanted: bool,
) -> u64 {
    let (peak, refused) = (demand.peak[kind], demand.refused[kind]);
    if refused > 0 {
        return before.max(peak.saturating_add(refused)).max(2 * held + 1);
    }
    // Unused, the need may fade to nothing: the unit for growth would stay for ever.
    let busy = if peak == 0 { 0 } else { peak + peak / 4 + 1 };
    let slowness = if is_wanted { 4 } else { 32 };
    busy.max(before - before.div_ceil(slowness))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Units;

    const KIND: LimitKind = LimitKind::TokenRate;

    fn after(before: u64, peak: u64, refused: u64, held: u64) -> u64 {
        let demand = Demand { peak: Units([0, peak, 0]), refused: Units([0, refused, 0]) };
        needed(before, &demand, KIND, held, false)
    }

    #[test]
    fn a_refusal_asks_for_twice_as_much_at_least() {
        assert_eq!(after(0, 100, 5, 100), 201);
        assert_eq!(after(0, 100, 900, 100), 1_000);
        assert_eq!(after(2_000, 100, 5, 100), 2_000);
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten_in_the_end() {
        let mut need = 1_000;
        for _ in 0..24 {
            need = after(need, 0, 0, 500);
        }
        assert!((430..=500).contains(&need), "{need}");
        for _ in 0..300 {
            need = after(need, 0, 0, 500);
        }
        assert_eq!(need, 0);
        assert_eq!(after(0, 160, 0, 500), 201);
    }
}
