//! Adaptive concurrency limit of a replica, and the observations behind it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use spillway_route::{GuestLack, Sharer, own_part};

/// Thousandths: times to the first token are added up in whole numbers.
const PERMILLE: f32 = 1_000.0;

/// Observations of a replica under load, and the concurrency limit made of them.
///
/// Requests add observations. One task takes them out, several times a second, and sets the limit.
#[derive(Debug)]
pub struct ConcurrencyLimiter {
    /// Limit for all nodes of the region together; `u32::MAX` if there is none.
    limit: AtomicU32,
    /// Nonzero if the limit was ever needed.
    is_found: AtomicU32,
    /// This node's part of the limit; `u32::MAX` if there is none.
    part: AtomicU32,
    /// Requests without a begun reply at which no more guests come; `u32::MAX` if there is none.
    guests_unbegun_max: AtomicU32,
    /// Resources that refused guests lacked since the last take: a bit of each [`GuestLack`].
    guest_lacks: AtomicU32,
    /// Requests of the region's other nodes at this replica.
    elsewhere: AtomicU32,
    /// Demand of each of these nodes. Requests never read it.
    sharers: Mutex<Vec<Sharer>>,
    /// Most requests in flight at a time since the last take.
    most: AtomicU32,
    /// Requests whose reply has not begun.
    unbegun: AtomicU32,
    /// Replies that began since the last take.
    began: AtomicU32,
    /// Number of these replies whose time to first token is known, and the sum of these times in
    /// thousandths.
    timed: AtomicU32,
    first_token_permille: AtomicU64,
}

/// Observations of a replica since the last take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConcurrencySeen {
    /// Most requests of this node in flight at a time.
    pub in_flight: u32,
    /// Requests of the region's other nodes, by their last report.
    pub elsewhere: u32,
    /// Demand of these nodes: their requests at this replica and their waiting requests that could
    /// go to it.
    pub wanted_elsewhere: u32,
    /// This node's part of the limit.
    pub allowed: u32,
    /// Requests of this node whose reply has not begun, now.
    pub unbegun: u32,
    /// Resource that refused guests lacked. If there were several, the reserve is reported.
    pub guest_lack: Option<GuestLack>,
    /// Replies that began.
    pub began: u32,
    /// Mean time to first token of the replies where it is known, relative to the prediction
    /// without a queue, or in milliseconds where there was no prediction; `None` if it is known of
    /// no reply.
    pub first_token: Option<f32>,
}

