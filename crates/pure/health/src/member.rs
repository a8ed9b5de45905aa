//! Member of the fleet: state of one replica, and the effect of each input on it.

use std::time::{Duration, Instant};

use spillway_types::{
    Admission, DownCause, LoadReport, ModelName, PoolName, ReplyForm, Sign, SignKind, Standing,
    TokenCounts, Worked,
};

use crate::bucket::Bucket;
use crate::cache_share::CacheShare;
use crate::change_reason::ChangeReason;
use crate::checks::Checks;
use crate::circuit_breaker::Counts;
use crate::circuit_breakers::CircuitBreakers;
use crate::condition::{Condition, ConditionState};
use crate::first_tokens::FirstTokens;
use crate::latency::PeakEwma;
use crate::life::Life;
use crate::load::{Fading, Load};
use crate::outlier_detection::OutlierDetection;
use crate::pace::{Paces, Pacing, SlowAfter, UsualPaces};
use crate::pressure::Pressure;
use crate::quantile::{QuantileWindow, Samples};
use crate::report::MemberState;
use crate::slow_start::{Ramp, Slope};
use crate::standby::Reserve;
use crate::{Check, CheckError, Live, MemberSpec, Order, PeerReports};

mod decide;
mod outputs;

/// Assumed time between two reports of a replica that is not scraped.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// State of one replica.
///
/// After each input call [`Self::settle`], which draws the conclusions, and then [`Self::publish`],
/// which makes them visible.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    spec: MemberSpec,
    life: Life,
    condition: Condition,
    checks: Checks,
    outliers: OutlierDetection,
    /// Votes of the region's other nodes.
    others: PeerReports,
    breakers: CircuitBreakers,
    pressure: Pressure,
    /// State in the reserve; `None` if the replica does not belong to the reserve.
    reserve: Option<Reserve>,
    ramp: Ramp,
    cache: CacheShare,
    load: Load,
    latency: PeakEwma,
    times: QuantileWindow,
    /// Times to first token, for operators. The averages above, which policies compare, are of all
    /// replies.
    first_tokens: FirstTokens,
    paces: Paces,
    /// Pace that counts as slow in the next trial.
    slow_after: SlowAfter,
    bucket: Bucket,
    /// View of the data path at the last tick.
    live: Live,
    /// Present silence; `None` while bytes come or no request is there.
    silence: Option<Silence>,
    /// Reason of the last ejection, in words.
    ejected_for: Option<String>,
    /// True if an answer was slow since the trial began.
    was_slow_on_trial: bool,
    /// Start of the idle time that counts as a good answer; `None` while busy or not open.
    idle_since: Option<Instant>,
    /// True if traffic speaks for ejecting the replica, but enough of its pool are ejected.
    is_spared: bool,
    /// True if any answer has come from the replica, to a request or to a check.
    has_answered: bool,
    /// Reason of the present state.
    why: ChangeReason,
    effects: Vec<Effect>,
    /// State that was last published.
    shown: ShownStanding,
}

/// Beginning of a silence, and the requests at the replica then.
#[derive(Clone, Copy, Debug)]
struct Silence {
    at: Instant,
    queue_length: f32,
}

/// Inaccuracy of the beginning of a silence, which is known by its length.
const TICK: Duration = Duration::from_millis(200);

/// Time without requests in flight that counts as one good answer in a trial.
const IDLE_AS_GOOD: Duration = Duration::from_secs(2);

/// Action that a member asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    WarmUp,
    Drained,
}

/// State of the fleet that all members use while they take in an input.
#[derive(Debug)]
pub(crate) struct FleetShared<'a> {
    pub(crate) rng: &'a mut fastrand::Rng,
    pub(crate) models_max: usize,
}

/// A standing and the state that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShownStanding {
    pub(crate) standing: Standing,
    /// Cause, if the replica is down.
    pub(crate) down: Option<DownCause>,
    pub(crate) state: MemberState,
}

