use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use spillway_engine::{EngineConfig, Profile};
use spillway_journey::{Claim, Event, WaitTerms};
use spillway_route::{Guest, Policy, ShedReason};

use super::{News, RegionConfig, World, WorldConfig};
use crate::router::{Ask, Router, RouterVerdict, WorldView};
use crate::{Figures, Piece, RouterConfig, Session, Setup, SpillwayRouter, Text, Time, Turn};

#[expect(clippy::disallowed_methods, reason = "some moment has to stand for time 0")]
pub(super) fn config(regions: &[(usize, usize)]) -> WorldConfig {
    WorldConfig {
        regions: regions
            .iter()
            .map(|&(nodes, replicas)| RegionConfig { nodes, replicas })
            .collect(),
        rtt_ms: (0..regions.len())
            .map(|a| (0..regions.len()).map(|b| if a == b { 0.0 } else { 100.0 }).collect())
            .collect(),
        engine: EngineConfig::from_profile(Profile::L4),
        central: None,
        news: News::default(),
        patience_s: 10.0,
        warm_up_s: 0.0,
        end_s: 100.0,
        slow: Vec::new(),
        faults: Vec::new(),
        operator: crate::Operator::default(),
        tenants: Vec::new(),
        seed: 1,
        origin: Instant::now(),
    }
}

pub(super) fn session(at_s: f64, region: usize, prompts: &[(u64, u32)]) -> Session {
    let turn = |(at, &(id, tokens)): (usize, &(u64, u32))| Turn {
        after: at.checked_sub(1),
        think_us: 1_000_000,
        prompt: Text::new(vec![Piece { id, tokens }]),
        reply: Piece { id: 1 << 40, tokens: 10 },
    };
    Session {
        start: Time::from_s(at_s),
        region,
        affinity: 0,
        turns: prompts.iter().enumerate().map(turn).collect(),
    }
}

/// Router that gives every request one verdict, except that it serves guests, if asked to, and
/// requests that another region refused.
#[derive(Clone, Debug)]
pub(super) struct Fixed {
    own: RouterVerdict,
    admits: bool,
    refused: BTreeSet<usize>,
}

/// Refusal of a guest, which no limit grows by.
pub(super) const REFUSED: Guest = Guest::Refused { wait_ms: 1.0, lack: None };

impl Fixed {
    pub(super) fn new(own: RouterVerdict, admits: bool) -> Self {
        Self { own, admits, refused: BTreeSet::new() }
    }

    fn is_new(&self, ask: &Ask<'_>) -> bool {
        ask.inquiry.hop == 0 && !self.refused.contains(&ask.number)
    }
}

impl Router for Fixed {
    fn decide(
        &mut self,
        ask: &Ask<'_>,
        _sight: &WorldView<'_>,
        _rng: &mut fastrand::Rng,
    ) -> RouterVerdict {
        let serve = RouterVerdict::Serve { replica: 0, prediction: None };
        if self.is_new(ask) { self.own } else { serve }
    }

    fn handle(&mut self, ask: &Ask<'_>, _sight: &WorldView<'_>, event: Event) {
        if matches!(event, Event::RegionFailed { .. }) {
            self.refused.insert(ask.number);
        }
    }

    fn admits(&mut self, _ask: &Ask<'_>, _sight: &WorldView<'_>) -> Guest {
        if self.admits { Guest::Welcome } else { REFUSED }
    }
}

/// Router that records when clients ask, in milliseconds since the beginning.
#[derive(Debug)]
struct Watched {
    fixed: Fixed,
    asked_ms: Rc<RefCell<Vec<u64>>>,
}

impl Router for Watched {
    fn decide(
        &mut self,
        ask: &Ask<'_>,
        sight: &WorldView<'_>,
        rng: &mut fastrand::Rng,
    ) -> RouterVerdict {
        if self.fixed.is_new(ask) {
            self.asked_ms.borrow_mut().push(sight.now_ms);
        }
        self.fixed.decide(ask, sight, rng)
    }

