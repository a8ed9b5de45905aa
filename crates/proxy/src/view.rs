//! What requests are served by: routes, models and replicas, immutable once built.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use spillway_protocol::{
    EngineFields, HashBy, ModelCard, Protocol, decode_name, is_confined, lies_below,
};
use spillway_route::{Policy, Tuning};
use spillway_types::{
    Admission, ModelName, ReplicaName, ReplicaSlot, Residency, RouteName, Standing,
};

use crate::board::Board;
use crate::continuations::ContinuationSpec;
use crate::hedging::{HedgeSpec, Hedges};
use crate::knowledge::Cached;
use crate::live_loads::{LiveLoads, Room};
use crate::model_cards::ModelCards;
use crate::names::{NameSpec, Names};
use crate::queue_spec::QueueSpec;
use crate::replica::Replica;
use crate::route_group::{Entrant, GroupMemory, Members, RouteGroup};
use crate::session::{SessionSpec, Sessions};
use crate::settings::Timeouts;
use crate::versions::{NoVersion, Pin, VersionMembers, VersionTable};

/// How a replica stands of which nothing was said.
static FULL: Standing = Standing::FULL;

/// A set of requests and how they are served.
#[derive(Clone, Debug)]
pub struct RouteSpec {
    /// Unique name, as in metrics.
    pub name: RouteName,
    /// Serves every path below this one; `None` serves the built-in endpoints.
    pub path_prefix: Option<String>,
    /// What replaces the prefix on the way to the replica.
    pub replace_prefix: Option<String>,
    /// How requests below `path_prefix` are read and errors look.
    pub protocol: Protocol,
    /// Serves only these models; empty serves all.
    pub models: Vec<ModelName>,
    /// The model of requests that don't name one.
    pub default_model: Option<ModelName>,
    /// Uses only replicas of this pool; `None` uses all.
    pub pool: Option<String>,
    /// How a replica is chosen.
    pub policy: Policy,
    /// Settings of the policies that have some.
    pub tuning: Tuning,
    /// What keeps requests together; `Some` exactly if the policy hashes.
    pub hash_by: Option<HashBy>,
    /// How later requests of a client find the replica of its earlier ones; `None` leaves that to
    /// the policy.
    pub session: Option<SessionSpec>,
    /// Asks replicas to report usage in streams, and takes the report out again if the client did
    /// not ask for it.
    pub inject_usage: bool,
    /// Passes the client's `Authorization` on to the replica.
    pub forward_authorization: bool,
    /// Fields by which its clients may steer the model server.
    pub engine_fields: EngineFields,
    /// Has another replica go on with a stream of a completion that breaks off; `None` tells the
    /// client.
    pub continuation: Option<ContinuationSpec>,
    /// How its requests wait, and when they are turned away.
    pub queue: QueueSpec,
    /// When a second replica is asked beside the first; `None` never does.
    pub hedge: Option<HedgeSpec>,
    /// Bounds on replicas.
    pub timeouts: Timeouts,
    /// Where its requests may be served.
    pub residency: Residency,
}

/// What a view is built from.
#[derive(Clone, Debug)]
pub struct ViewParts<'a> {
    /// Every route.
    pub routes: Vec<RouteSpec>,
    /// Every replica, whatever its standing.
    pub replicas: Vec<Arc<Replica>>,
    /// What clients may ask for beyond the models that replicas serve.
    pub names: Arc<NameSpec>,
    /// Models that other regions serve.
    pub elsewhere: BTreeSet<ModelName>,
    /// Models that are configured somewhere, whether or not any replica serves them now. Those of
    /// `replicas` and `elsewhere` need not be among them.
    pub known: KnownModels,
    /// What replicas say of models.
    pub cards: Arc<ModelCards>,
    /// Replicas of which nobody knows yet which models they serve.
    pub unread: BTreeSet<ReplicaName>,
    /// Models that replicas say they do not have. None is asked for such a one while another of its route
    /// may have it.
    pub denied: &'a BTreeMap<ReplicaName, BTreeSet<ModelName>>,
    /// How replicas stand; one that is missing is open.
    pub standings: &'a BTreeMap<ReplicaName, Standing>,
    /// Weights that operators gave replicas, instead of their own.
    pub weights: &'a BTreeMap<ReplicaName, u32>,
    /// The view that this one replaces: turns and sessions go on where they were.
    pub previous: Option<&'a View>,
    /// Where policies that take turns start, if they don't go on: nodes that all started at the
    /// first replica would stay in step.
    pub first_turn: u64,
}

/// Models that are known by name although perhaps no replica serves them now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownModels {
    /// Configured in this region, e.g. for replicas that are yet to be discovered.
    pub here: BTreeSet<ModelName>,
    /// Configured in other regions.
    pub elsewhere: BTreeSet<ModelName>,
}

