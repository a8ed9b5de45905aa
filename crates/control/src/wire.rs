//! Which version of the format all nodes understand.
//!
//! New commands are added at the end of [`Command`] with the wire version that has them in
//! [`Command::since`]. During a rolling upgrade some nodes are older: [`admits`] refuses such a
//! command as long as one of them is registered, at the proposer and again when it is applied, so
//! it never enters a log that somebody cannot read. Once one was applied, older nodes can't join.

use crate::{Command, Refusal, RefusalCode, State};

/// The wire version of this program: counts up with every new command, item or changed rule.
pub const WIRE: u16 = 7;

/// The wire version that knows of hot blocks and of the key that prompts are hashed with.
pub(crate) const WIRE_HOT: u16 = 2;

/// The wire version that divides limits among nodes.
pub(crate) const WIRE_SHARES: u16 = 3;

/// The wire version whose routes and tenants say where requests may be served, and whose nodes say in
/// which country their region is.
pub(crate) const WIRE_RESIDENCY: u16 = 4;

/// The wire version in which membership is authority: it knows who may give operators' orders, who was
/// removed, and which certificates are revoked. No single node moves its clock, nodes that join by token
/// sign what they are ([`Command::JoinNode`]), and what nodes write by themselves leaves room for operators.
pub(crate) const WIRE_MEMBERS: u16 = 5;

/// The wire version whose limits count requests by the minute, too, and whose processes take over what
/// earlier ones of their node held of limits.
pub(crate) const WIRE_MINUTES: u16 = 6;

/// The wire version whose nodes ask registered replicas for their models where a registration names none.
pub(crate) const WIRE_DISCOVERY: u16 = 7;

/// Whether every registered node understands `command`. Ask before proposing it.
///
/// # Errors
/// [`RefusalCode::WireVersion`], naming the version that is missing.
pub fn admits(state: &State, command: &Command) -> Result<(), Refusal> {
    gate(command.since(), state.wire_oldest())
}

fn gate(needed: u16, oldest: u16) -> Result<(), Refusal> {
    if needed <= oldest {
        return Ok(());
    }
    let cause = format!(
        "the command needs wire version {needed}, the oldest node of the cluster has {oldest}"
    );
    Err(Refusal::new(RefusalCode::WireVersion, cause, "upgrade all nodes, then try again"))
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
