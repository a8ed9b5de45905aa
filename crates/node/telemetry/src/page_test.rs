use std::collections::BTreeSet;

use spillway_types::{Outcome, TraceIds};
use spillway_usage::Money;

use crate::test_page::{Page, Sample, live, stream, used_metrics};
use crate::{Exposition, GROUPS, Live, LiveGeo, MetricKind, MetricSpec, Metrics};

fn specs() -> impl Iterator<Item = &'static MetricSpec> {
    GROUPS.into_iter().flat_map(|group| group.metrics)
}

/// Returns the ends of names that samples of this kind have in OpenMetrics.
fn ends(kind: MetricKind) -> &'static [&'static str] {
    match kind {
        MetricKind::Counter => &["_total"],
        MetricKind::Gauge => &[""],
        MetricKind::Histogram => &["_bucket", "_sum", "_count"],
        MetricKind::Info => &["_info"],
    }
}

fn samples_of<'p>(page: &'p Page, spec: &MetricSpec) -> Vec<&'p Sample> {
    let is_of = |name: &str| {
        let end = name.strip_prefix(spec.name);
        end.is_some_and(|end| ends(spec.kind).contains(&end))
    };
    page.samples.iter().filter(|sample| is_of(&sample.name)).collect()
}

#[test]
fn every_metric_of_the_catalog_has_a_sample_with_its_labels_in_their_order() {
    let page = Page::of(&used_metrics(), &live());
    for spec in specs() {
        let samples = samples_of(&page, spec);
        assert!(!samples.is_empty(), "{} is missing in\n{}", spec.name, page.text);
        for sample in samples {
            let labels = sample.labels.iter().map(|(label, _)| label.as_str());
            let labels: Vec<&str> = labels.filter(|label| *label != "le").collect();
            assert_eq!(labels, spec.labels, "{}", sample.name);
        }
    }
}

#[test]
fn every_sample_is_of_a_declared_family_and_no_series_is_shown_twice() {
    let page = Page::of(&used_metrics(), &live());
    let types = page.types();
    for spec in specs() {
        assert_eq!(types.get(spec.name), Some(&spec.kind.as_str()), "{}", spec.name);
    }
    let declared: usize = specs().map(|spec| samples_of(&page, spec).len()).sum();
    assert_eq!(declared, page.samples.len(), "samples of families that are not in the catalog");
    let mut series = BTreeSet::new();
    for Sample { name, labels, .. } in &page.samples {
        assert!(series.insert((name, labels)), "{name} {labels:?} is there twice");
    }
    assert!(page.text.ends_with("# EOF\n"));
    assert_eq!(page.text.matches("# EOF").count(), 1);
}

#[test]
fn samples_of_a_family_follow_its_type_without_a_gap() {
    let page = Page::of(&used_metrics(), &live());
    let mut family = "";
    for line in page.text.lines() {
        match line.strip_prefix("# ") {
            Some("EOF") => {}
            Some(comment) => family = comment.split(' ').nth(1).expect("a name"),
            None => assert!(line.starts_with(family), "{line} below {family}"),
        }
    }
}

#[test]
fn help_is_one_line_before_its_type() {
    let page = Page::of(&used_metrics(), &live());
    let lines: Vec<&str> = page.text.lines().collect();
    for spec in specs() {
        let help =
            lines.iter().position(|line| line.starts_with(&format!("# HELP {} ", spec.name)));
        let help = help.unwrap_or_else(|| panic!("{} has no help", spec.name));
        assert!(lines[help + 1].starts_with(&format!("# TYPE {} ", spec.name)), "{}", lines[help]);
    }
}

#[test]
fn buckets_add_up_to_the_count_and_their_bounds_rise() {
    let page = Page::of(&used_metrics(), &live());
    for spec in specs().filter(|spec| spec.kind == MetricKind::Histogram) {
        let mut bound_and_count: Option<(f64, f64)> = None;
        let mut sums = 0;
        for sample in samples_of(&page, spec) {
            let bound = sample.labels.iter().find(|(label, _)| label == "le");
            if let Some((_, bound)) = bound {
                let bound: f64 = bound.parse().expect("a bound");
                if let Some((bound_before, count_before)) = bound_and_count {
                    assert!(bound > bound_before, "{}", spec.name);
                    assert!(sample.value >= count_before, "{}: counts add up", spec.name);
                }
                bound_and_count = (bound.is_finite()).then_some((bound, sample.value));
                if bound.is_infinite() {
                    let labels = sample.labels.iter().filter(|(label, _)| label != "le");
                    let labels: Vec<&str> = labels.map(|(_, value)| value.as_str()).collect();
                    let count = page.value(&format!("{}_count", spec.name), &labels);
                    assert_eq!(sample.value, count, "{}", spec.name);
                    sums += 1;
                }
            }
        }
        assert!(sums > 0, "{} has no last bucket", spec.name);
    }
}

