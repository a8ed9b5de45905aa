//! Number of replicas for a demand, by arithmetic.

use spillway_engine::StepCost;

use super::{DayCurve, PlannedRegion};

/// Mean work of one request for a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Tokens of the prompt.
    pub prompt_tokens: f64,
    /// Part of the prompt tokens that the replica has in its cache, 0 to 1.
    pub cached_share: f64,
    /// Tokens of the reply.
    pub reply_tokens: f64,
}

impl Work {
    /// Returns the seconds of a replica's time for the request alone: without the fixed cost of a
    /// step, which all running requests share.
    #[must_use]
    pub fn seconds(&self, cost: &StepCost) -> f64 {
        let new_tokens = self.prompt_tokens * (1.0 - self.cached_share);
        // A step of the reply reads all tokens before it: the whole prompt, and half of the reply
        // on average.
        let context = self.prompt_tokens + self.reply_tokens / 2.0;
        let step_ns = cost.sequence_ns as f64 + context * cost.kv_token_ns as f64;
        (new_tokens * cost.prefill_token_ns as f64 + self.reply_tokens * step_ns) / 1e9
    }

    /// Returns the requests a second of one replica whose steps take at most `step_ms` on average:
    /// a step takes its fixed cost, and the work of the requests that come while it lasts.
    #[must_use]
    pub fn rate_per_s(&self, cost: &StepCost, step_ms: f64) -> f64 {
        let base_ms = cost.base_ns as f64 / 1e6;
        (1.0 - base_ms / step_ms).max(0.0) / self.seconds(cost)
    }
}

/// Requirements of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizing {
    /// Regions of the plan.
    pub regions: Vec<PlannedRegion>,
    /// Demand over the day.
    pub curve: DayCurve,
    /// Requests a second of one replica within the objective.
    pub replica_per_s: f64,
    /// Part of a region's capacity that guests leave free, 0 to 1 (`spill.reserve_percent`).
    pub reserve: f64,
    /// For each region, the region that its clients go to when it is lost.
    pub stand_ins: Vec<usize>,
}

impl Sizing {
    /// Returns the replicas that each region needs for its own busiest hour.
    #[must_use]
    pub fn own_peaks(&self) -> Vec<usize> {
        self.regions.iter().map(|region| self.replicas_for(region.peak_per_s)).collect()
    }

    /// Returns the replicas that each region needs to serve, alone, all clients of any one region
    /// whose clients would move to it: the price of a plan without spilling.
    #[must_use]
    pub fn without_spilling(&self) -> Vec<usize> {
        let mut replicas = self.own_peaks();
        for hour in 0..24 {
            let demands = self.curve.demands_per_s(&self.regions, f64::from(hour));
            // One region at a time: a plan against two losses in the same hour is another plan.
            for (lost, &stand_in) in self.stand_ins.iter().enumerate() {
                let needed = self.replicas_for(demands[stand_in] + demands[lost]);
                replicas[stand_in] = replicas[stand_in].max(needed);
            }
        }
        replicas
    }

    /// Returns replicas with which every region serves its own clients at their peak, and all
    /// regions but any one serve all clients at any hour.
    ///
    /// No replica of the plan can be taken away. Another plan with as many or fewer may exist,
    /// since not all placements are tried.
    #[must_use]
    pub fn replicas(&self) -> Vec<usize> {
        let own = self.own_peaks();
        let mut plan = own.clone();
        // Greedy: add a replica where it helps most, until nothing is missing,
        while self.missing_per_s(&plan) > 0.0 {
            let missing_with = |at: usize| self.missing_per_s(&changed(&plan, at, 1));
            let best = (0..plan.len())
                .min_by(|one, other| missing_with(*one).total_cmp(&missing_with(*other)));
            plan = changed(&plan, best.unwrap_or(0), 1);
        }
        // and then take away those that are not needed after all.
        for (at, &least) in own.iter().enumerate() {
            while plan[at] > least && self.missing_per_s(&changed(&plan, at, -1)) <= 0.0 {
                plan[at] -= 1;
            }
        }
        plan
    }

    /// Returns true if these replicas carry the load at every hour without the region `lost`.
    #[must_use]
    pub fn holds_without(&self, replicas: &[usize], lost: usize) -> bool {
        (0..24).all(|hour| self.missing_at(replicas, lost, f64::from(hour)) <= 0.0)
    }

