//! Outputs of a member: standing, signals, reports.

use std::time::Instant;

use spillway_types::{Admission, RAMP_FULL, Reading, Signals, Standing};

use super::{Effect, Member, ShownStanding};
use crate::change_reason::ChangeReason;
use crate::condition::{ConditionState, Evidence};
use crate::life::Life;
use crate::quantile::Samples;
use crate::reason::ReasonFacts;
use crate::report::{CheckReport, CircuitBreakerReport, FaultReport, MemberReport, MemberState};
use crate::slow_start::Ramp;
use crate::standby::Reserve;
use crate::tally::CheckTally;
use crate::{Live, Vote};

impl Member {
    /// Publishes the member's standing and state. Returns what was published before, if that was
    /// different.
    pub(crate) fn publish(&mut self) -> Option<ShownStanding> {
        let shown = self.to_show();
        (shown != self.shown).then(|| std::mem::replace(&mut self.shown, shown))
    }

    /// Takes the actions that the member asks for; each is returned once.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn last_shown(&self) -> &ShownStanding {
        &self.shown
    }

    pub(crate) fn why(&self) -> ChangeReason {
        self.why
    }

    pub(super) fn to_show(&self) -> ShownStanding {
        let admission = self.admission();
        let standing = Standing {
            admission,
            ramp_permille: self.permille(),
            models: self.breakers.standings(),
            // A stricter standing hides the pause, whose end would change nothing.
            busy_until: self.pressure.until().filter(|_| admission == Admission::Busy),
        };
        let down = self.condition.down_cause().filter(|_| admission == Admission::Down);
        ShownStanding { standing, down, state: self.state() }
    }

    /// Returns the strictest vote of the member's state machines.
    pub(crate) fn admission(&self) -> Admission {
        let by_reserve = match self.reserve {
            None | Some(Reserve::Promoted { .. }) => Admission::Open,
            Some(Reserve::Held) => Admission::Standby,
            Some(Reserve::Retiring { .. }) => Admission::Draining,
        };
        self.admission_besides_reserve().max(by_reserve)
    }

    /// Returns the strictest vote without that of the reserve.
    pub(super) fn admission_besides_reserve(&self) -> Admission {
        let by_life = match self.life {
            Life::Starting | Life::WarmingUp { .. } => Admission::Starting,
            Life::Serving => Admission::Open,
            Life::Draining { .. } | Life::Drained { .. } => Admission::Draining,
        };
        let by_condition = match self.condition.state() {
            ConditionState::Well | ConditionState::Trial { .. } => Admission::Open,
            ConditionState::Ejected { .. } => Admission::Ejected,
            ConditionState::Down { .. } => Admission::Down,
        };
        let by_pressure =
            if self.pressure.until().is_some() { Admission::Busy } else { Admission::Open };
        by_life.max(by_condition).max(by_pressure)
    }

    /// Returns the signals about the replica's load at `now`.
    pub(crate) fn signals(&self, now: Instant, live: Live) -> Signals {
        let load = self.load.readings(now, self.fading());
        let mut samples = Samples::new();
        self.times.add_to(&mut samples, now);
        let p99 = samples.p99_ms();
        Signals {
            latency_ms: self.latency.reading(now),
            p99_ms: p99.map_or(Reading::UNKNOWN, |(value, trust)| Reading { value, trust }),
            queued: load.queued,
            running: load.running,
            kv_use: load.kv_use,
            gpu_use: load.gpu_use,
            gpu_memory_use: load.gpu_memory_use,
            pending: load.pending,
            in_flight_at_report: self.load.in_flight(),
            bucket_tokens: self.bucket.tokens(live.started),
            started_at: live.started,
        }
    }

    /// Returns the report about the replica for operators.
    pub(crate) fn report(&self, now: Instant) -> MemberReport {
        let evidence = self.evidence(now);
        let checks = &self.checks;
        let signals = self.signals(now, self.live);
        MemberReport {
            name: self.spec.name.clone(),
            // The caller fills in this field and the next.
            url: String::new(),
            models: Vec::new(),
            pool: self.spec.pool.clone(),
            state: self.state(),
            why: self.why,
            reason: self.reason(now, &evidence),
            admission: self.admission().as_str(),
            ramp_permille: self.permille(),
            cached_share: self.cache.known(),
            verdict: self.condition.verdict(now, &evidence),
            votes: evidence.votes,
            is_against: self.condition.is_against(now, evidence.votes),
            is_spared: self.is_spared,
            ejections: self.condition.repeats(),
            faults_in_a_row: self.outliers.run(),
            busy_for_ms: self.pressure.until().map(|until| age_ms(until, now)),
            in_flight: self.live.in_flight,
            // The caller fills in this field and the next four.
            concurrency_limit: None,
            kind: None,
            is_kind_recognised: false,
            models_told: None,
            models_denied: Vec::new(),
            models_status: None,
            silent_for_ms: self.live.silent_for.map(|time| milliseconds(time.as_millis())),
            report_age_ms: self.load.at().map(|at| age_ms(now, at)),
            latency_ms: self.first_tokens.average_ms(now),
            p99_ms: self.first_tokens.p99_ms(now),
            slower_than_ms: None,
            queued: signals.queued.is_known().then_some(signals.queued.value),
            checks: vec![
                check_report("active", &checks.active, evidence.votes.active, now),
                check_report("deep", &checks.deep, evidence.votes.deep, now),
                check_report("scrape", &checks.scrape, evidence.votes.scrape, now),
            ],
            breakers: self.breaker_reports(),
            faults: self
                .outliers
                .faults()
                .map(|(fault, at)| FaultReport { fault: fault.as_str(), age_ms: age_ms(now, at) })
                .collect(),
        }
    }

    pub(super) fn reason(&self, now: Instant, evidence: &Evidence) -> Option<String> {
        if self.state() == MemberState::Ejected && self.ejected_for.is_some() {
            return self.ejected_for.clone();
        }
        let checks = &self.checks;
        let facts = ReasonFacts {
            state: self.state(),
            why: self.why,
            verdict: self.condition.verdict(now, evidence),
            votes: evidence.votes,
            check_faults: [&checks.active, &checks.deep, &checks.scrape]
                .map(CheckTally::present_fault),
            request_fault: self.outliers.faults().next().map(|(fault, _)| fault),
            faults_in_a_row: self.outliers.run(),
            is_slow: self.outliers.is_slow(),
            silent_for_ms: self.live.silent_for.map(|time| milliseconds(time.as_millis())),
            ejections: self.condition.repeats(),
            has_answered: self.has_answered,
        };
        facts.reason()
    }

    /// Returns the share of its weight, in permille, that the replica gets: the slow start's, or on
    /// trial no more than the trial's.
    fn permille(&self) -> u16 {
        let ramp = self.ramp.permille();
        let is_trial = self.condition.is_on_trial();
        let trial = self.spec.health.trial_permille.clamp(1, RAMP_FULL);
        if is_trial { ramp.min(trial) } else { ramp }
    }

    /// Returns the state that operators must know first, if several hold.
    fn state(&self) -> MemberState {
        match (self.life, self.condition.state(), self.reserve) {
            (Life::Starting, ..) => MemberState::Starting,
            (Life::WarmingUp { .. }, ..) => MemberState::WarmingUp,
            (Life::Draining { .. }, ..) | (Life::Serving, _, Some(Reserve::Retiring { .. })) => {
                MemberState::Draining
            }
            (Life::Drained { .. }, ..) => MemberState::Drained,
            (Life::Serving, ConditionState::Down { .. }, _) => MemberState::Down,
            (Life::Serving, ..) if self.pressure.until().is_some() => MemberState::Busy,
            (Life::Serving, ConditionState::Ejected { .. }, _) => MemberState::Ejected,
            (Life::Serving, _, Some(Reserve::Held)) => MemberState::Standby,
            (Life::Serving, ConditionState::Trial { .. }, _) => MemberState::Trial,
            // It is given requests, since it served before the node started; but nothing shows yet
            // that it is there.
            (Life::Serving, ConditionState::Well, _)
                if !self.has_answered && self.spec.checks.active.is_some() =>
            {
                MemberState::Starting
            }
            (Life::Serving, ConditionState::Well, _) => match self.ramp {
                Ramp::Rising { .. } => MemberState::Ramping,
                Ramp::Full => MemberState::Serving,
            },
        }
    }

    fn breaker_reports(&self) -> Vec<CircuitBreakerReport> {
        let report = |(model, breaker): (&_, &crate::circuit_breaker::CircuitBreaker)| {
            let counts = breaker.counts();
            CircuitBreakerReport {
                model: Clone::clone(model),
                state: crate::report::breaker_state(breaker.standing()),
                requests: counts.requests,
                faults: counts.faults,
            }
        };
        self.breakers.iter().map(report).collect()
    }
}

fn check_report(check: &'static str, tally: &CheckTally, vote: Vote, now: Instant) -> CheckReport {
    let fault = tally.last_fault();
    CheckReport {
        check,
        vote,
        age_ms: tally.at().map(|at| age_ms(now, at)),
        last_fault: fault.map(|(fault, _)| fault.as_str()),
        last_fault_age_ms: fault.map(|(_, at)| age_ms(now, at)),
    }
}

/// Returns the milliseconds from `earlier` to `later`.
fn age_ms(later: Instant, earlier: Instant) -> u64 {
    milliseconds(later.saturating_duration_since(earlier).as_millis())
}

fn milliseconds(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
