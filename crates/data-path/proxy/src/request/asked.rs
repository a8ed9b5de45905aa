//! Slot that a request takes at a replica.

use std::sync::Arc;

use spillway_journey::{Journey, ReplicaSight, RequestSight, Room};
use spillway_protocol::UsageWish;
use spillway_route::{Attempt, Loads, Work};
use spillway_view::{Lease, Replica, TrafficSlots};

use crate::request::attempt_observer::AttemptObserver;
use crate::request::cache_feedback::CacheFeedback;
use crate::request::dispatch::Dispatch;
use crate::request::queue::tokens;

/// A replica that the request is sent to.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) chosen: Attempt,
    pub(super) replica: Arc<Replica>,
    pub(super) lease: Lease,
    pub(super) observer: AttemptObserver,
    /// Usage that the replica is asked for beyond the client's own request.
    pub(super) usage: UsageWish,
}

impl Dispatch<'_> {
    /// Takes a slot at a replica; `None` if it has none left.
    pub(super) fn take_slot(&self, chosen: Attempt, journey: &Journey) -> Option<Asked> {
        let replica = Arc::clone(self.view.replica(chosen.slot));
        let lease = self.lease(&replica, chosen, journey.room(self))?;
        let lease = lease.of(self.tenant_slot(), tokens(&self.prepared.inquiry));
        let feedback = CacheFeedback::begin(self.worker, &replica, &self.prepared.inquiry, &chosen);
        Some(self.asked(chosen, replica, lease, feedback))
    }

    /// Takes a slot at an overflow replica; `None` if it has none left. The slot is none of the
    /// tenant's, and nothing is learned of the replica's cache.
    pub(super) fn take_overflow_slot(&self, chosen: Attempt) -> Option<Asked> {
        let replica = Arc::clone(self.view.replica(chosen.slot));
        let lease = replica.lease(
            &self.worker.gateway.routing.waiting,
            replica.slots(),
            self.prepared.traffic(),
        )?;
        Some(self.asked(chosen, replica, lease, None))
    }

    fn asked(
        &self,
        chosen: Attempt,
        replica: Arc<Replica>,
        lease: Lease,
        feedback: Option<CacheFeedback>,
    ) -> Asked {
        let inquiry = &self.prepared.inquiry;
        let work = Work::of(inquiry, &chosen);
        let tenant = self.tenant.map(|key| key.tenant);
        let model = inquiry.model.as_ref();
        let observed = (work, feedback);
        let observer = AttemptObserver::new(self.worker, &replica, model, tenant, observed);
        let usage = self.prepared.usage_wish(&replica);
        Asked { chosen, replica, lease, observer, usage }
    }

    fn lease(&self, replica: &Arc<Replica>, chosen: Attempt, room: Room) -> Option<Lease> {
        let queues = &self.worker.gateway.routing.waiting;
        let traffic = self.prepared.traffic();
        let sight = TrafficSlots { replica, traffic };
        let slots = room.slots(&sight, chosen.slot);
        replica.lease(queues, slots, traffic).or_else(|| {
            // The plan may have counted with more, because much of the prompt is cached there. The
            // cached blocks are looked up again, since few requests need them.
            let reads_caches = self.route_rules().reads_caches;
            let cached_blocks = self.loads(room, reads_caches).cached_blocks(chosen.slot);
            let more = room.slots_with(&sight, chosen.slot, cached_blocks);
            if more > slots { replica.lease(queues, more, traffic) } else { None }
        })
    }
}
