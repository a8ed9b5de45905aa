//! Memory of the requests that ended last, and the access log that is written of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwapOption;
use spillway_admin::{
    ComparedRegions, Expected, LeftOutEntry, RequestEntry, RequestFilter, TryEntry,
};
use spillway_config::{AccessLogConfig, LoggedRequests};
use spillway_telemetry::{LineDestination, LineWriter};
use spillway_types::{FailedTry, LeftOutRegion, Outcome, Prediction, TriedTarget, unix_ms};

/// Requests that are remembered: some seconds of a busy node, hours of a quiet one. Each takes less
/// than 1 KiB.
const KEPT: usize = 4_096;

/// Requests that ended last, and the log of requests.
#[derive(Debug)]
pub(crate) struct RequestLog {
    node: String,
    region: String,
    kept: Mutex<KeptRequests>,
    access_log: ArcSwapOption<AccessLog>,
    /// Lines that the access log lost.
    lines_lost: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct KeptRequests {
    requests: VecDeque<EndedRequest>,
    /// Number of the last request.
    number: u64,
}

/// A request that ended.
#[derive(Debug)]
struct EndedRequest {
    number: u64,
    ended_ms: u64,
    outcome: Outcome,
}

/// The access log.
#[derive(Debug)]
struct AccessLog {
    config: AccessLogConfig,
    writer: LineWriter,
}

impl RequestLog {
    pub(crate) fn new(node: &str, region: &str) -> Self {
        Self {
            node: node.to_owned(),
            region: region.to_owned(),
            kept: Mutex::default(),
            access_log: ArcSwapOption::empty(),
            lines_lost: Arc::default(),
        }
    }

    /// Writes the access log by these settings from now on. Logs an error if its file can't be
    /// opened; the log goes on as before then.
    pub(crate) fn set_access_log(&self, config: &AccessLogConfig) {
        if self.access_log.load().as_ref().is_some_and(|log| log.config == *config) {
            return;
        }
        if config.requests == LoggedRequests::Off {
            return self.access_log.store(None);
        }
        let place = config.file.clone().map_or(LineDestination::Stdout, LineDestination::File);
        match LineWriter::open(&place, Arc::clone(&self.lines_lost)) {
            Ok(writer) => {
                let log = AccessLog { config: config.clone(), writer };
                self.access_log.store(Some(log.into()));
            }
            Err(error) => {
                let file = config.file.as_ref().map(|file| file.display().to_string());
                tracing::error!(%error, file, "the access log can't be opened");
            }
        }
    }

    /// Returns the number of lines that the access log lost.
    pub(crate) fn lines_lost(&self) -> u64 {
        self.lines_lost.load(Ordering::Relaxed)
    }

    /// Waits until the lines of all requests so far are written, `patience` at most.
    pub(crate) fn flush(&self, patience: Duration) {
        self.access_log.load().as_ref().map(|log| log.writer.flush(patience));
    }

    /// Takes in a request that ended.
    pub(crate) fn add(&self, mut outcome: Outcome, now: (Instant, SystemTime)) {
        // Fields that grow with the prompt or the reply are not worth their memory.
        outcome.prefix = Default::default();
        outcome.gaps = None;
        let ended_ms = ended_ms(&outcome, now);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.number += 1;
        let ended = EndedRequest { number: kept.number, ended_ms, outcome };
        if let Some(log) = self.access_log.load().as_ref()
            && log.wants(&ended)
            && let Ok(line) = serde_json::to_string(&self.entry(&ended))
        {
            log.writer.write(line);
        }
        if kept.requests.len() >= KEPT {
            kept.requests.pop_front();
        }
        kept.requests.push_back(ended);
    }

