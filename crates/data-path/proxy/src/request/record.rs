//! Record of a request, from its head to its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::StatusCode;
use spillway_front::access::Grant;
use spillway_front::client::{ConnectionFacts, PieceOut};
use spillway_journey::RetrySafety;
use spillway_protocol::{ErrorKind, FailureCause, GatewayError, ReplyError};
use spillway_request::headers::RequestIdentity;
use spillway_request::prepared::Prepared;
use spillway_route::{Attempt, ShedReason};
use spillway_transport::coarse_clock;
use spillway_types::{
    BlockHashes, Compared, End, EstimateReason, FailedTry, GapHistogram, Hedge, LeftOutRegion,
    ModelName, Outcome, RegionName, ReplicaName, RouteName, Shed, TokenCounts, TriedTarget,
};
use spillway_upstream::UploadProgress;
use spillway_usage::{Ending, ReplyTokens, RequestTokens, TOKEN_BYTES, bill};
use spillway_view::ChosenArm;

use crate::request::charge::Charge;
use crate::worker::Worker;

/// Longest detail of a failure that is kept, in bytes.
const DETAIL_BYTES_MAX: usize = 512;

/// Record of a request, which leaves its [`Outcome`] when dropped. A record dropped before an end
/// was noted, i.e. because the client's connection closed, counts as cancelled.
#[derive(Debug)]
pub(crate) struct RequestRecord {
    worker: Arc<Worker>,
    client: Arc<ConnectionFacts>,
    started: Instant,
    /// Time at which the last replica was asked.
    asked_at: Option<Instant>,
    /// Charge to quotas.
    charge: Option<Charge>,
    /// Tokens of the request as known before its reply; `None` before it was read, and once it was
    /// billed.
    request_tokens: Option<RequestTokens>,
    /// Progress of a body that is sent while it arrives.
    upload: Option<Arc<UploadProgress>>,
    /// Tokens of the reply so far.
    reply_tokens: ReplyTokens,
    /// True if a replica or another region may have got the request.
    was_sent: bool,
    /// Priority class of the client.
    priority: u8,
    /// The outcome; boxed, since requests are moved, and this is the largest part of a record.
    outcome: Option<Box<Outcome>>,
}

impl RequestRecord {
    pub(crate) fn new(worker: Arc<Worker>, client: Arc<ConnectionFacts>) -> Self {
        client.meter.request_started();
        worker.gateway.counters.requests.fetch_add(1, Ordering::Relaxed);
        let started = coarse_clock::reread();
        Self {
            worker,
            client,
            started,
            asked_at: None,
            charge: None,
            request_tokens: None,
            upload: None,
            reply_tokens: ReplyTokens::default(),
            was_sent: false,
            priority: 0,
            outcome: Some(Box::new(Outcome { started: Some(started), ..Outcome::begun() })),
        }
    }

    /// Notes the id of the request, its target in a trace, and whether another node forwarded it.
    pub(crate) fn named(&mut self, identity: &RequestIdentity, is_guest: bool) {
        self.edit(|outcome| {
            outcome.is_guest = is_guest;
            outcome.id = identity.request_id.to_str().ok().map(Into::into);
            outcome.trace = Some(identity.trace_ids());
        });
    }

    /// Notes the operation that the client asked for, as OpenTelemetry names it.
    pub(crate) fn asked_for(&mut self, operation: Option<&'static str>) {
        self.edit(|outcome| outcome.operation = operation);
    }

    /// Notes what a comparison of regions came to, and which of them it did not consider.
    pub(crate) fn compared(&mut self, compared: Compared, left_out: Vec<LeftOutRegion>) {
        self.edit(|outcome| {
            outcome.compared = Some(Box::new(compared));
            outcome.left_out = left_out;
        });
    }

    /// Notes which regions were not considered for a request that is not served.
    pub(crate) fn left_out(&mut self, left_out: Vec<LeftOutRegion>) {
        self.edit(|outcome| outcome.left_out = left_out);
    }

    /// Notes a target that was asked and did not serve the request, and the status with which it
    /// answered.
    #[cold]
    pub(crate) fn failed_try(
        &mut self,
        target: TriedTarget,
        code: &'static str,
        status: Option<u16>,
    ) {
        let after = coarse_clock::since(self.started);
        self.edit(|outcome| FailedTry { target, code, status, after }.add_to(&mut outcome.tries));
    }

