//! The metrics page as tests read it, and a node whose every metric has a value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use spillway_types::{
    Admission, End, EstimateReason, GapHistogram, Hedge, Outcome, Prediction, Reading, Shed,
    SignFault, Signals, SplitArm, TokenCounts, TokenEstimate, TraceIds,
};
use spillway_usage::Money;

use crate::{
    LastResort, Live, LiveBudget, LiveCertificates, LiveCluster, LiveConnection, LiveControl,
    LiveDiscovery, LiveDns, LiveDnsRegion, LiveGeo, LiveHealth, LiveHot, LiveItems, LiveKnowledge,
    LiveLimit, LiveOverflow, LivePeer, LiveRegion, LiveRegionModel, LiveReplica, Metrics,
};

/// Samples of a page in OpenMetrics or in the classic format.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) text: String,
    pub(crate) samples: Vec<Sample>,
}

/// One line of values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    /// Labels with their values, unescaped, in the order of the line.
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
    /// True if an exemplar follows.
    pub(crate) has_exemplar: bool,
}

impl Page {
    pub(crate) fn of(metrics: &Metrics, live: &Live) -> Self {
        Self::read(metrics.scrape(live))
    }

    pub(crate) fn read(text: String) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self { samples: lines.map(Sample::read).collect(), text }
    }

    /// Returns the value of the sample with this name and these label values, in their order.
    #[track_caller]
    pub(crate) fn value(&self, name: &str, labels: &[&str]) -> f64 {
        let found = self.find(name, labels);
        found.unwrap_or_else(|| panic!("{name} {labels:?} is missing in\n{}", self.text))
    }

    pub(crate) fn find(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let is_it = |sample: &&Sample| {
            let values = sample.labels.iter().map(|(_, value)| value.as_str());
            sample.name == name && values.eq(labels.iter().copied())
        };
        self.samples.iter().find(is_it).map(|sample| sample.value)
    }

    /// Returns the number of samples with this name.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.samples.iter().filter(|sample| sample.name == name).count()
    }

    /// Returns the names of all samples that have a label of this value.
    pub(crate) fn names_with(&self, value: &str) -> BTreeSet<&str> {
        let has_it = |sample: &&Sample| sample.labels.iter().any(|(_, other)| other == value);
        self.samples.iter().filter(has_it).map(|sample| sample.name.as_str()).collect()
    }

    /// Returns the types that the comments declare, by name.
    pub(crate) fn types(&self) -> BTreeMap<&str, &str> {
        let declared = self.text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let pairs: Vec<_> = declared.filter_map(|line| line.split_once(' ')).collect();
        let types: BTreeMap<&str, &str> = pairs.iter().copied().collect();
        assert_eq!(types.len(), pairs.len(), "a family is declared twice in\n{}", self.text);
        types
    }
}

impl Sample {
    fn read(line: &str) -> Self {
        let end = line.find(['{', ' ']).expect("a name");
        let (name, rest) = line.split_at(end);
        let mut rest = rest.strip_prefix("{}").unwrap_or(rest);
        let mut labels = Vec::new();
        while let Some(label) = rest.strip_prefix(['{', ',']) {
            let (label, value) = label.split_once("=\"").expect("a label with a value");
            let (value, after) = quoted(value);
            labels.push((label.to_owned(), value));
            rest = after.strip_prefix('}').unwrap_or(after);
        }
        let mut words = rest.split_whitespace();
        let value = words.next().and_then(|word| word.parse().ok());
        let value = value.unwrap_or_else(|| panic!("no value in {line}"));
        Self { name: name.to_owned(), labels, value, has_exemplar: words.next() == Some("#") }
    }
}

/// Reads a label's value up to its quote. Returns the value and what follows it.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => match letters.next().map(|(_, letter)| letter) {
                Some('n') => value.push('\n'),
                Some(letter @ ('\\' | '"')) => value.push(letter),
                other => panic!("an unknown escape {other:?} in {text}"),
            },
            '\n' => panic!("a label's value breaks the line: {text}"),
            letter => value.push(letter),
        }
    }
    panic!("no end of {text}")
}

/// A stream that succeeded, with a recorded trace.
pub(crate) fn stream() -> Outcome {
    let mut gaps = GapHistogram::default();
    gaps.record(Duration::from_millis(3));
    Outcome {
        trace: Some(TraceIds { trace: 0xabc, parent: None, span: 1, is_sampled: true }),
        route: Some("llm".into()),
        model: Some("tiny".into()),
        tenant: Some("acme".into()),
        replica: Some("a".into()),
        reason: Some("soonest"),
        status: 200,
        end: End::Complete,
        duration: Duration::from_millis(20),
        is_stream: true,
        first_byte: Some(Duration::from_millis(5)),
        reply_time: Some(Duration::from_millis(4)),
        overhead: Duration::from_micros(80),
        tokens: TokenCounts { prompt: 7, completion: 2, cached: 3 },
        gaps: Some(Box::new(gaps)),
        ..Outcome::begun()
    }
}

