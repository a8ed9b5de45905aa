//! Records as JSON: a single one, by pages, or by name.

use serde::Serialize;
use serde_json::Value;
use spillway_cluster_state::{
    CertificateSerial, KeyId, LimitScope, Node, NodeId, Record, RecordKey, ReplicaId, Row, State,
    Table, TenantName, TokenId,
};
use spillway_rate_limit::Scope;

use crate::forms::{
    HealthInfo, Item, JoinTokenRecord, KeyInfo, KeyRecord, LeaseInfo, LimitInfo, LimitRecord,
    ModelRecord, NodeInfo, NodeRecord, NodeRightRecord, RegionRecord, RemovedNodeInfo, ReplicaInfo,
    ReplicaRecord, RevokedRecord, RolloutInfo, RouteRecord, SettingRecord, SplitInfo, SplitRecord,
    TenantRecord, TokenOriginInfo, setting_infos,
};
use crate::resource::Resource;

/// Some records of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) items: Vec<Value>,
    /// Name after which the next page begins; `None` at the end.
    pub(crate) next: Option<String>,
}

/// Returns at most `limit` records after `after`. `None` if `after` can't be a name.
pub(crate) fn list(
    state: &State,
    resource: Resource,
    after: Option<&str>,
    limit: usize,
) -> Option<Page> {
    let records = state.records();
    // A setting that was never set has no record, and is listed with its default.
    if resource == Resource::Settings {
        let items = setting_infos(state).filter(|it| after.is_none_or(|after| *it.key > *after));
        return Some(paged(items.map(|item| (item.key.clone(), json(&item))), limit));
    }
    let after = match after {
        Some(name) => Some(key_of(state, resource, &cursor_parts(resource, name))?),
        None => None,
    };
    macro_rules! page {
        ($table:ident, $kind:ident) => {{
            let after = match after {
                Some(RecordKey::$kind(key)) => Some(key),
                _ => None,
            };
            let rows = rows_after(&records.$table, after).map(|(key, _)| {
                let key = RecordKey::$kind(key.clone());
                (cursor(&key), item(state, &key).unwrap_or_default())
            });
            paged(rows, limit)
        }};
    }
    Some(match resource {
        Resource::Nodes => page!(nodes, Node),
        Resource::Regions => page!(regions, Region),
        Resource::Replicas => page!(replicas, Replica),
        Resource::Models => page!(models, Model),
        Resource::Routes => page!(routes, Route),
        Resource::Splits => page!(splits, Split),
        Resource::Limits => page!(limits, Limit),
        Resource::Tenants => page!(tenants, Tenant),
        Resource::Keys => page!(keys, Key),
        Resource::RemovedNodes => page!(removed_nodes, RemovedNode),
        Resource::RevokedCertificates => page!(revoked_certificates, RevokedCertificate),
        // Settings were answered above.
        Resource::JoinTokens | Resource::Settings => page!(join_tokens, JoinToken),
    })
}

/// Returns one record as it is shown; `None` if it does not exist.
pub(crate) fn item(state: &State, key: &RecordKey) -> Option<Value> {
    if let RecordKey::Setting(name) = key {
        return setting_infos(state).find(|item| item.key == *name).map(|item| json(&item));
    }
    let mut shown = shown(key, &state.record(key)?);
    // From here on: the parts of the info that other records have.
    if let RecordKey::Replica(id) = key {
        let (lease, health) = (state.records().leases.get(id), state.records().health.get(id));
        shown["info"]["lease"] = json(&lease.map(LeaseInfo::from));
        shown["info"]["health"] = json(&health.map(HealthInfo::from));
    }
    if let RecordKey::Node(id) = key {
        let may_order = |node: &Node| state.may_order(&node.spec.name);
        shown["info"]["operators"] = json(&state.records().nodes.get(id).is_some_and(may_order));
    }
    if let RecordKey::JoinToken(id) = key {
        let origin = state.records().token_origins.get(id);
        shown["record"]["operators"] = json(&origin.is_some_and(|origin| origin.is_operator));
    }
    if let RecordKey::Limit(scope) = key {
        shown["info"] = json(&LimitInfo::of(state, scope));
    }
    Some(shown)
}

