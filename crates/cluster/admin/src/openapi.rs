//! The OpenAPI document, made from the table of endpoints and the types of bodies.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::all_nodes::AllReplicas;
use crate::answer::{
    AuditPage, DryRun, Event, ExplainOrder, Explanation, Freshness, GateAnswer, LeaderAnswer,
    LimitItem, Limits, Lost, Many, NodeAnswer, One, RegionWeight, ReplicaWeight, RequestsAnswer,
    RolloutAnswer, RolloutOrder, RoutesAnswer, StatusAnswer, SteeringAnswer, TransferOrder,
    TrieAnswer, TrustAnswer, WorldAnswer, Written,
};
use crate::endpoint::{AdminEndpoint, ENDPOINTS, Operation};
use crate::error::ErrorAnswer;
use crate::forms::{
    Item, JoinTokenRecord, KeyInfo, KeyRecord, ModelRecord, NewJoinToken, NewKey, NodeInfo,
    NodeRecord, NodeRightRecord, RegionRecord, RemovedNodeInfo, ReplicaInfo, ReplicaRecord,
    RevokedRecord, RouteRecord, Secret, SettingInfo, SettingRecord, SplitInfo, SplitRecord,
    TenantRecord,
};
use crate::live::{LiveBegin, LiveEnd, LiveSnapshot};
use crate::overview::RequestHistoryOverview;
use crate::patterns::of_parameter;
use crate::query::PAGE_MAX;
use crate::reasons::ReasonsAnswer;
use crate::resource::Resource;
use crate::usage::ClusterUsage;

static DOCUMENT: LazyLock<Value> = LazyLock::new(document);

/// Returns the OpenAPI 3.1 document of the admin API, as `/v1/openapi.json` shows it.
#[must_use]
pub fn openapi() -> &'static Value {
    &DOCUMENT
}

fn document() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for endpoint in ENDPOINTS.iter() {
        let method = endpoint.method.as_str().to_ascii_lowercase();
        let path = paths.entry(&endpoint.path).or_insert_with(|| json!({}));
        path[method] = operation(endpoint, &mut generator);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Spillway admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "docs/reference/admin-api.md says how reads, writes, watches and errors work.",
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": { "token": {
                "type": "http", "scheme": "bearer",
                "description": "A token of the node's token file or a key of the cluster. None is \
                                needed on a loopback listener without a token file.",
            } },
        },
    })
}

fn operation(endpoint: &AdminEndpoint, generator: &mut SchemaGenerator) -> Value {
    let mut responses = Map::new();
    let (status, content) = response(endpoint, generator);
    responses.insert(status.to_owned(), json!({ "description": "Done.", "content": content }));
    let error = generator.subschema_for::<ErrorAnswer>();
    let error = json!({
        "description": "Not done; the body says why and what to do.",
        "content": { "application/json": { "schema": error } },
    });
    responses.insert("default".to_owned(), error);
    let mut operation = json!({
        "operationId": operation_id(endpoint),
        "summary": endpoint.summary,
        "x-role": endpoint.role.name(),
        "parameters": parameters(endpoint),
        "responses": responses,
    });
    if let Some(schema) = request(endpoint.operation, generator) {
        let content = json!({ "application/json": { "schema": schema } });
        // These have a default for each member, and so for the whole body.
        let is_optional = matches!(
            endpoint.operation,
            Operation::CreateKey
                | Operation::CreateJoinToken
                | Operation::Put(Resource::RevokedCertificates)
                | Operation::Patch(_)
        );
        operation["requestBody"] = json!({ "required": !is_optional, "content": content });
    }
    operation
}

/// Returns the id of an operation, made from method and path, which are unique together.
fn operation_id(endpoint: &AdminEndpoint) -> String {
    let path = endpoint.path.trim_start_matches("/v1/");
    let words = path.split(['/', '.', '-']).map(|word| word.trim_matches(['{', '}']));
    let method = endpoint.method.as_str().to_ascii_lowercase();
    std::iter::once(method.as_str()).chain(words).collect::<Vec<_>>().join("_")
}

fn parameters(endpoint: &AdminEndpoint) -> Vec<Value> {
    let names = endpoint.path.split('/').filter_map(|part| part.strip_prefix('{'));
    let mut all: Vec<Value> = names
        .map(|name| {
            let name = name.trim_end_matches('}');
            let schema = json!({ "type": "string", "pattern": of_parameter(name) });
            json!({ "name": name, "in": "path", "required": true, "schema": schema })
        })
        .collect();
    all.extend(endpoint.query.iter().map(|name| {
        let (schema, doc) = query_schema(name, endpoint.operation);
        json!({ "name": name, "in": "query", "schema": schema, "description": doc })
    }));
    let header = |name: &str, doc: &str| {
        let schema = json!({ "type": "string" });
        json!({ "name": name, "in": "header", "schema": schema, "description": doc })
    };
    if endpoint.query.contains(&"dry_run") {
        all.push(header("If-Match", "The version that the record must have, in quotes."));
        all.push(header("If-None-Match", "`*`: the record must not exist."));
        all.push(header("Idempotency-Key", "Equal for a request and its retries."));
    }
    if endpoint.operation == Operation::Watch {
        all.push(header("Last-Event-ID", "The id of the last event that was seen."));
    }
    all
}

