//! Time that a request waits.

use std::time::{Duration, Instant};

use spillway_route::ShedReason;

use super::{Journey, JourneyState};
use crate::ending::Ending;
use crate::sight::Sight;
use crate::standing::Position;
use crate::step::WaitTerms;
use crate::tenant_share;

/// Time between two looks of a waiting request at other regions, which may be sooner by now.
pub(super) const REVIEW: Duration = Duration::from_millis(250);
/// Longest pause of replicas that requests wait for in this node. For longer pauses, clients are
/// asked to retry later.
const REST_WAIT_MAX: Duration = Duration::from_secs(30);
/// Time between the end of a replica's pause and the news of it.
const REST_SLACK: Duration = Duration::from_millis(5);
/// Pause between two looks for a slot at the one replica that can serve a request, or after slots
/// were lost time and again.
const PLACE_PAUSE: Duration = Duration::from_millis(20);
/// Number of slots in a row that may be lost to others before a request pauses.
const PLACES_LOST_MAX: u32 = 4;
/// Time for which a request that came back at the time promised looks for a moment at which it
/// keeps the objective. Loads change within a second or two, so most find one.
const MOMENT_WAIT: Duration = Duration::from_secs(8);
/// Part of a predicted wait that is certain.
const CERTAIN_SHARE: f32 = 0.7;
/// Longest wait that can be set, in milliseconds: a day.
const WAIT_MS_END: u64 = 86_400_000;

impl Journey {
    /// Lets the request wait in the queue, or turns it away if it has waited for as long as it may.
    pub(super) fn wait<S: Sight>(&mut self, prefill_ms: f32, sight: &S, now: Instant) {
        let since = *self.standing.since.get_or_insert(now);
        let (until, over) = self.waits_until(since, sight);
        if now >= until {
            return self.shed(over, 0.0, sight);
        }
        let mut pause = REVIEW.min(until - now);
        if let Some(busy_until) = self.busy_until {
            // A request that is admitted again should not have to wait for the next look.
            pause = pause.min(busy_until.saturating_duration_since(now) + REST_SLACK);
        }
        let terms = WaitTerms {
            until,
            over,
            begin_by: self.begin_by(prefill_ms, sight),
            turn_by: self.standing.claim.turn_by(),
            pause,
            passes_turn_on: self.standing.position == Position::AtTurn
                && tenant_share::passes_turn_on(sight),
        };
        self.standing.position = Position::Queued;
        self.state = JourneyState::Waiting(terms);
    }

    /// Returns true if the request waits for a replica that starts, since none is known to serve.
    pub(super) fn waits_for_start<S: Sight>(&self, sight: &S, now: Instant) -> bool {
        // First what few routes want.
        self.may_wait_for_start(sight, now) && sight.group().is_some_and(|group| group.is_out)
    }

    /// Returns true if the route lets the request wait for a replica that starts. A request of
    /// another region waits at home.
    pub(super) fn may_wait_for_start<S: Sight>(&self, sight: &S, now: Instant) -> bool {
        let rules = sight.route_rules();
        let since = self.standing.since.unwrap_or(now);
        rules.start_wait_ms > 0
            && rules.has_queue()
            && !self.is_bound
            && !self.has_held_reply
            && sight.inquiry().hop == 0
            && sight.pinned().is_none()
            && now < self.start_waited_until(since, sight)
    }

    /// Lets the request wait in the queue for a replica that starts. Then all are asked again: what
    /// failed before was not there.
    pub(super) fn wait_for_start<S: Sight>(&mut self, sight: &S, now: Instant) {
        let since = *self.standing.since.get_or_insert(now);
        let until = self.start_waited_until(since, sight);
        self.tried.clear();
        (self.attempts, self.attempts_of_model) = (0, 0);
        let terms = WaitTerms {
            until,
            over: ShedReason::NobodyInReach,
            begin_by: None,
            turn_by: self.standing.claim.turn_by(),
            pause: REVIEW.min(until.saturating_duration_since(now)),
            passes_turn_on: false,
        };
        self.standing.position = Position::Queued;
        self.state = JourneyState::Waiting(terms);
    }

    /// Lets a request whose journey would end by the failure of a replica wait for one that starts,
    /// if no other replica can serve it.
    pub(super) fn wait_for_start_instead<S: Sight>(
        &mut self,
        ending: Ending,
        sight: &S,
        now: Instant,
    ) {
        let is_lost = ending == Ending::LastFailure && self.state == JourneyState::Over(ending);
        if is_lost && self.may_wait_for_start(sight, now) {
            self.wait_for_start(sight, now);
        }
    }

    fn start_waited_until<S: Sight>(&self, since: Instant, sight: &S) -> Instant {
        let longest_ms = sight.route_rules().start_wait_ms.min(WAIT_MS_END);
        let longest = since + Duration::from_millis(longest_ms);
        let left_by = sight.client_patience().map(|patience| self.started + patience);
        let deadline = sight.inquiry().deadline.at();
        left_by.map_or(longest, |left_by| left_by.min(longest)).min(deadline)
    }

