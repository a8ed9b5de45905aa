//! Commands to the keeper, and the handle that sends them.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillway_config::WorldConfig;
use spillway_health::{MemberReport, Order, PeerReports, UnknownReplicaError};
use spillway_types::{LoadReport, ReplicaName};
use spillway_view::ReplicaSpec;
use tokio::sync::{mpsc, oneshot};

use crate::fold::AgreedWorld;
use crate::keeper::{KeeperFigures, OtherRegionModels};

/// Command to the keeper, with the channel of its answer.
#[derive(Debug)]
pub(crate) enum KeeperCommand {
    /// Serve by another config from now on.
    Reload { world: Box<WorldConfig>, done: oneshot::Sender<Result<(), String>> },
    /// Drain or resume a replica.
    Order {
        replica: ReplicaName,
        order: Order,
        done: oneshot::Sender<Result<(), UnknownReplicaError>>,
    },
    /// Note the load that a replica reports of itself.
    Report {
        replica: ReplicaName,
        report: LoadReport,
        done: oneshot::Sender<Result<(), UnknownReplicaError>>,
    },
    /// Take over the models that other regions serve.
    Elsewhere { models: OtherRegionModels, done: oneshot::Sender<()> },
    /// Apply the agreed state; the config holds where that says nothing.
    Agreed { world: Box<AgreedWorld>, done: oneshot::Sender<()> },
    /// Note that requests come from now on.
    Started { done: oneshot::Sender<()> },
    /// Take in reports of the region's other nodes about its replicas.
    PeerReports { said: BTreeMap<ReplicaName, PeerReports>, done: oneshot::Sender<()> },
    /// Return the replicas that this node has by its config or its discoveries.
    OwnReplicas { done: oneshot::Sender<Vec<ReplicaSpec>> },
    /// Answer, as a sign of life.
    Answer { done: oneshot::Sender<()> },
    /// Return a report on each replica.
    Members { done: oneshot::Sender<Vec<MemberReport>> },
}

/// Handle of the keeper; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct KeeperHandle {
    commands: mpsc::Sender<KeeperCommand>,
    /// Figures that the keeper writes.
    pub(crate) figures: Arc<KeeperFigures>,
}

impl KeeperHandle {
    pub(crate) fn new(commands: mpsc::Sender<KeeperCommand>, figures: Arc<KeeperFigures>) -> Self {
        Self { commands, figures }
    }

    /// Makes the node serve by another config.
    ///
    /// # Errors
    /// Returns the reason if the config can't be used; then nothing has changed.
    pub(crate) async fn reload(&self, world: WorldConfig) -> Result<(), String> {
        let world = Box::new(world);
        let answer = self.ask(|done| KeeperCommand::Reload { world, done }).await;
        answer.unwrap_or_else(|| Err("the node is stopping".to_owned()))
    }

    /// Drains or resumes a replica.
    ///
    /// # Errors
    /// Returns an error if there is no such replica.
    pub(crate) async fn order(
        &self,
        replica: ReplicaName,
        order: Order,
    ) -> Result<(), UnknownReplicaError> {
        let name = replica.clone();
        let answer = self.ask(|done| KeeperCommand::Order { replica, order, done }).await;
        answer.unwrap_or(Err(UnknownReplicaError(name)))
    }

    /// Notes the load that a replica reports of itself.
    ///
    /// # Errors
    /// Returns an error if there is no such replica.
    pub(crate) async fn report(
        &self,
        replica: ReplicaName,
        report: LoadReport,
    ) -> Result<(), UnknownReplicaError> {
        let name = replica.clone();
        let answer = self.ask(|done| KeeperCommand::Report { replica, report, done }).await;
        answer.unwrap_or(Err(UnknownReplicaError(name)))
    }

    /// Tells the keeper the models of other regions.
    pub(crate) async fn set_elsewhere(&self, models: OtherRegionModels) {
        // The keeper has ended if it does not answer.
        let _: Option<()> = self.ask(|done| KeeperCommand::Elsewhere { models, done }).await;
    }

    /// Tells the keeper the agreed state.
    pub(crate) async fn take_agreed(&self, world: AgreedWorld) {
        let world = Box::new(world);
        // The keeper has ended if it does not answer.
        let _: Option<()> = self.ask(|done| KeeperCommand::Agreed { world, done }).await;
    }

    /// Tells the keeper that requests come from now on.
    pub(crate) async fn started(&self) {
        let _: Option<()> = self.ask(|done| KeeperCommand::Started { done }).await;
    }

    /// Tells the keeper the reports of the region's other nodes about its replicas.
    pub(crate) async fn take_peer_reports(&self, said: BTreeMap<ReplicaName, PeerReports>) {
        let _: Option<()> = self.ask(|done| KeeperCommand::PeerReports { said, done }).await;
    }

    /// Returns the replicas that this node has by its config or its discoveries; none, once it
    /// stops.
    pub(crate) async fn own_replicas(&self) -> Vec<ReplicaSpec> {
        self.ask(|done| KeeperCommand::OwnReplicas { done }).await.unwrap_or_default()
    }

    /// Returns a report on each replica; none, once the node stops.
    pub(crate) async fn members(&self) -> Vec<MemberReport> {
        self.ask(|done| KeeperCommand::Members { done }).await.unwrap_or_default()
    }

    /// Returns true when the keeper takes a command, however long that takes; false once it has
    /// ended.
    pub(crate) async fn answers(&self) -> bool {
        self.ask(|done| KeeperCommand::Answer { done }).await.is_some()
    }

    /// Sends a command and waits for its answer; `None` once the keeper has ended.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> KeeperCommand) -> Option<T> {
        let (done, answer) = oneshot::channel();
        self.commands.send(command(done)).await.ok()?;
        answer.await.ok()
    }
}
