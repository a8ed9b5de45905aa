//! Partition of the cluster into parts without a majority.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use spillway_harness::spawn;
use tokio::time::sleep;

use super::api::{ApiRead, Write};
use super::client::ApiClient;
use super::cluster::TrialCluster;
use super::patience::{LOOK, PATIENCE, patiently};
use super::repeated::Repeated;
use super::report::TrialReport;
use crate::plan::TrialPlan;

/// Parts of the cluster, as indices of the regions in `wans/five.toml`. The first region is an
/// edge.
pub(crate) const PARTS: [&[usize]; 3] = [&[0, 1], &[2, 3], &[4]];
/// Region without a replica. Its requests go to the nearest replica, which stays in the same part.
/// A request in flight across a cut ends with 502: the gateway cannot know if it is being worked
/// on.
pub(crate) const EDGE: usize = 0;
/// Region with a replica of its own.
const LOCAL: usize = 2;
/// Time of measurement before the fault; the next constant is the time during it, several leases.
const BEFORE: Duration = Duration::from_secs(2);
const DURING: Duration = Duration::from_secs(6);
/// Pause between two chat requests.
const REQUEST_GAP: Duration = Duration::from_millis(40);
/// Time for which a region that is cut off may still be sent requests: the default of `silence_ms`.
const SILENCE: Duration = Duration::from_millis(900);
/// Longest time of a write that counts as refused at once.
const AT_ONCE: Duration = Duration::from_millis(300);
/// Length of a lease at the longest round trip of `wans/five.toml`, 250 ms: 3.25 heartbeats of 460
/// ms.
const LEASE_MS: f64 = 1_500.0;
const KEY: &str = "quorum";

#[derive(Debug, Default)]
struct QuorumOutcome {
    refused_ms: Vec<f64>,
    local_ms: [Vec<f64>; 2],
    spilled_ms: [Vec<f64>; 2],
    failed: [usize; 2],
    /// Number of requests that the cut itself broke, in each trial.
    broken: Vec<f64>,
    unlabelled: usize,
    not_refused: usize,
    looked_at: usize,
}

pub(crate) async fn run(
    plan: &TrialPlan,
    cluster: &mut TrialCluster,
) -> anyhow::Result<TrialReport> {
    let mut outcome = QuorumOutcome::default();
    cluster.start_all()?;
    trust_edge(cluster).await?;
    // A settled cluster also knows the replicas of all regions.
    cluster.settled().await?;
    for trial in 1..=plan.trials {
        once(cluster, &mut outcome, plan).await?;
        let last_ms = outcome.refused_ms.last().copied().unwrap_or_default();
        plan.say(&format!("no quorum: {trial} of {}: {last_ms:.0} ms", plan.trials));
    }
    let QuorumOutcome { refused_ms, local_ms, spilled_ms, failed, broken, .. } = outcome;
    let mut report = TrialReport::default();
    report.figure("control writes are refused at once, since the cut", Some(LEASE_MS), refused_ms);
    let served = [&local_ms, &spilled_ms].map(|[before, during]| before.len() + during.len());
    let counts = [served[0] + failed[0], served[1] + failed[1]];
    for (when, [local, spilled]) in ["before", "without a quorum"]
        .into_iter()
        .zip(std::iter::zip(local_ms, spilled_ms).map(|(local, spilled)| [local, spilled]))
    {
        report.figure(format!("local request, {when}"), None, local);
        report.figure(format!("request of an edge, sent to another region, {when}"), None, spilled);
    }
    let what = "requests to a region beyond the cut, in the moment of the cut: 502";
    report.quantity(what, "", None, broken);
    report.check("local requests are served without a quorum", failed[0], counts[0]);
    report.check("spilled requests are served without a quorum", failed[1], counts[1]);
    let looked_at = outcome.looked_at;
    report.check("stale reads say how old they can be", outcome.unlabelled, looked_at);
    report.check("linearizable reads are refused", outcome.not_refused, looked_at);
    Ok(report)
}

/// Lets the edge node give operators' commands. Otherwise it would vote only if fewer than three
/// other nodes could, and the parts are made for five voters.
async fn trust_edge(cluster: &TrialCluster) -> anyhow::Result<()> {
    let (admin, edge) = (&cluster.sites[LOCAL].admin, &cluster.sites[EDGE].name);
    let trusted = async || admin.trust(edge).await.then_some(()).ok_or_else(|| edge.clone());
    patiently("the edge node gets no right", trusted).await
}