/// One immutable state of the world. Built on every change, read by every request.
#[derive(Debug)]
pub struct View {
    replicas: Vec<Arc<Replica>>,
    slots: BTreeMap<ReplicaName, ReplicaSlot>,
    /// By path prefix, longest first.
    prefixed: Vec<Arc<Route>>,
    /// For the built-in endpoints, those that name models first.
    built_in: Vec<Arc<Route>>,
    names: Names,
    elsewhere: BTreeSet<ModelName>,
    known: KnownModels,
    cards: Arc<ModelCards>,
    unread: BTreeSet<ReplicaName>,
    /// By slot.
    standings: Vec<Standing>,
    board: ArcSwap<Board>,
}

/// A route with its replicas.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) spec: RouteSpec,
    groups: BTreeMap<ModelName, RouteGroup>,
    versions: VersionTable,
    /// All of the route's replicas, for requests without a model.
    all: RouteGroup,
    /// Its clients' sessions; `None` if it keeps none.
    pub(crate) sessions: Option<Arc<Sessions>>,
    /// Its second attempts; `None` if it makes none.
    pub(crate) hedges: Option<Arc<Hedges>>,
    /// The same route with those replicas only that speak gRPC; `None` if it is that itself.
    grpc: Option<Arc<Self>>,
}

impl View {
    /// Puts the parts together.
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
        built_in.sort_by_key(|route| route.spec.models.is_empty());
        let ViewParts { replicas, names, elsewhere, known, cards, unread, standings, .. } = parts;
        let standing = |replica: &Arc<Replica>| standings.get(&replica.spec.name).cloned();
        let standings =
            replicas.iter().map(|replica| standing(replica).unwrap_or_default()).collect();
        let specs = replicas.iter().map(|replica| &replica.spec);
        let here = specs.flat_map(|spec| {
            spec.models.iter().map(|model| (model, spec.versions.contains_key(model)))
        });
        let others = elsewhere.iter().chain(&known.here).chain(&known.elsewhere);
        let names = Names::new(names, here.chain(others.map(|model| (model, false))));
        let slots = replicas
            .iter()
            .zip(0..)
            .map(|(replica, index)| (replica.spec.name.clone(), ReplicaSlot(index)))
            .collect();
        let board = ArcSwap::default();
        Self {
            replicas,
            slots,
            prefixed,
            built_in,
            names,
            elsewhere,
            known,
            cards,
            unread,
            standings,
            board,
        }
    }

    /// A view that serves nothing, for a node that is starting.
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
            standings: &BTreeMap::new(),
            weights: &BTreeMap::new(),
            previous: None,
            first_turn: 0,
        })
    }

    /// All replicas, by slot.
    #[must_use]
    pub fn replicas(&self) -> &[Arc<Replica>] {
        &self.replicas
    }

    /// Every model that a client can ask for, sorted, and then every alias and split.
    #[must_use]
    pub fn models(&self) -> &[ModelName] {
        self.names.listed()
    }

    /// What clients are told of a name.
    pub(crate) fn card<'v>(&'v self, id: &'v str) -> ModelCard<'v> {
        self.cards.card(&self.names, id)
    }

    /// Models that this region is configured to serve, whether or not a replica does so now. A model
    /// may come up several times.
    pub fn configured(&self) -> impl Iterator<Item = &ModelName> {
        let of_replicas = self.replicas.iter().flat_map(|replica| &replica.spec().models);
        of_replicas.chain(&self.known.here)
    }

    /// Whether a model exists somewhere although no replica of this region may serve it.
    #[must_use]
    pub fn is_known(&self, model: &ModelName) -> bool {
        let KnownModels { here, elsewhere } = &self.known;
        [&self.elsewhere, here, elsewhere].into_iter().any(|models| models.contains(model))
    }

    /// Whether nothing is served, neither here nor elsewhere.
    pub(crate) fn serves_nothing(&self) -> bool {
        self.replicas.len() == self.unread.len() && self.elsewhere.is_empty()
    }

    /// Replicas of which nobody knows yet which models they serve.
    pub(crate) fn unread(&self) -> &BTreeSet<ReplicaName> {
        &self.unread
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// How a replica stood when the view was built.
    #[must_use]
    pub fn standing(&self, slot: ReplicaSlot) -> &Standing {
        self.standings.get(slot.index()).unwrap_or(&FULL)
    }

    /// What is known of the replicas' load.
    #[must_use]
    pub fn board(&self) -> Arc<Board> {
        self.board.load_full()
    }

    /// Routes and models of which no replica is open, and what kind of replica serves them instead.
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

    /// Makes decisions go by another board from now on.
    pub fn replace_board(&self, board: Board) {
        self.board.store(Arc::new(board));
    }

    /// The loads of now, for a request of whose prompt this is cached and which counts with these places.
    pub(crate) fn loads(&self, cached: Cached, room: Room) -> LiveLoads<'_> {
        LiveLoads { view: self, board: self.board.load(), cached, room }
    }

    pub(crate) fn replica(&self, slot: ReplicaSlot) -> &Arc<Replica> {
        &self.replicas[slot.index()]
    }

    pub(crate) fn slot(&self, name: &ReplicaName) -> Option<ReplicaSlot> {
        self.slots.get(name).copied()
    }

    /// Whether every server finds the path below the prefix of the same route as it is found here.
    pub(crate) fn is_confined(&self, path: &str, route: &Route) -> bool {
        // A letter that needs no escape may hide the prefix of another route.
        let is_same = |text: &str| {
            self.prefixed_route(text).is_none_or(|found| found.spec.name == route.spec.name)
        };
        is_confined(path)
            && (!path.contains('%') || decode_name(path).is_some_and(|text| is_same(&text)))
    }

    /// The route whose prefix the path lies below, if any.
    pub(crate) fn prefixed_route(&self, path: &str) -> Option<&Arc<Route>> {
        self.prefixed.iter().find(|route| {
            let prefix = route.spec.path_prefix.as_deref().unwrap_or_default();
            lies_below(path, prefix)
        })
    }

    /// Where the requests of the route of that name may be served; `None` if there is no such route.
    #[must_use]
    pub fn residency_of(&self, route: &RouteName) -> Option<&Residency> {
        self.route_named(route).map(|route| &route.spec.residency)
    }

    fn route_named(&self, name: &RouteName) -> Option<&Route> {
        let mut routes = self.prefixed.iter().chain(&self.built_in);
        routes.find(|route| route.spec.name == *name).map(Arc::as_ref)
    }

    /// The route of that name, with this view's replicas, for the same kind of requests.
    pub(crate) fn route_again(&self, route: &Route) -> Option<Arc<Route>> {
        let mut routes = self.prefixed.iter().chain(&self.built_in);
        let again = routes.find(|known| known.spec.name == route.spec.name)?;
        Some(Arc::clone(if route.is_over_grpc() { again.over_grpc() } else { again }))
    }

    /// The built-in endpoints' route for a model.
    pub(crate) fn route_of_model(&self, model: Option<&ModelName>) -> Option<&Arc<Route>> {
        self.built_in.iter().find(|route| match model {
            Some(model) => route.spec.models.is_empty() || route.spec.models.contains(model),
            None => route.spec.models.is_empty(),
        })
    }
}

