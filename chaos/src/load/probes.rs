//! Probes of health, metrics and the admin API while requests pile up.

use spillway_harness::{LoadGenerator, LoadRecord, LoadRequest, LoadSource, good_ms};

use super::stage::LoadStage;

/// Probes a second of each path, however long each takes.
const RATE: f64 = 10.0;
/// Paths to probe: on the port of clients, and on the admin port.
const ON_DATA: [&str; 2] = ["/livez", "/v1/models"];
const ON_ADMIN: [&str; 3] = ["/readyz", "/replicas", "/metrics"];

/// Running probes of all paths. Dropping it ends them.
pub(crate) struct EndpointProbes(Vec<(&'static str, LoadGenerator)>);

/// Result of the probes.
pub(crate) struct Looks {
    /// Path with the longest times.
    pub(crate) slowest: &'static str,
    /// p99 of its answers in milliseconds; NaN if a path gave none.
    pub(crate) p99_ms: f64,
    /// Number of probes, of all paths, without a 200.
    pub(crate) failed: usize,
    pub(crate) count: usize,
}

impl EndpointProbes {
    pub(crate) fn start(stage: &LoadStage, seed: u64) -> Self {
        let data = ON_DATA.map(|path| (path, &stage.data));
        let admin = ON_ADMIN.map(|path| (path, &stage.admin));
        let open = |(index, (path, client))| {
            let source = LoadSource::new(move |_| LoadRequest::get(path));
            (path, LoadGenerator::open(client, source, RATE, seed + index))
        };
        // Seeds of their own, apart from that of the load.
        Self((100..).zip(data.into_iter().chain(admin)).map(open).collect())
    }

    /// Waits for the probes under way and returns the result.
    pub(crate) async fn end(self) -> Looks {
        let mut probes = Vec::new();
        for (path, load) in self.0 {
            probes.push((path, load.end(LoadRequest::get("").patience).await));
        }
        looks(&probes)
    }
}

fn looks(probes: &[(&'static str, Vec<LoadRecord>)]) -> Looks {
    let times = probes.iter().map(|(path, records)| {
        (*path, good_ms(records.iter().flat_map(|record| &record.attempts), 0.99))
    });
    // NaN is above all numbers in this order, so a path without an answer is the slowest.
    let slowest = times.max_by(|one, other| one.1.total_cmp(&other.1));
    let (slowest, p99_ms) = slowest.unwrap_or(("", f64::NAN));
    let records = || probes.iter().flat_map(|(_, records)| records);
    let failed = records().filter(|record| !record.is_good()).count();
    Looks { slowest, p99_ms, failed, count: records().count() }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use spillway_harness::{AttemptEnd, LoadAttempt, LoadReply};

    use super::*;

    fn records(count: u64, status: u16, ms: u64) -> Vec<LoadRecord> {
        let due = Instant::now();
        let end = AttemptEnd::Whole(LoadReply { status, ..LoadReply::default() });
        let attempt = LoadAttempt {
            ended: due + Duration::from_millis(ms),
            ..LoadAttempt::at_once(due, end)
        };
        (0..count).map(|number| LoadRecord { number, attempts: vec![attempt.clone()] }).collect()
    }

    #[test]
    fn one_slow_path_among_quick_ones_is_seen() {
        let seen =
            looks(&[("/livez", records(1_000, 200, 1)), ("/metrics", records(4, 200, 4_000))]);
        assert_eq!((seen.slowest, seen.failed, seen.count), ("/metrics", 0, 1_004));
        assert!((seen.p99_ms - 4_000.0).abs() < 1e-6);
    }

    #[test]
    fn a_path_without_an_answer_has_no_time() {
        let seen = looks(&[("/livez", records(9, 200, 1)), ("/metrics", records(4, 503, 1))]);
        assert_eq!((seen.slowest, seen.failed), ("/metrics", 4));
        assert!(seen.p99_ms.is_nan());
    }
}
