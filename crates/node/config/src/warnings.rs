//! Warnings: valid configs that most likely differ from the intended ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use spillway_link::certs::{CertificateFacts, certificates_of_pem};
use spillway_types::RegionName;
use toml::Spanned;

use crate::access_section::KeySection;
use crate::cluster_section::PeerSection;
use crate::error::ConfigError;
use crate::file::ConfigFile;
use crate::source::Source;
use crate::suggestion::{listed, nearest};
use crate::unused_terms::unused_terms;
use crate::usage_warnings::inexact_usage;

/// Returns the warnings about a file.
pub(crate) fn warnings(source: &Source, file: &ConfigFile) -> Vec<ConfigError> {
    let mut found = Vec::new();
    found.extend(nobody_serves(source, file));
    found.extend(same_urls(source, file));
    found.extend(closed_models(source, file));
    found.extend(unknown_regions(source, file));
    found.extend(unknown_models(source, file));
    found.extend(default_names(source, file));
    found.extend(own_peers(source, file));
    found.extend(inexact_usage(source, file));
    found.extend(unused_terms(source, file));
    found.extend(expired_certificates(source, file));
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
    // An API with several prices is several overflow replicas.
    let replicas = file.replica.iter().filter(|replica| !replica.is_overflow());
    let same = replicas.filter_map(|replica| {
        let (url, at) = (replica.url.get_ref().trim_end_matches('/'), replica.url.span());
        // Replicas of several pools may share one server on purpose.
        let earlier = places.insert((url, replica.pool.as_str()), at.clone())?;
        let message = format!("two replicas of the pool {:?} have the URL {url}", replica.pool);
        let remedy = "give each its own URL: the server is taken for two, and gets twice its share";
        Some(source.collision(at, earlier, message, remedy))
    });
    same.collect()
}

/// Warns of models that replicas serve and no route takes: routes that name models are the full
/// list of served models.
fn closed_models(source: &Source, file: &ConfigFile) -> Option<ConfigError> {
    let built_in = || file.route.iter().filter(|route| route.path_prefix.is_none());
    if built_in().next().is_none() || built_in().any(|route| route.models.is_empty()) {
        return None;
    }
    let named: BTreeSet<&str> =
        file.route.iter().flat_map(|route| &route.models).map(|it| it.get_ref().as_str()).collect();
    let below_paths = file.route.iter().filter_map(|route| route.model.as_ref());
    let named: BTreeSet<&str> =
        named.into_iter().chain(below_paths.map(|it| it.get_ref().as_str())).collect();
    let served = file.replica.iter().filter_map(|replica| replica.models.as_ref());
    let served = served.flat_map(|models| models.get_ref().iter()).map(|it| it.get_ref().as_str());
    let closed: BTreeSet<&str> = served.filter(|model| !named.contains(model)).collect();
    let closed: Vec<&str> = closed.into_iter().collect();
    let first = built_in().find_map(|route| route.models.first())?;
    if closed.is_empty() {
        return None;
    }
    let message = format!("no route takes requests for {}: they get 404", listed(&closed));
    let remedy = "add them to a route's models, or add a [[route]] without models for all others";
    Some(source.fault(first.span(), message, remedy))
}

/// Warns of client certificates that replicas will refuse. No error: a node that is started again must
/// come up, for its other replicas, on the day after a certificate has expired.
fn expired_certificates(source: &Source, file: &ConfigFile) -> Vec<ConfigError> {
    let named =
        file.replica.iter().filter_map(|replica| replica.tls.as_ref()?.certificate.as_ref());
    let expired = named.filter(|name| {
        let chain = certificates_of_pem(&source.read(name.get_ref()).unwrap_or_default());
        let facts = chain.first().and_then(CertificateFacts::of);
        facts.is_some_and(|facts| facts.days_left(SystemTime::now()) < 0)
    });
    let warn = |name: &Spanned<String>| {
        let message = format!("the client certificate {} has expired", name.get_ref());
        source.fault(name.span(), message, "renew it: the replica will refuse each handshake")
    };
    expired.map(warn).collect()
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
        with_meant(source.fault(name.span(), message, remedy), name.get_ref().as_str(), &known)
    };
    named.filter(is_unknown).map(warn).collect()
}