impl Member {
    /// Makes a new member. With `presumed_ready` it serves with its full share at once; otherwise
    /// it must first show that it is ready.
    pub(crate) fn new(now: Instant, spec: MemberSpec, presumed_ready: bool) -> Self {
        let mut member = Self {
            life: if presumed_ready { Life::Serving } else { Life::Starting },
            condition: Condition::default(),
            checks: Checks::default(),
            outliers: OutlierDetection::default(),
            others: PeerReports::default(),
            breakers: CircuitBreakers::default(),
            pressure: Pressure::default(),
            reserve: spec.standby.map(|_| Reserve::Held),
            ramp: Ramp::Full,
            cache: CacheShare::default(),
            load: Load::default(),
            latency: PeakEwma::default(),
            times: QuantileWindow::new(now),
            first_tokens: FirstTokens::new(now),
            paces: Paces::default(),
            slow_after: SlowAfter::default(),
            bucket: Bucket::default(),
            live: Live::default(),
            silence: None,
            ejected_for: None,
            was_slow_on_trial: false,
            idle_since: None,
            is_spared: false,
            has_answered: false,
            why: if presumed_ready { ChangeReason::PresumedReady } else { ChangeReason::Joined },
            effects: Vec::new(),
            shown: ShownStanding {
                standing: Standing::FULL,
                down: None,
                state: MemberState::Serving,
            },
            spec,
        };
        member.shown = member.to_show();
        member
    }

    /// Takes over a changed config and keeps the state.
    pub(crate) fn configure(&mut self, spec: MemberSpec) {
        // A replica that a reload puts into the reserve is held at once.
        self.reserve = spec.standby.map(|_| self.reserve.unwrap_or(Reserve::Held));
        self.breakers.retain(&spec);
        self.spec = spec;
    }

    /// Takes in a sign of traffic.
    pub(crate) fn on_sign(&mut self, now: Instant, sign: &Sign, shared: &mut FleetShared<'_>) {
        self.has_answered |= !matches!(&sign.kind, SignKind::Failed(fault) if !fault.is_answer());
        let count = match &sign.kind {
            SignKind::Answered { after, form, worked } => {
                self.on_answer(now, *after, *form);
                self.on_worked(sign.model.as_ref(), *worked, shared.models_max);
                Some(Counts::ANSWERED)
            }
            SignKind::Busy { retry_after } => {
                self.on_busy(now, *retry_after, shared);
                None
            }
            SignKind::Failed(fault) => {
                let check_failed = self.checks.active.is_failing();
                self.outliers.on_fault(now, *fault, check_failed);
                self.fail_trial(now, shared);
                Some(Counts::of(*fault))
            }
            SignKind::Finished { tokens, worked } => {
                self.on_finish(*tokens);
                if worked.is_some() {
                    self.on_worked(sign.model.as_ref(), *worked, shared.models_max);
                }
                None
            }
            // The answer itself is another sign, and models are not judged here.
            SignKind::LacksModel => None,
            // Reports with replies carry no count of their own: that of the last tick is used.
            SignKind::Reported(report) => {
                self.on_report(now, report, self.live.known());
                None
            }
        };
        if let (Some(count), Some(model)) = (count, &sign.model) {
            self.breakers.record((now, count), model, (&self.spec, shared.models_max), shared.rng);
        }
    }

    /// Takes in the result of a check.
    pub(crate) fn on_check(&mut self, now: Instant, check: Check, result: Result<(), CheckError>) {
        self.checks.record(now, check, result, &self.spec);
        self.has_answered |= result.map_or_else(CheckError::is_answer, |()| true);
        // The replica itself says that it is up and not ready, so older evidence is out of date.
        if self.checks.active.standing_fault() == Some(CheckError::NotReady) && self.life.restart()
        {
            self.start_over(ChangeReason::Loading);
        }
    }

    /// Takes in a load report; `in_flight` is the number of requests known to be at the replica.
    pub(crate) fn on_report(&mut self, now: Instant, report: &LoadReport, in_flight: u32) {
        self.load.record(now, report, in_flight);
        self.checks.record_memory(now, report, &self.spec);
    }

    /// Takes in the votes of the region's other nodes, which replace earlier ones.
    pub(crate) fn on_peer_reports(&mut self, others: PeerReports) {
        self.others = others;
    }

    /// Follows an order to drain the replica or to bring it back.
    pub(crate) fn on_order(&mut self, now: Instant, order: Order) {
        match order {
            Order::Drain { limit, why } => {
                self.life.drain(now, limit, why);
                self.why = why.why();
            }
            Order::Resume => {
                if self.life.resume() {
                    self.start_over(ChangeReason::Resumed);
                }
            }
        }
    }