async fn once(
    cluster: &mut TrialCluster,
    outcome: &mut QuorumOutcome,
    plan: &TrialPlan,
) -> anyhow::Result<()> {
    // The edge's requests need knowledge of other regions' replicas.
    for node in [LOCAL, EDGE] {
        cluster.sites[node].data.serves().await?;
    }
    let leader = cluster.settled().await?.leader;
    let admin = cluster.sites[leader].admin.clone();
    let written = write(&admin).await;
    anyhow::ensure!(matches!(written, Write::Done(_)), "a write at rest: {written:?}");
    let streams = [LOCAL, EDGE].map(|node| requests(&cluster.sites[node].data));
    // wait: requests are counted for this long
    sleep(BEFORE).await;
    partition(cluster).await?;
    let cut = Instant::now();
    outcome.refused_ms.push(refused_since(&admin, cut).await?.as_secs_f64() * 1e3);
    // wait: requests are counted for this long
    sleep(DURING.saturating_sub(cut.elapsed())).await;
    for site in &cluster.sites {
        outcome.looked_at += 1;
        let age = cut.elapsed();
        match site.admin.read(KEY, "stale").await {
            ApiRead::Value(Some(_), fresh) if fresh.consistency == "stale" => {
                // A stale read must be at least as old as the cut, less half a second.
                let is_old = fresh.age_ms.is_some_and(|ms| u128::from(ms) + 500 >= age.as_millis());
                if !is_old {
                    let (name, age_ms) = (&site.region, fresh.age_ms);
                    let leads = &cluster.sites[leader].region;
                    plan.say(&format!("{name} says {age_ms:?} ms after {age:?}; {leads} led"));
                    outcome.unlabelled += 1;
                }
            }
            other => {
                plan.say(&format!("{}: stale read: {other:?}", site.region));
                outcome.unlabelled += 1;
            }
        }
        let read = site.admin.read(KEY, "linearizable").await;
        outcome.not_refused += usize::from(!matches!(read, ApiRead::Refused(_)));
    }
    let mut broken = 0_u32;
    for (index, stream) in streams.into_iter().enumerate() {
        for (start, result) in stream.end().await {
            let during = usize::from(start > cut);
            let times = if index == 0 { &mut outcome.local_ms } else { &mut outcome.spilled_ms };
            match result {
                Ok(took) => times[during].push(took.as_secs_f64() * 1e3),
                // Sent before the node could know of the cut.
                Err(_) if start < cut + SILENCE => broken += 1,
                Err(why) => {
                    plan.say(&format!("request {index} during {during}: {why}"));
                    outcome.failed[index] += 1;
                }
            }
        }
    }
    outcome.broken.push(f64::from(broken));
    cluster.heal().await
}

/// Cuts each pair of nodes in different parts.
async fn partition(cluster: &TrialCluster) -> anyhow::Result<()> {
    for (index, part) in PARTS.iter().enumerate() {
        for (one, other) in PARTS[index + 1..]
            .iter()
            .copied()
            .flatten()
            .flat_map(|other| part.iter().map(move |one| (*one, *other)))
        {
            cluster.part(one, other).await?;
        }
    }
    Ok(())
}

async fn write(admin: &ApiClient) -> Write {
    admin.write(KEY, fastrand::u64(1..1 << 60), None).await
}

/// Writes until a write is refused at once. Returns the time from `cut` to the start of the first
/// such write.
async fn refused_since(admin: &ApiClient, cut: Instant) -> anyhow::Result<Duration> {
    let refused = Arc::<Mutex<Option<Instant>>>::default();
    loop {
        let (admin, note) = (admin.clone(), Arc::clone(&refused));
        spawn(async move {
            let start = Instant::now();
            let is_refused = matches!(write(&admin).await, Write::Refused(_));
            if is_refused && start.elapsed() < AT_ONCE {
                let mut first = note.lock().unwrap_or_else(PoisonError::into_inner);
                // Writes overlap, so an earlier one may be refused after a later one.
                *first = first.map_or(Some(start), |known| Some(known.min(start)));
            }
        });
        // wait: until the next write
        sleep(LOOK).await;
        if let Some(first) = *refused.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(first.saturating_duration_since(cut));
        }
        anyhow::ensure!(cut.elapsed() < PATIENCE, "writes are not refused without a quorum");
    }
}

/// Start of a request, and its time or error.
type Served = (Instant, Result<Duration, String>);

/// Sends chat requests to one node, one after the other.
fn requests(data: &ApiClient) -> Repeated<Served> {
    let data = data.clone();
    Repeated::start(REQUEST_GAP, move |_| {
        let data = data.clone();
        async move {
            let start = Instant::now();
            (start, data.chat().await.map(|()| start.elapsed()))
        }
    })
}
