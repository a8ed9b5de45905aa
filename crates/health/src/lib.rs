//! Decides what each replica of the own region may be given.
//!
//! Sans-I/O: [`Fleet`] is fed with what traffic shows ([`spillway_types::Sign`]), results of checks,
//! load reports and orders, and with time. After each input the caller drains
//! [`Fleet::poll_action`] and, when [`Fleet::version`] moved, reads the standings anew. Same
//! inputs and seed, same outputs.
//!
//! A replica is one `Member`: small machines for its life, condition, breakers, back-pressure and
//! ramp. Each says what it thinks of admitting requests; the worst word is the standing.

mod back_off;
mod breaker;
mod breakers;
mod bucket;
mod cache_share;
mod checks;
mod condition;
mod config;
mod fleet;
mod input;
mod latency;
mod life;
mod load;
mod member;
mod pace;
mod passive;
mod pool;
mod pressure;
mod quantile;
mod ramp;
mod region_breaker;
mod region_load;
mod report;
mod standby;
mod tally;
mod time;
mod verdict;

pub use config::{BreakerConfig, FleetConfig, HealthConfig, StandbyConfig};
pub use fleet::{Action, Fleet, UnknownReplica};
pub use input::{Check, CheckFault, CheckPeriods, DrainReason, Live, MemberSpec, Order};
pub use region_breaker::{RegionBreaker, RegionPass, RegionTally};
pub use region_load::{RegionLoad, ReplicaNow, with_nodes};
pub use report::{BreakerReport, CheckReport, FaultReport, MemberReport, MemberState};
pub use verdict::{Verdict, Vote, Votes, Witnesses, verdict};

#[cfg(test)]
mod fleet_life_test;
#[cfg(test)]
mod fleet_output_test;
#[cfg(test)]
mod fleet_property_test;
#[cfg(test)]
mod fleet_test;
#[cfg(test)]
mod scenario_test;
#[cfg(test)]
mod test_events;
#[cfg(test)]
mod test_fleet;
#[cfg(test)]
mod test_story;
