//! Fleet of all replicas of the own region.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use spillway_types::{
    Admission, DownCause, LoadReport, ModelName, ModelStanding, PoolName, ReplicaName, Sign,
    Signals, Standing,
};

use crate::change_reason::ChangeReason;
use crate::member::{Effect, FleetShared, Member, ShownStanding};
use crate::pace::UsualPaces;
use crate::pool::Ejections;
use crate::pool_load::PoolLoad;
use crate::standby::{PoolNeed, Reserve, Wish};
use crate::{Check, CheckError, FleetConfig, Live, MemberReport, MemberSpec, MemberState, Order};

mod region;

/// Decisions about all replicas of the own region.
///
/// Feed it with `handle_*`, and call [`Self::handle_timeout`] every 100 ms. After each input, drain
/// [`Self::poll_action`]; if [`Self::version`] has changed, so has at least one [`Self::standing`].
/// An input for a replica that is not in the fleet is ignored, because inputs are under way while
/// members come and go; only an order returns an error.
///
/// Time never runs backwards: an input older than an earlier one counts as of the earlier one.
#[derive(Debug)]
pub struct Fleet {
    config: FleetConfig,
    rng: fastrand::Rng,
    members: BTreeMap<ReplicaName, Member>,
    /// State of the reserve of each pool that has one.
    needs: BTreeMap<PoolName, PoolNeed>,
    actions: VecDeque<Action>,
    version: u64,
    /// Latest time of any input.
    latest: Option<Instant>,
}

/// Action that the caller carries out, or change that the caller records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send warm-up prompts to the replica and answer with [`Fleet::handle_warmed_up`].
    WarmUp(ReplicaName),
    /// The drained replica has no requests left, or its time is up: it may be stopped.
    Drained(ReplicaName),
    /// A replica changed its state; for logs and metrics.
    Changed {
        /// Name of the replica.
        replica: ReplicaName,
        /// State before the change.
        from: MemberState,
        /// State after the change.
        to: MemberState,
        /// Reason of the change.
        why: ChangeReason,
    },
    /// The circuit breaker of a model opened, became half open, or closed; for logs and metrics.
    ModelChanged {
        /// Name of the replica.
        replica: ReplicaName,
        /// Name of the model.
        model: ModelName,
        /// New standing of the model; `None` if the breaker closed.
        to: Option<ModelStanding>,
    },
}

/// Error: no replica of that name is in the fleet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no replica `{0}`")]
pub struct UnknownReplicaError(pub ReplicaName);

impl Fleet {
    /// Makes an empty fleet. Nodes should use different seeds, which spread their retries.
    #[must_use]
    pub fn new(config: FleetConfig, seed: u64) -> Self {
        Self {
            config,
            rng: fastrand::Rng::with_seed(seed),
            members: BTreeMap::new(),
            needs: BTreeMap::new(),
            actions: VecDeque::new(),
            version: 0,
            latest: None,
        }
    }

    /// Takes over the list of replicas. Those that stay keep their state; of two with one name the
    /// later counts.
    ///
    /// New replicas must first show that they are ready. With `presumed_ready`, for the start of a
    /// node, they serve until a signal speaks against them: they served before the node started.
    pub fn reconcile(&mut self, now: Instant, members: Vec<MemberSpec>, presumed_ready: bool) {
        let now = self.advance_to(now);
        let names: BTreeSet<ReplicaName> = members.iter().map(|spec| spec.name.clone()).collect();
        let before = self.members.len();
        self.members.retain(|name, _| names.contains(name));
        if self.members.len() != before {
            self.version += 1;
        }
        for spec in members {
            let name = spec.name.clone();
            if let Some(member) = self.members.get_mut(&name) {
                member.configure(spec);
            } else {
                self.members.insert(name.clone(), Member::new(now, spec, presumed_ready));
                self.version += 1;
            }
            // A changed spec may change the verdict at once.
            self.settle(&name, now);
        }
        self.publish_all();
        let pools: BTreeSet<&PoolName> =
            self.members.values().filter(|m| m.reserve().is_some()).map(Member::pool).collect();
        self.needs.retain(|pool, _| pools.contains(pool));
    }