    /// Notes that another region may have had the request, and is lost or broke off.
    pub(crate) fn lost_in(&mut self, region: &RegionName) {
        self.asked_at = None;
        self.edit(|outcome| {
            outcome.region = Some(region.clone());
            outcome.predicted = None;
        });
    }

    /// Notes the code of a failure, unless one was noted.
    #[cold]
    pub(crate) fn failed(&mut self, code: &'static str) {
        self.edit(|outcome| outcome.code = outcome.code.or(Some(code)));
    }

    /// Notes the gateway's own error, by which a reply that had begun ends.
    #[cold]
    pub(crate) fn broke_off(&mut self, error: &GatewayError) {
        self.edit(|outcome| {
            outcome.code = Some(error.kind.code());
            outcome.detail = Some(shortened(error.message.clone()));
        });
    }

    /// Notes the message of the error with which the request was refused.
    pub(crate) fn refused_with(&mut self, message: String) {
        self.edit(|outcome| outcome.detail = Some(shortened(message)));
    }

    /// Notes what a replica calls the error that is passed on.
    pub(crate) fn replica_says(&mut self, error: &ReplyError) {
        self.edit(|outcome| {
            if outcome.code == Some(FailureCause::ReplicaError.code()) {
                outcome.detail =
                    error.code.as_ref().or(error.kind.as_ref()).map(|it| it.to_string());
            }
        });
    }

    /// Notes that a piece of the reply goes out.
    pub(crate) fn hand_over(&self) -> PieceOut {
        self.client.meter.hand_over()
    }

    /// Returns the time at which the request's head arrived.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Returns the time at which the serving replica was asked; `None` if another region serves the
    /// request.
    pub(crate) fn asked_at(&self) -> Option<Instant> {
        self.asked_at
    }

    /// Notes the client's tenant, key and priority class.
    pub(crate) fn admitted(&mut self, grant: &Grant) {
        self.priority = grant.priority;
        self.edit(|outcome| {
            outcome.tenant.clone_from(&grant.tenant);
            outcome.key = grant.key.as_ref().map(Into::into);
        });
    }

    /// Notes what is known of the tokens of a request that was read, to bill them at its end.
    pub(crate) fn prepared(&mut self, prepared: &Prepared) {
        self.request_tokens = Some(prepared.cost.request_tokens());
        self.upload = prepared.body.upload().cloned();
        self.edit(|outcome| outcome.residency.clone_from(&prepared.inquiry.residency));
    }

    /// Keeps the charge to quotas; the unused part is given back at the request's end.
    pub(crate) fn charged(&mut self, charge: Charge) {
        self.charge = Some(charge);
    }

    /// Notes the route and the model.
    pub(crate) fn routed(&mut self, route: &RouteName, model: Option<&ModelName>) {
        self.edit(|outcome| {
            outcome.route = Some(route.clone());
            outcome.model = model.cloned();
        });
    }

    /// Notes the arm of the split.
    pub(crate) fn split(&mut self, chosen: &ChosenArm) {
        self.edit(|outcome| {
            outcome.arm = Some(Arc::clone(&chosen.arm));
            outcome.arm_reason = Some(chosen.reason.name());
        });
    }

    /// Notes that another model serves the request, by this route, since the requested one cannot.
    pub(crate) fn fell_back(&mut self, route: &RouteName, model: Option<&ModelName>) {
        self.edit(|outcome| {
            outcome.fallback_for = outcome.model.take();
            outcome.route = Some(route.clone());
            outcome.model = model.cloned();
        });
    }

    /// Sets the mark that a replica may have begun to work on the request; returns the old one.
    pub(crate) fn sent(&mut self, was_sent: bool) -> bool {
        std::mem::replace(&mut self.was_sent, was_sent)
    }

    /// Adds to the bytes of a reply in one piece.
    pub(crate) fn reply_bytes(&mut self, bytes: usize) {
        self.reply_tokens.bytes = self.reply_tokens.bytes.saturating_add(bytes as u64);
    }

    /// Notes that another region serves the request; predictions and times of this region's
    /// replicas no longer apply.
    pub(crate) fn forwarded(&mut self, region: &RegionName) {
        self.asked_at = None;
        self.was_sent = true;
        self.edit(|outcome| {
            outcome.region = Some(region.clone());
            outcome.predicted = None;
        });
    }