fn query_schema(name: &str, operation: Operation) -> (Value, &'static str) {
    match name {
        "consistency" => (
            json!({ "type": "string", "enum": ["linearizable", "stale"], "default": "linearizable" }),
            "`linearizable` sees all that was done before and needs a quorum; `stale` sees what is \
             here.",
        ),
        "dry_run" => (
            json!({ "type": "boolean", "default": false }),
            "Says what would change, and changes nothing.",
        ),
        "create" => (
            json!({ "type": "boolean", "default": false }),
            "Takes names that are new and may be slips of known ones, and makes the tenant of a new key.",
        ),
        "limit" => {
            (json!({ "type": "integer", "minimum": 1, "maximum": PAGE_MAX }), "How many at most.")
        }
        "top" => (
            json!({ "type": "integer", "minimum": 0, "maximum": PAGE_MAX, "default": 0 }),
            "How many of the hottest blocks to show.",
        ),
        "trail" => (
            json!({ "type": "string", "enum": ["operators", "system"], "default": "operators" }),
            "Whose deeds: those of people, or of nodes by themselves.",
        ),
        "scope" => (
            json!({ "type": "string", "enum": ["node", "region", "cluster"], "default": "node" }),
            "Which nodes are asked: this one, those of a region, or all.",
        ),
        "since" | "until" if operation == Operation::Usage => (
            json!({ "type": "string", "format": "date" }),
            "First and last day, in UTC; else the month up to today.",
        ),
        "by" => (
            json!({ "type": "string", "default": "tenant,key,model" }),
            "Columns to group by: a list of `day`, `tenant`, `key`, `model`.",
        ),
        _ if operation == Operation::Usage => {
            (json!({ "type": "string" }), "Only usage of this tenant, key (its id) or model.")
        }
        _ if operation == Operation::Watch => {
            (json!({ "type": "integer" }), "The index of the read to go on from.")
        }
        _ => (json!({ "type": "string" }), "`next` of the page before."),
    }
}

fn request(operation: Operation, generator: &mut SchemaGenerator) -> Option<Schema> {
    Some(match operation {
        Operation::Patch(resource) => {
            let whole = request(Operation::Put(resource), generator)?;
            partial(&whole, generator)
        }
        Operation::Put(resource) => return resource.schema(generator),
        Operation::SetNodeOperators => generator.subschema_for::<NodeRightRecord>(),
        Operation::CreateKey => generator.subschema_for::<NewKey>(),
        Operation::CreateJoinToken => generator.subschema_for::<NewJoinToken>(),
        Operation::SetRegionWeight => generator.subschema_for::<RegionWeight>(),
        Operation::SetReplicaWeight => generator.subschema_for::<ReplicaWeight>(),
        Operation::ChangeRollout(_) => generator.subschema_for::<RolloutOrder>(),
        Operation::TransferLeader => generator.subschema_for::<TransferOrder>(),
        Operation::Explain => generator.subschema_for::<ExplainOrder>(),
        _ => return None,
    })
}

/// Returns the schema of some fields of a record.
fn partial(whole: &Schema, generator: &SchemaGenerator) -> Schema {
    let name = whole.get("$ref").and_then(Value::as_str).and_then(|it| it.rsplit('/').next());
    let known = name.and_then(|name| generator.definitions().get(name));
    let mut fields = known.cloned().unwrap_or_else(|| whole.as_value().clone());
    if let Some(fields) = fields.as_object_mut() {
        fields.remove("required");
    }
    Schema::try_from(fields).unwrap_or_default()
}

