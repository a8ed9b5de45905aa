//! Forms of records about traffic: models, routes, splits, limits.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use spillway_cluster_state::{
    Arm, Limit, Model, Route, STICKY_MAX_AGE_S, Split, StickyArm, TokenPrice,
};
use spillway_rate_limit::{LimitKind, LimitTerms, RequestWindow};
use spillway_types::{NoCountry, Percent, UnknownSplitByError};

use super::rollout::RolloutRecord;
use super::{Amount, named, residency_names, residency_rule, texts};
use crate::patterns::{COUNTRY, MODEL, NAME, NAME_OR_NONE, PATH, SPLIT_BY, TOKEN};

/// A model's name: the model that it stands for, fallbacks, and the price of its tokens. The price of
/// the name `*` is that of all models that have none.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ModelRecord {
    /// The model that requests for this name are served with, if the name is an alias.
    #[schemars(regex(pattern = MODEL))]
    pub(crate) alias_of: Option<String>,
    /// Models to try instead, in this order.
    #[schemars(inner(regex(pattern = MODEL)))]
    pub(crate) fallbacks: Vec<String>,
    /// Price of a million prompt tokens; null, with the other prices, for that of all models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_per_million: Option<Amount>,
    /// Price of a million prompt tokens that a replica had in its cache; null for that of prompt
    /// tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cached_per_million: Option<Amount>,
    /// Price of a million generated tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) completion_per_million: Option<Amount>,
}

/// A set of requests and how they are served. Beside these fields it has any setting that a
/// `[[route]]` of a config file can have, by its name there, such as `slo_ms` or `session`.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
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
    /// The other settings.
    #[serde(flatten)]
    pub(crate) settings: BTreeMap<String, Value>,
}

/// A name whose requests are divided among models.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SplitRecord {
    /// Arms of the split. Their weights add up to 100.
    pub(crate) arms: Vec<ArmRecord>,
    /// Basis for choosing a request's arm: `random`, `user`, `header:NAME` or `cookie:NAME`. A
    /// record with neither this nor `sticky_cookie` takes both from the config file's split of its
    /// name, and chooses at random without one.
    #[serde(default)]
    #[schemars(regex(pattern = SPLIT_BY))]
    pub(crate) by: Option<String>,
    /// Cookie by which a client keeps the arm that was drawn for it.
    #[serde(default)]
    #[schemars(regex(pattern = TOKEN))]
    pub(crate) sticky_cookie: Option<String>,
    /// Time for which clients keep that cookie; 30 days by default.
    #[serde(default)]
    pub(crate) sticky_max_age_s: Option<NonZero<u32>>,
    /// Rollout of one of the arms, whose steps decide the shares instead of the weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rollout: Option<RolloutRecord>,
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
            prompt_per_million: amount(model.price.map(|price| price.prompt)),
            cached_per_million: amount(model.price.and_then(|price| price.cached)),
            completion_per_million: amount(model.price.map(|price| price.completion)),
        }
    }
}

fn amount(millionths: Option<u64>) -> Option<Amount> {
    millionths.map(Amount::of_millionths)
}

impl ModelRecord {
    /// Returns true if the prices are all there, or none is.
    pub(crate) fn is_priced_whole(&self) -> bool {
        let (prompt, completion) = (&self.prompt_per_million, &self.completion_per_million);
        prompt.is_some() == completion.is_some()
            && (prompt.is_some() || self.cached_per_million.is_none())
    }
}

impl From<ModelRecord> for Model {
    fn from(record: ModelRecord) -> Self {
        Self {
            alias_of: record.alias_of.map(Into::into),
            fallbacks: record.fallbacks.into_iter().map(Into::into).collect(),
            price: record.prompt_per_million.zip(record.completion_per_million).map(
                |(prompt, completion)| TokenPrice {
                    prompt: prompt.millionths,
                    cached: record.cached_per_million.map(|amount| amount.millionths),
                    completion: completion.millionths,
                },
            ),
        }
    }
}

impl From<&Route> for RouteRecord {
    fn from(route: &Route) -> Self {
        let Route { path_prefix, models, pool, policy, residency, settings } = route.clone();
        let (regions, countries) = residency_names(&residency);
        let settings = serde_json::from_str(&settings).unwrap_or_default();
        Self { path_prefix, models: texts(&models), pool, policy, regions, countries, settings }
    }
}

impl TryFrom<RouteRecord> for Route {
    type Error = NoCountry;

    fn try_from(record: RouteRecord) -> Result<Self, NoCountry> {
        let settings = record.settings_text();
        let RouteRecord { path_prefix, models, pool, policy, regions, countries, .. } = record;
        let residency = residency_rule(&regions, &countries)?;
        Ok(Self { path_prefix, models: named(&models), pool, policy, residency, settings })
    }
}

impl RouteRecord {
    /// Returns the settings in the form that the log has. A setting of null counts as absent.
    fn settings_text(&self) -> String {
        let set: BTreeMap<_, _> = self.settings.iter().filter(|(_, it)| !it.is_null()).collect();
        if set.is_empty() {
            return String::new();
        }
        // A map of names and values can always be written.
        serde_json::to_string(&set).unwrap_or_default()
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
        let sticky = split.sticky.as_ref();
        Self {
            arms: arms.collect(),
            by: split.by.as_ref().map(ToString::to_string),
            sticky_cookie: sticky.map(|sticky| sticky.cookie.clone()),
            sticky_max_age_s: sticky.map(|sticky| sticky.max_age_s),
            rollout: split.rollout.as_ref().map(|rollout| RolloutRecord::from(&rollout.plan)),
        }
    }
}

impl TryFrom<SplitRecord> for Split {
    type Error = UnknownSplitByError;

    fn try_from(record: SplitRecord) -> Result<Self, UnknownSplitByError> {
        let max_age_s = record.sticky_max_age_s.unwrap_or(STICKY_MAX_AGE_S);
        let sticky = record.sticky_cookie.map(|cookie| StickyArm { cookie, max_age_s });
        let by = record.by.map(|by| by.parse()).transpose()?;
        let arms = record.arms.into_iter().map(|arm| Arm {
            name: arm.name.into(),
            model: arm.model.into(),
            version: arm.version.map(Into::into),
            weight_permille: arm.weight_percent.permille(),
        });
        let rollout = record.rollout.map(Into::into);
        Ok(Self { arms: arms.collect(), by, sticky, rollout })
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