/// Returns a record, present or future, without the parts that other records add.
pub(crate) fn shown(key: &RecordKey, record: &Record) -> Value {
    match (key, record) {
        (RecordKey::Node(id), Record::Node(row)) => {
            let node = row.value();
            let form = NodeRecord { role: node.role.into() };
            of(node.spec.name.to_string(), row, form, NodeInfo::of(*id, node))
        }
        (_, Record::Region(row)) => plain::<_, RegionRecord>(key, row),
        (_, Record::Replica(row)) => {
            let replica = row.value();
            of(name_of(key).1, row, ReplicaRecord::from(replica), ReplicaInfo::from(replica))
        }
        (_, Record::Lease(row)) => plain::<_, LeaseInfo>(key, row),
        (_, Record::Health(row)) => plain::<_, HealthInfo>(key, row),
        (_, Record::Model(row)) => plain::<_, ModelRecord>(key, row),
        (_, Record::Route(row)) => plain::<_, RouteRecord>(key, row),
        (_, Record::Split(row)) => {
            let rollout = row.value().rollout.as_ref().map(RolloutInfo::from);
            of(name_of(key).1, row, SplitRecord::from(row.value()), SplitInfo { rollout })
        }
        (_, Record::Limit(row)) => plain::<_, LimitRecord>(key, row),
        (_, Record::Tenant(row)) => plain::<_, TenantRecord>(key, row),
        (_, Record::Key(row)) => {
            let info = KeyInfo { is_revoked: row.value().is_revoked };
            of(name_of(key).1, row, KeyRecord::from(row.value()), info)
        }
        (_, Record::JoinToken(row)) => plain::<_, JoinTokenRecord>(key, row),
        (_, Record::Setting(row)) => {
            of(name_of(key).1, row, SettingRecord { value: row.value().0.clone() }, ())
        }
        (_, Record::NodeRight(row)) => plain::<_, NodeRightRecord>(key, row),
        (_, Record::TokenOrigin(row)) => plain::<_, TokenOriginInfo>(key, row),
        (_, Record::RemovedNode(row)) => {
            of(name_of(key).1, row, (), RemovedNodeInfo::from(row.value()))
        }
        (_, Record::RevokedCertificate(row)) => plain::<_, RevokedRecord>(key, row),
        // A node's record under the key of another kind does not exist.
        (_, Record::Node(_)) => Value::Null,
    }
}

/// Returns kind and name of a record, as in paths. Nodes are named by number.
pub(crate) fn name_of(key: &RecordKey) -> (&'static str, String) {
    match key {
        RecordKey::Node(id) => (Resource::Nodes.name(), id.to_string()),
        RecordKey::Region(name) => (Resource::Regions.name(), name.to_string()),
        RecordKey::Replica(id) => (Resource::Replicas.name(), id.to_string()),
        RecordKey::Lease(id) => ("leases", id.to_string()),
        RecordKey::Health(id) => ("health", id.to_string()),
        RecordKey::Model(name) => (Resource::Models.name(), name.to_string()),
        RecordKey::Route(name) => (Resource::Routes.name(), name.to_string()),
        RecordKey::Split(name) => (Resource::Splits.name(), name.to_string()),
        RecordKey::Limit(scope) => (Resource::Limits.name(), scope_name(scope)),
        RecordKey::Tenant(name) => (Resource::Tenants.name(), name.to_string()),
        RecordKey::Key(id) => (Resource::Keys.name(), id.to_string()),
        RecordKey::JoinToken(id) => (Resource::JoinTokens.name(), id.to_string()),
        RecordKey::Setting(name) => (Resource::Settings.name(), name.clone()),
        RecordKey::NodeRight(id) => ("node-rights", id.to_string()),
        RecordKey::TokenOrigin(id) => ("token-origins", id.to_string()),
        RecordKey::RemovedNode(name) => (Resource::RemovedNodes.name(), name.to_string()),
        RecordKey::RevokedCertificate(serial) => {
            (Resource::RevokedCertificates.name(), serial.to_string())
        }
    }
}

