//! Commands for the log, made from requests.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_cluster_state::{
    Command, Expect, Item, KEY_EPOCH, Key, KeyId, Model, RecordKey, RevokedCertificate,
    SettingRule, Split, State, Tenant,
};
use spillway_route::Policy;
use spillway_types::{NoCountry, Percent, UnknownSplitByError};

use super::cluster::Cluster;
use super::read::not_found;
use crate::call::AdminCall;
use crate::endpoint::Operation;
use crate::error::ApiError;
use crate::forms::{
    KeyRecord, LimitRecord, ModelRecord, NodeRecord, NodeRightRecord, RegionRecord, ReplicaRecord,
    RevokedRecord, RouteRecord, SettingRecord, SplitRecord, TenantRecord,
};
use crate::records::key_of;
use crate::resource::Resource;

/// Share of spilled work that a region takes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegionWeight {
    /// Percent of the usual share, with one decimal at most; 0 is none.
    #[schemars(with = "f64", range(min = 0, max = 1_000))]
    pub(crate) weight_percent: Percent,
}

/// Share of work that a replica takes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplicaWeight {
    /// Weight from 1 to 1,000; null for the replica's own.
    pub(crate) weight: Option<u32>,
}

/// Change of a split's rollout.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RolloutOrder {
    /// Reason for the change, for the record and the audit trail.
    pub(crate) why: String,
}

/// Returns the record that a request is about, and the command that it asks for.
pub(super) async fn command(
    cluster: &Cluster<'_>,
    call: &AdminCall,
) -> Result<(RecordKey, Command), ApiError> {
    let key = subject(cluster, call).await?;
    let (expect, about) = (call.expect, key.clone());
    let command = match (call.endpoint.operation, key) {
        (Operation::Put(_) | Operation::Patch(_), key) => put(cluster, call, key).await?,
        (Operation::Remove(_), key) => Command::Remove { key, expect },
        (Operation::RevokeKey, RecordKey::Key(key)) => Command::RevokeKey { key, expect },
        (Operation::SetNodeOperators, RecordKey::Node(node)) => {
            let NodeRightRecord { operators } = call.json()?;
            Command::SetNodeOperators { node, is_operator: operators, expect }
        }
        (Operation::SetRegionState(state), RecordKey::Region(region)) => {
            Command::SetRegionState { region, state, expect }
        }
        (Operation::SetRegionWeight, RecordKey::Region(region)) => {
            let RegionWeight { weight_percent } = call.json()?;
            let weight_permille = weight_percent.permille();
            Command::SetRegionWeight { region, weight_permille, expect }
        }
        (Operation::SetReplicaState(state), RecordKey::Replica(id)) => {
            Command::SetReplicaState { id, state, expect }
        }
        (Operation::SetReplicaWeight, RecordKey::Replica(id)) => {
            let ReplicaWeight { weight } = call.json()?;
            Command::SetReplicaWeight { id, weight, expect }
        }
        (Operation::ChangeRollout(change), RecordKey::Split(split)) => {
            let RolloutOrder { why } = call.json_or_default()?;
            Command::ChangeRollout { split, change, number: None, why, expect }
        }
        (Operation::RotatePrefixKey, RecordKey::Setting(_)) => Command::RotatePrefixKey { expect },
        (operation, key) => {
            return Err(ApiError::internal(format!("{operation:?} is not about {key}")));
        }
    };
    Ok((about, command))
}

/// Returns the record that a request is about.
async fn subject(cluster: &Cluster<'_>, call: &AdminCall) -> Result<RecordKey, ApiError> {
    if call.endpoint.operation == Operation::RotatePrefixKey {
        return Ok(RecordKey::Setting(KEY_EPOCH.to_owned()));
    }
    let operation = call.endpoint.operation;
    let no_record = || ApiError::internal(format!("{operation:?} is about no record"));
    let resource = resource_of(call).ok_or_else(no_record)?;
    let look = |state: &State| key_of(state, resource, &call.path);
    let key = match resource {
        // Node names are looked up in the state of now, since records of nodes have numbers as
        // keys.
        Resource::Nodes => cluster.read(call, look).await?.value,
        _ => look(&State::new()),
    };
    key.ok_or_else(|| not_found(resource, &call.path))
}

/// Returns the kind of the record whose name is in the path; `None` if the path names none.
pub(super) fn resource_of(call: &AdminCall) -> Option<Resource> {
    Some(match call.endpoint.operation {
        Operation::Put(resource)
        | Operation::Patch(resource)
        | Operation::Remove(resource)
        | Operation::Show(resource) => resource,
        Operation::SetNodeOperators => Resource::Nodes,
        Operation::SetRegionState(_) | Operation::SetRegionWeight => Resource::Regions,
        Operation::SetReplicaState(_) | Operation::SetReplicaWeight => Resource::Replicas,
        Operation::RevokeKey => Resource::Keys,
        Operation::ChangeRollout(_) => Resource::Splits,
        _ => return None,
    })
}

