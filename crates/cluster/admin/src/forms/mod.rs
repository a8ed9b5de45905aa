//! JSON forms of records, apart from their form in the log.
//!
//! A *record* is the part that a client may write as a whole; a record that was read can be written
//! back. *Info* is the part that only the cluster writes. Hashes of secrets are in neither.

mod access;
mod amount;
mod items;
mod members;
mod replica;
mod rollout;
mod shares;
mod tokens;
mod traffic;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_cluster_state::ResidencyRule;
use spillway_types::NoCountry;

pub(crate) use access::{KeyInfo, KeyRecord, TenantRecord};
pub(crate) use amount::Amount;
pub(crate) use items::{SettingInfo, SettingRecord, setting_infos};
pub(crate) use members::{
    NodeInfo, NodeRecord, NodeRightRecord, RegionRecord, RemovedNodeInfo, RevokedRecord,
};
pub(crate) use replica::{HealthInfo, LeaseInfo, ReplicaInfo, ReplicaRecord};
pub(crate) use rollout::{RolloutInfo, SplitInfo};
pub(crate) use shares::LimitInfo;
pub(crate) use tokens::{
    JoinTokenRecord, KnownSecret, NewJoinToken, NewKey, Secret, TokenOriginInfo,
};
pub(crate) use traffic::{LimitRecord, ModelRecord, RouteRecord, SplitRecord};

/// A record in an answer.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Item<R, I = ()> {
    /// Name of the record in paths.
    pub(crate) key: String,
    /// Index of the entry that wrote the record last, for `If-Match`. Null for a default.
    pub(crate) version: Option<u64>,
    /// The part that a client may write.
    pub(crate) record: R,
    /// The part that only the cluster writes.
    pub(crate) info: I,
}

fn texts(names: &BTreeSet<impl ToString>) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

fn named<T: for<'a> From<&'a str> + Ord>(names: &BTreeSet<String>) -> BTreeSet<T> {
    names.iter().map(|name| T::from(name)).collect()
}

/// Returns the regions and countries of a rule as texts.
fn residency_names(rule: &ResidencyRule) -> (BTreeSet<String>, BTreeSet<String>) {
    (texts(&rule.regions), texts(&rule.countries))
}

fn residency_rule(
    regions: &BTreeSet<String>,
    countries: &BTreeSet<String>,
) -> Result<ResidencyRule, NoCountry> {
    let countries = countries.iter().map(|code| code.parse()).collect::<Result<_, _>>()?;
    Ok(ResidencyRule { regions: named(regions), countries })
}
