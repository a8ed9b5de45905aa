//! Spans of a request, by OpenTelemetry's conventions for HTTP and generative AI.

use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{
    Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use spillway_types::{Compared, End, FailedTry, Outcome, Prediction, TraceIds, TriedTarget};

/// Node that exports its requests.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Name of the node.
    pub node: String,
    /// Region of the node.
    pub region: String,
}

/// Moments of a request on the clock of the wall.
struct SpanTimes {
    start: SystemTime,
    end: SystemTime,
    /// Moment at which the last attempt was sent.
    asked: SystemTime,
    first_byte: Option<SystemTime>,
}

/// Returns the spans of a request that ended: one for the request at this node, and, if a replica or
/// another region was asked, one below it for the last attempt. The replica's or the other region's
/// spans are below that one.
#[must_use]
pub fn spans(outcome: &Outcome, origin: &Origin, now: (Instant, SystemTime)) -> Vec<SpanData> {
    let Some(ids) = outcome.trace else { return Vec::new() };
    let times = times(outcome, now);
    let asked = outcome.region.as_ref().map(ToString::to_string);
    let asked = asked.or_else(|| outcome.replica.as_ref().map(ToString::to_string));
    let own = if asked.is_some() { id_of_request(ids.span) } else { ids.span };
    let mut spans = vec![SpanData {
        parent_span_id: SpanId::from(ids.parent.unwrap_or(0)),
        parent_span_is_remote: true,
        span_kind: SpanKind::Server,
        name: name(outcome).into(),
        attributes: attributes(outcome, origin),
        events: failed_tries(outcome, times.start),
        status: status(outcome),
        ..span(ids, own, (times.start, times.end))
    }];
    if let Some(asked) = asked {
        let verb = if outcome.region.is_some() { "forward" } else { "ask" };
        spans.push(SpanData {
            parent_span_id: SpanId::from(own),
            span_kind: SpanKind::Client,
            name: format!("{verb} {asked}").into(),
            attributes: attempt_attributes(outcome, asked),
            events: first_byte_event(times.first_byte),
            status: attempt_status(outcome),
            ..span(ids, ids.span, (times.asked, times.end))
        });
    }
    spans
}

/// Returns the id of the request's span. Replicas know the id of the attempt's span as their
/// parent, so the other one follows from it.
fn id_of_request(attempt: u64) -> u64 {
    // Odd, so the product is 0 for 0 alone.
    attempt.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).max(1)
}

fn span(ids: TraceIds, id: u64, (start_time, end_time): (SystemTime, SystemTime)) -> SpanData {
    let trace = TraceId::from(ids.trace);
    let state = TraceState::default();
    SpanData {
        span_context: SpanContext::new(trace, SpanId::from(id), TraceFlags::SAMPLED, false, state),
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: "".into(),
        start_time,
        end_time,
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::builder("spillway").build(),
    }
}

fn times(outcome: &Outcome, (now, wall): (Instant, SystemTime)) -> SpanTimes {
    let ended = outcome.started.map(|started| started + outcome.duration);
    let ago = ended.map(|ended| now.saturating_duration_since(ended)).unwrap_or_default();
    let before = |moment: SystemTime, by: Duration| moment.checked_sub(by).unwrap_or(moment);
    let end = before(wall, ago);
    let start = before(end, outcome.duration);
    let first_byte = outcome.first_byte.map(|time| start + time);
    let asked = match (first_byte, outcome.reply_time) {
        (Some(first_byte), Some(reply_time)) => before(first_byte, reply_time).max(start),
        _ => start + outcome.overhead.min(outcome.duration),
    };
    SpanTimes { start, end, asked, first_byte }
}

/// Returns e.g. `chat llama-3`, as the conventions ask for.
fn name(outcome: &Outcome) -> String {
    let operation = outcome.operation.unwrap_or("request");
    match &outcome.model {
        Some(model) => format!("{operation} {model}"),
        None => operation.to_owned(),
    }
}

/// Returns the status of the request's span. By the conventions, an error of a client is no error
/// of its server.
fn status(outcome: &Outcome) -> Status {
    let is_whole = matches!(outcome.end, End::Complete | End::Answered);
    let is_of_client = is_whole && outcome.status < 500 && outcome.failure().is_none();
    if is_of_client { Status::Unset } else { attempt_status(outcome) }
}

