//! Requests as the metrics count them.

use std::collections::BTreeMap;
use std::time::Duration;

use spillway_types::{
    End, EstimateReason, GapHistogram, Hedge, Outcome, Prediction, Shed, TokenCounts, TokenEstimate,
};
use spillway_usage::Money;

use crate::test_page::{Page, stream};
use crate::{Live, Metrics};

fn page_after(outcomes: &[Outcome]) -> Page {
    let metrics = Metrics::new(Vec::new());
    outcomes.iter().for_each(|outcome| metrics.record(outcome, Money::ZERO));
    Page::of(&metrics, &Live::default())
}

#[test]
fn requests_of_no_known_route_or_model_count_as_unknown() {
    let named = stream;
    let page = page_after(&[
        named(),
        Outcome { route: None, ..named() },
        Outcome { model: None, ..named() },
        Outcome { route: None, model: None, status: 404, end: End::Answered, ..named() },
        Outcome { status: 200, end: End::Cut, ..named() },
        Outcome { status: 200, end: End::Cut, ..named() },
    ]);
    for (labels, expected) in [
        (["llm", "tiny", "200", "complete"], 1.0),
        (["unknown", "tiny", "200", "complete"], 1.0),
        (["llm", "unknown", "200", "complete"], 1.0),
        (["unknown", "unknown", "404", "answered"], 1.0),
        (["llm", "tiny", "200", "cut"], 2.0),
    ] {
        assert_eq!(page.value("spillway_requests_total", &labels), expected, "{labels:?}");
    }
    assert_eq!(page.count("spillway_requests_total"), 5);
}

#[test]
fn only_a_client_that_left_is_a_cancel() {
    for (end, phase) in [
        (End::CancelledBeforeReply, Some("before_reply")),
        (End::CancelledInReply, Some("in_reply")),
        (End::Complete, None),
        (End::Answered, None),
        (End::Cut, None),
        (End::Stalled, None),
        (End::DeadlinePassed, None),
    ] {
        let page = page_after(&[Outcome { end, ..stream() }]);
        assert_eq!(page.count("spillway_client_cancels_total"), usize::from(phase.is_some()));
        if let Some(phase) = phase {
            assert_eq!(page.value("spillway_client_cancels_total", &[phase]), 1.0, "{end:?}");
        }
    }
}

#[test]
fn retries_count_by_their_cause_and_none_makes_no_series() {
    let page = page_after(&[
        Outcome { retries_unsent: 2, retries_reset: 1, ..stream() },
        Outcome { retries_unsent: 3, ..stream() },
    ]);
    assert_eq!(page.value("spillway_retries_total", &["unsent"]), 5.0);
    assert_eq!(page.value("spillway_retries_total", &["reset"]), 1.0);
    assert_eq!(page_after(&[stream()]).count("spillway_retries_total"), 0);
}

#[test]
fn guests_count_by_the_class_of_their_status() {
    let guest = |status| Outcome { is_guest: true, status, ..stream() };
    let page = page_after(&[guest(200), guest(204), guest(429), guest(503), guest(499), stream()]);
    for (class, expected) in [("2xx", 2.0), ("4xx", 2.0), ("5xx", 1.0)] {
        assert_eq!(page.value("spillway_guest_requests_total", &[class]), expected, "{class}");
    }
}

#[test]
fn the_time_before_the_first_attempt_needs_an_attempt() {
    let without = Outcome { replica: None, reason: None, ..stream() };
    for (outcomes, expected) in [(vec![stream(), without.clone()], 1.0), (vec![without], 0.0)] {
        let page = page_after(&outcomes);
        let count = page.value("spillway_gateway_overhead_seconds_count", &["llm", "tiny"]);
        assert_eq!(count, expected);
        let requests = page.value("spillway_request_duration_seconds_count", &["llm", "tiny"]);
        assert_eq!(requests, outcomes.len() as f64);
    }
}

