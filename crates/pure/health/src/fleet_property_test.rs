//! Invariants of a fleet for any events in any order.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use spillway_types::{
    Admission, DownCause, RAMP_FULL, Reading, ReplicaName, Sign, SignKind, Standing, TokenCounts,
};

use crate::test_events::{Event, NAMES, any_event, any_kind, any_spec, any_wait};
use crate::test_fleet::{answered, ms, start};
use crate::{
    Action, Check, CheckError, CheckPeriods, Fleet, FleetConfig, Live, MemberSpec, MemberState,
    Order,
};

/// Fleet of any members that goes through events.
struct Harness {
    fleet: Fleet,
    now: Instant,
}

impl Harness {
    fn new(specs: Vec<MemberSpec>) -> Self {
        let config = FleetConfig { actions_max: 64, models_max: 3 };
        let mut fleet = Fleet::new(config, 5);
        fleet.reconcile(start(), specs, true);
        Self { fleet, now: start() }
    }

    fn live_through(&mut self, event: &Event) {
        let (fleet, now) = (&mut self.fleet, self.now);
        let name = |replica: usize| ReplicaName::from(NAMES[replica]);
        match event.clone() {
            Event::Sign { replica, model, kind } => {
                let model = (model > 0).then(|| format!("m{model}").into());
                fleet.handle_sign(&Sign { replica: name(replica), model, at: now, kind });
            }
            Event::Check { replica, check, result } => {
                fleet.handle_check(now, &name(replica), check, result);
            }
            Event::Report { replica, report, in_flight } => {
                fleet.handle_report(now, &name(replica), report, in_flight);
            }
            Event::Order { replica, order } => {
                let is_known = fleet.contains(&name(replica));
                let result = fleet.handle_order(now, &name(replica), order);
                assert_eq!(result.is_ok(), is_known);
            }
            Event::WarmedUp { replica, is_good } => {
                let result = if is_good { Ok(()) } else { Err(CheckError::Timeout) };
                fleet.handle_warmed_up(now, &name(replica), result);
            }
            Event::Tick { wait_ms, live } => {
                self.now += ms(wait_ms);
                fleet.handle_timeout(self.now, &|_| live);
            }
            Event::Reconcile { specs, presumed_ready } => {
                fleet.reconcile(now, specs, presumed_ready);
            }
        }
    }

    /// Returns the standing of each member of the fleet, and what is known of it if it is down.
    fn standings(&self) -> BTreeMap<ReplicaName, (Standing, Option<DownCause>)> {
        let names = NAMES.map(ReplicaName::from);
        let there = names.into_iter().filter(|name| self.fleet.contains(name));
        let of = |name: &ReplicaName| (self.fleet.standing(name), self.fleet.down_cause(name));
        there.map(|name| (name.clone(), of(&name))).collect()
    }

