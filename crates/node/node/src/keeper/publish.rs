//! Views and boards of signals that the keeper publishes to the data path.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_health::{Action, ChangeReason, CheckError, MemberReport, MemberState};
use spillway_knowledge::KnowledgeEvent;
use spillway_replicas::ReplicaTarget;
use spillway_types::{Admission, ModelStanding, ReplicaName};
use spillway_view::{KnownModels, Replica, ReplicaLoads};

use super::{Keeper, live};
use crate::world::{SaidOfModels, build_view};

/// Kind of overflow replicas, as operators see it.
const OVERFLOW: &str = "overflow";

impl Keeper {
    /// Carries out the fleet's actions after an input, and publishes a changed standing.
    pub(super) fn settle(&mut self) {
        while let Some(action) = self.fleet.poll_action() {
            self.carry_out(action);
        }
        if self.fleet.version() != self.published {
            self.publish_view();
        }
    }

    /// Publishes a view with the replicas' present standing.
    pub(super) fn publish_view(&mut self) {
        self.published = self.fleet.version();
        // Before the look at the replicas, so that no later change is missed.
        self.names_published = self.resolver.version();
        let replicas: Vec<_> = self
            .folded
            .replicas
            .iter()
            .filter_map(|config| self.replicas.get(&config.spec.name).cloned())
            .collect();
        let standing = |replica: &Arc<Replica>| {
            let name = replica.spec().name.clone();
            let mut standing = self.fleet.standing(&name);
            if !replica.connections().has_address() {
                standing.admission = standing.admission.max(Admission::Down);
            }
            (name, standing)
        };
        let standings: BTreeMap<_, _> = replicas.iter().map(standing).collect();
        let now = Instant::now();
        for replica in &replicas {
            let standing = standings.get(&replica.spec().name);
            replica.set_down(self.fleet.down_cause(&replica.spec().name), now);
            replica.set_leaving(standing.is_some_and(|it| it.admission == Admission::Draining));
        }
        // A board of the old view's slots would be wrong for the new one's.
        let replica_loads = self.replica_loads(&replicas, now);
        let previous = self.routing.view();
        let block_bytes = self.routing.knowledge.block_bytes();
        let before = (&*previous, self.routing.seed, block_bytes);
        let models = SaidOfModels {
            elsewhere: self.elsewhere.served.clone(),
            known: self.known_models(),
            cards: self.pages.cards(),
            unread: self.pages.unread(&self.folded.replicas).cloned().collect(),
            denied: self.pages.denied(),
            several: self.pages.several(),
        };
        let view = build_view(&self.folded, replicas, &standings, models, before);
        view.replace_replica_loads(replica_loads);
        self.routing.replace_view(view);
        self.routing.model_lookups.announce();
    }

    /// Returns the models that are known by name, with or without a replica that serves them now.
    fn known_models(&self) -> KnownModels {
        let here = self.folded.models.iter().chain(self.lapsed.models());
        let elsewhere = self.folded.models_agreed.union(&self.elsewhere.known);
        KnownModels { here: here.cloned().collect(), elsewhere: elsewhere.cloned().collect() }
    }

    /// Publishes the present signals of replicas.
    pub(super) fn publish_board(&self, now: Instant) {
        let view = self.routing.view();
        view.replace_replica_loads(self.replica_loads(view.replicas(), now));
        // The board may show room that no end of a request has shown.
        self.routing.waiting.review();
    }

    fn replica_loads(&self, replicas: &[Arc<Replica>], now: Instant) -> ReplicaLoads {
        let signals = replicas.iter().map(|replica| {
            let name = &replica.spec().name;
            self.fleet.signals(now, name, live(&self.replicas, name, now))
        });
        let known = self.knowledge.published();
        let speeds = replicas.iter().map(|replica| known.of_replica(&replica.spec().name));
        ReplicaLoads::new(signals.collect())
            .with_speeds(speeds.collect())
            .with_holders(replicas.iter().map(|replica| replica.holder()))
    }

    /// Returns a report on each replica, for people.
    pub(super) fn members(&self) -> Vec<MemberReport> {
        let mut members = self.fleet.members(Instant::now());
        let configs = self.folded.replicas.iter().map(|config| (&config.spec.name, config));
        let configs: BTreeMap<_, _> = configs.collect();
        for member in &mut members {
            let replica = self.replicas.get(&member.name);
            member.concurrency_limit = replica.and_then(|replica| replica.concurrency_limit());
            let config = configs.get(&member.name).copied();
            if let Some(config) = config {
                member.url = config.spec.url();
                member.models.clone_from(&config.spec.models);
            }
            self.pages.complete(member, config);
            if config.is_some_and(|config| config.overflow.is_some()) {
                // More than the software of its server, operators have to know its role.
                member.kind = Some(OVERFLOW);
            }
        }
        spillway_health::compare_first_tokens(&mut members);
        members
    }