    /// Takes in the end of a warm-up.
    pub(crate) fn on_warmed_up(&mut self, now: Instant, is_good: bool) {
        if let Some(step) = self.life.on_warmed_up(is_good) {
            self.take(now, step);
        }
    }

    /// Moves the member on to `now`; `peers_cached` is the mean cached share of full peers, 0 to 1.
    pub(crate) fn on_tick(&mut self, now: Instant, live: Live, peers_cached: Option<f32>) {
        self.live = live;
        let is_wedged = self.is_wedged(now);
        self.outliers.on_silence(live.silent_for, self.stall(now), is_wedged);
        self.breakers.advance(now, &self.spec.health.breaker);
        if self.pressure.advance(now) {
            self.why = ChangeReason::WaitOver;
        }
        self.count_idleness(now);
        self.bucket.advance(now, live.started, self.queue_length(now), &self.spec.bucket);
        let slope =
            Slope { slow_start: self.spec.slow_start, cached: self.cache.known(), peers_cached };
        if self.ramp.advance(now, slope) {
            self.why = ChangeReason::RampEnded;
        }
        if let Some(step) = self.life.advance_drain(now, live.in_flight) {
            self.take(now, step);
        }
        if self.reserve.as_mut().is_some_and(|reserve| reserve.advance(now, live.in_flight)) {
            self.why = ChangeReason::Demoted;
        }
    }

    /// Returns the paces of the replica, one for each model.
    pub(crate) fn paces(&self) -> &Paces {
        &self.paces
    }

    /// Compares the replica's pace with the usual one. A slow replica on trial fails its trial.
    pub(crate) fn on_usual_paces(
        &mut self,
        now: Instant,
        usual: &UsualPaces,
        shared: &mut FleetShared<'_>,
    ) {
        let Self { paces, spec, .. } = self;
        let weight = spec.weight.max(1);
        let is_slow = paces.is_slow(&spec.pool, weight, usual, spec.health.slow_ratio);
        self.outliers.on_pace(is_slow);
        // With three in a pool, nothing is usual while one is out: the last known limit stays.
        if is_slow || self.condition.is_on_trial() {
            let slow_after = usual.slow_after(&spec.pool, weight, spec.health.slow_ratio);
            self.slow_after = slow_after.or(std::mem::take(&mut self.slow_after));
        }
        if is_slow {
            self.fail_trial(now, shared);
        }
    }

    /// Counts a time without requests as a good answer. A trial needs requests to pass, and while
    /// all are idle a policy that uses load may send none to a replica with a small share.
    fn count_idleness(&mut self, now: Instant) {
        if self.live.in_flight > 0 || self.admission() != Admission::Open {
            self.idle_since = None;
            return;
        }
        let since = *self.idle_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= IDLE_AS_GOOD {
            self.idle_since = Some(now);
            if !self.was_slow_on_trial {
                self.condition.on_answer();
            }
            self.breakers.on_idle(now, &self.spec.health.breaker);
        }
    }

    /// Promotes the replica from the reserve. It starts cold, unless it was just about to go back.
    pub(crate) fn promote(&mut self, now: Instant) {
        if self.reserve == Some(Reserve::Held) {
            self.start_ramp(now);
        }
        self.reserve = Some(Reserve::Promoted { at: now });
        self.why = ChangeReason::Promoted;
    }

    /// Demotes the replica into the reserve, once it has finished its requests.
    pub(crate) fn demote(&mut self, now: Instant) {
        if let (Some(reserve), Some(config)) = (&mut self.reserve, &self.spec.standby) {
            reserve.retire(now, config);
            self.why = ChangeReason::Demoted;
        }
    }

    pub(crate) fn spec(&self) -> &MemberSpec {
        &self.spec
    }

    pub(crate) fn pool(&self) -> &PoolName {
        &self.spec.pool
    }

    pub(crate) fn reserve(&self) -> Option<Reserve> {
        self.reserve
    }

    /// Returns true if the replica could take part, were it not in the reserve.
    pub(crate) fn is_promotable(&self) -> bool {
        let is_retiring = matches!(self.reserve, Some(Reserve::Retiring { .. }));
        let admission = self.admission_besides_reserve();
        admission == Admission::Open && (is_retiring || self.reserve == Some(Reserve::Held))
    }

    pub(crate) fn shown(&self) -> &Standing {
        &self.shown.standing
    }

