//! What an attempt shows about its replica, told as soon as it is seen.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, Response, StatusCode, header};
use spillway_protocol::grpc::speaks_grpc;
use spillway_protocol::{Usage, parse_orca};
use spillway_route::{RefusalScope, Work};
use spillway_types::{End, Fault, LoadReport, ModelName, Sign, SignKind, TokenCounts};

use crate::replica::Replica;
use crate::request::headers::is_event_stream;
use crate::request::lesson::Lesson;
use crate::upstream::{FailedAttempt, RetrySafety};
use crate::worker::Worker;

/// A replica that asks for more rest than this is taken at its word only so far.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// gRPC status codes that say something about the server rather than about the request.
const GRPC_OK: u8 = 0;
const GRPC_RESOURCE_EXHAUSTED: u8 = 8;
const GRPC_SERVER_FAULTS: [u8; 4] = [2, 13, 14, 15];

/// Watches one attempt from the request to the reply's end and leaves signs about the replica.
#[derive(Debug)]
pub(crate) struct Witness {
    worker: Arc<Worker>,
    replica: Arc<Replica>,
    model: Option<ModelName>,
    /// The hash of the request's tenant; `None` if it may be anybody's.
    tenant: Option<u64>,
    asked_at: Instant,
    lesson: Option<Lesson>,
    work: Work,
    /// From asking to the first byte of the body.
    begun_after: Option<Duration>,
    is_stream: bool,
    seen: Seen,
    is_success: bool,
}

/// What was told already, so that a reply is judged once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    // Nothing => (Begun | Judged)
    Nothing,
    /// A good reply, with its first byte told.
    // Begun => Judged
    Begun,
    /// Nothing more is to be said.
    Judged,
}

impl Witness {
    /// The replica is asked now: a connection is looked for.
    pub(crate) fn new(
        worker: &Arc<Worker>,
        replica: &Arc<Replica>,
        (model, tenant): (Option<&ModelName>, Option<u64>),
        (work, lesson): (Work, Option<Lesson>),
    ) -> Self {
        replica.crowd().note_sent();
        Self {
            worker: Arc::clone(worker),
            replica: Arc::clone(replica),
            model: model.cloned(),
            tenant,
            asked_at: Instant::now(),
            lesson,
            work,
            begun_after: None,
            is_stream: false,
            seen: Seen::Nothing,
            is_success: false,
        }
    }

    /// There is a connection, and the request goes there now.
    pub(crate) fn sent(&mut self) {
        if let Some(lesson) = &mut self.lesson {
            lesson.sent();
        }
    }

    /// The attempt ended without a reply.
    pub(crate) fn failed(&mut self, failed: &FailedAttempt) {
        if let Some(lesson) = &mut self.lesson
            && failed.error.retry_safety() != RetrySafety::Never
        {
            lesson.unread();
        }
        if let Some(fault) = failed.fault() {
            self.tell(Instant::now(), SignKind::Failed(fault));
        }
        self.seen = Seen::Judged;
    }

    /// The reply's head arrived.
    pub(crate) fn head<T>(&mut self, head: &Response<T>) {
        let now = Instant::now();
        self.replica.heard(now);
        self.is_success = head.status().is_success();
        self.is_stream = is_event_stream(head.headers());
        if let Some(lesson) = &mut self.lesson {
            lesson.head(head);
        }
        if let Some(report) = reported(head.headers()) {
            self.tell(now, SignKind::Reported(Box::new(report)));
        }
        match head.status() {
            StatusCode::TOO_MANY_REQUESTS => self.refused(now, retry_after(head.headers())),
            StatusCode::SERVICE_UNAVAILABLE => self.busy(now, retry_after(head.headers())),
            // A gRPC call's status comes later.
            status if status.is_success() && !speaks_grpc(head.headers()) => {
                self.replica.tenant_rests().answered(now);
            }
            status if is_fault(status) => self.judge(now, SignKind::Failed(Fault::ServerError)),
            _ => {}
        }
    }

    /// The replica refused with 429 or `RESOURCE_EXHAUSTED`, which may be about the request's tenant alone.
    fn refused(&mut self, now: Instant, retry_after: Option<Duration>) {
        if self.seen == Seen::Judged {
            return;
        }
        let rests = self.replica.tenant_rests();
        match self.tenant.map(|tenant| rests.refused(tenant, now, retry_after)) {
            Some(RefusalScope::Tenant) => self.seen = Seen::Judged,
            Some(RefusalScope::Replica) | None => self.busy(now, retry_after),
        }
    }

