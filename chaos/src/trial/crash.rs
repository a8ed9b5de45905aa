//! All nodes are killed at once, at a random moment, while they take writes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use spillway_harness::spawn;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::api::{ApiRead, Write};
use super::client::ApiClient;
use super::cluster::TrialCluster;
use super::patience::patiently;
use super::report::TrialReport;
use crate::plan::TrialPlan;

/// Writers at each node, each with keys of its own.
const WRITERS: usize = 4;
/// Number of keys of one writer.
const KEYS: u64 = 5;
/// Range of the time for which they write, in milliseconds.
const WRITING_MS: std::ops::Range<u64> = 300..2_500;

/// Acknowledged and sent values of a writer, by key.
pub(super) type Promises = BTreeMap<String, CrashPromise>;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CrashPromise {
    pub(super) promised: Option<(u64, u64)>,
    sent: u64,
}

pub(crate) async fn run(
    plan: &TrialPlan,
    cluster: &mut TrialCluster,
) -> anyhow::Result<TrialReport> {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let (mut lost, mut promised, mut times_ms) = (0, 0, Vec::new());
    for trial in 1..=plan.trials {
        cluster.start_all()?;
        cluster.settled().await?;
        let first = trial as u64 * 1_000_000;
        let writer = |number: usize| {
            let admin = cluster.sites[number % cluster.sites.len()].admin.clone();
            spawn(write(admin, number, first))
        };
        let writers: Vec<_> = (0..WRITERS * cluster.sites.len()).map(writer).collect();
        // wait: writes are under way, at a random stage
        sleep(Duration::from_millis(random.u64(WRITING_MS))).await;
        cluster.kill_all()?;
        let promises = collected(writers).await;
        let start = Instant::now();
        cluster.start_all()?;
        cluster.settled().await?;
        times_ms.push(start.elapsed().as_secs_f64() * 1e3);
        let admin = &cluster.sites[random.usize(..cluster.sites.len())].admin;
        for (key, promise) in promises {
            // No write of this key was acknowledged, so none can be lost.
            let Some((value, version)) = promise.promised else { continue };
            promised += 1;
            if !is_kept(&read(admin, &key).await?, promise, (value, version)) {
                lost += 1;
                plan.say(&format!("LOST: {key} had {value} at {version}"));
            }
        }
        plan.say(&format!("crash: {trial} of {}: {promised} values looked at", plan.trials));
    }
    let mut report = TrialReport::default();
    report.figure("kill -9 of all nodes until every node takes writes again", None, times_ms);
    report.check("no acknowledged write is lost by a kill -9 of all nodes", lost, promised);
    Ok(report)
}

/// Writes until the node is gone.
pub(super) async fn write(admin: ApiClient, writer: usize, first: u64) -> Promises {
    let mut promises = Promises::new();
    for value in first.. {
        let key = format!("w{writer}-{}", value % KEYS);
        let promise = promises.entry(key.clone()).or_default();
        promise.sent = value;
        match admin.write(&key, value, None).await {
            Write::Done(version) => promise.promised = Some((value, version)),
            // The node is gone, or soon will be: its writer ends with it.
            Write::Refused(_) | Write::Conflict | Write::Unknown => break,
        }
    }
    promises
}

pub(super) async fn collected(writers: Vec<JoinHandle<Promises>>) -> Promises {
    let mut all = Promises::new();
    for writer in writers {
        all.extend(writer.await.unwrap_or_default());
    }
    all
}

/// Reads a value, and tries again while the node cannot answer, as during an election after a
/// start.
pub(super) async fn read(admin: &ApiClient, key: &str) -> anyhow::Result<ApiRead> {
    let look = async || match admin.read(key, "linearizable").await {
        ApiRead::Refused(why) => Err(why),
        read @ ApiRead::Value(..) => Ok(read),
    };
    patiently("a read is refused", look).await
}

/// Returns true if the read found the acknowledged value, or one that was sent after it.
pub(super) fn is_kept(read: &ApiRead, promise: CrashPromise, (value, version): (u64, u64)) -> bool {
    let ApiRead::Value(Some((found, found_version)), _) = *read else { return false };
    let is_promised = (found, found_version) == (value, version);
    // The last write may have taken effect without an answer.
    is_promised || (found == promise.sent && found > value && found_version > version)
}

#[cfg(test)]
mod tests {
    use super::super::api::Freshness;
    use super::*;

    #[test]
    fn only_the_promise_or_what_was_sent_after_it_counts() {
        let promise = CrashPromise { promised: Some((5, 50)), sent: 6 };
        let kept = |found| {
            let read = ApiRead::Value(found, Freshness::default());
            is_kept(&read, promise, (5, 50))
        };
        assert!(kept(Some((5, 50))));
        assert!(kept(Some((6, 51))));
        assert!(!kept(Some((4, 40))));
        assert!(!kept(Some((6, 49))));
        assert!(!kept(Some((7, 70))));
        assert!(!kept(None));
    }
}
