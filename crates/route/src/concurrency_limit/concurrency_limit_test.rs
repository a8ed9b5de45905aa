//! The limit against a model of an engine: what it finds, what it costs, and what it survives.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use super::{ConcurrencyLimit, ConcurrencyTuning, SeenLoad};
use crate::test_world::NOW;

/// Time between two looks.
const LOOK_EVERY_MS: u64 = 100;
/// How many looks a report is late.
const REPORT_LATE: usize = 5;

/// An engine, and a node whose queue is never empty.
#[derive(Clone, Copy, Debug)]
struct Engine {
    /// Most requests that it works on at once.
    slots: usize,
    /// Milliseconds that one takes alone, and until its first token.
    alone_ms: u64,
    first_token_ms: u64,
    /// With so many running each takes twice as long.
    halving: f64,
    /// Whether it reports what waits and runs; half a second late.
    does_report: bool,
    /// From second to second it takes so many times as long.
    slow: Option<(u64, u64, f64)>,
    /// Instead of the limit that is found.
    limit: Option<u32>,
}

#[derive(Debug, Default)]
struct Results {
    /// Ends in each second.
    ended: Vec<u32>,
    /// Mean number that waited in the engine, in each second.
    queued: Vec<f64>,
    /// The limit at the end of each second.
    limits: Vec<u32>,
}

impl Results {
    fn ended(&self, seconds: std::ops::Range<usize>) -> f64 {
        let count = seconds.len() as f64;
        self.ended[seconds].iter().map(|&ended| f64::from(ended)).sum::<f64>() / count
    }

    fn queued(&self, seconds: std::ops::Range<usize>) -> f64 {
        let count = seconds.len() as f64;
        self.queued[seconds].iter().sum::<f64>() / count
    }
}

struct World<'e> {
    engine: &'e Engine,
    limit: ConcurrencyLimit,
    rng: fastrand::Rng,
    /// Milliseconds since the start.
    tick: u64,
    running: usize,
    ends: BinaryHeap<Reverse<u64>>,
    /// When they were sent.
    waiting: VecDeque<u64>,
    /// When the first token comes, and how long it took.
    first_tokens: Vec<(u64, f32)>,
    /// What waited and ran, not heard yet.
    reports: VecDeque<(f32, f32)>,
    /// Most in flight since the last look.
    most: usize,
    results: Results,
}

fn run(engine: &Engine, seconds: u64) -> Results {
    let mut world = World {
        engine,
        limit: ConcurrencyLimit::new(ConcurrencyTuning::default()),
        rng: fastrand::Rng::with_seed(4),
        tick: 0,
        running: 0,
        ends: BinaryHeap::new(),
        waiting: VecDeque::new(),
        first_tokens: Vec::new(),
        reports: VecDeque::new(),
        most: 0,
        results: Results::default(),
    };
    let (mut ended, mut queued) = (0, 0.0);
    for tick in 0..seconds * 1_000 {
        world.tick = tick;
        ended += world.end();
        world.send();
        queued += world.waiting.len() as f64;
        if tick.is_multiple_of(LOOK_EVERY_MS) {
            world.look();
        }
        if tick % 1_000 == 999 {
            world.results.ended.push(std::mem::take(&mut ended));
            world.results.queued.push(std::mem::take(&mut queued) / 1_000.0);
            world.results.limits.push(world.limit.limit());
        }
    }
    world.results
}

impl World<'_> {
    fn end(&mut self) -> u32 {
        let mut ended = 0;
        while self.ends.peek().is_some_and(|Reverse(at)| *at <= self.tick) {
            self.ends.pop();
            self.running -= 1;
            ended += 1;
        }
        ended
    }

    /// There is always more to send.
    fn send(&mut self) {
        let allowed = self.engine.limit.unwrap_or_else(|| self.limit.limit()) as usize;
        while self.running + self.waiting.len() < allowed {
            self.waiting.push_back(self.tick);
        }
        while self.running < self.engine.slots
            && let Some(sent) = self.waiting.pop_front()
        {
            self.begin(sent);
        }
        self.most = self.most.max(self.running + self.waiting.len());
    }

    fn begin(&mut self, sent: u64) {
        self.running += 1;
        let second = self.tick / 1_000;
        let slow = self.engine.slow.filter(|(from, to, _)| (*from..*to).contains(&second));
        let batch = 1.0 + self.running as f64 / self.engine.halving;
        let factor = batch * slow.map_or(1.0, |slow| slow.2) * (0.8 + 0.4 * self.rng.f64());
        let after = |ms: u64| (ms as f64 * factor) as u64;
        self.ends.push(Reverse(self.tick + after(self.engine.alone_ms)));
        let first_ms = after(self.engine.first_token_ms);
        self.first_tokens.push((self.tick + first_ms, (self.tick - sent + first_ms) as f32));
    }

    fn look(&mut self) {
        self.reports.push_back((self.waiting.len() as f32, self.running as f32));
        let is_heard = self.reports.len() > REPORT_LATE;
        let report = if is_heard { self.reports.pop_front() } else { None };
        let report = report.filter(|_| self.engine.does_report);
        let tick = self.tick;
        let mut come: Vec<f32> = Vec::new();
        self.first_tokens.retain(|&(at, first)| {
            come.extend((at <= tick).then_some(first));
            at > tick
        });
        let mean = come.iter().sum::<f32>() / come.len() as f32;
        let seen = SeenLoad {
            in_flight: self.most as u32,
            queued: report.map(|report| report.0),
            running: report.map(|report| report.1),
            first_token: (!come.is_empty()).then_some(mean),
        };
        if self.engine.does_report == report.is_some() {
            self.limit.update(&seen, at(tick));
        }
        self.most = self.running + self.waiting.len();
    }
}

