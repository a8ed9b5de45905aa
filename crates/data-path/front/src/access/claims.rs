//! Headers that claim an identity: believed from a trusted proxy, a forgery from any other client.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use spillway_protocol::{ErrorKind, GatewayError};
use spillway_types::{Allowed, Country, ModelName, RegionName, Residency, TenantName};

use super::grant::Grant;
use super::table::KeyTable;

/// Header by which a trusted proxy names the tenant.
pub static TENANT_CLAIM: HeaderName = HeaderName::from_static("x-spillway-tenant");
static PRIORITY: HeaderName = HeaderName::from_static("x-spillway-priority");
static MODELS: HeaderName = HeaderName::from_static("x-spillway-models");
static REGIONS: HeaderName = HeaderName::from_static("x-spillway-regions");
static COUNTRIES: HeaderName = HeaderName::from_static("x-spillway-countries");

/// Other header names that replicas may take for such claims.
static USUAL_CLAIMS: [HeaderName; 5] = [
    HeaderName::from_static("x-tenant"),
    HeaderName::from_static("x-tenant-id"),
    HeaderName::from_static("x-priority"),
    HeaderName::from_static("x-region"),
    HeaderName::from_static("x-request-priority"),
];
/// Prefix of all headers that belong to the gateway.
const OWN: &str = "x-spillway-";
/// Priority class that is served last.
const PRIORITY_MAX: u8 = 3;
/// Longest name of a tenant, in bytes.
const TENANT_BYTES_MAX: usize = 256;

/// Returns true if a header claims an identity, which only a credential may do. Counts an
/// underscore as a hyphen, since some servers do.
pub fn is_claim(name: &HeaderName) -> bool {
    let is_usual = |name: &str| USUAL_CLAIMS.iter().any(|claim| claim == name);
    is_own(name)
        || USUAL_CLAIMS.contains(name)
        || (name.as_str().contains('_') && {
            let name = name.as_str().replace('_', "-");
            name.starts_with(OWN) || is_usual(&name)
        })
}

/// Returns true if the header belongs to the gateway: its name begins with `x-spillway-`.
pub fn is_own(name: &HeaderName) -> bool {
    name.as_str().starts_with(OWN)
}

/// Returns the grant that a trusted proxy's headers claim; `None` if they name no tenant. A list
/// that is present but empty allows nothing.
///
/// # Errors
/// Returns an error if a claim is repeated or malformed.
pub(super) fn claimed(
    headers: &HeaderMap,
    table: &KeyTable,
) -> Result<Option<Grant>, GatewayError> {
    check_claims(headers)?;
    let text = |name: &HeaderName| match headers.get(name) {
        None => Ok(None),
        Some(value) => value.to_str().map(|text| Some(text.trim())).map_err(|_| unreadable(name)),
    };
    let Some(tenant) = text(&TENANT_CLAIM)?.filter(|tenant| !tenant.is_empty()) else {
        return Ok(None);
    };
    // A proxy that finds a header twice may have joined both into one list.
    if tenant.contains(',') || tenant.len() > TENANT_BYTES_MAX {
        return Err(unreadable(&TENANT_CLAIM));
    }
    let priority = text(&PRIORITY)?.map_or(Ok(0), |priority| {
        let class = priority.parse().ok().filter(|class| *class <= PRIORITY_MAX);
        class.ok_or_else(|| {
            let message =
                format!("the header {PRIORITY} must be a number from 0 to {PRIORITY_MAX}");
            GatewayError::new(ErrorKind::BadRequest, message)
        })
    })?;
    let countries = text(&COUNTRIES)?.map(|countries| {
        let codes = one_by_one(countries).map(str::parse::<Country>);
        codes.collect::<Result<BTreeSet<_>, _>>().map_err(|_| unreadable(&COUNTRIES))
    });
    let said = Residency {
        regions: allowed(text(&REGIONS)?.map(listed::<RegionName>)),
        countries: allowed(countries.transpose()?),
    };
    let terms = table.terms(tenant);
    Ok(Some(Grant {
        key: None,
        tenant: Some(TenantName::from(tenant)),
        models: allowed(text(&MODELS)?.map(listed::<ModelName>)),
        // A proxy may narrow the tenant's own rules, but not widen them.
        residency: said.and(&terms.residency),
        client: None,
        priority,
        is_isolated: terms.is_isolated,
        counts: Some(table.counts(Some(tenant))),
    }))
}

/// Refuses repeated claims, since one of them may be the client's, and unknown headers of the
/// gateway's prefix, since a mistyped one would allow everything.
fn check_claims(headers: &HeaderMap) -> Result<(), GatewayError> {
    let known = [&TENANT_CLAIM, &PRIORITY, &MODELS, &REGIONS, &COUNTRIES];
    for name in headers.keys().filter(|name| is_claim(name)) {
        if headers.get_all(name).iter().nth(1).is_some() {
            let message = format!("the header {name} must be said once");
            return Err(GatewayError::new(ErrorKind::BadRequest, message));
        }
        if is_own(name) && !known.contains(&name) {
            // Cut, since the client chose how long the name is.
            let message = format!("the header {name:.64} is not known here");
            return Err(GatewayError::new(ErrorKind::BadRequest, message));
        }
    }
    Ok(())
}

