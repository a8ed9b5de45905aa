//! Orders that nodes carried out or refused by themselves, for the audit trail alone.

use super::check;
use crate::state::{Done, Turn, proposing_node};
use crate::{ApplyError, CommandError, RefusalCode};

/// Records an order. The entry's audit record has it: no other record changes.
///
/// # Errors
/// Returns the refusal that the node gave, so that the audit record has it as its outcome. Returns
/// an error if the proposer is no node of the cluster, or the text can't be used.
pub(super) fn record(
    turn: &mut Turn<'_>,
    what: &str,
    refused: Option<&str>,
) -> Result<Done, ApplyError> {
    if proposing_node(turn.records, &turn.entry.proposer).is_none() {
        let (cause, remedy) = ("the proposer is no registered node", "let a node record it");
        return Err(CommandError::new(RefusalCode::NotOwner, cause, remedy).into());
    }
    check::text(what, "order")?;
    if let Some(cause) = refused {
        check::text(cause, "reason")?;
        let remedy = "use a token with the right role";
        return Err(CommandError::new(RefusalCode::NotPermitted, cause, remedy).into());
    }
    turn.is_written = true;
    Ok(Done::default())
}