fn at(ms: u64) -> Instant {
    *NOW + Duration::from_millis(ms)
}

/// Batches that scale: 48 at once end eight times as many as one alone.
fn chat() -> Engine {
    Engine {
        slots: 48,
        alone_ms: 2_000,
        first_token_ms: 60,
        halving: 10.0,
        does_report: true,
        slow: None,
        limit: None,
    }
}

/// Four at once, no better together.
fn small() -> Engine {
    Engine { slots: 4, alone_ms: 150, first_token_ms: 150, halving: 4.0, ..chat() }
}

fn all() -> [(&'static str, Engine); 6] {
    let large = Engine { slots: 256, halving: 64.0, ..chat() };
    let silent = |engine: Engine| Engine { does_report: false, ..engine };
    [
        ("chat", chat()),
        ("small", small()),
        ("large", large),
        ("silent chat", silent(chat())),
        ("silent small", silent(small())),
        ("silent large", silent(large)),
    ]
}

#[test]
fn it_keeps_replicas_as_busy_as_they_can_be_and_the_queue_out_of_them() {
    for (name, engine) in all() {
        let found = run(&engine, 200);
        let best = run(&Engine { limit: Some(2 * engine.slots as u32), ..engine }, 60);
        let (ended, most) = (found.ended(30..200), best.ended(20..60));
        assert!(ended >= 0.95 * most, "{name}: {ended} of {most}, {:?}", found.limits);
        let queued = found.queued(30..200);
        let allowed = match engine.does_report {
            true => 0.25 * engine.slots as f64,
            // As many as make the first token eight times as late.
            false => 8.0 * engine.slots as f64,
        };
        assert!(queued <= allowed.max(2.0), "{name}: {queued} wait, {:?}", found.limits);
    }
}

#[test]
fn it_is_there_again_soon_after_a_slow_phase() {
    for (name, engine) in all() {
        let engine = Engine { slow: Some((60, 90, 4.0)), ..engine };
        let found = run(&engine, 160);
        let (before, after) = (found.ended(30..60), found.ended(110..160));
        assert!(after >= 0.95 * before, "{name}: {before}, then {after}: {:?}", found.limits);
    }
}

#[test]
fn what_it_is_not_asked_for_does_not_change_it() {
    let mut limit = ConcurrencyLimit::new(ConcurrencyTuning::default());
    for step in 0..1_000 {
        let seen = SeenLoad {
            in_flight: 3,
            queued: Some(0.0),
            running: Some(3.0),
            first_token: Some(100.0),
        };
        assert_eq!(limit.update(&seen, at(step * 100)), 32);
    }
}

#[test]
fn what_others_send_is_shared_with_them() {
    let mut limit = ConcurrencyLimit::new(ConcurrencyTuning::default());
    // Half of what is there is this node's, and half of it waits.
    let seen =
        SeenLoad { in_flight: 32, queued: Some(32.0), running: Some(32.0), ..SeenLoad::default() };
    (0..50).for_each(|step| {
        limit.update(&seen, at(step * 100));
    });
    assert_eq!(limit.limit(), 17);
}

#[test]
fn a_queue_never_raises_it() {
    let mut limit = ConcurrencyLimit::new(ConcurrencyTuning::default());
    // More is there than it allows, of before, and most of that is worked on.
    let seen =
        SeenLoad { in_flight: 64, queued: Some(20.0), running: Some(60.0), ..SeenLoad::default() };
    (0..50).for_each(|step| assert_eq!(limit.update(&seen, at(step * 100)), 32));
}

#[test]
fn what_came_late_before_it_was_lowered_lowers_it_once() {
    let mut limit = ConcurrencyLimit::new(ConcurrencyTuning::default());
    let mut update = |first_token: f32, ms: u64| {
        let in_flight = limit.limit() - 1;
        let first_token = Some(first_token);
        limit.update(&SeenLoad { in_flight, first_token, ..SeenLoad::default() }, at(ms))
    };
    (0..20).for_each(|step| assert_eq!(update(10.0, step * 100), 32));
    let lowered = (20..40).map(|step| update(400.0, step * 100)).find(|&limit| limit < 32);
    assert_eq!(lowered, Some(29));
    (0..10).for_each(|step| assert_eq!(update(75.0, 5_000 + step * 1_100), 29));
}

#[test]
fn it_stays_within_its_bounds_whatever_is_reported() {
    let tuning = ConcurrencyTuning { min: 3, max: 20, ..ConcurrencyTuning::default() };
    let mut limit = ConcurrencyLimit::new(tuning);
    assert_eq!(limit.limit(), 20);
    let numbers = [0.0, -1.0, 1.0, 1e9, f32::INFINITY, f32::NAN];
    let mut rng = fastrand::Rng::with_seed(1);
    let mut number = || numbers[rng.usize(..numbers.len())];
    for step in 0..5_000 {
        let seen = SeenLoad {
            in_flight: number() as u32,
            queued: (step % 3 > 0).then(&mut number),
            running: (step % 2 > 0).then(&mut number),
            first_token: (step % 5 > 0).then(&mut number),
        };
        let now = limit.update(&seen, at(step * 60));
        assert!((3..=20).contains(&now), "{step}: {now}");
    }
}
