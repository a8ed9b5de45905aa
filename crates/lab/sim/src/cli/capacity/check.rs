//! Runs by which a plan is checked: their length, their requests and their results.

use spillway_sim::{TrialFigures, Work};

/// Length of a run in seconds: the warm-up, which does not count, and the part that counts.
pub(super) const WARM_UP_S: f64 = 30.0;
pub(super) const SECONDS: f64 = 150.0;

/// Replicas of the region in which one replica's rate is measured.
pub(super) const MEASURED_REPLICAS: usize = 6;

/// Mean request of the example, as the workload `system_prompts` makes them.
pub(super) const WORK: Work =
    Work { prompt_tokens: 1_320.0, cached_share: 0.89, reply_tokens: 100.0 };

/// Run of the check: name of the loss, input and results.
#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) replicas: Vec<usize>,
    pub(super) demand_per_s: f64,
    pub(super) must_meet: bool,
    pub(super) figures: TrialFigures,
}
