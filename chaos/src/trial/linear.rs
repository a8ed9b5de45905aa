//! Linearizability of what concurrent clients see during faults.

use std::sync::Arc;
use std::time::Duration;

use spillway_harness::spawn;
use tokio::time::sleep;

use super::api::{ApiRead, Write};
use super::client::ApiClient;
use super::cluster::TrialCluster;
use super::patience::patiently;
use super::report::TrialReport;
use crate::linear::{
    Operation, Recorder, Register, RegisterInput, RegisterOutput, SearchLimits, SearchVerdict,
    check,
};
use crate::plan::TrialPlan;

/// Number of clients of each node.
const CLIENTS: u32 = 3;
/// Keys, shared by all clients.
const KEYS: u32 = 4;
/// Range of the length of a fault, in milliseconds. One fault is one trial.
const FAULT_MS: std::ops::Range<u64> = 1_500..4_000;
const REST_MS: std::ops::Range<u64> = 1_500..3_500;

type Log = Recorder<String, RegisterInput, RegisterOutput>;
type History = Vec<Operation<String, RegisterInput, RegisterOutput>>;

pub(crate) async fn run(
    plan: &TrialPlan,
    cluster: &mut TrialCluster,
) -> anyhow::Result<TrialReport> {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    cluster.start_all()?;
    cluster.settled().await?;
    // Keys of this run alone, in case the cluster was used before.
    let prefix = format!("r{}", random.u32(..));
    let log = Arc::new(Log::default());
    let nodes = cluster.all().len() as u32;
    let clients = (0..CLIENTS * nodes).map(|number| {
        let actor = Actor {
            number,
            admin: cluster.sites[(number % nodes) as usize].admin.clone(),
            log: Arc::clone(&log),
            prefix: prefix.clone(),
            random: random.fork(),
        };
        spawn(actor.run())
    });
    let clients: Vec<_> = clients.collect();
    for trial in 1..=plan.trials {
        let fault = disturb(cluster, &mut random).await?;
        plan.say(&format!("linearizability: fault {trial} of {}: {fault}", plan.trials));
    }
    cluster.settled().await?;
    for client in clients {
        client.abort();
        // Waits for the aborted task; the error only says that it was aborted.
        drop(client.await);
    }
    let refused = plant(cluster, &log, &prefix).await?;
    judge(plan, log.history(), refused)
}

fn judge(plan: &TrialPlan, mut history: History, refused: bool) -> anyhow::Result<TrialReport> {
    // The stale read at the end must be found, or the check proves nothing.
    let planted = check(&Register, &history, SearchLimits::default());
    // Without the stale read the history must be linearizable.
    history.pop();
    let verdict = check(&Register, &history, SearchLimits::default());
    if let SearchVerdict::Violation(how) = &verdict {
        plan.say(&how.to_string());
    }
    let unknown =
        history.iter().filter(|it| it.end == crate::linear::OperationEnd::Unknown).count();
    let settled =
        |it: &&Operation<_, _, _>| matches!(it.end, crate::linear::OperationEnd::Returned { .. });
    let answered = history.iter().filter(settled).count();
    plan.say(&format!("{answered} answered, {unknown} unknown of {}", history.len()));
    // A history with few answers is linearizable without proving anything.
    anyhow::ensure!(answered > 20 * plan.trials, "only {answered} operations were answered");
    let mut report = TrialReport::default();
    let faults = plan.trials;
    let what = format!(
        "{answered} operations ({unknown} of unknown end) of concurrent clients over {faults} kills \
         and cuts are linearizable"
    );
    report.check(what, usize::from(!verdict.is_linearizable()), 1);
    let is_found = matches!(planted, SearchVerdict::Violation(_));
    report.check("a planted stale read is found", usize::from(!is_found), 1);
    let what = "a linearizable read at a node that is cut off is refused, not old";
    report.check(what, usize::from(!refused), 1);
    Ok(report)
}

/// Causes a random fault, undoes it, and returns its name.
async fn disturb(cluster: &mut TrialCluster, random: &mut fastrand::Rng) -> anyhow::Result<String> {
    let leader = cluster.statuses().await.iter().flatten().find_map(|it| it.leader.clone());
    let named = |name: &String| cluster.sites.iter().position(|site| site.name == *name);
    let leader = leader.as_ref().and_then(named).unwrap_or(0);
    let others = cluster.others(leader);
    let follower = others[random.usize(..others.len())];
    let victim = if random.bool() { leader } else { follower };
    let name = cluster.region(victim);
    // wait: all pauses in this function are the fault's length or the rest after it
    let lasting = Duration::from_millis(random.u64(FAULT_MS));
    let what = match random.u8(..4) {
        0 => {
            cluster.kill(victim)?;
            sleep(lasting).await;
            cluster.start(victim)?;
            format!("kill -9 of {name}")
        }
        1 => {
            cluster.isolate(victim).await?;
            sleep(lasting).await;
            format!("{name} cut off")
        }
        2 => {
            cluster.deafen(victim).await?;
            sleep(lasting).await;
            format!("one-way cut into {name}")
        }
        _ => {
            cluster.part(leader, follower).await?;
            sleep(lasting).await;
            format!("the leader and {} cut off from each other", cluster.region(follower))
        }
    };
    cluster.heal().await?;
    sleep(Duration::from_millis(random.u64(REST_MS))).await;
    Ok(what)
}

