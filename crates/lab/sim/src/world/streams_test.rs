//! Streams whose target fails or is being drained: none fails while there is room for it, and each
//! client gets each token once.

use std::collections::BTreeSet;

use spillway_engine::{EngineConfig, Profile};
use spillway_journey::{Ending, Event, Unasked};
use spillway_route::{Guest, Policy, RetryBudgetConfig};

use super::world_test::config;
use super::{Fate, Fault, FaultKind, Figures, StreamRecord, World, WorldConfig};
use crate::router::{Ask, Replied, Router, RouterVerdict, Sent, WorldView};
use crate::{Operator, Piece, RouterConfig, Session, Setup, SpillwayRouter, Text, Time, Turn};

/// Tokens of each reply: about 4 s.
const REPLY_TOKENS: u32 = 400;

/// Seconds at which the first streams are half-way, and faults begin.
const FAULT_S: f64 = 4.0;

/// Returns a world with streams that are continued.
fn world(regions: &[(usize, usize)], seed: u64, faults: Vec<Fault>) -> WorldConfig {
    let operator = Operator { continues_streams: true, ..Operator::default() };
    let engine = EngineConfig::from_profile(Profile::A100);
    WorldConfig { engine, operator, seed, faults, end_s: 60.0, ..config(regions) }
}

fn fault(kind: FaultKind) -> Fault {
    lasting(kind, 40.0)
}

fn lasting(kind: FaultKind, seconds: f64) -> Fault {
    Fault { begin_s: FAULT_S, end_s: FAULT_S + seconds, kind }
}

/// Returns so many sessions with one stream each that begin in the second before the 3rd, with
/// clients in these regions.
fn sessions(count: u32, regions: &[usize]) -> Vec<Session> {
    let session = |at: u32| Session {
        start: Time::from_s(2.0 + f64::from(at) / f64::from(count)),
        region: regions[at as usize % regions.len()],
        affinity: u64::from(at),
        turns: vec![Turn {
            after: None,
            think_us: 0,
            prompt: Text::new(vec![
                Piece { id: 1, tokens: 512 },
                Piece { id: 1_000 + u64::from(at), tokens: 32 },
            ]),
            reply: Piece { id: 1_000_000 + u64::from(at), tokens: REPLY_TOKENS },
        }],
    };
    (0..count).map(session).collect()
}

fn routing() -> RouterConfig {
    Setup::policy(Policy::PredictedLatency).router
}

fn run(world: &WorldConfig, router: RouterConfig, sessions: Vec<Session>) -> Figures {
    World::new(world.clone(), sessions, &mut |position| {
        Box::new(SpillwayRouter::new(router, position))
    })
    .run()
}

/// Router that sends what its clients ask to the second region and serves all guests, and is the
/// gateway's in all else.
#[derive(Debug)]
struct Sender {
    router: SpillwayRouter,
    /// True in the second region.
    is_there: bool,
    sent: BTreeSet<usize>,
}

impl Router for Sender {
    fn decide(
        &mut self,
        ask: &Ask<'_>,
        sight: &WorldView<'_>,
        rng: &mut fastrand::Rng,
    ) -> RouterVerdict {
        let is_own = ask.inquiry.hop == 0;
        if is_own && !self.is_there && self.sent.insert(ask.number) {
            return RouterVerdict::Forward(1);
        }
        let replica = ask.number % sight.replicas.len();
        if !is_own && !sight.replicas[replica].is_away {
            return RouterVerdict::Serve { replica, prediction: None };
        }
        self.router.decide(ask, sight, rng)
    }

    fn handle(&mut self, ask: &Ask<'_>, sight: &WorldView<'_>, event: Event) {
        self.router.handle(ask, sight, event);
    }

    fn left(&mut self, request: usize) {
        self.router.left(request);
    }

    fn in_flight_max(&self) -> Option<u32> {
        self.router.in_flight_max()
    }

