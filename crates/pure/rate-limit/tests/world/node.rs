//! Node of the world: the real state machine and meters, with a clock of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_rate_limit::{
    Before, Fate, Holder, Holding, LimitTerms, LimitUsage, Overdue, QuotaAsk, QuotaError,
    QuotaHold, Quotas, RequestWindow, Run, RunRow, Scope, Statement, Units,
};
use spillway_types::{NodeName, RegionName};

use crate::checker::Checker;
use crate::state::{Entry, RUN_MS_MAX, SCOPE, State};
use crate::world::{STEP_MS, Sabotage};

/// Time after which the outcome of a proposal is unknown.
const ASK_LIMIT_MS: u64 = 5_000;
/// Time that a process waits for its shares before it serves with what it has.
const READY_MS: u64 = 5_000;

/// Reachability between a node and the majority of the cluster, in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) says: bool,
    pub(crate) hears: bool,
}

pub(crate) struct Node {
    pub(crate) name: NodeName,
    pub(crate) region: RegionName,
    pub(crate) way: Way,
    pub(crate) demand_per_s: f64,
    pub(crate) delay_ms: u64,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    /// Clock: its start, and its speed.
    clock: (Instant, f64),
    state: State,
    applied: usize,
    /// State that a restart begins with, and floors that were written before proposals.
    disk: (State, usize),
    lowered: BTreeMap<Scope, Units>,
    quotas: Quotas,
    holder: Holder,
    asked: Option<(u64, u64)>,
    /// Entries that the last look knew, and the time of the last look for a refused request.
    looked: usize,
    hurried_ms: u64,
    /// Requests in flight: the end in milliseconds, and true if the request counts. A request does
    /// not count if the limit was not divided yet.
    requests: Vec<(u64, bool, QuotaHold)>,
    born_ms: u64,
    is_ready: bool,
    owed: f64,
}

impl Node {
    pub(crate) fn new(name: &str, region: &str, dice: &mut fastrand::Rng) -> Self {
        let clock = (start(), 0.9995 + dice.f64() * 0.001);
        Self {
            name: name.into(),
            region: region.into(),
            way: Way { says: true, hears: true },
            demand_per_s: 0.0,
            delay_ms: 10 + dice.u64(..200),
            admitted: 0,
            refused: 0,
            clock,
            state: State::default(),
            applied: 0,
            disk: (State::default(), 0),
            lowered: BTreeMap::new(),
            quotas: Quotas::new(clock.0),
            holder: Holder::new(name.into(), 1, Before::Nothing, dice.fork()),
            asked: None,
            looked: 0,
            hurried_ms: 0,
            requests: Vec::new(),
            born_ms: 0,
            is_ready: true,
            owed: 0.0,
        }
    }

    /// Ends the process and starts another one with the state on disk, which may be older than the
    /// state that the first process knew.
    pub(crate) fn restart(&mut self, now_ms: u64, checker: &mut Checker, sabotage: Sabotage) {
        let counting = self.requests.drain(..).filter(|(_, counts, _)| *counts);
        counting.for_each(|_| checker.end());
        (self.born_ms, self.is_ready) = (now_ms, false);
        (self.state, self.applied) = self.disk.clone();
        let lowered =
            if sabotage == Sabotage::NoFile { BTreeMap::new() } else { self.lowered.clone() };
        let before = if sabotage == Sabotage::Forgetful {
            Before::Counted(lowered)
        } else {
            Before::Unknown(lowered)
        };
        let dice = fastrand::Rng::with_seed(now_ms);
        self.quotas = Quotas::new(self.now(now_ms));
        self.holder = Holder::new(self.name.clone(), 1 + now_ms, before, dice);
        self.asked = None;
        self.take_limit(now_ms);
    }

    pub(crate) fn save(&mut self) {
        self.disk = (self.state.clone(), self.applied);
    }

    /// Applies the entries that have arrived.
    pub(crate) fn receive(&mut self, log: &[(u64, Entry)], now_ms: u64) {
        let mut is_other_limit = false;
        while let Some((at_ms, entry)) = log.get(self.applied)
            && at_ms + self.delay_ms <= now_ms
        {
            self.state.apply(entry);
            self.applied += 1;
            is_other_limit |= matches!(entry, Entry::Limit(..));
        }
        if is_other_limit {
            self.take_limit(now_ms);
        }
    }

    /// Returns true if entries have arrived since the last look.
    pub(crate) fn has_heard(&self) -> bool {
        self.looked != self.applied
    }

    /// Returns true if a request was refused since the last look for one, `after_ms` after that at
    /// the soonest.
    pub(crate) fn hurries(&mut self, now_ms: u64, after_ms: u64) -> bool {
        let hurries = now_ms >= self.hurried_ms + after_ms && self.quotas.take_refused();
        if hurries {
            self.hurried_ms = now_ms;
        }
        hurries
    }

