//! Single run: new replicas, a new gateway, a load, a script, and the record of all of it.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use spillway_harness::LoadClient;

use super::{
    account::{Account, Trouble, account},
    config::{ConfigSpec, Health, PolicyChoice},
    emulators::Emulators,
    exchange::{Observation, check, send_all},
    gateway::Gateway,
    ledger::RequestLedger,
    machine::{Conditions, MachineWatch},
    plan::Workload,
    schema::Features,
    script::{Action, ScriptStep},
    share::ReceivedRequests,
    stage::FaultsStage,
};
use crate::compare::START_MAX;

/// Requests between two reads of the replicas' stats: a quarter of the requests that one replica
/// remembers, in case it gets all.
const LEDGER_REQUESTS: f64 = 1_000.0;

/// Wait in milliseconds for a busy machine; replicas notice within milliseconds that a client has
/// left.
const SETTLE_MS: u64 = 300;

/// Settings that all runs share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bench<'a> {
    /// Path of the binary.
    pub(crate) spillway: &'a Path,
    /// Settings that the binary's config knows.
    pub(crate) features: &'a Features,
    /// Seed of all randomness.
    pub(crate) seed: u64,
    /// Requests per second.
    pub(crate) rate_per_s: f64,
    /// Settings of `[health]`, unless a run has its own.
    pub(crate) health: &'a Health,
}

/// Description of one run.
#[derive(Clone, Debug)]
pub(crate) struct RunSpec<'a> {
    /// Policy of the route.
    pub(crate) policy: &'a PolicyChoice,
    /// Number of replicas.
    pub(crate) replicas: u16,
    /// Replicas in the config at first.
    pub(crate) members: BTreeSet<u16>,
    /// Settings of `[health]`.
    pub(crate) health: Health,
    /// Load.
    pub(crate) workload: Workload,
    /// Steps of the script.
    pub(crate) steps: Vec<ScriptStep>,
}

/// Record of one run.
#[derive(Debug)]
pub(crate) struct RunRecord {
    /// Results that the clients saw, in order of number.
    pub(crate) observations: Vec<Observation>,
    /// Replicas that the requests went to.
    pub(crate) traffic: ReceivedRequests,
    /// Account of the requests.
    pub(crate) account: Account,
    /// Times in which replicas were broken.
    pub(crate) troubles: Vec<Trouble>,
    /// Number of retries.
    pub(crate) retries: Option<u64>,
    /// Load of the machine.
    pub(crate) conditions: Conditions,
}

/// Error of a run that makes no sense with this binary.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unavailable(pub(crate) &'static str);

impl Bench<'_> {
    /// Carries out the run. All processes are gone when this returns, or when the future is
    /// dropped.
    ///
    /// # Errors
    /// Returns [`Unavailable`] if the binary lacks a feature that the script needs. Returns other
    /// errors if a process does not start, ends early or refuses a command.
    pub(crate) async fn run(&self, spec: &RunSpec<'_>) -> anyhow::Result<RunRecord> {
        let folder = tempfile::Builder::new().prefix("spillway-faults-").tempdir()?;
        let mut emulators =
            Emulators::start(self.spillway, spec.replicas, self.seed, folder.path())?;
        let config = ConfigSpec {
            features: self.features,
            policy: spec.policy,
            replicas: emulators.addresses(),
            members: &spec.members,
            health: &spec.health,
        };
        let mut gateway = Gateway::start(self.spillway, &config, folder.path())?;
        let client = LoadClient::new(gateway.address());
        let serves = async || check(&client, &spec.workload).await;
        gateway.process.ready(START_MAX, serves).await?;
        // Asked before the load, so that the run costs no time where the command is missing.
        let needs_drain = |step: &ScriptStep| matches!(step.action, Action::Drain(_));
        if spec.steps.iter().any(needs_drain) && !gateway.has_drain().await {
            return Err(Unavailable("the admin listener has no GET /replicas").into());
        }
        // On the heap, so that the futures that wait for this run stay small.
        let record = Box::pin(carry(spec, &emulators, &mut gateway, &client)).await;
        // A process that has ended explains more than the error that followed from it.
        emulators.process.check_alive()?;
        gateway.process.check_alive()?;
        record.with_context(|| format!("gateway: {}", gateway.process.last_lines()))
    }
}

async fn carry(
    spec: &RunSpec<'_>,
    emulators: &Emulators,
    gateway: &mut Gateway,
    client: &LoadClient,
) -> anyhow::Result<RunRecord> {
    let planned = spec.workload.plan();
    let retries_before = gateway.retries().await;
    let mut books = Books::new(spec);
    // Started after the processes, whose start would count as load.
    let mut watch = MachineWatch::start()?;
    let start = Instant::now();
    let load = async {
        tokio::try_join!(
            async { Ok(send_all(client, &spec.workload, &planned, start).await) },
            FaultsStage::new(start).play(&spec.steps, emulators, gateway),
        )
    };
    let (observations, troubles) = tokio::select! {
        result = load => result?,
        // The two others only end with an error, or never.
        result = watch.run() => match result? {},
        never = books.read_on(emulators) => match never {},
    };
    let conditions = watch.finish(&observations)?;
    tokio::time::sleep(Duration::from_millis(SETTLE_MS)).await;
    let ledgers = books.close(emulators).await?;
    let retries = gateway.retries().await.zip(retries_before);
    Ok(RunRecord {
        traffic: ReceivedRequests::new(&observations, &ledgers),
        account: account(&observations, &ledgers, &troubles),
        observations,
        troubles,
        retries: retries.map(|(after, before)| after.saturating_sub(before)),
        conditions,
    })
}

/// Ledgers of the replicas, as far as they have been read.
#[derive(Debug)]
struct Books {
    ledgers: Vec<RequestLedger>,
    pause: Duration,
}

impl Books {
    fn new(spec: &RunSpec<'_>) -> Self {
        let ledgers = vec![RequestLedger::default(); usize::from(spec.replicas)];
        let pause = Duration::from_secs_f64(LEDGER_REQUESTS / spec.workload.rate_per_s);
        Self { ledgers, pause }
    }

    /// Reads the stats of all reachable replicas, again and again.
    async fn read_on(&mut self, emulators: &Emulators) -> Infallible {
        loop {
            tokio::time::sleep(self.pause).await;
            for (replica, ledger) in (0..).zip(&mut self.ledgers) {
                // A replica that is down is read later: its stats outlive a crash.
                if let Ok(stats) = emulators.stats(replica).await {
                    ledger.absorb(stats);
                }
            }
        }
    }

    /// Reads all stats a last time. Returns an error if a request was missed.
    async fn close(mut self, emulators: &Emulators) -> anyhow::Result<Vec<RequestLedger>> {
        for (replica, ledger) in (0..).zip(&mut self.ledgers) {
            ledger.absorb(emulators.stats(replica).await?);
            let missed = ledger.missed();
            anyhow::ensure!(missed == 0, "{missed} records of replica {replica} were missed");
        }
        Ok(self.ledgers)
    }
}