/// Returns the status of the span of an attempt, of which any failure is an error.
fn attempt_status(outcome: &Outcome) -> Status {
    match (outcome.has_failed(), error_type(outcome), outcome.detail.as_deref()) {
        (false, ..) => Status::Unset,
        (true, code, None) => Status::error(code.unwrap_or_default()),
        (true, code, Some(detail)) => {
            Status::error(format!("{}: {detail}", code.unwrap_or_default()))
        }
    }
}

/// Returns the code of a failure; the status of one without.
fn error_type(outcome: &Outcome) -> Option<String> {
    let status = || outcome.has_failed().then(|| outcome.status.to_string());
    outcome.code.map(str::to_owned).or_else(status)
}

fn attributes(outcome: &Outcome, origin: &Origin) -> Vec<KeyValue> {
    let mut told = Attributes::default();
    told.put("spillway.node", origin.node.clone());
    told.put("spillway.region", origin.region.clone());
    told.put_known("spillway.request.id", outcome.id.as_deref().map(str::to_owned));
    told.put_known("spillway.route", outcome.route.as_ref().map(ToString::to_string));
    told.put_known("spillway.tenant", outcome.tenant.as_ref().map(ToString::to_string));
    told.put_known("spillway.key.id", outcome.key.as_deref().map(str::to_owned));
    told.put_known("spillway.is_guest", outcome.is_guest.then_some(true));
    let arm = outcome.arm.as_ref().map(|arm| format!("{}/{}", arm.split, arm.arm));
    told.put_known("spillway.split.arm", arm);
    let instead = outcome.fallback_for.as_ref().map(ToString::to_string);
    told.put_known("spillway.fallback_for", instead);
    told.put("spillway.end", outcome.end.name());
    told.put("http.response.status_code", i64::from(outcome.status));
    told.put_known("rpc.grpc.status_code", outcome.grpc_status.map(i64::from));
    told.put_known("error.type", error_type(outcome));
    told.put_known("gen_ai.operation.name", outcome.operation);
    told.put_known("gen_ai.request.model", outcome.model.as_ref().map(ToString::to_string));
    let tokens = outcome.tokens;
    for (name, count) in [
        ("gen_ai.usage.input_tokens", tokens.prompt),
        ("gen_ai.usage.cache_read.input_tokens", tokens.cached),
        ("gen_ai.usage.output_tokens", tokens.completion),
    ] {
        told.put_known(name, (count > 0).then(|| signed(count)));
    }
    told.put_known("spillway.tokens_estimated", outcome.estimate.map(|_| true));
    told.put("spillway.overhead_ms", ms(outcome.overhead));
    told.put_known("spillway.first_token_ms", outcome.first_token().map(ms));
    let retries = i64::from(outcome.retries_unsent) + i64::from(outcome.retries_reset);
    told.put_known("spillway.retries", (retries > 0).then_some(retries));
    told.put_known("spillway.hedge", outcome.hedge.map(spillway_types::Hedge::name));
    told.put_known("spillway.shed.reason", outcome.shed.map(|shed| shed.reason));
    told.put_known("spillway.shed.priority", outcome.shed.map(|shed| i64::from(shed.priority)));
    if let Some(compared) = outcome.compared.as_deref() {
        told.put_compared(compared);
    }
    told.0
}

fn attempt_attributes(outcome: &Outcome, asked: String) -> Vec<KeyValue> {
    let mut told = Attributes::default();
    let is_forwarded = outcome.region.is_some();
    told.put_known("error.type", error_type(outcome));
    told.put(if is_forwarded { "spillway.asked.region" } else { "spillway.asked.replica" }, asked);
    told.put_known("spillway.reason", outcome.reason.filter(|_| !is_forwarded));
    if let Some(predicted) = outcome.predicted.as_ref().filter(|_| !is_forwarded) {
        told.put_expected(predicted);
    }
    told.0
}

fn first_byte_event(at: Option<SystemTime>) -> SpanEvents {
    let mut events = SpanEvents::default();
    events.events.extend(at.map(|at| Event::new("first byte", at, Vec::new(), 0)));
    events
}