    pub(crate) fn look(&mut self, now_ms: u64, sabotage: Sabotage) -> Option<Statement> {
        self.looked = self.applied;
        let now = self.now(now_ms);
        let now_ns = self.quotas.clock_ns(now);
        if let Some((serial, asked_ms)) = self.asked {
            let row = self.state.shares.runs().get(self.holder.run());
            let is_known = row.is_some_and(|row| row.serial >= serial);
            if is_known || now_ms >= asked_ms + ASK_LIMIT_MS {
                let fate = if is_known { Fate::TakenIn } else { Fate::Unknown };
                self.holder.answered(serial, fate, now_ns);
                self.asked = None;
            }
        }
        let agreed_limits = Arc::new(self.state.agreed_limits(&self.region));
        let said = self.holder.look(now, &self.state.shares, &agreed_limits, &self.quotas);
        self.is_ready |= now_ms > self.born_ms + READY_MS
            || self.holder.holds_shares(now_ns, &self.state.shares, &agreed_limits);
        match sabotage {
            Sabotage::Endless => self.hold_all(u64::MAX),
            Sabotage::Unbound => self.hold_all(self.holder.ends_ns()),
            _ => {}
        }
        let mut said = said?;
        self.lowered.clone_from(self.holder.lowered_floors());
        self.asked = Some((said.serial, now_ms));
        if sabotage == Sabotage::Hasty {
            let others = self.state.shares.runs().iter();
            let others = others.filter(|(run, _)| run.node != self.name);
            let overdue = |(run, row): (&Run, &RunRow)| {
                let (run, serial) = (run.clone(), row.serial);
                Overdue { run, serial, kinds: [true; 3] }
            };
            said.overdue = others.map(overdue).collect();
        }
        Some(said)
    }

    pub(crate) fn serve(
        &mut self,
        now_ms: u64,
        (checker, allowed): (&mut Checker, Units),
        dice: &mut fastrand::Rng,
    ) -> Result<(), String> {
        let ended = self.requests.extract_if(.., |(ends_ms, ..)| *ends_ms <= now_ms);
        for (_, counts, hold) in ended {
            // The charge counts as used, because the checker does not know of units given back.
            hold.settle(None);
            if counts {
                checker.end();
            }
        }
        if self.state.limit.is_none() {
            return Ok(());
        }
        self.owed = (self.owed + self.demand_per_s * STEP_MS as f64 / 1_000.0).min(50.0);
        let now = self.now(now_ms);
        while self.owed >= 1.0 {
            self.owed -= 1.0;
            let tokens = 1 + dice.u64(..20);
            let is_open = self.quotas.is_open(&SCOPE, now);
            let Ok(hold) = self.ask(now_ms, tokens) else {
                self.refused += 1;
                continue;
            };
            self.admitted += 1;
            let run_ms = if dice.u8(..50) == 0 { RUN_MS_MAX } else { 50 + dice.u64(..500) };
            self.begin(now_ms + run_ms, !is_open, hold);
            if !is_open {
                checker.charge(now_ms, tokens, allowed)?;
            }
        }
        Ok(())
    }

    /// Asks for admission of a request.
    pub(crate) fn ask(&self, now_ms: u64, tokens: u64) -> Result<QuotaHold, QuotaError> {
        let now = self.now(now_ms);
        let ask = QuotaAsk { key: None, tenant: None, model: None, tokens, said: tokens, now };
        self.quotas.admit(&ask)
    }

    /// Begins a request that was admitted.
    pub(crate) fn begin(&mut self, ends_ms: u64, counts: bool, hold: QuotaHold) {
        self.requests.push((ends_ms, counts, hold));
    }

    pub(crate) fn run(&self) -> &Run {
        self.holder.run()
    }

    pub(crate) fn usage(&self, now_ms: u64) -> LimitUsage {
        self.quotas.usage(&SCOPE, self.now(now_ms)).unwrap_or_default()
    }

    fn take_limit(&self, now_ms: u64) {
        let requests = RequestWindow::Second;
        let terms = self.state.limit.map(|whole| LimitTerms { scope: SCOPE, whole, requests });
        match self.is_ready {
            true => self.quotas.open_limits(terms.as_slice(), self.now(now_ms)),
            false => self.quotas.set_limits(terms.as_slice()),
        }
    }

    /// Holds all that the agreed state grants, whatever this node has stated since.
    fn hold_all(&self, lease_ends_ns: u64) {
        let Some(pool) = self.state.shares.pool(&SCOPE) else { return };
        let lease = pool.lease(self.holder.run()).map(|lease| lease.held).unwrap_or_default();
        let floor = pool.floor(&self.name);
        let holding = Holding { floor, lease, lease_ends_ns, ..Holding::default() };
        self.quotas.hold(&SCOPE, &holding);
    }

    fn now(&self, now_ms: u64) -> Instant {
        self.clock.0 + Duration::from_secs_f64(now_ms as f64 * self.clock.1 / 1_000.0)
    }
}

#[expect(clippy::disallowed_methods, reason = "there is no other way to some instant")]
fn start() -> Instant {
    Instant::now()
}
