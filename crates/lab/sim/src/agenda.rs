//! Virtual time, and the queue of events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
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
    /// Rounds up, so that an event at that time is due by then.
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX))
    }
}

/// Microseconds of one page, as a power of two: short, so that few events are sorted at a time.
const PAGE_BITS: u32 = 16;

/// Event queue, soonest first. Events of one moment come in the order in which they were put in, so
/// that a run is the same each time.
///
/// Most events are far in the future, such as the end of a client's patience. They stay unsorted on
/// their page until its time comes: one heap of all would be so large that each event costs several
/// cache misses.
#[derive(Debug)]
pub struct Agenda<E> {
    /// Events before the first later page.
    due: BinaryHeap<Reverse<Entry<E>>>,
    /// Later events by the number of their page.
    later: BTreeMap<u64, Vec<Entry<E>>>,
    /// Number of the page that was sorted last.
    page: u64,
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
        Self { due: BinaryHeap::new(), later: BTreeMap::new(), page: 0, entries: 0 }
    }
}

impl<E> Agenda<E> {
    /// Adds an event.
    pub fn put(&mut self, at: Time, event: E) {
        let entry = Entry { at, number: self.entries, event };
        self.entries += 1;
        match at.0 >> PAGE_BITS {
            page if page > self.page => self.later.entry(page).or_default().push(entry),
            _ => self.due.push(Reverse(entry)),
        }
    }

    /// Removes the next event, and returns it with its moment.
    pub fn take_next(&mut self) -> Option<(Time, E)> {
        if self.due.is_empty() {
            let (page, entries) = self.later.pop_first()?;
            self.page = page;
            self.due.extend(entries.into_iter().map(Reverse));
        }
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
    fn near_and_far_events_come_in_order_however_they_were_put_in() {
        let mut agenda = Agenda::default();
        let mut rng = fastrand::Rng::with_seed(1);
        let mut now = Time(0);
        for number in 0..10_000 {
            agenda.put(now.after_us(1 << rng.u32(0..24)), ());
            // One comes and one goes, once there are some.
            if number >= 50 {
                let (at, ()) = agenda.take_next().unwrap();
                assert!(at >= now);
                now = at;
            }
        }
        assert!(now > Time::from_s(60.0), "over many pages");
        let rest: Vec<Time> =
            std::iter::from_fn(|| agenda.take_next()).map(|(at, ())| at).collect();
        assert_eq!(rest.len(), 50);
        assert!(rest.is_sorted() && rest[0] >= now);
    }

    #[test]
    fn a_duration_between_two_microseconds_is_due_at_the_later_one() {
        assert_eq!(Time::from(Duration::from_nanos(1_001)), Time(2));
        assert_eq!(Time::from(Duration::from_nanos(2_000)), Time(2));
    }
}
