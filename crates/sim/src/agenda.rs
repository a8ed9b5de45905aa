//! Virtual time, and the queue of events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Moment of virtual time: microseconds since the world began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Returns the moment `ms` milliseconds after the beginning, with fractions.
    #[must_use]
    pub fn from_ms(ms: f64) -> Self {
        Self((ms.max(0.0) * 1_000.0) as u64)
    }

    /// Returns the moment `s` seconds after the beginning, with fractions.
    #[must_use]
    pub fn from_s(s: f64) -> Self {
        Self::from_ms(s * 1_000.0)
    }

    /// Returns the moment `us` microseconds later.
    #[must_use]
    pub fn after_us(self, us: u64) -> Self {
        Self(self.0 + us)
    }

    /// Returns the milliseconds from an earlier moment to this one; 0 if that moment is later.
    #[must_use]
    pub fn ms_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / 1_000.0
    }

    /// Returns the milliseconds since the beginning.
    #[must_use]
    pub fn ms(self) -> u64 {
        self.0 / 1_000
    }

    /// Returns the time since the beginning.
    #[must_use]
    pub fn since_start(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

impl From<Duration> for Time {
    /// Rounds up, so that what is due at that time is due by then.
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX))
    }
}

/// Event queue, soonest first. Events of one moment come in the order in which they were put in, so
/// that a run is the same each time.
#[derive(Debug)]
pub struct Agenda<E> {
    due: BinaryHeap<Reverse<Entry<E>>>,
    entries: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Time,
    number: u64,
    event: E,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self { due: BinaryHeap::new(), entries: 0 }
    }
}

impl<E> Agenda<E> {
    /// Adds an event.
    pub fn put(&mut self, at: Time, event: E) {
        self.due.push(Reverse(Entry { at, number: self.entries, event }));
        self.entries += 1;
    }

    /// Removes the next event, and returns it with its moment.
    pub fn take_next(&mut self) -> Option<(Time, E)> {
        self.due.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_those_of_one_moment_in_the_order_of_their_entry() {
        let mut agenda = Agenda::default();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (4, 'b')] {
            agenda.put(Time(at), event);
        }
        let mut order = Vec::new();
        while let Some((at, event)) = agenda.take_next() {
            order.push((at.0, event));
        }
        assert_eq!(order, [(3, 'a'), (4, 'b'), (5, 'c'), (5, 'd')]);
    }

    #[test]
    fn a_duration_between_two_microseconds_is_due_at_the_later_one() {
        assert_eq!(Time::from(Duration::from_nanos(1_001)), Time(2));
        assert_eq!(Time::from(Duration::from_nanos(2_000)), Time(2));
    }
}
