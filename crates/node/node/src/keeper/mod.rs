//! The one task that knows the state of replicas: it takes in facts and signs, asks the pure
//! `health` crate for their meaning, and publishes views and boards for the data path.
//!
//! Driving the fleet follows one rule: one input, then all of its outputs ([`Keeper::settle`]).

mod agreed;
mod discovered;
mod facts;
mod figures;
mod handle;
mod lapsed;
mod limits;
mod lookup;
mod other_region_models;
mod page_room;
mod pages;
mod publish;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_config::{ReplicaConfig, WorldConfig};
use spillway_health::{CheckError, Fleet, Live, MemberSpec, Order, UnknownReplicaError};
use spillway_knowledge::KnowledgeHandle;
use spillway_proxy::Worker;
use spillway_replicas::{Fact, FactSender, Monitors};
use spillway_request::gateway::RoutingState;
use spillway_resolver::Resolver;
use spillway_telemetry::Metrics;
use spillway_types::{LoadReport, ModelName, ReplicaName, SignKind};
use spillway_upstream::ReplicaTlsError;
use spillway_view::Replica;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use figures::KeeperFigures;
pub(crate) use handle::{KeeperCommand, KeeperHandle};
pub(crate) use other_region_models::OtherRegionModels;

use crate::data_path::DataPath;
use crate::fold::{Folded, fold};
use crate::health_watch::NodeHealth;
use crate::keeper::agreed::Agreed;
use crate::keeper::discovered::Discovered;
use crate::keeper::lapsed::Lapsed;
use crate::keeper::limits::ReplicaLimits;
use crate::keeper::lookup::ModelLookup;
use crate::keeper::pages::Pages;
use crate::node_tasks::NodeTasks;
use crate::outcomes::Outcomes;
use crate::world::gather_replicas;

/// Period of looking through signs and publishing signals. A failing replica is judged at most this
/// much later than its last sign.
const TICK: Duration = Duration::from_millis(100);
/// Capacity of the queue of facts: more than all monitors of 1,000 replicas report within a tick.
const FACTS_MAX: usize = 32_768;
/// Longest wait at the start of a node for the names of its replicas: usually they are known within
/// milliseconds, and requests that come earlier find no replica.
const NAMES_WAIT: Duration = Duration::from_secs(1);
/// Capacity of the queue of commands.
const COMMANDS_MAX: usize = 64;

/// Replica whose warm-up ended, and the result.
type WarmedUp = (ReplicaName, Result<(), CheckError>);

/// Task that keeps the state of replicas.
#[derive(Debug)]
pub(crate) struct Keeper {
    routing: Arc<RoutingState>,
    workers: Vec<Arc<Worker>>,
    metrics: Arc<Metrics>,
    /// Health of the node, to which ejections count.
    health: Arc<NodeHealth>,
    figures: Arc<KeeperFigures>,
    knowledge: Arc<KnowledgeHandle>,
    fleet: Fleet,
    /// Version of the fleet's standings that the view was built from.
    published: u64,
    world: WorldConfig,
    discovered: Discovered,
    agreed: Agreed,
    /// True until requests come: replicas known by then were there before the node was started.
    is_starting: bool,
    /// Routes, names and replicas that follow from config, discoveries and the cluster; replicas in
    /// the order of their slots.
    folded: Folded,
    /// Replicas of the data path, by name.
    replicas: BTreeMap<ReplicaName, Arc<Replica>>,
    /// Adaptive concurrency limits of replicas.
    limits: ReplicaLimits,
    /// Models that other regions have.
    elsewhere: OtherRegionModels,
    /// Models of this region whose registrations ended.
    lapsed: Lapsed,
    /// Software and models that replicas report of themselves.
    pages: Pages,
    monitors: Monitors,
    /// Monitors that ask for software and models. Apart from `monitors`, which restart with their
    /// findings.
    identities: Monitors,
    /// True if a replica reported something of itself that is not in `folded` yet.
    has_news: bool,
    /// Looks the names of replicas up.
    resolver: Resolver,
    /// Version of the resolver's addresses that the view was built from.
    names_published: u64,
    /// Lookup of unknown models that is under way.
    lookup: Option<ModelLookup>,
    /// Replicas whose newest active check failed.
    failing: BTreeSet<ReplicaName>,
    facts: mpsc::Receiver<Fact>,
    fact_sender: FactSender,
    commands: mpsc::Receiver<KeeperCommand>,
    /// Warm-ups under way.
    tasks: TaskTracker,
    stop: CancellationToken,
    warmed_up: mpsc::Receiver<WarmedUp>,
    warm_up_sender: mpsc::Sender<WarmedUp>,
}

