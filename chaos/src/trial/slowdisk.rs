//! A node's disk takes half a second longer for each force (fsync): `slow/force.c` is preloaded
//! before the C library and waits.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::client_stream::ClientStream;
use super::cluster::TrialCluster;
use super::crash::{Promises, collected, is_kept, read, write};
use super::plan::TrialPlan;
use super::report::TrialReport;
use super::task::spawn;

/// Extra time of each force.
pub(crate) const DELAY: Duration = Duration::from_millis(500);
/// Time of measurement before the disk is slow; the next constant is the time while it is.
const BEFORE: Duration = Duration::from_secs(2);
const DURING: Duration = Duration::from_secs(5);
/// Pause between two chat requests; the next constant is their time limit, longer than one ever
/// takes.
const REQUEST_GAP: Duration = Duration::from_millis(20);
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// Margin for a busy machine: half of one force. A request that waits for the slow disk takes
/// longer.
const ROOM_MS: f64 = 250.0;
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
    cluster.start_all_with_slow_disks()?;
    let before = cluster.settled().await?;
    let others = cluster.others(before.leader);
    let slow = match whose {
        Whose::Follower => others[trial % others.len()],
        Whose::Leader => before.leader,
    };
    let fast = requests(cluster, slow, BEFORE).await;
    outcome.request_ms[0].extend(fast.into_iter().flatten());
    cluster.slow_disk(slow)?.set(DELAY)?;
    outcome.aim_ms = outcome.aim_ms.max(commit_ms(cluster, before.leader, slow) + ROOM_MS);
    let forces = cluster.slow_disk(slow)?.forces();
    let flows: Vec<ClientStream> = cluster
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
    for (node, flow) in flows.iter().enumerate() {
        let notes = flow.notes();
        outcome.writes += notes.len();
        outcome.writes_failed += notes.iter().filter(|note| !note.is_done()).count();
        if node == before.leader {
            let took = notes.iter().map(|note| (note.end - note.start).as_secs_f64() * 1e3);
            outcome.commit_ms.extend(took);
        }
    }
    drop(flows);
    let forces = cluster.slow_disk(slow)?.forces() - forces;
    anyhow::ensure!(forces >= FORCES_MIN, "its disk was slow only {forces} times");
    outcome.requests_failed += during.iter().filter(|took| took.is_none()).count();
    outcome.request_ms[1].extend(during.into_iter().flatten());
    // The kill comes while the slow disk still has something to write.
    cluster.kill_all()?;
    let promises = collected(writers).await;
    cluster.start_all_with_slow_disks()?;
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
        let served = data.chat(REQUEST_LIMIT).await.ok();
        times_ms.push(served.map(|()| sent.elapsed().as_secs_f64() * 1e3));
        // wait: until the next request
        sleep(REQUEST_GAP).await;
    }
    times_ms
}

/// Source of the library that is preloaded before the C library.
const FORCE: &str = include_str!("../../slow/force.c");

/// Disk of a program, which can be made slow while the program runs.
#[derive(Debug)]
pub(crate) struct SlowDisk {
    library: PathBuf,
    delay: PathBuf,
    log: PathBuf,
}

impl SlowDisk {
    /// Compiles the library. Its files, named after `name`, are in `folder`.
    pub(crate) fn new(folder: &Path, name: &str) -> anyhow::Result<Self> {
        let at = |ending| folder.join(format!("{name}.{ending}"));
        let (source, library) = (at("force.c"), at("force.so"));
        std::fs::write(&source, FORCE).context("write the library's source")?;
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&library).arg(&source);
        let output = compiler.output().context("run cc, the C compiler")?;
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "cc: {said}");
        let disk = Self { library, delay: at("force_ms"), log: at("forces") };
        disk.set(Duration::ZERO)?;
        Ok(disk)
    }

    /// Sets the extra time of each force from now on.
    pub(crate) fn set(&self, delay: Duration) -> anyhow::Result<()> {
        // A rename replaces the file in one step: the library reads it at any moment.
        let new = self.delay.with_extension("new");
        std::fs::write(&new, delay.as_millis().to_string()).context("write a delay")?;
        std::fs::rename(&new, &self.delay).context("name a delay")
    }

    /// Returns the arguments of `env` to put before a program; `env` keeps the process id.
    pub(crate) fn words(&self) -> Vec<String> {
        vec![
            format!("LD_PRELOAD={}", self.library.display()),
            format!("CHAOS_FORCE_MS={}", self.delay.display()),
            format!("CHAOS_FORCE_LOG={}", self.log.display()),
        ]
    }

    /// Returns the number of forces that were delayed so far.
    pub(crate) fn forces(&self) -> usize {
        std::fs::metadata(&self.log)
            .map_or(0, |file| usize::try_from(file.len()).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_a_slow_disk_takes_that_much_longer_for_each_force() {
        let folder = tempfile::tempdir().unwrap();
        let slow = SlowDisk::new(folder.path(), "dd").unwrap();
        for (conversion, delay_ms, forces) in
            [("fsync", 0, 0), ("notrunc", 200, 0), ("fsync", 200, 1), ("fdatasync", 200, 2)]
        {
            slow.set(Duration::from_millis(delay_ms)).unwrap();
            let mut command = Command::new("env");
            command.args(slow.words()).args(["dd", "if=/dev/zero", "count=1"]);
            let file = folder.path().join("file");
            command.arg(format!("of={}", file.display())).arg(format!("conv={conversion}"));
            let start = Instant::now();
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let took = start.elapsed();
            assert!(slow.forces() == 0 || took >= Duration::from_millis(200), "{took:?}");
            assert_eq!(slow.forces(), forces, "{conversion}");
        }
    }
}
