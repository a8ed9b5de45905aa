//! Headers that say whose a request is: a trusted proxy's word, and anybody else's lie.

use std::collections::BTreeSet;

use http::{HeaderMap, HeaderName};
use spillway_types::{Allowed, Country, ModelName, RegionName, Residency, TenantName};

use super::grant::Grant;
use super::table::KeyTable;

static TENANT: HeaderName = HeaderName::from_static("x-spillway-tenant");
static PRIORITY: HeaderName = HeaderName::from_static("x-spillway-priority");
static MODELS: HeaderName = HeaderName::from_static("x-spillway-models");
static REGIONS: HeaderName = HeaderName::from_static("x-spillway-regions");
static COUNTRIES: HeaderName = HeaderName::from_static("x-spillway-countries");

/// Other names under which replicas may take such claims for true.
static USUAL_CLAIMS: [HeaderName; 5] = [
    HeaderName::from_static("x-tenant"),
    HeaderName::from_static("x-tenant-id"),
    HeaderName::from_static("x-priority"),
    HeaderName::from_static("x-region"),
    HeaderName::from_static("x-request-priority"),
];
/// All headers of this beginning are the gateway's own.
const OWN: &str = "x-spillway-";

/// Whether a header claims what only a credential may say.
pub(crate) fn is_claim(name: &HeaderName) -> bool {
    name.as_str().starts_with(OWN) || USUAL_CLAIMS.contains(name)
}

/// What a trusted proxy says of a request; `None` if it does not say whose it is, or says something
/// that can't be read.
pub(super) fn claimed(headers: &HeaderMap, table: &KeyTable) -> Option<Grant> {
    let text = |name| match headers.get(name) {
        None => Some(None),
        Some(value) => value.to_str().ok().map(|text| Some(text.trim())),
    };
    let tenant = text(&TENANT)?.filter(|tenant| !tenant.is_empty())?;
    let priority = text(&PRIORITY)?.map_or(Some(0), |priority| priority.parse().ok())?;
    let models = text(&MODELS)?.unwrap_or_default();
    let regions = text(&REGIONS)?.unwrap_or_default();
    let countries = one_by_one(text(&COUNTRIES)?.unwrap_or_default()).map(|code| code.parse().ok());
    let countries: Option<Vec<Country>> = countries.collect();
    let said = Residency::new(listed::<RegionName>(regions), countries?);
    let terms = table.terms(tenant);
    Some(Grant {
        key: None,
        tenant: Some(TenantName::from(tenant)),
        models: Allowed::all_if_empty(listed::<ModelName>(models)),
        residency: said.and(&terms.residency),
        priority,
        is_isolated: terms.is_isolated,
        counts: Some(table.counts(Some(tenant))),
    })
}

fn listed<'t, T: Ord + From<&'t str>>(text: &'t str) -> BTreeSet<T> {
    one_by_one(text).map(T::from).collect()
}

fn one_by_one(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|one| !one.is_empty())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn grant(pairs: &[(&'static str, &'static str)]) -> Option<Grant> {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        claimed(&pairs.collect(), &KeyTable::default())
    }

    #[test]
    fn a_proxy_s_word_is_taken() {
        let grant = grant(&[
            ("x-spillway-tenant", "acme"),
            ("x-spillway-priority", "2"),
            ("x-spillway-models", "tiny, huge"),
            ("x-spillway-regions", "eu"),
            ("x-spillway-countries", "DE, FR"),
        ]);
        let grant = grant.expect("a grant");
        assert_eq!(grant.tenant.as_ref().map(TenantName::as_str), Some("acme"));
        assert_eq!(grant.priority, 2);
        assert!(grant.allows(&"huge".into()) && !grant.allows(&"other".into()));
        let allows = |region, code: &str| grant.residency.allows(region, code.parse().ok());
        assert!(allows("eu", "DE") && allows("eu", "FR") && !allows("us", "DE"));
        assert!(!allows("eu", "US") && !allows("eu", ""));
    }

    #[test]
    fn without_a_tenant_or_with_nonsense_nothing_is_said() {
        assert!(grant(&[]).is_none());
        assert!(grant(&[("x-spillway-tenant", " ")]).is_none());
        let nonsense = [("x-spillway-tenant", "a"), ("x-spillway-priority", "high")];
        assert!(grant(&nonsense).is_none());
        assert!(grant(&nonsense[..1]).is_some_and(|grant| grant.models.is_all()));
        let nowhere = [("x-spillway-tenant", "a"), ("x-spillway-countries", "Germany")];
        assert!(grant(&nowhere).is_none(), "a rule that can't be read allows nothing");
    }

    #[test]
    fn claims_are_known_by_their_names() {
        for name in ["x-spillway-tenant", "x-spillway-anything", "x-tenant-id", "x-priority"] {
            assert!(is_claim(&HeaderName::from_static(name)), "{name}");
        }
        assert!(!is_claim(&HeaderName::from_static("x-request-id")));
    }
}
