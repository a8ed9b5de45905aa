//! Warnings of usage that is estimated, in a config in which prices, budgets or limits count tokens.

use std::collections::BTreeSet;

use spillway_replicas::ServerKind;
use spillway_view::{InjectUsage, UsageReports};
use toml::Spanned;

use crate::error::ConfigError;
use crate::file::ConfigFile;
use crate::kind_settings::usage_reports;
use crate::replica_section::ReplicaSection;
use crate::route_section::RouteSection;
use crate::source::Source;

/// Returns a warning for each route, and each kind of replicas, whose usage is estimated.
pub(crate) fn inexact_usage(source: &Source, file: &ConfigFile) -> Vec<ConfigError> {
    let Some(counted) = counted(file) else { return Vec::new() };
    let unasked = file.route.iter().filter_map(|route| unasked(source, route, &counted));
    let unread = file.route.iter().filter_map(|route| unread(source, route, &counted));
    unasked.chain(unread).chain(silent_kinds(source, file, &counted)).collect()
}

/// Returns the names of the settings that count tokens; `None` if there are none.
fn counted(file: &ConfigFile) -> Option<String> {
    let has_budget = file
        .tenant
        .iter()
        .any(|tenant| tenant.budget_per_day.is_some() || tenant.budget_per_month.is_some());
    let has_limit = file.limit.iter().any(|limit| limit.tokens_per_min.is_some());
    let all =
        [("prices", !file.price.is_empty()), ("budgets", has_budget), ("token limits", has_limit)];
    let named: Vec<&str> =
        all.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
    let (last, others) = named.split_last()?;
    let others = others.join(", ");
    Some(if others.is_empty() { (*last).to_owned() } else { format!("{others} and {last}") })
}

fn unasked(source: &Source, route: &RouteSection, counted: &str) -> Option<ConfigError> {
    if !route.reads_bodies() || setting(route) != InjectUsage::Never {
        return None;
    }
    let name = route.name.get_ref();
    let message = format!(
        "replicas are not asked for the usage of streams of the route {name:?}: {counted} can't be \
         exact"
    );
    let remedy = "remove inject_usage, so that the kinds of servers that report usage are asked";
    Some(source.fault(route.inject_usage.span(), message, remedy))
}

fn unread(source: &Source, route: &RouteSection, counted: &str) -> Option<ConfigError> {
    let prefix = route.path_prefix.as_ref().filter(|_| !route.reads_bodies())?;
    let path = prefix.get_ref();
    let message =
        format!("requests below {path:?} are not read for their usage: {counted} can't be exact");
    let remedy = "set protocol = \"openai\" if they have OpenAI's form, or limit requests instead";
    Some(source.fault(prefix.span(), message, remedy))
}

/// Warns once of each kind of server that is not asked for usage, at the first replica of that kind.
fn silent_kinds(source: &Source, file: &ConfigFile, counted: &str) -> Vec<ConfigError> {
    let templates = file.discovery.iter().filter_map(|discovery| discovery.replica.as_ref());
    let mut seen = BTreeSet::new();
    let silent = file.replica.iter().chain(templates).filter_map(|replica| {
        let kind: &Spanned<ServerKind> = replica.kind.as_ref()?;
        let is_silent = usage_reports(*kind.get_ref()) == UsageReports::None;
        if !is_silent || !is_asked_by_kind(replica, &file.route) || !seen.insert(*kind.get_ref()) {
            return None;
        }
        let message = format!(
            "servers of kind {} are not asked for the usage of streams: {counted} can't be exact",
            kind.get_ref()
        );
        let remedy = if kind.get_ref().generates_text() {
            "set inject_usage = true in their route if they know stream_options.include_usage"
        } else {
            "limit requests instead of tokens"
        };
        Some(source.fault(kind.span(), message, remedy))
    });
    silent.collect()
}

/// Returns true if a route that reads bodies asks the replica for usage only because of its kind.
fn is_asked_by_kind(replica: &ReplicaSection, routes: &[RouteSection]) -> bool {
    let mut built_in = routes.iter().filter(|route| route.path_prefix.is_none());
    // Without such a route, one with the defaults serves everything.
    if built_in.next().is_none() {
        return true;
    }
    routes.iter().filter(|route| route.reads_bodies()).any(|route| {
        let is_of_pool = |pool: &Spanned<String>| *pool.get_ref() == replica.pool;
        setting(route) == InjectUsage::Auto && route.pool.as_ref().is_none_or(is_of_pool)
    })
}

fn setting(route: &RouteSection) -> InjectUsage {
    route.inject_usage.get_ref().0
}
