//! Expected service rate, before a rate was measured.

use super::HoldTime;

/// A replica's slots, and how long requests usually keep one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turnover {
    /// Most requests in flight at the replica.
    pub slots: u32,
    /// Recent time that requests kept a slot.
    pub hold: HoldTime,
}

/// Returns the requests per second that these replicas are expected to serve when all their slots
/// are taken, for requests of `tokens` on average. `None` if no request has ended at any replica. A
/// replica without a measured time counts as the mean of the others.
///
/// Requests take longer beside others than alone, so the expected rate is somewhat below the
/// measured one. A client that comes too early is refused again; a client that comes a little late
/// finds a slot.
#[must_use]
pub fn expected_rate(replicas: impl Iterator<Item = Turnover> + Clone, tokens: f32) -> Option<f32> {
    let known = || replicas.clone().filter_map(|replica| replica.hold.expected_ms(tokens));
    let usual_ms = known().sum::<f32>() / known().count().max(1) as f32;
    // No request has ended at any replica.
    if usual_ms <= 0.0 {
        return None;
    }
    let rate = |replica: Turnover| {
        let held_ms = replica.hold.expected_ms(tokens).unwrap_or(usual_ms);
        replica.slots as f32 * 1_000.0 / (held_ms * SLOWER)
    };
    Some(replicas.map(rate).sum::<f32>()).filter(|rate| *rate > 0.0)
}

/// Returns the requests per second that replicas with so many slots serve if each request keeps
/// its slot for so many milliseconds, by the speed of similar replicas. `None` if no replica has a
/// slot.
///
/// Use it only for the time after which refused clients retry, while [`expected_rate()`] returns
/// `None`. Without it, all clients of a burst at a fresh node would retry at once. A guess that is
/// too low costs them time. A guess that is too high lets them come early, and most of them are
/// still admitted to the slots that they were promised.
#[must_use]
pub fn guessed_rate(replicas: impl Iterator<Item = (u32, f32)>) -> Option<f32> {
    let rate =
        |(slots, held_ms): (u32, f32)| slots as f32 * 1_000.0 / (held_ms.max(HELD_MS_MIN) * SLOWER);
    Some(replicas.map(rate).sum::<f32>()).filter(|rate| rate.is_finite() && *rate > 0.0)
}

/// Least time in milliseconds that a request is guessed to keep its slot.
const HELD_MS_MIN: f32 = 1.0;

/// Factor by which requests take longer when all slots are taken.
const SLOWER: f32 = 1.25;

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(replicas: &[(u32, Option<f32>)]) -> Option<f32> {
        let of = |&(slots, held_ms): &(u32, Option<f32>)| {
            let known = |held_ms| HoldTime::default().with(100, held_ms);
            Turnover { slots, hold: held_ms.map(known).unwrap_or_default() }
        };
        expected_rate(replicas.iter().map(of), 100.0)
    }

    #[test]
    fn it_is_places_over_the_time_that_each_is_kept() {
        assert_eq!(rate(&[(10, Some(1_000.0))]), Some(8.0));
        assert_eq!(rate(&[(10, Some(1_000.0)), (5, Some(500.0))]), Some(16.0));
    }

    #[test]
    fn an_unknown_replica_is_as_fast_as_the_others() {
        assert_eq!(rate(&[(10, Some(1_000.0)), (10, None)]), Some(16.0));
    }

    #[test]
    fn a_guess_is_places_over_the_time_that_similar_replicas_need() {
        assert_eq!(guessed_rate([(10, 1_000.0), (5, 500.0)].into_iter()), Some(16.0));
        assert_eq!(guessed_rate([].into_iter()), None);
        assert_eq!(guessed_rate([(0, 1_000.0)].into_iter()), None);
        for held_ms in [0.0, -1.0, f32::NAN] {
            assert_eq!(guessed_rate([(1, held_ms)].into_iter()), Some(800.0));
        }
        assert_eq!(guessed_rate([(1, f32::INFINITY)].into_iter()), None);
    }

    #[test]
    fn nothing_is_expected_where_nothing_is_known_or_has_a_place() {
        assert_eq!(rate(&[]), None);
        assert_eq!(rate(&[(10, None)]), None);
        assert_eq!(rate(&[(0, Some(1_000.0))]), None);
        assert!(rate(&[(1, Some(f32::MIN_POSITIVE))]).is_some_and(f32::is_finite));
    }
}
