//! Tenants.

use serde::{Deserialize, Serialize};

use crate::ResidencyRule;

/// A tenant, which owns keys and the requests made with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "TenantLayout", into = "TenantLayout")]
pub struct Tenant {
    /// Name for people.
    pub title: String,
    /// True if requests with the tenant's keys are refused.
    pub is_suspended: bool,
    /// Places where the tenant's requests may be served.
    pub residency: ResidencyRule,
    /// Terms that a `[[tenant]]` of a config file can have, too.
    pub terms: TenantTerms,
}

/// Terms of a tenant, from wire version 2 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantTerms {
    /// True if the tenant's prompts never share a cache with equal prompts of other tenants.
    pub isolates_prompts: bool,
    /// Money that the tenant's requests may cost in a day of UTC, in millionths; None for any.
    pub budget_per_day: Option<u64>,
    /// Money that they may cost in a month of UTC, in millionths; None for any.
    pub budget_per_month: Option<u64>,
}

impl Tenant {
    /// Returns the first wire version that has such a record.
    pub(crate) fn since(&self) -> u16 {
        if self.terms == TenantTerms::default() { 1 } else { 2 }
    }
}

/// Layout of a tenant on the wire.
#[derive(Serialize, Deserialize)]
struct TenantLayout {
    title: String,
    rest: RestLayout,
}

/// A tenant without terms has the bytes of wire version 1, where a boolean stood in the place of the
/// variant's number. Nodes of both versions have equal digests.
#[derive(Serialize, Deserialize)]
enum RestLayout {
    Active(ResidencyRule),
    Suspended(ResidencyRule),
    WithTerms { is_suspended: bool, residency: ResidencyRule, terms: TenantTerms },
}

impl From<TenantLayout> for Tenant {
    fn from(TenantLayout { title, rest }: TenantLayout) -> Self {
        let (is_suspended, residency, terms) = match rest {
            RestLayout::Active(residency) => (false, residency, TenantTerms::default()),
            RestLayout::Suspended(residency) => (true, residency, TenantTerms::default()),
            RestLayout::WithTerms { is_suspended, residency, terms } => {
                (is_suspended, residency, terms)
            }
        };
        Self { title, is_suspended, residency, terms }
    }
}

impl From<Tenant> for TenantLayout {
    fn from(tenant: Tenant) -> Self {
        let is_first = tenant.since() == 1;
        let Tenant { title, is_suspended, residency, terms } = tenant;
        let rest = match (is_first, is_suspended) {
            (true, false) => RestLayout::Active(residency),
            (true, true) => RestLayout::Suspended(residency),
            (false, _) => RestLayout::WithTerms { is_suspended, residency, terms },
        };
        Self { title, rest }
    }
}