impl Keeper {
    /// Starts a keeper and publishes the first view. Returns the handle to talk to it.
    ///
    /// # Errors
    /// Returns an error if a replica's TLS settings do not work.
    pub(crate) async fn start(
        data_path: &DataPath,
        outcomes: &Outcomes,
        world: WorldConfig,
        resolver: Resolver,
        vital: &NodeTasks,
    ) -> Result<KeeperHandle, ReplicaTlsError> {
        let NodeTasks { tracker: tasks, stop, .. } = vital.clone();
        let (command_sender, commands) = mpsc::channel(COMMANDS_MAX);
        let (fact_channel, facts) = mpsc::channel(FACTS_MAX);
        let (warm_up_sender, warmed_up) = mpsc::channel(COMMANDS_MAX);
        let fact_sender = FactSender::new(fact_channel);
        let figures = Arc::<KeeperFigures>::default();
        let routing = Arc::clone(&data_path.gateway.routing);
        let seed = routing.seed;
        let mut keeper = Self {
            fleet: Fleet::new(spillway_health::FleetConfig::default(), seed),
            published: 0,
            discovered: Discovered::start(&world.discoveries, &resolver, seed, &tasks, &stop),
            agreed: Agreed::default(),
            is_starting: true,
            folded: Folded::default(),
            replicas: BTreeMap::new(),
            limits: ReplicaLimits::default(),
            elsewhere: OtherRegionModels::default(),
            lapsed: Lapsed::default(),
            pages: Pages::default(),
            monitors: Monitors::new(fact_sender.clone(), Handle::current(), seed),
            identities: Monitors::new(fact_sender.clone(), Handle::current(), seed),
            has_news: false,
            resolver,
            names_published: 0,
            lookup: None,
            failing: BTreeSet::new(),
            facts,
            fact_sender,
            commands,
            tasks: tasks.clone(),
            stop: stop.clone(),
            warmed_up,
            warm_up_sender,
            routing,
            workers: data_path.workers.clone(),
            metrics: Arc::clone(&outcomes.metrics),
            health: Arc::clone(&outcomes.health),
            figures: Arc::clone(&figures),
            knowledge: Arc::clone(&data_path.knowledge),
            world,
        };
        keeper.take_world(true).await?;
        vital.spawn_vital("keeper", keeper.run(stop));
        Ok(KeeperHandle::new(command_sender, figures))
    }

