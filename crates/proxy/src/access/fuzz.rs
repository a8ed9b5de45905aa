//! Fuzz targets of what says whose a request is.

use std::collections::BTreeSet;

use http::HeaderMap;
use spillway_types::TenantName;

use super::Doorkeeper;
use super::presented::{CLIENT_KEYS, Presented, is_key_of_ours};
use crate::fuzz::headers_in;

/// A key is found only where clients put keys, and never passed on to replicas.
pub(crate) fn presented_key(input: &[u8]) {
    let headers = headers_in(input);
    let is_ours = |name| headers.get_all(name).iter().any(is_key_of_ours);
    match Presented::of(&headers) {
        Presented::Nothing => {
            assert!(CLIENT_KEYS.iter().all(|name| !headers.contains_key(name)));
        }
        Presented::Foreign => {}
        Presented::Key(key) => {
            assert!(key.starts_with("sw_") && key.len() <= 256);
            assert!(CLIENT_KEYS.iter().any(is_ours), "a key that replicas would see");
        }
    }
    assert!(Doorkeeper::new().admit(&headers).is_err(), "a key that nobody made");
}

/// A trusted proxy's claims allow only what they name, and nobody else's allow anything.
pub(crate) fn claims(input: &[u8]) {
    let headers = headers_in(input);
    let doorkeeper = Doorkeeper::new();
    assert!(doorkeeper.believe(&headers, false).is_err(), "claims of a stranger");
    let Ok(grant) = doorkeeper.believe(&headers, true) else { return };
    let said = headers.get("x-spillway-tenant").and_then(|value| value.to_str().ok());
    assert_eq!(grant.tenant.as_ref().map(TenantName::as_str), said.map(str::trim));
    let models = one(&headers, "x-spillway-models");
    let allows = |model: &str| grant.models.allows(model);
    assert!(models.is_empty() || !allows("a model that nobody names"));
    assert!(models.iter().all(|model| allows(model)));
    let regions = one(&headers, "x-spillway-regions");
    assert!(regions.is_empty() || !grant.residency.allows("a region that nobody names", None));
    let countries = one(&headers, "x-spillway-countries");
    assert!(countries.is_empty() || !grant.residency.allows("eu", None));
}

/// What a header lists, of the first line if there are several.
fn one(headers: &HeaderMap, name: &str) -> BTreeSet<String> {
    let text = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(',').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect()
}
