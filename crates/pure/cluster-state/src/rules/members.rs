//! Rules for membership: rights of nodes, removed nodes and origins of tokens.

use spillway_types::NodeName;

use crate::limits::REMOVED_NODES_MAX;
use crate::records::lookup::node_named;
use crate::state::{Done, Ledger, Turn, proposing_node};
use crate::{
    Actor, ApplyError, Command, CommandError, Entry, Expect, Node, NodeId, NodeRight, NodeSpec,
    Records, RefusalCode, RemovedNode, TokenId, TokenOrigin,
};

/// Most nodes that a refusal names: as many as a person needs.
const NAMED_MAX: usize = 5;

/// Checks that the proposer may propose this entry, once the cluster enforces membership. A
/// proposer that is no member may only ask to become one: such entries reach the leader from nodes
/// that join.
///
/// # Errors
/// Returns [`RefusalCode::NotPermitted`]; the remedy names nodes that may give operators' orders.
pub(crate) fn admit(records: &Records, ledger: &Ledger, entry: &Entry) -> Result<(), CommandError> {
    // Nodes declare their rights only after the cluster is formed: until then no node would have
    // any.
    if !ledger.is_enforced {
        return Ok(());
    }
    let is_joining = matches!(
        entry.command,
        Command::Form(_) | Command::RegisterNode { .. } | Command::JoinNode { .. }
    );
    let proposer = &entry.proposer;
    if !is_joining && proposing_node(records, proposer).is_none() {
        let cause = format!("{} of {} is no node of the cluster", proposer.node, proposer.region);
        let remedy = "let it join by token, or ask a node of the cluster";
        return Err(CommandError::new(RefusalCode::NotPermitted, cause, remedy));
    }
    let is_order = matches!(entry.actor, Actor::Operator(_));
    if is_order && !is_operator(records, &proposer.node) {
        let cause = format!("node {} may not give operators' orders", proposer.node);
        return Err(CommandError::new(RefusalCode::NotPermitted, cause, remedy(records, proposer)));
    }
    Ok(())
}

fn remedy(records: &Records, proposer: &crate::Proposer) -> String {
    let operators = records.node_rights.iter().filter(|(_, right)| right.is_operator);
    let names = operators.filter_map(|(id, _)| Some(records.nodes.get(id)?.spec.name.as_str()));
    let names: Vec<&str> = names.take(NAMED_MAX).collect();
    let node = &proposer.node;
    format!(
        "ask the admin API of a node that may ({}), or allow it there: \
         `spillway nodes operators {node} allow`",
        names.join(", ")
    )
}

/// Returns true if a registered node of this name may propose operators' orders.
pub(crate) fn is_operator(records: &Records, name: &NodeName) -> bool {
    let id = node_named(records, name).map(|(id, _)| id);
    id.and_then(|id| records.node_rights.get(&id)).is_some_and(|right| right.is_operator)
}

/// Applies a node's declaration about itself. Only the first one decides on the node's right. A
/// node that got its right by token or from an operator can only declare itself an edge node.
pub(super) fn declare(turn: &mut Turn<'_>, is_operator: bool) -> Result<Done, ApplyError> {
    let Some(id) = proposing_node(turn.records, &turn.entry.proposer) else {
        let (cause, remedy) = ("the proposer is no node of the cluster", "let it join first");
        return Err(CommandError::new(RefusalCode::NotPermitted, cause, remedy).into());
    };
    match turn.get::<NodeRight>(&id).copied() {
        None => {
            // The last node that gives up orders would leave no node that may give them.
            let is_last_without =
                !is_operator && turn.ledger.is_enforced && are_all_without(turn, Some(id));
            if is_last_without {
                allow_all(turn, Some(id));
            }
            let is_edge = !is_operator;
            put(turn, id, NodeRight { is_operator: is_operator || is_last_without, is_edge });
        }
        // A later declaration may make the node an edge node, and gives it no right.
        Some(right) if !is_operator => put(turn, id, NodeRight { is_edge: true, ..right }),
        Some(_) => {}
    }
    Ok(Done::default())
}

pub(super) fn enforce(turn: &mut Turn<'_>) -> Done {
    if !turn.ledger.is_enforced {
        turn.ledger.is_enforced = true;
        turn.is_written = true;
        if are_all_without(turn, None) {
            allow_all(turn, None);
        }
    }
    Done::default()
}

pub(super) fn set_operators(
    turn: &mut Turn<'_>,
    id: NodeId,
    is_operator: bool,
    expect: Expect,
) -> Result<Done, ApplyError> {
    turn.check_operator()?;
    // For the condition alone, which is on the node's record; the right is a record of its own.
    turn.take::<Node>(&id, expect)?;
    if turn.get::<NodeRight>(&id).is_some_and(|right| right.is_operator == is_operator) {
        return Ok(Done::default());
    }
    if !is_operator {
        check_not_last(turn, &[id])?;
    }
    decide(turn, id, is_operator);
    Ok(Done::default())
}

/// Sets the right of a node that joins.
pub(super) fn admit_with(turn: &mut Turn<'_>, id: NodeId, is_operator: bool) {
    // Before that, the node's own declaration decides.
    if turn.ledger.is_enforced {
        decide(turn, id, is_operator);
    }
}

/// Gives the right to the node that recreates the cluster: no other node is left to give it.
pub(super) fn admit_founder(turn: &mut Turn<'_>, id: NodeId) {
    admit_with(turn, id, true);
}

fn decide(turn: &mut Turn<'_>, id: NodeId, is_operator: bool) {
    let is_edge = turn.get::<NodeRight>(&id).is_some_and(|right| right.is_edge);
    put(turn, id, NodeRight { is_operator, is_edge });
}

