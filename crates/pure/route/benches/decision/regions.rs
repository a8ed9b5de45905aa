//! Regions that a decision weighs, in the benchmark and in the test that counts allocations.

use spillway_route::{Access, OwnRegion, RegionCandidate, RegionReport, Waiting};
use spillway_types::{ModelLoad, RAMP_FULL, ShedState};

/// Returns a region with room, which other regions may still beat.
pub(crate) fn own(replicas: usize) -> OwnRegion {
    OwnRegion {
        replicas: replicas as u32,
        report: report(20.0),
        slots: Some(40),
        waiting: Waiting { ahead: 0, wait_ms: None, all: 0, has_room: true },
        guests: 0,
        nodes: 4,
        prefill_ms: 0.0,
        stall_ms: 0.0,
        price_ms: 0.0,
        weight_permille: RAMP_FULL,
        first_token_ms_max: None,
        rest_ms: 0.0,
        late_ms: None,
    }
}

/// Returns the other ones of so many regions.
pub(crate) fn others(regions: usize) -> Vec<RegionCandidate> {
    let other = |index: usize| RegionCandidate {
        access: Access::Ready,
        report: report(10.0 + (index % 13) as f32),
        rtt_ms: 60.0 + (index * 37 % 101) as f32,
        prefill_ms: (index % 5 * 60) as f32,
        stall_ms: 20.0,
        pending_ms: 10.0,
        rest_ms: 0.0,
        is_shared: false,
        price_ms: 0.0,
        weight_permille: RAMP_FULL,
        ramp_permille: RAMP_FULL,
        is_home: false,
        home_ms: 0.0,
    };
    (1..regions).map(other).collect()
}

fn report(running: f32) -> RegionReport {
    let load = ModelLoad {
        queued: 0.0,
        running,
        capacity: Some(40.0),
        rate_per_s: Some(running),
        kv_use: Some(0.5),
        wait_ms: None,
        replicas: 8,
        pending_tokens: Some(1_000.0),
        shed: ShedState::Open,
    };
    RegionReport { load, age_ms: 120.0, sent: 2, ended: 1 }
}
