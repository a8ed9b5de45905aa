//! Routes of the cluster and of the config.

use std::collections::BTreeSet;

use spillway_control::Route;
use spillway_protocol::{EngineFields, Protocol};
use spillway_proxy::{QueueSpec, RouteSpec, Timeouts};
use spillway_route::{Policy, Tuning};
use spillway_types::{ModelName, Residency, RouteName};

use crate::config::{WorldConfig, default_policy};
use crate::fold::{AgreedWorld, Kind, Notes, Use};

/// All routes. Those of the cluster come first, so that of two for the same requests its counts.
///
/// A route that both have is where the cluster says, and for the rest (time-outs, sessions, what it
/// hashes by) as the config says: of these the cluster knows nothing. Where requests may be served both
/// say, and both have to allow it; that holds for a route of the cluster that can't be used, too.
pub(super) fn fold(
    world: &WorldConfig,
    agreed: &AgreedWorld,
    pools: &BTreeSet<&str>,
    notes: &mut Notes,
) -> Vec<RouteSpec> {
    let mut routes = Vec::new();
    for (name, route) in &agreed.routes {
        let configured = world.routes.iter().find(|known| known.name == *name);
        if let Some((outcome, why)) = missing(&route.pool, pools, &agreed.pools) {
            // Without it another route would take its requests, and serve them where they may not be.
            let is_kept = !route.residency.is_anywhere() && configured.is_none();
            let outcome = if is_kept { Use::InPart } else { outcome };
            notes.add(Kind::Route, name.as_str(), outcome, why);
            if outcome == Use::Unusable {
                continue;
            }
        }
        let outcome = if configured.is_some() { Use::Hides } else { Use::Used };
        notes.add(Kind::Route, name.as_str(), outcome, String::new());
        let usual = (world.timeouts, world.queue);
        routes.push(lower(name, route, (configured, usual), notes));
    }
    let taken: BTreeSet<RouteName> = routes.iter().map(|route| route.name.clone()).collect();
    let kept = world.routes.iter().filter(|route| !taken.contains(&route.name));
    routes.extend(kept.map(|route| match agreed.routes.get(&route.name) {
        Some(unusable) => within(route, unusable),
        None => route.clone(),
    }));
    let is_for_all = |route: &RouteSpec| route.path_prefix.is_none() && route.models.is_empty();
    if !routes.iter().any(is_for_all) {
        // As the config would have it, had it no such route: a route of the cluster took its name.
        let names = ["default", "rest"].map(RouteName::from);
        let name = names.into_iter().find(|name| !taken.contains(name));
        routes.extend(name.map(|name| plain(name, (world.timeouts, world.queue), true)));
    }
    routes
}

/// What is wrong with a pool. One that has replicas in other regions alone is one all the same: what
/// is meant for them goes there, and not to whatever is here. One that has none anywhere is a
/// mistake, and nobody's requests should depend on it.
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

fn lower(
    name: &RouteName,
    route: &Route,
    (configured, usual): (Option<&RouteSpec>, (Timeouts, QueueSpec)),
    notes: &mut Notes,
) -> RouteSpec {
    // Of a path of its own the cluster does not say how its requests are read: not at all.
    let reads_bodies = route.path_prefix.is_none();
    let base = configured.cloned();
    let base = base.unwrap_or_else(|| plain(name.clone(), usual, reads_bodies));
    let (policy, why) = policy(route, &base);
    if let Some(why) = why {
        let why = format!("{why}; it goes by {policy}");
        notes.add(Kind::Route, name.as_str(), Use::InPart, why);
    }
    let is_same_place = route.path_prefix == base.path_prefix;
    RouteSpec {
        models: route.models.iter().cloned().collect::<Vec<ModelName>>(),
        pool: (!route.pool.is_empty()).then(|| route.pool.clone()),
        policy,
        hash_by: base.hash_by.clone().filter(|_| policy.hashes()),
        replace_prefix: base.replace_prefix.clone().filter(|_| is_same_place),
        default_model: base.default_model.clone().filter(|_| is_same_place),
        path_prefix: route.path_prefix.clone(),
        residency: base.residency.and(&route.residency.residency()),
        ..base
    }
}

/// The config's route, served only where the cluster's of that name, which can't be used, allows it too.
fn within(known: &RouteSpec, route: &Route) -> RouteSpec {
    let residency = known.residency.and(&route.residency.residency());
    RouteSpec { residency, ..known.clone() }
}

/// How replicas are chosen, and what is wrong with what the cluster says of it.
fn policy(route: &Route, base: &RouteSpec) -> (Policy, Option<String>) {
    if route.policy.is_empty() {
        return (base.policy, None);
    }
    match route.policy.parse::<Policy>() {
        Err(_) => (base.policy, Some(format!("the policy {:?} is unknown here", route.policy))),
        Ok(policy) if policy.hashes() && base.hash_by.is_none() => {
            let why = format!("for {policy} this node's config has to say what to hash by");
            (base.policy, Some(why))
        }
        Ok(policy) => (policy, None),
    }
}

/// A route of which only the name is known.
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
        inject_usage: false,
        forward_authorization: false,
        engine_fields: EngineFields::NONE,
        continuation: None,
        queue,
        hedge: None,
        timeouts,
        residency: Residency::default(),
    }
}
