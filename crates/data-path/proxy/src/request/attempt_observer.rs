//! Reports an attempt's signs of its replica's health, as soon as they are seen.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, Response, StatusCode, header};
use spillway_journey::RetrySafety;
use spillway_protocol::grpc::speaks_grpc;
use spillway_protocol::{Usage, parse_orca};
use spillway_request::headers::is_event_stream;
use spillway_route::{RefusalScope, Work};
use spillway_transport::coarse_clock;
use spillway_types::{
    BlockHashes, End, LoadReport, ModelName, ReplyForm, Sign, SignFault, SignKind, TokenCounts,
};
use spillway_upstream::{AttemptError, FailedAttempt};
use spillway_view::Replica;

use crate::request::cache_feedback::CacheFeedback;
use crate::worker::Worker;

/// Longest rest that a replica may ask for; longer values are cut.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// gRPC status codes that blame the server rather than the request.
const GRPC_OK: u8 = 0;
const GRPC_RESOURCE_EXHAUSTED: u8 = 8;
const GRPC_SERVER_FAULTS: [u8; 4] = [2, 13, 14, 15];

/// Observer of one attempt, from the request to the reply's end, that reports signs of the
/// replica's health.
#[derive(Debug)]
pub(crate) struct AttemptObserver {
    worker: Arc<Worker>,
    replica: Arc<Replica>,
    model: Option<ModelName>,
    /// Hash of the request's tenant; `None` for a request without a tenant of its own.
    tenant: Option<u64>,
    asked_at: Instant,
    feedback: Option<CacheFeedback>,
    work: Work,
    /// Time from the request to the first byte of the body.
    begun_after: Option<Duration>,
    is_stream: bool,
    /// True if the reply had to wait for its client.
    is_held_up: bool,
    seen: ObservedStage,
    is_success: bool,
}

/// Reports made so far, so that a reply is judged once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObservedStage {
    // Nothing => (Begun | Judged)
    Nothing,
    /// A good reply has begun; its first byte is reported.
    // Begun => Judged
    Begun,
    /// The attempt is judged; nothing more is reported.
    Judged,
}

impl AttemptObserver {
    /// Begins to observe an attempt: the replica is asked now, and a connection is looked for.
    pub(crate) fn new(
        worker: &Arc<Worker>,
        replica: &Arc<Replica>,
        model: Option<&ModelName>,
        tenant: Option<u64>,
        (work, feedback): (Work, Option<CacheFeedback>),
    ) -> Self {
        replica.concurrency().note_sent();
        Self {
            worker: Arc::clone(worker),
            replica: Arc::clone(replica),
            model: model.cloned(),
            tenant,
            asked_at: coarse_clock::now(),
            feedback,
            work,
            begun_after: None,
            is_stream: false,
            is_held_up: false,
            seen: ObservedStage::Nothing,
            is_success: false,
        }
    }

    /// Notes that a connection stands and the request is being sent.
    pub(crate) fn sent(&mut self) {
        if let Some(feedback) = &mut self.feedback {
            feedback.sent();
        }
    }

    /// Notes that the attempt ended without a reply.
    pub(crate) fn failed(&mut self, failed: &FailedAttempt) {
        // Where a retry is safe, the replica has not read the prompt.
        if let Some(feedback) = &mut self.feedback
            && failed.error.retry_safety() != RetrySafety::Never
        {
            feedback.unread();
        }
        if let AttemptError::Shortage(error) = &failed.error {
            self.worker.gateway.door.note_shortage(error);
        }
        if let Some(fault) = failed.fault() {
            self.tell(coarse_clock::now(), SignKind::Failed(fault));
        }
        if matches!(failed.error, AttemptError::NoModel) {
            let now = coarse_clock::now();
            let after = now.saturating_duration_since(self.asked_at);
            self.replica.note_byte(now);
            self.tell(now, SignKind::Answered { after, form: ReplyForm::Error, worked: None });
            self.tell(now, SignKind::LacksModel);
        }
        self.seen = ObservedStage::Judged;
    }