    /// Returns the requests a second that find no slot, summed over all hours and lost regions.
    fn missing_per_s(&self, replicas: &[usize]) -> f64 {
        let of = |lost| (0..24).map(move |hour| self.missing_at(replicas, lost, f64::from(hour)));
        (0..replicas.len()).flat_map(of).sum()
    }

    fn missing_at(&self, replicas: &[usize], lost: usize, utc_h: f64) -> f64 {
        let mut demands = self.curve.demands_per_s(&self.regions, utc_h);
        demands[self.stand_ins[lost]] += demands[lost];
        self.missing(replicas, &demands, lost)
    }

    /// Returns the requests a second that exceed the capacity of their region and find no room in
    /// the other regions left.
    fn missing(&self, replicas: &[usize], demands: &[f64], lost: usize) -> f64 {
        let (mut overflow, mut room) = (0.0, 0.0);
        for region in (0..replicas.len()).filter(|region| *region != lost) {
            let capacity = replicas[region] as f64 * self.replica_per_s;
            overflow += (demands[region] - capacity).max(0.0);
            // A region's own clients may use the reserve, guests may not.
            room += (capacity * (1.0 - self.reserve) - demands[region]).max(0.0);
        }
        (overflow - room).max(0.0)
    }

    fn replicas_for(&self, rate_per_s: f64) -> usize {
        (rate_per_s / self.replica_per_s).ceil().max(1.0) as usize
    }
}

/// Returns the plan with `more` replicas added in one region.
fn changed(plan: &[usize], at: usize, more: isize) -> Vec<usize> {
    let mut plan = plan.to_vec();
    plan[at] = plan[at].saturating_add_signed(more);
    plan
}

#[cfg(test)]
mod tests {
    use spillway_engine::Profile;

    use super::*;

    fn sizing() -> Sizing {
        let region = |name: &str, utc_offset_h, peak_per_s| PlannedRegion {
            name: name.to_owned(),
            utc_offset_h,
            peak_per_s,
        };
        Sizing {
            regions: vec![
                region("us", -5.0, 22.0),
                region("eu", 0.0, 18.0),
                region("ap", 9.0, 14.0),
            ],
            curve: DayCurve { peak_h: 15.0, night: 0.2 },
            replica_per_s: 5.0,
            reserve: 0.1,
            stand_ins: vec![1, 0, 0],
        }
    }

    #[test]
    fn a_plan_holds_own_peaks_and_any_lost_region_and_no_replica_of_it_can_be_spared() {
        let sizing = sizing();
        let plan = sizing.replicas();
        assert!(plan.iter().zip(sizing.own_peaks()).all(|(planned, own)| *planned >= own));
        assert!((0..3).all(|lost| sizing.holds_without(&plan, lost)), "{plan:?}");
        let alone: usize = sizing.without_spilling().iter().sum();
        assert!(plan.iter().sum::<usize>() < alone, "{plan:?} of {alone}");
        let own = sizing.own_peaks();
        assert!((0..3).any(|lost| !sizing.holds_without(&own, lost)), "{own:?} would be enough");
        for at in (0..3).filter(|at| plan[*at] > own[*at]) {
            assert!(sizing.missing_per_s(&changed(&plan, at, -1)) > 0.0, "{plan:?}: {at}");
        }
    }

    #[test]
    fn guests_get_no_more_than_the_reserve_leaves() {
        let demands = [0.0, 30.0, 0.0];
        let missing = |reserve| Sizing { reserve, ..sizing() }.missing(&[9, 4, 2], &demands, 0);
        assert!(missing(0.0) < 1e-9, "10 requests a second find 10 of room");
        assert!((missing(0.1) - 1.0).abs() < 1e-9, "and 9 leave one");
    }

    #[test]
    fn a_request_costs_its_new_tokens_and_what_attention_reads() {
        let cost = Profile::L4.step_cost();
        let work = Work { prompt_tokens: 1_000.0, cached_share: 0.9, reply_tokens: 0.0 };
        assert!((work.seconds(&cost) - 100.0 * 0.000_478).abs() < 1e-9);
        let chat = Work { reply_tokens: 100.0, ..work };
        // 100 steps, each with a sequence and 1,050 tokens of KV.
        let more = 100.0 * (100_000.0 + 1_050.0 * 437.0) / 1e9;
        assert!((chat.seconds(&cost) - work.seconds(&cost) - more).abs() < 1e-9);
        assert!(chat.rate_per_s(&cost, 54.0) < 1e-9, "the fixed cost leaves no time");
        assert!(chat.rate_per_s(&cost, 200.0) > chat.rate_per_s(&cost, 100.0));
    }
}
