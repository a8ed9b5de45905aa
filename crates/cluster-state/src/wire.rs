//! Versions of the format of entries and snapshots.
//!
//! New commands go to the end of [`Command`], with the wire version that has them in
//! [`Command::since`]. During a rolling upgrade some nodes are older: [`admits`] refuses such a
//! command as long as one of them is registered, at the proposer and again when it is applied. So
//! no log has a command that one of its nodes can't read. Once a newer command was applied, older
//! nodes can't join. `state::version_test` tests all this with an invented version.

use crate::{Command, CommandError, RefusalCode, State};

/// Wire version of this program. Each new command, kind of record, setting or rule raises it.
pub const WIRE: u16 = 1;

/// Checks that every registered node understands `command`. Call this before proposing it.
///
/// # Errors
/// Returns a refusal with [`RefusalCode::WireVersion`] if a registered node is too old for the
/// command.
pub fn admits(state: &State, command: &Command) -> Result<(), CommandError> {
    gate(command.since(), state.wire_oldest())
}

fn gate(needed: u16, oldest: u16) -> Result<(), CommandError> {
    if needed <= oldest {
        return Ok(());
    }
    let cause = format!(
        "the command needs wire version {needed}, the oldest node of the cluster has {oldest}"
    );
    Err(CommandError::new(RefusalCode::WireVersion, cause, "upgrade all nodes, then try again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_waits_for_the_oldest_node() {
        assert_eq!(gate(2, 2), Ok(()));
        assert_eq!(gate(1, 2), Ok(()));
        let refusal = gate(3, 2).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::WireVersion);
        assert!(refusal.cause.contains("needs wire version 3"), "{refusal}");
    }
}
