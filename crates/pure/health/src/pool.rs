//! Figures of a pool, summed up over its members.

use std::time::Instant;

use spillway_types::{Admission, PoolName};

use crate::member::Member;
use crate::pool_load::PoolLoad;
use crate::quantile::Samples;

/// Share of a pool's replicas that traffic has ejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ejections {
    /// Replicas that are ejected, or on trial after that.
    pub(crate) ejected: u32,
    /// Ejected and open replicas together.
    pub(crate) of: u32,
}

impl PoolLoad {
    /// Sums up the load of `members`, which are one pool.
    pub(crate) fn of<'a>(members: impl Iterator<Item = &'a Member>, now: Instant) -> Self {
        let (mut open, mut regular) = (0, 0);
        let (mut queues, mut queue_sum) = (0_u32, 0.0_f64);
        let mut samples = Samples::new();
        for member in members {
            regular += u32::from(member.reserve().is_none());
            member.add_times_to(&mut samples, now);
            if member.admission() == Admission::Open {
                open += 1;
                if let Some(queued) = member.queued(now) {
                    queues += 1;
                    queue_sum += f64::from(queued);
                }
            }
        }
        let queue_mean = (queues > 0).then(|| (queue_sum / f64::from(queues)) as f32);
        // A percentile of few samples must not bring in the reserve.
        let p99_ms = samples.p99_ms().filter(|(_, trust)| *trust >= 1.0).map(|(p99, _)| p99);
        Self { open, regular, queue_mean, p99_ms }
    }
}

impl Ejections {
    pub(crate) fn of<'a>(pool: &PoolName, members: impl Iterator<Item = &'a Member>) -> Self {
        let mut sum = Self::default();
        for member in members.filter(|member| member.pool() == pool) {
            let is_ejected = member.is_ejected_by_traffic();
            sum.ejected += u32::from(is_ejected);
            sum.of += u32::from(is_ejected || member.admission() == Admission::Open);
        }
        sum
    }

    /// Returns true if one more replica may be ejected.
    pub(crate) fn have_room(self, share_percent: u32) -> bool {
        (u64::from(self.ejected) + 1) * 100 <= u64::from(self.of) * u64::from(share_percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_kept_exactly() {
        let room = |ejected, of| Ejections { ejected, of }.have_room(50);
        assert_eq!([room(0, 1), room(0, 2), room(1, 2)], [false, true, false]);
        assert_eq!([room(0, 3), room(1, 3), room(1, 4), room(2, 4)], [true, false, true, false]);
        assert!(Ejections { ejected: 9, of: 10 }.have_room(100));
        assert!(!Ejections { ejected: 0, of: 1000 }.have_room(0));
    }
}
