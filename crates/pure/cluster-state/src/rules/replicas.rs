//! Rules for replicas.

use crate::limits::{LEASE_MS_MAX, LEASE_MS_MIN, REPLICA_WEIGHT_MAX};
use crate::rules::{check, leases, room};
use crate::state::{Done, Turn};
use crate::{
    ApplyError, CommandError, Expect, Health, LeaseSource, RefusalCode, Region, Replica, ReplicaId,
    ReplicaSpec, ReplicaState,
};

/// Registers a replica, or registers it again. Every registration with a new spec or incarnation
/// begins an epoch, so that old observations are not taken for the present server's. An operator's
/// state and weight stay.
pub(super) fn register(
    turn: &mut Turn<'_>,
    id: &ReplicaId,
    spec: &ReplicaSpec,
    incarnation: u64,
    expect: Expect,
) -> Result<Done, ApplyError> {
    if !turn.is_operator() {
        turn.check_owner(&id.region)?;
    }
    turn.expect::<Replica>(id, expect)?;
    check_spec(spec)?;
    if turn.get::<Region>(&id.region).is_none() {
        return Err(CommandError::unknown(&crate::RecordKey::Region(id.region.clone())).into());
    }
    let known = turn.get::<Replica>(id).cloned();
    let is_same = |known: &Replica| known.spec == *spec && known.incarnation == incarnation;
    // A repeated registration only renews the lease.
    if let Some(known) = known.as_ref().filter(|known| is_same(known)) {
        leases::start(turn, id, known.epoch, spec.source);
        return Ok(Done::default());
    }
    // Only now: a replica that is known must keep its lease in a full state, too.
    room::check_replica(turn, &id.region)?;
    let (state, weight) = known.map_or_else(Default::default, |known| (known.state, known.weight));
    let epoch = turn.ledger.applied;
    let replica = Replica { spec: spec.clone(), incarnation, epoch, state, weight };
    turn.put(id.clone(), replica)?;
    // Earlier observations say nothing about this server.
    turn.remove::<Health>(id);
    leases::start(turn, id, epoch, spec.source);
    Ok(Done::default())
}

/// Sets the state of a replica. Operators drain it and take it back; nodes of its region report
/// when it has drained.
pub(super) fn set_state(
    turn: &mut Turn<'_>,
    id: &ReplicaId,
    state: ReplicaState,
    expect: Expect,
) -> Result<Done, ApplyError> {
    if !turn.is_operator() {
        turn.check_owner(&id.region)?;
        // Without an operator, a region may only report that draining is done.
        if state != ReplicaState::Drained {
            turn.check_operator()?;
        }
    }
    let replica = turn.take::<Replica>(id, expect)?;
    if replica.state != state && !replica.state.may_become(state) {
        let cause = format!("replica {id} is {}, it can't become {state}", replica.state);
        let remedy = "drain an active one; take back a draining or drained one";
        return Err(CommandError::new(RefusalCode::Transition, cause, remedy).into());
    }
    turn.put(id.clone(), Replica { state, ..replica })?;
    Ok(Done::default())
}

pub(super) fn set_weight(
    turn: &mut Turn<'_>,
    id: &ReplicaId,
    weight: Option<u32>,
    expect: Expect,
) -> Result<Done, ApplyError> {
    turn.check_operator()?;
    let replica = turn.take::<Replica>(id, expect)?;
    weight.map_or(Ok(()), check_weight)?;
    turn.put(id.clone(), Replica { weight, ..replica })?;
    Ok(Done::default())
}

fn check_spec(spec: &ReplicaSpec) -> Result<(), CommandError> {
    check::url(&spec.url)?;
    check::name(&spec.engine, "server software")?;
    check::name(&spec.pool, "pool")?;
    check::text(&spec.hardware, "hardware")?;
    check::models(&spec.models)?;
    check_weight(spec.weight)?;
    if let LeaseSource::Lease { length_ms } = spec.source {
        check::range(length_ms, (LEASE_MS_MIN, LEASE_MS_MAX), "length of a lease")?;
    }
    spec.capacity.map_or(Ok(()), |capacity| check::range(capacity.into(), (1, 1 << 20), "capacity"))
}

fn check_weight(weight: u32) -> Result<(), CommandError> {
    check::range(weight.into(), (1, REPLICA_WEIGHT_MAX.into()), "weight")
}
