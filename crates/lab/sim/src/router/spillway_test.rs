use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_journey::Claim;
use spillway_route::{Policy, Push, RegionReport, WaitEntry, WaitLimits};
use spillway_types::{
    BlockHashes, Deadline, Inquiry, ModelName, Reading, RegionName, Residency, Signals,
};

use crate::router::spillway::speed_errors;
use crate::router::{
    Ask, NodePosition, OwnReplica, Queue, RemoteRegion, Router, RouterVerdict, Truth, WorldView,
};
use crate::{Setup, SpillwayRouter};

/// Returns the position of the only node of a region with one replica, beside another region.
fn position() -> NodePosition {
    NodePosition {
        region: 0,
        replicas: 1,
        regions: 2,
        is_central: false,
        homes: Arc::new([0]),
        seed: 0,
    }
}

#[derive(Debug)]
struct Nothing;

impl Truth for Nothing {
    fn cached_blocks(&self, _replica: usize) -> u32 {
        0
    }
}

fn inquiry(now: Instant, residency: Residency) -> Inquiry {
    Inquiry {
        model: Some(ModelName::from("m")),
        prefix: BlockHashes::default(),
        prompt_bytes: 4_000,
        output_tokens_max: None,
        output_tokens: None,
        whole_tokens: None,
        answers: 1,
        affinity: None,
        session: None,
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
        deadline: Deadline::after(now, Duration::from_secs(60)),
        hop: 0,
        tenant: None,
        priority: 0,
        residency,
        is_isolated: false,
    }
}

/// Node of region 0 with one replica, and region 1 beside it.
#[derive(Debug)]
struct Case {
    router: SpillwayRouter,
    queue: Queue,
    replica: OwnReplica,
    start: Instant,
    rng: fastrand::Rng,
}

impl Case {
    fn new(count_max: usize) -> Self {
        let mut config = Setup::policy(Policy::PredictedLatency).router;
        config.tuning.predicted.push = Push::NoPending;
        let idle = Reading { value: 0.0, trust: 1.0 };
        #[expect(clippy::disallowed_methods, reason = "a test needs some starting moment")]
        let start = Instant::now();
        Self {
            router: SpillwayRouter::new(config, &position()),
            queue: Queue::new(WaitLimits { count_max, ..WaitLimits::default() }),
            replica: OwnReplica {
                in_flight: 0,
                elsewhere: 0,
                started: 0,
                pending_tokens: 0,
                pending_elsewhere: 0,
                context_tokens: 0,
                read_tokens: 0,
                signals: Signals { queued: idle, running: idle, ..Signals::UNKNOWN },
                rtt_ms: 0.0,
                is_away: false,
                slots: crate::router::Slots::default(),
            },
            start,
            rng: fastrand::Rng::with_seed(1),
        }
    }

    /// Decides about a request at so many milliseconds after the start.
    fn decide(
        &mut self,
        number: usize,
        at_ms: u64,
        others: &[RemoteRegion],
        only: &[&str],
    ) -> RouterVerdict {
        let now = self.start + Duration::from_millis(at_ms);
        let regions = only.iter().map(|name| RegionName::from(*name));
        let inquiry = inquiry(now, Residency::new(regions, []));
        let ask = Ask {
            number,
            inquiry: &inquiry,
            prompt_tokens: 1_000,
            ticket: None,
            tenant: 0,
            weight: 1,
        };
        let sight = WorldView {
            now,
            now_ms: at_ms,
            replicas: &[self.replica],
            others,
            own: RegionReport::default(),
            queue: &self.queue,
            nodes: 1,
            guests: 0,
            truth: &Nothing,
        };
        self.router.decide(&ask, &sight, &mut self.rng)
    }
}

#[test]
fn who_comes_back_when_told_to_has_the_promised_place_in_a_queue_that_is_full_for_others() {
    let mut case = Case::new(1);
    let at = |ms| case.start + Duration::from_millis(ms);
    let deadline = Deadline::after(case.start, Duration::from_secs(600));
    let _entered = case.queue.enter(WaitEntry::new(99, deadline), case.start);
    // Four slots come free each second.
    let asker = WaitEntry::new(0, deadline).asker();
    (1..=40).for_each(|began| case.queue.began(&asker, at(250 * began)));
    // Requests wait at the replica, so that it gets no more.
    case.replica.signals.queued.value = 5.0;
    let shed = case.decide(7, 10_000, &[], &[]);
    let RouterVerdict::Shed(Some(after)) = shed else { panic!("{shed:?}") };
    assert_eq!(case.queue.promised(), 1);
    let again_ms = 10_000 + u64::try_from(after.as_millis()).unwrap();
    let verdict = case.decide(7, again_ms, &[], &[]);
    assert!(matches!(verdict, RouterVerdict::Wait { claim: Claim::Promise, .. }), "{verdict:?}");
    assert!(matches!(case.decide(8, again_ms, &[], &[]), RouterVerdict::Shed(_)), "a newcomer");
}

#[test]
fn a_region_that_may_not_serve_a_request_does_not() {
    let other = RemoteRegion {
        region: 1,
        report: Some(RegionReport::default()),
        rtt_ms: 100.0,
        replicas: 1,
        available: 1,
        waiting: 0,
        kv_use: 0.0,
    };
    let mut case = Case::new(10);
    let serve = RouterVerdict::Serve { replica: 0, prediction: None };
    let kind = std::mem::discriminant(&serve);
    assert_eq!(std::mem::discriminant(&case.decide(0, 0, &[other], &[])), kind);
    assert_eq!(case.decide(1, 0, &[other], &["region-1"]), RouterVerdict::Forward(1));
    let here = case.decide(2, 0, &[other], &["region-0"]);
    assert_eq!(std::mem::discriminant(&here), kind);
    assert!(matches!(case.decide(3, 0, &[other], &["region-2"]), RouterVerdict::Shed(_)));
}

#[test]
fn wrong_speeds_are_wrong_by_the_same_factor_both_ways_and_stay_so() {
    let position = NodePosition { replicas: 1_000, ..position() };
    let wrong = speed_errors(1.0, &position);
    assert!(wrong.iter().all(|factor| (0.5..=2.0).contains(factor)));
    assert!(wrong.iter().any(|factor| *factor < 0.55) && wrong.iter().any(|factor| *factor > 1.8));
    assert_eq!(wrong, speed_errors(1.0, &position));
    assert!(speed_errors(0.0, &position).iter().all(|factor| *factor == 1.0));
}
