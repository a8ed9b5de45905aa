//! Rules for hot blocks of prompts.

use spillway_prefix::HotDelta;
use spillway_types::RegionName;

use crate::limits::HOT_BATCH_MAX;
use crate::rules::check;
use crate::state::{Done, Turn};
use crate::{ApplyError, CommandError, Expect, KEY_EPOCH, RefusalCode, Setting, SettingRule};

/// Applies a report of the blocks that became hot in a region and of those that are hot no more.
/// Only the region's own nodes know them. Hashes made with another key have no meaning here and are
/// refused.
pub(super) fn report(
    turn: &mut Turn<'_>,
    region: &RegionName,
    key_epoch: u64,
    delta: &HotDelta,
) -> Result<Done, ApplyError> {
    turn.check_owner(region)?;
    for blocks in [delta.enter.len(), delta.leave.len()] {
        check::count(blocks, HOT_BATCH_MAX, "hot blocks")?;
    }
    let current = turn.key_epoch();
    if key_epoch != current {
        let cause = format!("the hashes are of key epoch {key_epoch}, the cluster is at {current}");
        let remedy = "hash with the key of this epoch";
        return Err(CommandError::new(RefusalCode::StaleEpoch, cause, remedy).into());
    }
    // The trie is no record: the entry counts as applied without a change for watchers.
    if turn.hot.apply(region, delta, turn.ledger.stamp_ms).is_change {
        turn.is_written = true;
    }
    Ok(Done::default())
}

/// Counts the setting [`KEY_EPOCH`] up, so that nodes hash prompts with the next key.
pub(super) fn rotate(turn: &mut Turn<'_>, expect: Expect) -> Result<Done, ApplyError> {
    turn.check_operator()?;
    let name = KEY_EPOCH.to_owned();
    turn.expect::<Setting>(&name, expect)?;
    let next = (turn.key_epoch() + 1).to_string();
    // At the largest number it is refused: a count from zero would bring back a key that was used.
    SettingRule::find(KEY_EPOCH).map_or(Ok(()), |rule| rule.check(&next))?;
    turn.put(name, Setting(next))?;
    Ok(Done::default())
}
