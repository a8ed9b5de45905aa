//! Writes of records, as a whole or some of their fields.

use http::StatusCode;
use serde_json::{Map, Value};
use spillway_cluster_state::{Expect, RecordKey, State};

use super::cluster::Cluster;
use super::command::command;
use super::limits;
use super::write::{Written, write};
use crate::call::AdminCall;
use crate::endpoint::Operation;
use crate::error::ApiError;
use crate::known_names::{known_names, may_be_a_slip, slip_within};
use crate::records;
use crate::reply::{Reply, json};
use crate::resource::Resource;

/// Number of times that a write is tried while others change the record.
const TRIES_MAX: usize = 4;

/// Fields of a region that orders and nodes set: a record that does not name them leaves them
/// unchanged. After a drain, an operator does not expect a new price to give the region work again.
const OF_ORDERS: [&str; 3] = ["country", "state", "weight_percent"];

/// A record as it is before a write.
struct RecordBefore {
    record: Map<String, Value>,
    version: Option<u64>,
    index: u64,
}

/// Writes a record. A field that the request does not name gets its default (`PUT`) or stays as it
/// is (`PATCH`).
pub(super) async fn put(cluster: &Cluster<'_>, call: &AdminCall) -> Result<Reply, ApiError> {
    let mut tries = 1;
    loop {
        let before = before(cluster, call).await?;
        let mut over = over(call, &before)?;
        if tries > 1 {
            // The request's name identifies the attempt that was overtaken.
            over.request = None;
        }
        if let Some(same) = unchanged(call, &over, &before) {
            return Ok(same);
        }
        let (about, order) = command(cluster, &over).await?;
        let done = write(cluster, &over, &about, order).await;
        // Another write came between, and the caller named no version, so try again over the new
        // one.
        let is_overtaken = done.as_ref().is_err_and(ApiError::is_conflict);
        if !is_overtaken || call.expect != Expect::Any || tries == TRIES_MAX {
            return done;
        }
        tries += 1;
    }
}

/// Returns the record as it is.
///
/// # Errors
/// Returns an error if the record would be new by a slip, or the state can't be read.
async fn before(cluster: &Cluster<'_>, call: &AdminCall) -> Result<RecordBefore, ApiError> {
    let resource = resource_of(call)?;
    let named: Map<String, Value> = call.json_or_default().unwrap_or_default();
    let look = |state: &State| {
        let key = records::key_of(state, resource, &call.path);
        let item = key.as_ref().and_then(|key| records::item(state, key)).unwrap_or_default();
        let within = || {
            let slip = slip_within(state, resource, &named, &item["record"]);
            let slip = slip.filter(|_| !call.query.creates)?;
            Some(ApiError::slip(slip.resource, &slip.name, Some(&slip.meant)))
        };
        let slip = slip(state, resource, call, key.as_ref(), &item).or_else(within);
        (item, slip, state.applied())
    };
    let seen = match cluster.read(call, look).await {
        Ok(read) => read.value,
        // Without a quorum, a dry run uses this node's state.
        Err(_) if call.query.is_dry_run => look(&cluster.control_plane.published()),
        Err(error) => return Err(error),
    };
    let (item, slip, index) = seen;
    if let Some(error) = slip {
        return Err(error);
    }
    let of_file = || limits::of_file(cluster.own_limits, call).unwrap_or_default();
    let record = match &item["record"] {
        Value::Null if resource == Resource::Limits => of_file(),
        record => record.clone(),
    };
    let record = record.as_object().cloned().unwrap_or_default();
    Ok(RecordBefore { record, version: item["version"].as_u64(), index })
}

fn resource_of(call: &AdminCall) -> Result<Resource, ApiError> {
    match call.endpoint.operation {
        Operation::Put(resource) | Operation::Patch(resource) => Ok(resource),
        operation => Err(ApiError::internal(format!("{operation:?} writes no record"))),
    }
}

/// Returns the refusal of a new record whose name is most likely a slip.
fn slip(
    state: &State,
    resource: Resource,
    call: &AdminCall,
    key: Option<&RecordKey>,
    item: &Value,
) -> Option<ApiError> {
    let is_new = item.is_null() && key.is_some();
    if !is_new || call.query.creates || call.expect != Expect::Any {
        return None;
    }
    let name = call.path.join("/");
    let known = known_names(state, resource);
    if known.contains(&name) {
        return None;
    }
    let meant = may_be_a_slip(resource, &name, &known)?;
    Some(ApiError::slip(resource, &name, meant.as_deref()))
}

/// Returns the request with the fields that it leaves as they are.
fn over(call: &AdminCall, before: &RecordBefore) -> Result<AdminCall, ApiError> {
    let mut over = call.clone();
    let kept: Map<String, Value> = match call.endpoint.operation {
        Operation::Patch(_) => before.record.clone(),
        Operation::Put(Resource::Regions) => {
            let fields = before.record.iter();
            let kept = fields.filter(|(name, _)| OF_ORDERS.contains(&name.as_str()));
            kept.map(|(name, value)| (name.clone(), value.clone())).collect()
        }
        _ => Map::new(),
    };
    let is_patch = matches!(call.endpoint.operation, Operation::Patch(_));
    if kept.is_empty() && !is_patch {
        return Ok(over);
    }
    let named: Map<String, Value> = call.json_or_default()?;
    let mut record = kept;
    // Requests are counted over one time, so one of the two takes the other's place.
    for (given, other) in
        [("requests_per_s", "requests_per_min"), ("requests_per_min", "requests_per_s")]
    {
        if named.get(given).is_some_and(Value::is_u64) && !named.contains_key(other) {
            record.remove(other);
        }
    }
    record.extend(named);
    over.body = Value::Object(record).to_string().into();
    // The fields that stay are those of this version. A named `PUT` has none: repeated, it would be
    // another request.
    let is_repeatable = is_patch || call.request.is_none();
    if matches!(call.expect, Expect::Any) && is_repeatable {
        match before.version {
            Some(version) => over.expect = Expect::Version(version),
            // Of two requests that make the record, one is made over the other.
            None if is_patch => over.expect = Expect::Absent,
            None => {}
        }
    }
    Ok(over)
}

/// Returns the answer to a `PATCH` that changes nothing. So a repeated request is no other request
/// under the same name, though the version that it is made over is another one by then.
fn unchanged(call: &AdminCall, over: &AdminCall, before: &RecordBefore) -> Option<Reply> {
    let is_patch = matches!(call.endpoint.operation, Operation::Patch(_));
    let is_same = || {
        let record: Option<Map<String, Value>> = serde_json::from_slice(&over.body).ok();
        record.is_some_and(|record| record == before.record)
    };
    let is_over = matches!(call.expect, Expect::Any);
    if !is_patch || call.query.is_dry_run || !is_over || before.version.is_none() || !is_same() {
        return None;
    }
    let (index, outcome) = (before.index, "unchanged".to_owned());
    Some(json(StatusCode::OK, &Written { index, outcome, version: None }))
}
