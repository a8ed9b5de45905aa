//! Says in the cluster what only this node knows: its region's replicas and how they are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_agreement::Agreement;
use spillway_control::{
    Actor, BATCH_MAX, Belief, Command, Expect, Observation, Outcome, ReplicaId, ReplicaSpec,
    ReplicaState, State, admits,
};
use spillway_health::{MemberReport, MemberState};
use spillway_link::Link;
use spillway_proxy::Gateway;
use spillway_types::{ModelName, NodeName, RegionName, ReplicaName};

use crate::agreed::AgreedParts;
use crate::agreed::leases::Leases;
use crate::agreed::seen::{Seen, seen};
use crate::agreed::witness::{connected, observation_ms};
use crate::fold::is_registered;
use crate::keeper::KeeperHandle;

/// How often it looks whether there is something to say.
const PERIOD: Duration = Duration::from_millis(500);
/// How often a node says again what the cluster does not believe: circumstances may have changed,
/// and each time costs every node an entry.
const REPEAT: Duration = Duration::from_secs(5);
/// How long saying it may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Says what only this node knows.
#[derive(Debug)]
pub(super) struct Speaker {
    agreement: Arc<Agreement>,
    me: (NodeName, RegionName),
    link: Arc<Link>,
    keeper: KeeperHandle,
    gateway: Arc<Gateway>,
    /// When something was said of each replica.
    said: BTreeMap<ReplicaName, Instant>,
    /// When the cluster took or refused what was told of each replica itself.
    told: BTreeMap<ReplicaName, Instant>,
    leases: Leases,
    /// When the own region's country was told last.
    told_country: Option<Instant>,
}

impl Speaker {
    pub(super) fn new(parts: AgreedParts<'_>, agreement: Arc<Agreement>) -> Self {
        let AgreedParts { me, link, keeper, feedback, .. } = parts;
        let gateway = Arc::clone(&feedback.gateway);
        let leases = Leases::default();
        let (said, told) = (BTreeMap::new(), BTreeMap::new());
        let told_country = None;
        Self { agreement, me, link, keeper, gateway, said, told, leases, told_country }
    }

