//! Graceful degradation: limits of waiting while replicas are missing.

/// Class that is served whatever is missing.
const FIRST_CLASS: u8 = 0;
/// Class from which on requests never wait while replicas are missing.
const LAST_CLASS: u8 = 3;

/// Longest wait in milliseconds that less urgent classes get a share of while replicas are missing.
const WAIT_MS_MAX: f32 = 30_000.0;

/// Share of a model's replicas that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Degraded {
    /// Thousandths of the model's replicas that may serve.
    pub healthy_permille: u16,
    /// The service is degraded at this share or below, in thousandths; 0 turns the rule off.
    pub below_permille: u16,
}

impl Degraded {
    /// Returns true if a request of the class `priority` must not wait for `wait_ms` because too
    /// many replicas are missing. Requests wait for `wait_ms_max` at most.
    ///
    /// The more replicas are missing and the less urgent the class, the shorter the allowed wait.
    /// Urgent requests get the remaining capacity, and the clients of the others learn at once that
    /// they should retry later.
    #[must_use]
    pub fn refuses(self, priority: u8, wait_ms: f32, wait_ms_max: f32) -> bool {
        let wait_ms_max = wait_ms_max.min(WAIT_MS_MAX);
        let Self { healthy_permille, below_permille } = self;
        if priority == FIRST_CLASS || below_permille == 0 || healthy_permille > below_permille {
            return false;
        }
        let by_health = f32::from(healthy_permille) / f32::from(below_permille);
        let by_class =
            f32::from(LAST_CLASS.saturating_sub(priority)) / f32::from(LAST_CLASS - FIRST_CLASS);
        // The last class may not even wait for 0 ms, which is not more than its limit of 0.
        wait_ms > wait_ms_max * by_health * by_class || by_class == 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuses(healthy_permille: u16, priority: u8, wait_ms: f32) -> bool {
        Degraded { healthy_permille, below_permille: 600 }.refuses(priority, wait_ms, 9_000.0)
    }

    #[test]
    fn nobody_is_refused_while_enough_are_there() {
        for priority in 0..=9 {
            assert!(!refuses(601, priority, f32::MAX));
            let never = Degraded { healthy_permille: 0, below_permille: 0 };
            assert!(!never.refuses(priority, f32::MAX, 1.0));
        }
    }

    #[test]
    fn the_most_urgent_wait_as_ever_and_the_least_never() {
        assert!((0..=600).all(|healthy| !refuses(healthy, 0, 1e9)));
        assert!([3, 4, u8::MAX].iter().all(|class| refuses(600, *class, 0.0)));
    }

    #[test]
    fn the_more_are_missing_and_the_less_urgent_the_less_it_may_wait() {
        // Two thirds of the longest wait, and one third.
        assert!(!refuses(600, 1, 5_999.0) && refuses(600, 1, 6_001.0));
        assert!(!refuses(600, 2, 2_999.0) && refuses(600, 2, 3_001.0));
        // Half of that with half of the replicas that there should be.
        assert!(!refuses(300, 1, 2_999.0) && refuses(300, 1, 3_001.0));
        assert!(!refuses(300, 2, 1_499.0) && refuses(300, 2, 1_501.0));
        assert!(!refuses(0, 1, 0.0) && refuses(0, 1, 1.0), "only what need not wait");
    }
}