/// Returns the key of the record that the parts of a path name; `None` if nothing can have that
/// name. A node is found by its name or by its number.
pub(crate) fn key_of(state: &State, resource: Resource, parts: &[String]) -> Option<RecordKey> {
    let name = parts.first()?;
    let text = name.as_str();
    Some(match resource {
        Resource::Nodes => {
            let named = state.node(&text.into()).map(|(id, _)| id);
            RecordKey::Node(named.or_else(|| text.parse().ok().map(NodeId))?)
        }
        Resource::Regions => RecordKey::Region(text.into()),
        Resource::Replicas => {
            RecordKey::Replica(ReplicaId::new(text.into(), parts.get(1)?.as_str().into()))
        }
        Resource::Models => RecordKey::Model(text.into()),
        Resource::Routes => RecordKey::Route(text.into()),
        Resource::Splits => RecordKey::Split(text.into()),
        Resource::Limits => RecordKey::Limit(scope(text)?),
        Resource::Tenants => RecordKey::Tenant(TenantName::from(text)),
        Resource::Keys => RecordKey::Key(KeyId::from(text)),
        Resource::JoinTokens => RecordKey::JoinToken(TokenId::from(text)),
        Resource::Settings => RecordKey::Setting(name.clone()),
        Resource::RemovedNodes => RecordKey::RemovedNode(text.into()),
        Resource::RevokedCertificates => {
            RecordKey::RevokedCertificate(CertificateSerial::read(text)?)
        }
    })
}

/// Parses the subject of a limit: `global`, `tenant:NAME`, `model:NAME` or `key:ID`.
fn scope(text: &str) -> Option<LimitScope> {
    match text.split_once(':') {
        None if text == "global" => Some(LimitScope::Global),
        Some(("tenant", name)) => Some(LimitScope::Tenant(name.into())),
        Some(("model", name)) => Some(LimitScope::Model(name.into())),
        Some(("key", id)) => Some(LimitScope::Key(id.into())),
        _ => None,
    }
}

fn scope_name(scope: &LimitScope) -> String {
    Scope::from(scope).label()
}

/// Returns the name after which a list goes on. Names of regions and replicas have no slash.
fn cursor(key: &RecordKey) -> String {
    name_of(key).1
}

fn cursor_parts(resource: Resource, name: &str) -> Vec<String> {
    match resource {
        // A replica is named by its region and its own name, with a slash between.
        Resource::Replicas => name.splitn(2, '/').map(str::to_owned).collect(),
        _ => vec![name.to_owned()],
    }
}

fn rows_after<K: Ord, V>(
    table: &Table<K, V>,
    after: Option<K>,
) -> impl Iterator<Item = (&K, &Row<V>)> {
    // Compared, not looked up: the record may have been removed since the last page.
    table.rows().skip_while(move |(key, _)| after.as_ref().is_some_and(|after| *key <= after))
}

fn paged(mut rows: impl Iterator<Item = (String, Value)>, limit: usize) -> Page {
    let mut last = None;
    let mut items = Vec::new();
    for (name, item) in rows.by_ref().take(limit) {
        items.push(item);
        last = Some(name);
    }
    // One row more than the page shows if there is another page.
    Page { items, next: last.filter(|_| rows.next().is_some()) }
}

fn plain<'a, V, R: From<&'a V> + Serialize>(key: &RecordKey, row: &'a Row<V>) -> Value {
    of(name_of(key).1, row, R::from(row.value()), ())
}

fn of<V>(key: String, row: &Row<V>, record: impl Serialize, info: impl Serialize) -> Value {
    json(&Item { key, version: Some(row.version()), record, info })
}

/// Returns the JSON form of a value. Cannot fail: only plain structs are shown.
pub(crate) fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
