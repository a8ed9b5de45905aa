//! Two regions join a cluster by token and are removed again, under load.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::api::{Status, Write};
use super::client::ApiClient;
use super::cluster::{LOOK, PATIENCE, TrialCluster};
use super::plan::TrialPlan;
use super::report::{Figure, TrialReport};
use super::task::spawn;

/// Number of regions that join.
const JOINERS: usize = 2;
/// Pause between two steps, so that each step meets some load.
const DWELL: Duration = Duration::from_secs(2);
/// Pause between two requests of one flow.
const GAP: Duration = Duration::from_millis(40);
/// Pause before the retry of a failed write.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Time limit of a chat request, longer than a local one ever takes.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(13);

/// Results of all trials.
#[derive(Debug, Default)]
struct GrowOutcome {
    join_ms: Vec<f64>,
    evacuate_ms: Vec<f64>,
    leave_ms: Vec<f64>,
    write_pause_ms: Vec<f64>,
    /// Number of writes that needed a retry, in each trial.
    retries: Vec<f64>,
    requests: Count,
    writes: Count,
    retried: usize,
    alone: Count,
}

/// Failures among a number of attempts.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    wrong: usize,
    of: usize,
}

impl Count {
    fn add(&mut self, is_wrong: bool) {
        self.of += 1;
        self.wrong += usize::from(is_wrong);
    }
}

pub(crate) async fn run(
    plan: &TrialPlan,
    cluster: &mut TrialCluster,
) -> anyhow::Result<TrialReport> {
    let (mut outcome, mut retried) = (GrowOutcome::default(), 0);
    cluster.let_join(JOINERS)?;
    for trial in 1..=plan.trials {
        once(plan, cluster, &mut outcome).await.with_context(|| format!("trial {trial}"))?;
        let before = std::mem::replace(&mut retried, outcome.retried);
        outcome.retries.push((outcome.retried - before) as f64);
        let last = |values: &[f64]| values.last().copied().unwrap_or_default();
        let (join, leave) = (last(&outcome.join_ms), last(&outcome.leave_ms));
        plan.say(&format!(
            "grow: {trial} of {}: joined in {join:.0} ms, left in {leave:.0} ms, {} writes retried",
            plan.trials, outcome.retried
        ));
    }
    let GrowOutcome { requests, writes, alone, .. } = outcome;
    let mut report = TrialReport::default();
    report.figure("two new nodes start until both vote", None, outcome.join_ms);
    report.figure(
        "a region that leads is evacuated until it has no vote",
        None,
        outcome.evacuate_ms,
    );
    report.figure("a region and a voter removed until they are no members", None, outcome.leave_ms);
    report.figure("longest pause of writes at any node", None, outcome.write_pause_ms);
    report.figures.push(Figure {
        what: "writes that needed a retry".to_owned(),
        unit: "",
        aim: None,
        is_rate: false,
        values: outcome.retries,
    });
    report.check(
        "local requests are served while nodes join and leave",
        requests.wrong,
        requests.of,
    );
    report.check("a write fails no more than once", writes.wrong, writes.of);
    report.check("removed nodes stop taking part and serve their own", alone.wrong, alone.of);
    Ok(report)
}

