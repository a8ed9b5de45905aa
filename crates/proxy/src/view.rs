//! What requests are served by: routes, models and replicas, immutable once built.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use spillway_protocol::{HashBy, Protocol};
use spillway_route::{Admitted, Candidate, Group, Loads, Policy, Tuning, admitted};
use spillway_types::{
    Admission, ModelName, ModelStanding, ReplicaName, ReplicaSlot, RouteName, Signals, Standing,
};

use crate::board::Board;
use crate::replica::Replica;
use crate::settings::Timeouts;

/// Share of its weight that a replica gets for a model whose breaker is half open: enough to show
/// whether it works again, and few requests to lose if it does not.
const TRIAL_PERMILLE: u16 = 50;

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
    /// Asks replicas to report usage in streams, and takes the report out again if the client did
    /// not ask for it.
    pub inject_usage: bool,
    /// Passes the client's `Authorization` on to the replica.
    pub forward_authorization: bool,
    /// Bounds on replicas.
    pub timeouts: Timeouts,
}

/// What a view is built from.
#[derive(Clone, Debug)]
pub struct ViewParts<'a> {
    /// Every route.
    pub routes: Vec<RouteSpec>,
    /// Every replica, whatever its standing.
    pub replicas: Vec<Arc<Replica>>,
    /// Model names that stand for others.
    pub aliases: BTreeMap<ModelName, ModelName>,
    /// How replicas stand; one that is missing is open.
    pub standings: &'a BTreeMap<ReplicaName, Standing>,
    /// The view that this one replaces: turns go on where they were.
    pub previous: Option<&'a View>,
    /// Where policies that take turns start, if they don't go on: nodes that all started at the
    /// first replica would stay in step.
    pub first_turn: u64,
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
    aliases: BTreeMap<ModelName, ModelName>,
    models: Vec<ModelName>,
    board: ArcSwap<Board>,
}

/// A route with its replicas.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) spec: RouteSpec,
    groups: BTreeMap<ModelName, RouteGroup>,
    /// All of the route's replicas, for requests without a model.
    all: RouteGroup,
}

/// The replicas that can serve one model on one route.
#[derive(Debug)]
pub(crate) struct RouteGroup {
    pub(crate) group: Group,
    /// Set if none of its replicas is open, so that those of this standing have to serve.
    pub(crate) last_resort: Option<Admission>,
    /// Set if all of its replicas asked to be left alone: when the first will take requests again.
    pub(crate) busy_until: Option<Instant>,
    tickets: Arc<AtomicU64>,
}

impl View {
    /// Puts the parts together.
    #[must_use]
    pub fn new(mut parts: ViewParts<'_>) -> Self {
        let routes = std::mem::take(&mut parts.routes);
        let mut prefixed = Vec::new();
        let mut built_in = Vec::new();
        for spec in routes {
            let route = Arc::new(Route::new(spec, &parts));
            let list = if route.spec.path_prefix.is_some() { &mut prefixed } else { &mut built_in };
            list.push(route);
        }
        prefixed.sort_by_key(|route| {
            std::cmp::Reverse(route.spec.path_prefix.as_ref().map_or(0, String::len))
        });
        built_in.sort_by_key(|route| route.spec.models.is_empty());
        let ViewParts { replicas, aliases, .. } = parts;
        let mut models: Vec<ModelName> =
            replicas.iter().flat_map(|replica| replica.spec.models.clone()).collect();
        models.extend(aliases.keys().cloned());
        models.sort_unstable();
        models.dedup();
        let slots = replicas
            .iter()
            .zip(0..)
            .map(|(replica, index)| (replica.spec.name.clone(), ReplicaSlot(index)))
            .collect();
        let board = ArcSwap::default();
        Self { replicas, slots, prefixed, built_in, aliases, models, board }
    }

    /// All replicas, by slot.
    #[must_use]
    pub fn replicas(&self) -> &[Arc<Replica>] {
        &self.replicas
    }

    /// Every model and alias that a client can ask for, sorted.
    #[must_use]
    pub fn models(&self) -> &[ModelName] {
        &self.models
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

    pub(crate) fn loads(&self) -> LiveLoads<'_> {
        LiveLoads { view: self, board: self.board.load() }
    }

    pub(crate) fn replica(&self, slot: ReplicaSlot) -> &Arc<Replica> {
        &self.replicas[slot.index()]
    }

    pub(crate) fn slot(&self, name: &ReplicaName) -> Option<ReplicaSlot> {
        self.slots.get(name).copied()
    }

    /// The route whose prefix the path lies below, if any.
    pub(crate) fn prefixed_route(&self, path: &str) -> Option<&Arc<Route>> {
        self.prefixed.iter().find(|route| {
            let prefix = route.spec.path_prefix.as_deref().unwrap_or_default();
            lies_below(path, prefix)
        })
    }

    fn route_named(&self, name: &RouteName) -> Option<&Route> {
        let mut routes = self.prefixed.iter().chain(&self.built_in);
        routes.find(|route| route.spec.name == *name).map(Arc::as_ref)
    }