#[test]
fn the_classic_page_declares_each_family_by_the_name_of_its_samples() {
    let text = Exposition::Classic.of_open_metrics(used_metrics().scrape(&live()));
    let page = Page::read(text);
    let types = page.types();
    for spec in specs() {
        let (end, kind) = match spec.kind {
            MetricKind::Counter => ("_total", "counter"),
            MetricKind::Info => ("_info", "gauge"),
            MetricKind::Gauge => ("", "gauge"),
            MetricKind::Histogram => ("", "histogram"),
        };
        let name = format!("{}{end}", spec.name);
        assert_eq!(types.get(name.as_str()), Some(&kind), "{name}");
        let help = format!("# HELP {name} ");
        assert_eq!(page.text.matches(&help).count(), 1, "{help}");
    }
    let comments = page.text.lines().filter(|line| line.starts_with('#'));
    for comment in comments {
        let is_known = comment.starts_with("# HELP ") || comment.starts_with("# TYPE ");
        assert!(is_known, "{comment} is unknown to the classic format");
    }
}

#[test]
fn both_formats_have_the_same_samples_but_only_one_has_exemplars() {
    let text = used_metrics().scrape(&live());
    let classic = Page::read(Exposition::Classic.of_open_metrics(text.clone()));
    let open = Page::read(text);
    assert!(open.samples.iter().any(|sample| sample.has_exemplar), "{}", open.text);
    let without = |sample: &Sample| Sample { has_exemplar: false, ..sample.clone() };
    let expected: Vec<Sample> = open.samples.iter().map(without).collect();
    assert_eq!(classic.samples, expected);
}

#[test]
fn odd_label_values_stay_one_sample_in_both_formats() {
    for odd in [
        r#"a"b"#,
        r"a\b",
        r"ends with \",
        r#"\""#,
        "two\nlines",
        "} 1 # {",
        r#"",le="1"} 2"#,
        "a,b={c}",
        "ümläut 模型",
        " ",
        "",
    ] {
        let live = Live {
            geo: LiveGeo { countries: vec![(odd.to_owned(), 6)], databases: Vec::new() },
            ..Live::default()
        };
        let metrics = Metrics::new(vec![("version".to_owned(), odd.to_owned())]);
        metrics.record(&Outcome { model: Some(odd.into()), ..stream() }, Money::ZERO);
        let text = metrics.scrape(&live);
        for format in [Exposition::OpenMetrics, Exposition::Classic] {
            let page = Page::read(format.of_open_metrics(text.clone()));
            let countries = page.value("spillway_client_country_requests_total", &[odd]);
            assert_eq!(countries, 6.0, "{odd:?} {format:?}");
            assert_eq!(page.value("spillway_build_info", &[odd]), 1.0, "{odd:?} {format:?}");
            let requests = page.value("spillway_requests_total", &["llm", odd, "200", "complete"]);
            assert_eq!(requests, 1.0, "{odd:?} {format:?}");
            let gaps = page.value("spillway_inter_token_seconds_count", &["llm", odd]);
            assert_eq!(gaps, 1.0, "{odd:?} {format:?}");
        }
    }
}

#[test]
fn only_recorded_traces_are_exemplars() {
    for (trace, expected) in [
        (None, 0),
        (Some(TraceIds { trace: 0xabc, parent: None, span: 1, is_sampled: false }), 0),
        // One bucket of the duration, one of the first token.
        (Some(TraceIds { trace: 0xabc, parent: None, span: 1, is_sampled: true }), 2),
    ] {
        let metrics = Metrics::new(Vec::new());
        metrics.record(&Outcome { trace, ..stream() }, Money::ZERO);
        let page = Page::of(&metrics, &Live::default());
        let exemplars = page.samples.iter().filter(|sample| sample.has_exemplar).count();
        assert_eq!(exemplars, expected, "{trace:?}");
        let id = format!("# {{trace_id=\"{:032x}\"}}", 0xabc);
        assert_eq!(page.text.matches(&id).count(), expected, "the id has all of its digits");
    }
}

#[test]
fn a_node_that_served_nothing_shows_well_formed_zeros() {
    let page = Page::of(&Metrics::new(Vec::new()), &Live::default());
    // An alert on an increase needs the counter before its first event.
    for (name, labels) in [
        ("spillway_config_reloads_total", &["applied"][..]),
        ("spillway_config_reloads_total", &["refused"]),
        ("spillway_outcomes_dropped_total", &[]),
        ("spillway_retries_refused_total", &[]),
        ("spillway_engines_died_total", &[]),
        ("spillway_client_connections", &[]),
        ("spillway_clients_steered_away", &["draining"]),
    ] {
        assert_eq!(page.value(name, labels), 0.0, "{name}");
    }
    for (name, family) in page.types() {
        assert!(name.starts_with("spillway_"), "{name} {family}");
    }
}
