//! View of the data path: routes, models and replicas, immutable once built.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use spillway_journey::Room;
use spillway_protocol::{ModelCard, decode_name, is_confined, lies_below};
use spillway_types::{
    Admission, ModelName, ReplicaName, ReplicaSlot, Residency, RouteName, Standing,
};
use spillway_upstream::Traffic;

use crate::group_memory::GroupMemory;
use crate::hedging::Hedges;
use crate::knowledge::Cached;
use crate::live_loads::LiveLoads;
use crate::loaded_adapters::LoadedAdapters;
use crate::model_cards::ModelCards;
use crate::names::{NameSpec, Names};
use crate::replica::Replica;
use crate::replica_loads::ReplicaLoads;
use crate::route_group::{Entrant, GroupMembers, RouteGroup};
use crate::route_spec::RouteSpec;
use crate::session::Sessions;
use crate::versions::{NoVersion, Pin, VersionMembers, VersionTable};

/// Standing of a replica without an entry.
static FULL: Standing = Standing::FULL;

/// Parts that a view is built from.
#[derive(Clone, Debug)]
pub struct ViewParts<'a> {
    /// All routes.
    pub routes: Vec<RouteSpec>,
    /// All replicas, whatever their standing.
    pub replicas: Vec<Arc<Replica>>,
    /// Names that clients may ask for beyond the models that replicas serve.
    pub names: Arc<NameSpec>,
    /// Models that other regions serve.
    pub elsewhere: BTreeSet<ModelName>,
    /// Models that are configured anywhere, also without a replica that serves them now. May leave
    /// out those of `replicas` and `elsewhere`.
    pub known: KnownModels,
    /// Descriptions of models by their replicas.
    pub cards: Arc<ModelCards>,
    /// Replicas whose models are not known yet.
    pub unread: BTreeSet<ReplicaName>,
    /// Models that replicas say they lack. Such a replica is not asked for the model while another
    /// one of the route may have it.
    pub denied: &'a BTreeMap<ReplicaName, BTreeSet<ModelName>>,
    /// Replicas whose own pages list several models.
    pub several: &'a BTreeSet<ReplicaName>,
    /// Standing of replicas by their health; a missing one is open.
    pub standings: &'a BTreeMap<ReplicaName, Standing>,
    /// Weights set by operators, in place of the replicas' own.
    pub weights: &'a BTreeMap<ReplicaName, u32>,
    /// View that this one replaces: tickets and sessions continue.
    pub previous: Option<&'a View>,
    /// First ticket of policies that take turns, where none continues: nodes that all started at
    /// the first replica would stay in step.
    pub first_turn: u64,
}

/// Models that are known by name, also without a replica that serves them now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownModels {
    /// Models configured in this region, e.g. for replicas that are yet to be discovered.
    pub here: BTreeSet<ModelName>,
    /// Models configured in other regions.
    pub elsewhere: BTreeSet<ModelName>,
}

/// Immutable snapshot of routes, models and replicas. Built on every change, read by every request.
#[derive(Debug)]
pub struct View {
    replicas: Vec<Arc<Replica>>,
    /// True if any of them is an overflow replica.
    has_overflow: bool,
    slots: BTreeMap<ReplicaName, ReplicaSlot>,
    /// Routes with a path prefix, longest first.
    prefixed: Vec<Arc<Route>>,
    /// Routes of the built-in endpoints, those that name models first.
    built_in: Vec<Arc<Route>>,
    names: Names,
    elsewhere: BTreeSet<ModelName>,
    known: KnownModels,
    cards: Arc<ModelCards>,
    unread: BTreeSet<ReplicaName>,
    /// Number of models that a replica should serve and says it lacks.
    missing: BTreeMap<ReplicaName, usize>,
    /// Standings by slot.
    standings: Vec<Standing>,
    replica_loads: ArcSwap<ReplicaLoads>,
}

/// A route with its replicas.
#[derive(Debug)]
pub struct Route {
    /// Settings.
    pub spec: RouteSpec,
    groups: BTreeMap<ModelName, RouteGroup>,
    versions: VersionTable,
    /// All of the route's replicas, for requests without a model.
    all: RouteGroup,
    /// Sessions of the route's clients; `None` without session affinity.
    pub sessions: Option<Arc<Sessions>>,
    /// Hedging state; `None` without hedging.
    pub hedges: Option<Arc<Hedges>>,
    /// This route with only the replicas that speak gRPC; `None` if this is already that variant.
    grpc: Option<Arc<Self>>,
}

