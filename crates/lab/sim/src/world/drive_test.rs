//! Rules of the journey that the world keeps to.

use std::cell::RefCell;
use std::rc::Rc;

use spillway_engine::EngineConfig;
use spillway_journey::Event;
use spillway_route::{Guest, Policy, Push, RetryBudgetConfig};

use super::world_test::{REFUSED, config, session};
use super::{World, WorldConfig};
use crate::router::{Ask, Ended, Replied, Router, RouterVerdict, Sent, WorldView};
use crate::{Figures, RouterConfig, Session, Setup, SpillwayRouter};

/// Act or result that a router was asked for, or that was reported to it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    Decided(RouterVerdict),
    Told(Event),
    Refused,
}

/// Number of the request, milliseconds since the beginning, and the event.
type Diary = Rc<RefCell<Vec<(usize, u64, Seen)>>>;

/// Router of the gateway that keeps a diary, and refuses all guests if asked to.
#[derive(Debug)]
struct Witnessed {
    router: SpillwayRouter,
    diary: Diary,
    refuses: bool,
}

impl Witnessed {
    fn note(&self, ask: &Ask<'_>, sight: &WorldView<'_>, seen: Seen) {
        self.diary.borrow_mut().push((ask.number, sight.now_ms, seen));
    }
}

impl Router for Witnessed {
    fn in_flight_max(&self) -> Option<u32> {
        self.router.in_flight_max()
    }

    fn decide(
        &mut self,
        ask: &Ask<'_>,
        sight: &WorldView<'_>,
        rng: &mut fastrand::Rng,
    ) -> RouterVerdict {
        let verdict = self.router.decide(ask, sight, rng);
        self.note(ask, sight, Seen::Decided(verdict));
        verdict
    }

    fn handle(&mut self, ask: &Ask<'_>, sight: &WorldView<'_>, event: Event) {
        self.note(ask, sight, Seen::Told(event));
        self.router.handle(ask, sight, event);
    }

    fn left(&mut self, request: usize) {
        self.router.left(request);
    }

    fn admits(&mut self, ask: &Ask<'_>, sight: &WorldView<'_>) -> Guest {
        if self.refuses {
            self.note(ask, sight, Seen::Refused);
            return REFUSED;
        }
        self.router.admits(ask, sight)
    }

    fn sent(&mut self, sent: &Sent<'_>) {
        self.router.sent(sent);
    }

    fn replied(&mut self, replied: &Replied<'_>) {
        self.router.replied(replied);
    }

    fn ended(&mut self, ended: &Ended<'_>) {
        self.router.ended(ended);
    }
}

fn run(
    world: &WorldConfig,
    router: RouterConfig,
    sessions: Vec<Session>,
    refuses: bool,
) -> (Figures, Vec<(usize, u64, Seen)>) {
    let diary = Diary::default();
    let figures = World::new(world.clone(), sessions, &mut |position| {
        let router = SpillwayRouter::new(router, position);
        Box::new(Witnessed { router, diary: Rc::clone(&diary), refuses })
    })
    .run();
    (figures, diary.take())
}

fn predicted() -> RouterConfig {
    Setup::policy(Policy::PredictedLatency).router
}

#[test]
fn a_request_asks_no_more_regions_than_the_journey_allows_until_it_forgets_their_refusals() {
    let world = config(&[(1, 0), (1, 1), (1, 1), (1, 1)]);
    for regions_asked_max in [1, 2] {
        let router = RouterConfig { regions_asked_max, ..predicted() };
        let (figures, diary) = run(&world, router, vec![session(1.0, 0, &[(1, 500)])], true);
        assert_eq!((figures.requests, figures.failed), (1, 1));
        let asked_ms: Vec<u64> =
            diary.iter().filter(|(_, _, seen)| *seen == Seen::Refused).map(|one| one.1).collect();
        assert!(asked_ms.len() > 2 * regions_asked_max, "refusals are forgotten: {asked_ms:?}");
        // A third region would be asked 200 ms after the first: there and back twice.
        let spans =
            asked_ms.windows(regions_asked_max + 1).map(|some| some[some.len() - 1] - some[0]);
        assert!(spans.min() >= Some(250), "{regions_asked_max}: {asked_ms:?}");
    }
    let router = RouterConfig { regions_asked_max: 0, ..predicted() };
    let (_, diary) = run(&world, router, vec![session(1.0, 0, &[(1, 500)])], true);
    assert!(diary.iter().all(|(_, _, seen)| *seen != Seen::Refused), "{diary:?}");
}

