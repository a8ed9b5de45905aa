//! Removal of records, with the records that belong to them.

use spillway_types::RegionName;

use crate::records::Stored;
use crate::rules::{leases, members};
use crate::state::{Done, Turn};
use crate::{
    ApplyError, CommandError, Expect, Health, JoinToken, Key, KeyId, Lease, Limit, LimitScope,
    Model, Node, NodeId, RecordKey, RefusalCode, Region, RegionState, RemovedNode, Replica,
    ReplicaId, RevokedCertificate, Route, Setting, Split, Tenant, TenantName, TokenId, TokenOrigin,
};

pub(super) fn remove(
    turn: &mut Turn<'_>,
    key: &RecordKey,
    expect: Expect,
) -> Result<Done, ApplyError> {
    // A region's own nodes may remove its replicas; everything else is for operators.
    if let RecordKey::Replica(id) = key {
        return remove_replica(turn, id, expect);
    }
    turn.check_operator()?;
    match key {
        RecordKey::Replica(_) => {}
        RecordKey::Node(id) => remove_node(turn, *id, expect)?,
        RecordKey::Region(name) => remove_region(turn, name, expect)?,
        RecordKey::Lease(id) => refuse_part::<Lease>(id)?,
        RecordKey::Health(id) => refuse_part::<Health>(id)?,
        RecordKey::Tenant(name) => remove_tenant(turn, name, expect)?,
        RecordKey::Key(id) => remove_key(turn, id, expect)?,
        RecordKey::Model(name) => remove_one::<Model>(turn, name, expect)?,
        RecordKey::Route(name) => remove_one::<Route>(turn, name, expect)?,
        RecordKey::Split(name) => remove_one::<Split>(turn, name, expect)?,
        RecordKey::Limit(scope) => remove_one::<Limit>(turn, scope, expect)?,
        RecordKey::JoinToken(id) => remove_token(turn, id, expect)?,
        RecordKey::Setting(name) => remove_one::<Setting>(turn, name, expect)?,
        RecordKey::NodeRight(_) | RecordKey::TokenOrigin(_) => refuse_right(key)?,
        RecordKey::RemovedNode(name) => remove_one::<RemovedNode>(turn, name, expect)?,
        RecordKey::RevokedCertificate(serial) => {
            remove_one::<RevokedCertificate>(turn, serial, expect)?;
        }
    }
    Ok(Done::default())
}

/// Removes a replica. Nodes may remove replicas that their config file has no more.
fn remove_replica(turn: &mut Turn<'_>, id: &ReplicaId, expect: Expect) -> Result<Done, ApplyError> {
    if !turn.is_operator() {
        turn.check_owner(&id.region)?;
    }
    turn.take::<Replica>(id, expect)?;
    leases::take_out(turn, id);
    Ok(Done::default())
}

/// Removes a node and retires its disk, which still has what the node promised as a voter.
fn remove_node(turn: &mut Turn<'_>, id: NodeId, expect: Expect) -> Result<(), ApplyError> {
    turn.take::<Node>(&id, expect)?;
    if turn.records.nodes.len() == 1 {
        let remedy = "keep one node, or form another cluster";
        return Err(in_use("it is the last node".to_owned(), remedy).into());
    }
    members::check_not_last(turn, &[id])?;
    retire(turn, id);
    Ok(())
}

