//! Room in the state: records of nodes must leave room for records of operators.

use spillway_types::RegionName;

use crate::limits::{
    NODES_REPLICAS_BYTES_MAX, REGION_REPLICAS_BYTES_MIN, REPLICAS_BYTES_MAX, STATE_BYTES_MAX,
};
use crate::state::Turn;
use crate::{Command, CommandError, Records, RefusalCode};

/// Checks that `command` may make the records larger. Replicas with their leases and health have
/// room of their own, see [`check_replica`]. Remembered outcomes and audit records don't count: they
/// have bounds of their own, and their words differ between versions of the program.
///
/// # Errors
/// Returns [`RefusalCode::StateFull`] if there is no room.
pub(crate) fn check(records: &Records, command: &Command) -> Result<(), CommandError> {
    let is_replica = matches!(command, Command::RegisterReplica { .. });
    // In a full state, operators must still be able to change and remove what is there.
    if !command.is_growth() || is_replica {
        return Ok(());
    }
    if records.bytes() - replica_bytes(records) <= STATE_BYTES_MAX {
        return Ok(());
    }
    Err(full("all records together", STATE_BYTES_MAX))
}

/// Checks that there is room for one more replica of `region`. The nodes of a region have a share,
/// so that a faulty or hostile one takes no room from other regions and operators.
///
/// # Errors
/// Returns [`RefusalCode::StateFull`] if there is no room.
pub(super) fn check_replica(turn: &Turn<'_>, region: &RegionName) -> Result<(), CommandError> {
    let all = turn.records.replicas.bytes();
    if turn.is_operator() {
        let is_room = all <= REPLICAS_BYTES_MAX;
        return if is_room { Ok(()) } else { Err(full("all replicas", REPLICAS_BYTES_MAX)) };
    }
    if all > NODES_REPLICAS_BYTES_MAX {
        return Err(full("all replicas", NODES_REPLICAS_BYTES_MAX));
    }
    let regions = turn.records.regions.len().max(1) as u64;
    let share = (NODES_REPLICAS_BYTES_MAX / regions).max(REGION_REPLICAS_BYTES_MIN);
    // If all regions together fit into the share, the region's rows need not be counted.
    if all <= share || region_bytes(turn.records, region) <= share {
        return Ok(());
    }
    Err(full(&format!("the replicas of region {region}"), share))
}

fn region_bytes(records: &Records, region: &RegionName) -> u64 {
    let of_region = records.replicas.rows().filter(|(id, _)| id.region == *region);
    of_region.map(|(_, row)| row.bytes()).sum()
}

fn replica_bytes(records: &Records) -> u64 {
    records.replicas.bytes() + records.leases.bytes() + records.health.bytes()
}

fn full(what: &str, bytes_max: u64) -> CommandError {
    let (cause, remedy) =
        (format!("{what} have more than {bytes_max} bytes"), "remove records that nobody needs");
    CommandError::new(RefusalCode::StateFull, cause, remedy)
}
