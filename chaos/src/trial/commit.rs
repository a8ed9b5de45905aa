//! Measures the time of a commit, and commits a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spillway_harness::spawn;
use tokio::time::sleep;

use super::api::Write;
use super::client::ApiClient;
use super::cluster::TrialCluster;
use super::report::TrialReport;
use crate::plan::TrialPlan;

/// Writes for each trial, one after the other.
const ONE_BY_ONE: usize = 5;
/// Writes in flight at once.
const IN_FLIGHT: usize = 64;
/// Commits a second to reach if a majority is within 80 ms.
const RATE_AIM: f64 = 300.0;
/// Largest time of a commit, as a multiple of one round trip. The rest is for disk and processor; a
/// second round trip would exceed it.
const ONE_ROUND: f64 = 1.5;

pub(crate) async fn run(
    plan: &TrialPlan,
    cluster: &mut TrialCluster,
) -> anyhow::Result<TrialReport> {
    let mut report = TrialReport::default();
    cluster.start_all()?;
    for leader in cluster.all() {
        cluster.led_by(leader).await?;
        let region = cluster.region(leader);
        let nearest_ms = nearest_majority_ms(cluster, leader);
        let admin = cluster.sites[leader].admin.clone();
        let times = one_by_one(&admin, plan.trials * ONE_BY_ONE).await?;
        let what = format!("commit, one at a time, {region} leads (majority at {nearest_ms} ms)");
        report.figure(what, Some(f64::from(nearest_ms) * ONE_ROUND), times);
        let values = at_once(&admin, plan.trials).await;
        let what = format!("commits a second, {IN_FLIGHT} in flight, {region} leads");
        let aim = (nearest_ms <= 80).then_some(RATE_AIM);
        report.rate(what, "/s", aim, values);
        plan.say(&format!("{region} measured"));
    }
    Ok(report)
}

/// Returns the round trip in milliseconds within which a majority, the leader included, can answer.
fn nearest_majority_ms(cluster: &TrialCluster, leader: usize) -> u32 {
    let mut rtts: Vec<u32> = cluster.sites[leader].rtts_ms.iter().map(|(_, ms)| *ms).collect();
    rtts.sort_unstable();
    // The leader counts too, so a majority needs half of the nodes besides it, rounded down.
    let others = cluster.sites.len() / 2;
    rtts.get(others.saturating_sub(1)).copied().unwrap_or(0)
}

async fn one_by_one(admin: &ApiClient, writes: usize) -> anyhow::Result<Vec<f64>> {
    let mut times_ms = Vec::new();
    for value in 0..writes {
        let start = Instant::now();
        let written = admin.write("one", value as u64 + 1, None).await;
        let elapsed_ms = start.elapsed().as_secs_f64() * 1e3;
        // The first value may be there already, which makes the write a conflict.
        anyhow::ensure!(matches!(written, Write::Done(_)) || value == 0, "a write: {written:?}");
        times_ms.push(elapsed_ms);
    }
    Ok(times_ms)
}

/// Counts the commits in each of `seconds` seconds.
async fn at_once(admin: &ApiClient, seconds: usize) -> Vec<f64> {
    let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (0..IN_FLIGHT)
        .map(|writer| {
            let (admin, count, stop) = (admin.clone(), Arc::clone(&count), Arc::clone(&stop));
            spawn(async move {
                let key = format!("many-{writer}");
                // A random start, so that each write changes the value.
                for value in fastrand::u32(..).into().. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    if let Write::Done(_) = admin.write(&key, value, None).await {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    // wait: until all writers have begun; this time does not count
    sleep(Duration::from_secs(1)).await;
    let mut rates = Vec::new();
    for _ in 0..seconds {
        let (start, before) = (Instant::now(), count.load(Ordering::Relaxed));
        // wait: commits are counted for this long
        sleep(Duration::from_secs(1)).await;
        let done = count.load(Ordering::Relaxed) - before;
        rates.push(done as f64 / start.elapsed().as_secs_f64());
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        drop(writer.await);
    }
    rates
}
