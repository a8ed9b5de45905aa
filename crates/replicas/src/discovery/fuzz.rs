//! What fuzz targets need of discovery.

use std::time::Duration;

use hickory_resolver::proto::rr::Record;
use tokio::time::Instant;

use super::Endpoint;
use super::known::{Answer, Known};
use super::lookup::{addresses_in, endpoints_of, services_in, told_along};

/// The sets that a source tells of after an answer with these records, asked as address and as
/// service.
pub(crate) fn endpoints(
    answers: &[Record],
    additionals: &[Record],
    (now, grace): (Instant, Duration),
) -> Vec<Vec<Endpoint>> {
    let services = endpoints_of(&services_in(answers), &told_along(additionals));
    let kinds = [addresses_in(("replicas.internal", 8_000), answers), services];
    let told = kinds.into_iter().filter_map(|endpoints| {
        Known::new(grace).note(Answer::Endpoints(endpoints, Duration::ZERO), now)
    });
    told.collect()
}