/// Removes a region with all that is in it. Unless it is empty, it must be evacuated.
fn remove_region(turn: &mut Turn<'_>, name: &RegionName, expect: Expect) -> Result<(), ApplyError> {
    let region = turn.take::<Region>(name, expect)?;
    let (nodes, others): (Vec<_>, Vec<_>) =
        turn.records.nodes.iter().partition(|(_, node)| node.spec.region == *name);
    let nodes: Vec<NodeId> = nodes.into_iter().map(|(id, _)| *id).collect();
    let is_empty = nodes.is_empty() && !owned(turn, name).any(|_| true);
    if !is_empty && region.state != RegionState::Evacuating {
        let cause = format!("region {name} has nodes or replicas");
        return Err(in_use(cause, "evacuate it first").into());
    }
    // The cluster must not lose its last nodes.
    if others.is_empty() && !nodes.is_empty() {
        let cause = format!("all nodes are in region {name}");
        return Err(in_use(cause, "let nodes of another region join first").into());
    }
    members::check_not_last(turn, &nodes)?;
    let replicas: Vec<ReplicaId> = owned(turn, name).cloned().collect();
    replicas.iter().for_each(|id| leases::take_out(turn, id));
    nodes.into_iter().for_each(|id| retire(turn, id));
    // Tokens for this region alone go with it.
    let is_bound = |token: &JoinToken| token.region.as_ref() == Some(name);
    let tokens = turn.records.join_tokens.iter().filter(|(_, token)| is_bound(token));
    let tokens: Vec<TokenId> = tokens.map(|(id, _)| id.clone()).collect();
    for id in &tokens {
        turn.remove::<JoinToken>(id);
        turn.remove_quietly::<TokenOrigin>(id);
    }
    turn.remove::<Region>(name);
    turn.ledger.clocks.remove(name);
    turn.hot.remove_region(name);
    Ok(())
}

fn remove_tenant(turn: &mut Turn<'_>, name: &TenantName, expect: Expect) -> Result<(), ApplyError> {
    turn.take::<Tenant>(name, expect)?;
    if turn.records.keys.iter().any(|(_, key)| key.tenant.as_ref() == Some(name)) {
        let cause = format!("tenant {name} has keys");
        return Err(in_use(cause, "remove its keys first").into());
    }
    // A limit that stayed would hold for another tenant of this name.
    turn.remove::<Limit>(&LimitScope::Tenant(name.clone()));
    turn.remove::<Tenant>(name);
    Ok(())
}

fn remove_key(turn: &mut Turn<'_>, id: &KeyId, expect: Expect) -> Result<(), ApplyError> {
    turn.take::<Key>(id, expect)?;
    // A limit that stayed would hold for another key of this id.
    turn.remove::<Limit>(&LimitScope::Key(id.clone()));
    turn.remove::<Key>(id);
    Ok(())
}

fn remove_token(turn: &mut Turn<'_>, id: &TokenId, expect: Expect) -> Result<(), ApplyError> {
    remove_one::<JoinToken>(turn, id, expect)?;
    turn.remove_quietly::<TokenOrigin>(id);
    Ok(())
}

fn refuse_right(key: &RecordKey) -> Result<(), CommandError> {
    crate::rules::check::key(key)?;
    let cause = format!("{key} goes with what it is about");
    let remedy = "remove the node or the token, or set the node's right";
    Err(CommandError::new(RefusalCode::NotPermitted, cause, remedy))
}

fn remove_one<V: Stored>(
    turn: &mut Turn<'_>,
    key: &V::Key,
    expect: Expect,
) -> Result<(), ApplyError> {
    turn.take::<V>(key, expect)?;
    turn.remove::<V>(key);
    Ok(())
}

fn refuse_part<V: Stored>(key: &V::Key) -> Result<(), CommandError> {
    crate::rules::check::key(&V::key(key))?;
    let cause = format!("{} goes with its replica", V::key(key));
    Err(CommandError::new(RefusalCode::NotPermitted, cause, "remove the replica"))
}

/// Takes a node out for good, and remembers its name as removed.
fn retire(turn: &mut Turn<'_>, id: NodeId) {
    if let Some(node) = replace(turn, id) {
        members::remember_removed(turn, id, &node.spec);
    }
}

/// Takes a node out for good and retires its disk. Its name is free.
pub(super) fn replace(turn: &mut Turn<'_>, id: NodeId) -> Option<Node> {
    let node = turn.remove::<Node>(&id)?;
    turn.ledger.retire(node.spec.disk);
    members::forget_right(turn, id);
    Some(node)
}

fn owned<'a>(turn: &'a Turn<'_>, region: &'a RegionName) -> impl Iterator<Item = &'a ReplicaId> {
    turn.records.replicas.keys().filter(move |id| id.region == *region)
}

fn in_use(cause: String, remedy: &str) -> CommandError {
    CommandError::new(RefusalCode::InUse, cause, remedy)
}