impl Default for ConcurrencyLimiter {
    fn default() -> Self {
        Self {
            limit: AtomicU32::new(u32::MAX),
            is_found: AtomicU32::new(0),
            part: AtomicU32::new(u32::MAX),
            guests_unbegun_max: AtomicU32::new(u32::MAX),
            guest_lacks: AtomicU32::new(0),
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

impl ConcurrencyLimiter {
    /// Returns this node's part of the limit; `u32::MAX` if there is none.
    pub fn part(&self) -> u32 {
        self.part.load(Ordering::Relaxed)
    }

    /// Returns the limit; `u32::MAX` if there is none.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Returns true if the limit was ever needed.
    pub fn is_found(&self) -> bool {
        self.is_found.load(Ordering::Relaxed) != 0
    }

    /// Sets the limit in requests; `is_found` is true if it was measured.
    pub fn set_limit(&self, limit: u32, is_found: bool) {
        self.limit.store(limit, Ordering::Relaxed);
        self.is_found.store(is_found.into(), Ordering::Relaxed);
        self.divide();
    }

    /// Returns the requests without a begun reply at which no more guests come; `u32::MAX` if there is
    /// no such number.
    pub fn guests_unbegun_max(&self) -> u32 {
        self.guests_unbegun_max.load(Ordering::Relaxed)
    }

    /// Sets that number.
    pub fn set_guests_unbegun_max(&self, most: Option<u32>) {
        self.guests_unbegun_max.store(most.unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Notes what a guest lacked that was refused.
    pub fn note_guest_lack(&self, lack: GuestLack) {
        self.guest_lacks.fetch_or(lack_bit(lack), Ordering::Relaxed);
    }

    /// Returns this node's requests whose reply has not begun.
    pub fn unbegun(&self) -> u32 {
        self.unbegun.load(Ordering::Relaxed)
    }

    /// Sets the requests of the region's other nodes here, and the nodes that share the limit.
    pub fn set_elsewhere(&self, requests: u32, sharers: Vec<Sharer>) {
        self.note_elsewhere(requests);
        *self.sharers.lock().unwrap_or_else(PoisonError::into_inner) = sharers;
        self.divide();
    }

    /// Sets the requests of the region's other nodes here; the nodes that share the limit stay.
    pub fn note_elsewhere(&self, requests: u32) {
        self.elsewhere.store(requests, Ordering::Relaxed);
    }

    /// Returns the requests of the region's other nodes at this replica.
    pub fn elsewhere(&self) -> u32 {
        self.elsewhere.load(Ordering::Relaxed)
    }

    fn wanted_elsewhere(&self) -> u32 {
        let sharers = self.sharers.lock().unwrap_or_else(PoisonError::into_inner);
        sharers.iter().fold(0, |sum, sharer| sharer.wanted.saturating_add(sum))
    }

    /// Notes the current number of this node's requests in flight.
    pub fn note_most(&self, in_flight: u32) {
        // A read that finds nothing to change is cheaper than a write.
        if in_flight > self.most.load(Ordering::Relaxed) {
            self.most.fetch_max(in_flight, Ordering::Relaxed);
        }
    }

    /// Notes a request that was sent; its reply has not begun.
    pub fn note_sent(&self) {
        self.unbegun.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the reply of such a request began, or never will.
    pub fn note_settled(&self) {
        self.unbegun.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes a reply that began, with its time to first token if that is known.
    pub fn note_began(&self, first_token: Option<f32>) {
        if let Some(time) = first_token {
            let permille = (time * PERMILLE) as u64;
            self.first_token_permille.fetch_add(permille, Ordering::Relaxed);
            self.timed.fetch_add(1, Ordering::Relaxed);
        }
        self.began.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes out the observations since the last call; `in_flight` requests are there now.
    pub fn take(&self, in_flight: u32) -> ConcurrencySeen {
        let order = Ordering::Relaxed;
        let timed = self.timed.swap(0, order);
        let sum = self.first_token_permille.swap(0, order) as f32 / PERMILLE;
        ConcurrencySeen {
            // Requests that are in flight now count for the next period, too.
            in_flight: self.most.swap(in_flight, order).max(in_flight),
            elsewhere: self.elsewhere(),
            wanted_elsewhere: self.wanted_elsewhere(),
            allowed: self.part(),
            unbegun: self.unbegun.load(order),
            guest_lack: lack_of(self.guest_lacks.swap(0, order)),
            began: self.began.swap(0, order),
            first_token: (timed > 0).then(|| sum / timed as f32),
        }
    }

    /// Computes this node's part of the limit ahead of time, since every decision about a request
    /// reads it.
    fn divide(&self) {
        // Two tasks call this; the later one must use what both have stored, so the lock is taken
        // first.
        let mut sharers = self.sharers.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = self.limit();
        let part = if limit == u32::MAX { u32::MAX } else { own_part(limit, &mut sharers) };
        self.part.store(part, Ordering::Relaxed);
    }
}

const fn lack_bit(lack: GuestLack) -> u32 {
    match lack {
        GuestLack::Reserve => 1,
        GuestLack::Pace => 2,
    }
}

fn lack_of(bits: u32) -> Option<GuestLack> {
    [GuestLack::Reserve, GuestLack::Pace].into_iter().find(|lack| bits & lack_bit(*lack) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_its_part_of_the_limit_whatever_is_told_first() {
        let sharers = |wanted: &[u32]| -> Vec<Sharer> {
            wanted.iter().map(|&wanted| Sharer { wanted, is_before: true }).collect()
        };
        let concurrency = ConcurrencyLimiter::default();
        assert_eq!(concurrency.part(), u32::MAX);
        concurrency.set_elsewhere(10, sharers(&[10]));
        assert_eq!(concurrency.part(), u32::MAX, "without a limit nothing is divided");
        concurrency.set_limit(32, false);
        assert_eq!(concurrency.part(), 22);
        concurrency.set_elsewhere(30, sharers(&[90]));
        assert_eq!(concurrency.part(), 16);
        concurrency.set_limit(u32::MAX, false);
        assert_eq!(concurrency.part(), u32::MAX);
    }

    #[test]
    fn a_look_takes_out_what_was_seen_since_the_last_one() {
        let concurrency = ConcurrencyLimiter::default();
        concurrency.set_elsewhere(4, vec![Sharer { wanted: 6, is_before: true }]);
        concurrency.set_limit(46, true);
        [1, 5, 2].into_iter().for_each(|in_flight| concurrency.note_most(in_flight));
        (0..3).for_each(|_| concurrency.note_sent());
        concurrency.note_settled();
        concurrency.note_began(Some(1.5));
        concurrency.note_began(None);
        concurrency.note_began(Some(2.5));
        for lack in [GuestLack::Reserve, GuestLack::Pace] {
            concurrency.note_guest_lack(lack);
        }
        let first = ConcurrencySeen {
            in_flight: 5,
            elsewhere: 4,
            wanted_elsewhere: 6,
            allowed: 40,
            unbegun: 2,
            guest_lack: Some(GuestLack::Reserve),
            began: 3,
            first_token: Some(2.0),
        };
        assert_eq!(concurrency.take(2), first);
        let nothing = ConcurrencySeen {
            in_flight: 2,
            guest_lack: None,
            began: 0,
            first_token: None,
            ..first
        };
        assert_eq!(concurrency.take(1), nothing, "those that were there at the last look count");
        assert_eq!(concurrency.take(1).in_flight, 1);
    }
}