    /// Notes the reply's head.
    pub(crate) fn head<T>(&mut self, head: &Response<T>) {
        let now = coarse_clock::now();
        self.replica.note_byte(now);
        self.is_success = head.status().is_success();
        self.is_stream = is_event_stream(head.headers());
        if let Some(feedback) = &mut self.feedback {
            feedback.head(head.status(), self.is_stream);
        }
        if let Some(report) = reported(head.headers()) {
            self.tell(now, SignKind::Reported(Box::new(report)));
        }
        match head.status() {
            // 429 may concern one tenant, 503 concerns the whole replica.
            StatusCode::TOO_MANY_REQUESTS => self.refused(now, retry_after(head.headers())),
            StatusCode::SERVICE_UNAVAILABLE => self.busy(now, retry_after(head.headers())),
            // A gRPC call's status comes later.
            status if status.is_success() && !speaks_grpc(head.headers()) => {
                self.replica.tenant_rests().answered(now);
            }
            status if is_fault(status) => self.judge(now, SignKind::Failed(SignFault::ServerError)),
            _ => {}
        }
    }

    /// Notes a refusal with 429 or `RESOURCE_EXHAUSTED`, which may concern the request's tenant
    /// alone.
    fn refused(&mut self, now: Instant, retry_after: Option<Duration>) {
        if self.seen == ObservedStage::Judged {
            return;
        }
        let rests = self.replica.tenant_rests();
        match self.tenant.map(|tenant| rests.refused(tenant, now, retry_after)) {
            // Others are still served there, so nothing is said about the replica's health.
            Some(RefusalScope::Tenant) => self.seen = ObservedStage::Judged,
            Some(RefusalScope::Replica) | None => self.busy(now, retry_after),
        }
    }

    /// Notes that the replica has no room for any request.
    fn busy(&mut self, now: Instant, retry_after: Option<Duration>) {
        self.replica.rest(now, retry_after);
        self.judge(now, SignKind::Busy { retry_after });
    }

    /// Notes that the reply has to wait for its client, so that its pace says nothing of the
    /// replica.
    pub(crate) fn held_up(&mut self) {
        self.is_held_up = true;
    }

    /// Notes the status of a gRPC call, from the head or the trailers.
    pub(crate) fn grpc_status(&mut self, code: u8) {
        let now = coarse_clock::now();
        if code == GRPC_RESOURCE_EXHAUSTED {
            self.refused(now, None);
        } else if code == GRPC_OK {
            self.replica.tenant_rests().answered(now);
        } else if GRPC_SERVER_FAULTS.contains(&code) {
            self.judge(now, SignKind::Failed(SignFault::ServerError));
        }
    }

    /// Notes a piece of the reply's body. `is_answer` is false as long as a stream has no content: what
    /// some engines send before they read the prompt is no first token.
    pub(crate) fn piece(&mut self, is_answer: bool, now: Instant) {
        self.replica.note_byte(now);
        if !is_answer {
            return;
        }
        if let Some(feedback) = &mut self.feedback {
            feedback.piece(now);
        }
        let after = now.saturating_duration_since(self.asked_at);
        if self.begun_after.is_none() {
            self.begun_after = Some(after);
            self.replica.concurrency().note_settled();
            self.replica.concurrency().note_began(self.first_token(now));
        }
        if self.seen == ObservedStage::Nothing {
            self.seen = ObservedStage::Begun;
            // An error comes sooner than the end of any real work.
            let worked = self.work.begun(after, self.is_stream).filter(|_| self.is_success);
            self.tell(now, SignKind::Answered { after, form: self.form(), worked });
        }
    }

