//! Steering: the decision to send new clients to this node or to keep them away.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use spillway_types::{AwayReason, Steering};

use crate::time::later;

/// Lower threshold of the hysteresis, in thousandths of `shed_permille`: the node is well again
/// below it. Between the two thresholds nothing changes.
const WELL_PERMILLE: u64 = 250;
/// Requests within the window below which no share is computed: one request rejected at night is no
/// overload.
const REQUESTS_MIN: u64 = 10;
/// Steps in which the window is counted.
const STEPS: u32 = 10;
/// Time in which half of the flaps are forgiven.
const HALF_LIFE: Duration = Duration::from_secs(120);

/// Thresholds at which clients are sent away and sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteeringConfig {
    /// Share of requests rejected for lack of room, in thousandths, that counts as overload.
    pub shed_permille: u16,
    /// Time over which requests are counted.
    pub window: Duration,
    /// Time that the overload must last before clients are sent away.
    pub shed_for: Duration,
    /// Time without a usable replica before clients are sent away: a reload or a single failed
    /// check is no reason.
    pub unusable_for: Duration,
    /// Time that a node must be well before clients are sent again. Each recent flap doubles it.
    pub well_for: Duration,
    /// Longest time that `well_for` becomes by doubling.
    pub well_for_max: Duration,
}

impl Default for SteeringConfig {
    fn default() -> Self {
        Self {
            shed_permille: 200,
            window: Duration::from_secs(5),
            shed_for: Duration::from_secs(3),
            unusable_for: Duration::from_millis(500),
            well_for: Duration::from_secs(10),
            well_for_max: Duration::from_secs(120),
        }
    }
}

/// Facts about a node at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteeringFacts {
    /// True if the node can serve at all: it has replicas or other regions, and its limits.
    pub is_ready: bool,
    /// True if the node was asked to stop.
    pub is_leaving: bool,
    /// True if an operator wants no clients here.
    pub is_ordered_away: bool,
    /// True if any replica can be used, here or in a region that can be reached.
    pub has_usable: bool,
    /// True if another region takes clients and turns none away for lack of room.
    pub has_better: bool,
    /// True if another region takes clients at all.
    pub has_other: bool,
    /// Requests of clients, counted from the start of the process.
    pub tally: SteeringTally,
}

/// Requests of clients, counted from the start of the process. Requests refused as invalid, or by a
/// limit of their client, are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SteeringTally {
    /// Requests that were replied to.
    pub served: u64,
    /// Requests rejected for lack of room.
    pub shed: u64,
}

/// State machine that decides if clients are to be sent to this node.
///
/// Draining, an operator's order and a start take effect with the next update, because they are
/// decisions or facts, not measurements. A lack of replicas or of room must last before clients are
/// sent away, and must be over for longer before they are sent again: the longer, the more often
/// that happened (as in route flap damping, RFC 2439).
#[derive(Clone, Debug)]
pub struct SteeringMachine {
    config: SteeringConfig,
    window: VecDeque<(Instant, SteeringTally)>,
    was_ready: bool,
    shedding_since: Option<Instant>,
    unusable_since: Option<Instant>,
    /// Reason for which a measurement sent clients away, and the time since which the node is well.
    away: Option<(AwayReason, Option<Instant>)>,
    flaps: f64,
    flaps_at: Instant,
    steering: Steering,
}

impl SteeringMachine {
    /// Makes the machine of a node that is starting.
    #[must_use]
    pub fn new(config: SteeringConfig, now: Instant) -> Self {
        Self {
            config,
            window: VecDeque::new(),
            was_ready: false,
            shedding_since: None,
            unusable_since: None,
            away: None,
            flaps: 0.0,
            flaps_at: now,
            steering: Steering::Away(AwayReason::Starting),
        }
    }