    /// Notes that the first replica is about to be asked. `body_wait` was spent on the client's
    /// upload and does not count as the gateway's overhead.
    pub(crate) fn planned(&mut self, body_wait: Duration) {
        // The body was read and the replica chosen in this same wake-up.
        let passed = coarse_clock::reread().saturating_duration_since(self.started);
        self.edit(|outcome| outcome.overhead = passed.saturating_sub(body_wait));
    }

    /// Notes that a replica is asked now, with a prompt of these blocks.
    pub(crate) fn asked(&mut self, replica: &ReplicaName, prefix: &BlockHashes, chosen: &Attempt) {
        self.asked_at = Some(coarse_clock::now());
        self.edit(|outcome| {
            outcome.region = None;
            outcome.replica = Some(replica.clone());
            outcome.reason = Some(chosen.reason.name());
            outcome.prefix = prefix.clone();
            outcome.predicted = chosen.prediction;
        });
    }

    /// Notes that an overflow replica is asked, since no replica of one's own can serve the request.
    pub(crate) fn overflowed(&mut self, reason: &'static str) {
        self.edit(|outcome| outcome.overflow = Some(reason));
    }

    /// Notes that the hedging replica serves the request; it was asked at `asked_at`.
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

    /// Notes that the reply's head goes out; a client that leaves from here on cancels the reply.
    /// `is_stream` is true for a stream of events.
    pub(crate) fn replying(&mut self, status: u16, is_stream: bool) {
        if self.is_own() {
            self.worker.gateway.counters.served.fetch_add(1, Ordering::Relaxed);
        }
        self.edit(|outcome| {
            outcome.status = status;
            outcome.is_stream = is_stream;
            outcome.end = End::CancelledInReply;
        });
    }

    /// Notes the status of a gRPC call.
    pub(crate) fn grpc_status(&mut self, code: u8) {
        self.edit(|outcome| outcome.grpc_status = Some(code));
    }