    fn assert_sound(&self) {
        for (name, (standing, down)) in self.standings() {
            assert_eq!(down.is_some(), standing.admission == Admission::Down, "{standing:?}");
            assert!((1..=RAMP_FULL).contains(&standing.ramp_permille), "{standing:?}");
            let is_busy = standing.admission == Admission::Busy;
            assert_eq!(standing.busy_until.is_some(), is_busy, "{standing:?}");
            assert!(standing.models.is_sorted() && standing.models.len() <= 3, "{standing:?}");
            let live = Live { in_flight: 1, elsewhere: 2, started: 5, silent_for: None };
            let signals = self.fleet.signals(self.now, &name, live);
            for Reading { value, trust } in [
                signals.latency_ms,
                signals.p99_ms,
                signals.queued,
                signals.running,
                signals.kv_use,
                signals.gpu_use,
                signals.gpu_memory_use,
                signals.pending,
            ] {
                assert!(value.is_finite() && value >= 0.0, "{signals:?}");
                assert!((0.0..=1.0).contains(&trust), "{signals:?}");
            }
            assert!(signals.bucket_tokens.is_finite(), "{signals:?}");
        }
        let json = serde_json::to_string(&self.fleet.members(self.now)).unwrap();
        assert!(!json.contains("NaN") && !json.contains("inf"), "{json}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_events_leave_it_sound_and_its_version_tells_each_change(
        specs in prop::collection::vec(any_spec(), 0..8),
        events in prop::collection::vec(any_event(), 1..150),
    ) {
        let mut harness = Harness::new(specs);
        for event in &events {
            let (before, version) = (harness.standings(), harness.fleet.version());
            harness.live_through(event);
            let is_same = before == harness.standings();
            prop_assert_eq!(is_same, version == harness.fleet.version(), "{:?}", event);
            harness.assert_sound();
        }
        let actions = std::iter::from_fn(|| harness.fleet.poll_action()).count();
        prop_assert!(actions <= 64);
    }

    #[test]
    fn the_same_events_give_the_same_outputs(
        specs in prop::collection::vec(any_spec(), 0..8),
        events in prop::collection::vec(any_event(), 1..80),
    ) {
        let live_through = || {
            let mut harness = Harness::new(specs.clone());
            let mut outputs = Vec::new();
            for event in &events {
                harness.live_through(event);
                let actions: Vec<Action> =
                    std::iter::from_fn(|| harness.fleet.poll_action()).collect();
                let reports = harness.fleet.members(harness.now);
                outputs.push((harness.standings(), harness.fleet.version(), actions, reports));
            }
            outputs
        };
        prop_assert_eq!(live_through(), live_through());
    }

    #[test]
    fn traffic_never_ejects_more_than_the_share(
        members in 1..6_usize,
        share in 0..120_u32,
        events in prop::collection::vec((0..6_usize, any_kind(), any_wait()), 1..300),
    ) {
        let mut harness = Harness::new(plain_specs(members, |spec| {
            spec.health.ejected_share_percent = share;
            spec.health.retry_after_max_ms = 0;
            // A lone vote never lasts here, so that only traffic decides.
            spec.health.eject_max_ms = 2_000;
        }));
        for (replica, kind, wait_ms) in events {
            harness.live_through(&Event::Sign { replica, model: 1, kind });
            harness.live_through(&Event::Tick { wait_ms: wait_ms.min(500), live: Live::default() });
            for replica in 0..members {
                let check = Event::Check { replica, check: Check::Active, result: Ok(()) };
                harness.live_through(&check);
            }
            let out = count(&harness, Admission::Ejected);
            let all = out + count(&harness, Admission::Open);
            prop_assert!(out * 100 <= share as usize * all, "{out} of {all}, share {share}");
            prop_assert_eq!(count(&harness, Admission::Down), 0, "active checks contradict");
        }
    }

    #[test]
    fn one_signal_never_brings_it_down_while_another_contradicts(
        bad in 0..3_usize,
        rounds in 1..60_usize,
    ) {
        let checks = [Check::Active, Check::Deep, Check::Scrape];
        let mut harness = Harness::new(plain_specs(2, |_| {}));
        for round in 0..rounds {
            for (number, check) in checks.into_iter().enumerate() {
                // A good check comes last, so that it counts before the bad one lasts.
                let result = if number == bad { Err(CheckError::Timeout) } else { Ok(()) };
                harness.live_through(&Event::Check { replica: 0, check, result });
            }
            harness.live_through(&Event::Tick { wait_ms: 1000, live: Live::default() });
            let votes = harness.fleet.members(harness.now)[0].votes;
            let is_bad = [votes.active, votes.deep, votes.scrape][bad];
            prop_assert_eq!(round >= 2, is_bad.is_bad());
            prop_assert!(harness.fleet.standing(&"a".into()).admission != Admission::Down);
        }
    }

    #[test]
    fn being_busy_ends_by_itself_and_leaves_nothing_behind(
        waits in prop::collection::vec((prop::option::of(any_wait()), 0..3_000_u64), 1..100),
    ) {
        let mut harness = Harness::new(plain_specs(2, |_| {}));
        for (retry_after, wait_ms) in waits {
            let kind = SignKind::Busy { retry_after: retry_after.map(ms) };
            harness.live_through(&Event::Sign { replica: 0, model: 1, kind });
            harness.live_through(&Event::Tick { wait_ms, live: Live::default() });
            let admission = harness.fleet.standing(&"a".into()).admission;
            prop_assert!(matches!(admission, Admission::Open | Admission::Busy));
        }
        harness.live_through(&Event::Tick { wait_ms: 30_251, live: Live::default() });
        prop_assert_eq!(harness.fleet.standing(&"a".into()), Standing::FULL);
    }

    #[test]
    fn a_ramp_rises_and_ends_whatever_caches_tell(
        replies in prop::collection::vec((0..2_usize, any::<u64>(), any::<u64>(), 1..3_000_u64), 0..100),
    ) {
        let mut specs = plain_specs(2, |spec| spec.slow_start = ms(20_000));
        let cold = specs.remove(0);
        let mut harness = Harness::new(specs.clone());
        harness.fleet.reconcile(start(), [specs, vec![cold]].concat(), false);
        for _ in 0..2 {
            let check = Event::Check { replica: 0, check: Check::Active, result: Ok(()) };
            harness.live_through(&check);
        }
        let permille = |harness: &Harness| harness.fleet.standing(&"a".into()).ramp_permille;
        let mut last = permille(&harness);
        prop_assert_eq!(last, 100);
        for (replica, prompt, cached, wait_ms) in replies {
            let tokens = TokenCounts { prompt, cached, completion: 0 };
            let kind = SignKind::Finished { tokens, worked: None };
            harness.live_through(&Event::Sign { replica, model: 1, kind });
            harness.live_through(&Event::Tick { wait_ms, live: Live::default() });
            let now = permille(&harness);
            prop_assert!(now == last || now >= last + 25 || now == RAMP_FULL);
            last = now;
        }
        harness.now = harness.now.max(start() + ms(60_000));
        harness.live_through(&Event::Tick { wait_ms: 0, live: Live::default() });
        prop_assert_eq!(permille(&harness), RAMP_FULL);
    }
}

proptest! {
    // Each of these times is long.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn once_all_is_well_for_long_all_serve_again(
        events in prop::collection::vec(any_event(), 1..100),
    ) {
        let mut harness = Harness::new(plain_specs(6, |_| {}));
        for event in &events {
            if !matches!(event, Event::Reconcile { .. }) {
                harness.live_through(event);
            }
        }
        harness.now += Duration::from_secs(60);
        for _ in 0..40 {
            harness.live_through(&Event::Tick { wait_ms: 5000, live: Live::default() });
            for (replica, name) in NAMES.into_iter().enumerate() {
                if harness.fleet.standing(&name.into()).admission == Admission::Draining {
                    harness.live_through(&Event::Order { replica, order: Order::Resume });
                }
                for check in [Check::Active, Check::Deep, Check::Scrape] {
                    harness.live_through(&Event::Check { replica, check, result: Ok(()) });
                }
                for model in 0..5 {
                    let kind = answered(ms(10));
                    harness.live_through(&Event::Sign { replica, model, kind });
                }
            }
        }
        for report in harness.fleet.members(harness.now) {
            prop_assert_eq!(report.state, MemberState::Serving, "{:?}", report);
            prop_assert_eq!(harness.fleet.standing(&report.name), Standing::FULL);
        }
    }
}

/// Makes replicas of one pool that differ from the default in what `change` does.
fn plain_specs(count: usize, change: impl Fn(&mut MemberSpec)) -> Vec<MemberSpec> {
    let period = Some(ms(1000));
    let plain = |name: &&str| {
        let mut spec = crate::test_fleet::spec(name);
        spec.checks = CheckPeriods { active: period, deep: period, scrape: period };
        change(&mut spec);
        spec
    };
    NAMES[..count].iter().map(plain).collect()
}

fn count(harness: &Harness, admission: Admission) -> usize {
    harness.standings().values().filter(|(standing, _)| standing.admission == admission).count()
}
