//! How the rates of a request's limits stand on this node, for its client to read.

use std::sync::Arc;
use std::time::Duration;

use crate::LimitKind;
use crate::limiter::Limiter;
use crate::request::LIMITS_EACH;

/// The limits on rates that apply to a request.
#[derive(Debug)]
pub struct Rates {
    limiters: [Option<Arc<Limiter>>; LIMITS_EACH],
}

/// How a rate stands on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateRoom {
    /// The whole limit, in all regions.
    pub limit: u64,
    /// What this node would still let in now.
    pub remaining: u64,
    /// When all that counts now will have left the window.
    pub reset: Duration,
}

impl Rates {
    /// None if there is no limit among them.
    pub(crate) fn of(limiters: [Option<Arc<Limiter>>; LIMITS_EACH]) -> Option<Self> {
        limiters.iter().any(Option::is_some).then_some(Self { limiters })
    }

    /// The rate of `kind` that has the least room; none if no limit counts that kind.
    /// `now_ns` is by [`crate::Quotas::clock_ns`].
    #[must_use]
    pub fn room(&self, now_ns: u64, kind: LimitKind) -> Option<RateRoom> {
        let rooms = self.limiters.iter().flatten().filter_map(|limiter| limiter.room(now_ns, kind));
        rooms.min_by_key(|room| (room.remaining, room.limit))
    }
}