impl View {
    /// Builds a view from its parts.
    #[must_use]
    pub fn new(mut parts: ViewParts<'_>) -> Self {
        let routes = std::mem::take(&mut parts.routes);
        let mut prefixed = Vec::new();
        let mut built_in = Vec::new();
        for spec in routes {
            let route = Arc::new(Route::for_all(spec, &parts));
            let list = if route.spec.path_prefix.is_some() { &mut prefixed } else { &mut built_in };
            list.push(route);
        }
        prefixed.sort_by_key(|route| {
            std::cmp::Reverse(route.spec.path_prefix.as_ref().map_or(0, String::len))
        });
        // The first route that matches serves a model, and one without models matches all.
        built_in.sort_by_key(|route| route.spec.models.is_empty());
        let absent = parts.absent();
        let missing = parts.denied.iter().map(|(name, models)| (name.clone(), models.len()));
        let missing = missing.collect();
        let ViewParts { replicas, names, elsewhere, known, cards, unread, standings, .. } = parts;
        let standing = |replica: &Arc<Replica>| standings.get(&replica.spec.name).cloned();
        let standings =
            replicas.iter().map(|replica| standing(replica).unwrap_or_default()).collect();
        let specs = replicas.iter().map(|replica| &replica.spec);
        let here = specs.flat_map(|spec| {
            spec.models.iter().map(|model| (model, spec.versions.contains_key(model)))
        });
        let others = elsewhere.iter().chain(&known.here).chain(&known.elsewhere);
        let mut names = Names::new(names, here.chain(others.map(|model| (model, false))));
        names.hide(&absent);
        let slots = replicas
            .iter()
            .zip(0..)
            .map(|(replica, index)| (replica.spec.name.clone(), ReplicaSlot(index)))
            .collect();
        let replica_loads = ArcSwap::default();
        let has_overflow = replicas.iter().any(|replica| replica.is_overflow());
        Self {
            replicas,
            has_overflow,
            slots,
            prefixed,
            built_in,
            names,
            elsewhere,
            known,
            cards,
            unread,
            missing,
            standings,
            replica_loads,
        }
    }

    /// Returns a view that serves nothing, for a node that is starting.
    #[must_use]
    pub fn empty() -> Self {
        Self::new(ViewParts {
            routes: Vec::new(),
            replicas: Vec::new(),
            names: Arc::default(),
            elsewhere: BTreeSet::new(),
            known: KnownModels::default(),
            cards: Arc::default(),
            unread: BTreeSet::new(),
            denied: &BTreeMap::new(),
            several: &BTreeSet::new(),
            standings: &BTreeMap::new(),
            weights: &BTreeMap::new(),
            previous: None,
            first_turn: 0,
        })
    }

    /// Returns all replicas, by slot.
    #[must_use]
    pub fn replicas(&self) -> &[Arc<Replica>] {
        &self.replicas
    }

    /// Returns true if any is an overflow replica.
    #[must_use]
    pub fn has_overflow(&self) -> bool {
        self.has_overflow
    }

    /// Returns all models that a client can ask for, sorted, followed by all aliases and splits.
    #[must_use]
    pub fn models(&self) -> &[ModelName] {
        self.names.listed()
    }

    /// Returns the description of a name for clients.
    pub fn card<'v>(&'v self, id: &'v str) -> ModelCard<'v> {
        self.cards.card(&self.names, id)
    }

    /// Returns true if a model is an adapter of another one, by the pages of its replicas.
    pub fn is_adapter(&self, model: &ModelName) -> bool {
        self.cards.is_adapter(model)
    }

    /// Returns the models that this region is configured to serve, also those without a replica
    /// now. A model may occur several times.
    pub fn configured(&self) -> impl Iterator<Item = &ModelName> {
        let of_replicas = self.replicas.iter().flat_map(|replica| &replica.spec().models);
        of_replicas.chain(&self.known.here)
    }

