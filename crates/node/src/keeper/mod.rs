//! The one task that knows how replicas are: it takes in what was seen of them, asks the pure
//! `health` crate what that means, and publishes views and boards for the data path.
//!
//! Driving the fleet follows one rule: one input, then all of its outputs ([`Keeper::settle`]).

mod agreed;
mod care;
mod discovered;
mod facts;
mod handle;
mod lapsed;
mod limits;
mod pages;
mod publish;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_health::{CheckFault, Fleet, Live, MemberSpec, Order, UnknownReplica};
use spillway_proxy::{Gateway, Replica, ReplicaTlsError};
use spillway_replicas::{Fact, FactSender, Monitors};
use spillway_types::{LoadReport, ModelName, ReplicaName, SignKind};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use care::{Care, Concurrency, ReplicaConfig};
pub(crate) use handle::{Command, KeeperHandle};

use crate::config::WorldConfig;
use crate::feedback::Feedback;
use crate::fold::{Folded, fold};
use crate::keeper::agreed::Agreed;
use crate::keeper::discovered::Discovered;
use crate::keeper::lapsed::Lapsed;
use crate::keeper::limits::Limits;
use crate::keeper::pages::Pages;
use crate::knowledge::Knowledge;
use crate::resolve::resolve_all;
use crate::world::gather_replicas;

/// How often signs are looked through and signals put together. A replica that fails is judged at
/// most this much later than its last sign.
const TICK: Duration = Duration::from_millis(100);
/// Facts that may wait: more than all monitors of 1,000 replicas report within a tick.
const FACTS_MAX: usize = 32_768;
/// Commands that may wait.
const COMMANDS_MAX: usize = 64;

/// Models of other regions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    /// Some replica there takes requests for them.
    pub(crate) served: BTreeSet<ModelName>,
    /// They are configured there, as far as this node has heard.
    pub(crate) known: BTreeSet<ModelName>,
}

/// A warm-up that ended, and how.
type WarmedUp = (ReplicaName, Result<(), CheckFault>);

/// Who knows how replicas are.
#[derive(Debug)]
pub(crate) struct Keeper {
    gateway: Arc<Gateway>,
    feedback: Arc<Feedback>,
    knowledge: Arc<Knowledge>,
    units: usize,
    fleet: Fleet,
    /// The version of the fleet's standings that the view was built from.
    published: u64,
    world: WorldConfig,
    discovered: Discovered,
    agreed: Agreed,
    /// No request has come yet: what is known now was known before the node was started.
    is_starting: bool,
    /// What follows from config, discoveries and the cluster: every replica there is, in the order
    /// of its slots, routes and names.
    folded: Folded,
    /// What the data path has of each.
    replicas: BTreeMap<ReplicaName, Arc<Replica>>,
    /// How many requests each is to have at a time.
    limits: Limits,
    /// Models that other regions have.
    elsewhere: Elsewhere,
    /// Models of this region whose registrations ended.
    lapsed: Lapsed,
    /// What each says of its models.
    pages: Pages,
    monitors: Monitors,
    /// Those that ask what replicas are. Apart from the others, which start anew with what these find.
    identities: Monitors,
    /// A replica said something of itself that is not in `folded` yet.
    has_news: bool,
    /// Replicas whose newest active check failed.
    failing: BTreeSet<ReplicaName>,
    facts: mpsc::Receiver<Fact>,
    fact_sender: FactSender,
    commands: mpsc::Receiver<Command>,
    /// Warm-ups under way, and what they came to.
    tasks: TaskTracker,
    stop: CancellationToken,
    warmed_up: mpsc::Receiver<WarmedUp>,
    warm_up_sender: mpsc::Sender<WarmedUp>,
}

