//! Rules for nodes: forming the cluster, joining, roles.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::SEEDS_MAX;
use crate::records::lookup::{node_named, setting};
use crate::rules::{check, members, regions, remove, tokens};
use crate::state::{Done, Turn};
use crate::{
    ApplyError, ClusterId, CommandError, Expect, Form, Node, NodeId, NodeRole, NodeSpec,
    RefusalCode, Region, TokenSignature,
};

/// Forms the cluster. Forming the same cluster again changes nothing; another cluster is refused.
pub(super) fn form(turn: &mut Turn<'_>, form: &Form) -> Result<Done, ApplyError> {
    match turn.ledger.cluster {
        Some(cluster) if cluster == form.cluster => return Ok(Done::default()),
        Some(cluster) => return Err(other_cluster(cluster).into()),
        None => {}
    }
    check::count(form.nodes.len(), SEEDS_MAX, "nodes")?;
    form.nodes.iter().try_for_each(check_spec)?;
    let distinct = |count: usize, what: &str| {
        let cause = format!("two nodes have the same {what}, or there is none");
        let refusal = || CommandError::invalid(cause, "name each node once");
        (count == form.nodes.len() && count > 0).then_some(()).ok_or_else(refusal)
    };
    distinct(form.nodes.iter().map(|node| &node.name).collect::<BTreeSet<_>>().len(), "name")?;
    distinct(form.nodes.iter().map(|node| node.disk).collect::<BTreeSet<_>>().len(), "disk")?;
    // Nothing below is refused: as many nodes and regions as there may be seeds fit into an empty
    // state.
    turn.ledger.cluster = Some(form.cluster);
    // Ids follow the order of names, as the seeds number themselves before there is a state.
    let by_name: BTreeMap<_, _> = form.nodes.iter().map(|node| (&node.name, node)).collect();
    for node in by_name.into_values() {
        admit(turn, node)?;
    }
    turn.is_written = true;
    Ok(Done::default())
}

pub(super) fn set_role(
    turn: &mut Turn<'_>,
    id: NodeId,
    role: NodeRole,
    expect: Expect,
) -> Result<Done, ApplyError> {
    turn.check_operator()?;
    let node = turn.take::<Node>(&id, expect)?;
    turn.put(id, Node { role, ..node })?;
    Ok(Done::default())
}

/// Replaces the cluster's id `from` by `to`, after the cluster was recreated from one node's disk
/// or from a backup. The proposing node stays as the only member. The other nodes' disks still have
/// what they promised in the old cluster, votes included, so these disks are retired; their names
/// are free.
pub(super) fn replace_cluster(
    turn: &mut Turn<'_>,
    from: ClusterId,
    to: ClusterId,
) -> Result<Done, ApplyError> {
    match turn.ledger.cluster {
        Some(cluster) if cluster == from => {}
        Some(cluster) => return Err(other_cluster(cluster).into()),
        None => return Ok(Done::default()),
    }
    let founder = &turn.entry.proposer.node;
    let Some((id, _)) = node_named(turn.records, founder) else {
        let cause = format!("{founder} is no node of the old cluster");
        let remedy = "begin with a node that the old cluster had";
        return Err(CommandError::new(RefusalCode::NotPermitted, cause, remedy).into());
    };
    let others = turn.records.nodes.iter().filter(|(_, node)| node.spec.name != *founder);
    let others: Vec<NodeId> = others.map(|(id, _)| *id).collect();
    others.into_iter().for_each(|id| drop(remove::replace(turn, id)));
    members::admit_founder(turn, id);
    turn.is_written = from != to;
    turn.ledger.cluster = Some(to);
    Ok(Done::default())
}

