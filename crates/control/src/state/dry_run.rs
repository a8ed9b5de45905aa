//! What an entry would do.

use std::collections::BTreeSet;

use crate::rules;
use crate::state::apply::all_stale;
use crate::state::turn::proposing_node;
use crate::state::{Done, State, Turn};
use crate::{ChangeDiff, Entry, Fault};

/// What `entry` would change if it were the next one, record by record; the state stays as it is.
/// Request ids are not looked at.
///
/// # Errors
/// What [`State::apply`] would answer instead of changing something.
pub fn dry_run(state: &State, entry: &Entry) -> Result<Vec<ChangeDiff>, Fault> {
    state.admit(entry)?;
    let (mut records, mut ledger) = (state.records.clone(), state.ledger.clone());
    let (mut hot, mut shares) = (state.hot.clone(), state.shares.clone());
    let is_member = proposing_node(&records, &entry.proposer).is_some();
    ledger.begin(ledger.applied + 1, entry, is_member);
    let mut turn = Turn::new((&mut records, &mut ledger), (&mut hot, &mut shares), entry);
    let Done { skipped } = rules::carry_out(&mut turn)?;
    if skipped > 0 && !turn.is_written {
        return Err(all_stale(skipped).into());
    }
    let keys: BTreeSet<_> = turn.changes.into_iter().map(|change| change.key).collect();
    let diff = |key| {
        let (before, after) = (state.records.record(&key), records.record(&key));
        ChangeDiff { key, before, after }
    };
    Ok(keys.into_iter().map(diff).collect())
}
