//! Comparison of the places that could serve one request.

use spillway_types::{RAMP_FULL, ShedState};

use super::cost::{SpillCost, sound};
use super::guests::reserve;
use super::pace::RegionMeans;
use super::region::{Access, OwnRegion, RegionCandidate, Waiting};
use super::terms::SpillTerms;
use super::verdict::{ByRegion, Judged, Objection, SpillPlan, SpillReason, SpillVerdict};
use crate::retry_after_s;

/// Facts of one decision that hold for all regions.
pub(super) struct Weighing<'a> {
    own: &'a OwnRegion,
    others: &'a [RegionCandidate],
    terms: &'a SpillTerms,
    /// Milliseconds until the request's deadline.
    deadline_ms: f32,
    /// Milliseconds until the first token has to come, by the deadline and by the route's
    /// objective.
    left_ms: f32,
    /// Milliseconds until the first token has to be predicted for a request that waits here.
    wait_left_ms: f32,
    /// Milliseconds by which another region has to cost less.
    margin_ms: f32,
    usual: RegionMeans,
}

/// Event that a time is predicted for.
#[derive(Clone, Copy, Debug)]
enum Until {
    FirstToken,
    /// The end of a reply in one piece; the first token of a stream.
    End,
}

/// Costs and objections by region.
type Verdicts = ByRegion<Judged>;

/// Indices of regions.
type Order = ByRegion<usize>;

impl<'a> Weighing<'a> {
    pub(super) fn new(
        own: &'a OwnRegion,
        others: &'a [RegionCandidate],
        terms: &'a SpillTerms,
        deadline_ms: f32,
    ) -> Self {
        let left_ms = own.first_token_ms_max.map_or(deadline_ms, |max| deadline_ms.min(sound(max)));
        let wait_left_ms = left_ms.min(deadline_ms * IN_TIME_SHARE);
        // A region with room gives a request away only for a clear gain.
        let margin_ms = if own.has_room() { own.gain_ms(terms) } else { 0.0 };
        let usual = RegionMeans::of(others, terms);
        Self { own, others, terms, deadline_ms, left_ms, wait_left_ms, margin_ms, usual }
    }

    /// Sends a request to its session's home region; `None` if that can't take it now. Weight and
    /// ramp don't count: they are for requests that could as well go elsewhere.
    pub(super) fn go_home(&self, home: usize) -> Option<SpillPlan> {
        let regions = self.judge_all(None);
        regions[home].objection.is_none().then(|| SpillPlan {
            verdict: SpillVerdict::Forward(Order::from_slice(&[home])),
            reason: SpillReason::Session,
            own: None,
            regions,
        })
    }

    /// Decides about a request for which its region has room, while another region may cost less.
    pub(super) fn decide_with_room(&self, rng: &mut fastrand::Rng) -> SpillPlan {
        let own = SpillCost {
            prefill_ms: sound(self.own.prefill_ms),
            stall_ms: sound(self.own.stall_ms),
            price_ms: sound(self.own.price_ms),
            ..SpillCost::default()
        };
        let mut regions = self.judge_all(Some(&own));
        self.rest(&mut regions, true, rng);
        let forwards = self.by_cost(&regions, rng);
        let stays = match forwards.first() {
            None => true,
            Some(&index) => self.buys(&own, index, &regions[index].cost, rng),
        };
        let own = Some(own);
        if stays {
            return SpillPlan { own, regions, ..SpillPlan::own() };
        }
        SpillPlan {
            verdict: SpillVerdict::Forward(forwards),
            reason: SpillReason::Cached,
            own,
            regions,
        }
    }

    /// Draws if a prompt is read here although another region, which has it cached, is cheaper.
    ///
    /// Paying the network each time or reading the prompt here once is the choice between renting
    /// and buying. The future number of such prompts is unknown. Were a bought prompt kept for
    /// ever, buying with a probability of rent over price would spend about as much on rent as
    /// buying costs. But caches are full, and it takes the room of others, which have to be read
    /// again, until others take its own. The more requests it takes to pay for it, the less likely
    /// they all come before: hence the square. Rent and price are what this request waits for: what
    /// reading costs others here counts in the comparison, but would keep a prompt from ever being
    /// read here. A prompt of one conversation is not bought: its next turn would find its cache
    /// elsewhere all the same.
    fn buys(
        &self,
        own: &SpillCost,
        index: usize,
        there: &SpillCost,
        rng: &mut fastrand::Rng,
    ) -> bool {
        let other = &self.others[index];
        let running_there = other.report.load.running_each();
        let more = self.own.report.load.running_each() - running_there;
        let is_relief = more > RELIEF_SHARE * running_there.max(1.0);
        let is_bought = other.is_shared && !is_relief;
        // The larger of two draws is below a probability as often as its square says.
        let drawn = rng.f32().max(rng.f32());
        is_bought && drawn * own.first_token_ms() < there.first_token_ms()
    }