    fn sent(&mut self, sent: &Sent<'_>) {
        self.router.sent(sent);
    }

    fn replied(&mut self, replied: &Replied<'_>) {
        self.router.replied(replied);
    }

    fn resume(&mut self, ask: &Ask<'_>, sight: &WorldView<'_>, unasked: &Unasked, deaths: u8) {
        self.sent.insert(ask.number);
        self.router.resume(ask, sight, unasked, deaths);
    }

    fn ending(&self, request: usize) -> Option<(Ending, u8)> {
        self.router.ending(request)
    }

    fn take_retry(&mut self, now: std::time::Instant) -> bool {
        self.router.take_retry(now)
    }

    fn set_evacuated(&mut self, is_evacuated: bool) {
        self.router.set_evacuated(is_evacuated);
    }

    fn admits(&mut self, _ask: &Ask<'_>, _sight: &WorldView<'_>) -> Guest {
        Guest::Welcome
    }
}

/// Runs a world in which the second region serves all streams at first.
fn run_away(world: &WorldConfig, sessions: Vec<Session>) -> Figures {
    World::new(world.clone(), sessions, &mut |position| {
        let router = SpillwayRouter::new(without_retries(), position);
        Box::new(Sender { router, is_there: position.region == 1, sent: BTreeSet::new() })
    })
    .run()
}

/// Returns settings whose budget of retries is empty.
fn without_retries() -> RouterConfig {
    let none = RetryBudgetConfig { share_percent: 0, in_hand: 0, per_second_min: 0 };
    RouterConfig { retries: none, ..routing() }
}

/// Checks that each client has its whole stream, each token once and in order, and that no stream
/// was silent for longer. Returns the streams.
fn whole(figures: &Figures, count: usize, silence_ms: f64) -> Vec<StreamRecord> {
    let streams: Vec<StreamRecord> = figures.streams.iter().flatten().copied().collect();
    assert_eq!((figures.records.len(), streams.len()), (count, count));
    for (record, stream) in figures.records.iter().zip(&streams) {
        assert_eq!(record.fate, Fate::Answered, "{record:?} {stream:?}");
        assert!(stream.is_exact && stream.tokens == REPLY_TOKENS, "{stream:?}");
        assert!(stream.silence_ms <= silence_ms, "{stream:?}");
    }
    streams
}

fn continued(streams: &[StreamRecord]) -> usize {
    streams.iter().filter(|stream| stream.continuations > 0).count()
}

fn moved(streams: &[StreamRecord]) -> usize {
    streams.iter().filter(|stream| stream.moves > 0).count()
}

#[test]
fn streams_of_a_killed_replica_go_on_at_the_others_without_a_gap() {
    for seed in 0..10 {
        let lost = vec![fault(FaultKind::ReplicaLost { replica: 0 })];
        let nodes = 1 + seed as usize % 2;
        let world = world(&[(nodes, 3)], seed, lost);
        let figures = run(&world, routing(), sessions(60, &[0]));
        let streams = whole(&figures, 60, 500.0);
        assert!((10..40).contains(&continued(&streams)), "{seed}: {}", continued(&streams));
        // Without continuations, as many fail.
        let world = WorldConfig { operator: Operator::default(), ..world };
        let figures = run(&world, routing(), sessions(60, &[0]));
        let failed = figures.records.iter().filter(|one| one.fate == Fate::Failed).count();
        assert_eq!(failed, continued(&streams), "{seed}");
    }
}

#[test]
fn streams_of_a_lost_region_go_on_elsewhere_within_two_seconds() {
    let (cut, back) = (FaultKind::Cut { a: 0, b: 1 }, FaultKind::Cut { a: 2, b: 1 });
    let killed = FaultKind::RegionLost { region: 1, moved_after_s: 60.0 };
    for (seed, kinds) in (0..3).flat_map(|seed| [(seed, vec![killed]), (seed, vec![cut, back])]) {
        let faults = kinds.iter().map(|&kind| fault(kind)).collect();
        let world = world(&[(1, 4), (1, 4), (2, 4)], seed, faults);
        let figures = run_away(&world, sessions(200, &[0, 2]));
        let streams = whole(&figures, 200, 2_000.0);
        assert_eq!(continued(&streams), 200, "{seed}: {kinds:?}");
        assert!(streams.iter().all(|one| (one.retries, one.deaths, one.moves) == (0, 0, 0)));
    }
}

