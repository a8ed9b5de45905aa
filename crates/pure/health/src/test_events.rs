//! Events that may happen to a fleet, for property tests.

use std::time::Duration;

use proptest::prelude::*;
use spillway_route::BucketConfig;
use spillway_types::{LoadReport, ReplyForm, SignFault, SignKind, TokenCounts, Worked, WorkedPart};

use crate::test_fleet::ms;
use crate::{
    Check, CheckError, CheckPeriods, CircuitBreakerConfig, DrainReason, HealthConfig, Live,
    MemberSpec, Order, StandbyConfig,
};

pub(crate) const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Event that happens to a fleet.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Sign { replica: usize, model: u8, kind: SignKind },
    Check { replica: usize, check: Check, result: Result<(), CheckError> },
    Report { replica: usize, report: LoadReport, in_flight: u32 },
    Order { replica: usize, order: Order },
    WarmedUp { replica: usize, is_good: bool },
    Tick { wait_ms: u64, live: Live },
    Reconcile { specs: Vec<MemberSpec>, presumed_ready: bool },
}

fn any_number() -> impl Strategy<Value = f32> {
    prop_oneof![4 => 0.0..50.0_f32, 1 => prop::num::f32::ANY]
}

pub(crate) fn any_wait() -> impl Strategy<Value = u64> {
    prop_oneof![6 => Just(100_u64), 3 => 0..20_000_u64, 1 => any::<u64>().prop_map(|n| n >> 20)]
}

fn any_report() -> impl Strategy<Value = LoadReport> {
    let some = || prop::option::of(any_number());
    (some(), some(), some(), some(), some(), some()).prop_map(
        |(queued, running, kv_use, gpu_use, gpu_memory_use, pending)| LoadReport {
            queued,
            running,
            kv_use,
            gpu_use,
            gpu_memory_use,
            pending,
        },
    )
}

fn any_fault() -> impl Strategy<Value = SignFault> {
    use SignFault::{BadReply, Connect, Cut, EngineGone, Reset, ServerError, Silent, Stalled};
    prop::sample::select(vec![
        BadReply,
        Connect,
        Cut,
        EngineGone,
        Reset,
        ServerError,
        Silent,
        Stalled,
    ])
}

fn any_check_result() -> impl Strategy<Value = Result<(), CheckError>> {
    use CheckError::{NotReady, Timeout, Unhealthy, WrongAnswer};
    let fault = prop::sample::select(vec![NotReady, Timeout, Unhealthy, WrongAnswer]);
    prop_oneof![Just(Ok(())), fault.prop_map(Err)]
}

fn any_worked() -> impl Strategy<Value = Option<Worked>> {
    let steps = prop_oneof![1.0..1000.0_f32, any::<f32>()];
    let parts = [WorkedPart::FirstToken, WorkedPart::NextTokens, WorkedPart::Whole];
    let worked = (0..100_000_u64, steps, prop::sample::select(parts.to_vec()));
    prop::option::of(worked.prop_map(|(after, steps, part)| Worked {
        after: ms(after),
        steps,
        part,
    }))
}

pub(crate) fn any_kind() -> impl Strategy<Value = SignKind> {
    prop_oneof![
        4 => (0..100_000_u64, any_worked())
            .prop_map(|(after, worked)| SignKind::Answered {
                after: ms(after),
                form: ReplyForm::Stream,
                worked,
            }),
        2 => prop::option::of(any_wait())
            .prop_map(|wait| SignKind::Busy { retry_after: wait.map(ms) }),
        6 => any_fault().prop_map(SignKind::Failed),
        3 => (any::<[u64; 3]>(), any_worked()).prop_map(|([prompt, completion, cached], worked)| {
            SignKind::Finished {
                tokens: TokenCounts { prompt, completion, cached },
                worked,
            }
        }),
        1 => any_report().prop_map(|report| SignKind::Reported(Box::new(report))),
    ]
}

