//! Routes of the cluster and of the config, merged.

use std::collections::BTreeSet;

use spillway_cluster_state::Route;
use spillway_config::{WorldConfig, default_policy};
use spillway_protocol::{EngineFields, Protocol};
use spillway_route::{Policy, Tuning};
use spillway_types::{ModelName, Residency, RouteName};
use spillway_upstream::Timeouts;
use spillway_view::{InjectUsage, QueueSpec, RouteSpec};

use crate::fold::{AgreedWorld, Kind, Notes, Use};

/// Merges all routes. Those of the cluster come first, so that of two for the same requests its
/// route counts.
///
/// A route that both have takes its requests, pool and policy from the cluster, and of the rest
/// (time-outs, sessions, hash key) what the cluster's record does not say from the config. Both have
/// rules about where requests may be served, and both have to allow it; that holds for a route of
/// the cluster that can't be used, too.
pub(super) fn fold(
    world: &WorldConfig,
    agreed: &AgreedWorld,
    pools: &BTreeSet<&str>,
    notes: &mut Notes,
) -> Vec<RouteSpec> {
    let mut routes = Vec::new();
    let mut left_out = Vec::new();
    for (name, route) in &agreed.routes {
        let configured = world.routes.iter().find(|known| known.name == *name);
        if let Some((outcome, why)) = missing(&route.pool, pools, &agreed.pools) {
            // Without this route another one would take its requests, and serve them where they may
            // not be.
            let is_kept = !route.residency.is_anywhere() && configured.is_none();
            let outcome = if is_kept { Use::InPart } else { outcome };
            notes.add(Kind::Route, name.as_str(), outcome, why);
            if outcome == Use::Unusable {
                left_out.push((name, route));
                continue;
            }
        }
        let outcome = if configured.is_some() { Use::Hides } else { Use::Used };
        notes.add(Kind::Route, name.as_str(), outcome, String::new());
        let base = base(name, route, world, configured, notes);
        routes.push(lower(name, route, base, notes));
    }
    let taken: BTreeSet<RouteName> = routes.iter().map(|route| route.name.clone()).collect();
    let is_open = is_open(world, agreed);
    // The implied route, which is in no file, is left out once other routes list the served models.
    let count = world.routes.len() - usize::from(world.implies_default && !is_open);
    let kept = world.routes.iter().take(count).filter(|route| !taken.contains(&route.name));
    routes.extend(kept.map(|route| match agreed.routes.get(&route.name) {
        Some(unusable) => within(route, unusable),
        None => route.clone(),
    }));
    let is_for_all = |route: &RouteSpec| route.path_prefix.is_none() && route.models.is_empty();
    if routes.iter().any(is_for_all) {
        return routes;
    }
    let usual = (world.timeouts, world.queue);
    if is_open {
        // Built as the config would build it: a route of the cluster took the name of the config's.
        let names = ["default", "rest"].map(RouteName::from);
        let name = names.into_iter().find(|name| !taken.contains(name));
        routes.extend(name.map(|name| plain(name, usual, true)));
        return routes;
    }
    // A slip in a pool's name takes no model away: those that the record lists are served without it.
    left_out.retain(|(name, _)| !routes.iter().any(|route| route.name == **name));
    let lists = left_out.into_iter().filter(|(_, route)| lists_models(route));
    routes.extend(lists.map(|(name, route)| RouteSpec {
        models: route.models.iter().cloned().collect(),
        residency: route.residency.residency(),
        ..plain(name.clone(), usual, true)
    }));
    routes
}

fn lists_models(route: &Route) -> bool {
    route.path_prefix.is_none() && !route.models.is_empty()
}

/// Returns true if models are served that no route names. Routes that name models, of the config or
/// of the cluster, list all models that are served, even while one of them can't be used.
fn is_open(world: &WorldConfig, agreed: &AgreedWorld) -> bool {
    let mut of_config = world.routes.iter().filter(|it| !agreed.routes.contains_key(&it.name));
    let lists_models = |it: &RouteSpec| it.path_prefix.is_none() && !it.models.is_empty();
    !of_config.any(lists_models) && !agreed.routes.values().any(self::lists_models)
}

