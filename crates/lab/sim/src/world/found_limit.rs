//! Limit of the requests in flight that a node finds for one replica.

use std::time::Instant;

use spillway_health::QueueReports;
use spillway_route::{
    ConcurrencyLimit, ConcurrencyTuning, GuestLack, LoadSample, Sharer, own_part,
};
use spillway_types::{LoadReport, Prediction, Reading, Signals};

use crate::router::Slots;

/// Milliseconds to the first token where nothing was predicted, and the least that counts as
/// predicted: as in nodes.
const USUAL_MS: f64 = 100.0;
const IDLE_MS_MIN: f64 = 5.0;

/// Limit of a node for one replica, with the observations since the last look.
#[derive(Clone, Debug)]
pub(super) struct FoundLimit {
    limit: ConcurrencyLimit,
    reports: QueueReports,
    /// Most requests of the node in flight at a time.
    most: u32,
    /// Requests whose reply has not begun.
    unbegun: u32,
    /// Replies that began, and the sum of their times to the first token in parts of the time
    /// predicted without a queue.
    began: u32,
    first_tokens: f64,
    /// Lack for which guests were refused.
    guest_lack: Option<GuestLack>,
}

/// Demand of the region's other nodes for a replica.
#[derive(Debug)]
pub(super) struct Demand {
    pub(super) in_flight: u32,
    pub(super) sharers: Vec<Sharer>,
}

impl FoundLimit {
    /// Returns a limit without any knowledge of the replica, which takes at most so many requests.
    pub(super) fn new(in_flight_max: u32) -> Self {
        let tuning = ConcurrencyTuning::default();
        let tuning = ConcurrencyTuning { max: tuning.max.min(in_flight_max), ..tuning };
        Self {
            limit: ConcurrencyLimit::new(tuning),
            reports: QueueReports::default(),
            most: 0,
            unbegun: 0,
            began: 0,
            first_tokens: 0.0,
            guest_lack: None,
        }
    }

    /// Notes a request that was sent, with which so many are in flight.
    pub(super) fn sent(&mut self, in_flight: u32) {
        self.most = self.most.max(in_flight);
        self.unbegun += 1;
    }

    /// Notes that a reply began after so many milliseconds.
    pub(super) fn began(&mut self, first_token_ms: f64, prediction: Option<Prediction>) {
        let idle_ms = prediction.map_or(USUAL_MS, |predicted| {
            f64::from(predicted.first_token_ms - predicted.wait_ms).max(IDLE_MS_MIN)
        });
        self.settled();
        self.began += 1;
        self.first_tokens += first_token_ms / idle_ms;
    }

    /// Notes that a reply never begins.
    pub(super) fn settled(&mut self) {
        self.unbegun = self.unbegun.saturating_sub(1);
    }

    /// Returns the requests whose reply has not begun.
    pub(super) fn unbegun(&self) -> u32 {
        self.unbegun
    }

    /// Notes what a refused guest lacked.
    pub(super) fn note_guest_lack(&mut self, lack: GuestLack) {
        // Of several, the reserve counts, as in nodes.
        if self.guest_lack != Some(GuestLack::Reserve) {
            self.guest_lack = Some(lack);
        }
    }

    /// Applies a report of the replica.
    pub(super) fn reported(&mut self, at: Instant, signals: &Signals) {
        let told = |reading: Reading| reading.is_known().then_some(reading.value);
        let (queued, running, kv_use) =
            (told(signals.queued), told(signals.running), told(signals.kv_use));
        let report = LoadReport { queued, running, kv_use, ..LoadReport::default() };
        self.reports.handle_report(at, &report);
    }

    /// Updates the limit by the observations since the last look.
    pub(super) fn look(
        &mut self,
        in_flight: u32,
        slots: &mut Slots,
        mut demand: Demand,
        now: Instant,
    ) {
        let wanted = demand.sharers.iter().map(|sharer| sharer.wanted);
        let sample = LoadSample {
            in_flight: self.most.max(in_flight),
            elsewhere: demand.in_flight,
            wanted_elsewhere: wanted.fold(0, u32::saturating_add),
            allowed: slots.own_part,
            unbegun: self.unbegun,
            guest_lack: self.guest_lack.take(),
            queue: self.reports.take_sample(now),
            began: self.began,
            first_token: (self.began > 0)
                .then(|| (self.first_tokens / f64::from(self.began)) as f32),
        };
        (self.most, self.began, self.first_tokens) = (in_flight, 0, 0.0);
        let limit = self.limit.update(&sample, now);
        slots.limit = Some(limit);
        slots.is_found = self.limit.is_found();
        slots.guests_unbegun_max = self.limit.guests_unbegun_max();
        slots.own_part = own_part(limit, &mut demand.sharers);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_queue_that_stays_in_a_replica_lowers_the_limit_to_what_it_works_on() {
        #[expect(clippy::disallowed_methods, reason = "a test needs some starting moment")]
        let start = Instant::now();
        let mut found = FoundLimit::new(1_024);
        let mut slots = Slots { in_flight_max: 1_024, ..Slots::default() };
        let reading = |value| Reading { value, trust: 1.0 };
        let mut look = |found: &mut FoundLimit, step: u32, queued: f32| {
            let now = start + Duration::from_millis(100) * step;
            let signals =
                Signals { queued: reading(queued), running: reading(20.0), ..Signals::UNKNOWN };
            found.reported(now, &signals);
            let sharers = vec![Sharer { wanted: 100, is_before: false }];
            found.look(40, &mut slots, Demand { in_flight: 4, sharers }, now);
            slots
        };
        assert!(look(&mut found, 0, 0.0).is_guess());
        let full = (1..60).map(|step| look(&mut found, step, 24.0)).last().unwrap_or_default();
        assert!(full.is_found && full.capacity() < 30, "{full:?}");
        assert!(full.own_part < full.capacity(), "a neighbour wants slots, too: {full:?}");
    }

    #[test]
    fn no_limit_is_above_what_the_operator_allows() {
        assert_eq!(FoundLimit::new(8).limit.limit(), 8);
    }
}
