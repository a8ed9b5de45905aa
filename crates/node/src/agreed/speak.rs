//! Says in the cluster what only this node knows: its region's replicas and how they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_agreement::Agreement;
use spillway_control::{
    Actor, BATCH_MAX, Belief, Command, Expect, NodeId, Observation, Outcome, ReplicaId,
    ReplicaSpec, State,
};
use spillway_health::{MemberReport, Verdict, Vote};
use spillway_link::Link;
use spillway_proxy::Gateway;
use spillway_types::{ModelName, NodeName, RegionName, ReplicaName};

use crate::agreed::AgreedParts;
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
    gateway: Arc<Gateway>,
    keeper: KeeperHandle,
    /// When something was said of each replica.
    said: BTreeMap<ReplicaName, Instant>,
}

impl Speaker {
    pub(super) fn new(parts: AgreedParts<'_>, agreement: Arc<Agreement>) -> Self {
        let AgreedParts { me, link, gateway, keeper, .. } = parts;
        Self { agreement, me, link, gateway, keeper, said: BTreeMap::new() }
    }

    /// Looks again and again.
    pub(super) async fn run(mut self) {
        loop {
            let state = self.agreement.published();
            if state.cluster().is_some() {
                let members = self.keeper.members().await;
                for command in self.news(&state, &members) {
                    self.say(command).await;
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn say(&self, command: Command) {
        let what = command.to_string();
        match self.agreement.propose(command, Actor::Node, None, LIMIT).await {
            Ok(done) => match done.outcome {
                Outcome::Refused(refusal) => tracing::warn!(%refusal, what, "refused"),
                outcome => tracing::debug!(?outcome, what, "agreed"),
            },
            // It is said again as long as it is not known.
            Err(error) => tracing::debug!(%error, what, "not agreed yet"),
        }
    }

    /// What the state does not know yet.
    fn news(&mut self, state: &State, members: &[MemberReport]) -> Vec<Command> {
        let mut news: Vec<Command> = self.unregistered(state).collect();
        let observations = self.observations(state, members);
        let now = Instant::now();
        self.said.extend(observations.iter().map(|seen| (seen.replica.clone(), now)));
        for batch in observations.chunks(BATCH_MAX) {
            news.push(Command::ReportHealth {
                region: self.me.1.clone(),
                live: self.live(),
                observations: batch.to_vec(),
            });
        }
        news
    }

    /// Replicas of this node's view that the state does not have as they are.
    fn unregistered(&self, state: &State) -> impl Iterator<Item = Command> {
        let view = self.gateway.view();
        let register = |replica: &spillway_proxy::Replica| {
            let spec = registered(replica.spec());
            let id = ReplicaId::new(self.me.1.clone(), replica.spec().name.clone());
            let known = state.records().replicas.get(&id);
            let is_known = known.is_some_and(|known| known.spec == spec);
            (!is_known).then_some(Command::RegisterReplica {
                id,
                spec,
                incarnation: 0,
                expect: Expect::Any,
            })
        };
        let found: Vec<_> =
            view.replicas().iter().filter_map(|replica| register(replica)).collect();
        found.into_iter()
    }

    /// What this node sees otherwise than it said last, or than the cluster believes.
    fn observations(&self, state: &State, members: &[MemberReport]) -> Vec<Observation> {
        let Some((own, _)) = state.node(&self.me.0) else { return Vec::new() };
        let records = state.records();
        let observe = |member: &MemberReport| {
            let id = ReplicaId::new(self.me.1.clone(), member.name.clone());
            let epoch = records.replicas.get(&id)?.epoch;
            let (belief, signals) = seen(member);
            let health = records.health.get(&id);
            let was_just_said = self.said.get(&member.name).is_some_and(|at| at.elapsed() < REPEAT);
            let is_known = health.is_some_and(|known| {
                let said = known.observers.get(&own).map(|said| (said.belief, said.signals));
                let is_settled = known.belief == belief || was_just_said;
                known.epoch == epoch && said == Some((belief, signals)) && is_settled
            });
            let is_new = !is_known && !is_unremarkable(health, own, belief);
            is_new.then(|| Observation { replica: member.name.clone(), epoch, belief, signals })
        };
        members.iter().filter_map(observe).collect()
    }

    /// Nodes of the region that this one is connected with.
    fn live(&self) -> BTreeSet<NodeName> {
        let peers = self.link.peers();
        let near = peers.iter().filter(|peer| *peer.identity.region() == self.me.1);
        near.filter(|peer| peer.is_connected()).map(|peer| peer.identity.node().clone()).collect()
    }
}

/// Whether nothing was ever said against a replica, and nothing is now.
fn is_unremarkable(known: Option<&spillway_control::Health>, own: NodeId, belief: Belief) -> bool {
    let was_silent = known.is_none_or(|known| !known.observers.contains_key(&own));
    was_silent && belief == Belief::Up && known.is_none_or(|known| known.belief == Belief::Up)
}

/// What this node makes of a replica, and how many signals say so.
fn seen(member: &MemberReport) -> (Belief, u8) {
    let votes = &member.votes;
    let votes = [votes.active, votes.passive, votes.deep, votes.scrape];
    let signals = votes.iter().map(|vote| match vote {
        Vote::Silent | Vote::Good => 0,
        Vote::Bad => 1,
        // Nothing contradicts it for so long: that counts as two.
        Vote::BadForLong => 2,
    });
    match member.verdict {
        Verdict::Up => (Belief::Up, 1),
        Verdict::Suspect | Verdict::Down => (Belief::Down, signals.sum::<u8>().max(1)),
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
