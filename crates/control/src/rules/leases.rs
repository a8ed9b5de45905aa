//! How long replicas stay registered by themselves.

use spillway_types::RegionName;

use crate::limits::EXPIRED_MAX;
use crate::rules::check;
use crate::state::{Done, Turn};
use crate::{Fault, Health, Lease, LeaseRenewal, LeaseSource, Replica, ReplicaId};

/// Begins, renews or ends the lease of a replica that is being registered.
pub(super) fn start(turn: &mut Turn<'_>, id: &ReplicaId, epoch: u64, source: LeaseSource) {
    match source {
        LeaseSource::Config => {
            turn.remove_quietly::<Lease>(id);
        }
        LeaseSource::Lease { length_ms } => {
            let ends_ms = now_ms(turn, &id.region).saturating_add(length_ms);
            turn.put_quietly(id.clone(), Lease { epoch, ends_ms });
        }
    }
}

/// Renews leases. Those of other epochs, or of replicas without a lease, are skipped.
pub(super) fn renew(
    turn: &mut Turn<'_>,
    region: &RegionName,
    renewals: &[LeaseRenewal],
) -> Result<Done, Fault> {
    turn.check_owner(region)?;
    check::batch(renewals.len())?;
    let mut skipped = 0;
    for LeaseRenewal { name, epoch } in renewals {
        let id = ReplicaId::new(region.clone(), name.clone());
        let of_epoch = turn.get::<Replica>(&id).filter(|replica| replica.epoch == *epoch);
        match of_epoch.map(|replica| replica.spec.source) {
            Some(source @ LeaseSource::Lease { .. }) => start(turn, &id, *epoch, source),
            Some(LeaseSource::Config) | None => skipped += 1,
        }
    }
    Ok(Done { skipped })
}

/// Takes out the replicas of the region whose lease has ended.
pub(super) fn expire(turn: &mut Turn<'_>, region: &RegionName) -> Result<Done, Fault> {
    turn.check_owner(region)?;
    let now_ms = now_ms(turn, region);
    let is_over =
        |(id, lease): &(&ReplicaId, &Lease)| id.region == *region && lease.ends_ms <= now_ms;
    let over: Vec<ReplicaId> = turn
        .records
        .leases
        .iter()
        .filter(is_over)
        .map(|(id, _)| id.clone())
        .take(EXPIRED_MAX)
        .collect();
    over.iter().for_each(|id| take_out(turn, id));
    Ok(Done::default())
}

/// Removes a replica with all that belongs to it.
pub(super) fn take_out(turn: &mut Turn<'_>, id: &ReplicaId) {
    turn.remove::<Replica>(id);
    turn.remove_quietly::<Lease>(id);
    turn.remove::<Health>(id);
}

/// The region's own time; it has a clock from its first moment on.
pub(super) fn now_ms(turn: &Turn<'_>, region: &RegionName) -> u64 {
    turn.ledger.clocks.get(region).map_or(0, |clock| clock.now_ms())
}