/// What a keeper works with.
#[derive(Debug)]
pub(crate) struct KeeperParts {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) feedback: Arc<Feedback>,
    /// Told what concerns caches; tells how fast replicas are.
    pub(crate) knowledge: Arc<Knowledge>,
    pub(crate) world: WorldConfig,
    pub(crate) units: usize,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl Keeper {
    /// A keeper that has published the first view, and the way to talk to it.
    ///
    /// # Errors
    /// If a replica's TLS settings do not work.
    pub(crate) async fn start(parts: KeeperParts) -> Result<KeeperHandle, ReplicaTlsError> {
        let KeeperParts { gateway, feedback, knowledge, world, units, tasks, stop } = parts;
        let (command_sender, commands) = mpsc::channel(COMMANDS_MAX);
        let (fact_channel, facts) = mpsc::channel(FACTS_MAX);
        let (warm_up_sender, warmed_up) = mpsc::channel(COMMANDS_MAX);
        let fact_sender = FactSender::new(fact_channel);
        let seed = gateway.seed();
        let mut keeper = Self {
            fleet: Fleet::new(spillway_health::FleetConfig::default(), seed),
            published: 0,
            discovered: Discovered::start(&world.discoveries, &tasks, &stop, seed),
            agreed: Agreed::default(),
            is_starting: true,
            folded: Folded::default(),
            replicas: BTreeMap::new(),
            limits: Limits::default(),
            elsewhere: Elsewhere::default(),
            lapsed: Lapsed::default(),
            pages: Pages::default(),
            monitors: Monitors::new(fact_sender.clone(), Handle::current(), seed),
            identities: Monitors::new(fact_sender.clone(), Handle::current(), seed),
            has_news: false,
            failing: BTreeSet::new(),
            facts,
            fact_sender,
            commands,
            tasks: tasks.clone(),
            stop: stop.clone(),
            warmed_up,
            warm_up_sender,
            gateway,
            feedback,
            knowledge,
            units,
            world,
        };
        keeper.take_world(true).await?;
        tasks.spawn(keeper.run(stop));
        Ok(KeeperHandle(command_sender))
    }

    /// Keeps until told to stop.
    async fn run(mut self, stop: CancellationToken) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    self.tick();
                    // All at once: at a start every replica says something.
                    if std::mem::take(&mut self.has_news) {
                        self.take_news().await;
                    }
                }
                Some(fact) = self.facts.recv() => self.note(fact),
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

    /// Looks through what traffic has shown since the last tick.
    fn tick(&mut self) {
        for worker in &self.feedback.workers {
            worker.drain_signs(|sign| {
                match &sign.kind {
                    SignKind::Failed(fault) => {
                        self.feedback.metrics.record_fault(sign.replica.as_str(), *fault);
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
        self.limits.look(now);
        let replicas = &self.replicas;
        self.fleet.handle_timeout(now, &|name| live(replicas, name, now));
        if self.lapsed.expire(now) {
            self.publish_view();
        }
        self.publish_board(now);
        self.feedback.note_facts_dropped(self.fact_sender.dropped());
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Reload { world, done } => {
                let result = self.reload(*world).await;
                answer(done, result.map_err(|error| error.to_string()));
            }
            Command::Order { replica, order, done } => answer(done, self.order(&replica, order)),
            Command::Report { replica, report, done } => {
                answer(done, self.report(&replica, report));
            }
            Command::Elsewhere { models, done } => {
                self.elsewhere = models;
                self.publish_view();
                answer(done, ());
            }
            Command::Members { done } => answer(done, self.members()),
            Command::OwnReplicas { done } => answer(done, self.own_replicas()),
            Command::Agreed { world, done } => {
                self.take_agreed(*world).await;
                answer(done, ());
            }
            Command::Started { done } => {
                self.is_starting = false;
                answer(done, ());
            }
            Command::Witnesses { said, done } => {
                self.take_witnesses(&said);
                answer(done, ());
            }
        }
    }

    /// Serves by another config from now on. One that does not work changes nothing.
    async fn reload(&mut self, world: WorldConfig) -> Result<(), ReplicaTlsError> {
        let before = std::mem::replace(&mut self.world, world);
        // First, or what a discovery that is no more has found would be taken over once again.
        self.discovered.reconcile(&self.world.discoveries);
        let result = self.take_world(false).await;
        if result.is_err() {
            self.world = before;
            self.discovered.reconcile(&self.world.discoveries);
        }
        result
    }

    async fn take_discovered(&mut self) {
        if let Err(error) = self.take_world(false).await {
            tracing::error!(%error, "replicas that were found can't be used");
        }
    }

    /// Replicas, routes and all that goes with them become what config, discovery and the cluster
    /// say.
    ///
    /// # Errors
    /// If a replica's TLS settings do not work; then nothing has changed.
    async fn take_world(&mut self, is_start: bool) -> Result<(), ReplicaTlsError> {
        let found = self.discovered.replicas();
        let mut folded = fold(&self.world, found, &self.agreed.world, &mut self.agreed.registered);
        self.pages.retain(&folded.replicas);
        folded.replicas = self.filled(folded.replicas);
        let before = self.take_folded(folded, is_start).await?;
        self.follow_orders();
        self.tell_notes(&before.notes);
        self.gateway.replace_cors(self.world.cors.clone());
        self.publish_view();
        Ok(())
    }

    /// Takes in what replicas said of themselves.
    async fn take_news(&mut self) {
        let replicas = self.filled(self.folded.replicas.clone());
        if replicas == self.folded.replicas {
            self.pages.reconcile(&replicas);
        } else {
            let folded = Folded { replicas, ..self.folded.clone() };
            if let Err(error) = self.take_folded(folded, false).await {
                tracing::error!(%error, "what replicas say of themselves can't be used");
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
    /// If a replica's TLS settings do not work; then nothing has changed.
    async fn take_folded(
        &mut self,
        folded: Folded,
        is_start: bool,
    ) -> Result<Folded, ReplicaTlsError> {
        let replicas = gather_replicas(&folded.replicas, &self.replicas, self.units)?;
        // A replica is not used before its addresses are known.
        let is_new = |replica: &&Arc<Replica>| {
            let known = self.replicas.get(&replica.spec().name);
            !known.is_some_and(|known| known.is_same_server(replica))
        };
        let new: Vec<_> = replicas.iter().filter(is_new).cloned().collect();
        resolve_all(&new).await;
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
        Ok(before)
    }

    /// Every replica as health sees it.
    fn member_specs(&self) -> Vec<MemberSpec> {
        let member = |config: &ReplicaConfig| {
            let spec = config.member();
            let weight = self.folded.weights.get(&spec.name).copied();
            MemberSpec { weight: weight.unwrap_or(spec.weight), ..spec }
        };
        self.folded.replicas.iter().map(member).collect()
    }

    fn order(&mut self, replica: &ReplicaName, order: Order) -> Result<(), UnknownReplica> {
        self.fleet.handle_order(Instant::now(), replica, order)
    }

    fn report(&mut self, replica: &ReplicaName, report: LoadReport) -> Result<(), UnknownReplica> {
        let now = Instant::now();
        let Some(known) = self.replicas.get(replica) else {
            return Err(UnknownReplica(replica.clone()));
        };
        let in_flight = known.in_flight().saturating_add(known.elsewhere());
        self.limits.reported(replica, &report, now);
        self.fleet.handle_report(now, replica, report, in_flight);
        Ok(())
    }
}

/// What the data path knows of a replica.
fn live(replicas: &BTreeMap<ReplicaName, Arc<Replica>>, name: &ReplicaName, now: Instant) -> Live {
    replicas.get(name).map_or_else(Live::default, |replica| Live {
        in_flight: replica.in_flight(),
        elsewhere: replica.elsewhere(),
        started: replica.started(),
        silent_for: replica.silent_for(now),
    })
}

/// Whoever asked may have stopped waiting; then nobody needs the answer.
fn answer<T>(done: oneshot::Sender<T>, value: T) {
    drop(done.send(value));
}