    fn handle(&mut self, ask: &Ask<'_>, sight: &WorldView<'_>, event: Event) {
        self.fixed.handle(ask, sight, event);
    }

    fn admits(&mut self, ask: &Ask<'_>, sight: &WorldView<'_>) -> Guest {
        self.fixed.admits(ask, sight)
    }
}

pub(super) fn run_fixed(config: WorldConfig, sessions: Vec<Session>, fixed: Fixed) -> Figures {
    World::new(config, sessions, &mut |_| Box::new(fixed.clone())).run()
}

/// Returns the milliseconds from the arrival at an idle L4 to the first token of such a prompt.
pub(super) fn idle_ms(prompt_tokens: u64) -> f64 {
    let cost = Profile::L4.step_cost();
    cost.duration(prompt_tokens, 1, prompt_tokens).as_secs_f64() * 1e3
}

#[test]
fn a_lone_request_takes_what_the_engine_takes_and_the_way_there_and_back() {
    let serve = Fixed::new(RouterVerdict::Serve { replica: 0, prediction: None }, true);
    let figures = run_fixed(config(&[(1, 1)]), vec![session(1.0, 0, &[(1, 500)])], serve);
    assert_eq!((figures.requests, figures.failed), (1, 0));
    assert!((figures.first_token_ms.p50 - idle_ms(500) - 0.5).abs() < 0.01, "{figures:?}");
}

#[test]
fn a_guest_pays_for_the_way_and_one_that_is_refused_pays_for_nothing() {
    let away = Fixed::new(RouterVerdict::Forward(1), true);
    let sessions = vec![session(1.0, 0, &[(1, 500)])];
    let figures = run_fixed(config(&[(1, 1), (1, 1)]), sessions.clone(), away.clone());
    assert!((figures.first_token_ms.p50 - idle_ms(500) - 100.5).abs() < 0.01, "{figures:?}");
    assert_eq!(figures.forwarded_share, 1.0);
    // Refused in the other region, and then served at home.
    let refused = run_fixed(config(&[(1, 1), (1, 1)]), sessions, Fixed { admits: false, ..away });
    assert!((refused.first_token_ms.p50 - idle_ms(500) - 100.5).abs() < 0.01, "{refused:?}");
    assert_eq!(refused.forwarded_share, 0.0);
}

#[test]
fn the_next_question_follows_the_reply_and_finds_the_cache_warm() {
    let serve = Fixed::new(RouterVerdict::Serve { replica: 0, prediction: None }, true);
    let sessions = vec![session(1.0, 0, &[(1, 640), (1, 640)])];
    let figures = run_fixed(config(&[(1, 1)]), sessions, serve);
    // All but the last block of the second prompt is cached; the last one is always computed.
    assert_eq!(figures.requests, 2);
    assert!((figures.cached_share - 624.0 / 1_280.0).abs() < 1e-9, "{figures:?}");
}

#[test]
fn a_client_thinks_once_it_has_its_reply_which_a_guest_gets_later() {
    let pause_ms = |own, admits| {
        let asked_ms = Rc::new(RefCell::new(Vec::new()));
        let fixed = Fixed::new(own, admits);
        let sessions = vec![session(1.0, 0, &[(1, 500), (2, 500)])];
        let figures = World::new(config(&[(1, 1), (1, 1)]), sessions, &mut |_| {
            Box::new(Watched { fixed: fixed.clone(), asked_ms: Rc::clone(&asked_ms) })
        })
        .run();
        assert_eq!((figures.requests, figures.failed), (2, 0));
        let asked_ms = asked_ms.borrow();
        assert_eq!((asked_ms.len(), asked_ms[0]), (2, 1_000));
        asked_ms[1] - asked_ms[0]
    };
    let at_home = pause_ms(RouterVerdict::Serve { replica: 0, prediction: None }, true);
    // A second of thought, and ten tokens of about 30 ms each on an L4.
    assert!((1_200..1_800).contains(&at_home), "{at_home}");
    let away = pause_ms(RouterVerdict::Forward(1), true);
    assert!(away.abs_diff(at_home + 100) <= 1, "there and back: {away}, at home {at_home}");
    let refused = pause_ms(RouterVerdict::Forward(1), false);
    assert!(refused.abs_diff(at_home + 100) <= 1, "in vain: {refused}, at home {at_home}");
}