    /// Pauses before the next look for a slot. Another replica may have one at once; the only one
    /// that can serve the request is asked again after some time. Whoever loses slot after slot
    /// pauses too: otherwise a plan that takes a full replica for free would keep the processor busy.
    pub(super) fn pause_without_place<S: Sight>(&mut self, sight: &S, now: Instant) {
        self.places_lost += 1;
        if sight.pinned().is_none() && self.places_lost <= PLACES_LOST_MAX {
            self.state = JourneyState::Pausing(Duration::ZERO);
            return;
        }
        let since = *self.standing.since.get_or_insert(now);
        let (until, over) = self.waits_until(since, sight);
        if now >= until {
            return self.end(Ending::NoSlotInTime(over));
        }
        self.state = JourneyState::Pausing(PLACE_PAUSE.min(until - now));
    }

    /// Returns true if the request came back at the time promised, and is not sent away again for
    /// an objective that it would miss right now.
    pub(super) fn awaits_moment(&self, now: Instant) -> bool {
        self.standing.came_when_promised && now < self.started + MOMENT_WAIT
    }

    /// Pauses before the next look for a moment at which the request keeps the objective. It waits
    /// outside the queue: those behind it may be shorter, and keep it now.
    pub(super) fn pause_for_moment(&mut self, now: Instant) {
        let left = (self.started + MOMENT_WAIT).saturating_duration_since(now);
        self.state = JourneyState::Pausing(REVIEW.min(left));
    }

    /// Sheds the request.
    pub(super) fn shed<S: Sight>(&mut self, reason: ShedReason, predicted_ms: f32, sight: &S) {
        let not_before = self.not_before(sight);
        self.end(Ending::Shed { reason, predicted_ms, not_before });
    }

    /// Returns the moment before which no slot comes free: all replicas asked for a pause, or all
    /// other regions of a region without replicas named a time.
    pub(super) fn not_before<S: Sight>(&self, sight: &S) -> Option<Instant> {
        self.busy_until.or_else(|| self.regions_busy_until(sight))
    }

    /// Returns the end of a wait that began at `since`, and the reason for shedding then: the
    /// deadline, the longest wait of the route, or the time that the client waits for a reply to
    /// begin.
    fn waits_until<S: Sight>(&self, since: Instant, sight: &S) -> (Instant, ShedReason) {
        let longest_ms = sight.route_rules().wait_ms_max.min(WAIT_MS_END);
        let longest = since + Duration::from_millis(longest_ms);
        let left_by = sight.client_patience().map(|patience| self.started + patience);
        let longest = left_by.map_or(longest, |left_by| left_by.min(longest));
        let deadline = sight.inquiry().deadline.at();
        if deadline <= longest {
            (deadline, ShedReason::Late)
        } else {
            (longest, ShedReason::Waited)
        }
    }

    /// Returns the reason for which a request is not to wait at all: its turn is predicted to come
    /// after all the time that it may wait. Predictions stray, so the turn has to be clearly later;
    /// a request that already waits is not shed for one.
    pub(super) fn is_beyond_patience<S: Sight>(
        &self,
        wait_ms: f32,
        sight: &S,
        now: Instant,
    ) -> Option<ShedReason> {
        // The client came at the time promised, and is not sent away again for a prediction.
        let has_turn_to_come = self.standing.claim == crate::Claim::Promise;
        if self.standing.since.is_some() || has_turn_to_come {
            return None;
        }
        let (until, over) = self.waits_until(now, sight);
        let left_ms = until.saturating_duration_since(now).as_secs_f32() * 1e3;
        (wait_ms * CERTAIN_SHARE > left_ms).then_some(over)
    }

    /// Returns true if all replicas asked for so short a pause that the request waits in this node
    /// for its end. A request that a replica has itself refused gets that reply.
    pub(super) fn waits_for_rest<S: Sight>(&self, sight: &S, now: Instant) -> bool {
        let Some(busy_until) = self.busy_until else { return false };
        let (until, _) = self.waits_until(self.standing.since.unwrap_or(now), sight);
        let is_new = self.tried.is_empty() && !self.has_held_reply;
        let has_queue = sight.route_rules().has_queue();
        has_queue && is_new && busy_until < until.min(now + REST_WAIT_MAX)
    }

    /// Returns the milliseconds left until the first token is due; `None` without an objective.
    pub(super) fn first_token_left_ms<S: Sight>(&self, sight: &S, now: Instant) -> Option<f32> {
        // A request that may look for a moment has the whole time from any such moment on.
        let since = if self.awaits_moment(now) { now } else { self.started };
        let due = since + sight.route_rules().slo?;
        Some(due.saturating_duration_since(now).as_secs_f32() * 1e3)
    }

    /// Returns the latest moment for the first token of a request that waits in the queue.
    fn first_token_due<S: Sight>(&self, sight: &S) -> Option<Instant> {
        let more = if self.standing.came_when_promised { MOMENT_WAIT } else { Duration::ZERO };
        sight.route_rules().slo.map(|slo| self.started + more + slo)
    }

    /// Returns the latest moment for a replica to get the request so that its first token comes in
    /// time.
    fn begin_by<S: Sight>(&self, prefill_ms: f32, sight: &S) -> Option<Instant> {
        let prefill = Duration::try_from_secs_f32(prefill_ms / 1e3).unwrap_or_default();
        let due = self.first_token_due(sight)?;
        Some(due.checked_sub(prefill).unwrap_or(due))
    }
}