    /// Decides about a request of one of this region's clients, for which it has no room.
    pub(super) fn decide(&self, rng: &mut fastrand::Rng) -> SpillPlan {
        let own = self.own_cost();
        let mut regions = self.judge_all(own.as_ref());
        self.rest(&mut regions, own.is_some(), rng);
        let forwards = self.by_cost(&regions, rng);
        if !forwards.is_empty() {
            let reason = match own {
                Some(_) => SpillReason::Better,
                None if self.own.replicas == 0 => SpillReason::NoReplica,
                None => SpillReason::OnlyWay,
            };
            return SpillPlan { verdict: SpillVerdict::Forward(forwards), reason, own, regions };
        }
        let (verdict, reason) = self.wait_or_shed(&regions, own.as_ref(), rng);
        SpillPlan { verdict, reason, own, regions }
    }

    /// Sheds a request that another region forwarded: it finds no room here, and goes nowhere else.
    pub(super) fn shed_guest(&self, rng: &mut fastrand::Rng) -> SpillPlan {
        let forwarded = |cost| Judged { cost, objection: Some(Objection::Forwarded) };
        SpillPlan {
            verdict: shed(self.own_wait_ms(), rng),
            reason: SpillReason::GuestWithoutRoom,
            own: None,
            regions: self.costs().map(forwarded).collect(),
        }
    }

    /// Returns the cost of waiting here; `None` if the request can't wait here.
    fn own_cost(&self) -> Option<SpillCost> {
        let wait_ms = self.own_wait_ms();
        let cost = SpillCost {
            wait_ms,
            crowding_ms: sound(self.terms.crowding) * wait_ms,
            prefill_ms: sound(self.own.prefill_ms),
            stall_ms: sound(self.own.stall_ms),
            price_ms: sound(self.own.price_ms),
            ..SpillCost::default()
        };
        let can_wait = self.own.waiting.has_room && self.own.late_ms.is_none();
        let is_choice = self.own.replicas > 0 && can_wait;
        let is_whole_in_time = cost.first_token_ms() + sound(self.own.rest_ms) <= self.deadline_ms;
        let is_in_time = cost.first_token_ms() <= self.wait_left_ms && is_whole_in_time;
        (is_choice && is_in_time).then_some(cost)
    }

    fn own_wait_ms(&self) -> f32 {
        // A wait that was measured here includes all that the report leaves out.
        let Waiting { ahead, wait_ms, .. } = self.own.waiting;
        wait_ms.map_or_else(
            || self.usual.own_wait_ms(&self.own.report, ahead),
            |wait_ms| sound(wait_ms as f32),
        )
    }

    fn judge_all(&self, own: Option<&SpillCost>) -> Verdicts {
        let judge = |(other, cost): (&RegionCandidate, SpillCost)| Judged {
            cost,
            objection: self.objection(other, &cost, own),
        };
        self.others.iter().zip(self.costs()).map(judge).collect()
    }

    /// Leaves regions out by chance, in proportion to their weights and ramps. With `has_own` the
    /// own region can serve the request too.
    ///
    /// A share counts among alternatives only. If chance has left out all regions, one is drawn by
    /// its share: a refusal would give no other region a larger part.
    fn rest(&self, regions: &mut Verdicts, has_own: bool, rng: &mut fastrand::Rng) {
        let mut rested = Order::new();
        for (index, judged) in regions.iter_mut().enumerate() {
            let share = share(&self.others[index]);
            let is_possible = judged.objection.is_none();
            if is_possible && share < SHARE_FULL && rng.u32(..SHARE_FULL) >= share {
                judged.objection = Some(Objection::Rested);
                rested.push(index);
            }
        }
        if has_own || regions.iter().any(|judged| judged.objection.is_none()) {
            return;
        }
        let shares = |rested: &Order| -> u64 {
            rested.iter().map(|&index| u64::from(share(&self.others[index]))).sum()
        };
        let Some(last) = shares(&rested).checked_sub(1) else { return };
        let mut drawn = rng.u64(..=last);
        for index in rested {
            let share = u64::from(share(&self.others[index]));
            if drawn < share {
                regions[index].objection = None;
                return;
            }
            drawn -= share;
        }
    }

