//! A node's disk takes a second and a half longer for each force (fsync): `slow/force.c` is preloaded
//! before the C library and waits.

use std::time::{Duration, Instant};

use spillway_harness::spawn;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::client_stream::ClientStream;
use super::cluster::TrialCluster;
use super::crash::{Promises, collected, is_kept, read, write};
use super::report::TrialReport;
use crate::plan::TrialPlan;

/// Extra time of each force.
pub(crate) const DELAY: Duration = Duration::from_millis(1500);
/// Time of measurement before the disk is slow; the next constant is the time while it is.
const BEFORE: Duration = Duration::from_secs(2);
const DURING: Duration = Duration::from_secs(8);
/// Pause between two chat requests.
const REQUEST_GAP: Duration = Duration::from_millis(20);
/// Margin for a busy machine: half of one force. A request that waits for the slow disk takes
/// longer.
const ROOM_MS: f64 = 750.0;
/// Fewest forces in `DURING` that prove a slow disk, which does about one after the other.
const FORCES_MIN: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Follower,
    Leader,
}

/// Results of all trials.
#[derive(Debug, Default)]
struct SlowDiskOutcome {
    commit_ms: Vec<f64>,
    aim_ms: f64,
    request_ms: [Vec<f64>; 2],
    requests_failed: usize,
    writes: usize,
    writes_failed: usize,
    terms_changed: usize,
    promised: usize,
    lost: usize,
}

pub(crate) async fn run(
    plan: &TrialPlan,
    cluster: &mut TrialCluster,
) -> anyhow::Result<TrialReport> {
    let mut report = TrialReport::default();
    for whose in [Whose::Follower, Whose::Leader] {
        let mut outcome = SlowDiskOutcome::default();
        for trial in 1..=plan.trials {
            once(plan, cluster, whose, trial, &mut outcome).await?;
            plan.say(&format!("slow disk of a {whose:?}: {trial} of {}", plan.trials));
        }
        add(&mut report, whose, outcome, plan.trials);
    }
    Ok(report)
}

fn add(report: &mut TrialReport, whose: Whose, outcome: SlowDiskOutcome, trials: usize) {
    let whose = match whose {
        Whose::Follower => "a follower's",
        Whose::Leader => "the leader's",
    };
    let SlowDiskOutcome { aim_ms, request_ms: [before, during], .. } = outcome;
    let requests = during.len() + outcome.requests_failed;
    report.figure(
        format!("commit at the leader, {whose} disk is slow"),
        Some(aim_ms),
        outcome.commit_ms,
    );
    report.figure(format!("local request before {whose} disk is slow"), None, before);
    let what = format!("local request at the node, {whose} disk is slow");
    report.figure(what, Some(ROOM_MS), during);
    let mut check =
        |what: &str, wrong, of| report.check(format!("{whose} disk: {what}"), wrong, of);
    check("requests at the node are served", outcome.requests_failed, requests);
    check("writes go on at every node", outcome.writes_failed, outcome.writes);
    check("term unchanged", outcome.terms_changed, trials);
    check("no acknowledged write is lost by a kill -9 of all", outcome.lost, outcome.promised);
}

async fn once(
    plan: &TrialPlan,
    cluster: &mut TrialCluster,
    whose: Whose,
    trial: usize,
    outcome: &mut SlowDiskOutcome,
) -> anyhow::Result<()> {
    cluster.start_all_with_disk_delays()?;
    let before = cluster.settled().await?;
    let others = cluster.others(before.leader);
    let slow = match whose {
        Whose::Follower => others[trial % others.len()],
        Whose::Leader => before.leader,
    };
    let fast = requests(cluster, slow, BEFORE).await;
    outcome.request_ms[0].extend(fast.into_iter().flatten());
    cluster.disk_delay(slow)?.set(DELAY)?;
    outcome.aim_ms = outcome.aim_ms.max(commit_ms(cluster, before.leader, slow) + ROOM_MS);
    let forces = cluster.disk_delay(slow)?.forces();
    let streams: Vec<ClientStream> = cluster
        .all()
        .map(|node| ClientStream::start(&cluster.sites[node].admin, format!("slow-{node}")))
        .collect();
    let first = trial as u64 * 1_000_000;
    let writers: Vec<JoinHandle<Promises>> = cluster
        .all()
        .map(|node| spawn(write(cluster.sites[node].admin.clone(), node, first)))
        .collect();
    let during = requests(cluster, slow, DURING).await;
    let term = cluster.statuses().await.iter().flatten().map(|it| it.term).max();
    outcome.terms_changed += usize::from(term != Some(before.term));
    for (node, stream) in streams.iter().enumerate() {
        let notes = stream.notes();
        outcome.writes += notes.len();
        outcome.writes_failed += notes.iter().filter(|note| !note.is_done()).count();
        if node == before.leader {
            let took = notes.iter().map(|note| (note.end - note.start).as_secs_f64() * 1e3);
            outcome.commit_ms.extend(took);
        }
    }
    drop(streams);
    let forces = cluster.disk_delay(slow)?.forces() - forces;
    // Without slow writes the trial shows nothing.
    anyhow::ensure!(forces >= FORCES_MIN, "its disk was slow only {forces} times");
    outcome.requests_failed += during.iter().filter(|took| took.is_none()).count();
    outcome.request_ms[1].extend(during.into_iter().flatten());
    // The kill comes while the slow disk still has something to write.
    cluster.kill_all()?;
    let promises = collected(writers).await;
    cluster.start_all_with_disk_delays()?;
    let leader = cluster.settled().await?.leader;
    for (key, promise) in promises {
        let Some(promised) = promise.promised else { continue };
        outcome.promised += 1;
        let read = read(&cluster.sites[leader].admin, &key).await?;
        if !is_kept(&read, promise, promised) {
            outcome.lost += 1;
            plan.say(&format!("LOST: {key}: {promise:?}, found {read:?}"));
        }
    }
    Ok(())
}

/// Returns the milliseconds of a commit with the slow disk: a majority must have it on disk, and
/// the leader's own disk counts as one.
fn commit_ms(cluster: &TrialCluster, leader: usize, slow: usize) -> f64 {
    let delay_ms = |node| if node == slow { DELAY.as_secs_f64() * 1e3 } else { 0.0 };
    let site = &cluster.sites[leader];
    let mut times_ms = vec![delay_ms(leader)];
    for (node, other) in cluster.sites.iter().enumerate() {
        let rtt_ms = site.rtts_ms.iter().find(|(region, _)| *region == other.region);
        times_ms.extend(rtt_ms.map(|(_, ms)| f64::from(*ms) + delay_ms(node)));
    }
    times_ms.sort_by(f64::total_cmp);
    // The time by which a majority has the entry on disk.
    times_ms[times_ms.len() / 2]
}

/// Sends requests to a node's own replica for the time `long`, one after the other. Returns their
/// times in milliseconds; `None` for a failure.
async fn requests(cluster: &TrialCluster, node: usize, long: Duration) -> Vec<Option<f64>> {
    let data = &cluster.sites[node].data;
    let start = Instant::now();
    let mut times_ms = Vec::new();
    while start.elapsed() < long {
        let sent = Instant::now();
        let served = data.chat().await.ok();
        times_ms.push(served.map(|()| sent.elapsed().as_secs_f64() * 1e3));
        // wait: until the next request
        sleep(REQUEST_GAP).await;
    }
    times_ms
}
