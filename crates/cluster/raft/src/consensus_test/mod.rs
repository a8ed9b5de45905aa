//! Whole clusters in one process: real links on loopback with distance between them, real folders.

pub(crate) mod register;
mod world;

mod conform_test;
mod disk_test;
mod elect_test;
mod failover_test;
mod liar_test;
mod member_test;
mod partition_test;
mod past_test;
mod read_test;
mod slow_test;
mod steer_test;
mod stranger_test;
mod usurper_test;
mod version_test;
mod vote_test;
mod write_test;
