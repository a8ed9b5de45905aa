//! Rate limits of a request and the room that they leave, for its client to read.

use std::sync::Arc;

use crate::LimitKind;
use crate::limiter::{Limiter, RateRoom};
use crate::request::LIMITS_EACH;

/// Rate limits that apply to a request.
#[derive(Debug)]
pub struct Rates {
    limiters: [Option<Arc<Limiter>>; LIMITS_EACH],
}

impl Rates {
    /// Creates the set of these limits; None if it has none.
    pub(crate) fn of(limiters: [Option<Arc<Limiter>>; LIMITS_EACH]) -> Option<Self> {
        limiters.iter().any(Option::is_some).then_some(Self { limiters })
    }

    /// Returns the rate of `kind` that has the least room; None if no limit counts that kind.
    /// `now_ns` is by [`crate::Quotas::clock_ns`].
    #[must_use]
    pub fn room(&self, now_ns: u64, kind: LimitKind) -> Option<RateRoom> {
        let rooms = self.limiters.iter().flatten().filter_map(|limiter| limiter.room(now_ns, kind));
        rooms.min_by_key(|room| (room.remaining, room.limit))
    }
}
