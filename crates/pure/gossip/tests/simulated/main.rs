//! Whole clusters in simulated time.

#![expect(clippy::unwrap_used, reason = "all of this is tests, where a failure is a finding")]

mod claims_test;
mod delivery_test;
mod faults;
mod reach_test;
mod speaker_test;
mod world;