async fn once(
    plan: &TrialPlan,
    cluster: &mut TrialCluster,
    outcome: &mut GrowOutcome,
) -> anyhow::Result<()> {
    cluster.wipe()?;
    let founders: Vec<usize> = cluster.all().take(cluster.all().len() - JOINERS).collect();
    let joiners: Vec<usize> = cluster.all().skip(founders.len()).collect();
    for node in &founders {
        cluster.start(*node)?;
    }
    until(cluster, &founders, |all| all.iter().all(|status| status.voters == founders.len()))
        .await?;
    let mut flows = Vec::new();
    for node in &founders {
        served(&cluster.sites[*node].data).await?;
        taken(&cluster.sites[*node].admin).await?;
        flows.push(GrowWork::start(&cluster.sites[*node]));
    }
    // wait: load is under way
    sleep(DWELL).await;

    let start = Instant::now();
    for node in &joiners {
        let token = join_token(&cluster.sites[founders[0]].admin, &cluster.region(*node)).await?;
        cluster.give_token(*node, &token)?;
        cluster.start(*node)?;
    }
    let everybody: Vec<usize> = cluster.all().collect();
    let most = everybody.len().min(5);
    until(cluster, &everybody, |all| all.iter().all(|status| status.voters == most)).await?;
    outcome.join_ms.push(ms(start));
    sleep(DWELL).await;

    // The leader's region is the hardest one to evacuate.
    let (leaving, other) = (joiners[0], joiners[1]);
    lead(cluster, leaving).await?;
    let start = Instant::now();
    let region = cluster.region(leaving);
    order(cluster, founders[0], ("POST", &format!("/v1/regions/{region}/evacuate"))).await?;
    let name = cluster.sites[leaving].name.clone();
    until(cluster, &founders, |all| all.iter().all(|status| !status.votes(&name))).await?;
    outcome.evacuate_ms.push(ms(start));
    sleep(DWELL).await;

    let start = Instant::now();
    order(cluster, founders[0], ("DELETE", &format!("/v1/regions/{region}"))).await?;
    // The second node is removed while it still votes.
    let other_name = cluster.sites[other].name.clone();
    order(cluster, founders[0], ("DELETE", &format!("/v1/nodes/{other_name}"))).await?;
    let count = founders.len();
    let is_small = |status: &Status| status.voters == count && status.members == count;
    until(cluster, &founders, |all| all.iter().all(is_small)).await?;
    outcome.leave_ms.push(ms(start));
    for node in joiners {
        let gone = until(cluster, &[node], |all| all.iter().all(|it| it.role == "stopped")).await;
        outcome.alone.add(gone.is_err());
        let served = cluster.sites[node].data.chat(REQUEST_LIMIT).await;
        outcome.alone.add(served.is_err());
    }
    sleep(DWELL).await;
    for flow in flows {
        flow.end(plan, outcome).await;
    }
    Ok(())
}

/// Waits until these nodes all answer and `is_so` holds for their statuses.
async fn until(
    cluster: &TrialCluster,
    nodes: &[usize],
    is_so: impl Fn(&[Status]) -> bool,
) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        let mut statuses = cluster.statuses().await;
        let these: Option<Vec<Status>> = nodes.iter().map(|node| statuses[*node].take()).collect();
        if these.as_deref().is_some_and(&is_so) {
            return Ok(());
        }
        anyhow::ensure!(start.elapsed() < PATIENCE, "not in time: {these:#?}");
        // wait: until the next look
        sleep(LOOK).await;
    }
}

/// Waits until the region's own requests are served.
async fn served(data: &ApiClient) -> anyhow::Result<()> {
    let start = Instant::now();
    while let Err(why) = data.chat(REQUEST_LIMIT).await {
        anyhow::ensure!(start.elapsed() < PATIENCE, "requests are not served: {why}");
        // wait: until the next attempt
        sleep(LOOK).await;
    }
    Ok(())
}

/// Waits until the node takes writes.
async fn taken(admin: &ApiClient) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        let write = admin.write("grow-first", fastrand::u64(1..1 << 60), None).await;
        if matches!(write, Write::Done(_)) {
            return Ok(());
        }
        anyhow::ensure!(start.elapsed() < PATIENCE, "writes are not taken: {write:?}");
        // wait: until the next attempt
        sleep(LOOK).await;
    }
}

/// Transfers leadership to `node`.
async fn lead(cluster: &TrialCluster, node: usize) -> anyhow::Result<()> {
    let start = Instant::now();
    let to = cluster.sites[node].name.clone();
    loop {
        let statuses = cluster.statuses().await;
        let leads =
            |status: &Option<Status>| status.as_ref().is_some_and(|status| status.role == "leader");
        match statuses.iter().position(leads) {
            Some(leader) if leader == node => return Ok(()),
            Some(leader) => drop(cluster.sites[leader].admin.hand_over(&to).await),
            None => {}
        }
        anyhow::ensure!(start.elapsed() < PATIENCE, "{to} does not lead");
        // wait: until the next look
        sleep(LOOK).await;
    }
}