fn unreadable(name: &HeaderName) -> GatewayError {
    GatewayError::new(ErrorKind::BadRequest, format!("the header {name} can't be read"))
}

/// Returns the set as a restriction; `None` allows everything.
fn allowed<T: Ord>(said: Option<BTreeSet<T>>) -> Allowed<T> {
    said.map_or(Allowed::All, |set| Allowed::Only(Arc::new(set)))
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
    use crate::access::TenantTerms;

    type Pairs<'p> = &'p [(&'static str, &'static str)];

    fn grant(pairs: Pairs<'_>) -> Option<Grant> {
        try_grant(pairs).unwrap_or_else(|error| panic!("{pairs:?}: {error}"))
    }

    fn try_grant(pairs: Pairs<'_>) -> Result<Option<Grant>, GatewayError> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        claimed(&headers, &KeyTable::default())
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
        let allows = |region, code: &str| grant.residency.may_serve(region, code.parse().ok());
        assert!(allows("eu", "DE") && allows("eu", "FR") && !allows("us", "DE"));
        assert!(!allows("eu", "US") && !allows("eu", ""));
    }

    #[test]
    fn a_proxy_may_narrow_where_a_tenant_is_served_and_not_widen_it() {
        let residency = Residency::new(["eu".into()], []);
        let terms = TenantTerms { residency, ..TenantTerms::default() };
        let table = KeyTable::new([], [("acme".into(), terms)], None);
        for (regions, in_eu) in [("eu, us", true), ("us", false)] {
            let mut headers = HeaderMap::new();
            headers.insert(TENANT_CLAIM.clone(), HeaderValue::from_static("acme"));
            headers.insert(REGIONS.clone(), HeaderValue::from_static(regions));
            let grant = claimed(&headers, &table).unwrap().expect("a grant");
            assert_eq!(grant.residency.may_serve("eu", None), in_eu, "{regions}");
            assert!(!grant.residency.may_serve("us", None), "{regions}");
        }
    }

    #[test]
    fn without_a_tenant_nothing_is_said() {
        assert!(grant(&[]).is_none());
        assert!(grant(&[("x-spillway-tenant", " ")]).is_none());
        assert!(grant(&[("x-spillway-tenant", "a")]).is_some_and(|grant| grant.models.is_all()));
    }

    #[test]
    fn a_list_that_is_there_but_empty_allows_nothing() {
        for list in ["", " ", ",", " , ,"] {
            let claims = |name| [("x-spillway-tenant", "a"), (name, list)];
            let none = |name| grant(&claims(name)).expect("a grant");
            assert!(!none("x-spillway-models").allows(&"m".into()), "{list:?}");
            let germany = "DE".parse().ok();
            assert!(!none("x-spillway-regions").residency.may_serve("eu", germany), "{list:?}");
            assert!(!none("x-spillway-countries").residency.may_serve("eu", germany), "{list:?}");
        }
    }

    #[test]
    fn claims_that_are_repeated_or_make_no_sense_are_refused() {
        for claims in [
            &[("x-spillway-models", "m-evil"), ("x-spillway-models", "m-acme")][..],
            &[("x-spillway-models", "m"), ("x-spillway-models", "m")],
            &[("x-spillway-tenant", "b")],
            &[("x-spillway-priority", "0"), ("x-spillway-priority", "3")],
            &[("x-tenant-id", "a"), ("x-tenant-id", "b")],
            &[("x-spillway-priority", "4")],
            &[("x-spillway-priority", "-1")],
            &[("x-spillway-priority", "")],
            &[("x-spillway-priority", "high")],
            &[("x-spillway-countries", "Germany")],
            &[("x-spillway-model", "m")],
            &[("x-spillway-residency", "regions=eu")],
        ] {
            let claims = [&[("x-spillway-tenant", "a")], claims].concat();
            let refused = try_grant(&claims).map(drop).expect_err("refused");
            assert_eq!(refused.kind, ErrorKind::BadRequest, "{claims:?}");
        }
        assert!(try_grant(&[("x-spillway-tenant", "evil, acme")]).is_err());
        let mut headers = HeaderMap::new();
        headers.insert(TENANT_CLAIM.clone(), HeaderValue::try_from("a".repeat(257)).unwrap());
        assert!(claimed(&headers, &KeyTable::default()).is_err());
    }

    #[test]
    fn claims_are_known_by_their_names() {
        for name in [
            "x-spillway-tenant",
            "x-spillway-anything",
            "x-tenant-id",
            "x-priority",
            "x_tenant_id",
            "x-spillway_tenant",
        ] {
            assert!(is_claim(&HeaderName::from_static(name)), "{name}");
        }
        assert!(!is_claim(&HeaderName::from_static("x-request-id")));
    }
}
