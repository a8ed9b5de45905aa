use std::sync::Arc;
use std::time::Duration;

use spillway_types::{
    Admission, End, EstimateReason, GapHistogram, Hedge, ModelName, Prediction, Reading,
    ReplicaName, RouteName, Shed, Signals, SplitArm, TenantName, TokenCounts, TokenEstimate,
};

use super::*;
use crate::LiveReplica;

fn outcome() -> Outcome {
    let mut gaps = GapHistogram::default();
    gaps.record(Duration::from_millis(3));
    Outcome {
        route: Some(RouteName::from("llm")),
        model: Some(ModelName::from("tiny")),
        arm: Some(Arc::new(SplitArm { split: "chat".into(), arm: "canary".into() })),
        fallback_for: Some(ModelName::from("huge")),
        tenant: Some(TenantName::from("acme")),
        key: Some("k1".into()),
        replica: Some(ReplicaName::from("a")),
        reason: Some("soonest"),
        status: 200,
        end: End::Complete,
        duration: Duration::from_millis(20),
        is_stream: true,
        first_byte: Some(Duration::from_millis(5)),
        overhead: Duration::from_micros(80),
        retries_unsent: 1,
        tokens: TokenCounts { prompt: 7, completion: 2, cached: 0 },
        gaps: Some(Box::new(gaps)),
        ..Outcome::begun()
    }
}

