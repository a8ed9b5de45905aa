//! In which order what waits is served: the one place that knows.

use std::collections::BTreeSet;
use std::time::Instant;

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
    /// When it must have left, served or not.
    pub(super) leave_by: Instant,
    /// Number of its arrival.
    pub(super) arrival: u64,
}

impl Place {
    pub(super) fn new(priority: u8, leave_by: Instant, arrival: u64) -> Self {
        Self { class: class(priority), leave_by, arrival }
    }

    fn key(&self) -> (Instant, u64) {
        (self.leave_by, self.arrival)
    }
}

/// The places of all requests that wait.
///
/// Shares between tenants belong here: a class then holds a line per tenant, and takes turns.
#[derive(Debug, Default)]
pub(super) struct Order {
    classes: [Class; CLASSES],
}

/// What waits in one class.
#[derive(Debug, Default)]
struct Class {
    line: BTreeSet<(Instant, u64)>,
    /// Requests of other classes that were taken out since the last of this one, or since it was
    /// empty.
    passed_over: u32,
}

impl Order {
    pub(super) fn insert(&mut self, place: Place) {
        self.classes[place.class].line.insert(place.key());
    }

    pub(super) fn remove(&mut self, place: &Place) {
        let class = &mut self.classes[place.class];
        class.line.remove(&place.key());
        if class.line.is_empty() {
            class.passed_over = 0;
        }
    }

    /// Takes out the next one that need not have left by `now`.
    pub(super) fn take_next(&mut self, now: Instant) -> Option<Place> {
        let class = self.next_class(now)?;
        let (leave_by, arrival) = self.classes[class].next(now)?;
        let place = Place { class, leave_by, arrival };
        self.classes[class].passed_over = 0;
        self.remove(&place);
        for (other, passed) in self.classes.iter_mut().enumerate() {
            if other != class && passed.next(now).is_some() {
                passed.passed_over += 1;
            }
        }
        Some(place)
    }

    /// The one that must leave first.
    pub(super) fn first_to_leave(&self) -> Option<Place> {
        let first = |(class, line): (usize, &Class)| {
            line.line.first().map(|&(leave_by, arrival)| Place { class, leave_by, arrival })
        };
        self.classes.iter().enumerate().filter_map(first).min_by_key(Place::key)
    }

    /// How many wait in this class and those above it.
    pub(super) fn count_up_to(&self, priority: u8) -> usize {
        self.classes[..=class(priority)].iter().map(|class| class.line.len()).sum()
    }

    /// How many stand before this place.
    pub(super) fn position(&self, place: &Place) -> usize {
        let above: usize = self.classes[..place.class].iter().map(|class| class.line.len()).sum();
        above + self.classes[place.class].line.range(..place.key()).count()
    }

    /// The class that has been passed over for too long, the lowest first if there are several, else
    /// the first that has anything. Several can be due at once, so that each has to speak up as many
    /// turns early as there are classes that may come before it.
    fn next_class(&self, now: Instant) -> Option<usize> {
        let waits = |&class: &usize| self.classes[class].next(now).is_some();
        let is_due = |&class: &usize| self.classes[class].passed_over >= PASSED_OVER_MAX;
        let due = (0..CLASSES).rev().filter(waits).find(is_due);
        due.or_else(|| (0..CLASSES).find(waits))
    }
}

impl Class {
    fn next(&self, now: Instant) -> Option<(Instant, u64)> {
        let later = (std::ops::Bound::Excluded((now, u64::MAX)), std::ops::Bound::Unbounded);
        self.line.range(later).next().copied()
    }
}

/// After it a class is due. Those below it may be due at the same time and go first.
const PASSED_OVER_MAX: u32 = TURNS_MAX - CLASSES as u32;

fn class(priority: u8) -> usize {
    usize::from(priority).min(CLASSES - 1)
}