/// Returns an event for each target that was asked without success.
fn failed_tries(outcome: &Outcome, start: SystemTime) -> SpanEvents {
    let event = |tried: &FailedTry| {
        let target = match &tried.target {
            TriedTarget::Replica(name) => KeyValue::new("spillway.asked.replica", name.to_string()),
            TriedTarget::Region(name) => KeyValue::new("spillway.asked.region", name.to_string()),
        };
        let mut told = Attributes(vec![target]);
        told.put("error.type", tried.code);
        told.put_known("http.response.status_code", tried.status.map(i64::from));
        Event::new("failed try", start + tried.after, told.0, 0)
    };
    let mut events = SpanEvents::default();
    events.events.extend(outcome.tries.iter().map(event));
    events
}

/// Attributes that are known.
#[derive(Default)]
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn put(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.push(KeyValue::new(name, value));
    }

    fn put_known(&mut self, name: &'static str, value: Option<impl Into<Value>>) {
        self.0.extend(value.map(|value| KeyValue::new(name, value)));
    }

    /// Puts the last comparison of regions: what serving here and in the best other one costs.
    fn put_compared(&mut self, compared: &Compared) {
        self.put("spillway.compared.reason", compared.reason);
        self.put_known("spillway.compared.here_ms", compared.here_ms.map(f64::from));
        if let Some((region, cost_ms)) = &compared.best {
            self.put("spillway.compared.best_region", region.to_string());
            self.put("spillway.compared.best_ms", f64::from(*cost_ms));
        }
    }

    /// Puts what was expected of the replica, and the terms of that.
    fn put_expected(&mut self, predicted: &Prediction) {
        self.put("spillway.expected.first_token_ms", f64::from(predicted.first_token_ms));
        self.put("spillway.expected.wait_ms", f64::from(predicted.wait_ms));
        self.put("spillway.expected.prefill_ms", f64::from(predicted.prefill_ms));
        self.put("spillway.expected.cached_tokens", i64::from(predicted.cached_tokens));
        self.put("spillway.expected.prompt_tokens", i64::from(predicted.prompt_tokens));
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use spillway_types::TokenCounts;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A request that took four seconds and ended one second before `now`.
    fn ended(now: Instant) -> Outcome {
        Outcome {
            trace: Some(TraceIds { trace: 7, parent: Some(3), span: 9, is_sampled: true }),
            started: Some(now - 5 * SECOND),
            duration: 4 * SECOND,
            status: 200,
            end: End::Complete,
            model: Some("tiny".into()),
            operation: Some("chat"),
            ..Outcome::begun()
        }
    }

    fn told(outcome: &Outcome, now: Instant) -> Vec<SpanData> {
        let origin = Origin { node: "n".to_owned(), region: "r".to_owned() };
        spans(outcome, &origin, (now, UNIX_EPOCH + 100 * SECOND))
    }

    fn value(span: &SpanData, name: &str) -> Option<Value> {
        let mut pairs = span.attributes.iter();
        pairs.find(|pair| pair.key.as_str() == name).map(|pair| pair.value.clone())
    }

    #[test]
    fn an_attempt_stands_below_its_request_and_has_the_id_that_the_replica_got() {
        let now = Instant::now();
        let outcome = Outcome {
            replica: Some("gpu-a".into()),
            first_byte: Some(3 * SECOND),
            reply_time: Some(2 * SECOND),
            tokens: TokenCounts { prompt: 10, completion: 4, cached: 0 },
            ..ended(now)
        };
        let spans = told(&outcome, now);
        let (request, attempt) = (&spans[0], &spans[1]);
        assert_eq!((request.name.as_ref(), attempt.name.as_ref()), ("chat tiny", "ask gpu-a"));
        assert_eq!(request.parent_span_id, SpanId::from(3));
        assert_eq!(attempt.span_context.span_id(), SpanId::from(9));
        assert_eq!(attempt.parent_span_id, request.span_context.span_id());
        assert_ne!(request.span_context.span_id(), attempt.span_context.span_id());
        let at = |seconds| UNIX_EPOCH + seconds * SECOND;
        assert_eq!((request.start_time, request.end_time), (at(95), at(99)));
        assert_eq!((attempt.start_time, attempt.end_time), (at(96), at(99)));
        assert_eq!(attempt.events.first().map(|event| event.timestamp), Some(at(98)));
        assert_eq!(value(request, "gen_ai.usage.input_tokens"), Some(10.into()));
        // No cached tokens were reported, which is not the same as 0.
        assert_eq!(value(request, "gen_ai.usage.cache_read.input_tokens"), None);
        assert_eq!(request.status, Status::Unset);
    }

    #[test]
    fn a_forwarded_request_names_the_region_and_not_a_replica_that_failed_before() {
        let now = Instant::now();
        let outcome = Outcome {
            replica: Some("gpu-a".into()),
            region: Some("far".into()),
            reason: Some("only"),
            ..ended(now)
        };
        let attempt = &told(&outcome, now)[1];
        assert_eq!(attempt.name, "forward far");
        assert_eq!(value(attempt, "spillway.asked.region"), Some("far".into()));
        assert_eq!(value(attempt, "spillway.reason"), None);
    }

    #[test]
    fn a_refused_request_is_one_span_with_the_id_that_its_client_may_know() {
        let now = Instant::now();
        let (code, detail) = (Some("no_replica"), Some("none is in reach".into()));
        let outcome = Outcome { status: 503, code, detail, end: End::Answered, ..ended(now) };
        let spans = told(&outcome, now);
        assert_eq!(spans.len(), 1);
        let request = &spans[0];
        assert_eq!(request.span_context.span_id(), SpanId::from(9));
        assert_eq!(value(request, "error.type"), Some("no_replica".into()));
        assert_eq!(request.status, Status::error("no_replica: none is in reach"));
        assert!(told(&Outcome { trace: None, ..outcome }, now).is_empty());
    }

    #[test]
    fn each_failure_has_its_type_and_a_client_s_own_is_no_error_of_the_server() {
        let now = Instant::now();
        let of = |status, code, grpc_status, end| {
            let replica = Some("gpu-a".into());
            let outcome = Outcome { status, code, grpc_status, end, replica, ..ended(now) };
            let spans = told(&outcome, now);
            let is_error = |span: &SpanData| matches!(span.status, Status::Error { .. });
            let types: Vec<_> = spans.iter().map(|span| value(span, "error.type")).collect();
            assert_eq!(types[0], types[1]);
            (types[0].clone(), is_error(&spans[0]), is_error(&spans[1]))
        };
        let (whole, cut) = (End::Complete, End::Cut);
        assert_eq!(of(200, None, None, whole), (None, false, false));
        let replica = Some("replica_error");
        assert_eq!(of(500, replica, None, whole), (Some("replica_error".into()), true, true));
        assert_eq!(of(400, replica, None, whole), (Some("replica_error".into()), false, true));
        assert_eq!(of(200, replica, Some(14), whole), (Some("replica_error".into()), true, true));
        assert_eq!(of(200, Some("stream_cut"), None, cut), (Some("stream_cut".into()), true, true));
    }

    #[test]
    fn what_was_asked_in_vain_is_an_event_of_the_request() {
        let now = Instant::now();
        let tried = |target, code, after, status| FailedTry { target, code, status, after };
        let outcome = Outcome {
            replica: Some("gpu-b".into()),
            tries: vec![
                tried(TriedTarget::Region("far".into()), "region_lost", SECOND, None),
                tried(TriedTarget::Replica("gpu-a".into()), "replica_error", 2 * SECOND, Some(503)),
            ],
            ..ended(now)
        };
        let spans = told(&outcome, now);
        let events: Vec<String> = spans[0]
            .events
            .iter()
            .map(|event| {
                let values = event.attributes.iter().map(|pair| pair.value.to_string());
                values.collect::<Vec<_>>().join(" ")
            })
            .collect();
        assert_eq!(events, ["far region_lost", "gpu-a replica_error 503"]);
        let at: Vec<_> = spans[0].events.iter().map(|event| event.timestamp).collect();
        assert_eq!(at, [96, 97].map(|seconds| UNIX_EPOCH + seconds * SECOND));
        assert_eq!((&spans[0].status, &spans[1].status), (&Status::Unset, &Status::Unset));
    }
}