/// Records a stale read of a cut-off node as if it were linearizable, as the last operation of the
/// log. Returns true if a linearizable read was refused there.
async fn plant(cluster: &mut TrialCluster, log: &Log, prefix: &str) -> anyhow::Result<bool> {
    let key = format!("{prefix}-planted");
    let leader = cluster.settled().await?.leader;
    let away = cluster.others(leader)[0];
    let (here, there) = (cluster.sites[leader].admin.clone(), cluster.sites[away].admin.clone());
    write(&here, log, &key, 1).await?;
    // The node that will be cut off has the first value.
    cluster.settled().await?;
    cluster.isolate(away).await?;
    write(&here, log, &key, 2).await?;
    let true_read = there.read(&key, "linearizable").await;
    let pending = log.call(0, key.clone(), RegisterInput::Read);
    let stale = there.read(&key, "stale").await;
    let ApiRead::Value(Some((value, version)), freshness) = stale else {
        anyhow::bail!("a stale read was answered with {stale:?}");
    };
    anyhow::ensure!(value == 1 && freshness.consistency == "stale", "{value}, {freshness:?}");
    pending.returned(RegisterOutput::Value { value: Some(value), version: Some(version) });
    cluster.heal().await?;
    cluster.settled().await?;
    Ok(matches!(true_read, ApiRead::Refused(_)))
}

async fn write(admin: &ApiClient, log: &Log, key: &str, value: u64) -> anyhow::Result<()> {
    let attempt = async || {
        let pending = log.call(0, key.to_owned(), RegisterInput::Write(Some(value)));
        let written = admin.write(key, value, None).await;
        match written {
            Write::Done(version) => {
                pending.returned(RegisterOutput::Written { version: Some(version) });
                return Ok(());
            }
            Write::Unknown => pending.unknown(),
            Write::Refused(_) | Write::Conflict => pending.failed(),
        }
        Err(format!("{written:?}"))
    };
    patiently("no write is taken", attempt).await
}

/// Client of one node that reads, writes, and compares and sets.
struct Actor {
    number: u32,
    admin: ApiClient,
    log: Arc<Log>,
    prefix: String,
    random: fastrand::Rng,
}

impl Actor {
    async fn run(mut self) {
        // A range of values for each client, so that no two write the same value.
        let mut value = u64::from(self.number) << 32;
        let mut seen = vec![0; KEYS as usize];
        loop {
            value += 1;
            let key = self.random.usize(..seen.len());
            // Half reads, three tenths writes, the rest compare-and-set if a version is known.
            let is_refused = match (self.random.u8(..10), seen[key]) {
                (0..5, _) => self.read(key, &mut seen[key]).await,
                (5..8, _) | (_, 0) => self.write(key, value, None, &mut seen[key]).await,
                (_, version) => self.write(key, value, Some(version), &mut seen[key]).await,
            };
            // wait: different paces make more interleavings
            let pause_ms = if is_refused { 100 } else { self.random.u64(..30) };
            sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    fn key(&self, key: usize) -> String {
        format!("{}-{key}", self.prefix)
    }

    async fn read(&self, key: usize, seen: &mut u64) -> bool {
        let key = self.key(key);
        let pending = self.log.call(self.number, key.clone(), RegisterInput::Read);
        match self.admin.read(&key, "linearizable").await {
            ApiRead::Value(found, _) => {
                *seen = found.map_or(0, |(_, version)| version);
                let (value, version) = found.unzip();
                pending.returned(RegisterOutput::Value { value, version });
                false
            }
            ApiRead::Refused(_) => {
                pending.failed();
                true
            }
        }
    }

    async fn write(&self, key: usize, value: u64, over: Option<u64>, seen: &mut u64) -> bool {
        let key = self.key(key);
        let input = match over {
            Some(expected) => RegisterInput::CompareAndSet { expected, value: Some(value) },
            None => RegisterInput::Write(Some(value)),
        };
        let pending = self.log.call(self.number, key.clone(), input);
        match self.admin.write(&key, value, over).await {
            Write::Done(version) => {
                *seen = version;
                pending.returned(RegisterOutput::Written { version: Some(version) });
            }
            Write::Conflict => {
                // The version is unknown now, so the next change is a plain write.
                *seen = 0;
                pending.returned(RegisterOutput::Mismatch);
            }
            Write::Unknown => pending.unknown(),
            Write::Refused(_) => {
                pending.failed();
                return true;
            }
        }
        false
    }
}
