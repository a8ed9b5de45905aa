//! Memory of the requests that ended last, and the access log that is written of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwapOption;
use spillway_admin::RequestFilter;
use spillway_config::{AccessLogConfig, LoggedRequests};
use spillway_telemetry::{LineDestination, LineWriter};
use spillway_types::{EndedRequest, Outcome, RequestEntry, unix_ms};

/// Requests that are remembered: some seconds of a busy node, hours of a quiet one. Each takes less
/// than 1 KiB.
const KEPT: usize = 4_096;

/// Requests that ended last, and the log of requests.
#[derive(Debug)]
pub(crate) struct RequestLog {
    node: Arc<str>,
    region: Arc<str>,
    kept: Mutex<KeptRequests>,
    access_log: ArcSwapOption<AccessLog>,
    /// Lines that the access log lost.
    lines_lost: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct KeptRequests {
    requests: VecDeque<Ended>,
    /// Number of the last request.
    number: u64,
}

/// A request that ended.
#[derive(Debug)]
struct Ended {
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
            node: node.into(),
            region: region.into(),
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
        let ended = Ended { number: kept.number, ended_ms, outcome };
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

    fn entry(&self, ended: &Ended) -> RequestEntry {
        let Ended { number, ended_ms, ref outcome } = *ended;
        let (node, region) = (&self.node, &self.region);
        EndedRequest { number, ended_ms, node, region, outcome }.into()
    }

    /// Returns requests that pass a filter, newest first.
    pub(crate) fn recent(&self, filter: &RequestFilter, limit: usize) -> Vec<RequestEntry> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = kept.requests.iter().rev();
        // Numbers only rise, so nothing behind the first that is too old passes.
        let newer = newest.take_while(|it| filter.after.is_none_or(|after| it.number > after));
        let entries = newer.map(|ended| self.entry(ended));
        entries.filter(|entry| filter.passes(entry)).take(limit).collect()
    }
}

impl AccessLog {
    /// Returns true if a request is to be written.
    fn wants(&self, ended: &Ended) -> bool {
        match self.config.requests {
            _ if ended.outcome.has_failed() => true,
            LoggedRequests::All => self.is_drawn(ended),
            LoggedRequests::Off | LoggedRequests::Errors => false,
        }
    }