    /// Takes in a sign of traffic.
    pub fn handle_sign(&mut self, sign: &Sign) {
        self.feed(sign.at, &sign.replica, |member, now, shared| member.on_sign(now, sign, shared));
    }

    /// Takes in the result of a check.
    pub fn handle_check(
        &mut self,
        now: Instant,
        replica: &ReplicaName,
        check: Check,
        result: Result<(), CheckError>,
    ) {
        self.feed(now, replica, |member, now, _| member.on_check(now, check, result));
    }

    /// Takes in a load report that was scraped or pushed, with the requests that were known to be
    /// in flight there when it came: [`Live::known`]. Reports that come with replies are signs.
    pub fn handle_report(
        &mut self,
        now: Instant,
        replica: &ReplicaName,
        report: LoadReport,
        in_flight: u32,
    ) {
        self.feed(now, replica, |member, now, _| member.on_report(now, &report, in_flight));
    }

    /// Follows an order. A later order replaces an earlier one with its time limit.
    ///
    /// # Errors
    /// Returns [`UnknownReplicaError`] if there is no such replica.
    pub fn handle_order(
        &mut self,
        now: Instant,
        replica: &ReplicaName,
        order: Order,
    ) -> Result<(), UnknownReplicaError> {
        self.feed(now, replica, |member, now, _| member.on_order(now, order))
            .ok_or_else(|| UnknownReplicaError(replica.clone()))
    }

    /// Takes in the result of a warm-up that [`Action::WarmUp`] asked for. A failed warm-up does
    /// not keep out a replica that its checks find ready, but the replica begins on trial.
    pub fn handle_warmed_up(
        &mut self,
        now: Instant,
        replica: &ReplicaName,
        result: Result<(), CheckError>,
    ) {
        self.feed(now, replica, |member, now, _| member.on_warmed_up(now, result.is_ok()));
    }

    /// Moves all members on to `now`. Call it every 100 ms; `live` is the data path's view.
    pub fn handle_timeout(&mut self, now: Instant, live: &dyn Fn(&ReplicaName) -> Live) {
        let now = self.advance_to(now);
        // Computed once, so that all members are compared with the same averages.
        let cached = self.cached_by_pool();
        let names: Vec<ReplicaName> = self.members.keys().cloned().collect();
        for (name, member) in &mut self.members {
            let peers_cached = cached.get(member.pool()).copied();
            member.on_tick(now, live(name), peers_cached);
        }
        self.compare_paces(now);
        names.iter().for_each(|name| self.settle(name, now));
        self.review_reserves(now);
        self.publish_all();
    }

    /// Finds the members that are far slower than their peers.
    fn compare_paces(&mut self, now: Instant) {
        let open = self.members.values().filter(|member| member.admission() == Admission::Open);
        let usual = UsualPaces::of(
            open.map(|member| (member.pool(), member.spec().weight.max(1), member.paces())),
        );
        let mut shared = FleetShared { rng: &mut self.rng, models_max: self.config.models_max };
        for member in self.members.values_mut() {
            member.on_usual_paces(now, &usual, &mut shared);
        }
    }

    /// Returns the next action; call until it returns `None`.
    #[must_use]
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns the standing of a replica: without restriction if it is not in the fleet.
    #[must_use]
    pub fn standing(&self, replica: &ReplicaName) -> Standing {
        self.members.get(replica).map_or(Standing::FULL, |member| member.shown().clone())
    }

    /// Returns what is known of a replica that is down; `None` if it is not.
    #[must_use]
    pub fn down_cause(&self, replica: &ReplicaName) -> Option<DownCause> {
        self.members.get(replica)?.last_shown().down
    }