    /// Returns true if the first piece of the reply's body has come.
    pub(crate) fn has_first_byte(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.first_byte.is_some())
    }

    /// Counts and logs a request that is not tried again, since engines died with it.
    pub(crate) fn engines_died(&self) {
        self.worker.gateway.counters.engines_died.fetch_add(1, Ordering::Relaxed);
        let Some(outcome) = &self.outcome else { return };
        tracing::warn!(
            id = outcome.id.as_deref().unwrap_or_default(),
            tenant = ?outcome.tenant, model = ?outcome.model,
            "two engines died while they worked on this request: it is not tried again"
        );
    }

    /// Notes the first piece of the reply's body.
    pub(crate) fn first_byte(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.started);
        let reply_time = self.asked_at.map(|asked| now.saturating_duration_since(asked));
        self.edit(|outcome| {
            outcome.first_byte = Some(passed);
            outcome.reply_time = reply_time;
        });
    }

    /// Returns true if a reply to this request can have used so many tokens.
    pub(crate) fn can_have_used(&self, reported: TokenCounts) -> bool {
        self.request_tokens.is_none_or(|request| request.can_have_used(reported))
    }

    /// Notes the usage that a reply in one piece reports.
    pub(crate) fn usage_reported(&mut self, usage: TokenCounts) {
        self.reply_tokens.reported = Some(usage);
    }

    /// Notes the tokens of a stream so far, and the gaps between its events.
    pub(crate) fn tokens(&mut self, tokens: ReplyTokens, gaps: Option<Box<GapHistogram>>) {
        self.reply_tokens = tokens;
        self.edit(|outcome| outcome.gaps = gaps);
    }

    /// Notes that another replica continues the stream. If the first byte had come, the new
    /// prediction is not about the time that the client waited.
    pub(crate) fn resumed(&mut self) {
        self.edit(|outcome| {
            if outcome.first_byte.is_some() {
                outcome.predicted = None;
            }
        });
    }

    /// Notes the end of the reply at its server. Later drops do not change it, and the request is
    /// billed, though the client may still have to take bytes that were read ahead.
    pub(crate) fn end(&mut self, end: End) {
        self.edit(|outcome| outcome.end = end);
        self.settle();
    }

    /// Notes that the client left before it had taken all of a complete reply.
    pub(crate) fn left_behind(&mut self) {
        self.edit(|outcome| {
            if outcome.end == End::Complete {
                outcome.end = End::CancelledInReply;
            }
        });
    }

    /// Notes an answer of the gateway itself.
    pub(crate) fn answered(&mut self, status: u16) {
        self.edit(|outcome| {
            outcome.status = status;
            outcome.end = End::Answered;
        });
    }

    /// Notes an error of the gateway itself.
    pub(crate) fn refused(&mut self, error: &GatewayError) {
        let priority = self.priority;
        // A single client that holds too much memory gets 429, which is no lack of room at this
        // node.
        let is_ours = error.kind.status() == StatusCode::SERVICE_UNAVAILABLE;
        if self.is_own() && is_ours && error.shed.is_some_and(ShedReason::is_lack_of_room) {
            self.worker.gateway.counters.without_room.fetch_add(1, Ordering::Relaxed);
        }
        self.answered(error.kind.status().as_u16());
        self.edit(|outcome| {
            outcome.code = Some(error.kind.code());
            outcome.shed = error.shed.map(|reason| Shed { reason, priority });
        });
    }

    /// Notes a hedging attempt.
    pub(crate) fn hedged(&mut self, hedge: Hedge) {
        self.edit(|outcome| outcome.hedge = Some(hedge));
    }

    /// Drops the outcome: health checks would drown the requests that matter.
    pub(crate) fn forget(&mut self) {
        self.outcome = None;
    }

    /// Bills the tokens of the request, and settles its charge. Only the first call has an effect.
    fn settle(&mut self) {
        let (Some(mut request), Some(outcome)) = (self.request_tokens.take(), &mut self.outcome)
        else {
            return;
        };
        // The length of such a body may not have been known before it was sent.
        let uploaded = self.upload.take().map_or(0, |upload| upload.bytes());
        request.prompt = request.prompt.max(uploaded.div_ceil(TOKEN_BYTES));
        let ending = Ending { end: outcome.end, status: outcome.status, was_sent: self.was_sent };
        let bill = bill(&request, &self.reply_tokens, ending);
        (outcome.tokens, outcome.estimate) = (bill.tokens, bill.estimate);
        if bill.estimate.is_some_and(|it| it.reason == EstimateReason::Implausible) {
            tracing::debug!(
                id = ?outcome.id, replica = ?outcome.replica,
                reported = ?self.reply_tokens.reported, allowed = ?request,
                "a replica reports more tokens than its request can have: they are estimated"
            );
        }
        if let Some(charge) = self.charge.take() {
            charge.settle(&self.worker.gateway.clients.quotas, outcome, &bill);
        }
    }

    /// Returns the code for a request whose connection ended before it did.
    #[cold]
    fn why_cancelled(&self) -> &'static str {
        if self.client.meter.is_closed_here() {
            FailureCause::ConnectionClosed.code()
        } else if self.worker.gateway.switches.is_ending() {
            FailureCause::NodeStopped.code()
        } else {
            ErrorKind::ClientClosed.code()
        }
    }

    /// Returns true if a client of this node sent the request, and not another node.
    fn is_own(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| !outcome.is_guest)
    }

    fn edit(&mut self, change: impl FnOnce(&mut Outcome)) {
        if let Some(outcome) = &mut self.outcome {
            change(outcome);
        }
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        self.client.meter.request_ended();
        self.worker.gateway.counters.requests.fetch_sub(1, Ordering::Relaxed);
        // For a request whose client left; after a noted end nothing is left to settle.
        self.settle();
        let Some(mut outcome) = self.outcome.take() else { return };
        if matches!(outcome.end, End::CancelledBeforeReply | End::CancelledInReply) {
            self.client.meter.request_abandoned();
            outcome.code = outcome.code.or_else(|| Some(self.why_cancelled()));
        }
        outcome.duration = coarse_clock::since(self.started);
        self.worker.leave(outcome);
    }
}

/// Returns so much of a message as a record keeps.
fn shortened(mut message: String) -> String {
    if message.len() > DETAIL_BYTES_MAX {
        message.truncate(message.floor_char_boundary(DETAIL_BYTES_MAX));
        message.shrink_to_fit();
    }
    message
}
