//! Rules of all commands: their conditions and their effects.

pub(crate) mod check;
mod health;
mod hot;
mod items;
mod leases;
pub(crate) mod members;
mod nodes;
mod orders;
mod regions;
mod remove;
mod replicas;
mod rollouts;
pub(crate) mod room;
mod shares;
pub(crate) mod tokens;
mod voters;

use crate::state::{Done, Turn};
use crate::{ApplyError, Command, CommandError, RefusalCode};

pub(crate) use shares::agreed_limits;
pub use voters::{Membership, MembershipPlan, VoterFacts, voters};

/// Carries out the entry's command.
///
/// # Errors
/// Returns an error if the command may not be carried out. No record has changed then.
pub(crate) fn carry_out(turn: &mut Turn<'_>) -> Result<Done, ApplyError> {
    let key_epoch = turn.key_epoch();
    let done = carry_out_command(turn)?;
    // Hashes made with the old key match no prompt any more.
    if turn.key_epoch() != key_epoch {
        turn.hot.clear();
    }
    Ok(done)
}

fn carry_out_command(turn: &mut Turn<'_>) -> Result<Done, ApplyError> {
    let command = &turn.entry.command;
    let is_formation = matches!(command, Command::Form(_));
    if turn.ledger.cluster.is_none() && !is_formation {
        let (cause, remedy) = ("the cluster is not formed", "wait until the seeds have formed it");
        return Err(CommandError::new(RefusalCode::NotFormed, cause, remedy).into());
    }
    match command {
        Command::Form(form) => nodes::form(turn, form),
        Command::ReplaceCluster { from, to } => nodes::replace_cluster(turn, *from, *to),
        Command::RegisterNode { node } => nodes::register(turn, node, None),
        Command::JoinNode { node, token } => nodes::register(turn, node, Some(token)),
        Command::SetNodeRole { node, role, expect } => nodes::set_role(turn, *node, *role, *expect),
        Command::SetRegionState { region, state, expect } => {
            regions::set_state(turn, region, *state, *expect)
        }
        Command::SetRegionWeight { region, weight_permille, expect } => {
            regions::set_weight(turn, region, *weight_permille, *expect)
        }
        Command::RegisterReplica { id, spec, incarnation, expect } => {
            replicas::register(turn, id, spec, *incarnation, *expect)
        }
        Command::SetReplicaState { id, state, expect } => {
            replicas::set_state(turn, id, *state, *expect)
        }
        Command::SetReplicaWeight { id, weight, expect } => {
            replicas::set_weight(turn, id, *weight, *expect)
        }
        Command::RenewLeases { region, leases } => leases::renew(turn, region, leases),
        Command::ExpireLeases { region } => leases::expire(turn, region),
        Command::ReportHealth { region, live, observations } => {
            health::report(turn, region, live, observations)
        }
        Command::RevokeKey { key, expect } => items::revoke(turn, key, *expect),
        Command::Put { item, expect } => items::put(turn, item, *expect),
        Command::Remove { key, expect } => remove::remove(turn, key, *expect),
        Command::HotBlocks { region, key_epoch, delta } => {
            hot::report(turn, region, *key_epoch, delta)
        }
        Command::RotatePrefixKey { expect } => hot::rotate(turn, *expect),
        Command::LeaseShares { region, said } => shares::lease(turn, region, said),
        Command::DeclareCountry { region, country } => {
            regions::declare_country(turn, region, *country)
        }
        Command::DeclareOperators { is_operator } => members::declare(turn, *is_operator),
        Command::EnforceMembership => Ok(members::enforce(turn)),
        Command::SetNodeOperators { node, is_operator, expect } => {
            members::set_operators(turn, *node, *is_operator, *expect)
        }
        Command::RecordOrder { what, refused } => orders::record(turn, what, refused.as_deref()),
        Command::ChangeRollout { split, change, number, why, expect } => {
            rollouts::change(turn, split, *change, (*number, why), *expect)
        }
    }
}
