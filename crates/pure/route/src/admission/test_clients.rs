//! Clients that are refused and come back, in virtual time: replicas with a fixed number of slots,
//! the queue before them, and clients that honour `Retry-After` or don't.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use spillway_types::{Deadline, Inquiry, ModelLoad};

use super::{Admission, Asker, HoldTime, Refusal, Turnover, expected_rate};
use crate::test_world::{Array, NOW, inquiry};
use crate::{
    Moment, OwnRegion, RegionReport, ShedReason, SpillTerms, SpillVerdict, WaitEntry, WaitLimits,
    spill,
};

const MS: u64 = 1_000;
const SECOND: u64 = 1_000 * MS;

/// Requests that the replicas serve at once.
pub(super) const SLOTS: usize = 40;
/// Mean service time; each request takes between a half and one and a half of it.
const SERVICE: u64 = SECOND;
/// Requests per second that the replicas can serve.
pub(super) const CAPACITY: f64 = (SLOTS as u64 * SECOND / SERVICE) as f64;
/// Largest delay of a client beyond its Retry-After: the network and its timers.
const LATE_MAX: u64 = 200 * MS;
/// Attempts after which a client gives up.
const ATTEMPTS_MAX: u32 = 10;

/// Group of clients with one behaviour.
#[derive(Clone, Debug)]
pub(super) struct Crowd {
    pub(super) source: Source,
    pub(super) tenant: u64,
    pub(super) priority: u8,
    pub(super) tokens: u32,
    /// Least and most tokens of the requests, whose service time is then in proportion to their
    /// size.
    pub(super) sizes: Option<[u32; 2]>,
    /// Part of the clients that come back at the promised time; the others go away for good.
    pub(super) honour: f64,
    /// Milliseconds until the deadline.
    pub(super) deadline_ms: u64,
    /// Objective of the route in milliseconds.
    pub(super) slo_ms: Option<u64>,
}

/// Source of requests.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// Poisson arrivals: from each of these seconds on, a multiple of the capacity.
    Open(Vec<(u64, f64)>),
    /// Clients that send, wait for the reply, and think for a mean time.
    Closed { clients: usize, think_ms: u64 },
    /// Burst of requests at once, in this second.
    Burst { second: u64, requests: usize },
}

/// Expected service rate while no rate was measured.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected {
    Unknown,
    PerSecond(f64),
    /// Rate learned from the time that requests took.
    Learned,
    /// Guess until a rate was learned: this multiple of the capacity.
    Guessed(f64),
}

#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) crowds: Vec<Crowd>,
    pub(super) queue_max: usize,
    /// Second at which measuring begins, and second at which new requests end.
    pub(super) seconds: [u64; 2],
    /// Second from which replicas are slower, and the factor.
    pub(super) slower: Option<(u64, f64)>,
    pub(super) expected: Expected,
    pub(super) seed: u64,
}

/// Results for a crowd's requests that first came while measuring.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    pub(super) requests: u64,
    pub(super) served: u64,
    pub(super) attempts: u64,
    /// Requests refused at the first attempt, back again, and served at the second.
    pub(super) second_attempts: u64,
    pub(super) second_served: u64,
    /// Requests served whose first token missed the objective.
    pub(super) slo_missed: u64,
    /// Milliseconds from the served attempt until its reply was complete.
    latencies_ms: Vec<f64>,
    /// Retry-After of refused clients, in seconds.
    pub(super) told_s: Vec<u32>,
    /// Requests shed after waiting: pushed out, or waited too long.
    pub(super) sent_away: [u64; 2],
}

#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    /// Results by crowd.
    pub(super) crowds: Vec<Results>,
    /// Requests that ended while measuring, as a part of the capacity.
    pub(super) goodput: f64,
    pub(super) show_share: f32,
}

impl Results {
    pub(super) fn quantile_ms(&self, share: f64) -> f64 {
        let at = (self.latencies_ms.len() as f64 * share) as usize;
        self.latencies_ms.get(at).copied().unwrap_or(f64::NAN)
    }

    /// Returns the part of requests that were served when they came a second time, at the promised
    /// time.
    pub(super) fn second_share(&self) -> f64 {
        self.second_served as f64 / self.second_attempts.max(1) as f64
    }