    /// Returns a number that changes exactly when the standing of any replica does, or what is
    /// known of one that is down.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the signals about a replica's load at `now`; `live` belongs to the same moment.
    #[must_use]
    pub fn signals(&self, now: Instant, replica: &ReplicaName, live: Live) -> Signals {
        self.members
            .get(replica)
            .map_or(Signals::UNKNOWN, |member| member.signals(self.not_before(now), live))
    }

    /// Returns a report about each member, by name, for a table that operators read.
    #[must_use]
    pub fn members(&self, now: Instant) -> Vec<MemberReport> {
        let now = self.not_before(now);
        self.members.values().map(|member| member.report(now)).collect()
    }

    /// Returns true if the replica is in the fleet.
    #[must_use]
    pub fn contains(&self, replica: &ReplicaName) -> bool {
        self.members.contains_key(replica)
    }

    /// Gives one input to one member and settles it; `None` if there is no such member.
    fn feed(
        &mut self,
        now: Instant,
        name: &ReplicaName,
        input: impl FnOnce(&mut Member, Instant, &mut FleetShared<'_>),
    ) -> Option<()> {
        let now = self.advance_to(now);
        let member = self.members.get_mut(name)?;
        let mut shared = FleetShared { rng: &mut self.rng, models_max: self.config.models_max };
        input(member, now, &mut shared);
        self.settle(name, now);
        self.publish(name);
        Some(())
    }

    /// Settles a member, and ejects it if traffic speaks against it and its pool can do without it.
    fn settle(&mut self, name: &ReplicaName, now: Instant) {
        let Some(member) = self.members.get_mut(name) else { return };
        let mut shared = FleetShared { rng: &mut self.rng, models_max: self.config.models_max };
        member.settle(now, &mut shared);
        let wants_ejection = member.wants_ejection();
        let may_eject = wants_ejection && self.may_eject(name);
        let Some(member) = self.members.get_mut(name) else { return };
        member.spare(wants_ejection && !may_eject);
        if may_eject {
            let mut shared = FleetShared { rng: &mut self.rng, models_max: self.config.models_max };
            member.eject(now, &mut shared);
        }
    }

    fn may_eject(&self, name: &ReplicaName) -> bool {
        self.members.get(name).is_some_and(|member| {
            let share_percent = member.spec().health.ejected_share_percent;
            Ejections::of(member.pool(), self.members.values()).have_room(share_percent)
        })
    }

    fn publish_all(&mut self) {
        let names: Vec<ReplicaName> = self.members.keys().cloned().collect();
        names.iter().for_each(|name| self.publish(name));
    }

    /// Publishes the changes of a member once for each input: a reverted change is no change.
    fn publish(&mut self, name: &ReplicaName) {
        let Some(member) = self.members.get_mut(name) else { return };
        let before = member.publish();
        let effects = member.take_effects();
        let changes = before.map(|before| (before, member.last_shown().clone(), member.why()));
        if let Some((before, after, why)) = changes {
            let is_alike = (&before.standing, before.down) == (&after.standing, after.down);
            self.version += u64::from(!is_alike);
            self.tell(name, &before, &after, why);
        }
        for effect in effects {
            self.act(match effect {
                Effect::WarmUp => Action::WarmUp(name.clone()),
                Effect::Drained => Action::Drained(name.clone()),
            });
        }
    }

    /// Queues the actions that report changes between two published states.
    fn tell(
        &mut self,
        name: &ReplicaName,
        before: &ShownStanding,
        after: &ShownStanding,
        why: ChangeReason,
    ) {
        if before.state != after.state {
            let (from, to) = (before.state, after.state);
            self.act(Action::Changed { replica: name.clone(), from, to, why });
        }
        let (old, new) = (&before.standing.models, &after.standing.models);
        let opened = new.iter().filter(|model| !old.contains(model));
        let changed = opened.map(|(model, to)| (model.clone(), Some(*to)));
        let is_gone = |model: &ModelName| !new.iter().any(|(other, _)| other == model);
        let closed = old.iter().filter(|(model, _)| is_gone(model));
        let changed = changed.chain(closed.map(|(model, _)| (model.clone(), None)));
        for (model, to) in changed {
            self.act(Action::ModelChanged { replica: name.clone(), model, to });
        }
    }

    /// Queues an action. A full queue drops a change first, because changes also show in the
    /// standings. A warm-up that is dropped ends by its time limit.
    fn act(&mut self, action: Action) {
        if self.actions.len() >= self.config.actions_max {
            let only_tells =
                |action: &Action| !matches!(action, Action::WarmUp(_) | Action::Drained(_));
            let lost = self.actions.iter().position(only_tells).unwrap_or(0);
            self.actions.remove(lost);
        }
        // With a limit of 0, nothing was there to remove, and there is still no room.
        if self.config.actions_max > 0 {
            self.actions.push_back(action);
        }
    }

    /// Promotes replicas of the reserve in pools that need them, and demotes them afterwards.
    fn review_reserves(&mut self, now: Instant) {
        for pool in self.pools_with_reserve() {
            let of_pool = || self.members.values().filter(|member| *member.pool() == pool);
            // The first member with rules decides for the pool.
            let Some(config) = of_pool().find_map(|member| member.spec().standby) else { continue };
            let load = PoolLoad::of(of_pool(), now);
            let need = self.needs.entry(pool.clone()).or_default();
            let chosen = need.advance(now, &load, &config).and_then(|wish| {
                choose(wish, of_pool()).map(|member| (wish, member.spec().name.clone()))
            });
            if let Some((wish, name)) = chosen {
                // A wish that no member can fulfil stays.
                need.settle();
                self.change_reserve(wish, &name, now);
            }
        }
    }

    fn change_reserve(&mut self, wish: Wish, name: &ReplicaName, now: Instant) {
        if let Some(member) = self.members.get_mut(name) {
            match wish {
                Wish::Promote => member.promote(now),
                Wish::Demote => member.demote(now),
            }
        }
    }

    fn pools_with_reserve(&self) -> BTreeSet<PoolName> {
        let reserve = self.members.values().filter(|member| member.reserve().is_some());
        reserve.map(|member| member.pool().clone()).collect()
    }

    /// Returns the mean cached share of prompts of the full members of each pool.
    fn cached_by_pool(&self) -> BTreeMap<PoolName, f32> {
        let mut sums: BTreeMap<&PoolName, (f32, f32)> = BTreeMap::new();
        for member in self.members.values() {
            if let Some(cached) = member.cached_as_peer() {
                let (sum, count) = sums.entry(member.pool()).or_default();
                *sum += cached;
                *count += 1.0;
            }
        }
        sums.into_iter().map(|(pool, (sum, count))| (pool.clone(), sum / count)).collect()
    }

    fn advance_to(&mut self, now: Instant) -> Instant {
        *self.latest.insert(self.not_before(now))
    }

    fn not_before(&self, now: Instant) -> Instant {
        self.latest.map_or(now, |latest| latest.max(now))
    }
}

/// Chooses the member of a pool that fits the wish best. A replica that still has its cache is
/// promoted first; the replica that was promoted last is demoted first.
fn choose<'a>(wish: Wish, members: impl Iterator<Item = &'a Member>) -> Option<&'a Member> {
    match wish {
        Wish::Promote => members
            .filter(|member| member.is_promotable())
            .min_by_key(|member| member.reserve() == Some(Reserve::Held)),
        Wish::Demote => members
            .filter_map(|member| match member.reserve() {
                Some(Reserve::Promoted { at }) => Some((at, member)),
                _ => None,
            })
            .max_by_key(|(at, _)| *at)
            .map(|(_, member)| member),
    }
}
