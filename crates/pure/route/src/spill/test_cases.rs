//! Test data of the decision between regions: one decision with all its inputs.

use std::time::Duration;

use proptest::prelude::*;
use spillway_types::{Deadline, Inquiry, ModelLoad, RAMP_FULL, ShedState};

use super::{
    Access, OwnRegion, RegionCandidate, RegionReport, SpillPlan, SpillTerms, SpillVerdict, Waiting,
    spill,
};
use crate::Moment;
use crate::test_world::{Array, NOW, inquiry};

/// One decision.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) own: OwnRegion,
    pub(super) others: Vec<RegionCandidate>,
    pub(super) terms: SpillTerms,
    pub(super) hop: u8,
    pub(super) left_ms: u64,
}

impl Case {
    /// Returns a busy own region with a wait of 525 ms, and other regions. Only time counts.
    pub(super) fn busy(others: Vec<RegionCandidate>) -> Self {
        let terms = SpillTerms { crowding: 0.0, doubt: 0.0, ..SpillTerms::default() };
        Self { own: busy(), others, terms, hop: 0, left_ms: 60_000 }
    }

    pub(super) fn plan(&self) -> SpillPlan {
        self.plan_with(&mut fastrand::Rng::with_seed(7))
    }

    pub(super) fn plan_with(&self, rng: &mut fastrand::Rng) -> SpillPlan {
        let deadline = Deadline::after(*NOW, Duration::from_millis(self.left_ms));
        let inquiry = Inquiry { hop: self.hop, deadline, ..inquiry() };
        let mut moment = Moment { now: *NOW, loads: &Array::idle(0), ticket: 0, rng };
        spill(&inquiry, &self.own, &self.others, &self.terms, &mut moment)
    }

    /// Returns how often each other region is the first choice in so many equal decisions.
    pub(super) fn tally(&self, decisions: usize) -> Vec<u64> {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut chosen = vec![0; self.others.len()];
        for _ in 0..decisions {
            if let Some(first) = first(&self.plan_with(&mut rng)) {
                chosen[first] += 1;
            }
        }
        chosen
    }
}

/// Returns the region that the request is forwarded to, if it is.
pub(super) fn first(plan: &SpillPlan) -> Option<usize> {
    match &plan.verdict {
        SpillVerdict::Forward(forwards) => Some(forwards[0]),
        SpillVerdict::Own | SpillVerdict::Wait { .. } | SpillVerdict::Shed { .. } => None,
    }
}

/// Returns an own region with all slots taken and 20 requests waiting; 40 end each second.
pub(super) fn busy() -> OwnRegion {
    let load = ModelLoad { queued: 20.0, running: 40.0, ..load(40.0) };
    OwnRegion {
        replicas: 4,
        report: RegionReport { load, ..RegionReport::default() },
        slots: Some(0),
        waiting: Waiting { ahead: 0, wait_ms: None, all: 0, has_room: true },
        guests: 0,
        nodes: 1,
        prefill_ms: 0.0,
        stall_ms: 0.0,
        price_ms: 0.0,
        weight_permille: RAMP_FULL,
        first_token_ms_max: None,
        rest_ms: 0.0,
        late_ms: None,
    }
}

/// Returns a region with 20 of 40 slots free, at this distance.
pub(super) fn free(rtt_ms: f32) -> RegionCandidate {
    RegionCandidate {
        access: Access::Ready,
        report: RegionReport { load: load(20.0), ..RegionReport::default() },
        rtt_ms,
        prefill_ms: 0.0,
        stall_ms: 0.0,
        pending_ms: 0.0,
        rest_ms: 0.0,
        is_shared: false,
        price_ms: 0.0,
        weight_permille: RAMP_FULL,
        ramp_permille: RAMP_FULL,
        is_home: false,
        home_ms: 0.0,
    }
}

/// Returns a load of so many requests at 40 slots, each of which takes a second.
pub(super) fn load(running: f32) -> ModelLoad {
    ModelLoad {
        queued: 0.0,
        running,
        capacity: Some(40.0),
        rate_per_s: Some(running),
        kv_use: None,
        wait_ms: Some(0.0),
        replicas: 4,
        pending_tokens: None,
        shed: ShedState::Open,
    }
    .without_wait_if_full()
}

/// Keeps [`load`] from contradicting itself.
trait WithoutWait {
    fn without_wait_if_full(self) -> Self;
}

impl WithoutWait for ModelLoad {
    fn without_wait_if_full(self) -> Self {
        let is_full = self.capacity.is_some_and(|capacity| self.running >= capacity);
        Self { wait_ms: if is_full { None } else { self.wait_ms }, ..self }
    }
}