    /// Returns the monitors' target of every replica.
    pub(super) fn targets(&self) -> Vec<ReplicaTarget> {
        self.folded
            .replicas
            .iter()
            .filter_map(|config| Some(config.target(self.replicas.get(&config.spec.name)?)))
            .collect()
    }

    /// Returns the target of every replica that is asked for its software and models.
    pub(super) fn identity_targets(&self) -> Vec<ReplicaTarget> {
        let asked = self.folded.replicas.iter().filter(|config| config.care.identity.is_some());
        asked
            .filter_map(|config| {
                Some(config.identity_target(self.replicas.get(&config.spec.name)?))
            })
            .collect()
    }

    fn carry_out(&self, action: Action) {
        match action {
            Action::WarmUp(replica) => self.warm_up(replica),
            Action::Drained(replica) => tracing::info!(%replica, "drained"),
            Action::Changed { replica, from, to, why } => {
                self.forget_memory(&replica, from, to, why);
                self.health.note_state(&replica, to, Instant::now());
                let is_lost = matches!(to, MemberState::Down | MemberState::Ejected);
                let (from, to, why) = (from.as_str(), to.as_str(), why.name());
                match is_lost {
                    true => tracing::warn!(%replica, from, why, "replica is {to}"),
                    false => tracing::info!(%replica, from, to, why, "replica changed"),
                }
                self.metrics.record_transition(replica.as_str(), to, why);
            }
            Action::ModelChanged { replica, model, to } => {
                let to = breaker(to);
                match to {
                    BREAKER_OPEN => {
                        tracing::warn!(%replica, %model, "the model's circuit breaker opened");
                    }
                    to => tracing::info!(%replica, %model, to, "breaker changed"),
                }
                self.metrics.record_transition(replica.as_str(), to, ChangeReason::Breaker.name());
            }
        }
    }

    /// Forgets what a replica had in memory, if it has lost that by a change of state.
    fn forget_memory(
        &self,
        replica: &ReplicaName,
        from: MemberState,
        to: MemberState,
        why: ChangeReason,
    ) {
        let is_gone = |state| {
            matches!(state, MemberState::Down | MemberState::Draining | MemberState::Drained)
        };
        // A server that loads its model has nothing cached. A replica that was merely silent has
        // kept its caches.
        if why == ChangeReason::Loading {
            self.knowledge.tell(KnowledgeEvent::Emptied(replica.clone()));
            self.forget_adapters(replica);
        } else if from == MemberState::Down && !is_gone(to) && why != ChangeReason::AnswersAgain {
            self.knowledge.tell(KnowledgeEvent::Returned(replica.clone()));
            self.forget_adapters(replica);
        }
    }

    /// Sends a replica its warm-up prompts, in a task of its own.
    fn warm_up(&self, replica: ReplicaName) {
        let config = self.folded.replicas.iter().find(|config| config.spec.name == replica);
        let Some((config, known)) = config.zip(self.replicas.get(&replica)) else { return };
        let identity = config.care.identity;
        let target = ReplicaTarget { identity, ..config.target(known) };
        let prompts = config.care.warm_up.clone();
        let limit = Duration::from_millis(config.care.health.warm_up_max_ms);
        let sender = self.warm_up_sender.clone();
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let warming = spillway_replicas::warm_up(&target, &prompts, limit);
            let result = tokio::select! {
                result = warming => result,
                () = stop.cancelled() => return,
            };
            let result = result.map_err(|error| {
                tracing::warn!(%replica, %error, "warm-up failed");
                CheckError::Unhealthy
            });
            // Sending fails only after the keeper has ended.
            drop(sender.send((replica, result)).await);
        });
    }
}

/// Name of the state of a circuit breaker that lets no request pass.
const BREAKER_OPEN: &str = "breaker_open";

/// Returns the name of a breaker's state in logs and metrics.
fn breaker(standing: Option<ModelStanding>) -> &'static str {
    match standing {
        None => "breaker_closed",
        Some(ModelStanding::Open) => BREAKER_OPEN,
        Some(ModelStanding::Trial) => "breaker_trial",
    }
}