    /// The built-in endpoints' route for a model.
    pub(crate) fn route_of_model(&self, model: Option<&ModelName>) -> Option<&Arc<Route>> {
        self.built_in.iter().find(|route| match model {
            Some(model) => route.spec.models.is_empty() || route.spec.models.contains(model),
            None => route.spec.models.is_empty(),
        })
    }

    /// The model that a name stands for: itself, or what it is an alias of.
    pub(crate) fn resolve<'v>(&'v self, name: &str) -> Option<&'v ModelName> {
        if let Some(target) = self.aliases.get(name) {
            return Some(target);
        }
        let index = self.models.binary_search_by(|model| model.as_str().cmp(name)).ok()?;
        Some(&self.models[index])
    }
}

/// The loads of a view's replicas at the moment of a decision.
pub(crate) struct LiveLoads<'v> {
    view: &'v View,
    board: Guard<Arc<Board>>,
}

impl Loads for LiveLoads<'_> {
    fn in_flight(&self, slot: ReplicaSlot) -> u32 {
        self.view.replica(slot).in_flight()
    }

    fn started(&self, slot: ReplicaSlot) -> u64 {
        self.view.replica(slot).started()
    }

    fn signals(&self, slot: ReplicaSlot) -> Signals {
        self.board.signals(slot)
    }
}

impl Route {
    fn new(spec: RouteSpec, parts: &ViewParts<'_>) -> Self {
        let mut by_model: BTreeMap<ModelName, Members> = BTreeMap::new();
        let mut all = Members::default();
        for (replica, index) in parts.replicas.iter().zip(0..) {
            if spec.pool.as_ref().is_some_and(|pool| *pool != replica.spec.pool) {
                continue;
            }
            let standing = parts.standings.get(&replica.spec.name).unwrap_or(&FULL);
            let slot = ReplicaSlot(index);
            all.add(replica, slot, standing, None);
            for model in &replica.spec.models {
                if spec.models.is_empty() || spec.models.contains(model) {
                    let members = by_model.entry(model.clone()).or_default();
                    members.add(replica, slot, standing, Some(model));
                }
            }
        }
        let before = parts.previous.and_then(|view| view.route_named(&spec.name));
        let turns = |model: Option<&ModelName>| {
            let group = before.and_then(|route| route.group(model));
            group.map_or_else(
                || Arc::new(AtomicU64::new(parts.first_turn)),
                |group| Arc::clone(&group.tickets),
            )
        };
        let groups = by_model.into_iter().map(|(model, members)| {
            let group = members.into_group(&spec, turns(Some(&model)));
            (model, group)
        });
        Self { groups: groups.collect(), all: all.into_group(&spec, turns(None)), spec }
    }

    /// The replicas for a model; for `None`, all of the route's.
    pub(crate) fn group(&self, model: Option<&ModelName>) -> Option<&RouteGroup> {
        match model {
            Some(model) => self.groups.get(model),
            None => Some(&self.all),
        }
    }
}

/// Replicas of a group in the making.
#[derive(Debug, Default)]
struct Members {
    candidates: Vec<(Candidate, Admission)>,
    busy_until: Option<Instant>,
}

impl Members {
    fn add(
        &mut self,
        replica: &Replica,
        slot: ReplicaSlot,
        standing: &Standing,
        model: Option<&ModelName>,
    ) {
        let for_model = standing.models.iter().find(|(name, _)| Some(name) == model);
        let (admission, ramp_permille) = match for_model {
            Some((_, ModelStanding::Open)) => {
                (standing.admission.max(Admission::Ejected), standing.ramp_permille)
            }
            Some((_, ModelStanding::Trial)) => {
                (standing.admission, standing.ramp_permille.min(TRIAL_PERMILLE))
            }
            None => (standing.admission, standing.ramp_permille),
        };
        let candidate = Candidate {
            slot,
            identity: Candidate::identity_of(&replica.spec.name),
            weight: replica.spec.weight,
            ramp_permille,
            in_flight_max: replica.spec.in_flight_max,
        };
        self.candidates.push((candidate, admission));
        let busy_until = standing.busy_until.filter(|_| admission == Admission::Busy);
        self.busy_until = self.busy_until.into_iter().chain(busy_until).min();
    }

    fn into_group(self, spec: &RouteSpec, tickets: Arc<AtomicU64>) -> RouteGroup {
        let Admitted { candidates, last_resort } = admitted(self.candidates);
        let busy_until = self.busy_until.filter(|_| candidates.is_empty());
        let group = Group::with_tuning(spec.policy, &spec.tuning, candidates);
        RouteGroup { group, tickets, last_resort, busy_until }
    }
}

impl RouteGroup {
    /// The number of the next decision in this group.
    pub(crate) fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }
}

/// Whether `path` is `prefix` or lies below it as a folder.
fn lies_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_covers_itself_and_its_folder_only() {
        assert!(lies_below("/v1/predict", "/v1/predict"));
        assert!(lies_below("/v1/predict/x", "/v1/predict"));
        assert!(lies_below("/v1/predict/x", "/v1/predict/"));
        assert!(!lies_below("/v1/predictor", "/v1/predict"));
        assert!(!lies_below("/v1", "/v1/predict"));
    }
}
