//! Residency refusals: guest requests that may not be served here. Limits log lines about them to one
//! for each sender and minute. A sender that does not know the rules sends many; a metric counts all.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use spillway_types::NodeName;

/// Shortest time between two lines about one sender.
const PERIOD: Duration = Duration::from_secs(60);
/// Maximum number of senders that are remembered: twice the nodes that a cluster may have.
const SENDERS_MAX: usize = 1_024;

/// Last log line about the refusals of each sender. Only requests that are refused take the lock.
#[derive(Debug, Default)]
pub(super) struct ResidencyRefusals(Mutex<BTreeMap<NodeName, SenderRefusals>>);

/// Refusals of one sender's requests.
#[derive(Debug)]
struct SenderRefusals {
    at: Instant,
    /// Number of refused requests since the last line.
    quiet: u64,
}

impl ResidencyRefusals {
    /// Counts one refused request. If a log line is due, returns the number of requests from that
    /// sender since its last line, this one included.
    pub(super) fn note(&self, from: &NodeName, now: Instant) -> Option<u64> {
        let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(said) = senders.get_mut(from) {
            said.quiet += 1;
            let is_due = now.saturating_duration_since(said.at) >= PERIOD;
            return is_due.then(|| {
                said.at = now;
                std::mem::take(&mut said.quiet)
            });
        }
        // Full: the sender with the oldest line is forgotten.
        if senders.len() >= SENDERS_MAX {
            let oldest = senders.iter().min_by_key(|(_, said)| said.at);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.map(|name| senders.remove(&name));
        }
        senders.insert(from.clone(), SenderRefusals { at: now, quiet: 0 });
        Some(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sender_is_told_of_once_a_minute_with_all_that_came() {
        let (refusals, start) = (ResidencyRefusals::default(), Instant::now());
        let note =
            |from: &str, at_s: u64| refusals.note(&from.into(), start + Duration::from_secs(at_s));
        assert_eq!(note("a", 0), Some(1));
        assert!((0..1_000).all(|_| note("a", 59).is_none()));
        assert_eq!(note("b", 59), Some(1), "another sender");
        assert_eq!(note("a", 60), Some(1_001));
        assert_eq!(note("a", 61), None);
        assert_eq!(note("a", 200), Some(2));
    }

    #[test]
    fn of_more_senders_than_there_can_be_the_oldest_is_forgotten() {
        let (refusals, start) = (ResidencyRefusals::default(), Instant::now());
        let name = |n: usize| NodeName::from(format!("n{n}").as_str());
        let at = |n: usize| start + Duration::from_millis(n as u64);
        for n in 0..=SENDERS_MAX {
            assert_eq!(refusals.note(&name(n), at(n)), Some(1));
        }
        assert_eq!(refusals.0.lock().unwrap().len(), SENDERS_MAX);
        assert_eq!(refusals.note(&name(0), at(2_000)), Some(1), "it was the oldest");
        assert_eq!(refusals.note(&name(SENDERS_MAX), at(2_000)), None);
    }
}
