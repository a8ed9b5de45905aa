//! How many requests a replica may have by what was found out, and what that goes by.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use spillway_route::{Sharer, own_part};

/// Thousandths: times to the first token are added up in whole numbers.
const PERMILLE: f32 = 1_000.0;

/// What requests show of how a replica copes, and the limit that was made of it.
///
/// Requests add to it; whoever looks after the limit takes it out, some times a second, and is the only
/// one who does.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// For the nodes of the region together; `u32::MAX` if there is none.
    limit: AtomicU32,
    /// Whether the limit was ever seen to be needed.
    is_found: AtomicU32,
    /// This node's part of it.
    part: AtomicU32,
    /// Requests of the region's other nodes there.
    elsewhere: AtomicU32,
    /// What each of them wants. Requests never ask for it.
    sharers: Mutex<Vec<Sharer>>,
    /// Most requests at a time since the last look.
    most: AtomicU32,
    /// Requests whose reply has not begun.
    unbegun: AtomicU32,
    /// Replies that began since the last look.
    began: AtomicU32,
    /// Of these, whose time to the first token is known, and the sum of that in thousandths.
    timed: AtomicU32,
    first_token_permille: AtomicU64,
}

/// What was seen of a replica since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CrowdSeen {
    /// Most requests of this node in flight there at a time.
    pub in_flight: u32,
    /// Requests of the region's other nodes there, as they told last.
    pub elsewhere: u32,
    /// Requests that these nodes have there, and those that wait in them and could go there.
    pub wanted_elsewhere: u32,
    /// This node's part of the limit.
    pub allowed: u32,
    /// Requests of this node there whose reply has not begun, now.
    pub unbegun: u32,
    /// Replies that began.
    pub began: u32,
    /// Mean time to the first token of those of which it is known, in parts of what was predicted
    /// without a queue, or in milliseconds where nothing was; `None` if it is known of none.
    pub first_token: Option<f32>,
}

impl Default for Crowd {
    fn default() -> Self {
        Self {
            limit: AtomicU32::new(u32::MAX),
            is_found: AtomicU32::new(0),
            part: AtomicU32::new(u32::MAX),
            elsewhere: AtomicU32::new(0),
            sharers: Mutex::default(),
            most: AtomicU32::new(0),
            unbegun: AtomicU32::new(0),
            began: AtomicU32::new(0),
            timed: AtomicU32::new(0),
            first_token_permille: AtomicU64::new(0),
        }
    }
}

impl Crowd {
    /// This node's part of the limit; `u32::MAX` if there is none.
    pub(crate) fn part(&self) -> u32 {
        self.part.load(Ordering::Relaxed)
    }

    /// The limit; `u32::MAX` if there is none.
    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Whether the limit was ever seen to be needed.
    pub(crate) fn is_found(&self) -> bool {
        self.is_found.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn set_limit(&self, limit: u32, is_found: bool) {
        self.limit.store(limit, Ordering::Relaxed);
        self.is_found.store(is_found.into(), Ordering::Relaxed);
        self.divide();
    }

    pub(crate) fn set_elsewhere(&self, requests: u32, sharers: Vec<Sharer>) {
        self.elsewhere.store(requests, Ordering::Relaxed);
        *self.sharers.lock().unwrap_or_else(PoisonError::into_inner) = sharers;
        self.divide();
    }

    /// Requests of the region's other nodes there.
    pub(crate) fn elsewhere(&self) -> u32 {
        self.elsewhere.load(Ordering::Relaxed)
    }

    fn wanted_elsewhere(&self) -> u32 {
        let sharers = self.sharers.lock().unwrap_or_else(PoisonError::into_inner);
        sharers.iter().fold(0, |sum, sharer| sharer.wanted.saturating_add(sum))
    }

    /// There are so many of this node now.
    pub(crate) fn note_most(&self, in_flight: u32) {
        // A look that finds nothing to do is cheaper than a change.
        if in_flight > self.most.load(Ordering::Relaxed) {
            self.most.fetch_max(in_flight, Ordering::Relaxed);
        }
    }

    /// One more whose reply has not begun.
    pub(crate) fn note_sent(&self) {
        self.unbegun.fetch_add(1, Ordering::Relaxed);
    }

    /// One of those has begun, or never will.
    pub(crate) fn note_settled(&self) {
        self.unbegun.fetch_sub(1, Ordering::Relaxed);
    }

    /// A reply began, with its first token after this time if that is known.
    pub(crate) fn note_began(&self, first_token: Option<f32>) {
        if let Some(time) = first_token {
            let permille = (time * PERMILLE) as u64;
            self.first_token_permille.fetch_add(permille, Ordering::Relaxed);
            self.timed.fetch_add(1, Ordering::Relaxed);
        }
        self.began.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes out what was seen since the last time. `in_flight` are there now.
    pub(crate) fn take(&self, in_flight: u32) -> CrowdSeen {
        let order = Ordering::Relaxed;
        let timed = self.timed.swap(0, order);
        let sum = self.first_token_permille.swap(0, order) as f32 / PERMILLE;
        CrowdSeen {
            in_flight: self.most.swap(in_flight, order).max(in_flight),
            elsewhere: self.elsewhere(),
            wanted_elsewhere: self.wanted_elsewhere(),
            allowed: self.part(),
            unbegun: self.unbegun.load(order),
            began: self.began.swap(0, order),
            first_token: (timed > 0).then(|| sum / timed as f32),
        }
    }

    /// Worked out here, since every decision about a request asks for it.
    fn divide(&self) {
        // Two tasks come here; whoever comes last must go by what both have said.
        let mut sharers = self.sharers.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = self.limit();
        let part = if limit == u32::MAX { u32::MAX } else { own_part(limit, &mut sharers) };
        self.part.store(part, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_its_part_of_the_limit_whatever_is_told_first() {
        let sharers = |wanted: &[u32]| -> Vec<Sharer> {
            wanted.iter().map(|&wanted| Sharer { wanted, is_before: true }).collect()
        };
        let crowd = Crowd::default();
        assert_eq!(crowd.part(), u32::MAX);
        crowd.set_elsewhere(10, sharers(&[10]));
        assert_eq!(crowd.part(), u32::MAX, "without a limit nothing is divided");
        crowd.set_limit(32, false);
        assert_eq!(crowd.part(), 22);
        crowd.set_elsewhere(30, sharers(&[90]));
        assert_eq!(crowd.part(), 16);
        crowd.set_limit(u32::MAX, false);
        assert_eq!(crowd.part(), u32::MAX);
    }

    #[test]
    fn a_look_takes_out_what_was_seen_since_the_last_one() {
        let crowd = Crowd::default();
        crowd.set_elsewhere(4, vec![Sharer { wanted: 6, is_before: true }]);
        crowd.set_limit(46, true);
        [1, 5, 2].into_iter().for_each(|in_flight| crowd.note_most(in_flight));
        (0..3).for_each(|_| crowd.note_sent());
        crowd.note_settled();
        crowd.note_began(Some(1.5));
        crowd.note_began(None);
        crowd.note_began(Some(2.5));
        let first = CrowdSeen {
            in_flight: 5,
            elsewhere: 4,
            wanted_elsewhere: 6,
            allowed: 40,
            unbegun: 2,
            began: 3,
            first_token: Some(2.0),
        };
        assert_eq!(crowd.take(2), first);
        let nothing = CrowdSeen { in_flight: 2, began: 0, first_token: None, ..first };
        assert_eq!(crowd.take(1), nothing, "those that were there at the last look count");
        assert_eq!(crowd.take(1).in_flight, 1);
    }
}
