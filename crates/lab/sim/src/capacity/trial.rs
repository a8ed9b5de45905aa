//! Trial of a plan in the simulator: given replicas and demand, with a region lost or not.

use std::time::Instant;

use spillway_engine::{EngineConfig, Profile};
use spillway_route::Policy;

use crate::{Demand, Figures, News, RegionConfig, Scenario, Setup, WorkloadKind, WorldConfig};

/// Objective of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Longest time to first token that counts as good, in milliseconds.
    pub first_token_ms: f64,
    /// Part of all requests that has to be good, 0 to 1.
    pub share: f64,
}

/// Input of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Replicas of each region.
    pub replicas: Vec<usize>,
    /// Requests a second that each region's clients make.
    pub demands_per_s: Vec<f64>,
    /// Round-trip times between the regions, in milliseconds.
    pub rtt_ms: Vec<Vec<f64>>,
    /// Seconds of warm-up, which don't count.
    pub warm_up_s: f64,
    /// Seconds that count.
    pub seconds: f64,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Results of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialFigures {
    /// Part of all requests whose first token came in time.
    pub good_share: f64,
    /// 99th percentile of the time to first token in milliseconds, of the requests that got one.
    pub p99_ms: f64,
    /// Part of the prompt tokens that was cached.
    pub cached_share: f64,
    /// Part of the requests that another region served.
    pub forwarded_share: f64,
}

impl TrialFigures {
    /// Returns true if enough requests were good.
    #[must_use]
    pub fn meets(&self, objective: &Objective) -> bool {
        self.good_share >= objective.share
    }
}

impl Trial {
    /// Returns this trial with a region lost. Its clients ask the nodes of the stand-in: the
    /// network to that region is not part of the measured time, as for clients that DNS or anycast
    /// moves.
    #[must_use]
    pub fn without(&self, lost: usize, stand_in: usize) -> Self {
        let mut trial = self.clone();
        trial.demands_per_s[stand_in] += trial.demands_per_s[lost];
        trial.demands_per_s.remove(lost);
        trial.replicas.remove(lost);
        trial.rtt_ms.remove(lost);
        for row in &mut trial.rtt_ms {
            row.remove(lost);
        }
        trial
    }

    /// Runs the trial with the default policy, two nodes in each region, and replicas on L4 GPUs.
    #[must_use]
    pub fn run(&self, objective: &Objective, origin: Instant) -> TrialFigures {
        let end_s = self.warm_up_s + self.seconds;
        let demand =
            Demand { rates_per_s: self.demands_per_s.clone(), seconds: end_s, seed: self.seed };
        let regions = self.replicas.iter().map(|&replicas| RegionConfig { nodes: 2, replicas });
        let world = WorldConfig {
            regions: regions.collect(),
            rtt_ms: self.rtt_ms.clone(),
            engine: EngineConfig { waiting_max: 512, ..EngineConfig::from_profile(Profile::L4) },
            central: None,
            news: News::default(),
            patience_s: 30.0,
            warm_up_s: self.warm_up_s,
            end_s,
            slow: Vec::new(),
            faults: Vec::new(),
            operator: crate::Operator::default(),
            tenants: Vec::new(),
            seed: self.seed,
            origin,
        };
        let sessions = WorkloadKind::SystemPrompts.sessions(&demand);
        let figures = Setup::policy(Policy::PredictedLatency).run(&Scenario { world, sessions });
        figures_of(&figures, objective)
    }
}

fn figures_of(figures: &Figures, objective: &Objective) -> TrialFigures {
    let good = figures.goodput_per_s(objective.first_token_ms) * figures.seconds;
    TrialFigures {
        good_share: good / figures.requests.max(1) as f64,
        p99_ms: figures.first_token_ms.p99,
        cached_share: figures.cached_share,
        forwarded_share: figures.forwarded_share,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_regions_clients_ask_elsewhere_and_its_replicas_are_gone() {
        let trial = Trial {
            replicas: vec![5, 4, 3],
            demands_per_s: vec![20.0, 10.0, 5.0],
            rtt_ms: vec![vec![0.0, 70.0, 150.0], vec![70.0, 0.0, 202.0], vec![150.0, 202.0, 0.0]],
            warm_up_s: 1.0,
            seconds: 1.0,
            seed: 1,
        };
        let left = trial.without(0, 1);
        assert_eq!((left.replicas, left.demands_per_s), (vec![4, 3], vec![30.0, 5.0]));
        assert_eq!(left.rtt_ms, vec![vec![0.0, 202.0], vec![202.0, 0.0]]);
    }
}