    /// Returns the cached share of its prompts, 0 to 1, if the replica has its full share and is
    /// thus a measure for others.
    pub(crate) fn cached_as_peer(&self) -> Option<f32> {
        let is_measure = self.ramp.is_full() && self.admission() == Admission::Open;
        self.cache.known().filter(|_| is_measure)
    }

    pub(crate) fn queued(&self, now: Instant) -> Option<f32> {
        self.load.queued(now, self.fading())
    }

    pub(crate) fn add_times_to(&self, samples: &mut Samples, now: Instant) {
        self.times.add_to(samples, now);
    }

    pub(crate) fn is_ejected_by_traffic(&self) -> bool {
        self.life.is_serving() && self.condition.is_ejected_by_traffic()
    }

    fn on_answer(&mut self, now: Instant, after: Duration, form: ReplyForm) {
        self.outliers.on_answer(now);
        self.pressure.on_answer(now);
        self.latency.record(now, after);
        self.times.record(now, after);
        if form == ReplyForm::Stream {
            self.first_tokens.record(now, after);
        }
    }

    /// Counts the speed that an answer reports. A slow answer does not pass a trial, or a replica
    /// ejected as slow would pass it. Where the limit for slow is known, an answer without a speed
    /// does not pass it either.
    fn on_worked(&mut self, model: Option<&ModelName>, worked: Option<Worked>, models_max: usize) {
        match self.slow_after.judge(model, worked) {
            Pacing::Good => self.condition.on_answer(),
            Pacing::Unproved => {}
            // Idle times between slow answers prove nothing.
            Pacing::Slow => {
                self.was_slow_on_trial = true;
                self.condition.on_slow_answer();
            }
        }
        if let (Some(model), Some(worked)) = (model, worked) {
            self.paces.record(model, worked, models_max);
        }
    }

    fn on_busy(
        &mut self,
        now: Instant,
        retry_after: Option<Duration>,
        shared: &mut FleetShared<'_>,
    ) {
        self.outliers.on_busy();
        if self.pressure.on_busy(now, retry_after, &self.spec.health, shared.rng) {
            self.why = ChangeReason::AskedToWait;
        }
    }

    fn on_finish(&mut self, tokens: TokenCounts) {
        self.outliers.on_finish();
        self.cache.record(tokens);
    }

    /// Ejects the replica again if it is on trial: there a single fault is enough.
    fn fail_trial(&mut self, now: Instant, shared: &mut FleetShared<'_>) {
        if self.life.is_serving() && matches!(self.condition.state(), ConditionState::Trial { .. })
        {
            self.condition.eject(now, &self.spec.health, shared.rng);
            self.leave_out(now, ChangeReason::TrialFailed);
        }
    }

    /// Returns true if the replica has been silent for half of the time that proves a stall, and more
    /// requests are there than when the silence began.
    fn is_wedged(&mut self, now: Instant) -> bool {
        let Some(silent_for) = self.live.silent_for else {
            self.silence = None;
            return false;
        };
        let length = self.queue_length(now);
        let begun = now.checked_sub(silent_for);
        // A byte came since the last tick: another silence has begun.
        let is_new =
            self.silence.is_none_or(|silence| begun.is_some_and(|at| at > silence.at + TICK));
        if is_new {
            self.silence = Some(Silence { at: begun.unwrap_or(now), queue_length: length });
        }
        let has_grown = self.silence.is_some_and(|silence| length >= silence.queue_length + 1.0);
        has_grown && silent_for >= Duration::from_millis(self.spec.health.stall_ms) / 2
    }

    /// Returns the requests at the replica by its own report, at least those of this node.
    fn queue_length(&self, now: Instant) -> f32 {
        let load = self.load.readings(now, self.fading());
        let told = [load.queued, load.running].into_iter().filter(|reading| reading.is_known());
        told.map(|reading| reading.value).sum::<f32>().max(self.live.in_flight as f32)
    }

    fn fading(&self) -> Fading {
        Fading {
            period: self.spec.report_period(),
            half_life: Duration::from_millis(self.spec.health.stale_half_life_ms),
        }
    }
}

impl MemberSpec {
    /// Returns the time between two load reports.
    pub(crate) fn report_period(&self) -> Duration {
        self.checks.scrape.unwrap_or(REPORT_PERIOD)
    }
}
