//! The JSON forms of records: what is shown and sent, apart from what stands in the log.
//!
//! A *record* is what a client may write as a whole; what it reads there it can write back. *Info*
//! is what the cluster says about it. Hashes are in neither.

mod access;
mod items;
mod members;
mod replica;
mod shares;
mod tokens;
mod traffic;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_control::ResidencyRule;
use spillway_types::NoCountry;

pub(crate) use access::{KeyInfo, KeyRecord, TenantRecord};
pub(crate) use items::{SettingInfo, SettingRecord, setting_infos};
pub(crate) use members::{
    NodeInfo, NodeRecord, NodeRightRecord, RegionRecord, RemovedNodeInfo, RevokedRecord,
};
pub(crate) use replica::{HealthInfo, LeaseInfo, ReplicaInfo, ReplicaRecord};
pub(crate) use shares::LimitInfo;
pub(crate) use tokens::{JoinTokenRecord, NewJoinToken, NewKey, Secret, TokenOriginInfo};
pub(crate) use traffic::{LimitRecord, ModelRecord, RouteRecord, SplitRecord};

/// One record as it is shown.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Item<R, I = ()> {
    /// Names it in paths.
    pub(crate) key: String,
    /// Index of the entry that wrote it last: for `If-Match`. None for a default.
    pub(crate) version: Option<u64>,
    /// What may be written.
    pub(crate) record: R,
    /// What the cluster says about it.
    pub(crate) info: I,
}

fn texts(names: &BTreeSet<impl ToString>) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

fn named<T: for<'a> From<&'a str> + Ord>(names: &BTreeSet<String>) -> BTreeSet<T> {
    names.iter().map(|name| T::from(name)).collect()
}

/// Regions and countries as they are shown.
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
