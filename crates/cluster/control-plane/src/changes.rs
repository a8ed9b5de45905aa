//! Recent changes of records, for watchers.

use std::collections::VecDeque;

use spillway_cluster_state::Change;

/// Number of changes that are remembered. A watcher that is further behind has to read everything
/// again.
const CHANGES_MAX: usize = 10_000;

/// A change of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Index of the entry that made the change.
    pub index: u64,
    /// Time of the change by the cluster's clock, in milliseconds since 1970.
    pub stamp_ms: u64,
    /// The record, and its change.
    pub change: Change,
}

/// Error of a reader that asks for changes which are forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("changes up to entry {oldest} are forgotten: read everything again")]
pub struct TooOldError {
    /// Index of the last entry whose changes are not remembered.
    pub oldest: u64,
}

/// Changes of the most recent entries.
#[derive(Debug, Default)]
pub(crate) struct History {
    changes: VecDeque<Changed>,
    /// Index up to which changes may be missing.
    forgotten: u64,
}

impl History {
    /// Adds the changes of one entry.
    pub(crate) fn add(&mut self, index: u64, stamp_ms: u64, changes: Vec<Change>) {
        let changes = changes.into_iter().map(|change| Changed { index, stamp_ms, change });
        self.changes.extend(changes);
        while self.changes.len() > CHANGES_MAX {
            self.forgotten =
                self.changes.pop_front().map_or(self.forgotten, |changed| changed.index);
        }
    }

    /// Forgets everything, after the state was replaced by one as of `index`.
    pub(crate) fn restart(&mut self, index: u64) {
        self.changes.clear();
        self.forgotten = index;
    }

    /// Returns the changes of all entries after `index`.
    pub(crate) fn after(&self, index: u64) -> Result<Vec<Changed>, TooOldError> {
        if index < self.forgotten {
            return Err(TooOldError { oldest: self.forgotten });
        }
        let from = self.changes.partition_point(|changed| changed.index <= index);
        Ok(self.changes.range(from..).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use spillway_cluster_state::{ChangeKind, RecordKey};

    use super::*;

    fn change(name: &str) -> Change {
        Change { key: RecordKey::Model(name.into()), kind: ChangeKind::Updated }
    }

    fn indices(found: Result<Vec<Changed>, TooOldError>) -> Vec<u64> {
        found.unwrap().iter().map(|changed| changed.index).collect()
    }

    #[test]
    fn who_watches_gets_each_change_once() {
        let mut history = History::default();
        history.add(3, 10, vec![change("a"), change("b")]);
        history.add(4, 11, Vec::new());
        history.add(7, 12, vec![change("a")]);
        assert_eq!(indices(history.after(0)), [3, 3, 7]);
        assert_eq!(indices(history.after(3)), [7]);
        assert_eq!(indices(history.after(7)), [0_u64; 0]);
    }

    #[test]
    fn who_is_too_far_behind_is_told() {
        let mut history = History::default();
        (1..=CHANGES_MAX as u64 + 5).for_each(|index| history.add(index, 0, vec![change("a")]));
        assert_eq!(history.after(4), Err(TooOldError { oldest: 5 }));
        assert_eq!(history.after(5).unwrap().len(), CHANGES_MAX);
        history.restart(20_000);
        assert_eq!(history.after(19_999), Err(TooOldError { oldest: 20_000 }));
        assert_eq!(history.after(20_000), Ok(Vec::new()));
    }
}