    pub(super) fn served_share(&self) -> f64 {
        self.served as f64 / self.requests.max(1) as f64
    }

    pub(super) fn attempts_each(&self) -> f64 {
        self.attempts as f64 / self.served.max(1) as f64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The next request of an open crowd arrives.
    Next {
        crowd: usize,
    },
    Attempt {
        request: usize,
    },
    End {
        request: usize,
    },
    /// A waiting request may have to leave.
    Look,
}

#[derive(Clone, Debug)]
struct Request {
    crowd: usize,
    attempts: u32,
    arrived: u64,
    is_measured: bool,
    tokens: u32,
    took: u64,
}

struct World<'s> {
    scenario: &'s Scenario,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    admission: Admission<usize>,
    running: usize,
    hold: HoldTime,
    requests: Vec<Request>,
    rng: fastrand::Rng,
    dice: fastrand::Rng,
    ended: u64,
    results: Vec<Results>,
}

/// Serves all requests of the scenario.
pub(super) fn run(scenario: &Scenario) -> Report {
    let limits =
        WaitLimits { count_max: scenario.queue_max, wait_ms_max: 30_000, ..WaitLimits::default() };
    let mut world = World {
        scenario,
        now: 0,
        events: BinaryHeap::new(),
        sequence: 0,
        admission: Admission::new(limits),
        running: 0,
        hold: HoldTime::default(),
        requests: Vec::new(),
        rng: fastrand::Rng::with_seed(scenario.seed),
        dice: fastrand::Rng::with_seed(scenario.seed + 99),
        ended: 0,
        results: vec![Results::default(); scenario.crowds.len()],
    };
    for (crowd, one) in scenario.crowds.iter().enumerate() {
        match one.source {
            Source::Open(_) => world.schedule(0, Event::Next { crowd }),
            Source::Closed { clients, think_ms } => {
                (0..clients).for_each(|_| world.begin_anew(crowd, think_ms));
            }
            Source::Burst { second, requests } => {
                (0..requests).for_each(|_| world.send(crowd, second * SECOND));
            }
        }
    }
    world.schedule(0, Event::Look);
    let mut show_share = None;
    while let Some(Reverse((now, _, event))) = world.events.pop() {
        world.now = now;
        world.handle(event);
        if world.is_over() {
            show_share = show_share.or_else(|| Some(world.admission.show_share()));
        }
    }
    for results in &mut world.results {
        results.latencies_ms.sort_by(f64::total_cmp);
    }
    let [from, to] = scenario.seconds;
    Report {
        crowds: world.results,
        goodput: world.ended as f64 / (to - from) as f64 / CAPACITY,
        show_share: show_share.unwrap_or_default(),
    }
}