    /// Runs until told to stop.
    async fn run(mut self, stop: CancellationToken) {
        let asked = Arc::clone(&self.routing);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    self.tick();
                    // All news together: at a start every replica reports something.
                    if std::mem::take(&mut self.has_news) {
                        self.take_news().await;
                    }
                }
                Some(fact) = self.facts.recv() => {
                    let read = fact.kind.is_about_models().then(|| fact.replica.clone());
                    self.note(fact);
                    if let Some(replica) = read {
                        self.note_models_read(&replica).await;
                    }
                }
                number = asked.model_lookups.asked() => self.look_up_models(number),
                Some(command) = self.commands.recv() => self.obey(command).await,
                Some((replica, result)) = self.warmed_up.recv() => {
                    self.fleet.handle_warmed_up(Instant::now(), &replica, result);
                }
                () = self.discovered.changed() => self.take_discovered().await,
                () = stop.cancelled() => return,
            }
            self.settle();
        }
    }

    /// Takes in the signs of traffic since the last tick, and publishes signals.
    fn tick(&mut self) {
        for worker in &self.workers {
            worker.drain_signs(|sign| {
                match &sign.kind {
                    SignKind::LacksModel => {
                        let known = self.replicas.get(&sign.replica).zip(sign.model.as_ref());
                        self.has_news |= known.is_some_and(|(replica, model)| {
                            self.pages.note_lacked(&sign.replica, replica, model, sign.at)
                        });
                    }
                    SignKind::Failed(fault) => {
                        self.metrics.record_fault(sign.replica.as_str(), *fault);
                    }
                    SignKind::Reported(report) => {
                        self.limits.reported(&sign.replica, report, sign.at);
                    }
                    _ => {}
                }
                self.fleet.handle_sign(&sign);
            });
        }
        let now = Instant::now();
        self.has_news |= self.pages.expire(now);
        self.limits.look(now);
        let replicas = &self.replicas;
        self.fleet.handle_timeout(now, &|name| live(replicas, name, now));
        // The view lists the models that are known.
        let has_addresses = self.resolver.version() != self.names_published;
        if self.lapsed.expire(now) || has_addresses {
            self.publish_view();
        }
        self.publish_board(now);
        self.end_lookup();
        self.figures.note_facts_dropped(self.fact_sender.dropped());
    }

    async fn obey(&mut self, command: KeeperCommand) {
        match command {
            KeeperCommand::Reload { world, done } => {
                let result = self.reload(*world).await;
                answer(done, result.map_err(|error| error.to_string()));
            }
            KeeperCommand::Order { replica, order, done } => {
                answer(done, self.order(&replica, order));
            }
            KeeperCommand::Report { replica, report, done } => {
                answer(done, self.report(&replica, report));
            }
            KeeperCommand::Elsewhere { models, done } => {
                self.elsewhere = models;
                self.publish_view();
                answer(done, ());
            }
            KeeperCommand::Members { done } => answer(done, self.members()),
            KeeperCommand::Answer { done } => answer(done, ()),
            KeeperCommand::OwnReplicas { done } => answer(done, self.own_replicas()),
            KeeperCommand::Agreed { world, done } => {
                self.take_agreed(*world).await;
                answer(done, ());
            }
            KeeperCommand::Started { done } => {
                self.is_starting = false;
                answer(done, ());
            }
            KeeperCommand::PeerReports { said, done } => {
                self.take_peer_reports(&said);
                answer(done, ());
            }
        }
    }

    /// Serves by another config from now on. A config that does not work changes nothing.
    async fn reload(&mut self, world: WorldConfig) -> Result<(), ReplicaTlsError> {
        let removed = self.discovered.removed_by(&world.discoveries);
        let of_removed =
            self.folded.replicas.iter().filter(|config| removed.contains(&config.spec.name));
        let models: BTreeSet<ModelName> =
            of_removed.flat_map(|config| config.spec.models.iter().cloned()).collect();
        let before = std::mem::replace(&mut self.world, world);
        // First: otherwise replicas of a removed discovery would be taken over once again.
        self.discovered.reconcile(&self.world.discoveries);
        let result = self.take_world(false).await;
        if result.is_err() {
            self.world = before;
            self.discovered.reconcile(&self.world.discoveries);
        } else if !models.is_empty() {
            // Models that an operator takes out are gone for good.
            self.lapsed.forget(&models);
            self.publish_view();
        }
        result
    }

    async fn take_discovered(&mut self) {
        if let Err(error) = self.take_world(false).await {
            tracing::error!(%error, "replicas that were found can't be used");
        }
    }

    /// Merges config, discoveries and agreed state, and serves by the result.
    ///
    /// # Errors
    /// Returns an error if a replica's TLS settings do not work; then nothing has changed.
    async fn take_world(&mut self, is_start: bool) -> Result<(), ReplicaTlsError> {
        let found = self.discovered.replicas();
        let mut folded = fold(&self.world, found, &self.agreed.world, &mut self.agreed.registered);
        self.figures.note_discoveries(self.discovered.watches());
        self.pages.retain(&folded.replicas);
        folded.replicas = self.filled(folded.replicas);
        let before = self.take_folded(folded, is_start).await?;
        self.follow_orders();
        self.tell_notes(&before.notes);
        self.publish_view();
        Ok(())
    }

    /// Takes in what replicas reported of themselves.
    async fn take_news(&mut self) {
        let replicas = self.filled(self.folded.replicas.clone());
        if replicas == self.folded.replicas {
            self.pages.reconcile(&replicas);
        } else {
            let folded = Folded { replicas, ..self.folded.clone() };
            if let Err(error) = self.take_folded(folded, false).await {
                tracing::error!(%error, "the replicas' own pages can't be used");
            }
        }
        self.publish_view();
    }

    fn filled(&self, configs: Vec<ReplicaConfig>) -> Vec<ReplicaConfig> {
        configs.into_iter().map(|config| self.pages.fill(config)).collect()
    }

    /// Serves by these replicas, routes and names from the next view on; returns the ones before.
    ///
    /// # Errors
    /// Returns an error if a replica's TLS settings do not work; then nothing has changed.
    async fn take_folded(
        &mut self,
        folded: Folded,
        is_start: bool,
    ) -> Result<Folded, ReplicaTlsError> {
        // First, since an error must leave everything as it was.
        let (units, known) = (self.workers.len(), &self.replicas);
        let replicas = gather_replicas(&folded.replicas, known, units, &self.resolver)?;
        // Later nothing waits for names: a replica is used once its name has an address.
        if is_start {
            let names = futures_util::future::join_all(
                replicas.iter().map(|it| it.connections().resolved()),
            );
            // The rest of the names may take as long as they like.
            drop(timeout(NAMES_WAIT, names).await);
        }
        let before = std::mem::replace(&mut self.folded, folded);
        self.fleet.reconcile(Instant::now(), self.member_specs(), is_start);
        let named = |replica: Arc<Replica>| (replica.spec().name.clone(), replica);
        self.replicas = replicas.into_iter().map(named).collect();
        self.limits.reconcile(&self.folded.replicas, &self.replicas);
        self.lapsed.note_listed(&before.replicas, &self.folded.replicas, Instant::now());
        self.pages.reconcile(&self.folded.replicas);
        self.failing.retain(|name| self.replicas.contains_key(name));
        self.knowledge.set_replicas(self.replicas.values().cloned().collect());
        self.monitors.reconcile(self.targets());
        self.identities.reconcile(self.identity_targets());
        let is_open = self.folded.replicas.iter().any(ReplicaConfig::needs_models);
        self.routing.model_lookups.set_open(is_open);
        Ok(before)
    }

    /// Returns every replica in the form of the health crate.
    fn member_specs(&self) -> Vec<MemberSpec> {
        let member = |config: &ReplicaConfig| {
            let spec = config.member();
            let weight = self.folded.weights.get(&spec.name).copied();
            MemberSpec { weight: weight.unwrap_or(spec.weight), ..spec }
        };
        self.folded.replicas.iter().map(member).collect()
    }

    fn order(&mut self, replica: &ReplicaName, order: Order) -> Result<(), UnknownReplicaError> {
        self.fleet.handle_order(Instant::now(), replica, order)
    }

    fn report(
        &mut self,
        replica: &ReplicaName,
        report: LoadReport,
    ) -> Result<(), UnknownReplicaError> {
        let now = Instant::now();
        let Some(known) = self.replicas.get(replica) else {
            return Err(UnknownReplicaError(replica.clone()));
        };
        let in_flight = known.in_flight().saturating_add(known.elsewhere());
        self.limits.reported(replica, &report, now);
        self.fleet.handle_report(now, replica, report, in_flight);
        Ok(())
    }
}

/// Returns the counters that the data path has of a replica.
fn live(replicas: &BTreeMap<ReplicaName, Arc<Replica>>, name: &ReplicaName, now: Instant) -> Live {
    replicas.get(name).map_or_else(Live::default, |replica| Live {
        in_flight: replica.in_flight(),
        elsewhere: replica.elsewhere(),
        started: replica.started(),
        silent_for: replica.silent_for(now),
    })
}

/// Sends an answer. The receiver may have stopped waiting; then the answer is dropped.
fn answer<T>(done: oneshot::Sender<T>, value: T) {
    drop(done.send(value));
}