/// Returns the fault of a pool; `None` if it is fine. A pool whose replicas are all in other
/// regions stays in use: its requests go there, and not to other replicas here. A pool without
/// replicas anywhere is a mistake, and no requests should depend on it.
fn missing(
    pool: &str,
    here: &BTreeSet<&str>,
    anywhere: &BTreeSet<String>,
) -> Option<(Use, String)> {
    if pool.is_empty() || here.contains(pool) {
        return None;
    }
    Some(match anywhere.contains(pool) {
        true => (Use::InPart, format!("no replica of this region is in the pool {pool:?}")),
        false => (Use::Unusable, format!("no replica is in the pool {pool:?}")),
    })
}

/// Returns the settings of a route of the cluster beside those that are merged: its own, those of the
/// config's route of that name, and defaults.
fn base(
    name: &RouteName,
    route: &Route,
    world: &WorldConfig,
    configured: Option<&RouteSpec>,
    notes: &mut Notes,
) -> RouteSpec {
    let usual = (world.timeouts, world.queue);
    if !route.settings.is_empty() {
        let prefix = route.path_prefix.as_deref();
        match world.said.with_settings(name, prefix, &route.settings, usual) {
            Ok(spec) => return spec,
            // A newer version checked them.
            Err(errors) => {
                let first = errors.iter().next().map(|error| error.message.clone());
                let why = format!("its settings can't be used here: {}", first.unwrap_or_default());
                notes.add(Kind::Route, name.as_str(), Use::InPart, why);
            }
        }
    }
    // For a path of its own without settings the cluster has no protocol: bodies are not read.
    let reads_bodies = route.path_prefix.is_none();
    configured.cloned().unwrap_or_else(|| plain(name.clone(), usual, reads_bodies))
}

fn lower(name: &RouteName, route: &Route, base: RouteSpec, notes: &mut Notes) -> RouteSpec {
    let (policy, why) = policy(route, &base);
    if let Some(why) = why {
        let why = format!("{why}; it goes by {policy}");
        notes.add(Kind::Route, name.as_str(), Use::InPart, why);
    }
    // A replacement of the prefix and a default model belong to the config's path.
    let is_same_target = route.path_prefix == base.path_prefix;
    RouteSpec {
        models: route.models.iter().cloned().collect::<Vec<ModelName>>(),
        pool: (!route.pool.is_empty()).then(|| route.pool.clone()),
        policy,
        hash_by: base.hash_by.clone().filter(|_| policy.hashes()),
        replace_prefix: base.replace_prefix.clone().filter(|_| is_same_target),
        default_model: base.default_model.clone().filter(|_| is_same_target),
        path_prefix: route.path_prefix.clone(),
        residency: base.residency.and(&route.residency.residency()),
        ..base
    }
}

/// Returns the config's route, restricted to where the cluster's unusable route of that name allows
/// it too.
fn within(known: &RouteSpec, route: &Route) -> RouteSpec {
    let residency = known.residency.and(&route.residency.residency());
    RouteSpec { residency, ..known.clone() }
}

/// Returns the routing policy, and a reason if the cluster's policy can't be used.
fn policy(route: &Route, base: &RouteSpec) -> (Policy, Option<String>) {
    if route.policy.is_empty() {
        return (base.policy, None);
    }
    match route.policy.parse::<Policy>() {
        Err(_) => (base.policy, Some(format!("the policy {:?} is unknown here", route.policy))),
        Ok(policy) if policy.hashes() && base.hash_by.is_none() => {
            let why = format!("for {policy} it has to say what to hash by");
            (base.policy, Some(why))
        }
        Ok(policy) => (policy, None),
    }
}

/// Returns a route with defaults for everything but its name.
fn plain(
    name: RouteName,
    (timeouts, queue): (Timeouts, QueueSpec),
    reads_bodies: bool,
) -> RouteSpec {
    RouteSpec {
        name,
        path_prefix: None,
        replace_prefix: None,
        protocol: Protocol::Raw,
        models: Vec::new(),
        default_model: None,
        pool: None,
        policy: default_policy(reads_bodies),
        tuning: Tuning::default(),
        hash_by: None,
        session: None,
        inject_usage: InjectUsage::default(),
        forward_authorization: false,
        engine_fields: EngineFields::NONE,
        continuation: None,
        queue,
        hedge: None,
        timeouts,
        residency: Residency::default(),
        overflow: true,
    }
}