    fn entry<'a>(&'a self, ended: &'a EndedRequest) -> RequestEntry<'a> {
        let EndedRequest { number, ended_ms, outcome } = ended;
        let own = self.region.as_str();
        let was_here = outcome.replica.is_some();
        let region = match &outcome.region {
            Some(region) => Some(region.as_str().into()),
            None => was_here.then(|| own.into()),
        };
        RequestEntry {
            number: *number,
            ended_ms: *ended_ms,
            id: outcome.id.as_deref().map(Into::into),
            trace_id: outcome.trace.map(|ids| format!("{:032x}", ids.trace).into()),
            node: self.node.as_str().into(),
            key: outcome.key.as_deref().map(Into::into),
            tenant: outcome.tenant.as_ref().map(|name| name.as_str().into()),
            route: outcome.route.as_ref().map(|name| name.as_str().into()),
            model: outcome.model.as_ref().map(|name| name.as_str().into()),
            fallback_for: outcome.fallback_for.as_ref().map(|name| name.as_str().into()),
            arm: outcome.arm.as_ref().map(|arm| format!("{}/{}", arm.split, arm.arm).into()),
            region,
            // An attempt here may have come before the request was forwarded.
            replica: outcome
                .replica
                .as_ref()
                .filter(|_| outcome.region.is_none())
                .map(|replica| replica.as_str().into()),
            tries: outcome.tries.iter().map(|tried| try_entry(tried, own)).collect(),
            left_out: outcome.left_out.iter().map(left_out_entry).collect(),
            residency: (!outcome.residency.is_anywhere())
                .then(|| outcome.residency.to_string().into()),
            reason: outcome.reason.filter(|_| outcome.region.is_none()).map(Into::into),
            shed: outcome.shed.map(|shed| shed.reason.into()),
            priority: outcome.shed.map(|shed| shed.priority),
            is_guest: outcome.is_guest,
            status: outcome.status,
            grpc_status: outcome.grpc_status,
            code: outcome.code.map(Into::into),
            detail: outcome.detail.as_deref().map(Into::into),
            end: outcome.end.name().into(),
            duration_ms: ms(outcome.duration.as_secs_f64()),
            first_token_ms: outcome.first_token().map(|time| ms(time.as_secs_f64())),
            is_stream: outcome.is_stream,
            overhead_ms: ms(outcome.overhead.as_secs_f64()),
            retries: u32::from(outcome.retries_unsent) + u32::from(outcome.retries_reset),
            hedge: outcome.hedge.map(|hedge| hedge.name().into()),
            prompt_tokens: outcome.tokens.prompt,
            cached_tokens: outcome.tokens.cached,
            completion_tokens: outcome.tokens.completion,
            tokens_estimated: outcome.estimate.is_some(),
            expected: outcome.predicted.as_ref().map(expected),
            compared: outcome.compared.as_ref().map(|compared| ComparedRegions {
                here_ms: compared.here_ms.map(tenths),
                best: compared.best.as_ref().map(|(region, _)| region.as_str().into()),
                best_ms: compared.best.as_ref().map(|(_, cost_ms)| tenths(*cost_ms)),
                reason: compared.reason.into(),
            }),
        }
    }
}

impl RequestLog {
    /// Returns requests that pass a filter, newest first.
    pub(crate) fn recent(
        &self,
        filter: &RequestFilter,
        limit: usize,
    ) -> Vec<RequestEntry<'static>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = kept.requests.iter().rev();
        // Numbers only rise, so nothing behind the first that is too old passes.
        let newer = newest.take_while(|it| filter.after.is_none_or(|after| it.number > after));
        let entries = newer.map(|ended| self.entry(ended));
        let passing = entries.filter(|entry| entry.passes(filter)).take(limit);
        passing.map(RequestEntry::into_owned).collect()
    }
}

impl AccessLog {
    /// Returns true if a request is to be written.
    fn wants(&self, ended: &EndedRequest) -> bool {
        match self.config.requests {
            _ if ended.outcome.has_failed() => true,
            LoggedRequests::All => self.is_drawn(ended),
            LoggedRequests::Off | LoggedRequests::Errors => false,
        }
    }

    /// Draws by the trace, so that all nodes write the same requests, and else by the number.
    fn is_drawn(&self, ended: &EndedRequest) -> bool {
        let ticket = ended.outcome.trace.map_or(ended.number, |ids| ids.trace as u64);
        // The upper half of the product is spread evenly.
        let drawn = (ticket.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        f64::from(drawn) / f64::from(u32::MAX) * 100.0 < self.config.share_percent
            || self.config.share_percent >= 100.0
    }
}

fn try_entry<'a>(tried: &'a FailedTry, own: &'a str) -> TryEntry<'a> {
    let (region, replica) = match &tried.target {
        TriedTarget::Replica(replica) => (own, Some(replica.as_str().into())),
        TriedTarget::Region(region) => (region.as_str(), None),
    };
    TryEntry {
        region: region.into(),
        replica,
        code: tried.code.into(),
        status: tried.status,
        after_ms: ms(tried.after.as_secs_f64()),
    }
}

fn left_out_entry(left_out: &LeftOutRegion) -> LeftOutEntry<'_> {
    LeftOutEntry { region: left_out.region.as_str().into(), reason: left_out.why.name().into() }
}

/// Returns the moment at which a request ended: outcomes wait up to a tenth of a second to be read.
fn ended_ms(outcome: &Outcome, (now, wall): (Instant, SystemTime)) -> u64 {
    let ended = outcome.started.map(|started| started + outcome.duration);
    let ago = ended.map(|ended| now.saturating_duration_since(ended)).unwrap_or_default();
    unix_ms(wall.checked_sub(ago).unwrap_or(wall))
}

fn expected(prediction: &Prediction) -> Expected {
    Expected {
        first_token_ms: tenths(prediction.first_token_ms),
        wait_ms: tenths(prediction.wait_ms),
        prefill_ms: tenths(prediction.prefill_ms),
        prompt_tokens: prediction.prompt_tokens,
        cached_tokens: prediction.cached_tokens,
        running: tenths(prediction.running),
        queued: tenths(prediction.queued),
    }
}

/// Returns milliseconds with three decimals.
fn ms(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e3
}

/// Returns a value with one decimal: predictions are no more exact.
fn tenths(value: f32) -> f64 {
    (f64::from(value) * 10.0).round() / 10.0
}
