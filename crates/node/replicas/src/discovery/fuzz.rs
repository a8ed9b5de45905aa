//! Entry point to discovery for fuzz targets.

use std::time::Duration;

use hickory_resolver::proto::rr::Record;
use tokio::time::Instant;

use super::DiscoveredEndpoint;
use super::known::{DiscoveryAnswer, Known};
use super::lookup::{additional_addresses, addresses_in, endpoints_of, services_in};

/// Returns the sets of endpoints after an answer with these records, read as addresses and as
/// services.
pub(crate) fn endpoints(
    answers: &[Record],
    additionals: &[Record],
    now: Instant,
    grace: Duration,
) -> Vec<Vec<DiscoveredEndpoint>> {
    let services = endpoints_of(&services_in(answers), &additional_addresses(additionals));
    let kinds = [addresses_in("replicas.internal", 8_000, answers), services];
    let told = kinds.into_iter().filter_map(|endpoints| {
        Known::new(grace).note(DiscoveryAnswer::Endpoints(endpoints, Duration::ZERO), now)
    });
    told.collect()
}