    /// Takes in the facts at `now`, a few times a second. Returns the decision.
    pub fn update(&mut self, now: Instant, facts: &SteeringFacts) -> Steering {
        let share = self.shed_share(now, facts.tally);
        let is_shedding = share.is_some_and(|share| share >= u64::from(self.config.shed_permille));
        let well_below = u64::from(self.config.shed_permille) * WELL_PERMILLE / 1_000;
        let is_well = share.is_none_or(|share| share <= well_below);
        mark(&mut self.shedding_since, is_shedding, now);
        mark(&mut self.unusable_since, !facts.has_usable, now);
        // After the start, a lack of replicas is a measurement that must last.
        self.was_ready |= facts.is_ready && facts.has_usable;
        self.measure(now, facts, is_well);
        self.steering = match self.away {
            _ if facts.is_leaving => Steering::Away(AwayReason::Draining),
            _ if facts.is_ordered_away => Steering::Away(AwayReason::Ordered),
            _ if !self.was_ready => Steering::Away(AwayReason::Starting),
            Some((reason, _)) => Steering::Away(reason),
            None if is_shedding => Steering::SendShedding,
            None => Steering::Send,
        };
        self.steering
    }

    /// Returns the last decision.
    #[must_use]
    pub fn steering(&self) -> Steering {
        self.steering
    }

    /// Follows the measurements: usable replicas and room.
    fn measure(&mut self, now: Instant, facts: &SteeringFacts, is_well: bool) {
        let lasts = |since: Option<Instant>, limit| since.is_some_and(|at| now >= later(at, limit));
        let is_unusable = !facts.is_ready || lasts(self.unusable_since, self.config.unusable_for);
        let sheds = lasts(self.shedding_since, self.config.shed_for);
        match self.away {
            // This node serves no client, so clients leave even if the other regions do no better.
            // Send => Away
            None if self.was_ready && is_unusable => self.leave(AwayReason::NoUsableReplica, now),
            // If all regions are full, to leave would only make the others fuller.
            None if sheds && facts.has_better => self.leave(AwayReason::Shedding, now),
            None => {}
            // Away => Send
            Some((AwayReason::Shedding, _)) if !facts.has_other && !is_unusable => {
                self.away = None;
            }
            Some((reason, since)) => {
                let is_well = is_well && facts.is_ready && facts.has_usable;
                let since = is_well.then(|| since.unwrap_or(now));
                let is_over = lasts(since, self.well_for(now));
                let reason = if is_unusable { AwayReason::NoUsableReplica } else { reason };
                self.away = (!is_over).then_some((reason, since));
            }
        }
    }

    fn leave(&mut self, reason: AwayReason, now: Instant) {
        self.flaps = self.flaps_left(now) + 1.0;
        self.flaps_at = now;
        self.away = Some((reason, None));
    }

    /// Returns the time that the node must be well; it grows with the recent flaps.
    fn well_for(&self, now: Instant) -> Duration {
        // The first flap does not double the time.
        let doublings = (self.flaps_left(now) - 1.0).clamp(0.0, 16.0);
        let wait = self.config.well_for.mul_f64(doublings.exp2());
        // A longest time below `well_for` stops the doubling but shortens nothing.
        wait.min(self.config.well_for_max).max(self.config.well_for)
    }

    fn flaps_left(&self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.flaps_at);
        self.flaps * 0.5_f64.powf(passed.as_secs_f64() / HALF_LIFE.as_secs_f64())
    }

    /// Returns the share of the window's requests that were rejected, in thousandths; `None` after
    /// too few requests.
    fn shed_share(&mut self, now: Instant, tally: SteeringTally) -> Option<u64> {
        let step = self.config.window / STEPS;
        if self.window.back().is_none_or(|(at, _)| now >= later(*at, step)) {
            self.window.push_back((now, tally));
        }
        // The newest entry that is as old as the window stays, because counting starts there.
        while self.window.get(1).is_some_and(|(at, _)| now >= later(*at, self.config.window)) {
            self.window.pop_front();
        }
        let (_, oldest) = self.window.front()?;
        let shed = tally.shed.saturating_sub(oldest.shed);
        let all = shed + tally.served.saturating_sub(oldest.served);
        (all >= REQUESTS_MIN).then(|| shed.saturating_mul(1_000) / all)
    }
}

/// Records the time since which a condition is true; `None` if it is false.
fn mark(since: &mut Option<Instant>, is_so: bool, now: Instant) {
    *since = is_so.then(|| since.unwrap_or(now));
}

#[cfg(test)]
#[path = "steering_test.rs"]
mod tests;
