//! Proposes to the cluster what only this node knows: its region's replicas and their health.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_cluster_state::{
    Actor, BATCH_MAX, Belief, CertificateSerial, Command, Expect, Item, Observation, Outcome,
    ReplicaId, ReplicaSpec, ReplicaState, RevokedCertificate, State, admits,
};
use spillway_control_plane::ControlPlane;
use spillway_health::{MemberReport, MemberState};
use spillway_link::Link;
use spillway_request::gateway::RoutingState;
use spillway_types::{ModelName, NodeName, RegionName, ReplicaName};

use crate::agreed::ClusterMember;
use crate::agreed::leases::Leases;
use crate::agreed::peer_report::{connected, observation_ms};
use crate::agreed::seen::{ReplicaOpinion, seen};
use crate::fold::is_registered;
use crate::keeper::KeeperHandle;

/// Period of looking for something to propose.
const PERIOD: Duration = Duration::from_millis(500);
/// Shortest time between two proposals about the same thing that the cluster does not accept: each
/// costs every node an entry.
const REPEAT: Duration = Duration::from_secs(5);
/// Maximum number of revocations that are proposed in a period.
const REVOCATIONS_MAX: usize = 16;
/// Operator in the audit trail for what the CA has signed.
const AUTHORITY: &str = "certificate authority";
/// Time limit of one proposal.
const LIMIT: Duration = Duration::from_secs(5);

/// Task that proposes what only this node knows.
#[derive(Debug)]
pub(super) struct Speaker {
    control_plane: Arc<ControlPlane>,
    me: (NodeName, RegionName),
    link: Arc<Link>,
    keeper: KeeperHandle,
    routing: Arc<RoutingState>,
    /// Time of the last health report about each replica.
    said: BTreeMap<ReplicaName, Instant>,
    /// Time at which the cluster last accepted or refused the registration of each replica.
    told: BTreeMap<ReplicaName, Instant>,
    leases: Leases,
    /// Time at which the own region's country was proposed last.
    told_country: Option<Instant>,
    /// Time at which revocations of the CA were proposed last.
    told_revoked: Option<Instant>,
}

impl Speaker {
    pub(super) fn new(
        member: &ClusterMember,
        link: &Arc<Link>,
        routing: &Arc<RoutingState>,
        control_plane: Arc<ControlPlane>,
    ) -> Self {
        Self {
            control_plane,
            me: (member.name.clone(), member.region.clone()),
            link: Arc::clone(link),
            keeper: member.keeper.clone(),
            routing: Arc::clone(routing),
            said: BTreeMap::new(),
            told: BTreeMap::new(),
            leases: Leases::default(),
            told_country: None,
            told_revoked: None,
        }
    }

