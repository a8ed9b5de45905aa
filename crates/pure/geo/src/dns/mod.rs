//! GeoDNS, an authoritative name server without sockets: a query and a snapshot of the regions go
//! in, an answer comes out. [`answer`] makes the answer. Before that, [`ResponseLimiter`] decides
//! if a query is answered at all.

mod answer;
#[cfg(test)]
mod answer_test;
mod client;
mod config;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod limiter;
mod name;
mod nearest;
#[cfg(test)]
mod nearest_test;
mod outcome;
mod query;
#[cfg(any(test, fuzzing))]
mod test_zone;
mod view;
mod zone;

pub use answer::{DnsReply, Sources, answer, truncated};
pub use client::{ClientNetwork, QueryTransport};
pub use config::DnsConfig;
pub use limiter::{LimiterConfig, QueryAdmission, ResponseLimiter};
pub use name::{NameError, ZoneName};
pub use nearest::{DETOUR, rtt_by_distance_ms};
pub use outcome::{QueryKind, QueryOutcome};
pub use view::{DnsView, RegionState};
pub use zone::{CaaRecord, HostRecord, Zone, ZoneRegion, ZoneSpec};