    /// The replica has no room for anybody.
    fn busy(&mut self, now: Instant, retry_after: Option<Duration>) {
        self.replica.rest(now, retry_after);
        self.judge(now, SignKind::Busy { retry_after });
    }

    /// A gRPC call's status is known, from the head or the trailers.
    pub(crate) fn grpc_status(&mut self, code: u8) {
        let now = Instant::now();
        if code == GRPC_RESOURCE_EXHAUSTED {
            self.refused(now, None);
        } else if code == GRPC_OK {
            self.replica.tenant_rests().answered(now);
        } else if GRPC_SERVER_FAULTS.contains(&code) {
            self.judge(now, SignKind::Failed(Fault::ServerError));
        }
    }

    /// A piece of the reply's body arrived.
    pub(crate) fn piece(&mut self, now: Instant) {
        self.replica.heard(now);
        if let Some(lesson) = &mut self.lesson {
            lesson.piece(now);
        }
        let after = now.saturating_duration_since(self.asked_at);
        if self.begun_after.is_none() {
            self.begun_after = Some(after);
            self.replica.crowd().note_settled();
            self.replica.crowd().note_began(self.first_token(now));
        }
        if self.seen == Seen::Nothing {
            self.seen = Seen::Begun;
            // An error is there sooner than any work is done.
            let worked = self.work.begun(after, self.is_stream).filter(|_| self.is_success);
            self.tell(now, SignKind::Answered { after, worked });
        }
    }

    /// The reply ended. Only ends that are the replica's doing are told.
    pub(crate) fn end(&mut self, end: End, tokens: TokenCounts, usage: Option<Usage>) {
        let now = Instant::now();
        if let Some(lesson) = &mut self.lesson {
            lesson.end(end, usage, tokens.completion);
        }
        match end {
            End::Complete => {
                if self.seen == Seen::Nothing {
                    self.piece(now);
                }
                let worked = self.begun_after.filter(|_| self.is_success);
                let written = usage.map(|usage| usage.completion_tokens);
                let worked =
                    worked.and_then(|after| self.work.finished(after, self.is_stream, written));
                self.judge(now, SignKind::Finished { tokens, worked });
            }
            End::Cut => self.judge(now, SignKind::Failed(Fault::Cut)),
            End::Stalled => self.judge(now, SignKind::Failed(Fault::Stalled)),
            End::Answered
            | End::CancelledBeforeReply
            | End::CancelledInReply
            | End::DeadlinePassed => {}
        }
    }

    /// How long the first token took, where that is what came: in parts of what was predicted for a
    /// replica where nothing waits, or in milliseconds where there is no prompt.
    fn first_token(&self, now: Instant) -> Option<f32> {
        let passed_ms = now.saturating_duration_since(self.asked_at).as_secs_f32() * 1e3;
        // An error is there sooner than any work is done.
        let passed_ms = Some(passed_ms).filter(|_| self.is_success)?;
        self.lesson.as_ref().map_or(Some(passed_ms), |lesson| lesson.first_token(passed_ms))
    }

    /// Says the last word about this attempt, unless it was said.
    fn judge(&mut self, now: Instant, kind: SignKind) {
        if self.seen != Seen::Judged {
            self.seen = Seen::Judged;
            self.tell(now, kind);
        }
    }

    fn tell(&self, at: Instant, kind: SignKind) {
        let replica = self.replica.spec().name.clone();
        self.worker.sign(Sign { replica, model: self.model.clone(), at, kind });
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // Until the replica's reply has begun the request may wait there.
        if self.begun_after.is_none() {
            self.replica.crowd().note_settled();
        }
    }
}

/// Whether a status blames the server. What it can't do at all (501, 505) blames the request.
fn is_fault(status: StatusCode) -> bool {
    let by_request =
        [StatusCode::NOT_IMPLEMENTED, StatusCode::HTTP_VERSION_NOT_SUPPORTED].contains(&status);
    status.is_server_error() && !by_request
}

/// `Retry-After` in either of its forms: seconds, or a date.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).ok()?,
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// The load that a replica tells along with its reply (ORCA).
fn reported(headers: &HeaderMap) -> Option<LoadReport> {
    parse_orca(headers.get("endpoint-load-metrics")?.to_str().ok()?)
}