#[test]
fn a_full_replica_is_one_attempt_and_retries_end_with_the_attempts_or_the_budget() {
    let full = |base: WorldConfig| WorldConfig {
        engine: EngineConfig { waiting_max: 0, ..base.engine },
        ..base
    };
    let world = full(config(&[(1, 5)]));
    let sessions = || (0..10).map(|at| session(f64::from(at), 0, &[(1, 500)])).collect();
    let attempts = |router: RouterConfig| {
        let (figures, diary) = run(&world, router, sessions(), false);
        assert_eq!((figures.requests, figures.failed), (10, 10));
        diary.iter().filter(|(_, _, seen)| *seen == Seen::Told(Event::Asked)).count()
    };
    assert_eq!(attempts(predicted()), 30, "three each, as by default");
    assert_eq!(attempts(RouterConfig { attempts_max: 5, ..predicted() }), 50);
    let retries = RetryBudgetConfig { share_percent: 100, in_hand: 4, per_second_min: 0 };
    let seldom = RetryBudgetConfig { share_percent: 0, ..retries };
    assert_eq!(attempts(RouterConfig { retries: seldom, ..predicted() }), 10, "no budget");
    // Four in hand, and each request earns one.
    let some = attempts(RouterConfig { attempts_max: 5, retries, ..predicted() });
    assert!((20..=24).contains(&some), "{some}");
}

#[test]
fn who_is_turned_away_comes_again_when_told_to_and_can_be_served() {
    let mut router = predicted();
    router.tuning.predicted.push = Push::NoPending;
    let world = WorldConfig { patience_s: 20.0, ..config(&[(1, 1)]) };
    let sessions = (0..400_u32)
        .map(|at| session(1.0 + f64::from(at) * 0.05, 0, &[(u64::from(at), 2_000)]))
        .collect();
    let (_, diary) = run(&world, router, sessions, false);
    let turned_away = diary.iter().filter_map(|(number, at, seen)| match seen {
        Seen::Decided(RouterVerdict::Shed(Some(after))) => {
            Some((number, at + after.as_millis() as u64))
        }
        _ => None,
    });
    let mut served = 0;
    for (number, again_ms) in turned_away {
        let next = diary.iter().find(|(other, at, seen)| {
            other == number && *at >= again_ms && matches!(seen, Seen::Decided(_))
        });
        let Some((_, at, _)) = next else { continue };
        assert_eq!(*at, again_ms, "request {number}");
        let is_served = |(other, at, seen): &&(usize, u64, Seen)| {
            other == number && *at >= again_ms && *seen == Seen::Told(Event::Asked)
        };
        served += usize::from(diary.iter().any(|one| is_served(&one)));
    }
    assert!(served > 0, "nobody came again in time");
}

#[test]
fn a_request_waits_in_its_node_while_all_places_are_taken() {
    let world = config(&[(1, 1)]);
    let sessions = || (0..6).map(|at| session(1.0, 0, &[(at, 500)])).collect();
    let waited = |router: RouterConfig| run(&world, router, sessions(), false).0.waited_share;
    assert!(waited(predicted()) < 0.01, "{}", waited(predicted()));
    let few = RouterConfig { connections_max: Some(2), ..predicted() };
    assert!((waited(few) - 4.0 / 6.0).abs() < 0.01, "{}", waited(few));
    let unlimited = RouterConfig { limits: false, ..few };
    assert!(waited(unlimited) < 0.01, "{}", waited(unlimited));
}