    /// Draws by the trace, so that all nodes write the same requests, and else by the number.
    fn is_drawn(&self, ended: &Ended) -> bool {
        let ticket = ended.outcome.trace.map_or(ended.number, |ids| ids.trace as u64);
        // The upper half of the product is spread evenly.
        let drawn = (ticket.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        f64::from(drawn) / f64::from(u32::MAX) * 100.0 < self.config.share_percent
            || self.config.share_percent >= 100.0
    }
}

/// Returns the moment at which a request ended: outcomes wait up to a tenth of a second to be read.
fn ended_ms(outcome: &Outcome, (now, wall): (Instant, SystemTime)) -> u64 {
    let ended = outcome.started.map(|started| started + outcome.duration);
    let ago = ended.map(|ended| now.saturating_duration_since(ended)).unwrap_or_default();
    unix_ms(wall.checked_sub(ago).unwrap_or(wall))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use spillway_types::{
        Compared, End, EstimateReason, FailedTry, Hedge, LeftOutReason, LeftOutRegion, Prediction,
        Residency, Shed, SplitArm, TokenCounts, TokenEstimate, TraceIds, TriedTarget,
    };

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn line(outcome: Outcome) -> String {
        let log = RequestLog::new("n1", "eu");
        log.add(outcome, (Instant::now(), UNIX_EPOCH + 100 * SECOND));
        serde_json::to_string(&log.recent(&RequestFilter::default(), 1)).expect("JSON")
    }

    /// Returns an outcome of which everything is known.
    fn known() -> Outcome {
        let tried = |target, code, status, after| FailedTry { target, code, status, after };
        Outcome {
            id: Some("abc".into()),
            trace: Some(TraceIds { trace: 7, parent: Some(3), span: 9, is_sampled: true }),
            route: Some("llm".into()),
            model: Some("tiny".into()),
            operation: Some("chat"),
            arm: Some(Arc::new(SplitArm { split: "chat".into(), arm: "canary".into() })),
            arm_reason: Some("hashed"),
            fallback_for: Some("huge".into()),
            tenant: Some("acme".into()),
            key: Some("k1".into()),
            replica: Some("gpu-a".into()),
            reason: Some("soonest"),
            tries: vec![
                tried(TriedTarget::Region("us".into()), "region_lost", None, SECOND),
                tried(TriedTarget::Replica("gpu-b".into()), "replica_error", Some(503), SECOND / 3),
            ],
            left_out: vec![LeftOutRegion { region: "ap".into(), why: LeftOutReason::NoModel }],
            residency: Residency::new(["eu".into()], []),
            compared: Some(Box::new(Compared {
                here_ms: Some(41.26),
                best: Some(("us".into(), 80.04)),
                reason: "none_better",
            })),
            is_guest: true,
            status: 200,
            grpc_status: Some(0),
            code: Some("replica_error"),
            detail: Some("out of memory".to_owned()),
            end: End::Complete,
            duration: Duration::from_nanos(1_234_567_890),
            is_stream: true,
            first_byte: Some(Duration::from_nanos(52_345_678)),
            overhead: Duration::from_nanos(123_456),
            retries_unsent: 1,
            retries_reset: 2,
            tokens: TokenCounts { prompt: 1024, completion: 128, cached: 512 },
            estimate: Some(TokenEstimate { tokens: 2, reason: EstimateReason::EarlyEnd }),
            predicted: Some(Prediction {
                first_token_ms: 41.26,
                wait_ms: 1.04,
                prefill_ms: 40.0,
                prompt_tokens: 1024,
                cached_tokens: 500,
                running: 3.0,
                queued: 0.5,
                ..Prediction::default()
            }),
            shed: Some(Shed { reason: "queue_full", priority: 2 }),
            hedge: Some(Hedge::Won),
            ..Outcome::begun()
        }
    }

    #[test]
    fn a_line_has_all_facts_in_their_order() {
        let expected = concat!(
            r#"[{"number":1,"ended_ms":100000,"id":"abc","trace_id":"00000000000000000000000000000007","#,
            r#""node":"n1","key":"k1","tenant":"acme","route":"llm","model":"tiny","fallback_for":"huge","#,
            r#""arm":"chat/canary","arm_reason":"hashed","region":"eu","replica":"gpu-a","tries":[{"region":"us","replica":null,"#,
            r#""code":"region_lost","status":null,"after_ms":1000.0},{"region":"eu","replica":"gpu-b","#,
            r#""code":"replica_error","status":503,"after_ms":333.333}],"left_out":[{"region":"ap","#,
            r#""reason":"no_model"}],"residency":"only in the regions eu","reason":"soonest","#,
            r#""shed":"queue_full","priority":2,"is_guest":true,"status":200,"grpc_status":0,"#,
            r#""code":"replica_error","detail":"out of memory","end":"complete","duration_ms":1234.568,"#,
            r#""first_token_ms":52.346,"is_stream":true,"overhead_ms":0.123,"retries":3,"hedge":"won","#,
            r#""prompt_tokens":1024,"cached_tokens":512,"completion_tokens":128,"tokens_estimated":true,"#,
            r#""expected":{"first_token_ms":41.3,"wait_ms":1.0,"prefill_ms":40.0,"prompt_tokens":1024,"#,
            r#""cached_tokens":500,"running":3.0,"queued":0.5},"compared":{"here_ms":41.3,"best":"us","#,
            r#""best_ms":80.0,"reason":"none_better"}}]"#,
        );
        assert_eq!(line(known()), expected);
    }

    #[test]
    fn a_line_has_null_for_facts_that_are_not_known() {
        let expected = concat!(
            r#"[{"number":1,"ended_ms":100000,"id":null,"trace_id":null,"node":"n1","key":null,"#,
            r#""tenant":null,"route":null,"model":null,"fallback_for":null,"arm":null,"arm_reason":null,"region":null,"#,
            r#""replica":null,"tries":[],"left_out":[],"residency":null,"reason":null,"shed":null,"#,
            r#""priority":null,"is_guest":false,"status":499,"grpc_status":null,"code":null,"#,
            r#""detail":null,"end":"cancelled_before_reply","duration_ms":0.0,"first_token_ms":null,"#,
            r#""is_stream":false,"overhead_ms":0.0,"retries":0,"hedge":null,"prompt_tokens":0,"#,
            r#""cached_tokens":0,"completion_tokens":0,"tokens_estimated":false,"expected":null,"#,
            r#""compared":null}]"#,
        );
        assert_eq!(line(Outcome::begun()), expected);
    }

    #[test]
    fn a_forwarded_request_names_its_region_and_no_replica() {
        let entry = |outcome| {
            let entries: serde_json::Value = serde_json::from_str(&line(outcome)).expect("JSON");
            entries[0].clone()
        };
        let forwarded = entry(Outcome { region: Some("us".into()), ..known() });
        assert_eq!(forwarded["region"], "us");
        assert!(forwarded["replica"].is_null() && forwarded["reason"].is_null(), "{forwarded}");
        assert!(forwarded["expected"].is_object(), "{forwarded}");
    }
}
