//! Refusal of commands that a node of the cluster is too old for.

use crate::{Command, CommandError, RefusalCode, State};

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