#[test]
fn an_outcome_shows_in_every_metric_it_feeds() {
    let metrics = Metrics::new(Vec::new());
    metrics.record(&outcome(), Money::ZERO);
    let text = metrics.scrape(&Live::default());
    for line in [
        r#"spillway_requests_total{route="llm",model="tiny",status="200",end="complete"} 1"#,
        r#"spillway_tokens_total{route="llm",model="tiny",kind="prompt"} 7"#,
        r#"spillway_retries_total{cause="unsent"} 1"#,
        r#"spillway_split_requests_total{split="chat",arm="canary",status="fallback"} 1"#,
        r#"spillway_fallbacks_total{model="huge",served="tiny"} 1"#,
        r#"spillway_inter_token_seconds_bucket{le="0.005",route="llm",model="tiny"} 1"#,
        r#"spillway_time_to_first_token_seconds_count{route="llm",model="tiny"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    let none = r#"spillway_tokens_total{route="llm",model="tiny",kind="cached"}"#;
    assert!(!text.contains(none), "zero counts make no series");
}

#[test]
fn a_first_token_is_of_a_stream_and_a_whole_reply_of_none_and_an_error_of_neither() {
    let metrics = Metrics::new(Vec::new());
    for (is_stream, status) in [(true, 200), (false, 200), (false, 200), (true, 503), (false, 500)]
    {
        let outcome = Outcome { is_stream, status, gaps: None, ..outcome() };
        metrics.record(&outcome, Money::ZERO);
    }
    let text = metrics.scrape(&Live::default());
    for (name, count) in [
        ("spillway_time_to_first_token_seconds", 1),
        ("spillway_reply_seconds", 2),
        ("spillway_request_duration_seconds", 5),
    ] {
        let line = format!("{name}_count{{route=\"llm\",model=\"tiny\"}} {count}");
        assert!(text.contains(&line), "{line} is missing in\n{text}");
    }
}

#[test]
fn estimated_tokens_are_told_apart_and_guests_are_left_to_their_own_node() {
    let metrics = Metrics::new(Vec::new());
    let estimate = Some(TokenEstimate { tokens: 2, reason: EstimateReason::EarlyEnd });
    let estimated = Outcome { estimate, ..outcome() };
    metrics.record(&estimated, Money::ZERO);
    metrics.record(&outcome(), Money::ZERO);
    metrics.record(&Outcome { is_guest: true, ..estimated }, Money::ZERO);
    let text = metrics.scrape(&Live::default());
    for line in [
        r#"spillway_usage_estimates_total{reason="early_end"} 1"#,
        r#"spillway_tokens_total{route="llm",model="tiny",kind="estimated"} 4"#,
        r#"spillway_tenant_tokens_total{tenant="acme",kind="estimated"} 2"#,
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}

#[test]
fn requests_are_counted_by_replica_with_the_reason_and_forgotten_with_it() {
    let metrics = Metrics::new(Vec::new());
    metrics.record(&outcome(), Money::ZERO);
    metrics.record(&Outcome { is_guest: true, ..outcome() }, Money::ZERO);
    metrics.record(&Outcome { reason: Some("session"), status: 502, ..outcome() }, Money::ZERO);
    metrics.record(&Outcome { replica: None, reason: None, ..outcome() }, Money::ZERO);
    let replica = |name: &str| LiveReplica {
        name: name.into(),
        in_flight: 0,
        concurrency_limit: None,
        connections: 0,
        unasked: 0,
        admission: Admission::Open,
        ramp_permille: 1_000,
        signals: Signals::UNKNOWN,
        breakers: 0,
        models_missing: 0,
    };
    let live = |name: &str| Live { replicas: vec![replica(name)], ..Live::default() };
    let text = metrics.scrape(&live("a"));
    for line in [
        r#"spillway_replica_requests_total{replica="a",reason="soonest",status="2xx"} 2"#,
        r#"spillway_replica_requests_total{replica="a",reason="session",status="5xx"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    assert_eq!(text.matches("spillway_replica_requests_total{").count(), 2);
    let text = metrics.scrape(&live("b"));
    assert!(!text.contains("spillway_replica_requests_total{"), "{text}");
}

#[test]
fn tokens_are_counted_by_tenant_and_key_for_own_clients_only() {
    let metrics = Metrics::new(Vec::new());
    let other = |key: Option<&str>| Outcome { key: key.map(Into::into), ..outcome() };
    let cost = Money::of_millionths(250_000);
    for outcome in [outcome(), outcome(), other(Some("k2")), other(None)] {
        metrics.record(&outcome, cost);
    }
    metrics.record(&Outcome { is_guest: true, ..outcome() }, Money::ZERO);
    metrics.record(&Outcome { tenant: None, key: None, status: 429, ..outcome() }, Money::ZERO);
    let lines: Vec<_> = metrics
        .usage()
        .into_iter()
        .map(|line| (line.tenant, line.key, line.used.requests, line.used.errors, line.used.prompt))
        .collect();
    let acme = || Some("acme".to_owned());
    let key = |name: &str| Some(name.to_owned());
    assert_eq!(
        lines,
        [
            (None, None, 1, 1, 7),
            (acme(), None, 1, 0, 7),
            (acme(), key("k1"), 2, 0, 14),
            (acme(), key("k2"), 1, 0, 7),
        ]
    );
    let text = metrics.scrape(&Live::default());
    for line in [
        r#"spillway_tenant_tokens_total{tenant="acme",kind="prompt"} 28"#,
        r#"spillway_tenant_requests_total{tenant="acme",result="ok"} 4"#,
        r#"spillway_tenant_cost_total{tenant="acme"} 1.0"#,
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}

#[test]
fn tenants_without_end_fill_no_memory() {
    let metrics = Metrics::new(Vec::new());
    for number in 0..20_000 {
        let tenant = Some(TenantName::from(&*format!("t{number}")));
        metrics.record(&Outcome { tenant, gaps: None, ..outcome() }, Money::ZERO);
    }
    let lines = metrics.usage();
    assert_eq!(lines.iter().map(|line| line.used.requests).sum::<u64>(), 20_000);
    assert!(lines.len() <= 16_385, "{}", lines.len());
    let text = metrics.scrape(&Live::default());
    assert!(text.matches("spillway_tenant_tokens_total{").count() <= 3 * 257);
    assert!(text.contains(r#"spillway_tenant_tokens_total{tenant="_other",kind="prompt"}"#));
}

#[test]
fn who_was_turned_away_shows_with_reason_and_class() {
    let metrics = Metrics::new(Vec::new());
    let shed = Some(Shed { reason: "queue_full", priority: 2 });
    metrics.record(&Outcome { shed, status: 503, ..outcome() }, Money::ZERO);
    metrics.record(&Outcome { hedge: Some(Hedge::Won), ..outcome() }, Money::ZERO);
    // The last class has the highest number that is shown.
    let shed = Some(Shed { reason: "memory", priority: 200 });
    metrics.record(&Outcome { shed, route: None, model: None, ..outcome() }, Money::ZERO);
    let text = metrics.scrape(&Live::default());
    for line in [
        r#"spillway_sheds_total{route="llm",model="tiny",reason="queue_full",priority="2"} 1"#,
        r#"spillway_sheds_total{route="unknown",model="unknown",reason="memory",priority="3"} 1"#,
        r#"spillway_hedges_total{route="llm",result="won"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    assert_eq!(text.matches("spillway_sheds_total{").count(), 2, "others were not shed");
}

#[test]
fn predictions_are_held_against_what_was_seen() {
    let metrics = Metrics::new(Vec::new());
    let predicted = |first_token_ms: f32, cached_tokens| {
        Some(Prediction { first_token_ms, cached_tokens, ..Prediction::default() })
    };
    let seen = Some(Duration::from_millis(100));
    for first_token_ms in [90.0, 110.0, 110.0, 150.0] {
        let predicted = predicted(first_token_ms, 4);
        metrics.record(&Outcome { predicted, reply_time: seen, ..outcome() }, Money::ZERO);
    }
    // A reply in one piece and a stream that was cut off do not show when the first token came.
    let off = predicted(5_000.0, 0);
    let tokens = TokenCounts::default();
    let unary = Outcome { predicted: off, reply_time: seen, gaps: None, tokens, ..outcome() };
    metrics.record(&unary, Money::ZERO);
    let cut = Outcome { predicted: off, reply_time: seen, end: End::Cut, ..outcome() };
    metrics.record(&cut, Money::ZERO);
    let text = metrics.scrape(&Live::default());
    let value = |line: &str| -> f64 {
        let found = text.lines().find(|known| known.starts_with(line)).expect(line);
        found.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
    };
    let of = |name: &str, quantile: &str| {
        value(&format!("{name}{{route=\"llm\",model=\"tiny\",quantile=\"{quantile}\"}}"))
    };
    let (median_s, p90_s) = (
        of("spillway_prediction_error_seconds", "0.5"),
        of("spillway_prediction_error_seconds", "0.9"),
    );
    assert!((0.008..0.013).contains(&median_s), "{median_s}");
    assert!((0.04..0.065).contains(&p90_s), "{p90_s}");
    assert!((0.08..0.13).contains(&of("spillway_prediction_error_ratio", "0.5")));
    let estimate = "spillway_cache_estimate_tokens_total{route=\"llm\",model=\"tiny\",kind=";
    assert_eq!(value(&format!("{estimate}\"expected\"}}")), 16.0);
    assert_eq!(value(&format!("{estimate}\"reported\"}}")), 0.0);
}

#[test]
fn gauges_follow_the_view_and_forget_replicas_that_left() {
    let metrics = Metrics::new(Vec::new());
    let replica = LiveReplica {
        name: "a".into(),
        in_flight: 3,
        concurrency_limit: Some(32),
        connections: 4,
        unasked: 0,
        admission: Admission::Open,
        ramp_permille: 250,
        signals: Signals {
            queued: Reading { value: 7.0, trust: 0.5 },
            gpu_memory_use: Reading { value: 0.5, trust: 1.0 },
            ..Signals::UNKNOWN
        },
        breakers: 0,
        models_missing: 0,
    };
    let live = Live { replicas: vec![replica], outcomes_dropped: 5, ..Live::default() };
    let text = metrics.scrape(&live);
    for line in [
        r#"spillway_replica_in_flight{replica="a"} 3"#,
        r#"spillway_replica_concurrency_limit{replica="a"} 32"#,
        r#"spillway_replica_admission{replica="a",admission="open"} 1"#,
        r#"spillway_replica_ramp{replica="a"} 0.25"#,
        r#"spillway_replica_load{replica="a",signal="queued"} 7.0"#,
        r#"spillway_replica_load_trust{replica="a",signal="queued"} 0.5"#,
        r#"spillway_replica_load{replica="a",signal="gpu_memory_use"} 0.5"#,
        r#"spillway_replica_models_missing{replica="a"} 0"#,
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains(r#"signal="kv_use""#), "unknown is not zero");
    metrics.record_fault("a", SignFault::Cut);
    let text = metrics.scrape(&Live { outcomes_dropped: 5, ..Live::default() });
    assert!(!text.contains(r#"replica="a""#), "{text}");
    assert!(text.contains("spillway_outcomes_dropped_total 5"), "{text}");
}
