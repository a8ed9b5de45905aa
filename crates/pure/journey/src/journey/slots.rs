//! Slots at replicas: which of them count for the request, and how soon they come free.

use spillway_route::{
    Access, Attempt, Candidate, Loads, PlanError, Turnover, expected_rate, guessed_rate,
};
use spillway_types::{RegionName, Speed};

use super::Journey;
use crate::decision::RequestWay;
use crate::room::Room;
use crate::sight::Sight;
use crate::tenant_share;

impl Journey {
    /// Returns the slots that the request may count with.
    #[must_use]
    pub fn room<S: Sight>(&self, sight: &S) -> Room {
        let inquiry = sight.inquiry();
        // A request that only one replica can serve is sent there, and gets its refusal from there.
        let is_free = sight.pinned().is_none();
        // Without a model, or on a route without a queue, the request would be refused.
        let can_wait = is_free && inquiry.model.is_some() && sight.route_rules().has_queue();
        let kept = if can_wait { tenant_share::kept_from(sight) } else { None };
        // A guess moves no session and no hashed key.
        let has_home = inquiry.session.or(inquiry.affinity).is_some();
        let is_past_guesses = self.is_past_guesses || has_home;
        let tenant = sight.tenant().filter(|_| is_free).map(|key| key.tenant);
        let blocks = inquiry.prefix.as_slice().len().div_ceil(2);
        let half_blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        Room {
            can_wait,
            // A guest was admitted by its pace when it came.
            is_guest: false,
            is_past_guesses,
            kept,
            first: None,
            adapter: None,
            tenant,
            half_blocks,
        }
    }

    /// Returns how many requests a second, of so many tokens on average, the replicas are expected
    /// to serve: by their slots and by how long such requests keep one. `None` if nothing is
    /// known.
    #[must_use]
    pub fn expected_rate<S: Sight>(&self, sight: &S, tokens: f32) -> Option<f32> {
        let group = sight.group()?;
        let loads = sight.loads(self.room(sight), false);
        let turnover = |candidate: &Candidate| {
            let slots = candidate.in_flight_max.min(loads.limit(candidate.slot));
            let hold = sight.hold_time(candidate.slot);
            (slots < u32::MAX).then_some(Turnover { slots, hold })
        };
        expected_rate(group.group.candidates().iter().filter_map(turnover), tokens)
    }

    /// Returns [`Journey::expected_rate`] or, before any request has ended, a guess by the speed of
    /// similar replicas: others of the model here, those of other regions, or those of a usual
    /// engine. The reply is expected to have `reply_tokens`. A guess refuses no request. It spreads
    /// the refused clients of a burst over the time that the burst is likely to take.
    #[must_use]
    pub fn foreseen_rate<S: Sight>(
        &self,
        sight: &S,
        tokens: f32,
        reply_tokens: u32,
    ) -> Option<f32> {
        let measured = self.expected_rate(sight, tokens);
        measured.or_else(|| self.guessed_rate(sight, reply_tokens))
    }

    fn guessed_rate<S: Sight>(&self, sight: &S, reply_tokens: u32) -> Option<f32> {
        let group = sight.group()?;
        let loads = sight.loads(self.room(sight), false);
        let similar = similar_speed(sight);
        let prompt_bytes = sight.inquiry().prompt_bytes as f32;
        let replica = |candidate: &Candidate| {
            let slots = candidate.in_flight_max.min(loads.limit(candidate.slot));
            let own = sight.replica_speed(candidate.slot);
            let speed = if own.trust > 0.0 { own } else { similar };
            let held_ms = speed.floor_ms
                + speed.reading_ms(prompt_bytes, 0.0)
                + reply_tokens as f32 * speed.decode_ms;
            (slots < u32::MAX).then_some((slots, held_ms))
        };
        guessed_rate(group.group.candidates().iter().filter_map(replica))
    }

    /// Returns [`Journey::expected_rate`] where the number of slots is certain. A limit that is still
    /// being learned may grow within a second, and no request is refused for a guess.
    pub(super) fn certain_rate<S: Sight>(&self, sight: &S, tokens: f32) -> Option<f32> {
        let mut candidates = sight.group()?.group.candidates().iter();
        let is_guessed = candidates.any(|candidate| sight.has_guessed_limit(candidate.slot));
        self.expected_rate(sight, tokens).filter(|_| !is_guessed)
    }

    /// Returns true if the request would leave the region only for a limit that is still being
    /// learned, at a replica that reports an empty queue. Such limits then hold the request back no
    /// more.
    pub(super) fn leaves_for_a_guess<S: Sight>(
        &self,
        way: RequestWay,
        planned: Result<Attempt, PlanError>,
        sight: &S,
    ) -> bool {
        let leaves = matches!(way, RequestWay::Region { .. }) && planned == Err(PlanError::AllBusy);
        if self.is_past_guesses || !leaves {
            return false;
        }
        let is_guess = |candidate: &Candidate| {
            let is_calm = sight.signals(candidate.slot).queued.or(1.0) < 1.0;
            is_calm && sight.has_guessed_limit(candidate.slot)
        };
        sight.group().is_some_and(|group| group.group.candidates().iter().any(is_guess))
    }
}

/// Returns the speed of replicas that are like the own ones: of the same model here, else in the
/// region that knows its own best. Without any it is that of a usual engine.
fn similar_speed<S: Sight>(sight: &S) -> Speed {
    let is_learned = |speed: &Speed| speed.trust > 0.0;
    let Some(model) = &sight.inquiry().model else { return Speed::UNKNOWN };
    if let Some(own) = sight.own_speed(model).filter(is_learned) {
        return own;
    }
    let any = |_: &RegionName| Access::Ready;
    let count = sight.others(model, &any).len();
    let told = (0..count).filter_map(|index| sight.speed(index, model)).filter(is_learned);
    told.max_by(|one, other| one.trust.total_cmp(&other.trust)).unwrap_or(Speed::UNKNOWN)
}