    /// Returns all routes, in the order in which requests meet them.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.prefixed.iter().chain(&self.built_in)
    }

    /// Returns true if a model exists somewhere, even if no replica of this region may serve it.
    #[must_use]
    pub fn is_known(&self, model: &ModelName) -> bool {
        let KnownModels { here, elsewhere } = &self.known;
        [&self.elsewhere, here, elsewhere].into_iter().any(|models| models.contains(model))
    }

    /// Returns true if nothing is served, neither here nor elsewhere.
    #[must_use]
    pub fn serves_nothing(&self) -> bool {
        // A replica whose models are unknown is not asked for any.
        self.replicas.len() == self.unread.len() && self.elsewhere.is_empty()
    }

    /// Returns true if any replica can be expected to serve, possibly after a rest.
    #[must_use]
    pub fn has_usable(&self) -> bool {
        let routes = self.prefixed.iter().chain(&self.built_in);
        routes
            .flat_map(|route| [&route.all].into_iter().chain(route.groups.values()))
            .any(|group| group.is_open() || group.busy_until.is_some() || group.overflow.is_some())
    }

    /// Returns the replicas whose models are not known yet.
    pub fn unread(&self) -> &BTreeSet<ReplicaName> {
        &self.unread
    }

    /// Returns how many models a replica should serve and says it does not have.
    pub fn missing_models(&self, name: &ReplicaName) -> usize {
        self.missing.get(name).copied().unwrap_or_default()
    }

    /// Returns the names of models that clients may use.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the standing of a replica when the view was built.
    #[must_use]
    pub fn standing(&self, slot: ReplicaSlot) -> &Standing {
        self.standings.get(slot.index()).unwrap_or(&FULL)
    }

    /// Returns the current load of the replicas.
    #[must_use]
    pub fn replica_loads(&self) -> Arc<ReplicaLoads> {
        self.replica_loads.load_full()
    }

    /// Returns routes and models without an open replica, and the admission of the replicas that
    /// serve instead.
    pub fn last_resorts(
        &self,
    ) -> impl Iterator<Item = (&RouteName, Option<&ModelName>, Admission)> {
        self.prefixed.iter().chain(&self.built_in).flat_map(|route| {
            let by_model = route.groups.iter().map(|(model, group)| (Some(model), group));
            by_model.chain([(None, &route.all)]).filter_map(|(model, group)| {
                group.last_resort.map(|admission| (&route.spec.name, model, admission))
            })
        })
    }

    /// Replaces the load by which requests are decided.
    pub fn replace_replica_loads(&self, replica_loads: ReplicaLoads) {
        self.replica_loads.store(Arc::new(replica_loads));
    }

    /// Returns the current loads for a request, with its cached blocks and the slots it may use.
    pub fn loads(&self, cached: Cached, room: Room, traffic: Traffic) -> LiveLoads<'_> {
        LiveLoads { view: self, replica_loads: self.replica_loads.load(), cached, room, traffic }
    }

    /// Returns true if a replica of the group that is not down can serve, other than `replica`.
    pub fn is_served_beside(&self, group: &RouteGroup, replica: &Replica) -> bool {
        group.group.candidates().iter().any(|candidate| {
            let is_down = self.standing(candidate.slot).admission == Admission::Down;
            !is_down && !self.replica(candidate.slot).is_same_server(replica)
        })
    }

    /// Returns the replica in `slot`.
    pub fn replica(&self, slot: ReplicaSlot) -> &Arc<Replica> {
        &self.replicas[slot.index()]
    }

    /// Returns the slot of a replica; `None` if the view has none of this name.
    pub fn slot(&self, name: &ReplicaName) -> Option<ReplicaSlot> {
        self.slots.get(name).copied()
    }

    /// Returns true if every server would find the path below the prefix of the same route.
    pub fn is_confined(&self, path: &str, route: &Route) -> bool {
        // A needless escape of a letter may hide the prefix of another route.
        let is_same = |text: &str| {
            self.prefixed_route(text).is_none_or(|found| found.spec.name == route.spec.name)
        };
        is_confined(path)
            && (!path.contains('%') || decode_name(path).is_some_and(|text| is_same(&text)))
    }

    /// Returns the route whose prefix the path lies below, if any.
    pub fn prefixed_route(&self, path: &str) -> Option<&Arc<Route>> {
        self.prefixed.iter().find(|route| {
            let prefix = route.spec.path_prefix.as_deref().unwrap_or_default();
            lies_below(path, prefix)
        })
    }

    /// Returns the residency rules of a route; `None` if there is no such route.
    #[must_use]
    pub fn residency_of(&self, route: &RouteName) -> Option<&Residency> {
        self.route_named(route).map(|route| &route.spec.residency)
    }

    fn route_named(&self, name: &RouteName) -> Option<&Route> {
        let mut routes = self.prefixed.iter().chain(&self.built_in);
        routes.find(|route| route.spec.name == *name).map(Arc::as_ref)
    }

    /// Returns the route of the same name in this view, in the same variant for HTTP or gRPC.
    pub fn route_again(&self, route: &Route) -> Option<Arc<Route>> {
        let mut routes = self.prefixed.iter().chain(&self.built_in);
        let again = routes.find(|known| known.spec.name == route.spec.name)?;
        Some(Arc::clone(if route.is_over_grpc() { again.over_grpc() } else { again }))
    }

    /// Returns the sessions of all routes that have some.
    pub fn sessions(&self) -> impl Iterator<Item = (&RouteName, &Arc<Sessions>)> {
        let routes = self.prefixed.iter().chain(&self.built_in);
        routes.filter_map(|route| Some((&route.spec.name, route.sessions.as_ref()?)))
    }

    /// Returns true if clients of the built-in endpoints may ask for this name: a route leads to one
    /// of the models behind it.
    #[must_use]
    pub fn is_asked_for(&self, name: &str) -> bool {
        let models = self.names.models_behind(name);
        models.into_iter().any(|model| self.route_of_model(Some(model)).is_some())
    }

    /// Returns the built-in endpoints' route for a model.
    pub fn route_of_model(&self, model: Option<&ModelName>) -> Option<&Arc<Route>> {
        self.built_in.iter().find(|route| match model {
            Some(model) => route.spec.models.is_empty() || route.spec.models.contains(model),
            None => route.spec.models.is_empty(),
        })
    }
}

