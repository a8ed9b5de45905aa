//! Rules for leases of replicas.

use spillway_types::RegionName;

use crate::limits::EXPIRED_MAX;
use crate::rules::check;
use crate::state::{Done, Turn};
use crate::{ApplyError, Health, Lease, LeaseRenewal, LeaseSource, Replica, ReplicaId};

/// Starts or renews the lease of a replica that registers, or ends it if the replica now has none.
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

/// Renews leases. Renewals for another epoch, or for a replica without a lease, are skipped.
pub(super) fn renew(
    turn: &mut Turn<'_>,
    region: &RegionName,
    renewals: &[LeaseRenewal],
) -> Result<Done, ApplyError> {
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

/// Takes out replicas of the region whose lease has ended, at most [`EXPIRED_MAX`].
pub(super) fn expire(turn: &mut Turn<'_>, region: &RegionName) -> Result<Done, ApplyError> {
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
        // This bounds the work of one entry; the next entry takes out more.
        .take(EXPIRED_MAX)
        .collect();
    over.iter().for_each(|id| take_out(turn, id));
    Ok(Done::default())
}

/// Removes a replica with its lease and health.
pub(super) fn take_out(turn: &mut Turn<'_>, id: &ReplicaId) {
    turn.remove::<Replica>(id);
    turn.remove_quietly::<Lease>(id);
    turn.remove::<Health>(id);
}

/// Returns the region's own time in milliseconds. A region has a clock from its first record on.
pub(super) fn now_ms(turn: &Turn<'_>, region: &RegionName) -> u64 {
    turn.ledger.clocks.get(region).map_or(0, |clock| clock.now_ms())
}