#[test]
fn a_duration_counts_in_the_bucket_that_holds_it() {
    let bounds: Vec<f64> = (0..22).map(|power| 0.000_25 * f64::from(1 << power)).collect();
    for duration_us in [0, 250, 251, 1_000_000, 524_288_000, 600_000_000] {
        let duration = Duration::from_micros(duration_us);
        let page = page_after(&[Outcome { duration, ..stream() }]);
        for bound in &bounds {
            let is_within = duration.as_secs_f64() <= *bound;
            let name = "spillway_request_duration_seconds_bucket";
            let found = page.samples.iter().find(|sample| {
                sample.name == name && sample.labels[0].1.parse::<f64>().ok() == Some(*bound)
            });
            let found = found.unwrap_or_else(|| panic!("no bucket of {bound} in\n{}", page.text));
            assert_eq!(found.value, f64::from(u8::from(is_within)), "{duration:?} up to {bound}");
        }
        let sum = page.value("spillway_request_duration_seconds_sum", &["llm", "tiny"]);
        assert!((sum - duration.as_secs_f64()).abs() < 1e-9, "{sum}");
    }
}

#[test]
fn gaps_of_all_streams_of_a_model_are_one_histogram() {
    let with = |model: &str, gaps_ms: &[u64]| {
        let mut gaps = GapHistogram::default();
        gaps_ms.iter().for_each(|ms| gaps.record(Duration::from_millis(*ms)));
        Outcome { model: Some(model.into()), gaps: Some(Box::new(gaps)), ..stream() }
    };
    let page = page_after(&[
        with("tiny", &[1, 3, 7]),
        with("tiny", &[3, 40_000]),
        with("huge", &[3]),
        // A stream of one event has no gap.
        with("none", &[]),
        Outcome { model: Some("whole".into()), gaps: None, ..stream() },
    ]);
    let name = "spillway_inter_token_seconds";
    let bucket = |le: &str, model: &str| page.value(&format!("{name}_bucket"), &[le, "llm", model]);
    let upto = |model: &str| ["0.001", "0.005", "0.01", "30.0", "+Inf"].map(|le| bucket(le, model));
    assert_eq!(upto("tiny"), [1.0, 3.0, 4.0, 4.0, 5.0]);
    assert_eq!(upto("huge"), [0.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(upto("none"), [0.0; 5]);
    assert_eq!(page.find(&format!("{name}_count"), &["llm", "whole"]), None);
    assert_eq!(page.value(&format!("{name}_count"), &["llm", "tiny"]), 5.0);
    let sum_s = page.value(&format!("{name}_sum"), &["llm", "tiny"]);
    assert!((sum_s - 40.014).abs() < 1e-9, "{sum_s}");
}

#[test]
fn kinds_of_tokens_make_a_series_once_there_are_some() {
    let tokens = |prompt, completion, cached| Outcome {
        tokens: TokenCounts { prompt, completion, cached },
        ..stream()
    };
    let kinds = |outcomes: &[Outcome]| -> BTreeMap<String, f64> {
        let samples = page_after(outcomes).samples.into_iter();
        let of_tokens = samples.filter(|sample| sample.name == "spillway_tokens_total");
        of_tokens.map(|sample| (sample.labels[2].1.clone(), sample.value)).collect()
    };
    let expected = |kinds: &[(&str, f64)]| -> BTreeMap<String, f64> {
        kinds.iter().map(|(kind, sum)| ((*kind).to_owned(), *sum)).collect()
    };
    assert_eq!(kinds(&[tokens(0, 0, 0)]), expected(&[]));
    assert_eq!(kinds(&[tokens(5, 0, 0), tokens(2, 0, 0)]), expected(&[("prompt", 7.0)]));
    let both = expected(&[("prompt", 7.0), ("completion", 3.0), ("cached", 1.0)]);
    assert_eq!(kinds(&[tokens(5, 0, 0), tokens(2, 3, 1)]), both);
    let reason = EstimateReason::Unreported;
    let estimated =
        Outcome { estimate: Some(TokenEstimate { tokens: 4, reason }), ..tokens(0, 4, 0) };
    let both = expected(&[("completion", 4.0), ("estimated", 4.0)]);
    assert_eq!(kinds(&[estimated]), both, "estimated tokens are also those of their kind");
}

#[test]
fn a_prediction_counts_if_the_reply_shows_what_came_true() {
    let predicted = Prediction { first_token_ms: 104.0, cached_tokens: 5, ..Prediction::default() };
    let good = || Outcome {
        predicted: Some(predicted),
        reply_time: Some(Duration::from_millis(4)),
        ..stream()
    };
    let estimate = Some(TokenEstimate { tokens: 1, reason: EstimateReason::Unreported });
    let tokens = TokenCounts::default();
    for (case, outcome, has_error, has_estimate) in [
        ("a complete stream", good(), true, true),
        ("a reply in one piece", Outcome { gaps: None, ..good() }, false, true),
        ("no reply", Outcome { reply_time: None, ..good() }, false, true),
        ("a policy that predicts nothing", Outcome { predicted: None, ..good() }, false, false),
        ("a reply that was cut", Outcome { end: End::Cut, ..good() }, false, false),
        ("an error", Outcome { status: 500, ..good() }, false, false),
        ("tokens that are estimated", Outcome { estimate, ..good() }, true, false),
        ("tokens that are unknown", Outcome { tokens, ..good() }, true, false),
    ] {
        let page = page_after(&[outcome]);
        let error = page.find("spillway_prediction_error_seconds", &["llm", "tiny", "0.9"]);
        assert_eq!(error.is_some(), has_error, "{case}");
        assert!(error.is_none_or(|error_s| (0.085..0.115).contains(&error_s)), "{case}: {error:?}");
        let estimates = ["expected", "reported"]
            .map(|kind| page.find("spillway_cache_estimate_tokens_total", &["llm", "tiny", kind]));
        let expected = if has_estimate { [Some(5.0), Some(3.0)] } else { [None; 2] };
        assert_eq!(estimates, expected, "{case}");
    }
}

#[test]
fn the_newest_predictions_outweigh_those_of_long_ago() {
    let metrics = Metrics::new(Vec::new());
    let off_by = |ms: f32| Outcome {
        predicted: Some(Prediction { first_token_ms: 100.0 + ms, ..Prediction::default() }),
        reply_time: Some(Duration::from_millis(100)),
        ..stream()
    };
    let median_s = |metrics: &Metrics| {
        let page = Page::of(metrics, &Live::default());
        page.value("spillway_prediction_error_seconds", &["llm", "tiny", "0.5"])
    };
    (0..100_000).for_each(|_| metrics.record(&off_by(1_000.0), Money::ZERO));
    assert!((0.85..1.15).contains(&median_s(&metrics)));
    (0..10_000).for_each(|_| metrics.record(&off_by(10.0), Money::ZERO));
    assert!((0.0085..0.0115).contains(&median_s(&metrics)), "{}", median_s(&metrics));
}

#[test]
fn a_refusal_counts_with_its_reason_and_a_hedge_with_its_result() {
    let shed = |priority| Some(Shed { reason: "queue_full", priority });
    let page = page_after(&[
        Outcome { shed: shed(0), ..stream() },
        Outcome { shed: shed(3), ..stream() },
        Outcome { shed: shed(4), ..stream() },
        Outcome { shed: shed(255), ..stream() },
        Outcome { hedge: Some(Hedge::Lost), ..stream() },
        Outcome { hedge: Some(Hedge::Failed), route: None, ..stream() },
    ]);
    let sheds = |class| page.value("spillway_sheds_total", &["llm", "tiny", "queue_full", class]);
    assert_eq!((sheds("0"), sheds("3")), (1.0, 3.0), "the last class has all above it");
    assert_eq!(page.count("spillway_sheds_total"), 2);
    assert_eq!(page.value("spillway_hedges_total", &["llm", "lost"]), 1.0);
    assert_eq!(page.value("spillway_hedges_total", &["unknown", "failed"]), 1.0);
}

#[test]
fn a_fallback_counts_for_the_model_that_was_asked_for() {
    let fallback = Outcome { fallback_for: Some("huge".into()), ..stream() };
    let page = page_after(&[
        fallback.clone(),
        Outcome { model: None, ..fallback },
        Outcome { fallback_for: None, ..stream() },
    ]);
    assert_eq!(page.value("spillway_fallbacks_total", &["huge", "tiny"]), 1.0);
    assert_eq!(page.value("spillway_fallbacks_total", &["huge", ""]), 1.0, "none served");
    assert_eq!(page.count("spillway_fallbacks_total"), 2);
}

#[test]
fn an_overflow_replica_counts_what_it_served_and_what_it_cost() {
    let metrics = Metrics::new(Vec::new());
    let overflow = |status| Outcome { overflow: Some("full"), status, ..stream() };
    let cost = Money::of_millionths(250_000);
    for outcome in [overflow(200), overflow(201), overflow(500), overflow(300), stream()] {
        metrics.record_overflow(&outcome, cost);
    }
    metrics.record_overflow(&Outcome { replica: None, ..overflow(200) }, cost);
    let page = Page::of(&metrics, &Live::default());
    let requests = |result| page.value("spillway_overflow_requests_total", &["a", "full", result]);
    assert_eq!((requests("served"), requests("failed")), (2.0, 2.0));
    assert_eq!(page.value("spillway_overflow_cost_total", &["a"]), 1.0, "failures are billed too");
    for (kind, sum) in [("prompt", 28.0), ("completion", 8.0), ("cached", 12.0)] {
        assert_eq!(page.value("spillway_overflow_tokens_total", &["a", kind]), sum, "{kind}");
    }
}

fn of_tenant(tenant: &str, status: u16) -> Outcome {
    Outcome { tenant: Some(tenant.into()), status, ..stream() }
}

#[test]
fn a_tenant_has_its_requests_by_result_and_its_cost() {
    let metrics = Metrics::new(Vec::new());
    for (status, cost) in [(200, 300_000), (399, 200_000), (400, 0), (503, 0)] {
        metrics.record(&of_tenant("acme", status), Money::of_millionths(cost));
    }
    metrics.record(&of_tenant("free", 200), Money::ZERO);
    metrics.record(&Outcome { tenant: None, ..stream() }, Money::of_millionths(9));
    for _ in 0..2 {
        let page = Page::of(&metrics, &Live::default());
        let requests =
            |tenant, result| page.find("spillway_tenant_requests_total", &[tenant, result]);
        assert_eq!(requests("acme", "ok"), Some(2.0));
        assert_eq!(requests("acme", "error"), Some(2.0));
        assert_eq!(requests("free", "error"), None, "no series of zeros");
        assert_eq!(page.value("spillway_tenant_cost_total", &["acme"]), 0.5);
        assert_eq!(page.find("spillway_tenant_cost_total", &["free"]), None);
        assert_eq!(page.count("spillway_tenant_cost_total"), 1);
    }
}

#[test]
fn a_tenant_keeps_its_series_whichever_tenants_come_later() {
    let metrics = Metrics::new(Vec::new());
    let record = |tenant: &str| metrics.record(&of_tenant(tenant, 200), Money::ZERO);
    (0..256).for_each(|number| record(&format!("m{number:03}")));
    let requests = || -> BTreeMap<String, f64> {
        let samples = Page::of(&metrics, &Live::default()).samples.into_iter();
        let of_tenants = samples.filter(|sample| sample.name == "spillway_tenant_requests_total");
        of_tenants.map(|sample| (sample.labels[0].1.clone(), sample.value)).collect()
    };
    assert_eq!(requests().len(), 256);
    // Tenants whose names come before and behind those that are known.
    for tenant in ["a", "b", "z"] {
        record(tenant);
    }
    record("m255");
    let shown = requests();
    assert_eq!(shown.get("m255"), Some(&2.0));
    assert_eq!(shown.get("_other"), Some(&3.0));
    assert_eq!(shown.values().sum::<f64>(), 260.0, "each request counts once");
}