fn any_health() -> impl Strategy<Value = HealthConfig> {
    let small = || prop_oneof![Just(0_u32), 1..6_u32];
    let wait = || prop_oneof![Just(0_u64), 100..10_000_u64, Just(u64::MAX)];
    let thresholds = (small(), small(), small(), small(), small(), 0..200_u32);
    let waits = (wait(), wait(), wait(), wait(), wait(), wait());
    let rest = (any::<u16>(), prop::option::of(0.0..1.0_f32), any::<bool>());
    (thresholds, waits, rest).prop_map(|(thresholds, waits, (permille, memory, is_default))| {
        if is_default {
            return HealthConfig::default();
        }
        HealthConfig {
            slow_ratio: 5.0,
            rise: thresholds.0,
            fall: thresholds.1,
            eject_after: thresholds.2,
            connect_eject_after: thresholds.3,
            eject_ms: waits.0,
            eject_max_ms: waits.1,
            eject_forget_ms: waits.2,
            ejected_share_percent: thresholds.5,
            trial_permille: permille,
            trial_goods: thresholds.4,
            stall_ms: waits.3,
            gpu_memory_use_max: memory,
            breaker: CircuitBreakerConfig {
                error_percent: thresholds.5,
                window_ms: waits.4,
                requests_min: thresholds.0,
                open_ms: waits.0,
                open_max_ms: waits.1,
                trial_goods: thresholds.4,
            },
            retry_after_max_ms: waits.5,
            busy_pause_ms: waits.0,
            stale_half_life_ms: waits.1,
            warm_up_max_ms: waits.2,
        }
    })
}

pub(crate) fn any_spec() -> impl Strategy<Value = MemberSpec> {
    let period = || prop::option::of(any_wait().prop_map(ms));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let checks = (period(), period(), period());
    let slow_start = prop_oneof![Just(Duration::ZERO), any_wait().prop_map(ms)];
    (0..NAMES.len(), flags, checks, any_health(), slow_start).prop_map(
        |(name, flags, (active, deep, scrape), health, slow_start)| MemberSpec {
            weight: 1,
            name: NAMES[name].into(),
            pool: if flags.0 { "one".into() } else { "other".into() },
            models: Vec::new(),
            standby: flags.1.then_some(StandbyConfig {
                queue: Some(2.0),
                p99_ms: Some(100.0),
                promote_after_ms: 200,
                demote_after_ms: 400,
                drain_ms: 300,
            }),
            needs_warm_up: flags.2,
            checks: CheckPeriods { active, deep, scrape },
            health,
            slow_start,
            bucket: BucketConfig::default(),
        },
    )
}

pub(crate) fn any_event() -> impl Strategy<Value = Event> {
    let replica = || 0..NAMES.len();
    let check = prop::sample::select(vec![Check::Active, Check::Deep, Check::Scrape]);
    let why = prop::sample::select(vec![DrainReason::Operator, DrainReason::Preemption]);
    let drain = (any_wait(), why).prop_map(|(limit, why)| Order::Drain { limit: ms(limit), why });
    let live = (0..4_u32, 0..1000_u64, prop::option::of(any_wait().prop_map(ms))).prop_map(
        |(in_flight, started, silent_for)| Live { in_flight, elsewhere: 0, started, silent_for },
    );
    prop_oneof![
        12 => (replica(), 0..5_u8, any_kind())
            .prop_map(|(replica, model, kind)| Event::Sign { replica, model, kind }),
        8 => (replica(), check, any_check_result())
            .prop_map(|(replica, check, result)| Event::Check { replica, check, result }),
        2 => (replica(), any_report(), any::<u32>()).prop_map(|(replica, report, in_flight)| {
            Event::Report { replica, report, in_flight }
        }),
        1 => (replica(), prop_oneof![drain, Just(Order::Resume)])
            .prop_map(|(replica, order)| Event::Order { replica, order }),
        1 => (replica(), any::<bool>())
            .prop_map(|(replica, is_good)| Event::WarmedUp { replica, is_good }),
        8 => (any_wait(), live).prop_map(|(wait_ms, live)| Event::Tick { wait_ms, live }),
        1 => (prop::collection::vec(any_spec(), 0..8), any::<bool>())
            .prop_map(|(specs, presumed_ready)| Event::Reconcile { specs, presumed_ready }),
    ]
}
