//! Reply headers about routing and about the age of the cluster state.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use spillway_protocol::CODE_HEADER;
use spillway_request::gateway::{ClientState, Switches};
use spillway_transport::coarse_clock;
use spillway_view::{ControlState, HeldSlot};

use crate::request::dispatch::ServedChoice;

static REGION: HeaderName = HeaderName::from_static("x-spillway-region");
static REPLICA: HeaderName = HeaderName::from_static("x-spillway-replica");
static POLICY: HeaderName = HeaderName::from_static("x-spillway-policy");
static REASON: HeaderName = HeaderName::from_static("x-spillway-reason");
static HOPS: HeaderName = HeaderName::from_static("x-spillway-hops");
static CACHED_TOKENS: HeaderName = HeaderName::from_static("x-spillway-cached-tokens");
static PREDICTED_MS: HeaderName = HeaderName::from_static("x-spillway-predicted-ms");
static CONTROL_AGE_MS: HeaderName = HeaderName::from_static("x-spillway-control-age-ms");
static SPILL: HeaderName = HeaderName::from_static("x-spillway-spill");

/// Age of a node's cluster state from which on its refusals report that age, whatever the config
/// says: another node may know better. A few heartbeats and elections long.
const CONTROL_AGE_QUIET: Duration = Duration::from_secs(5);

/// Adds the greatest possible age of the agreed cluster state at this node, which the client talks
/// to.
pub(super) fn tell_control_age(
    clients: &ClientState,
    switches: &Switches,
    headers: &mut HeaderMap,
) {
    let state = clients.control_age.at(coarse_clock::now());
    let is_refusal = headers.contains_key(&CODE_HEADER);
    let (is_old, value) = match state {
        ControlState::Apart => return,
        ControlState::Unknown => (true, HeaderValue::from_static("unknown")),
        ControlState::Aged(age) => {
            let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
            (age >= CONTROL_AGE_QUIET, HeaderValue::from(age_ms))
        }
    };
    if switches.exposes_routing() || (is_refusal && is_old) {
        headers.insert(CONTROL_AGE_MS.clone(), value);
    }
}

/// Adds the routing headers. The node that asked the replica sets nearly all; one that relays
/// another region's reply adds the reason why the request left its region.
pub(super) fn tell(
    headers: &mut HeaderMap,
    target: &HeldSlot,
    choice: &ServedChoice,
    policy: &'static str,
    (region, hop): (&str, u8),
) {
    let attempt = match (target, choice) {
        (HeldSlot::Region(_), ServedChoice::Region(Some(reason))) => {
            headers.insert(SPILL.clone(), HeaderValue::from_static(reason.name()));
            return;
        }
        (HeldSlot::Replica(_), ServedChoice::Replica(attempt)) => attempt,
        _ => return,
    };
    // Names come from the config, which allows only characters that are valid in a header.
    let name = target.replica().map(|replica| replica.spec().name.as_str());
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
        // Whole milliseconds: predictions are never more precise.
        let predicted_ms = prediction.first_token_ms.round() as u64;
        headers.insert(PREDICTED_MS.clone(), HeaderValue::from(predicted_ms));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use spillway_prefix::{PrefixConfig, PrefixHasher};
    use spillway_request::gateway::{Gateway, GatewayConfig};
    use spillway_transport::Limits;
    use spillway_view::{Retry, View};

    use super::*;

    fn gateway(expose_routing: bool) -> Gateway {
        let config = GatewayConfig {
            region: "mars".to_owned(),
            country: None,
            limits: Limits::default(),
            retry: Retry::default(),
            seed: 1,
            expose_routing,
            waiting: Default::default(),
        };
        let hasher = PrefixHasher::new([1; 4], PrefixConfig::default()).expect("a hasher");
        Gateway::new(config, hasher, View::empty(), 0)
    }

    /// Returns the age that a reply reports, at a node with this state.
    fn told(expose_routing: bool, state: ControlState, is_refusal: bool) -> Option<String> {
        let gateway = gateway(expose_routing);
        gateway.clients.control_age.note(state, Instant::now());
        let mut headers = HeaderMap::new();
        if is_refusal {
            headers.insert(CODE_HEADER.clone(), HeaderValue::from_static("overloaded"));
        }
        tell_control_age(&gateway.clients, &gateway.switches, &mut headers);
        headers.get(&CONTROL_AGE_MS).map(|value| value.to_str().expect("text").to_owned())
    }

    #[test]
    fn who_is_refused_by_a_node_that_knows_little_is_told_so_and_nobody_else() {
        let (old, new) = (Duration::from_secs(60), Duration::from_millis(200));
        for (state, is_refusal) in [
            (ControlState::Aged(new), true),
            (ControlState::Aged(old), false),
            (ControlState::Unknown, false),
            (ControlState::Apart, true),
        ] {
            assert_eq!(told(false, state, is_refusal), None, "{state:?} {is_refusal}");
        }
        assert!(told(false, ControlState::Aged(old), true).is_some_and(|age| age.len() == 5));
        assert_eq!(told(false, ControlState::Unknown, true).as_deref(), Some("unknown"));
    }

    #[test]
    fn where_routing_is_shown_all_are_told() {
        for is_refusal in [false, true] {
            let aged = ControlState::Aged(Duration::from_millis(200));
            assert!(told(true, aged, is_refusal).is_some_and(|age| age.len() == 3));
            assert_eq!(told(true, ControlState::Apart, is_refusal), None);
        }
    }
}