    /// Notes the end of the reply. Only ends that the replica caused are reported.
    /// `written` are the blocks of the reply behind those of the prompt, as far as they are known.
    pub(crate) fn end(
        &mut self,
        end: End,
        tokens: TokenCounts,
        usage: Option<Usage>,
        written: BlockHashes,
    ) {
        let now = coarse_clock::now();
        if let Some(feedback) = &mut self.feedback {
            feedback.end(end, tokens.completion, usage, written);
        }
        match end {
            End::Complete => {
                // A reply without a body begins with its end.
                if self.seen == ObservedStage::Nothing {
                    self.piece(true, now);
                }
                let begun_after = self.begun_after.filter(|_| self.is_success);
                let written = usage.map(|usage| usage.completion_tokens);
                let worked = begun_after.and_then(|begun_after| match self.is_stream {
                    true if self.is_held_up => None,
                    true => {
                        let passed = now.saturating_duration_since(self.asked_at);
                        let after = passed.saturating_sub(begun_after);
                        self.work.streamed(after, written.unwrap_or(tokens.completion))
                    }
                    false => self.work.finished(begun_after, written),
                });
                self.judge(now, SignKind::Finished { tokens, worked });
            }
            End::Cut => self.judge(now, SignKind::Failed(SignFault::Cut)),
            End::Stalled => self.judge(now, SignKind::Failed(SignFault::Stalled)),
            End::Answered
            | End::CancelledBeforeReply
            | End::CancelledInReply
            | End::DeadlinePassed => {}
        }
    }

    /// Notes that the request left the replica for its drain, before the reply's end.
    pub(crate) fn left(&mut self) {
        if let Some(feedback) = &mut self.feedback {
            feedback.end(End::CancelledInReply, 0, None, BlockHashes::default());
        }
    }

    fn form(&self) -> ReplyForm {
        match (self.is_success, self.is_stream) {
            (true, true) => ReplyForm::Stream,
            (true, false) => ReplyForm::Whole,
            (false, _) => ReplyForm::Error,
        }
    }

    /// Returns the time to first token, relative to the prediction for an idle replica, or in
    /// milliseconds without a prompt; `None` if it is unknown.
    fn first_token(&self, now: Instant) -> Option<f32> {
        let passed_ms = now.saturating_duration_since(self.asked_at).as_secs_f32() * 1e3;
        // An error comes sooner than the end of any real work.
        let passed_ms = Some(passed_ms).filter(|_| self.is_success)?;
        self.feedback.as_ref().map_or(Some(passed_ms), |feedback| feedback.first_token(passed_ms))
    }

    /// Reports the final sign of this attempt, unless one was reported.
    fn judge(&mut self, now: Instant, kind: SignKind) {
        if self.seen != ObservedStage::Judged {
            self.seen = ObservedStage::Judged;
            self.tell(now, kind);
        }
    }

    fn tell(&self, at: Instant, kind: SignKind) {
        let replica = self.replica.spec().name.clone();
        self.worker.sign(Sign { replica, model: self.model.clone(), at, kind });
    }
}

impl Drop for AttemptObserver {
    fn drop(&mut self) {
        // Until the replica's reply has begun, the request may be waiting there.
        if self.begun_after.is_none() {
            self.replica.concurrency().note_settled();
        }
    }
}

/// Returns true if a status blames the server. 501 and 505 blame the request.
fn is_fault(status: StatusCode) -> bool {
    let by_request =
        [StatusCode::NOT_IMPLEMENTED, StatusCode::HTTP_VERSION_NOT_SUPPORTED].contains(&status);
    status.is_server_error() && !by_request
}

/// Returns the time in `Retry-After`, which is a number of seconds or a date, cut at
/// [`RETRY_AFTER_MAX`].
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        // A date in the past asks for no rest.
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).ok()?,
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// Returns the load that a replica reports along with its reply (ORCA).
fn reported(headers: &HeaderMap) -> Option<LoadReport> {
    parse_orca(headers.get("endpoint-load-metrics")?.to_str().ok()?)
}
