//! In which order what waits is served: the one place that knows.

use std::time::Instant;

use super::WaitLimits;
use super::class::Class;
use super::line::{Load, SIZE_UNIT, Seat};
use crate::Asker;

/// Number of priority classes; 0 is the most urgent.
pub const CLASSES: usize = 4;

/// Of so many taken out in a row each class that waits gets at least one.
///
/// With all four classes waiting the lower three get 3 in 32 at least, and the first what is left.
pub(super) const TURNS_MAX: u32 = 32;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    class: usize,
    tenant: u64,
    weight: u16,
    pub(super) seat: Seat,
}

impl Place {
    pub(super) fn new(
        asker: &Asker,
        limits: &WaitLimits,
        (turn_by, leave_by): (Instant, Instant),
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

/// Keeps sums of sizes from overflowing: as much as a million places.
const SIZE_MAX: u64 = SIZE_UNIT << 20;

/// The places of all requests that wait and need not have left yet.
#[derive(Debug, Default)]
pub(super) struct Order {
    classes: [Class; CLASSES],
}

impl Order {
    pub(super) fn insert(&mut self, place: Place) {
        self.classes[place.class].insert(place.tenant, place.weight, place.seat);
    }

    /// Takes one in again that was taken out; its tenant keeps the weight that it has by now.
    pub(super) fn put_back(&mut self, place: Place) {
        let class = &mut self.classes[place.class];
        let weight = class.weight(place.tenant).unwrap_or(place.weight);
        class.insert(place.tenant, weight, place.seat);
    }

    pub(super) fn remove(&mut self, place: &Place) {
        self.classes[place.class].remove(place.tenant, &place.seat);
    }

    /// Takes out the next one; the number of its arrival.
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

    /// The one that has to leave for this one: of the least urgent class of all, if that is below its
    /// own, else of its own class, of the tenant that holds more of the queue than its own does. None
    /// that was promised a place. A promised one takes the place of one of its own tenant as well.
    pub(super) fn victim(&self, place: &Place) -> Option<u64> {
        let below = self.classes[place.class + 1..].iter().rev().find_map(Class::last_newcomer);
        let same = &self.classes[place.class];
        let beside = || match place.seat.is_newcomer {
            false => same.last_newcomer_for(place.tenant),
            true => same.last_newcomer_over(place.tenant, &place.seat),
        };
        below.or_else(beside).map(|(_, seat)| seat.arrival)
    }

    /// How many wait of its tenant and class, and how many lines there are in its class and those below
    /// it, its own included.
    pub(super) fn share(&self, place: &Place) -> (usize, usize) {
        let (own, lines) = self.classes[place.class].share(place.tenant);
        let below = self.classes[place.class + 1..].iter().map(|class| class.lines().count());
        (own, lines + below.sum::<usize>())
    }

    /// How many wait in this class and those above it.
    pub(super) fn count_up_to(&self, priority: u8) -> usize {
        self.classes[..=class(priority)].iter().map(|class| class.load().requests).sum()
    }

    /// How many wait in the classes above it.
    pub(super) fn count_above(&self, priority: u8) -> usize {
        self.classes[..class(priority)].iter().map(|class| class.load().requests).sum()
    }

    /// What waits of each tenant in this class.
    pub(super) fn lines(&self, priority: u8) -> impl Iterator<Item = (u64, u16, Load, Load)> + '_ {
        self.classes[class(priority)].lines()
    }

    /// How many stand before this place.
    pub(super) fn position(&self, place: &Place) -> usize {
        let above = self.classes[..place.class].iter().map(|class| class.load().requests);
        let within = self.classes[place.class].position(place.tenant, &place.seat);
        above.sum::<usize>() + within
    }

    /// The class that has been passed over for too long, the lowest first if there are several, else
    /// the first that has anything. Several can be due at once, so that each has to speak up as many
    /// turns early as there are classes that may come before it.
    fn next_class(&self) -> Option<usize> {
        let waits = |&class: &usize| !self.classes[class].is_empty();
        let is_due = |&class: &usize| self.classes[class].passed_over >= PASSED_OVER_MAX;
        let due = (0..CLASSES).rev().filter(waits).find(is_due);
        due.or_else(|| (0..CLASSES).find(waits))
    }
}

/// After it a class is due. Those below it may be due at the same time and go first.
const PASSED_OVER_MAX: u32 = TURNS_MAX - CLASSES as u32;

pub(crate) fn class(priority: u8) -> usize {
    usize::from(priority).min(CLASSES - 1)
}