    /// Looks again and again.
    pub(super) async fn run(mut self) {
        loop {
            let state = self.agreement.published();
            if state.cluster().is_some() {
                let own = self.keeper.own_replicas().await;
                let members = self.keeper.members().await;
                for command in self.news(&state, &own, &members) {
                    let replica = match &command {
                        Command::RegisterReplica { id, .. } => Some(id.name.clone()),
                        _ => None,
                    };
                    if self.say(command).await {
                        self.told.extend(replica.map(|name| (name, Instant::now())));
                    }
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Says it; whether the cluster has decided about it, one way or the other.
    async fn say(&self, command: Command) -> bool {
        let what = command.to_string();
        let said = self.agreement.propose(command, Actor::Node, None, LIMIT).await;
        match &said {
            Ok(done) => match &done.outcome {
                Outcome::Refused(refusal) => tracing::warn!(%refusal, what, "refused"),
                outcome => tracing::debug!(?outcome, what, "agreed"),
            },
            // It is said again as long as it is not known.
            Err(error) => tracing::debug!(%error, what, "not agreed yet"),
        }
        said.is_ok()
    }

    /// What the state does not know yet.
    fn news(
        &mut self,
        state: &State,
        own: &[spillway_proxy::ReplicaSpec],
        members: &[MemberReport],
    ) -> Vec<Command> {
        let mut news: Vec<Command> = self.unregistered(state, own);
        news.extend(self.country(state));
        news.extend(self.drained(state, members));
        let observations = self.observations(state, members);
        let live = connected(&self.link, &self.me.1);
        let now = Instant::now();
        news.extend(self.leases.due(state, (&self.me.0, &self.me.1), &live, now));
        self.said.extend(observations.iter().map(|seen| (seen.replica.clone(), now)));
        for batch in observations.chunks(BATCH_MAX) {
            news.push(Command::ReportHealth {
                region: self.me.1.clone(),
                live: live.clone(),
                observations: batch.to_vec(),
            });
        }
        news
    }

    /// Replicas that this node has by itself, and the state does not have as they are. One that was
    /// registered under the same name stays what it was registered as: the two would overwrite each
    /// other for ever. Nodes whose configs differ do that too, but slowly.
    fn unregistered(&mut self, state: &State, own: &[spillway_proxy::ReplicaSpec]) -> Vec<Command> {
        if state.node(&self.me.0).is_none() {
            // It is no member any more, or not yet: it would be refused.
            return Vec::new();
        }
        self.told.retain(|_, at| at.elapsed() < REPEAT);
        let register = |replica: &spillway_proxy::ReplicaSpec| {
            let spec = registered(replica);
            let id = ReplicaId::new(self.me.1.clone(), replica.name.clone());
            let known = state.records().replicas.get(&id);
            let is_settled = known.is_some_and(|known| known.spec == spec || is_registered(known));
            let is_due = !is_settled && !self.told.contains_key(&replica.name);
            is_due.then_some(Command::RegisterReplica {
                id,
                spec,
                incarnation: 0,
                expect: Expect::Any,
            })
        };
        own.iter().filter_map(register).collect()
    }

    /// In which country the own region is by this node's config, if the cluster knows of none. A country
    /// that it knows stays: who corrects it is an operator.
    fn country(&mut self, state: &State) -> Option<Command> {
        let country = self.gateway.config().country?;
        let region = self.me.1.clone();
        let is_unknown = state.records().regions.get(&region)?.country.is_empty();
        let was_just_told = self.told_country.is_some_and(|at| at.elapsed() < REPEAT);
        if state.node(&self.me.0).is_none() || !is_unknown || was_just_told {
            return None;
        }
        let command = Command::DeclareCountry { region, country };
        // Nodes of older versions would not understand it: it waits until they are upgraded.
        admits(state, &command).ok()?;
        self.told_country = Some(Instant::now());
        Some(command)
    }

    /// Replicas that were to be drained and have nothing left, at this node and by the word of the region's
    /// others. What they have told may be a moment old, and a request of theirs on its way: an
    /// operator reads it as what it is, a hint that the replica can be stopped.
    fn drained(&self, state: &State, members: &[MemberReport]) -> Vec<Command> {
        if state.node(&self.me.0).is_none() {
            return Vec::new();
        }
        let view = self.gateway.view();
        let is_busy = |name: &ReplicaName| {
            let mut replicas = view.replicas().iter();
            let found = replicas.find(|replica| replica.spec().name == *name);
            found.is_some_and(|replica| replica.in_flight() + replica.elsewhere() > 0)
        };
        let drained = |member: &MemberReport| {
            let id = ReplicaId::new(self.me.1.clone(), member.name.clone());
            let row = state.records().replicas.row(&id)?;
            let is_asked = row.value().state == ReplicaState::Draining;
            let is_done = member.state == MemberState::Drained && !is_busy(&member.name);
            // Who takes it back meanwhile makes another version.
            let expect = Expect::Version(row.version());
            (is_asked && is_done).then_some(Command::SetReplicaState {
                id,
                state: ReplicaState::Drained,
                expect,
            })
        };
        members.iter().filter_map(drained).collect()
    }

    /// What this node sees otherwise than it said last, or than the cluster believes.
    fn observations(&self, state: &State, members: &[MemberReport]) -> Vec<Observation> {
        let Some((own, _)) = state.node(&self.me.0) else { return Vec::new() };
        let records = state.records();
        let now_ms = state.region_clock_ms(&self.me.1).unwrap_or(0);
        let repeat_ms = observation_ms(state) / 3;
        let observe = |member: &MemberReport| {
            let id = ReplicaId::new(self.me.1.clone(), member.name.clone());
            let epoch = records.replicas.get(&id)?.epoch;
            let (belief, signals) = seen(member);
            let seen = Seen { by: own, epoch, belief, signals };
            let was_just_said = self.said.get(&member.name).is_some_and(|at| at.elapsed() < REPEAT);
            let is_new = match (records.health.get(&id), was_just_said) {
                (Some(known), true) => seen.differs(known),
                (Some(known), false) => {
                    seen.differs(known) || seen.is_due(known, now_ms, repeat_ms)
                }
                (None, _) => belief == Belief::Down,
            };
            is_new.then(|| Observation { replica: member.name.clone(), epoch, belief, signals })
        };
        members.iter().filter_map(observe).collect()
    }
}

/// A replica of a config as the cluster knows it.
fn registered(spec: &spillway_proxy::ReplicaSpec) -> ReplicaSpec {
    let scheme = if spec.tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}:{}", spec.host, spec.port);
    let models: BTreeMap<ModelName, ()> =
        spec.models.iter().map(|model| (model.clone(), ())).collect();
    ReplicaSpec {
        weight: spec.weight,
        pool: spec.pool.clone(),
        capacity: (spec.in_flight_max < u32::MAX).then_some(spec.in_flight_max),
        ..ReplicaSpec::new(&url, models.into_keys())
    }
}
