//! Warnings: configs that can be used, and most likely say something else than was meant.

use std::collections::{BTreeMap, BTreeSet};

use spillway_types::RegionName;
use toml::Spanned;

use crate::error::ConfigError;
use crate::file::ConfigFile;
use crate::source::Source;
use crate::suggestion::{listed, nearest};
use crate::usage_warnings::inexact_usage;

/// Returns the warnings about a file.
pub(crate) fn warnings(source: &Source, file: &ConfigFile) -> Vec<ConfigError> {
    let mut found = Vec::new();
    found.extend(nobody_serves(source, file));
    found.extend(same_urls(source, file));
    found.extend(unknown_regions(source, file));
    found.extend(default_names(source, file));
    found.extend(inexact_usage(source, file));
    found.into_iter().map(ConfigError::into_warning).collect()
}

fn nobody_serves(source: &Source, file: &ConfigFile) -> Option<ConfigError> {
    let is_served =
        !file.replica.is_empty() || !file.discovery.is_empty() || file.cluster.is_some();
    // Without a listener there is an error already.
    if is_served || file.listener.is_empty() {
        return None;
    }
    let message = "no replica: every request would be refused";
    let remedy = "add a [[replica]] with name and url, or a [[discovery]]";
    Some(source.fault(0..0, message, remedy))
}

fn same_urls(source: &Source, file: &ConfigFile) -> Vec<ConfigError> {
    let mut places = BTreeMap::new();
    let same = file.replica.iter().filter_map(|replica| {
        let (url, at) = (replica.url.get_ref().trim_end_matches('/'), replica.url.span());
        // Replicas of several pools may stand for one server on purpose.
        let earlier = places.insert((url, replica.pool.as_str()), at.clone())?;
        let message = format!("two replicas of the pool {:?} have the URL {url}", replica.pool);
        let remedy = "give each its own URL: the server is taken for two, and gets twice its share";
        Some(source.collision((at, earlier), message, remedy))
    });
    same.collect()
}

/// Warns of regions that no node can be in. Where the cluster agrees on its regions, a node's file
/// need not name them.
fn unknown_regions(source: &Source, file: &ConfigFile) -> Vec<ConfigError> {
    if file.cluster.as_ref().is_some_and(|cluster| cluster.data.is_some()) {
        return Vec::new();
    }
    let own = [file.node.region.get_ref().as_str()];
    let peers = file.peer.iter().map(|peer| peer.region.get_ref().as_str());
    let sections = file.region.iter().map(|region| region.name.get_ref().as_str());
    let known: BTreeSet<&str> = own.into_iter().chain(peers).chain(sections).collect();
    let known: Vec<&str> = known.into_iter().collect();
    let named = file.route.iter().flat_map(|route| &route.regions);
    let named = named.chain(file.key.iter().flat_map(|key| &key.regions));
    let named = named.chain(file.tenant.iter().flat_map(|tenant| &tenant.regions));
    let named = named.chain(file.residency.iter().flat_map(|rule| &rule.regions));
    let is_unknown = |name: &&Spanned<RegionName>| !known.contains(&name.get_ref().as_str());
    let warn = |name: &Spanned<RegionName>| {
        let message = format!("no node is in the region {:?}", name.get_ref().as_str());
        let remedy = format!("name one of: {}; or add a [[peer]] there", listed(&known));
        let warning = source.fault(name.span(), message, remedy);
        match nearest(name.get_ref().as_str(), &known) {
            Some(meant) => warning.labelled(format!("did you mean {meant:?}?")),
            None => warning,
        }
    };
    named.filter(is_unknown).map(warn).collect()
}

/// Warns of names that were left out: several nodes of a cluster would have the same.
fn default_names(source: &Source, file: &ConfigFile) -> Vec<ConfigError> {
    let Some(cluster) = &file.cluster else { return Vec::new() };
    let names = [("name", &file.node.name), ("region", &file.node.region)];
    let left_out = names.into_iter().filter(|(_, name)| name.span() == (0..0));
    let warn = |(key, name): (&str, &Spanned<String>)| {
        let message = format!("this node of a cluster has the default {key} {:?}", name.get_ref());
        let remedy = format!("add {key} = \"...\" to [node], as its certificate says it");
        source.fault(cluster.id.span(), message, remedy)
    };
    left_out.map(warn).collect()
}
