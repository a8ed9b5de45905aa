//! Two regions join a cluster by token and are removed again, under load.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;
use tokio::time::sleep;

use super::api::{Status, Write};
use super::client::ApiClient;
use super::cluster::TrialCluster;
use super::patience::{PATIENCE, patiently};
use super::repeated::Repeated;
use super::report::TrialReport;
use crate::plan::TrialPlan;

/// Number of regions that join.
const JOINERS: usize = 2;
/// Pause between two steps, so that each step meets some load.
const DWELL: Duration = Duration::from_secs(2);
/// Pause between two requests of one stream.
const GAP: Duration = Duration::from_millis(40);
/// Pause before the retry of a failed write.
const RETRY_AFTER: Duration = Duration::from_millis(500);
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
    report.quantity("writes that needed a retry", "", None, outcome.retries);
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
    let mut streams = Vec::new();
    for node in &founders {
        cluster.sites[*node].data.serves().await?;
        taken(&cluster.sites[*node].admin).await?;
        streams.push(GrowWork::start(&cluster.sites[*node]));
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
        let served = cluster.sites[node].data.chat().await;
        outcome.alone.add(served.is_err());
    }
    sleep(DWELL).await;
    for stream in streams {
        stream.end(plan, outcome).await;
    }
    Ok(())
}

/// Waits until these nodes all answer and `is_so` holds for their statuses.
async fn until(
    cluster: &TrialCluster,
    nodes: &[usize],
    is_so: impl Fn(&[Status]) -> bool,
) -> anyhow::Result<()> {
    let look = async || {
        let mut statuses = cluster.statuses().await;
        let these: Option<Vec<Status>> = nodes.iter().map(|node| statuses[*node].take()).collect();
        let is_so = these.as_deref().is_some_and(&is_so);
        is_so.then_some(()).ok_or_else(|| format!("{these:#?}"))
    };
    patiently("not in time", look).await
}

/// Waits until the node takes writes.
async fn taken(admin: &ApiClient) -> anyhow::Result<()> {
    let write = async || match admin.write("grow-first", fastrand::u64(1..1 << 60), None).await {
        Write::Done(_) => Ok(()),
        write => Err(format!("{write:?}")),
    };
    patiently("writes are not taken", write).await
}

/// Transfers leadership to `node`.
async fn lead(cluster: &TrialCluster, node: usize) -> anyhow::Result<()> {
    let to = &cluster.sites[node].name;
    let leads =
        |status: &Option<Status>| status.as_ref().is_some_and(|status| status.role == "leader");
    let look = async || {
        let leader = cluster.statuses().await.iter().position(leads);
        if leader == Some(node) {
            return Ok(());
        }
        if let Some(leader) = leader {
            cluster.sites[leader].admin.hand_over(to).await;
        }
        Err(format!("{leader:?} leads"))
    };
    patiently("the lead is not handed over", look).await
}

/// Creates a join token, as `spillway join-token create` does.
async fn join_token(admin: &ApiClient, region: &str) -> anyhow::Result<String> {
    let body = json!({ "region": region, "valid_s": 600, "uses": 1 }).to_string();
    let answer = admin.send(("POST", "/v1/join-tokens?create=true"), &[], body, LIMIT).await?;
    let secret = answer.body["secret"].as_str();
    secret.map(str::to_owned).with_context(|| format!("no token: {}", answer.body))
}

/// Sends an operator's command, and repeats it while the node has an error on its side.
async fn order(
    cluster: &TrialCluster,
    at: usize,
    call: (&'static str, &str),
) -> anyhow::Result<()> {
    let admin = &cluster.sites[at].admin;
    // The same key for each attempt, since one that failed may still have taken effect.
    let key = [("idempotency-key", call.1)];
    let start = Instant::now();
    loop {
        let answer = admin.send(call, &key, String::new(), LIMIT).await?;
        if answer.is_success() {
            return Ok(());
        }
        let is_passing = answer.status >= 500 && start.elapsed() < PATIENCE;
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
    /// Error of each request; `None` if it was served.
    requests: Repeated<Option<String>>,
    writes: Repeated<GrowWrite>,
    region: String,
    since: Instant,
}

/// Write, and one retry if it failed.
struct GrowWrite {
    end: Instant,
    /// Errors of its attempts.
    faults: Vec<String>,
    is_done: bool,
}

impl GrowWork {
    fn start(site: &super::site::TrialSite) -> Self {
        let data = site.data.clone();
        let requests = Repeated::start(GAP, move |_| {
            let data = data.clone();
            async move { data.chat().await.err() }
        });
        let (admin, key) = (site.admin.clone(), format!("grow-{}", site.name));
        let writes = Repeated::start(GAP, move |value| {
            let (admin, key) = (admin.clone(), key.clone());
            async move { write(&admin, &key, value).await }
        });
        Self { requests, writes, region: site.region.clone(), since: Instant::now() }
    }

    async fn end(self, plan: &TrialPlan, outcome: &mut GrowOutcome) {
        for fault in self.requests.end().await {
            outcome.requests.add(fault.is_some());
            if let Some(fault) = fault {
                plan.say(&format!("a request in {}: {fault}", self.region));
            }
        }
        let (mut last, mut pause) = (self.since, Duration::ZERO);
        for GrowWrite { end, faults, is_done } in self.writes.end().await {
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

/// Writes a value, and tries again once after a failure.
async fn write(admin: &ApiClient, key: &str, value: u64) -> GrowWrite {
    let (mut faults, mut is_done) = (Vec::new(), false);
    while !is_done && faults.len() < 2 {
        if !faults.is_empty() {
            sleep(RETRY_AFTER).await;
        }
        match admin.write(key, value, None).await {
            Write::Done(_) => is_done = true,
            fault => faults.push(format!("{fault:?}")),
        }
    }
    GrowWrite { end: Instant::now(), faults, is_done }
}