#[test]
fn streams_survive_a_short_cut_where_they_are() {
    for seed in 0..3 {
        let cuts = [FaultKind::Cut { a: 0, b: 1 }, FaultKind::OneWay { from: 1, to: 2 }];
        let faults = cuts.iter().map(|&kind| lasting(kind, 0.7)).collect();
        let world = world(&[(1, 4), (1, 4), (2, 4)], seed, faults);
        let figures = run_away(&world, sessions(200, &[0, 2]));
        let streams = whole(&figures, 200, 1_000.0);
        assert_eq!((continued(&streams), moved(&streams)), (0, 0));
        assert!(streams.iter().all(|stream| stream.silence_ms > 600.0));
    }
}

#[test]
fn requests_on_their_way_to_a_lost_region_are_sent_elsewhere() {
    let killed = FaultKind::RegionLost { region: 1, moved_after_s: 60.0 };
    // From the moment at which requests begin to come.
    let lost = Fault { begin_s: 2.01, ..fault(killed) };
    let world = world(&[(1, 4), (1, 4)], 1, vec![lost]);
    let figures = run_away(&world, sessions(20, &[0]));
    whole(&figures, 20, 2_000.0);
    assert!(figures.records.iter().all(|record| record.served_by == Some(0)));
    // A second of silence, and its own path.
    assert!(figures.records.iter().all(|record| record.first_token_ms < Some(2_000.0)));
}

#[test]
fn streams_leave_a_replica_that_is_being_drained_while_others_have_room() {
    for seed in 0..10 {
        let drained = fault(FaultKind::ReplicaDrained { replica: 0 });
        // No client notices that it is gone, once it is empty.
        let begin_s = FAULT_S + 1.0;
        let gone = Fault { begin_s, ..fault(FaultKind::ReplicaLost { replica: 0 }) };
        let world = world(&[(1 + seed as usize % 2, 3)], seed, vec![drained, gone]);
        let figures = run(&world, without_retries(), sessions(60, &[0]));
        let streams = whole(&figures, 60, 500.0);
        assert!((10..40).contains(&moved(&streams)), "{seed}: {}", moved(&streams));
        assert!(streams.iter().all(|one| (one.continuations, one.retries) == (0, 0)));
    }
}

#[test]
fn streams_leave_a_region_that_is_being_drained_whoever_their_clients_are() {
    for seed in 0..3 {
        let drained = fault(FaultKind::RegionDrained { region: 1 });
        let gone = (4..8).map(|replica| {
            let kind = FaultKind::ReplicaLost { replica };
            Fault { begin_s: FAULT_S + 2.0, ..fault(kind) }
        });
        let faults = [drained].into_iter().chain(gone).collect();
        let world = world(&[(1, 4), (1, 4), (2, 4)], seed, faults);
        let figures = run_away(&world, sessions(120, &[0, 1, 2]));
        let streams = whole(&figures, 120, 500.0);
        assert_eq!((moved(&streams), continued(&streams)), (120, 0), "{seed}");
    }
}

#[test]
fn streams_stay_where_a_place_drains_while_no_other_has_room() {
    let drained = vec![fault(FaultKind::ReplicaDrained { replica: 0 })];
    let figures = run(&world(&[(1, 1)], 1, drained.clone()), without_retries(), sessions(20, &[0]));
    assert_eq!(moved(&whole(&figures, 20, 500.0)), 0);
    for seed in 0..5 {
        // The two others have five slots each.
        let router = RouterConfig { connections_max: Some(15), ..without_retries() };
        let world = world(&[(1, 3)], seed, drained.clone());
        let figures = run(&world, router, sessions(30, &[0]));
        let streams = whole(&figures, 30, 500.0);
        assert!((5..=15).contains(&moved(&streams)), "{seed}: {}", moved(&streams));
    }
}