/// Metrics after requests and events of every kind.
pub(crate) fn used_metrics() -> Metrics {
    let metrics = Metrics::new(vec![
        ("version".to_owned(), "1".to_owned()),
        ("node".to_owned(), "n1".to_owned()),
        ("region".to_owned(), "eu".to_owned()),
    ]);
    let arm = Some(Arc::new(SplitArm { split: "chat".into(), arm: "canary".into() }));
    let estimate = Some(TokenEstimate { tokens: 2, reason: EstimateReason::EarlyEnd });
    let shed = Some(Shed { reason: "queue_full", priority: 2 });
    for outcome in [
        Outcome { arm, predicted: Some(Prediction::default()), ..stream() },
        Outcome { is_stream: false, gaps: None, retries_unsent: 1, ..stream() },
        Outcome { fallback_for: Some("huge".into()), is_guest: true, ..stream() },
        Outcome { estimate, hedge: Some(Hedge::Won), ..stream() },
        Outcome { shed, status: 503, end: End::CancelledBeforeReply, ..stream() },
    ] {
        metrics.record(&outcome, Money::of_millionths(5));
    }
    metrics
        .record_overflow(&Outcome { overflow: Some("full"), ..stream() }, Money::of_millionths(5));
    metrics.record_reload(true);
    metrics.record_geo_reload(false);
    metrics.record_transition("a", "ejected", "errors");
    metrics.record_fault("a", SignFault::Cut);
    metrics.record_check("a", "active", "ok");
    metrics
}

/// Live values of a node with one of everything.
pub(crate) fn live() -> Live {
    Live {
        replicas: vec![replica("a")],
        ahead_replies: [("begun", 2), ("full", 1)],
        streams_closed: [("stalled", 1)],
        lines_lost: [("access", 1), ("node", 0)],
        spans: [("sent", 1), ("lost", 0)],
        connections_closed: vec![("idle", 1)],
        access: vec![("acme".to_owned(), "admitted", 3)],
        residency: vec![("entry", 1)],
        responses_not_kept: vec![("full", 1)],
        home_news_dropped: vec![("link", 1)],
        home_changes: vec![("session", "replica", 1)],
        continuations: vec![("continued", "cut", 1)],
        memory: vec![("used", 1)],
        last_resorts: vec![LastResort {
            route: "llm".to_owned(),
            model: "tiny".to_owned(),
            admission: Admission::Down,
        }],
        waiting: vec![("tiny".to_owned(), 2)],
        cluster: cluster(),
        dns: Some(name_server()),
        discoveries: vec![LiveDiscovery {
            name: "k8s".to_owned(),
            phases: vec![("working", true)],
            replicas: 3,
            answer_age_s: Some(0.5),
        }],
        knowledge: LiveKnowledge {
            forgotten: vec![("room", 1)],
            kv_replicas: vec![("live", 1)],
            shared: vec![("told", 1)],
            ..LiveKnowledge::default()
        },
        hot: Some(LiveHot {
            blocks: vec![("us".to_owned(), 1)],
            proposals: vec![("applied", 1)],
            ..LiveHot::default()
        }),
        geo: LiveGeo { countries: vec![("DE".to_owned(), 1)], databases: vec![("place", 1)] },
        limits: vec![LiveLimit {
            limit: "global".to_owned(),
            kind: "concurrency",
            share: 5,
            used: 1,
            debt: 0,
        }],
        budgets: vec![LiveBudget { tenant: "acme".to_owned(), period: "day", used: 0.5 }],
        overflow: vec![LiveOverflow {
            replica: "hosted".to_owned(),
            kept: vec![("share", 1)],
            budgets: vec![("day", 0.5)],
        }],
        certificates: LiveCertificates {
            authorities: vec![("0123456789abcdef".to_owned(), 9)],
            listeners: vec![("admin".to_owned(), 9)],
        },
        health: LiveHealth { state: "healthy", problems: vec![("disk", 0)] },
        ..Live::default()
    }
}

pub(crate) fn replica(name: &str) -> LiveReplica {
    let reading = Reading { value: 2.0, trust: 0.5 };
    LiveReplica {
        name: name.to_owned(),
        in_flight: 1,
        concurrency_limit: Some(8),
        connections: 2,
        unasked: 3,
        admission: Admission::Open,
        ramp_permille: 500,
        signals: Signals {
            latency_ms: reading,
            p99_ms: reading,
            queued: reading,
            ..Signals::UNKNOWN
        },
        breakers: 1,
        models_missing: 1,
    }
}

pub(crate) fn region(name: &str) -> LiveRegion {
    LiveRegion {
        name: name.to_owned(),
        is_reachable: true,
        takes_clients: true,
        rtt_s: 0.1,
        age_s: 0.2,
        ramp_permille: 250,
        is_broken: false,
        models: vec![LiveRegionModel {
            model: "tiny".to_owned(),
            in_flight: 1,
            sent: 10,
            refused: 2,
            broken: 3,
        }],
    }
}

pub(crate) fn peer(name: &str) -> LivePeer {
    let connection =
        |kind, is_connected| LiveConnection { kind, is_connected, rtt_s: 0.01, dials_failed: 4 };
    LivePeer {
        name: name.to_owned(),
        region: "us".to_owned(),
        connections: vec![connection("control", true), connection("data", false)],
    }
}

pub(crate) fn control() -> LiveControl {
    LiveControl {
        role: "leader",
        term: 3,
        applied_index: 10,
        last_index: 12,
        age_s: 0.5,
        troubles: vec![("disk_slow", 1)],
        voters: 3,
        log_bytes: 100,
        disk_waiting_s: 0.25,
        disk_writes: 7,
        disk_write_s: 1.5,
        items: vec![LiveItems { kind: "model", outcome: "used", count: 2 }],
    }
}

fn cluster() -> LiveCluster {
    LiveCluster {
        regions: vec![region("us")],
        peers: vec![peer("n2")],
        refusals: vec![("version", 1)],
        datagrams: vec![("sent", 5)],
        datagram_bytes: 100,
        strangers: 1,
        certificate_expires_s: Some(9),
        authorities: 1,
        control: Some(control()),
    }
}

fn name_server() -> LiveDns {
    LiveDns {
        queries: vec![("udp", "A", 5)],
        answers: vec![("region", 4)],
        regions: vec![LiveDnsRegion { name: "us".to_owned(), is_offered: true, answers: 4 }],
        connections: 1,
        connections_refused: 2,
    }
}
