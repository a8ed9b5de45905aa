//! How others ask the keeper for something.

use std::collections::BTreeSet;

use spillway_health::{MemberReport, Order, UnknownReplica};
use spillway_types::{LoadReport, ModelName, ReplicaName};
use tokio::sync::{mpsc, oneshot};

use crate::config::WorldConfig;

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
    Elsewhere { models: BTreeSet<ModelName>, done: oneshot::Sender<()> },
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

    /// Says which models other regions serve.
    pub(crate) async fn set_elsewhere(&self, models: BTreeSet<ModelName>) {
        // The keeper has ended if it does not answer.
        let _: Option<()> = self.ask(|done| Command::Elsewhere { models, done }).await;
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