#[test]
fn a_poisonous_request_kills_two_engines_and_no_more() {
    for seed in 0..10 {
        let world = world(&[(1, 4)], seed, vec![fault(FaultKind::Poison { session: 40 })]);
        let mut sessions = sessions(40, &[0]);
        let start = Time::from_s(FAULT_S);
        sessions.push(Session { start, ..sessions[0].clone() });
        let figures = run(&world, routing(), sessions);
        let of = |at: usize| (figures.records[at].fate, figures.streams[at].unwrap());
        let (fate, poison) = of(40);
        assert_eq!((fate, poison.deaths, poison.continuations), (Fate::Failed, 2, 1), "{seed}");
        let others = (0..40).map(of);
        // It looks the same as a request that was at both engines by chance.
        let failed = others.clone().filter(|(fate, _)| *fate == Fate::Failed).count();
        let twice = others.clone().filter(|(_, stream)| stream.deaths == 2).count();
        assert!(failed == twice && failed < 10, "{seed}: {failed}, {twice}");
        assert!(others.clone().any(|(_, stream)| stream.continuations > 0));
        assert!(others.clone().all(|(_, stream)| stream.is_exact && stream.deaths <= 2));
    }
}

#[test]
fn no_stream_is_lost_or_has_a_token_twice_in_a_world_where_everything_breaks() {
    let kinds = [
        FaultKind::Cut { a: 0, b: 1 },
        FaultKind::OneWay { from: 2, to: 0 },
        FaultKind::Slow { a: 1, b: 2, factor: 10.0 },
        FaultKind::ReplicaLost { replica: 3 },
        FaultKind::ReplicaDrained { replica: 0 },
        FaultKind::RegionDrained { region: 1 },
        FaultKind::RegionLost { region: 2, moved_after_s: 2.0 },
        FaultKind::Poison { session: 100 },
        FaultKind::Lying { replica: 1 },
    ];
    for seed in 0..10 {
        let fault = |(at, kind): (u64, &FaultKind)| {
            let begin_s = 1.0 + 2.0 * ((at + seed) % 9) as f64;
            Fault { begin_s, end_s: begin_s + 4.0, kind: *kind }
        };
        let faults = (0..).zip(&kinds).map(fault).collect();
        let engine = EngineConfig::from_profile(Profile::L4);
        let world = world(&[(2, 2), (1, 2), (2, 1)], seed, faults);
        let world = WorldConfig { engine, patience_s: 3.0, ..world };
        let asked = |(at, session): (u32, Session)| Session {
            start: Time::from_s(f64::from(at) * 0.08),
            turns: session
                .turns
                .into_iter()
                .map(|turn| Turn { reply: Piece { tokens: 40, ..turn.reply }, ..turn })
                .collect(),
            ..session
        };
        let sessions: Vec<Session> = (0..).zip(sessions(250, &[0, 1, 2])).map(asked).collect();
        let figures = run(&world, routing(), sessions.clone());
        assert!(figures.records.iter().all(|record| record.fate != Fate::Open), "{seed}");
        assert_eq!(figures.records.len(), 250);
        for (record, stream) in figures.records.iter().zip(&figures.streams) {
            let Some(stream) = stream else { continue };
            let is_whole = record.fate == Fate::Answered && stream.tokens == 40;
            assert!(stream.is_exact, "{record:?} {stream:?}");
            assert!(is_whole || record.fate == Fate::Failed, "{record:?} {stream:?}");
        }
        assert_eq!(figures, run(&world, routing(), sessions), "{seed}");
    }
}
