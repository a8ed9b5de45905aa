//! How others ask the keeper for something.

use std::collections::BTreeMap;

use spillway_health::{MemberReport, Order, UnknownReplica, Witnesses};
use spillway_proxy::ReplicaSpec;
use spillway_types::{LoadReport, ReplicaName};
use tokio::sync::{mpsc, oneshot};

use crate::config::WorldConfig;
use crate::fold::AgreedWorld;
use crate::keeper::Elsewhere;

/// Something the keeper is asked to do, and where its answer goes.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve by another config from now on.
    Reload { world: Box<WorldConfig>, done: oneshot::Sender<Result<(), String>> },
    /// Drain or resume a replica.
    Order { replica: ReplicaName, order: Order, done: oneshot::Sender<Result<(), UnknownReplica>> },
    /// Note the load that a replica reports of itself.
    Report {
        replica: ReplicaName,
        report: LoadReport,
        done: oneshot::Sender<Result<(), UnknownReplica>>,
    },
    /// Know which models other regions serve.
    Elsewhere { models: Elsewhere, done: oneshot::Sender<()> },
    /// Serve by what the cluster agreed on, and by the config where that says nothing.
    Agreed { world: Box<AgreedWorld>, done: oneshot::Sender<()> },
    /// Know that requests come from now on.
    Started { done: oneshot::Sender<()> },
    /// Know what the region's other nodes say of its replicas.
    Witnesses { said: BTreeMap<ReplicaName, Witnesses>, done: oneshot::Sender<()> },
    /// Tell which replicas this node has by its config or its discoveries.
    OwnReplicas { done: oneshot::Sender<Vec<ReplicaSpec>> },
    /// Tell what is known of each replica.
    Members { done: oneshot::Sender<Vec<MemberReport>> },
}

/// Talks to the keeper; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct KeeperHandle(pub(crate) mpsc::Sender<Command>);

impl KeeperHandle {
    /// Makes the node serve by another config.
    ///
    /// # Errors
    /// Why it can't; then nothing has changed.
    pub(crate) async fn reload(&self, world: WorldConfig) -> Result<(), String> {
        let world = Box::new(world);
        let answer = self.ask(|done| Command::Reload { world, done }).await;
        answer.unwrap_or_else(|| Err("the node is stopping".to_owned()))
    }

    /// Drains or resumes a replica.
    ///
    /// # Errors
    /// If there is no such replica.
    pub(crate) async fn order(
        &self,
        replica: ReplicaName,
        order: Order,
    ) -> Result<(), UnknownReplica> {
        let name = replica.clone();
        let answer = self.ask(|done| Command::Order { replica, order, done }).await;
        answer.unwrap_or(Err(UnknownReplica(name)))
    }

    /// Notes the load that a replica reports of itself.
    ///
    /// # Errors
    /// If there is no such replica.
    pub(crate) async fn report(
        &self,
        replica: ReplicaName,
        report: LoadReport,
    ) -> Result<(), UnknownReplica> {
        let name = replica.clone();
        let answer = self.ask(|done| Command::Report { replica, report, done }).await;
        answer.unwrap_or(Err(UnknownReplica(name)))
    }

    /// Says which models other regions have.
    pub(crate) async fn set_elsewhere(&self, models: Elsewhere) {
        // The keeper has ended if it does not answer.
        let _: Option<()> = self.ask(|done| Command::Elsewhere { models, done }).await;
    }

    /// Says what the cluster agreed on.
    pub(crate) async fn take_agreed(&self, world: AgreedWorld) {
        let world = Box::new(world);
        // The keeper has ended if it does not answer.
        let _: Option<()> = self.ask(|done| Command::Agreed { world, done }).await;
    }

    /// Says that requests come from now on.
    pub(crate) async fn started(&self) {
        let _: Option<()> = self.ask(|done| Command::Started { done }).await;
    }

    /// Says what the region's other nodes say of its replicas.
    pub(crate) async fn take_witnesses(&self, said: BTreeMap<ReplicaName, Witnesses>) {
        let _: Option<()> = self.ask(|done| Command::Witnesses { said, done }).await;
    }

    /// The replicas that this node has by its config or its discoveries; none, once it stops.
    pub(crate) async fn own_replicas(&self) -> Vec<ReplicaSpec> {
        self.ask(|done| Command::OwnReplicas { done }).await.unwrap_or_default()
    }

    /// What is known of each replica; nothing, once the node stops.
    pub(crate) async fn members(&self) -> Vec<MemberReport> {
        self.ask(|done| Command::Members { done }).await.unwrap_or_default()
    }

    /// `None` once the keeper has ended.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (done, answer) = oneshot::channel();
        self.0.send(command(done)).await.ok()?;
        answer.await.ok()
    }
}
