//! The trace that each request leaves, however it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use spillway_protocol::GatewayError;
use spillway_route::Attempt;
use spillway_types::{
    BlockHashes, End, GapHistogram, Hedge, ModelName, Outcome, RegionName, ReplicaName, RouteName,
    Shed, SplitArm, TokenCounts,
};

use crate::access::Grant;
use crate::client::{Client, PieceOut};
use crate::request::charge::Charge;
use crate::upstream::RetrySafety;
use crate::worker::Worker;

/// Follows a request and leaves its [`Outcome`] when dropped. Dropped early, i.e. because the
/// client's connection went away, it says so.
#[derive(Debug)]
pub(crate) struct Record {
    worker: Arc<Worker>,
    client: Arc<Client>,
    started: Instant,
    /// When the last replica was asked.
    asked_at: Option<Instant>,
    /// What it has charged to limits.
    charge: Option<Charge>,
    /// Bytes of its reply, where that tells no usage.
    reply_bytes: u64,
    /// A replica or another region may have got it.
    was_sent: bool,
    /// The class of its client.
    priority: u8,
    /// Boxed: requests are moved, and this is most of what a record is.
    outcome: Option<Box<Outcome>>,
}

impl Record {
    pub(crate) fn new(worker: Arc<Worker>, client: Arc<Client>) -> Self {
        client.meter.request_started();
        worker.gateway.counters.requests.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        Self {
            worker,
            client,
            started,
            asked_at: None,
            charge: None,
            reply_bytes: 0,
            was_sent: false,
            priority: 0,
            outcome: Some(Box::new(Outcome::begun())),
        }
    }

    /// Notes that a piece of the reply goes out.
    pub(crate) fn hand_over(&self) -> PieceOut {
        self.client.meter.hand_over()
    }

    /// When the request's head arrived.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// When the replica that serves it was asked; `None` if another region serves it.
    pub(crate) fn asked_at(&self) -> Option<Instant> {
        self.asked_at
    }

    /// Its client was let in.
    pub(crate) fn admitted(&mut self, grant: &Grant) {
        self.priority = grant.priority;
        self.edit(|outcome| {
            outcome.tenant.clone_from(&grant.tenant);
            outcome.key = grant.key.as_ref().map(Into::into);
        });
    }

    /// It has charged this to limits; what it does not use is given back at its end.
    pub(crate) fn charged(&mut self, charge: Charge) {
        self.charge = Some(charge);
    }

    /// The route and model it was found to be for.
    pub(crate) fn routed(&mut self, route: &RouteName, model: Option<&ModelName>) {
        self.edit(|outcome| {
            outcome.route = Some(route.clone());
            outcome.model = model.cloned();
        });
    }

    /// The arm of the split that it asks for.
    pub(crate) fn split(&mut self, arm: &Arc<SplitArm>) {
        self.edit(|outcome| outcome.arm = Some(Arc::clone(arm)));
    }

    /// Another model serves it, by this route, since the one asked for can't.
    pub(crate) fn fell_back(&mut self, route: &RouteName, model: Option<&ModelName>) {
        self.edit(|outcome| {
            outcome.fallback_for = outcome.model.take();
            outcome.route = Some(route.clone());
            outcome.model = model.cloned();
        });
    }

    /// Whether a replica may have begun to work on it. Returns what was known before.
    pub(crate) fn sent(&mut self, was_sent: bool) -> bool {
        std::mem::replace(&mut self.was_sent, was_sent)
    }

    /// So many bytes of a reply that tells no usage have come.
    pub(crate) fn reply_bytes(&mut self, bytes: usize) {
        self.reply_bytes = self.reply_bytes.saturating_add(bytes as u64);
    }

    /// Another region serves it; what the replicas of this one did or would have done says nothing
    /// of that.
    pub(crate) fn forwarded(&mut self, region: &RegionName) {
        self.asked_at = None;
        self.was_sent = true;
        self.edit(|outcome| {
            outcome.region = Some(region.clone());
            outcome.predicted = None;
        });
    }

    /// It came from another node.
    pub(crate) fn is_guest(&mut self) {
        self.edit(|outcome| outcome.is_guest = true);
    }

    /// A replica is about to be asked for the first time, after `body_wait` spent on the client's
    /// own upload.
    pub(crate) fn planned(&mut self, body_wait: Duration) {
        let passed = self.started.elapsed();
        self.edit(|outcome| outcome.overhead = passed.saturating_sub(body_wait));
    }