/// Any decision: regions near and far, known and unknown, full and empty, up to 12 of them.
pub(super) fn any_case() -> impl Strategy<Value = Case> {
    let others = prop::collection::vec(any_region(), 0..12);
    let hop = prop_oneof![8 => Just(0), 1 => 1..=255_u8];
    let left_ms = prop_oneof![0..60_000_u64, Just(60_000)];
    (any_own(), others, any_terms(), hop, left_ms)
        .prop_map(|(own, others, terms, hop, left_ms)| Case { own, others, terms, hop, left_ms })
}

/// Any settings.
pub(super) fn any_terms() -> impl Strategy<Value = SpillTerms> {
    let ms = || prop_oneof![Just(0.0), 0.0..200.0_f32];
    let guests = prop::option::of(0..1_000_u16);
    (ms(), (ms(), ms()), ms(), 0..1_000_u16, guests).prop_map(
        |(
            gain_min_ms,
            (crowding, doubt),
            unknown_wait_ms,
            reserve_permille,
            guests_max_permille,
        )| {
            SpillTerms {
                gain_min_ms,
                crowding: crowding / 50.0,
                doubt: doubt / 50.0,
                unknown_wait_ms,
                reserve_permille,
                guests_max_permille,
                ..SpillTerms::default()
            }
        },
    )
}

fn any_region() -> impl Strategy<Value = RegionCandidate> {
    let access = prop_oneof![
        6 => Just(Access::Ready),
        1 => Just(Access::Unreachable),
        1 => Just(Access::Refused),
    ];
    let share = || prop_oneof![1 => Just(0), 6 => Just(RAMP_FULL), 2 => 0..2_000_u16];
    let times = (0.0..300.0_f32, 0.0..200.0_f32, 0.0..50.0_f32, 0.0..200.0_f32);
    (access, any_report(), times, share(), share(), any::<bool>()).prop_map(
        |(access, report, times, weight_permille, ramp_permille, is_shared)| RegionCandidate {
            access,
            report,
            rtt_ms: times.0,
            prefill_ms: times.1,
            stall_ms: times.3,
            pending_ms: times.3,
            rest_ms: 0.0,
            is_shared,
            price_ms: times.2,
            weight_permille,
            ramp_permille,
            is_home: false,
            home_ms: 0.0,
        },
    )
}

/// Any own region; an edge node now and then.
pub(super) fn any_own() -> impl Strategy<Value = OwnRegion> {
    let slots = prop_oneof![2 => Just(Some(0)), 1 => Just(None), 1 => (0..5_u32).prop_map(Some)];
    let waiting =
        (0..20_u32, 0..20_u32, prop::bool::weighted(0.7)).prop_map(|(ahead, behind, has_room)| {
            Waiting { ahead, wait_ms: None, all: ahead + behind, has_room }
        });
    let counts = (0..4_u32, 0..20_u32, 0..5_u32);
    (counts, any_report(), slots, waiting, (0.0..900.0_f32, 0.0..50.0_f32), 0..1_001_u16).prop_map(
        |(
            (replicas, guests, nodes),
            report,
            slots,
            waiting,
            (prefill_ms, price_ms),
            weight_permille,
        )| {
            OwnRegion {
                replicas,
                report,
                slots,
                waiting,
                guests,
                nodes,
                prefill_ms,
                stall_ms: prefill_ms / 2.0,
                price_ms,
                weight_permille,
                first_token_ms_max: None,
                rest_ms: 0.0,
                late_ms: None,
            }
        },
    )
}

fn any_report() -> impl Strategy<Value = RegionReport> {
    let count = || prop_oneof![2 => Just(0.0), 3 => (0..60_u8).prop_map(f32::from)];
    let shed = prop_oneof![
        6 => Just(ShedState::Open),
        1 => Just(ShedState::Reserved),
        1 => Just(ShedState::Shedding),
    ];
    let known = (
        prop::option::of((0..60_u8).prop_map(f32::from)),
        prop::option::of(0.0..100.0_f32),
        prop::option::of(prop_oneof![Just(0.0), 0.0..5_000.0_f32]),
    );
    let load = (count(), count(), known, shed).prop_map(
        |(queued, running, (capacity, rate_per_s, wait_ms), shed)| ModelLoad {
            queued,
            running,
            capacity,
            rate_per_s,
            kv_use: None,
            wait_ms,
            replicas: 4,
            pending_tokens: None,
            shed,
        },
    );
    (load, 0.0..1_000.0_f32, 0..20_u32, 0..20_u32)
        .prop_map(|(load, age_ms, sent, ended)| RegionReport { load, age_ms, sent, ended })
}