    fn costs(&self) -> impl Iterator<Item = SpillCost> {
        self.others.iter().map(|other| self.cost(other))
    }

    fn cost(&self, other: &RegionCandidate) -> SpillCost {
        let turn_ms = self.usual.turn_ms(&other.report);
        // The nodes of this region read the same reports and serve the same clients: each is
        // assumed to have sent as much there as this one. Otherwise several of them would run to
        // one place.
        let more = other.report.change() * self.own.nodes.max(1) as f32;
        let ahead = self.usual.guests_ahead(&other.report, turn_ms, self.terms) + more;
        let (network_ms, age_ms) = (sound(other.rtt_ms), sound(other.report.age_ms));
        // The report will be older by half a round trip when the request arrives.
        let risk = other.report.refusal_risk(ahead, age_ms + network_ms / 2.0);
        SpillCost {
            network_ms,
            // Queue and unread prompts are two measures of one backlog: the longer one counts.
            wait_ms: (ahead.max(0.0) * turn_ms).max(sound(other.pending_ms)),
            prefill_ms: sound(other.prefill_ms),
            stall_ms: sound(other.stall_ms),
            price_ms: sound(other.price_ms),
            doubt_ms: sound(self.terms.doubt) * risk * network_ms,
            crowding_ms: 0.0,
        }
    }

    fn objection(
        &self,
        other: &RegionCandidate,
        cost: &SpillCost,
        own: Option<&SpillCost>,
    ) -> Option<Objection> {
        match other.access {
            Access::Unreachable => return Some(Objection::Unreachable),
            Access::Refused => return Some(Objection::Refused),
            Access::OutsideResidency => return Some(Objection::OutsideResidency),
            Access::Ready => {}
        }
        if share(other) == 0 {
            Some(Objection::Drained)
        } else if other.report.load.shed != ShedState::Open {
            Some(Objection::Closed)
        } else if self.is_late(other, cost) {
            Some(Objection::Late)
        } else {
            self.shortcoming(other, cost, own)
        }
    }

    /// Returns true if the first token would come too late from there, or the end of a reply in one
    /// piece.
    fn is_late(&self, other: &RegionCandidate, cost: &SpillCost) -> bool {
        let first_token_ms = cost.first_token_ms();
        first_token_ms >= self.left_ms || first_token_ms + sound(other.rest_ms) >= self.deadline_ms
    }

    /// Returns the reason why a region that could be asked is not worth it.
    fn shortcoming(
        &self,
        other: &RegionCandidate,
        cost: &SpillCost,
        own: Option<&SpillCost>,
    ) -> Option<Objection> {
        // A full region would refuse, since guests don't wait. Only this node's own requests count
        // here: what other nodes may have sent is no reason to shed before asking.
        if !other.report.has_room(reserve(other.report.load.capacity, self.terms)) {
            return Some(Objection::Full);
        }
        // Without a cost of the own region, every region with room is better.
        let is_better = own.is_none_or(|own| cost.total_ms() + self.margin_ms < own.total_ms());
        (!is_better).then_some(Objection::NotBetter)
    }

    fn rank(&self, other: &RegionCandidate, cost: &SpillCost) -> f32 {
        cost.total_ms() - sound(other.home_ms)
    }

    /// Returns the regions without objection, the best first; chance decides among equal ones.
    fn by_cost(&self, regions: &Verdicts, rng: &mut fastrand::Rng) -> Order {
        let mut ranked: ByRegion<(f32, usize)> = (regions.iter().zip(self.others).enumerate())
            .filter(|(_, (judged, _))| judged.objection.is_none())
            .map(|(index, (judged, other))| (self.rank(other, &judged.cost), index))
            .collect();
        ranked.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
        if let Some((least, _)) = ranked.first().copied() {
            let equals = ranked.partition_point(|(rank, _)| *rank <= least);
            if equals > 1 {
                ranked.swap(0, rng.usize(..equals));
            }
        }
        ranked.iter().map(|(_, index)| *index).collect()
    }

