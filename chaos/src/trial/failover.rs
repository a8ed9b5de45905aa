//! The leader is lost, and comes back.

use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until};

use super::client_stream::{self, ClientStream};
use super::cluster::{State, TrialCluster};
use super::report::TrialReport;
use crate::plan::TrialPlan;

/// Time of writes before the fault, so that the fault meets some in flight.
const BEFORE: Duration = Duration::from_millis(500);
/// Time in which writes are measured after the fault is undone: several leases.
const AFTER: Duration = Duration::from_secs(4);

/// Way to lose the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailoverLoss {
    Killed,
    CutOff,
    Deaf,
}

impl FailoverLoss {
    const ALL: [Self; 3] = [Self::Killed, Self::CutOff, Self::Deaf];

    fn name(self) -> &'static str {
        match self {
            Self::Killed => "kill -9 of the leader",
            Self::CutOff => "the leader cut off both ways",
            Self::Deaf => "a one-way cut into the leader",
        }
    }

    fn aim_ms(self) -> f64 {
        match self {
            Self::Killed | Self::CutOff => 4_000.0,
            Self::Deaf => 9_000.0,
        }
    }
}

/// Results of all trials of one kind.
#[derive(Debug, Default)]
struct FailoverOutcome {
    first_commit_ms: Vec<f64>,
    pause_ms: Vec<f64>,
    terms_changed: usize,
    failed: usize,
    written: usize,
}

pub(crate) async fn run(
    plan: &TrialPlan,
    cluster: &mut TrialCluster,
) -> anyhow::Result<TrialReport> {
    let mut report = TrialReport::default();
    cluster.start_all()?;
    for loss in FailoverLoss::ALL {
        let mut outcome = FailoverOutcome::default();
        for trial in 1..=plan.trials {
            let State { leader, index, .. } = lose(cluster, loss, &mut outcome).await?;
            let last_ms = outcome.first_commit_ms.last().copied().unwrap_or_default();
            let (name, of, region) = (loss.name(), plan.trials, cluster.region(leader));
            plan.say(&format!(
                "{name}: {trial} of {of}: {last_ms:.0} ms ({region}, log of {index})"
            ));
        }
        let FailoverOutcome { first_commit_ms, pause_ms, terms_changed, failed, written } = outcome;
        let name = loss.name();
        report.figure(format!("first commit after {name}"), Some(loss.aim_ms()), first_commit_ms);
        let undone =
            if loss == FailoverLoss::Killed { "it is started again" } else { "the cut is mended" };
        report.figure(format!("longest pause of commits when {undone} ({name})"), None, pause_ms);
        report.check(format!("term unchanged when {undone}"), terms_changed, plan.trials);
        report.check(format!("writes go on when {undone}"), failed, written);
    }
    Ok(report)
}

/// Runs one trial, and returns the cluster's state before it.
async fn lose(
    cluster: &mut TrialCluster,
    loss: FailoverLoss,
    outcome: &mut FailoverOutcome,
) -> anyhow::Result<State> {
    let before = cluster.settled().await?;
    let leader = before.leader;
    let stream =
        |node: usize| ClientStream::start(&cluster.sites[node].admin, format!("flow-{node}"));
    let streams: Vec<ClientStream> = cluster.others(leader).into_iter().map(stream).collect();
    // wait: until writes are under way
    sleep(BEFORE).await;
    match loss {
        FailoverLoss::Killed => cluster.kill(leader)?,
        FailoverLoss::CutOff => cluster.isolate(leader).await?,
        FailoverLoss::Deaf => cluster.deafen(leader).await?,
    }
    let lost = Instant::now();
    let first = client_stream::first_done(&streams, lost).await?;
    outcome.first_commit_ms.push((first - lost).as_secs_f64() * 1e3);
    // The new leader must be established before the old one is back.
    sleep_until((first + BEFORE).into()).await;
    let term = newest_term(cluster).await;
    let undone = Instant::now();
    match loss {
        FailoverLoss::Killed => cluster.start(leader)?,
        FailoverLoss::CutOff | FailoverLoss::Deaf => cluster.heal().await?,
    }
    // wait: writes are measured for this long
    sleep(AFTER).await;
    let notes = client_stream::all(&streams);
    drop(streams);
    let pause = client_stream::longest_pause(&notes, undone, undone + AFTER);
    outcome.pause_ms.push(pause.as_secs_f64() * 1e3);
    let after: Vec<_> = notes.iter().filter(|note| note.start > undone).collect();
    outcome.written += after.len();
    outcome.failed += after.iter().filter(|note| !note.is_done()).count();
    let settled = cluster.settled().await?;
    outcome.terms_changed += usize::from(settled.term != term);
    Ok(before)
}

async fn newest_term(cluster: &TrialCluster) -> u64 {
    let statuses = cluster.statuses().await;
    statuses.iter().flatten().map(|status| status.term).max().unwrap_or(0)
}