impl World<'_> {
    fn schedule(&mut self, after: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((self.now + after, self.sequence, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Next { crowd } => self.next(crowd),
            Event::Attempt { request } => self.attempt(request),
            Event::End { request } => self.end(request),
            Event::Look => {
                self.send_away_lapsed();
                if !self.is_over() {
                    self.schedule(50 * MS, Event::Look);
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.now >= self.scenario.seconds[1] * SECOND
    }

    fn instant(&self) -> Instant {
        *NOW + Duration::from_micros(self.now)
    }

    fn crowd(&self, request: usize) -> &Crowd {
        &self.scenario.crowds[self.requests[request].crowd]
    }

    /// Lets a request of an open crowd come, and schedules the next one.
    fn next(&mut self, crowd: usize) {
        let Source::Open(rates) = &self.scenario.crowds[crowd].source else { return };
        let since = rates.iter().rev().find(|(from, _)| from * SECOND <= self.now);
        let load = since.map_or(0.0, |&(_, load)| load);
        if self.is_over() {
            return;
        }
        let gap_s = -(1.0 - self.rng.f64()).ln() / (load * CAPACITY).max(0.1);
        self.schedule((gap_s * SECOND as f64) as u64, Event::Next { crowd });
        if load > 0.0 {
            self.send(crowd, 0);
        }
    }

    /// Lets a client of a closed crowd think and then send.
    fn begin_anew(&mut self, crowd: usize, think_ms: u64) {
        if !self.is_over() {
            let think = -(1.0 - self.rng.f64()).ln() * (think_ms * MS) as f64;
            self.send(crowd, think as u64);
        }
    }

    fn send(&mut self, crowd: usize, after: u64) {
        let arrived = self.now + after;
        let [from, to] = self.scenario.seconds;
        let is_measured = (from * SECOND..to * SECOND).contains(&arrived);
        self.results[crowd].requests += u64::from(is_measured);
        let of = &self.scenario.crowds[crowd];
        let tokens = of.sizes.map_or(of.tokens, |[least, most]| self.rng.u32(least..=most));
        self.requests.push(Request { crowd, attempts: 0, arrived, is_measured, tokens, took: 0 });
        self.schedule(after, Event::Attempt { request: self.requests.len() - 1 });
    }

    fn asker(&self, request: usize) -> Asker {
        let crowd = self.crowd(request);
        Asker {
            priority: crowd.priority,
            tenant: crowd.tenant,
            weight: 1,
            tokens: self.requests[request].tokens,
            bytes: 100,
            fingerprint: request as u64,
            is_promised: false,
        }
    }

    fn attempt(&mut self, request: usize) {
        self.send_away_lapsed();
        let now = self.instant();
        let known = &mut self.requests[request];
        known.attempts += 1;
        known.arrived = self.now;
        let results = &mut self.results[known.crowd];
        results.attempts += u64::from(known.is_measured);
        results.second_attempts += u64::from(known.is_measured && known.attempts == 2);
        let mut asker = self.asker(request);
        asker.is_promised = self.admission.redeem(asker.fingerprint, now);
        self.expect(&asker);
        match self.plan(request, &asker) {
            SpillVerdict::Own => {
                if !self.admission.is_empty() {
                    self.admission.began(&asker, now);
                }
                self.begin(request);
            }
            SpillVerdict::Wait { .. } => self.wait(request, asker),
            SpillVerdict::Shed { wait_ms, .. } => self.shed(&asker, wait_ms),
            SpillVerdict::Forward(_) => panic!("there is nowhere to go"),
        }
    }

    fn plan(&mut self, request: usize, asker: &Asker) -> SpillVerdict {
        let now = self.instant();
        let crowd = self.crowd(request);
        let deadline = Deadline::after(now, Duration::from_millis(crowd.deadline_ms));
        let load = ModelLoad {
            queued: 0.0,
            running: self.running as f32,
            capacity: Some(SLOTS as f32),
            rate_per_s: Some(CAPACITY as f32 * self.running as f32 / SLOTS as f32),
            ..ModelLoad::default()
        };
        let own = OwnRegion {
            replicas: 4,
            report: RegionReport { load, ..RegionReport::default() },
            slots: Some((SLOTS - self.running) as u32),
            waiting: self.admission.waiting(asker, now),
            guests: 0,
            nodes: 1,
            prefill_ms: 0.0,
            stall_ms: 0.0,
            price_ms: 0.0,
            weight_permille: 1_000,
            first_token_ms_max: crowd.slo_ms.map(|slo_ms| slo_ms as f32),
            rest_ms: 0.0,
            late_ms: None,
        };
        let inquiry = Inquiry { deadline, ..inquiry() };
        let mut moment = Moment { now, loads: &Array::idle(0), ticket: 0, rng: &mut self.dice };
        spill(&inquiry, &own, &[], &SpillTerms::default(), &mut moment).verdict
    }

    fn wait(&mut self, request: usize, asker: Asker) {
        let now = self.instant();
        let crowd = self.crowd(request);
        let deadline = Deadline::after(now, Duration::from_millis(crowd.deadline_ms));
        let begin_by = crowd.slo_ms.map(|slo_ms| now + Duration::from_millis(slo_ms));
        let Asker { priority, tenant, weight, tokens, bytes, fingerprint, is_promised } = asker;
        let new = WaitEntry::new(request, deadline);
        let new = WaitEntry { priority, tenant, weight, tokens, bytes, begin_by, ..new };
        match self.admission.enter(WaitEntry { fingerprint, is_promised, ..new }, now) {
            Ok(entered) => {
                for (_, victim) in entered.pushed_out {
                    self.send_away(victim, false);
                }
            }
            Err(full) => self.shed(&full.entry.asker(), 0.0),
        }
    }

    fn send_away_lapsed(&mut self) {
        let now = self.instant();
        while let Some((_, entry)) = self.admission.expire(now) {
            self.send_away(entry, true);
        }
    }

    fn send_away(&mut self, entry: WaitEntry<usize>, has_left: bool) {
        let request = &self.requests[entry.item];
        let sent_away = &mut self.results[request.crowd].sent_away;
        sent_away[usize::from(has_left)] += u64::from(request.is_measured);
        self.shed(&Asker { is_promised: false, ..entry.asker() }, 0.0);
    }

    fn expect(&mut self, asker: &Asker) {
        let (now, expected, hold) = (self.instant(), self.scenario.expected, self.hold);
        let slots = [Turnover { slots: SLOTS as u32, hold }];
        self.admission.expect(asker, now, |tokens| match expected {
            Expected::Unknown => None,
            Expected::PerSecond(rate) => Some(rate as f32),
            Expected::Learned => expected_rate(slots.into_iter(), tokens),
            Expected::Guessed(factor) => {
                let known = expected_rate(slots.into_iter(), tokens);
                known.or(Some((factor * CAPACITY) as f32))
            }
        });
    }

    fn shed(&mut self, asker: &Asker, predicted_ms: f32) {
        let now = self.instant();
        self.expect(asker);
        let refusal = Refusal::new(ShedReason::QueueFull, predicted_ms);
        let told = self.admission.shed(asker, refusal, now, &mut self.dice);
        assert!((1..=60).contains(&told.seconds));
        let request = asker.fingerprint as usize;
        let Request { crowd, attempts, is_measured, .. } = self.requests[request];
        if is_measured {
            self.results[crowd].told_s.push(told.seconds);
        }
        let of = &self.scenario.crowds[crowd];
        if attempts < ATTEMPTS_MAX && self.rng.f64() < of.honour {
            let late = self.rng.u64(..LATE_MAX);
            let after = u64::from(told.seconds) * SECOND + late;
            self.schedule(after, Event::Attempt { request });
        } else if let Source::Closed { think_ms, .. } = of.source {
            self.begin_anew(crowd, think_ms);
        }
    }

    fn begin(&mut self, request: usize) {
        self.running += 1;
        assert!(self.running <= SLOTS, "no slot is taken twice");
        let slower = self.scenario.slower.filter(|(from, _)| from * SECOND <= self.now);
        let factor = slower.map_or(1.0, |(_, factor)| factor);
        let chance = 0.5 + self.rng.f64();
        let Request { crowd, attempts, is_measured, arrived, tokens, .. } = self.requests[request];
        let sized = self.scenario.crowds[crowd].sizes.map(|_| 0.1 + f64::from(tokens) / 50.0);
        let takes = (SERVICE as f64 * sized.unwrap_or(chance) * factor) as u64;
        self.requests[request].took = takes;
        self.schedule(takes, Event::End { request });
        let slo_ms = self.scenario.crowds[crowd].slo_ms;
        let results = &mut self.results[crowd];
        if is_measured {
            results.served += 1;
            results.second_served += u64::from(attempts == 2);
            results.latencies_ms.push((self.now + takes - arrived) as f64 / MS as f64);
            let waited_ms = (self.now - arrived) / MS;
            results.slo_missed += u64::from(slo_ms.is_some_and(|slo_ms| waited_ms > slo_ms));
        }
    }

    fn end(&mut self, request: usize) {
        self.running -= 1;
        let [from, to] = self.scenario.seconds;
        self.ended += u64::from((from * SECOND..to * SECOND).contains(&self.now));
        let Request { crowd, tokens, took, .. } = self.requests[request];
        self.hold = self.hold.with(tokens, took as f32 / MS as f32);
        if let Source::Closed { think_ms, .. } = self.scenario.crowds[crowd].source {
            self.begin_anew(crowd, think_ms);
        }
        self.send_away_lapsed();
        let now = self.instant();
        if self.running < SLOTS
            && let Some((_, entry)) = self.admission.pop_next(now)
        {
            self.admission.began(&entry.asker(), now);
            self.begin(entry.item);
        }
    }
}
