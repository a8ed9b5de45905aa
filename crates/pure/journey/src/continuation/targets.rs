//! Targets that may continue a stream.

use spillway_types::{RegionName, ReplicaName, ReplicaSlot};

use super::{ContinuedStream, StreamSight, TargetSearch};

/// A replica of this region, as the continuation of a stream sees it.
#[derive(Clone, Copy, Debug)]
pub struct StreamReplica<'a> {
    /// Number in the view.
    pub slot: ReplicaSlot,
    /// Name, which stays when the view changes.
    pub name: &'a ReplicaName,
    /// True if the replica serves the request's model.
    pub serves_model: bool,
    /// True if the replica's engine can continue a message of a chat that was begun.
    pub continues_chats: bool,
}

/// Targets that are not to be asked for a continuation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unasked {
    /// Replicas of this region.
    pub replicas: Vec<ReplicaSlot>,
    /// Other regions.
    pub regions: Vec<RegionName>,
}

impl ContinuedStream {
    /// Returns the targets that the next try leaves out; `None` if no other target could continue the
    /// stream, now or later.
    pub(super) fn unasked<S: StreamSight>(
        &self,
        search: &TargetSearch,
        sight: &S,
    ) -> Option<Unasked> {
        let lost = if search.spares_lost { self.lost.as_slice() } else { &[] };
        self.without(&self.broken, lost, search, sight).or_else(|| {
            // A target that broke off earlier and is back is better than none. A region has other
            // nodes and replicas, so it may be the one that broke off just now.
            let last = self.broken.last().map(std::slice::from_ref).unwrap_or_default();
            self.without(last, &[], search, sight)
        })
    }

    /// Returns the targets that are not asked: these replicas and regions, replicas that were asked
    /// in this round, and those that cannot continue an answer that was begun. `None` if no target is
    /// left.
    fn without<S: StreamSight>(
        &self,
        broken: &[ReplicaName],
        lost: &[RegionName],
        search: &TargetSearch,
        sight: &S,
    ) -> Option<Unasked> {
        let needs_engine = search.is_begun && self.rules.needs_engine;
        let mut unasked = Unasked { replicas: Vec::new(), regions: lost.to_vec() };
        let (mut is_any_left, mut is_any_unable) = (false, false);
        for replica in sight.replicas() {
            let is_able = !needs_engine || replica.continues_chats;
            let is_broken = broken.contains(replica.name);
            is_any_unable |= replica.serves_model && !is_able;
            is_any_left |= replica.serves_model && is_able && !is_broken;
            if !is_able || is_broken || search.tried.contains(replica.name) {
                unasked.replicas.push(replica.slot);
            }
        }
        // The engines of other regions are unknown here, and are taken to be like these.
        if is_any_unable {
            unasked.regions.extend(sight.regions().cloned());
        }
        let has_regions = !is_any_unable && sight.regions().any(|region| !lost.contains(region));
        (is_any_left || has_regions).then_some(unasked)
    }
}