fn response(endpoint: &AdminEndpoint, generator: &mut SchemaGenerator) -> (&'static str, Value) {
    let schema = match endpoint.operation {
        Operation::List(resource) => record(resource, Amount::Many, generator),
        Operation::Show(resource) => record(resource, Amount::One, generator),
        Operation::Status => generator.subschema_for::<StatusAnswer>(),
        Operation::Leader | Operation::TransferLeader => generator.subschema_for::<LeaderAnswer>(),
        Operation::TrustDisk => generator.subschema_for::<TrustAnswer>(),
        Operation::Audit => generator.subschema_for::<AuditPage>(),
        Operation::Explain => generator.subschema_for::<Explanation>(),
        Operation::Steering => generator.subschema_for::<SteeringAnswer>(),
        Operation::Node => generator.subschema_for::<NodeAnswer>(),
        Operation::World => generator.subschema_for::<WorldAnswer>(),
        Operation::History => generator.subschema_for::<RequestHistoryOverview>(),
        Operation::Fleet => generator.subschema_for::<AllReplicas>(),
        Operation::Routes => generator.subschema_for::<RoutesAnswer>(),
        Operation::Usage => generator.subschema_for::<ClusterUsage>(),
        Operation::Requests => generator.subschema_for::<RequestsAnswer>(),
        Operation::Rollout => generator.subschema_for::<RolloutAnswer>(),
        Operation::RolloutGate => generator.subschema_for::<GateAnswer>(),
        Operation::Reasons => generator.subschema_for::<ReasonsAnswer>(),
        Operation::Trie => generator.subschema_for::<TrieAnswer>(),
        Operation::OpenApi => Schema::from(Map::from_iter([("type".to_owned(), "object".into())])),
        Operation::Watch => {
            let events = events(generator);
            let content = json!({ "schema": { "type": "string" }, "x-events": events });
            return ("200", json!({ "text/event-stream": content }));
        }
        Operation::Live => {
            let events = json!({
                "begin": generator.subschema_for::<LiveBegin>(),
                "snapshot": generator.subschema_for::<LiveSnapshot>(),
                "end": generator.subschema_for::<LiveEnd>(),
            });
            let content = json!({ "schema": { "type": "string" }, "x-events": events });
            return ("200", json!({ "text/event-stream": content }));
        }
        Operation::Backup => {
            return ("200", json!({ "application/octet-stream": {} }));
        }
        Operation::CreateKey | Operation::CreateJoinToken => {
            let schema = generator.subschema_for::<Secret>();
            return (
                // 201 for a new secret, 200 for a dry run.
                "2XX",
                json!({ "application/json": { "schema": or_dry_run(schema, generator) } }),
            );
        }
        _ => {
            let schema = generator.subschema_for::<Written>();
            or_dry_run(schema, generator)
        }
    };
    ("200", json!({ "application/json": { "schema": schema } }))
}

/// Returns the schemas of all kinds of events, which OpenAPI itself cannot describe.
fn events(generator: &mut SchemaGenerator) -> Value {
    let freshness = generator.subschema_for::<Freshness>();
    json!({
        "begin": freshness,
        "change": generator.subschema_for::<Event>(),
        "alive": freshness,
        "too_old": generator.subschema_for::<Lost>(),
    })
}

fn or_dry_run(schema: Schema, generator: &mut SchemaGenerator) -> Schema {
    let dry = generator.subschema_for::<DryRun>();
    Schema::from(Map::from_iter([("oneOf".to_owned(), json!([schema, dry]))]))
}

#[derive(Clone, Copy)]
enum Amount {
    One,
    Many,
}

fn record(resource: Resource, amount: Amount, generator: &mut SchemaGenerator) -> Schema {
    match resource {
        Resource::Nodes => of::<Item<NodeRecord, NodeInfo>>(amount, generator),
        Resource::Regions => of::<Item<RegionRecord>>(amount, generator),
        Resource::Replicas => of::<Item<ReplicaRecord, ReplicaInfo>>(amount, generator),
        Resource::Models => of::<Item<ModelRecord>>(amount, generator),
        Resource::Routes => of::<Item<RouteRecord>>(amount, generator),
        Resource::Splits => of::<Item<SplitRecord, SplitInfo>>(amount, generator),
        Resource::Limits => match amount {
            Amount::One => generator.subschema_for::<One<LimitItem>>(),
            Amount::Many => generator.subschema_for::<Limits<LimitItem>>(),
        },
        Resource::Tenants => of::<Item<TenantRecord>>(amount, generator),
        Resource::Keys => of::<Item<KeyRecord, KeyInfo>>(amount, generator),
        Resource::JoinTokens => of::<Item<JoinTokenRecord>>(amount, generator),
        Resource::Settings => of::<Item<SettingRecord, SettingInfo>>(amount, generator),
        Resource::RemovedNodes => of::<Item<(), RemovedNodeInfo>>(amount, generator),
        Resource::RevokedCertificates => of::<Item<RevokedRecord>>(amount, generator),
    }
}

fn of<T: JsonSchema>(amount: Amount, generator: &mut SchemaGenerator) -> Schema {
    match amount {
        Amount::One => generator.subschema_for::<One<T>>(),
        Amount::Many => generator.subschema_for::<Many<T>>(),
    }
}