    /// A replica is asked now, with a prompt of these blocks.
    pub(crate) fn asked(&mut self, replica: &ReplicaName, prefix: &BlockHashes, chosen: &Attempt) {
        self.asked_at = Some(Instant::now());
        self.edit(|outcome| {
            outcome.replica = Some(replica.clone());
            outcome.reason = Some(chosen.reason.name());
            outcome.prefix = prefix.clone();
            outcome.predicted = chosen.prediction;
        });
    }

    /// The replica that was asked beside the first serves it; it was asked then.
    pub(crate) fn hedge_won(&mut self, replica: &ReplicaName, chosen: &Attempt, asked_at: Instant) {
        self.asked_at = Some(asked_at);
        self.edit(|outcome| {
            outcome.replica = Some(replica.clone());
            outcome.reason = Some(chosen.reason.name());
            outcome.predicted = chosen.prediction;
        });
    }

    pub(crate) fn retried(&mut self, safety: RetrySafety) {
        self.edit(|outcome| match safety {
            RetrySafety::Unsent => outcome.retries_unsent += 1,
            RetrySafety::Reset => outcome.retries_reset += 1,
            RetrySafety::Never => {}
        });
    }

    /// The reply's head goes out; from here on a client that leaves has left in the reply.
    pub(crate) fn replying(&mut self, status: u16) {
        self.edit(|outcome| {
            outcome.status = status;
            outcome.end = End::CancelledInReply;
        });
    }

    /// How a call over gRPC ended in its own words.
    pub(crate) fn grpc_status(&mut self, code: u8) {
        self.edit(|outcome| outcome.grpc_status = Some(code));
    }

    /// The first piece of the reply's body is there.
    pub(crate) fn first_byte(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.started);
        let reply_time = self.asked_at.map(|asked| now.saturating_duration_since(asked));
        self.edit(|outcome| {
            outcome.first_byte = Some(passed);
            outcome.reply_time = reply_time;
        });
    }

    pub(crate) fn tokens(&mut self, tokens: TokenCounts, gaps: Option<Box<GapHistogram>>) {
        self.edit(|outcome| {
            outcome.tokens = tokens;
            outcome.gaps = gaps;
        });
    }

    /// Somebody else goes on with its stream; what was predicted for that one is not what the client
    /// waited for.
    pub(crate) fn resumed(&mut self) {
        self.edit(|outcome| {
            if outcome.first_byte.is_some() {
                outcome.predicted = None;
            }
        });
    }

    /// The tokens noted so far.
    pub(crate) fn token_counts(&self) -> TokenCounts {
        self.outcome.as_ref().map(|outcome| outcome.tokens).unwrap_or_default()
    }

    /// Whoever served it is done, in this way: that stays its end, whatever is dropped later, and its
    /// charge is settled, though its client may still have to take what was read.
    pub(crate) fn end(&mut self, end: End) {
        self.edit(|outcome| outcome.end = end);
        self.settle();
    }

    /// Its client left before it had all of a reply that was whole here.
    pub(crate) fn left_behind(&mut self) {
        self.edit(|outcome| {
            if outcome.end == End::Complete {
                outcome.end = End::CancelledInReply;
            }
        });
    }

    /// The gateway answers by itself.
    pub(crate) fn answered(&mut self, status: u16) {
        self.edit(|outcome| {
            outcome.status = status;
            outcome.end = End::Answered;
        });
    }

    /// The gateway answers with an error of its own.
    pub(crate) fn refused(&mut self, error: &GatewayError) {
        let priority = self.priority;
        self.answered(error.kind.status().as_u16());
        self.edit(|outcome| outcome.shed = error.shed.map(|reason| Shed { reason, priority }));
    }

    /// A second attempt was made beside the first.
    pub(crate) fn hedged(&mut self, hedge: Hedge) {
        self.edit(|outcome| outcome.hedge = Some(hedge));
    }

    /// Leaves no outcome: health checks would drown the requests that matter.
    pub(crate) fn forget(&mut self) {
        self.outcome = None;
    }

    /// Gives back what was charged and not used. Only the first call counts.
    fn settle(&mut self) {
        if let (Some(charge), Some(outcome)) = (self.charge.take(), &self.outcome) {
            charge.settle(&self.worker.gateway, outcome, (self.reply_bytes, self.was_sent));
        }
    }

    fn edit(&mut self, change: impl FnOnce(&mut Outcome)) {
        if let Some(outcome) = &mut self.outcome {
            change(outcome);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.client.meter.request_ended();
        self.worker.gateway.counters.requests.fetch_sub(1, Ordering::Relaxed);
        self.settle();
        let Some(mut outcome) = self.outcome.take() else { return };
        if matches!(outcome.end, End::CancelledBeforeReply | End::CancelledInReply) {
            self.client.meter.request_abandoned();
        }
        outcome.duration = self.started.elapsed();
        self.worker.leave(outcome);
    }
}
