//! What requests are served by: routes, models and replicas, immutable once built.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spillway_protocol::{HashBy, Protocol};
use spillway_route::{Candidate, Group, Loads, Policy};
use spillway_types::{ModelName, RAMP_FULL, ReplicaName, ReplicaSlot, RouteName};

use crate::replica::Replica;
use crate::settings::Timeouts;

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
    tickets: AtomicU64,
}

impl View {
    /// Puts routes, replicas and aliases together. `first_turn` is where policies that take turns
    /// start: nodes that all started at the first replica would stay in step.
    #[must_use]
    pub fn new(
        routes: Vec<RouteSpec>,
        replicas: Vec<Arc<Replica>>,
        aliases: BTreeMap<ModelName, ModelName>,
        first_turn: u64,
    ) -> Self {
        let mut prefixed = Vec::new();
        let mut built_in = Vec::new();
        for spec in routes {
            let route = Arc::new(Route::new(spec, &replicas, first_turn));
            let list = if route.spec.path_prefix.is_some() { &mut prefixed } else { &mut built_in };
            list.push(route);
        }
        prefixed.sort_by_key(|route| {
            std::cmp::Reverse(route.spec.path_prefix.as_ref().map_or(0, String::len))
        });
        built_in.sort_by_key(|route| route.spec.models.is_empty());
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
        Self { replicas, slots, prefixed, built_in, aliases, models }
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

impl Loads for View {
    fn in_flight(&self, slot: ReplicaSlot) -> u32 {
        self.replica(slot).in_flight()
    }
}

impl Route {
    fn new(spec: RouteSpec, replicas: &[Arc<Replica>], first_turn: u64) -> Self {
        let mut by_model: BTreeMap<ModelName, Vec<Candidate>> = BTreeMap::new();
        let mut all = Vec::new();
        for (replica, index) in replicas.iter().zip(0..) {
            if spec.pool.as_ref().is_some_and(|pool| *pool != replica.spec.pool) {
                continue;
            }
            let candidate = Candidate {
                slot: ReplicaSlot(index),
                identity: Candidate::identity_of(&replica.spec.name),
                weight: replica.spec.weight,
                ramp_permille: RAMP_FULL,
                in_flight_max: replica.spec.in_flight_max,
            };
            all.push(candidate);
            for model in &replica.spec.models {
                if spec.models.is_empty() || spec.models.contains(model) {
                    by_model.entry(model.clone()).or_default().push(candidate);
                }
            }
        }
        let groups = by_model
            .into_iter()
            .map(|(model, candidates)| {
                (model, RouteGroup::new(spec.policy, candidates, first_turn))
            })
            .collect();
        Self { all: RouteGroup::new(spec.policy, all, first_turn), groups, spec }
    }

    /// The replicas for a model; for `None`, all of the route's.
    pub(crate) fn group(&self, model: Option<&ModelName>) -> Option<&RouteGroup> {
        match model {
            Some(model) => self.groups.get(model),
            None => Some(&self.all),
        }
    }
}

impl RouteGroup {
    fn new(policy: Policy, candidates: Vec<Candidate>, first_turn: u64) -> Self {
        Self { group: Group::new(policy, candidates), tickets: AtomicU64::new(first_turn) }
    }

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