/// Adds the name that was most likely meant.
fn with_meant(warning: ConfigError, name: &str, known: &[&str]) -> ConfigError {
    match nearest(name, known) {
        Some(meant) => warning.labelled(format!("did you mean {meant:?}?")),
        None => warning,
    }
}

/// Warns of prices and keys for models that no replica serves. Where replicas are asked for their models,
/// or found, the file need not name them.
fn unknown_models(source: &Source, file: &ConfigFile) -> Vec<ConfigError> {
    let is_open = file.replica.is_empty()
        || !file.discovery.is_empty()
        || file.cluster.is_some()
        || file.replica.iter().any(|replica| replica.models.is_none());
    if is_open {
        return Vec::new();
    }
    let replicas = file.replica.iter().filter_map(|replica| replica.models.as_ref());
    let served = replicas.flat_map(|models| models.get_ref().iter());
    let routes = file.route.iter().flat_map(|route| route.models.iter().chain(&route.model));
    let aliases = file.aliases.keys().map(String::as_str);
    let splits = file.split.iter().map(|split| split.model.get_ref().as_str());
    let named = served.chain(routes).map(|it| it.get_ref().as_str());
    let known: BTreeSet<&str> = named.chain(aliases).chain(splits).collect();
    let known: Vec<&str> = known.into_iter().collect();
    let prices = file.price.iter().filter_map(|price| price.model.as_ref());
    let is_unknown = |name: &&Spanned<String>| !known.contains(&name.get_ref().as_str());
    let warn = |name: &Spanned<String>| {
        let message = format!("no replica has the model {:?}", name.get_ref());
        let remedy = format!("name one of: {}", listed(&known));
        with_meant(source.fault(name.span(), message, remedy), name.get_ref(), &known)
    };
    let keys = file.key.iter().flat_map(|key| key.models.iter().map(move |model| (key, model)));
    let keys = keys.filter(|(_, model)| !known.contains(&model.as_str()));
    let warn_of_key = |(key, model): (&KeySection, &String)| {
        let message = format!("the key may use the model {model:?}, which no replica has");
        let remedy = format!("name one of: {}", listed(&known));
        with_meant(source.fault(key.id.span(), message, remedy), model, &known)
    };
    let keys: Vec<ConfigError> = keys.map(warn_of_key).collect();
    prices.filter(is_unknown).map(warn).chain(keys).collect()
}

/// Warns of peers with the address of the node itself, which would connect to itself.
fn own_peers(source: &Source, file: &ConfigFile) -> Vec<ConfigError> {
    let Some(cluster) = &file.cluster else { return Vec::new() };
    let own = file.peer.iter().filter(|peer| peer.address == *cluster.address.get_ref());
    let warn = |peer: &PeerSection| {
        let message = format!("the peer has the address of this node, {}", peer.address);
        let remedy = "write the address of that node, or remove the peer";
        source.fault(peer.name.span(), message, remedy)
    };
    own.map(warn).collect()
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Config;

    #[test]
    fn a_key_for_a_model_of_no_replica_is_a_warning() {
        let warned = |models: &str| {
            let text = format!(
                "[[listener]]\naddress = \"127.0.0.1:0\"\n[[replica]]\nname = \"a\"\n\
                 url = \"http://h:1\"\nmodels = [\"tiny\"]\n[[key]]\nid = \"k1\"\n\
                 tenant = \"acme\"\nsalt = \"{}\"\nhash = \"{}\"\nmodels = [{models}]\n",
                "00".repeat(16),
                "11".repeat(32),
            );
            Config::parse(&text, Path::new("file.toml"), []).expect(&text).warnings.to_string()
        };
        let told = warned("\"tiny\", \"tinny\"");
        assert!(told.contains("the key may use the model \"tinny\""), "{told}");
        assert!(told.contains("name one of: tiny"), "{told}");
        assert!(!warned("\"tiny\"").contains("may use"));
    }
}
