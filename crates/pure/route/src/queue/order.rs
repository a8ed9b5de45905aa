//! Order in which waiting requests are served.

use std::time::Instant;

use super::WaitLimits;
use super::asker::Asker;
use super::class::Class;
use super::line::{QueueLoad, SIZE_UNIT, Seat};

/// Number of priority classes; 0 is the most urgent.
pub const CLASSES: usize = 4;

/// Length of a series of removals in which each class that waits is served at least once.
///
/// With all four classes waiting, the lower three get at least 3 in 32 together, and the first
/// class the rest.
pub(super) const TURNS_MAX: u32 = 32;

/// Class, tenant and seat of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueuePosition {
    class: usize,
    tenant: u64,
    weight: u16,
    pub(super) seat: Seat,
}

impl QueuePosition {
    pub(super) fn new(
        asker: &Asker,
        limits: &WaitLimits,
        turn_by: Instant,
        leave_by: Instant,
        arrival: u64,
    ) -> Self {
        let bytes_usual = (limits.bytes_max / limits.count_max.max(1)).max(1) as u64;
        let seat = Seat {
            turn_by,
            arrival,
            is_newcomer: !asker.is_promised,
            leave_by,
            cost: asker.cost(),
            size: SIZE_UNIT
                + (asker.bytes as u64).saturating_mul(SIZE_UNIT).min(SIZE_MAX) / bytes_usual,
        };
        Self { class: class(asker.priority), tenant: asker.tenant, weight: asker.weight, seat }
    }
}

/// Largest size, a million places: keeps sums from overflowing.
const SIZE_MAX: u64 = SIZE_UNIT << 20;

/// Places of all requests that wait and need not have left yet.
#[derive(Debug, Default)]
pub(super) struct QueueOrder {
    classes: [Class; CLASSES],
}

impl QueueOrder {
    pub(super) fn insert(&mut self, place: QueuePosition) {
        self.classes[place.class].insert(place.tenant, place.weight, place.seat);
    }

    /// Puts back a place that was taken out; its tenant keeps its present weight.
    pub(super) fn put_back(&mut self, place: QueuePosition) {
        let class = &mut self.classes[place.class];
        let weight = class.weight(place.tenant).unwrap_or(place.weight);
        class.insert(place.tenant, weight, place.seat);
    }

    pub(super) fn remove(&mut self, place: &QueuePosition) {
        self.classes[place.class].remove(place.tenant, &place.seat);
    }

    /// Removes the next request, and returns the number of its arrival.
    pub(super) fn take_next(&mut self) -> Option<u64> {
        let next = self.next_class()?;
        let (_, seat) = self.classes[next].take_next()?;
        self.classes[next].passed_over = 0;
        for (other, class) in self.classes.iter_mut().enumerate() {
            if other != next && !class.is_empty() {
                class.passed_over += 1;
            }
        }
        Some(seat.arrival)
    }

    /// Returns the arrival of the request that has to leave for this one. It is of the least urgent
    /// class below, or else of the own class and of a tenant that holds more of the queue than this
    /// one's. A promised request never leaves; a new promised one may also replace one of its own
    /// tenant.
    pub(super) fn victim(&self, place: &QueuePosition) -> Option<u64> {
        // The least urgent class gives way first, however little of the queue it holds.
        let below = self.classes[place.class + 1..].iter().rev().find_map(Class::last_newcomer);
        let same = &self.classes[place.class];
        let beside = || match place.seat.is_newcomer {
            false => same.last_newcomer_for(place.tenant),
            true => same.last_newcomer_over(place.tenant, &place.seat),
        };
        below.or_else(beside).map(|(_, seat)| seat.arrival)
    }

    /// Returns how many requests of its tenant wait in its class, and the number of lines in its
    /// class and all less urgent ones, with its own.
    pub(super) fn share(&self, place: &QueuePosition) -> (usize, usize) {
        let (own, lines) = self.classes[place.class].share(place.tenant);
        let below = self.classes[place.class + 1..].iter().map(|class| class.lines().count());
        (own, lines + below.sum::<usize>())
    }

    /// Returns how many requests wait in this class and more urgent ones.
    pub(super) fn count_up_to(&self, priority: u8) -> usize {
        self.classes[..=class(priority)].iter().map(|class| class.load().requests).sum()
    }

    /// Returns how many requests wait in more urgent classes.
    pub(super) fn count_above(&self, priority: u8) -> usize {
        self.classes[..class(priority)].iter().map(|class| class.load().requests).sum()
    }

    /// Returns the tenants that wait in this class, with their weights and loads.
    pub(super) fn lines(
        &self,
        priority: u8,
    ) -> impl Iterator<Item = (u64, u16, QueueLoad, QueueLoad)> + '_ {
        self.classes[class(priority)].lines()
    }

    /// Returns how many requests stand before this place.
    pub(super) fn position(&self, place: &QueuePosition) -> usize {
        let above = self.classes[..place.class].iter().map(|class| class.load().requests);
        let within = self.classes[place.class].position(place.tenant, &place.seat);
        above.sum::<usize>() + within
    }

    /// Returns the class to serve: the lowest that was passed over for too long, or else the most
    /// urgent that has a request. Several classes can be due at once, so each is due as many turns
    /// early as there are classes that may come before it.
    fn next_class(&self) -> Option<usize> {
        let waits = |&class: &usize| !self.classes[class].is_empty();
        let is_due = |&class: &usize| self.classes[class].passed_over >= PASSED_OVER_MAX;
        let due = (0..CLASSES).rev().filter(waits).find(is_due);
        due.or_else(|| (0..CLASSES).find(waits))
    }
}

/// Times that a class may be passed over. Classes below may be due at the same time and go first.
const PASSED_OVER_MAX: u32 = TURNS_MAX - CLASSES as u32;

pub(crate) fn class(priority: u8) -> usize {
    usize::from(priority).min(CLASSES - 1)
}
