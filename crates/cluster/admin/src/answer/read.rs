//! Reads of records.

use http::{HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use spillway_cluster_state::State;

use super::cluster::Cluster;
use super::freshness::Freshness;
use super::limits;
use crate::call::AdminCall;
use crate::error::ApiError;
use crate::records;
use crate::reply::{Reply, json};
use crate::resource::Resource;

/// A record.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct One<T> {
    /// Freshness of the answer.
    #[serde(flatten)]
    pub(crate) freshness: Freshness,
    /// The record.
    pub(crate) item: T,
}

/// Some records of a list.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Many<T> {
    /// Freshness of the answer.
    #[serde(flatten)]
    pub(crate) freshness: Freshness,
    /// The records, in the order of their names; nodes in that of their numbers.
    pub(crate) items: Vec<T>,
    /// Value to send as `after` for the next page; null at the end.
    pub(crate) next: Option<String>,
}

pub(super) async fn list(
    cluster: &Cluster<'_>,
    call: &AdminCall,
    resource: Resource,
) -> Result<Reply, ApiError> {
    let query = &call.query;
    let look = |state: &State| records::list(state, resource, query.after.as_deref(), query.limit);
    let read = cluster.read(call, look).await?;
    let freshness = Freshness::of(&read, query.consistency);
    let wrong = || {
        let remedy = "send what `next` of the page before says";
        ApiError::bad_request("the parameter \"after\" names nothing of that kind", remedy)
    };
    let page = read.value.ok_or_else(wrong)?;
    let many = Many { freshness, items: page.items, next: page.next };
    Ok(match resource {
        Resource::Limits => limits::list(cluster.own_limits, many),
        _ => json(StatusCode::OK, &many),
    })
}

pub(super) async fn show(
    cluster: &Cluster<'_>,
    call: &AdminCall,
    resource: Resource,
) -> Result<Reply, ApiError> {
    let look = |state: &State| {
        records::key_of(state, resource, &call.path).and_then(|key| records::item(state, &key))
    };
    let read = cluster.read(call, look).await?;
    let freshness = Freshness::of(&read, call.query.consistency);
    let item: Value = match read.value {
        Some(item) => item,
        // No limit of the cluster has that name; the config file may have one.
        None if resource == Resource::Limits => {
            return limits::show(cluster.own_limits, call, freshness);
        }
        None => return Err(not_found(resource, &call.path)),
    };
    let version = item["version"].as_u64();
    let mut reply = json(StatusCode::OK, &One { freshness, item });
    let tag = version.and_then(|version| HeaderValue::from_str(&format!("\"{version}\"")).ok());
    if let Some(tag) = tag {
        reply.headers_mut().insert(header::ETAG, tag);
    }
    Ok(reply)
}

pub(crate) fn not_found(resource: Resource, path: &[String]) -> ApiError {
    let cause = format!("there is no {:?} in {}", path.join("/"), resource.name());
    let remedy = format!("list what there is: GET /v1/{}", resource.name());
    ApiError::new(StatusCode::NOT_FOUND, "not_found", cause, remedy)
}
