//! What a reply's headers tell of how its request was routed, where the config wants that.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::place::Place;
use crate::request::dispatch::Choice;

static REGION: HeaderName = HeaderName::from_static("x-spillway-region");
static REPLICA: HeaderName = HeaderName::from_static("x-spillway-replica");
static POLICY: HeaderName = HeaderName::from_static("x-spillway-policy");
static REASON: HeaderName = HeaderName::from_static("x-spillway-reason");
static HOPS: HeaderName = HeaderName::from_static("x-spillway-hops");
static CACHED_TOKENS: HeaderName = HeaderName::from_static("x-spillway-cached-tokens");
static PREDICTED_MS: HeaderName = HeaderName::from_static("x-spillway-predicted-ms");
static SPILL: HeaderName = HeaderName::from_static("x-spillway-spill");

/// Adds the headers. The node that asked the replica says nearly all; one that passes its reply on
/// adds why the request left its region.
pub(super) fn tell(
    headers: &mut HeaderMap,
    (place, choice): (&Place, &Choice),
    policy: &'static str,
    (region, hop): (&str, u8),
) {
    let attempt = match (place, choice) {
        (Place::Region(_), Choice::Region(Some(reason))) => {
            headers.insert(SPILL.clone(), HeaderValue::from_static(reason.name()));
            return;
        }
        (Place::Replica(_), Choice::Replica(attempt)) => attempt,
        _ => return,
    };
    // Names come from the config, which allows only what a header can hold.
    let name = place.replica().map(|replica| replica.spec().name.as_str());
    for (header, value) in [(&REGION, Some(region)), (&REPLICA, name)] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(header.clone(), value);
        }
    }
    headers.insert(POLICY.clone(), HeaderValue::from_static(policy));
    headers.insert(REASON.clone(), HeaderValue::from_static(attempt.reason.name()));
    headers.insert(HOPS.clone(), HeaderValue::from(u16::from(hop)));
    if let Some(prediction) = &attempt.prediction {
        headers.insert(CACHED_TOKENS.clone(), HeaderValue::from(prediction.cached_tokens));
        // Whole milliseconds: the prediction is never better than that.
        let predicted_ms = prediction.first_token_ms.round() as u64;
        headers.insert(PREDICTED_MS.clone(), HeaderValue::from(predicted_ms));
    }
}
