//! Fuzz targets of authentication.

use std::collections::BTreeSet;

use http::HeaderMap;
use spillway_types::TenantName;

use super::Authenticator;
use super::presented::{CLIENT_KEYS, Presented, is_key_of_ours};
use crate::fuzz::headers_in;

/// Asserts that a key is found only in the headers where clients send keys, and is never passed on
/// to replicas.
pub fn presented_key(input: &[u8]) {
    let headers = headers_in(input);
    let is_ours = |name| headers.get_all(name).iter().any(is_key_of_ours);
    match Presented::of(&headers) {
        Presented::Nothing => {
            assert!(CLIENT_KEYS.iter().all(|name| !headers.contains_key(name)));
        }
        Presented::Foreign | Presented::Several => {}
        Presented::Key(key) => {
            assert!(key.starts_with("sw_") && key.len() <= 256);
            assert!(CLIENT_KEYS.iter().any(is_ours), "a key that replicas would see");
        }
    }
    assert!(Authenticator::new().admit(&headers).is_err(), "a key that nobody made");
}

/// Asserts that a trusted proxy's claims allow only what they name, and that claims of other
/// clients allow nothing.
pub fn claims(input: &[u8]) {
    let headers = headers_in(input);
    let authenticator = Authenticator::new();
    assert!(authenticator.believe(&headers, false).is_err(), "claims of a stranger");
    let Ok(grant) = authenticator.believe(&headers, true) else { return };
    let said = headers.get("x-spillway-tenant").and_then(|value| value.to_str().ok());
    assert_eq!(grant.tenant.as_ref().map(TenantName::as_str), said.map(str::trim));
    for name in ["x-spillway-tenant", "x-spillway-models", "x-spillway-regions"] {
        assert!(headers.get_all(name).iter().count() <= 1, "{name} counts though it is repeated");
    }
    let models = listed(&headers, "x-spillway-models");
    assert!(models.is_none() || !grant.models.allows("a model that nobody names"));
    assert!(models.iter().flatten().all(|model| grant.models.allows(model.as_str())));
    let regions = listed(&headers, "x-spillway-regions");
    assert!(regions.is_none() || !grant.residency.may_serve("a region that nobody names", None));
    let countries = listed(&headers, "x-spillway-countries");
    assert!(countries.is_none() || !grant.residency.may_serve("eu", None));
}

/// Returns the names that a header lists; `None` if the header is absent.
fn listed(headers: &HeaderMap, name: &str) -> Option<BTreeSet<String>> {
    let text = headers.get(name)?.to_str().unwrap_or_default();
    Some(text.split(',').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect())
}
