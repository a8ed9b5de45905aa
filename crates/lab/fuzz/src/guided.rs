//! Coverage-guided runner: gives the targets of all crates to libFuzzer, one at a time.
//!
//! `cargo xtask fuzz` builds and starts it. The variable `SPILLWAY_FUZZ_TARGET` names the target.
//! The macro of `libfuzzer-sys` provides the entry point and its unsafe code.
#![no_main]

use std::sync::OnceLock;

use spillway_fuzz::{Target, run_one};

/// Environment variable that names the target.
const TARGET_VARIABLE: &str = "SPILLWAY_FUZZ_TARGET";

/// Targets of each crate.
const TABLES: [&[Target]; 14] = [
    spillway_admin::fuzz::TARGETS,
    spillway_control_plane::fuzz::TARGETS,
    spillway_raft::fuzz::TARGETS,
    spillway_cluster_state::fuzz::TARGETS,
    spillway_config::fuzz::TARGETS,
    spillway_geo::fuzz::TARGETS,
    spillway_link::fuzz::TARGETS,
    spillway_node::fuzz::TARGETS,
    spillway_protocol::fuzz::TARGETS,
    spillway_front::fuzz::TARGETS,
    spillway_proxy::fuzz::TARGETS,
    spillway_gossip::fuzz::TARGETS,
    spillway_rate_limit::fuzz::TARGETS,
    spillway_replicas::fuzz::TARGETS,
];

static TARGET: OnceLock<Target> = OnceLock::new();

#[expect(clippy::panic, reason = "the caller named a target that does not exist")]
fn target() -> Target {
    *TARGET.get_or_init(|| {
        let name = std::env::var(TARGET_VARIABLE).unwrap_or_default();
        let found = TABLES.iter().copied().flatten().find(|target| target.0 == name);
        *found.unwrap_or_else(|| panic!("{TARGET_VARIABLE}: there is no target {name:?}"))
    })
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| run_one(target(), input));
