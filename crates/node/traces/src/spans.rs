//! Spans of a request, by OpenTelemetry's conventions for HTTP and generative AI.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{
    Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use spillway_types::{
    AttributeValue, End, EndedRequest, FailedTry, Outcome, RequestEntry, TraceIds, TriedTarget,
};

/// Node that exports its requests.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Name of the node.
    pub node: Arc<str>,
    /// Region of the node.
    pub region: Arc<str>,
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
        ..span(ids, own, times.start, times.end)
    }];
    if let Some(asked) = asked {
        let verb = if outcome.region.is_some() { "forward" } else { "ask" };
        spans.push(SpanData {
            parent_span_id: SpanId::from(own),
            span_kind: SpanKind::Client,
            name: format!("{verb} {asked}").into(),
            attributes: attempt_attributes(outcome, origin, asked),
            events: first_byte_event(times.first_byte),
            status: attempt_status(outcome),
            ..span(ids, ids.span, times.asked, times.end)
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

fn span(ids: TraceIds, id: u64, start_time: SystemTime, end_time: SystemTime) -> SpanData {
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
    match (failure(outcome), outcome.detail.as_deref()) {
        (None, _) => Status::Unset,
        (Some(code), None) => Status::error(code),
        (Some(code), Some(detail)) => Status::error(format!("{code}: {detail}")),
    }
}

/// Returns the code of a failure; the status of one without.
fn failure(outcome: &Outcome) -> Option<String> {
    let status = || outcome.has_failed().then(|| outcome.status.to_string());
    outcome.code.map(str::to_owned).or_else(status)
}

fn error_type(outcome: &Outcome) -> Option<KeyValue> {
    failure(outcome).map(|failure| KeyValue::new("error.type", failure))
}

fn attributes(outcome: &Outcome, origin: &Origin) -> Vec<KeyValue> {
    let mut attributes = pairs(entry(outcome, origin).span_attributes());
    attributes.push(KeyValue::new("spillway.region", Arc::clone(&origin.region)));
    attributes.extend(error_type(outcome));
    let operation = outcome.operation.map(|name| KeyValue::new("gen_ai.operation.name", name));
    attributes.extend(operation);
    attributes
}

fn attempt_attributes(outcome: &Outcome, origin: &Origin, asked: String) -> Vec<KeyValue> {
    let mut attributes = Vec::from_iter(error_type(outcome));
    if outcome.region.is_some() {
        attributes.push(KeyValue::new("spillway.asked.region", asked));
    } else {
        attributes.push(KeyValue::new("spillway.asked.replica", asked));
        attributes.extend(pairs(entry(outcome, origin).attempt_attributes()));
    }
    attributes
}

/// Returns the record of a request, of which spans don't have number and time.
fn entry(outcome: &Outcome, origin: &Origin) -> RequestEntry {
    let Origin { node, region } = origin;
    EndedRequest { number: 0, ended_ms: 0, node, region, outcome }.into()
}

fn pairs(attributes: Vec<(&'static str, AttributeValue)>) -> Vec<KeyValue> {
    let value = |value| match value {
        AttributeValue::Text(text) => text.into(),
        AttributeValue::Integer(number) => number.into(),
        AttributeValue::Number(number) => number.into(),
        AttributeValue::True => true.into(),
    };
    attributes.into_iter().map(|(name, it)| KeyValue::new::<_, Value>(name, value(it))).collect()
}

fn first_byte_event(at: Option<SystemTime>) -> SpanEvents {
    let mut events = SpanEvents::default();
    events.events.extend(at.map(|at| Event::new("first byte", at, Vec::new(), 0)));
    events
}

/// Returns an event for each place that was asked without success.
fn failed_tries(outcome: &Outcome, start: SystemTime) -> SpanEvents {
    let event = |tried: &FailedTry| {
        let target = match &tried.target {
            TriedTarget::Replica(name) => KeyValue::new("spillway.asked.replica", name.to_string()),
            TriedTarget::Region(name) => KeyValue::new("spillway.asked.region", name.to_string()),
        };
        let mut attributes = vec![target, KeyValue::new("error.type", tried.code)];
        let status = tried.status.map(i64::from);
        attributes.extend(status.map(|it| KeyValue::new("http.response.status_code", it)));
        Event::new("failed try", start + tried.after, attributes, 0)
    };
    let mut events = SpanEvents::default();
    events.events.extend(outcome.tries.iter().map(event));
    events
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use spillway_types::{
        Compared, EstimateReason, Hedge, Prediction, Shed, SplitArm, TokenCounts, TokenEstimate,
    };

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
        let origin = Origin { node: "n".into(), region: "r".into() };
        spans(outcome, &origin, (now, UNIX_EPOCH + 100 * SECOND))
    }

    fn value(span: &SpanData, name: &str) -> Option<Value> {
        let mut pairs = span.attributes.iter();
        pairs.find(|pair| pair.key.as_str() == name).map(|pair| pair.value.clone())
    }

    /// Lists the attributes of a span, sorted by their names.
    fn attributes_of(span: &SpanData) -> Vec<String> {
        let mut pairs: Vec<String> =
            span.attributes.iter().map(|pair| format!("{}={}", pair.key, pair.value)).collect();
        pairs.sort();
        pairs
    }

    /// An outcome with every fact that a span shows.
    fn known(now: Instant) -> Outcome {
        Outcome {
            id: Some("abc".into()),
            route: Some("llm".into()),
            arm: Some(Arc::new(SplitArm { split: "chat".into(), arm: "canary".into() })),
            fallback_for: Some("huge".into()),
            tenant: Some("acme".into()),
            key: Some("k1".into()),
            replica: Some("gpu-a".into()),
            reason: Some("soonest"),
            compared: Some(Box::new(Compared {
                here_ms: Some(41.25),
                best: Some(("us".into(), 80.0)),
                reason: "none_better",
            })),
            is_guest: true,
            grpc_status: Some(0),
            code: Some("replica_error"),
            is_stream: true,
            first_byte: Some(Duration::from_nanos(52_345_678)),
            overhead: Duration::from_micros(125),
            retries_unsent: 1,
            retries_reset: 2,
            tokens: TokenCounts { prompt: 1024, completion: 128, cached: 512 },
            estimate: Some(TokenEstimate { tokens: 2, reason: EstimateReason::EarlyEnd }),
            predicted: Some(Prediction {
                first_token_ms: 41.25,
                wait_ms: 1.0625,
                prompt_tokens: 1024,
                running: 3.0,
                ..Prediction::default()
            }),
            shed: Some(Shed { reason: "queue_full", priority: 0 }),
            hedge: Some(Hedge::Won),
            ..ended(now)
        }
    }

    #[test]
    fn a_span_has_all_facts_that_are_known() {
        let now = Instant::now();
        let known = known(now);
        let spans = told(&known, now);
        assert_eq!(
            attributes_of(&spans[0]),
            [
                "error.type=replica_error",
                "gen_ai.operation.name=chat",
                "gen_ai.request.model=tiny",
                "gen_ai.usage.cache_read.input_tokens=512",
                "gen_ai.usage.input_tokens=1024",
                "gen_ai.usage.output_tokens=128",
                "http.response.status_code=200",
                "rpc.grpc.status_code=0",
                "spillway.compared.best_ms=80",
                "spillway.compared.best_region=us",
                "spillway.compared.here_ms=41.25",
                "spillway.compared.reason=none_better",
                "spillway.end=complete",
                "spillway.fallback_for=huge",
                "spillway.first_token_ms=52.345678",
                "spillway.hedge=won",
                "spillway.is_guest=true",
                "spillway.key.id=k1",
                "spillway.node=n",
                "spillway.overhead_ms=0.125",
                "spillway.region=r",
                "spillway.request.id=abc",
                "spillway.retries=3",
                "spillway.route=llm",
                "spillway.shed.priority=0",
                "spillway.shed.reason=queue_full",
                "spillway.split.arm=chat/canary",
                "spillway.tenant=acme",
                "spillway.tokens_estimated=true",
            ]
        );
        assert_eq!(
            attributes_of(&spans[1]),
            [
                "error.type=replica_error",
                "spillway.asked.replica=gpu-a",
                "spillway.expected.cached_tokens=0",
                "spillway.expected.first_token_ms=41.25",
                "spillway.expected.prefill_ms=0",
                "spillway.expected.prompt_tokens=1024",
                "spillway.expected.wait_ms=1.0625",
                "spillway.reason=soonest",
            ]
        );
        let forwarded = Outcome { region: Some("far".into()), ..known };
        let attempt = attributes_of(&told(&forwarded, now)[1]);
        assert_eq!(attempt, ["error.type=replica_error", "spillway.asked.region=far"]);
        let begun = Outcome { end: End::CancelledBeforeReply, status: 499, ..ended(now) };
        assert_eq!(
            attributes_of(&told(&begun, now)[0]),
            [
                "error.type=499",
                "gen_ai.operation.name=chat",
                "gen_ai.request.model=tiny",
                "http.response.status_code=499",
                "spillway.end=cancelled_before_reply",
                "spillway.node=n",
                "spillway.overhead_ms=0",
                "spillway.region=r",
            ]
        );
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