fn put(turn: &mut Turn<'_>, id: NodeId, right: NodeRight) {
    // This never fails: there may be as many rights as nodes.
    drop(turn.put(id, right));
}

/// Returns true if all nodes except `but` are known to have no right. If `but` has none either, all
/// nodes get it: otherwise no node could give an order any more.
fn are_all_without(turn: &Turn<'_>, but: Option<NodeId>) -> bool {
    let rights = &turn.records.node_rights;
    let mut others = turn.records.nodes.keys().filter(|id| Some(**id) != but);
    others.all(|id| rights.get(id).is_some_and(|right| !right.is_operator))
}

fn allow_all(turn: &mut Turn<'_>, but: Option<NodeId>) {
    let others = turn.records.nodes.keys().filter(|id| Some(**id) != but);
    let others: Vec<NodeId> = others.copied().collect();
    others.into_iter().for_each(|id| decide(turn, id, true));
}

/// Checks that a node with the right is left without the nodes `gone`.
///
/// # Errors
/// Returns [`RefusalCode::InUse`] if none is left.
pub(super) fn check_not_last(turn: &Turn<'_>, gone: &[NodeId]) -> Result<(), CommandError> {
    if !turn.ledger.is_enforced {
        return Ok(());
    }
    let mut rights = turn.records.node_rights.iter();
    let mut left = turn.records.node_rights.iter().filter(|(id, _)| !gone.contains(id));
    let had_one = rights.any(|(_, right)| right.is_operator);
    // If no node has the right, removing nodes takes nothing away.
    if !had_one || left.any(|(_, right)| right.is_operator) {
        return Ok(());
    }
    let cause = "no other node may give operators' orders";
    let remedy = "allow another node first: `spillway nodes operators NAME allow`";
    Err(CommandError::new(RefusalCode::InUse, cause, remedy))
}

/// Remembers the origin of a token. A token that is written again counts as made by this entry.
pub(super) fn remember_token(turn: &mut Turn<'_>, id: &TokenId, is_operator: bool) {
    // Until membership is enforced, only a granted right needs remembering.
    if turn.ledger.is_enforced || is_operator {
        let made = turn.ledger.applied;
        turn.put_quietly(id.clone(), TokenOrigin { made, is_operator });
    } else {
        turn.remove_quietly::<TokenOrigin>(id);
    }
}

/// Forgets the right of a node that is removed.
pub(super) fn forget_right(turn: &mut Turn<'_>, id: NodeId) {
    turn.remove::<NodeRight>(&id);
}

/// Remembers a removed node. Forgets the node that was removed longest ago if there are too many.
pub(super) fn remember_removed(turn: &mut Turn<'_>, id: NodeId, spec: &NodeSpec) {
    if !turn.ledger.is_enforced {
        return;
    }
    let table = &turn.records.removed_nodes;
    // A name that is there already takes no further room.
    if table.len() >= REMOVED_NODES_MAX && table.get(&spec.name).is_none() {
        let oldest = table.rows().min_by_key(|(_, row)| row.version()).map(|(name, _)| name);
        if let Some(oldest) = oldest.cloned() {
            turn.remove::<RemovedNode>(&oldest);
        }
    }
    let (region, fingerprint) = (spec.region.clone(), spec.fingerprint);
    let removed = RemovedNode { id, region, fingerprint };
    // This never fails: there is room now.
    drop(turn.put(spec.name.clone(), removed));
}

/// Checks that a node that joins was not removed before, or that its token was made after the
/// removal. Operators may let every node in.
///
/// # Errors
/// Returns [`RefusalCode::TokenRefused`] otherwise.
pub(super) fn check_return(
    turn: &Turn<'_>,
    spec: &NodeSpec,
    token: Option<&TokenId>,
) -> Result<(), CommandError> {
    // A removed node that takes another name still has its certificate.
    let is_it = |name: &NodeName, removed: &RemovedNode| {
        *name == spec.name || removed.fingerprint == spec.fingerprint
    };
    let rows = turn.records.removed_nodes.rows();
    let matching = rows.filter(|(name, row)| is_it(name, row.value()));
    let Some(removed) = matching.map(|(_, row)| row.version()).max() else { return Ok(()) };
    let origin = token.and_then(|id| turn.get::<TokenOrigin>(id));
    if turn.is_operator() || origin.is_some_and(|origin| origin.made > removed) {
        return Ok(());
    }
    let cause = format!("node {} was removed from the cluster", spec.name);
    let remedy = "make a new join token for it, or allow it: `spillway nodes readmit NAME`";
    Err(CommandError::new(RefusalCode::TokenRefused, cause, remedy))
}

/// Forgets that a node of this name was removed, since it is a member again.
pub(super) fn forget_removed(turn: &mut Turn<'_>, spec: &NodeSpec) {
    turn.remove::<RemovedNode>(&spec.name);
}

/// Checks that a registered node's record is changed by the node itself or an operator.
///
/// # Errors
/// Returns [`RefusalCode::NotOwner`] if another node proposes the change.
pub(super) fn check_own_record(turn: &Turn<'_>, spec: &NodeSpec) -> Result<(), CommandError> {
    if !turn.ledger.is_enforced || turn.is_operator() || turn.entry.proposer.node == spec.name {
        return Ok(());
    }
    let cause = format!("only node {} itself says how it is reached", spec.name);
    Err(CommandError::new(RefusalCode::NotOwner, cause, "let that node propose it"))
}

/// Returns true if nodes that join by this token get the right to propose operators' orders. The
/// token must have been checked; None gives false.
pub(super) fn grants(turn: &Turn<'_>, token: Option<&TokenId>) -> bool {
    let origin = token.and_then(|id| turn.get::<TokenOrigin>(id));
    origin.is_some_and(|origin| origin.is_operator)
}
