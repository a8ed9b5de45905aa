//! Steering of clients: what is known of each region, and the answer of `/steering`, on the listeners of clients and of operators.

use bytes::Bytes;
use http::StatusCode;
use spillway_types::{RegionName, Steering};
use spillway_view::RegionSteering;

use crate::gateway::{RoutingState, Switches};

impl RoutingState {
    /// Returns the steering of every region, the own one first. `node` is that of this node.
    #[must_use]
    pub fn region_steering(&self, node: Steering) -> Vec<RegionSteering> {
        let own = RegionName::from(self.own_region.as_str());
        let mut known = self.regions().steering(&own);
        if let (None, Some(own)) = (self.remote(), known.first_mut()) {
            // A node outside a cluster is its whole region, and no gossip announces its steering.
            own.steering = node;
        }
        known
    }
}

impl Switches {
    /// Returns the status and JSON body of `/steering`: 200 if new clients should be sent here,
    /// else 503 with the reason.
    #[must_use]
    pub fn steering_answer(&self) -> (StatusCode, Bytes) {
        answer(self.steering())
    }
}

fn answer(steering: Steering) -> (StatusCode, Bytes) {
    match steering.reason() {
        None => (StatusCode::OK, Bytes::from_static(br#"{"send_clients":true}"#)),
        Some(reason) => {
            let body = format!(r#"{{"send_clients":false,"reason":"{}"}}"#, reason.name());
            (StatusCode::SERVICE_UNAVAILABLE, body.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use spillway_types::AwayReason;

    use super::*;

    #[test]
    fn the_status_alone_says_it_and_the_body_why() {
        let all = [Steering::Send, Steering::SendShedding].into_iter();
        for steering in all.chain(AwayReason::ALL.map(Steering::Away)) {
            let (status, body) = answer(steering);
            let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!(body["send_clients"], steering.takes_clients());
            assert_eq!(status.is_success(), steering.takes_clients());
            assert_eq!(body["reason"].as_str(), steering.reason().map(AwayReason::name));
        }
    }
}