impl ViewParts<'_> {
    /// Whether a replica says that it does not have a model.
    fn denies(&self, replica: &ReplicaName, model: &ModelName) -> bool {
        self.denied.get(replica).is_some_and(|models| models.contains(model))
    }
}

/// The models that some member does not deny to have. Empty if nobody denies anything.
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
        let mut grpc = Self::new(spec.clone(), parts, grpc_before, Replica::speaks_grpc);
        let route = Self::new(spec, parts, before, |_| true);
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
        let mut by_model: BTreeMap<ModelName, Members> = BTreeMap::new();
        let mut versions = VersionMembers::default();
        let mut all = Members::default();
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
            let entrant = Entrant { replica, slot: ReplicaSlot(index), standing, weight };
            all.add(entrant, None);
            for model in &replica.spec.models {
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
            let group = members.into_group(&spec, turns(group));
            (model, group)
        });
        let versions_before = before.map(|route| &route.versions);
        Self {
            groups: groups.collect(),
            versions: versions.into_table(&spec, versions_before, turns),
            all: all.into_group(&spec, turns(before.map(|route| &route.all))),
            sessions: spec.session.as_ref().map(|session| {
                let kept = before.and_then(|route| route.sessions.as_ref());
                let kept = kept.filter(|kept| kept.spec() == session);
                kept.map_or_else(|| Arc::new(Sessions::new(session.clone())), Arc::clone)
            }),
            hedges: spec.hedge.map(|hedge| {
                let kept = before.and_then(|route| route.hedges.as_ref());
                let kept = kept.filter(|kept| kept.spec() == hedge);
                kept.map_or_else(|| Arc::new(Hedges::new(hedge, Instant::now())), Arc::clone)
            }),
            grpc: None,
            spec,
        }
    }

    /// This route as gRPC requests see it.
    pub(crate) fn over_grpc(self: &Arc<Self>) -> &Arc<Self> {
        self.grpc.as_ref().unwrap_or(self)
    }

    /// Whether it is a route as gRPC requests see it.
    pub(crate) fn is_over_grpc(&self) -> bool {
        self.grpc.is_none()
    }

    /// The replicas for a model; for `None`, all of the route's.
    pub(crate) fn group(&self, model: Option<&ModelName>) -> Option<&RouteGroup> {
        match model {
            Some(model) => self.groups.get(model),
            None => Some(&self.all),
        }
    }

    /// The replicas for a model, or for one version of it.
    ///
    /// # Errors
    /// If the version is none that this route's replicas could be asked for.
    pub(crate) fn group_for(
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