impl ViewParts<'_> {
    /// Returns true if a replica says that it lacks a model.
    fn denies(&self, replica: &ReplicaName, model: &ModelName) -> bool {
        self.denied.get(replica).is_some_and(|models| models.contains(model))
    }

    /// Returns true if a replica serves one model, and can take a request for no other.
    fn serves_one(&self, replica: &Replica) -> bool {
        replica.spec.models.len() == 1 && !self.several.contains(&replica.spec.name)
    }

    /// Returns the models that all their replicas say they lack, and no other region serves.
    fn absent(&self) -> BTreeSet<ModelName> {
        let held = held_models(self, |_| true);
        let denied = self.denied.values().flatten();
        denied
            .filter(|model| !held.contains(model) && !self.elsewhere.contains(*model))
            .cloned()
            .collect()
    }
}

/// Returns the models that some member does not say it lacks. Empty if no replica says so of any.
fn held_models<'p>(
    parts: &'p ViewParts<'_>,
    is_member: impl Fn(&Replica) -> bool,
) -> BTreeSet<&'p ModelName> {
    if parts.denied.is_empty() {
        return BTreeSet::new();
    }
    let members = parts.replicas.iter().filter(|replica| is_member(replica));
    let held = members.flat_map(|replica| {
        let models = replica.spec.models.iter();
        models.filter(|model| !parts.denies(&replica.spec.name, model))
    });
    held.collect()
}

impl Route {
    fn for_all(spec: RouteSpec, parts: &ViewParts<'_>) -> Self {
        let before = parts.previous.and_then(|view| view.route_named(&spec.name));
        let grpc_before = before.and_then(|route| route.grpc.as_deref());
        let mut grpc = Self::new(spec.clone(), parts, grpc_before, |replica| {
            replica.connections().speaks_grpc()
        });
        let route = Self::new(spec, parts, before, |_| true);
        // Both variants of the route share sessions and hedging.
        grpc.sessions.clone_from(&route.sessions);
        grpc.hedges.clone_from(&route.hedges);
        Self { grpc: Some(Arc::new(grpc)), ..route }
    }

