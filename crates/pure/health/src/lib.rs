//! Decisions about the requests that each replica of the own region may be given, and about clients
//! that this region should get.
//!
//! The crate does no I/O: [`Fleet`] is fed with signs of traffic ([`spillway_types::Sign`]),
//! results of checks, load reports, orders, and time. After each input the caller drains
//! [`Fleet::poll_action`] and, when [`Fleet::version`] has changed, reads the standings again. The
//! same inputs and seed give the same outputs.
//!
//! A replica is one `Member`: small state machines for life, condition, circuit breakers,
//! backpressure and slow start. Each votes on admission of requests; the strictest vote is the
//! standing.

mod announcement;
mod back_off;
mod bucket;
mod cache_share;
mod change_reason;
mod checks;
mod circuit_breaker;
mod circuit_breakers;
mod condition;
mod config;
mod ejection_log;
mod first_tokens;
mod fleet;
mod input;
mod latency;
mod life;
mod load;
mod member;
mod outlier_detection;
mod pace;
mod pool;
mod pool_load;
mod pressure;
mod quantile;
mod queue_reports;
mod reason;
mod region_circuit_breaker;
mod region_load;
mod report;
mod request_history;
mod slow_replicas;
mod slow_start;
mod standby;
mod steering;
mod tally;
mod time;
mod verdict;

pub use announcement::{Announcement, AnnouncementConfig};
pub use change_reason::ChangeReason;
pub use config::{CircuitBreakerConfig, FleetConfig, HealthConfig, StandbyConfig};
pub use ejection_log::{EjectionLog, RecentEjections};
pub use fleet::{Action, Fleet, UnknownReplicaError};
pub use input::{Check, CheckError, CheckPeriods, DrainReason, Live, MemberSpec, Order};
pub use latency::PeakEwma;
pub use queue_reports::QueueReports;
pub use region_circuit_breaker::{RegionCircuitBreaker, RegionPass, RegionTally};
pub use region_load::{RegionLoad, ReplicaNow, with_nodes};
pub use report::{CheckReport, CircuitBreakerReport, FaultReport, MemberReport, MemberState};
pub use request_history::{
    BIN, ClientName, CountedRequests, FailureSite, HistoryBin, HistoryPoint, LimitedClient,
    RequestCause, RequestFinding, RequestHistory, RequestTrouble, sum_bins,
};
pub use slow_replicas::compare_first_tokens;
pub use steering::{SteeringConfig, SteeringFacts, SteeringMachine, SteeringTally};
pub use verdict::{PeerReports, Verdict, Vote, Votes, verdict};

#[cfg(test)]
mod fleet_life_test;
#[cfg(test)]
mod fleet_output_test;
#[cfg(test)]
mod fleet_property_test;
#[cfg(test)]
mod fleet_test;
#[cfg(test)]
mod fleet_trouble_test;
#[cfg(test)]
mod scenario_test;
#[cfg(test)]
mod test_events;
#[cfg(test)]
mod test_fleet;
#[cfg(test)]
mod test_story;
