//! Dry runs of entries.

use std::collections::BTreeSet;

use crate::rules;
use crate::state::apply::all_stale;
use crate::state::{Done, State, Turn};
use crate::{ApplyError, ChangeDiff, Entry};

/// Returns the changes that `entry` would make as the next one, record by record. The state stays
/// as it is, and request ids are not looked at.
///
/// # Errors
/// Returns the refusal or conflict that [`State::apply`] would answer.
pub fn dry_run(state: &State, entry: &Entry) -> Result<Vec<ChangeDiff>, ApplyError> {
    state.admit(entry)?;
    // A clone takes milliseconds; rules that only pretend to write would be a second set of rules.
    let mut next = state.clone();
    next.begin(state.ledger.applied + 1, entry);
    let mut turn =
        Turn::new(&mut next.records, &mut next.ledger, &mut next.hot, &mut next.shares, entry);
    let Done { skipped } = rules::carry_out(&mut turn)?;
    if skipped > 0 && !turn.is_written {
        return Err(all_stale(skipped).into());
    }
    let keys: BTreeSet<_> = turn.changes.into_iter().map(|change| change.key).collect();
    let diff = |key| {
        let (before, after) = (state.records.record(&key), next.records.record(&key));
        ChangeDiff { key, before, after }
    };
    Ok(keys.into_iter().map(diff).collect())
}
