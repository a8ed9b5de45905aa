//! Forms of tenants and keys.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_cluster_state::{Key, KeyRole, Tenant, TenantTerms};
use spillway_types::NoCountry;

use super::{Amount, named, residency_names, residency_rule, texts};
use crate::patterns::{COUNTRY, MODEL, NAME, TEXT};

/// The owner of requests, who is also charged for them.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TenantRecord {
    /// Title of the tenant, for people.
    #[schemars(regex(pattern = TEXT))]
    pub(crate) title: String,
    /// True if all keys of the tenant are refused.
    pub(crate) is_suspended: bool,
    /// Regions that may serve the tenant's requests; empty for all.
    #[schemars(inner(regex(pattern = NAME)))]
    pub(crate) regions: BTreeSet<String>,
    /// Countries that serving regions have to lie in, as ISO 3166 codes of two capital letters;
    /// empty for all.
    #[schemars(inner(regex(pattern = COUNTRY)))]
    pub(crate) countries: BTreeSet<String>,
    /// True if the tenant's prompts never share a cache with equal prompts of other tenants.
    pub(crate) isolate_prompts: bool,
    /// Money that the tenant's requests may cost in a day of UTC, at all nodes together; null for
    /// any.
    pub(crate) budget_per_day: Option<Amount>,
    /// Money that the tenant's requests may cost in a month of UTC; null for any.
    pub(crate) budget_per_month: Option<Amount>,
}

/// Rights of a key.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// Requests to models.
    #[default]
    Client,
    /// Reading from the admin API.
    Read,
    /// Draining, setting weights and the like.
    Operate,
    /// Everything.
    Admin,
}

/// Rights and terms of a key.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct KeyRecord {
    /// Role of the key.
    pub(crate) role: Role,
    /// Tenant of the key's requests; a client's key needs one.
    #[schemars(regex(pattern = NAME))]
    pub(crate) tenant: Option<String>,
    /// Models that the key may ask for; empty for all.
    #[schemars(inner(regex(pattern = MODEL)))]
    pub(crate) models: BTreeSet<String>,
    /// Regions that may serve the key's requests; empty for all.
    #[schemars(inner(regex(pattern = NAME)))]
    pub(crate) regions: BTreeSet<String>,
    /// Priority class of the key's requests: 0 is served first.
    pub(crate) priority: u8,
    /// Time when the key expires, in milliseconds since 1970.
    pub(crate) expires_ms: Option<u64>,
}

/// State of a key.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct KeyInfo {
    /// True if the key was revoked, for good.
    pub(crate) is_revoked: bool,
}

impl From<&Tenant> for TenantRecord {
    fn from(tenant: &Tenant) -> Self {
        let (regions, countries) = residency_names(&tenant.residency);
        let TenantTerms { isolates_prompts, budget_per_day, budget_per_month } = tenant.terms;
        Self {
            title: tenant.title.clone(),
            is_suspended: tenant.is_suspended,
            regions,
            countries,
            isolate_prompts: isolates_prompts,
            budget_per_day: budget_per_day.map(Amount::of_millionths),
            budget_per_month: budget_per_month.map(Amount::of_millionths),
        }
    }
}

impl TryFrom<TenantRecord> for Tenant {
    type Error = NoCountry;

    fn try_from(record: TenantRecord) -> Result<Self, NoCountry> {
        let TenantRecord {
            title,
            is_suspended,
            regions,
            countries,
            isolate_prompts,
            budget_per_day,
            budget_per_month,
        } = record;
        let terms = TenantTerms {
            isolates_prompts: isolate_prompts,
            budget_per_day: budget_per_day.map(|amount| amount.millionths),
            budget_per_month: budget_per_month.map(|amount| amount.millionths),
        };
        Ok(Self { title, is_suspended, residency: residency_rule(&regions, &countries)?, terms })
    }
}

impl From<KeyRole> for Role {
    fn from(role: KeyRole) -> Self {
        match role {
            KeyRole::Client => Self::Client,
            KeyRole::Read => Self::Read,
            KeyRole::Operate => Self::Operate,
            KeyRole::Admin => Self::Admin,
        }
    }
}

impl From<Role> for KeyRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Client => Self::Client,
            Role::Read => Self::Read,
            Role::Operate => Self::Operate,
            Role::Admin => Self::Admin,
        }
    }
}

impl From<&Key> for KeyRecord {
    fn from(key: &Key) -> Self {
        Self {
            role: key.role.into(),
            tenant: key.tenant.as_ref().map(ToString::to_string),
            models: texts(&key.models),
            regions: texts(&key.regions),
            priority: key.priority,
            expires_ms: key.expires_ms,
        }
    }
}

impl KeyRecord {
    /// Returns the key with this record, and with the secret of `key`.
    pub(crate) fn over(self, key: &Key) -> Key {
        Key {
            role: self.role.into(),
            salt: key.salt,
            hash: key.hash.clone(),
            tenant: self.tenant.map(|name| name.as_str().into()),
            models: named(&self.models),
            regions: named(&self.regions),
            priority: self.priority,
            expires_ms: self.expires_ms,
            is_revoked: key.is_revoked,
        }
    }
}