async fn put(cluster: &Cluster<'_>, call: &AdminCall, key: RecordKey) -> Result<Command, ApiError> {
    let expect = call.expect;
    let item = match key {
        RecordKey::Node(node) => {
            let NodeRecord { role } = call.json()?;
            return Ok(Command::SetNodeRole { node, role: role.into(), expect });
        }
        RecordKey::Replica(id) => {
            let record: ReplicaRecord = call.json()?;
            check_url(&record.url)?;
            let incarnation = record.incarnation;
            return Ok(Command::RegisterReplica { id, spec: record.into(), incarnation, expect });
        }
        RecordKey::Region(name) => Item::Region(name, call.json::<RegionRecord>()?.into()),
        RecordKey::Model(name) => Item::Model(name, model(call)?),
        RecordKey::Route(name) => {
            let route = route(cluster, call, name.as_str())?;
            Item::Route(name, route)
        }
        RecordKey::Split(name) => Item::Split(name, split(call)?),
        RecordKey::Limit(scope) => Item::Limit(scope, limit(call)?),
        RecordKey::Tenant(name) => {
            let tenant: Result<Tenant, _> = call.json::<TenantRecord>()?.try_into();
            Item::Tenant(name, tenant.map_err(no_country)?)
        }
        RecordKey::Key(id) => {
            let value = key_over(cluster, call, &id).await?;
            Item::Key(id, value)
        }
        RecordKey::RevokedCertificate(serial) => {
            let RevokedRecord { reason } = call.json_or_default()?;
            Item::RevokedCertificate(serial, RevokedCertificate { reason })
        }
        RecordKey::Setting(name) if SettingRule::find(&name).is_some() => {
            Item::Setting(name, call.json::<SettingRecord>()?.value)
        }
        // A setting that this version does not know.
        RecordKey::Setting(name) => return Err(not_found(Resource::Settings, &[name])),
        // `Resource::is_writable` lets no other kind come here.
        key => return Err(ApiError::internal(format!("{key} is not written as a whole"))),
    };
    Ok(Command::Put { item, expect })
}

/// Refuses a replica at an address that only a machine itself or its cloud answers. Nodes connect
/// to no such address, by whatever name: this check only reports it at once.
fn check_url(url: &str) -> Result<(), ApiError> {
    let host = url.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
    let address = host.and_then(|host| host.trim_matches(['[', ']']).parse().ok());
    if !address.is_some_and(spillway_types::is_link_local) {
        return Ok(());
    }
    let cause = "the address of the replica is link-local or a cloud's metadata service";
    let remedy = "name the machine of the model server";
    Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", cause, remedy))
}

/// Reads a limit. A limit in the log counts requests over one time window, so a request with both
/// is refused here.
fn limit(call: &AdminCall) -> Result<spillway_cluster_state::Limit, ApiError> {
    let record: LimitRecord = call.json()?;
    if record.requests_per_s.is_some() && record.requests_per_min.is_some() {
        let (cause, remedy) =
            ("requests are limited twice", "say requests_per_s or requests_per_min");
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", cause, remedy));
    }
    Ok(record.into())
}

fn model(call: &AdminCall) -> Result<Model, ApiError> {
    let record: ModelRecord = call.json()?;
    if !record.is_priced_whole() {
        let (cause, remedy) = (
            "a part of the price is missing",
            "give prompt_per_million and completion_per_million",
        );
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", cause, remedy));
    }
    Ok(Model::from(record))
}

/// Reads a route. Its settings are those of a config file, and checked as there.
fn route(
    cluster: &Cluster<'_>,
    call: &AdminCall,
    name: &str,
) -> Result<spillway_cluster_state::Route, ApiError> {
    let record: RouteRecord = call.json()?;
    if let Some(unknown) = record.settings.keys().next() {
        let Some(check) = cluster.route_check else {
            let cause = format!("the body can't be read: unknown field {unknown:?}");
            return Err(ApiError::bad_request(cause, "send JSON as /v1/openapi.json describes it"));
        };
        let wrong = |(cause, remedy): (String, String)| {
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", cause, remedy)
        };
        let whole = crate::records::json(&record).as_object().cloned().unwrap_or_default();
        check.check_route(name, &whole).map_err(wrong)?;
    }
    if !record.policy.is_empty() {
        let unknown = |error| {
            let remedy = "name one of them, or none for the default";
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            ApiError::new(status, "invalid", format!("{error}"), remedy)
        };
        record.policy.parse::<Policy>().map_err(unknown)?;
    }
    record.try_into().map_err(no_country)
}

fn split(call: &AdminCall) -> Result<Split, ApiError> {
    call.json::<SplitRecord>()?.try_into().map_err(|error: UnknownSplitByError| {
        let remedy = "e.g. header:x-user";
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", error.to_string(), remedy)
    })
}

fn no_country(error: NoCountry) -> ApiError {
    let remedy = "use ISO 3166 codes of two capital letters, e.g. DE";
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", error.to_string(), remedy)
}

/// Returns the key in the request, with the secret of the stored key. The version must be named:
/// rights of a key must not overwrite a change that the caller has not seen, and a key that was
/// removed since must not come back.
async fn key_over(cluster: &Cluster<'_>, call: &AdminCall, id: &KeyId) -> Result<Key, ApiError> {
    if !matches!(call.expect, Expect::Version(_)) {
        // A `PATCH` over a key that exists has the version that it was made over.
        if matches!(call.endpoint.operation, Operation::Patch(_)) {
            return Err(not_found(Resource::Keys, &call.path));
        }
        let remedy = "read it, and send its version as If-Match; POST /v1/keys makes new ones";
        let cause = "a key is only written over a version that was read";
        let status = StatusCode::PRECONDITION_REQUIRED;
        return Err(ApiError::new(status, "precondition_required", cause, remedy));
    }
    let record: KeyRecord = call.json()?;
    let known = cluster.read(call, |state| state.records().keys.get(id).cloned()).await?.value;
    let known = known.ok_or_else(|| not_found(Resource::Keys, &call.path))?;
    Ok(record.over(&known))
}
