//! Forms of records about traffic: models, routes, splits, limits.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_cluster_state::{Arm, Limit, Model, Route, Split};
use spillway_quota::{LimitKind, LimitTerms, RequestWindow};
use spillway_types::{NoCountry, Percent};

use super::{named, residency_names, residency_rule, texts};
use crate::patterns::{COUNTRY, MODEL, NAME, NAME_OR_NONE, PATH};

/// A model's name: the model that it stands for, and fallbacks.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ModelRecord {
    /// The model that requests for this name are served with, if the name is an alias.
    #[schemars(regex(pattern = MODEL))]
    pub(crate) alias_of: Option<String>,
    /// Models to try instead, in this order.
    #[schemars(inner(regex(pattern = MODEL)))]
    pub(crate) fallbacks: Vec<String>,
}

/// A set of requests and how they are served.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RouteRecord {
    /// Serves every path below this one; without it, the built-in endpoints.
    #[schemars(regex(pattern = PATH))]
    pub(crate) path_prefix: Option<String>,
    /// Serves only these models; empty serves all.
    #[schemars(inner(regex(pattern = MODEL)))]
    pub(crate) models: BTreeSet<String>,
    /// Uses only replicas of this pool; empty uses all.
    #[schemars(regex(pattern = NAME_OR_NONE))]
    pub(crate) pool: String,
    /// Policy that chooses a replica, by its name in the config file; empty for the default.
    #[schemars(regex(pattern = NAME_OR_NONE))]
    pub(crate) policy: String,
    /// Regions that may serve the route's requests; empty for all.
    #[schemars(inner(regex(pattern = NAME)))]
    pub(crate) regions: BTreeSet<String>,
    /// Countries that serving regions have to lie in, as ISO 3166 codes of two capital letters;
    /// empty for all.
    #[schemars(inner(regex(pattern = COUNTRY)))]
    pub(crate) countries: BTreeSet<String>,
}

/// A name whose requests are divided among models.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SplitRecord {
    /// Arms of the split. Their weights add up to 100.
    pub(crate) arms: Vec<ArmRecord>,
}

/// An arm of a split.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArmRecord {
    /// Name of the arm, unique in the split.
    #[schemars(regex(pattern = NAME))]
    pub(crate) name: String,
    /// The model that serves the arm.
    #[schemars(regex(pattern = MODEL))]
    pub(crate) model: String,
    /// Version of the model; null for any.
    #[serde(default)]
    #[schemars(regex(pattern = NAME))]
    pub(crate) version: Option<String>,
    /// Share of the requests, in percent with one decimal at most.
    #[schemars(with = "f64", range(min = 0, max = 100))]
    pub(crate) weight_percent: Percent,
}

/// Limits on the use of all regions together.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitRecord {
    /// Requests per second; not beside `requests_per_min`.
    pub(crate) requests_per_s: Option<u32>,
    /// Requests per minute; not beside `requests_per_s`.
    pub(crate) requests_per_min: Option<u32>,
    /// Tokens per minute.
    pub(crate) tokens_per_min: Option<u64>,
    /// Requests at a time.
    pub(crate) concurrency: Option<u32>,
    /// Floor of each region, a share that it may always use, in percent with one decimal at most.
    #[schemars(with = "BTreeMap<String, f64>", extend("propertyNames" = { "pattern": NAME }))]
    pub(crate) floors_percent: BTreeMap<String, Percent>,
}

impl From<&Model> for ModelRecord {
    fn from(model: &Model) -> Self {
        Self {
            alias_of: model.alias_of.as_ref().map(ToString::to_string),
            fallbacks: model.fallbacks.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<ModelRecord> for Model {
    fn from(record: ModelRecord) -> Self {
        Self {
            alias_of: record.alias_of.map(Into::into),
            fallbacks: record.fallbacks.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<&Route> for RouteRecord {
    fn from(route: &Route) -> Self {
        let Route { path_prefix, models, pool, policy, residency } = route.clone();
        let (regions, countries) = residency_names(&residency);
        Self { path_prefix, models: texts(&models), pool, policy, regions, countries }
    }
}

impl TryFrom<RouteRecord> for Route {
    type Error = NoCountry;

    fn try_from(record: RouteRecord) -> Result<Self, NoCountry> {
        let RouteRecord { path_prefix, models, pool, policy, regions, countries } = record;
        let residency = residency_rule(&regions, &countries)?;
        Ok(Self { path_prefix, models: named(&models), pool, policy, residency })
    }
}

impl From<&Split> for SplitRecord {
    fn from(split: &Split) -> Self {
        let arms = split.arms.iter().map(|arm| ArmRecord {
            name: arm.name.to_string(),
            model: arm.model.to_string(),
            version: arm.version.as_ref().map(ToString::to_string),
            weight_percent: Percent::of_permille(arm.weight_permille),
        });
        Self { arms: arms.collect() }
    }
}

impl From<SplitRecord> for Split {
    fn from(record: SplitRecord) -> Self {
        let arms = record.arms.into_iter().map(|arm| Arm {
            name: arm.name.into(),
            model: arm.model.into(),
            version: arm.version.map(Into::into),
            weight_permille: arm.weight_percent.permille(),
        });
        Self { arms: arms.collect() }
    }
}

impl From<&Limit> for LimitRecord {
    fn from(limit: &Limit) -> Self {
        let floors = limit.floors_permille.iter();
        Self {
            requests_per_s: limit.requests_per_s,
            requests_per_min: limit.requests_per_min,
            tokens_per_min: limit.tokens_per_min,
            concurrency: limit.concurrency,
            floors_percent: floors
                .map(|(name, share)| (name.to_string(), Percent::of_permille(*share)))
                .collect(),
        }
    }
}

impl From<&LimitTerms> for LimitRecord {
    fn from(terms: &LimitTerms) -> Self {
        let count = |kind: LimitKind| terms.whole[kind as usize];
        let small = |kind| count(kind).map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let requests = |window| small(LimitKind::RequestRate).filter(|_| terms.requests == window);
        Self {
            requests_per_s: requests(RequestWindow::Second),
            requests_per_min: requests(RequestWindow::Minute),
            tokens_per_min: count(LimitKind::TokenRate),
            concurrency: small(LimitKind::Concurrency),
            floors_percent: BTreeMap::new(),
        }
    }
}

impl From<LimitRecord> for Limit {
    fn from(record: LimitRecord) -> Self {
        let floors = record.floors_percent.into_iter();
        Self {
            requests_per_s: record.requests_per_s,
            requests_per_min: record.requests_per_min,
            tokens_per_min: record.tokens_per_min,
            concurrency: record.concurrency,
            floors_permille: floors.map(|(name, share)| (name.into(), share.permille())).collect(),
        }
    }
}
