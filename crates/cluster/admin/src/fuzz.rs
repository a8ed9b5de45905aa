//! Fuzz targets of requests and files that operators and programs write for the admin API.

use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use spillway_cluster_state::{Limit, Model, Region, ReplicaSpec, Route, Split, Tenant};

use crate::answer::fuzz::explain_order;
use crate::call::segments;
use crate::endpoint::find;
use crate::forms::{
    KeyRecord, LimitRecord, ModelRecord, NewJoinToken, NewKey, NodeRecord, RegionRecord,
    ReplicaRecord, RouteRecord, SettingRecord, SplitRecord, TenantRecord,
};
use crate::parse_token_file;
use crate::query::{PAGE_MAX, Query};

/// Name of a target's folder of inputs, and the function that runs one input.
pub type Target = (&'static str, fn(&[u8]));

/// Fuzz targets of this crate.
pub const TARGETS: &[Target] =
    &[("admin_query", query), ("admin_body", body), ("admin_token_file", token_file)];

/// Checks that no page is longer than allowed, and that no unknown parameter passes.
fn query(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (path, query) =
        text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
    if let Ok(parts) = segments(path) {
        assert!(parts.iter().map(String::len).sum::<usize>() <= path.len());
        for method in [Method::GET, Method::PUT, Method::PATCH, Method::POST, Method::DELETE] {
            let _found = find(&method, &parts);
        }
    }
    let known = ["consistency", "dry_run", "create", "limit", "after", "trail", "top", "scope"];
    if let Ok(query) = Query::parse(query, &known) {
        assert!((1..=PAGE_MAX).contains(&query.limit) && query.top <= PAGE_MAX);
    }
    let has_one = query.is_some_and(|query| query.split('&').any(|pair| !pair.is_empty()));
    assert_eq!(Query::parse(query, &[]).is_err(), has_one, "a parameter that is not known");
}

/// Checks that a body that can be read as a record is written as an equal record.
fn body(input: &[u8]) {
    let _node = record::<NodeRecord>(input);
    drop(record::<SettingRecord>(input));
    drop(record::<KeyRecord>(input));
    drop(record::<NewKey>(input));
    drop(record::<NewJoinToken>(input));
    drop(record::<RegionRecord>(input).map(Region::from));
    drop(record::<ReplicaRecord>(input).map(ReplicaSpec::from));
    drop(record::<ModelRecord>(input).map(Model::from));
    drop(record::<SplitRecord>(input).map(Split::try_from));
    drop(record::<LimitRecord>(input).map(Limit::from));
    drop(record::<RouteRecord>(input).map(Route::try_from));
    drop(record::<TenantRecord>(input).map(Tenant::try_from));
    explain_order(input);
}

fn record<T: Serialize + DeserializeOwned>(input: &[u8]) -> Option<T> {
    let read: T = serde_json::from_slice(input).ok()?;
    let written = serde_json::to_string(&read).ok()?;
    let again = serde_json::from_str::<T>(&written).ok();
    let again = again.and_then(|again| serde_json::to_string(&again).ok());
    assert_eq!(again.as_deref(), Some(&*written), "a record changed when it was written");
    Some(read)
}

/// Checks that a fault names the wrong line, and has no part of a token in it.
fn token_file(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match parse_token_file(text) {
        Ok(tokens) => assert!(tokens.len() <= text.lines().count()),
        Err(fault) => {
            assert!((1..=text.lines().count()).contains(&fault.line));
            let last = text.lines().nth(fault.line - 1).and_then(|line| line.split(' ').nth(2));
            let secret = last.filter(|token| token.len() >= 24).unwrap_or("\0");
            assert!(!fault.to_string().contains(secret), "a token is shown");
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn targets_hold_on_kept_inputs_and_on_mutations_of_them() {
        spillway_fuzz::check(super::TARGETS);
    }
}