    fn wait_or_shed(
        &self,
        regions: &Verdicts,
        own: Option<&SpillCost>,
        rng: &mut fastrand::Rng,
    ) -> (SpillVerdict, SpillReason) {
        let soonest_ms = self.soonest_ms(regions, Until::FirstToken);
        let whole_ms = self.soonest_ms(regions, Until::End);
        if let Some(own) = own {
            // These regions had room, but waiting here costs no more.
            let could = |judged: &Judged| judged.objection == Some(Objection::NotBetter);
            let reason = if regions.iter().any(could) {
                SpillReason::NoneBetter
            } else {
                SpillReason::NobodyElse
            };
            return (SpillVerdict::Wait { wait_ms: own.wait_ms }, reason);
        }
        // A region without replicas waits for other regions.
        let is_edge = self.own.replicas == 0;
        let is_in_time = soonest_ms <= self.left_ms && whole_ms <= self.deadline_ms;
        if is_edge && self.own.waiting.has_room && is_in_time {
            return (SpillVerdict::Wait { wait_ms: soonest_ms }, SpillReason::NobodyElse);
        }
        // If a replica is free but too slow, the full queue is not the reason.
        let is_slow = self.own.late_ms.is_some();
        let reason = match (self.own.waiting.has_room || is_slow, soonest_ms.is_finite()) {
            (_, false) => SpillReason::NobodyInReach,
            (true, true) if self.is_objective_alone(whole_ms) => SpillReason::Slo,
            (true, true) => SpillReason::Late,
            // The request can't wait here at all: only other regions may serve it.
            (false, true) if is_edge && self.own.waiting.all == 0 => SpillReason::AllBusy,
            (false, true) => SpillReason::QueueFull,
        };
        (shed(soonest_ms, rng), reason)
    }

    /// Returns true if the request would be in time without the route's objective.
    fn is_objective_alone(&self, whole_ms: f32) -> bool {
        self.left_ms < self.deadline_ms && whole_ms <= self.deadline_ms
    }

    /// Returns the milliseconds until the first region is predicted to have a place for the request,
    /// or to be done with it.
    fn soonest_ms(&self, regions: &Verdicts, until: Until) -> f32 {
        let rest_ms = |rest_ms: f32| match until {
            Until::FirstToken => 0.0,
            Until::End => sound(rest_ms),
        };
        // No wait here helps where there is nothing to wait for.
        let own_ms = match (self.own.replicas, self.own.late_ms) {
            (0, _) => f32::INFINITY,
            (_, Some(late_ms)) => late_ms,
            (_, None) => self.own_wait_ms() + rest_ms(self.own.rest_ms),
        };
        let is_asked = |other: &RegionCandidate| other.access.is_possible() && share(other) > 0;
        let waits = self.others.iter().zip(regions).filter(|(other, _)| is_asked(other));
        waits
            .map(|(other, judged)| judged.cost.first_token_ms() + rest_ms(other.rest_ms))
            .fold(own_ms, f32::min)
    }
}

fn shed(wait_ms: f32, rng: &mut fastrand::Rng) -> SpillVerdict {
    SpillVerdict::Shed { retry_after_s: retry_after_s(wait_ms, rng), wait_ms }
}

/// Part of the time until the deadline within which the first token of a waiting request has to be
/// predicted: the deadline is for the whole reply, and predictions have errors. A request that runs
/// out of time has waited for nothing, in the place of another.
const IN_TIME_SHARE: f32 = 0.8;

/// Part by which more requests have to run at each replica here than there for a prompt to be read
/// there because this region is busier. The counts of equal regions differ by less by chance.
const RELIEF_SHARE: f32 = 0.2;

/// Full weight times full ramp.
const SHARE_FULL: u32 = RAMP_FULL as u32 * RAMP_FULL as u32;

/// Returns the share of requests for which a region is a candidate, of [`SHARE_FULL`].
fn share(other: &RegionCandidate) -> u32 {
    let part = |permille: u16| u32::from(permille.min(RAMP_FULL));
    part(other.weight_permille) * part(other.ramp_permille)
}