#[test]
fn whoever_gets_no_answer_in_time_has_failed_and_leaves_no_trace() {
    let config = config(&[(2, 1)]);
    let terms = WaitTerms {
        until: config.origin + Duration::from_secs(1_000),
        over: ShedReason::Waited,
        begin_by: None,
        turn_by: None,
        pause: Duration::from_millis(250),
        passes_turn_on: false,
    };
    let wait = Fixed::new(RouterVerdict::Wait { terms, claim: Claim::Newcomer }, true);
    let sessions = (0..20).map(|at| session(f64::from(at), 0, &[(1, 500), (1, 500)])).collect();
    let figures = run_fixed(config, sessions, wait);
    // Its client goes on with the next turn.
    assert_eq!((figures.requests, figures.failed), (40, 40));
    assert_eq!(figures.goodput_per_s(1e9), 0.0);
    assert_eq!(figures.waited_share, 1.0);
}

pub(super) fn spillway(config: &WorldConfig, policy: Policy, sessions: Vec<Session>) -> Figures {
    let router: RouterConfig = Setup::policy(policy).router;
    World::new(config.clone(), sessions, &mut |position| {
        Box::new(SpillwayRouter::new(router, position))
    })
    .run()
}

fn many(count: u32) -> Vec<Session> {
    (0..count).map(|at| session(f64::from(at) * 0.2, 0, &[(u64::from(at % 7), 800)])).collect()
}

#[test]
fn a_run_is_the_same_each_time_and_another_one_for_another_seed() {
    // It draws replicas, so seeds differ.
    let base = config(&[(3, 3), (2, 2)]);
    let first = spillway(&base, Policy::PowerOfTwo, many(300));
    assert_eq!(first, spillway(&base, Policy::PowerOfTwo, many(300)));
    let other = WorldConfig { seed: 2, ..base };
    assert_ne!(first, spillway(&other, Policy::PowerOfTwo, many(300)));
}

#[test]
fn all_policies_serve_all_requests_of_a_light_load() {
    for &policy in Policy::ALL {
        let figures = spillway(&config(&[(2, 3), (1, 2)]), policy, many(200));
        assert_eq!((figures.requests, figures.failed), (200, 0), "{policy}");
    }
}

#[test]
fn a_slow_replica_gets_less_once_it_is_known_to_be_slow() {
    let slow = WorldConfig { slow: vec![(0, 4.0)], ..config(&[(1, 3)]) };
    // Prompts without any repetition, so that caches make no difference.
    let sessions: Vec<Session> = (0..400_u32)
        .map(|at| session(f64::from(at) * 0.25, 0, &[(1_000 + u64::from(at), 600)]))
        .collect();
    let served = |policy| {
        let figures = spillway(&slow, policy, sessions.clone());
        let work = &figures.regions[0].work_s;
        work[0] / 4.0 / (work[1] + work[2])
    };
    let (blind, seeing) = (served(Policy::RoundRobin), served(Policy::PredictedLatency));
    assert!(blind > 0.25, "{blind}");
    assert!(seeing < 0.7 * blind, "{seeing} and {blind}");
}

#[test]
fn news_of_an_unheard_neighbour_never_arrive() {
    let sessions = || many(400);
    let heard = spillway(&config(&[(8, 4)]), Policy::PredictedLatency, sessions());
    let news = News { share_ms: None, ..News::default() };
    let deaf = WorldConfig { news, ..config(&[(8, 4)]) };
    let deaf = spillway(&deaf, Policy::PredictedLatency, sessions());
    assert!(deaf.cached_share < heard.cached_share, "{deaf:?}");
}
