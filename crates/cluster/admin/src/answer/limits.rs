//! Limits of the cluster, and those of the answering node's config file.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use spillway_rate_limit::{LimitTerms, LimitUsage, OwnLimits};

use super::freshness::Freshness;
use super::read::{Many, One, not_found};
use crate::call::AdminCall;
use crate::error::ApiError;
use crate::forms::{Item, LimitInfo, LimitRecord};
use crate::query::PAGE_MAX;
use crate::records;
use crate::reply::{Reply, json};
use crate::resource::Resource;

/// A limit in an answer.
pub(crate) type LimitItem = Item<LimitRecord, Option<LimitInfo>>;

/// Some limits of the cluster, and those of the answering node's config file.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Limits<T> {
    /// Limits of the cluster.
    #[serde(flatten)]
    pub(crate) agreed: Many<T>,
    /// Limits of the answering node's config file, at the end of the last page: the first thousand
    /// by name. They can't be changed here.
    pub(crate) file: Vec<LimitItem>,
}

/// Lists the limits of the config file after those of the cluster, `agreed`.
pub(super) fn list<T: Serialize>(own: Option<&dyn OwnLimits>, agreed: Many<T>) -> Reply {
    // Only the last page has them, so that a reader of all pages sees them once.
    let is_last = agreed.next.is_none();
    let own = own.filter(|_| is_last).map(|own| own.own_limits(PAGE_MAX)).unwrap_or_default();
    let file = own.iter().map(|(terms, usage)| item(terms, usage.as_ref())).collect();
    json(StatusCode::OK, &Limits { agreed, file })
}

/// Shows one limit of the config file.
///
/// # Errors
/// Returns an error if the config file has no limit of that name.
pub(super) fn show(
    own: Option<&dyn OwnLimits>,
    call: &AdminCall,
    freshness: Freshness,
) -> Result<Reply, ApiError> {
    let item = found(own, call).ok_or_else(|| not_found(Resource::Limits, &call.path))?;
    Ok(json(StatusCode::OK, &One { freshness, item }))
}

/// Returns the record of a limit of the config file; `None` if the file has none of that name.
pub(super) fn of_file(own: Option<&dyn OwnLimits>, call: &AdminCall) -> Option<Value> {
    found(own, call).map(|item| records::json(&item.record))
}

fn found(own: Option<&dyn OwnLimits>, call: &AdminCall) -> Option<LimitItem> {
    let name = call.path.first().map(String::as_str).unwrap_or_default();
    // All of them, because the requested one may come after the first thousand.
    let own = own?.own_limits(usize::MAX);
    let found = own.iter().find(|(terms, _)| terms.scope.label() == name);
    found.map(|(terms, usage)| item(terms, usage.as_ref()))
}

/// Answers for a node that is in no cluster.
pub(crate) fn alone(
    own: &dyn OwnLimits,
    call: &AdminCall,
    is_list: bool,
) -> Result<Reply, ApiError> {
    // A config file is never out of date, so the answer counts as linearizable.
    let consistency = "linearizable".to_owned();
    let freshness = Freshness { index: 0, age_ms: Some(0), consistency };
    if is_list {
        let agreed = Many::<LimitItem> { freshness, items: Vec::new(), next: None };
        return Ok(list(Some(own), agreed));
    }
    show(Some(own), call, freshness)
}

fn item(terms: &LimitTerms, usage: Option<&LimitUsage>) -> LimitItem {
    Item {
        key: terms.scope.label(),
        version: None,
        record: LimitRecord::from(terms),
        info: Some(LimitInfo::of_file(terms.requests, usage)),
    }
}