/// Creates a join token, as `spillway join-token create` does.
async fn join_token(admin: &ApiClient, region: &str) -> anyhow::Result<String> {
    let body = json!({ "region": region, "valid_s": 600, "uses": 1 }).to_string();
    let answer = admin.send(("POST", "/v1/join-tokens"), &[], body, LIMIT).await?;
    let secret = answer.body["secret"].as_str();
    secret.map(str::to_owned).with_context(|| format!("no token: {}", answer.body))
}

/// Sends an operator's command, and repeats it while the node has an error on its side.
async fn order(cluster: &TrialCluster, at: usize, call: (&str, &str)) -> anyhow::Result<()> {
    let admin = &cluster.sites[at].admin;
    let key = [("idempotency-key", call.1)];
    let start = Instant::now();
    loop {
        let answer = admin.send(call, &key, String::new(), LIMIT).await?;
        if answer.status.is_success() {
            return Ok(());
        }
        let is_passing = answer.status.is_server_error() && start.elapsed() < PATIENCE;
        anyhow::ensure!(is_passing, "{call:?}: {} {}", answer.status, answer.body);
        // wait: as long as a client does before its retry
        sleep(RETRY_AFTER).await;
    }
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Chat requests and writes at one node, each kind one after the other.
struct GrowWork {
    notes: Arc<Mutex<Notes>>,
    tasks: [JoinHandle<()>; 2],
    region: String,
    since: Instant,
}

#[derive(Debug, Default)]
struct Notes {
    /// Error of each request; `None` if it was served.
    requests: Vec<Option<String>>,
    /// Writes: time of the end, errors of its attempts, and true if it was done.
    writes: Vec<(Instant, Vec<String>, bool)>,
}

impl GrowWork {
    fn start(site: &super::site::TrialSite) -> Self {
        let notes = Arc::<Mutex<Notes>>::default();
        let (data, kept) = (site.data.clone(), Arc::clone(&notes));
        let requests = spawn(async move {
            loop {
                let fault = data.chat(REQUEST_LIMIT).await.err();
                kept.lock().unwrap_or_else(PoisonError::into_inner).requests.push(fault);
                // wait: until the next request
                sleep(GAP).await;
            }
        });
        let (admin, kept) = (site.admin.clone(), Arc::clone(&notes));
        let key = format!("grow-{}", site.name);
        let writes = spawn(async move {
            for value in 1.. {
                let mut faults = Vec::new();
                let mut is_done = false;
                // A write, and one retry.
                while !is_done && faults.len() < 2 {
                    if !faults.is_empty() {
                        sleep(RETRY_AFTER).await;
                    }
                    match admin.write(&key, value, None).await {
                        Write::Done(_) => is_done = true,
                        fault => faults.push(format!("{fault:?}")),
                    }
                }
                let note = (Instant::now(), faults, is_done);
                kept.lock().unwrap_or_else(PoisonError::into_inner).writes.push(note);
                // wait: until the next write
                sleep(GAP).await;
            }
        });
        let region = site.region.clone();
        Self { notes, tasks: [requests, writes], region, since: Instant::now() }
    }

    async fn end(self, plan: &TrialPlan, outcome: &mut GrowOutcome) {
        for task in self.tasks {
            task.abort();
            // Waits for the aborted task; the error only says that it was aborted.
            drop(task.await);
        }
        let notes = std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner));
        for fault in notes.requests {
            outcome.requests.add(fault.is_some());
            if let Some(fault) = fault {
                plan.say(&format!("a request in {}: {fault}", self.region));
            }
        }
        let (mut last, mut pause) = (self.since, Duration::ZERO);
        for (end, faults, is_done) in notes.writes {
            outcome.writes.add(!is_done);
            outcome.retried += usize::from(!faults.is_empty());
            if !faults.is_empty() {
                let after = (end - self.since).as_secs_f64();
                plan.say(&format!("a write in {} after {after:.1} s: {faults:?}", self.region));
            }
            pause = pause.max(end - last);
            last = end;
        }
        outcome.write_pause_ms.push(pause.as_secs_f64() * 1e3);
    }
}