    /// Looks for news in each period, and proposes it.
    pub(super) async fn run(mut self) {
        loop {
            let state = self.control_plane.published();
            if state.cluster().is_some() {
                let own = self.keeper.own_replicas().await;
                let members = self.keeper.members().await;
                for command in self.revoked(&state) {
                    self.say_as(Actor::Operator(AUTHORITY.to_owned()), command).await;
                }
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

    /// Proposes the command. Returns true if the cluster has accepted or refused it.
    async fn say(&self, command: Command) -> bool {
        self.say_as(Actor::Node, command).await
    }

    async fn say_as(&self, actor: Actor, command: Command) -> bool {
        let what = command.to_string();
        let said = self.control_plane.propose(command, actor, None, LIMIT).await;
        match &said {
            Ok(done) => match &done.outcome {
                Outcome::Refused(refusal) => tracing::warn!(%refusal, what, "refused"),
                outcome => tracing::debug!(?outcome, what, "agreed"),
            },
            // The next period proposes it again.
            Err(error) => tracing::debug!(%error, what, "not agreed yet"),
        }
        said.is_ok()
    }

    /// Returns the orders that make the CA's revocations permanent. They count already: the CA has
    /// signed them. Nodes without operators' orders leave them to the others.
    fn revoked(&mut self, state: &State) -> Vec<Command> {
        let serials = self.link.unrecorded_revocations();
        let was_just_told = self.told_revoked.is_some_and(|at| at.elapsed() < REPEAT);
        if serials.is_empty() || was_just_told || !state.may_order(&self.me.0) {
            return Vec::new();
        }
        self.told_revoked = Some(Instant::now());
        let command = |serial: String| {
            let revoked = RevokedCertificate { reason: "signed by the CA".to_owned() };
            let item = Item::RevokedCertificate(CertificateSerial::from(serial.as_str()), revoked);
            Command::Put { item, expect: Expect::Absent }
        };
        serials.into_iter().take(REVOCATIONS_MAX).map(command).collect()
    }

    /// Returns the commands for everything that the state does not know yet.
    fn news(
        &mut self,
        state: &State,
        own: &[spillway_view::ReplicaSpec],
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

    /// Returns registrations of the replicas that this node has by itself and the state has
    /// otherwise or not at all. A replica registered under the same name stays as it was
    /// registered: the two would overwrite each other for ever. Nodes whose configs differ do that
    /// too, but slowly.
    fn unregistered(&mut self, state: &State, own: &[spillway_view::ReplicaSpec]) -> Vec<Command> {
        if state.node(&self.me.0).is_none() {
            // The cluster would refuse a node that is no member.
            return Vec::new();
        }
        self.told.retain(|_, at| at.elapsed() < REPEAT);
        let register = |replica: &spillway_view::ReplicaSpec| {
            let spec = registered(replica);
            let id = ReplicaId::new(self.me.1.clone(), replica.name.clone());
            let known = state.records().replicas.get(&id);
            let is_settled = known.is_some_and(|known| known.spec == spec || is_registered(known));
            let is_due = !is_settled && !self.told.contains_key(&replica.name);
            is_due.then_some(Command::RegisterReplica {
                id,
                spec,
                // Marks a replica of a config, which is served only by nodes whose config has it.
                incarnation: 0,
                expect: Expect::Any,
            })
        };
        own.iter().filter_map(register).collect()
    }

    /// Returns the declaration of the own region's country by this node's config, if the cluster
    /// knows none. Only an operator corrects a country that it knows.
    fn country(&mut self, state: &State) -> Option<Command> {
        let country = self.routing.own_country?;
        let region = self.me.1.clone();
        let is_unknown = state.records().regions.get(&region)?.country.is_empty();
        let was_just_told = self.told_country.is_some_and(|at| at.elapsed() < REPEAT);
        if state.node(&self.me.0).is_none() || !is_unknown || was_just_told {
            return None;
        }
        let command = Command::DeclareCountry { region, country };
        // Nodes of older versions would not understand the command: it waits until they are
        // upgraded.
        admits(state, &command).ok()?;
        self.told_country = Some(Instant::now());
        Some(command)
    }

    /// Returns the change to `Drained` for each replica that was to be drained and has no request
    /// left, here and by the reports of sibling nodes. Such a report may be a moment old, and a
    /// request may be in transit. The state shows an operator that the replica can probably be
    /// stopped.
    fn drained(&self, state: &State, members: &[MemberReport]) -> Vec<Command> {
        if state.node(&self.me.0).is_none() {
            return Vec::new();
        }
        let view = self.routing.view();
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
            // An operator who takes the replica back in the meantime makes another version, and
            // this command fails.
            let expect = Expect::Version(row.version());
            (is_asked && is_done).then_some(Command::SetReplicaState {
                id,
                state: ReplicaState::Drained,
                expect,
            })
        };
        members.iter().filter_map(drained).collect()
    }

    /// Returns the opinions that differ from this node's last report, or from what the cluster
    /// believes.
    fn observations(&self, state: &State, members: &[MemberReport]) -> Vec<Observation> {
        let Some((own, _)) = state.node(&self.me.0) else { return Vec::new() };
        let records = state.records();
        let now_ms = state.region_clock_ms(&self.me.1).unwrap_or(0);
        // A report is renewed well before it expires.
        let repeat_ms = observation_ms(state) / 3;
        let observe = |member: &MemberReport| {
            let id = ReplicaId::new(self.me.1.clone(), member.name.clone());
            let epoch = records.replicas.get(&id)?.epoch;
            let (belief, signals) = seen(member);
            let seen = ReplicaOpinion { by: own, epoch, belief, signals };
            let was_just_said = self.said.get(&member.name).is_some_and(|at| at.elapsed() < REPEAT);
            let is_new = match (records.health.get(&id), was_just_said) {
                // Just reported: only a change is reported again at once.
                (Some(known), true) => seen.differs(known),
                (Some(known), false) => {
                    seen.differs(known) || seen.is_due(known, now_ms, repeat_ms)
                }
                // Without a record the cluster takes the replica for healthy.
                (None, _) => belief == Belief::Down,
            };
            is_new.then(|| Observation { replica: member.name.clone(), epoch, belief, signals })
        };
        members.iter().filter_map(observe).collect()
    }
}

/// Converts a replica of a config to the form of the agreed state.
fn registered(spec: &spillway_view::ReplicaSpec) -> ReplicaSpec {
    let url = spec.address();
    let models: BTreeMap<ModelName, ()> =
        spec.models.iter().map(|model| (model.clone(), ())).collect();
    ReplicaSpec {
        weight: spec.weight,
        pool: spec.pool.clone(),
        capacity: (spec.in_flight_max < u32::MAX).then_some(spec.in_flight_max),
        ..ReplicaSpec::new(&url, models.into_keys())
    }
}
