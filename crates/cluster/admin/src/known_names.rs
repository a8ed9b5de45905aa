//! Names that records have or refer to, and those that are most likely slips of them.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use spillway_cluster_state::{LimitScope, State};
use spillway_rate_limit::Scope;
use spillway_types::{misspelt, nearest};

use crate::resource::Resource;

/// Returns the names of that kind that the state knows, also those of things without a record of
/// their own: a model that a replica serves can have fallbacks.
pub(crate) fn known_names(state: &State, resource: Resource) -> BTreeSet<String> {
    let records = state.records();
    let text = |name: &dyn ToString| name.to_string();
    match resource {
        Resource::Nodes => {
            records.nodes.iter().map(|(_, node)| node.spec.name.to_string()).collect()
        }
        Resource::Regions => {
            let of_nodes = records.nodes.iter().map(|(_, node)| &node.spec.region);
            records.regions.keys().chain(of_nodes).map(|name| text(name)).collect()
        }
        Resource::Replicas => records.replicas.keys().map(|id| text(id)).collect(),
        Resource::Models | Resource::Splits => models(state),
        Resource::Routes => records.routes.keys().map(|name| text(name)).collect(),
        Resource::Tenants => records.tenants.keys().map(|name| text(name)).collect(),
        Resource::Keys => records.keys.keys().map(|id| text(id)).collect(),
        Resource::Limits => {
            let tenants = records.tenants.keys().cloned().map(LimitScope::Tenant);
            let keys = records.keys.keys().cloned().map(LimitScope::Key);
            let models = models(state).into_iter();
            let models = models.map(|name| LimitScope::Model(name.as_str().into()));
            let scopes = tenants.chain(keys).chain(models).chain([LimitScope::Global]);
            scopes.map(|scope| Scope::from(&scope).label()).collect()
        }
        Resource::Settings => {
            spillway_cluster_state::SETTINGS.iter().map(|rule| rule.name.to_owned()).collect()
        }
        Resource::JoinTokens => records.join_tokens.keys().map(|id| text(id)).collect(),
        Resource::RemovedNodes => records.removed_nodes.keys().map(|name| text(name)).collect(),
        Resource::RevokedCertificates => {
            records.revoked_certificates.keys().map(|serial| text(serial)).collect()
        }
    }
}

/// Returns the names that clients may ask for, and those that they resolve to.
fn models(state: &State) -> BTreeSet<String> {
    let records = state.records();
    let served = records.replicas.iter().flat_map(|(_, replica)| &replica.spec.models);
    let named = records.models.iter().flat_map(|(name, model)| {
        [name].into_iter().chain(&model.alias_of).chain(&model.fallbacks)
    });
    let split = records.splits.iter().flat_map(|(name, split)| {
        [name].into_iter().chain(split.arms.iter().map(|arm| &arm.model))
    });
    served.chain(named).chain(split).map(ToString::to_string).collect()
}

/// Returns `None` for a name that may be new. Otherwise returns the name that was most likely meant,
/// if one is near. Regions come with their nodes, so that any other name of one is taken for a slip.
pub(crate) fn may_be_a_slip(
    resource: Resource,
    name: &str,
    known: &BTreeSet<String>,
) -> Option<Option<String>> {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    match resource {
        Resource::Regions => Some(nearest(name, &known).map(str::to_owned)),
        Resource::Models
        | Resource::Routes
        | Resource::Splits
        | Resource::Tenants
        | Resource::Limits => misspelt(name, &known).map(|meant| Some(meant.to_owned())),
        // Replicas register by themselves; the others are never made by a name that is typed.
        Resource::Nodes
        | Resource::Replicas
        | Resource::Keys
        | Resource::JoinTokens
        | Resource::Settings
        | Resource::RemovedNodes
        | Resource::RevokedCertificates => None,
    }
}

/// A name in a record that is most likely a slip of a known one.
pub(crate) struct ReferenceSlip {
    pub(crate) resource: Resource,
    pub(crate) name: String,
    pub(crate) meant: String,
}