    fn new(
        spec: RouteSpec,
        parts: &ViewParts<'_>,
        before: Option<&Self>,
        is_wanted: impl Fn(&Replica) -> bool,
    ) -> Self {
        let mut by_model: BTreeMap<ModelName, GroupMembers> = BTreeMap::new();
        let mut versions = VersionMembers::default();
        let mut all = GroupMembers::default();
        let is_member = |replica: &Replica| {
            spec.pool.as_ref().is_none_or(|pool| *pool == replica.spec.pool) && is_wanted(replica)
        };
        let held = held_models(parts, is_member);
        for (replica, index) in parts.replicas.iter().zip(0..) {
            if !is_member(replica) {
                continue;
            }
            let name = &replica.spec.name;
            let standing = parts.standings.get(name).unwrap_or(&FULL);
            let weight = parts.weights.get(name).copied();
            let slot = ReplicaSlot(index);
            let serves_one = parts.serves_one(replica);
            let entrant = Entrant { replica, slot, standing, weight, serves_one };
            all.add(entrant, None);
            for model in &replica.spec.models {
                // If all replicas of the route say that they lack it, they are asked all the same.
                if parts.denies(name, model) && held.contains(model) {
                    continue;
                }
                if spec.models.is_empty() || spec.models.contains(model) {
                    let members = by_model.entry(model.clone()).or_default();
                    members.add(entrant, Some(model));
                    versions.add(entrant, model);
                }
            }
        }
        let turns = |group: Option<&RouteGroup>| {
            group.map_or_else(
                || Arc::new(GroupMemory::new(parts.first_turn)),
                |group| Arc::clone(&group.memory),
            )
        };
        let groups = by_model.into_iter().map(|(model, members)| {
            let group = before.and_then(|route| route.groups.get(&model));
            let mut group = members.into_group(&spec, turns(group));
            let is_adapter = parts.cards.is_adapter(&model);
            group.adapter = is_adapter.then(|| LoadedAdapters::identity_of(model.as_str()));
            (model, group)
        });
        let versions_before = before.map(|route| &route.versions);
        Self {
            groups: groups.collect(),
            versions: versions.into_table(&spec, versions_before, turns),
            all: all.into_group(&spec, turns(before.map(|route| &route.all))),
            sessions: spec.session.as_ref().map(|session| {
                let kept = before.and_then(|route| route.sessions.as_ref());
                // Sessions survive a reload that does not change their settings.
                let kept = kept.filter(|kept| kept.spec() == session);
                kept.map_or_else(|| Arc::new(Sessions::new(session.clone())), Arc::clone)
            }),
            hedges: spec.hedge.map(|hedge| {
                let kept = before.and_then(|route| route.hedges.as_ref());
                // The budget of hedging survives such a reload, too.
                let kept = kept.filter(|kept| kept.spec() == hedge);
                kept.map_or_else(|| Arc::new(Hedges::new(hedge, Instant::now())), Arc::clone)
            }),
            grpc: None,
            spec,
        }
    }

    /// Returns the variant of this route for gRPC requests.
    pub fn over_grpc(self: &Arc<Self>) -> &Arc<Self> {
        self.grpc.as_ref().unwrap_or(self)
    }

    /// Returns true if this is the variant for gRPC requests.
    pub fn is_over_grpc(&self) -> bool {
        self.grpc.is_none()
    }

    /// Returns the replicas for a model, or all of the route's for `None`.
    pub fn group(&self, model: Option<&ModelName>) -> Option<&RouteGroup> {
        match model {
            Some(model) => self.groups.get(model),
            None => Some(&self.all),
        }
    }

    /// Returns true if the route leads to a model: one of its replicas serves the model, or the
    /// route names the model or takes all, so that other replicas may serve it.
    pub fn leads_to(&self, model: &ModelName) -> bool {
        let RouteSpec { models, pool, .. } = &self.spec;
        let is_taken = models.is_empty() || models.contains(model);
        self.groups.contains_key(model) || (pool.is_none() && is_taken)
    }

    /// Returns the replicas for a model, or for one version of it.
    ///
    /// # Errors
    /// Returns an error if no replica of this route can be asked for the version.
    pub fn group_for(
        &self,
        model: Option<&ModelName>,
        pin: Option<&Pin>,
    ) -> Result<Option<&RouteGroup>, NoVersion> {
        let pinned = match (model, pin) {
            (Some(model), Some(pin)) => self.versions.group(model, pin)?,
            _ => None,
        };
        Ok(pinned.or_else(|| self.group(model)))
    }
}