/// Registers a node that joins or is back. Name and disk together identify a node: a node with a
/// known name and another disk has lost what it promised, votes included, and must not pass for the
/// node that it was.
pub(super) fn register(
    turn: &mut Turn<'_>,
    spec: &NodeSpec,
    token: Option<&TokenSignature>,
) -> Result<Done, ApplyError> {
    check_spec(spec)?;
    check_wire(turn, spec)?;
    // Before the name is looked up: the disk of a removed node is refused under any name.
    check_disk(turn, spec)?;
    let Some((id, known)) = node_named(turn.records, &spec.name) else {
        return join(turn, spec, token);
    };
    if known.spec.disk != spec.disk {
        return Err(wiped_disk(id, spec).into());
    }
    if known.spec.region != spec.region {
        let cause = format!("node {} belongs to region {}", spec.name, known.spec.region);
        let remedy = "remove the node first, then let it join as a new one";
        return Err(CommandError::new(RefusalCode::InUse, cause, remedy).into());
    }
    let node = Node { spec: spec.clone(), ..known.clone() };
    // A node that registers with its known spec changes nothing, so any node may pass that on.
    if node != *known {
        members::check_own_record(turn, spec)?;
    }
    turn.put(id, node)?;
    Ok(Done::default())
}

fn join(
    turn: &mut Turn<'_>,
    spec: &NodeSpec,
    token: Option<&TokenSignature>,
) -> Result<Done, ApplyError> {
    let is_free =
        turn.is_operator() || setting(turn.records, "join.token_required") == Some("false");
    let used = match token {
        Some(token) => Some((token.id.clone(), tokens::used(turn, token, spec)?)),
        None if is_free => None,
        None => return Err(tokens::refused("a new node needs a join token").into()),
    };
    let id = used.as_ref().map(|(id, _)| id);
    members::check_return(turn, spec, id)?;
    let is_operator = members::grants(turn, id);
    // All checks come before the first write, so that a refusal changes no record.
    turn.check_room::<Node>(1)?;
    if turn.get::<Region>(&spec.region).is_none() {
        turn.check_room::<Region>(1)?;
    }
    if let Some((id, token)) = used {
        turn.put(id, token)?;
    }
    members::forget_removed(turn, spec);
    let id = admit(turn, spec)?;
    members::admit_with(turn, id, is_operator);
    Ok(Done::default())
}

/// Adds a node whose right to join was checked.
fn admit(turn: &mut Turn<'_>, spec: &NodeSpec) -> Result<NodeId, CommandError> {
    regions::ensure(turn, &spec.region)?;
    let id = turn.ledger.next_node();
    let joined = turn.ledger.applied;
    turn.put(id, Node { spec: spec.clone(), role: NodeRole::Any, joined })?;
    Ok(id)
}

fn check_spec(spec: &NodeSpec) -> Result<(), CommandError> {
    check::name(spec.name.as_str(), "node")?;
    check::name(spec.region.as_str(), "region")?;
    check::address(&spec.address)?;
    if spec.wire_oldest <= spec.wire_newest {
        return Ok(());
    }
    Err(CommandError::invalid("the oldest wire version is newer than the newest", "exchange them"))
}

/// Checks that a node reads all versions that the log and the snapshot need.
fn check_wire(turn: &Turn<'_>, spec: &NodeSpec) -> Result<(), CommandError> {
    let used = turn.ledger.wire_used;
    if spec.wire_newest >= used {
        return Ok(());
    }
    let cause = format!(
        "node {} reads wire version {}, the cluster uses {used}",
        spec.name, spec.wire_newest
    );
    Err(CommandError::new(RefusalCode::WireVersion, cause, "upgrade that node"))
}

fn check_disk(turn: &Turn<'_>, spec: &NodeSpec) -> Result<(), CommandError> {
    let is_other = |node: &Node| node.spec.disk == spec.disk && node.spec.name != spec.name;
    let is_in_use = turn.records.nodes.iter().any(|(_, node)| is_other(node));
    if !is_in_use && !turn.ledger.is_retired(spec.disk) {
        return Ok(());
    }
    let cause = format!("the disk of node {} belongs to another node or a removed one", spec.name);
    Err(CommandError::new(
        RefusalCode::RetiredDisk,
        cause,
        "empty its data folder and start it again",
    ))
}

fn wiped_disk(id: NodeId, spec: &NodeSpec) -> CommandError {
    let cause = format!("node {} is known as {id} with another disk", spec.name);
    let name = &spec.name;
    let remedy =
        format!("remove node {id} (`spillway remove node {name}`), then it joins anew by token");
    CommandError::new(RefusalCode::WipedDisk, cause, remedy)
}

fn other_cluster(cluster: ClusterId) -> CommandError {
    let cause = format!("this is cluster {cluster}");
    CommandError::new(RefusalCode::OtherCluster, cause, "use that id, or empty the data folder")
}