/// Returns a name in `record` that is most likely a slip. Names that the record had `before` are no
/// slips of this write.
pub(crate) fn slip_within(
    state: &State,
    resource: Resource,
    record: &Map<String, Value>,
    before: &Value,
) -> Option<ReferenceSlip> {
    let empty = Map::new();
    let before = references(resource, before.as_object().unwrap_or(&empty));
    let new = references(resource, record).into_iter().filter(|name| !before.contains(name));
    new.into_iter().find_map(|(resource, name)| {
        let known = known_names(state, resource);
        if known.contains(&name) {
            return None;
        }
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let meant = misspelt(&name, &known)?.to_owned();
        Some(ReferenceSlip { resource, name, meant })
    })
}

/// Returns the names of other things in a record, each with the kind of its thing. A key's tenant is
/// not among them: it has to exist.
fn references(resource: Resource, record: &Map<String, Value>) -> Vec<(Resource, String)> {
    let fields: &[(&str, Resource)] = match resource {
        Resource::Keys => &[("models", Resource::Models), ("regions", Resource::Regions)],
        Resource::Models => &[("alias_of", Resource::Models), ("fallbacks", Resource::Models)],
        Resource::Routes => &[("models", Resource::Models), ("regions", Resource::Regions)],
        Resource::Splits => &[("arms", Resource::Models)],
        Resource::Tenants => &[("regions", Resource::Regions)],
        Resource::JoinTokens => &[("region", Resource::Regions)],
        _ => &[],
    };
    let named = fields.iter().filter_map(|(field, kind)| Some((record.get(*field)?, *kind)));
    named
        .flat_map(|(value, kind)| names_in(value).into_iter().map(move |name| (kind, name)))
        .collect()
}

/// Returns a name, each of a list, or the models of arms.
fn names_in(value: &Value) -> Vec<String> {
    match value {
        Value::String(name) => vec![name.clone()],
        Value::Array(all) => all.iter().flat_map(names_in).collect(),
        Value::Object(arm) => arm.get("model").map(names_in).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Names that an error lists.
const LISTED_MAX: usize = 8;

/// Returns the remedy for a name that no record of that kind has: the known names, or the kind that
/// has it. None for kinds whose names not every caller may read, and for those with too long names.
pub(crate) fn there_are(state: &State, resource: Resource, name: &str) -> Option<String> {
    match resource {
        Resource::Keys | Resource::JoinTokens | Resource::RevokedCertificates => return None,
        Resource::Limits if !is_scope(name) => {
            return Some("name it global, tenant:NAME, model:NAME or key:ID".to_owned());
        }
        _ => {}
    }
    if resource == Resource::Regions
        && let Some(replica) = replica_named(state, name)
    {
        return Some(format!("{name} is a replica: write {replica:?}"));
    }
    let known = known_names(state, resource);
    let shown: Vec<&str> = known.iter().take(LISTED_MAX).map(String::as_str).collect();
    Some(match known.len().saturating_sub(shown.len()) {
        _ if shown.is_empty() => format!("there is nothing in {} yet", resource.name()),
        0 => format!("name one of: {}", shown.join(", ")),
        more => format!("name one of: {} and {more} more", shown.join(", ")),
    })
}

/// Returns true for the name of a limit, as far as its form goes.
fn is_scope(name: &str) -> bool {
    let kind = name.split_once(':').map(|(kind, _)| kind);
    name == "global" || kind.is_some_and(|kind| matches!(kind, "tenant" | "model" | "key"))
}

/// Returns a replica of that name, with its region.
fn replica_named(state: &State, name: &str) -> Option<String> {
    let all = known_names(state, Resource::Replicas);
    all.into_iter().find(|replica| replica.split_once('/').is_some_and(|(_, own)| own == name))
}

/// Returns the name that was most likely meant by one that nothing has.
pub(crate) fn meant(state: &State, resource: Resource, name: &str) -> Option<String> {
    let known = known_names(state, resource);
    let known: Vec<&str> = known.iter().map(String::as_str).filter(|it| *it != name).collect();
    nearest(name, &known).map(str::to_owned)
}
