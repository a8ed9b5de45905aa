//! Forms of rollouts of splits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_rollout::{AgreedMargins, Rollout, RolloutPlan, RolloutProgress, RolloutStep};
use spillway_types::Percent;

use crate::patterns::NAME;

/// Requests of the candidate that a step needs by default: at fewer, a candidate that fails five
/// times as often as a baseline at 1 % is not told from it.
const REQUESTS_MIN: u32 = 500;
/// Share of false alarms by default, in thousandths.
const FALSE_ALARMS_PERMILLE: u16 = 10;
/// Accepted difference of failed requests by default, in thousandths of all requests.
const FAILED_PERMILLE: u16 = 10;

/// Rollout of one arm of a split: its share grows step by step while a guard compares it with the
/// baseline.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RolloutRecord {
    /// Arm that is rolled out.
    #[schemars(regex(pattern = NAME))]
    pub(crate) candidate: String,
    /// Arm that the candidate is compared with.
    #[schemars(regex(pattern = NAME))]
    pub(crate) baseline: String,
    /// Steps, each with more traffic than the one before.
    pub(crate) steps: Vec<StepRecord>,
    /// Requests of the candidate that a step needs before the next one; 500 by default.
    #[serde(default = "requests_min")]
    pub(crate) requests_min: u32,
    /// Share of rollouts that may be rolled back although the candidate is as good as the baseline;
    /// 1 by default.
    #[serde(default = "false_alarms")]
    #[schemars(with = "f64", range(min = 0.1, max = 99))]
    pub(crate) false_alarms_percent: Percent,
    /// Accepted share of failed requests above the baseline's, in percent of all requests; 1 by
    /// default, null does not compare.
    #[serde(default = "failed")]
    #[schemars(with = "Option<f64>", range(min = 0, max = 100))]
    pub(crate) failed_percent: Option<Percent>,
    /// Accepted time to the first token above the baseline's, in percent of it, at the 90th
    /// percentile; null does not compare.
    #[serde(default)]
    #[schemars(with = "Option<f64>", range(min = 0, max = 1_000))]
    pub(crate) first_token_percent: Option<Percent>,
    /// Accepted time per token above the baseline's, in percent of it, at the 90th percentile; null
    /// does not compare.
    #[serde(default)]
    #[schemars(with = "Option<f64>", range(min = 0, max = 1_000))]
    pub(crate) token_time_percent: Option<Percent>,
    /// Accepted difference of the tokens of a reply in either direction, in percent of the smaller
    /// median; null does not compare.
    #[serde(default)]
    #[schemars(with = "Option<f64>", range(min = 0, max = 1_000))]
    pub(crate) tokens_percent: Option<Percent>,
}

/// One step of a rollout.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepRecord {
    /// Share of the split's requests that the candidate gets. The other arms share the rest in
    /// proportion to their weights.
    #[schemars(with = "f64", range(min = 0.1, max = 100))]
    pub(crate) percent: Percent,
    /// Time for which the step lasts at least.
    #[serde(default)]
    #[schemars(range(max = 604_800))]
    pub(crate) hold_s: u32,
}

/// Progress of a split's rollout.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RolloutInfo {
    /// State: `running`, `paused`, `completed` or `rolled_back`.
    pub(crate) phase: String,
    /// Number of the present step, from 1.
    pub(crate) step: u32,
    /// Number of steps.
    pub(crate) steps: u32,
    /// Share of the split's requests that the candidate gets now.
    #[schemars(with = "f64")]
    pub(crate) candidate_percent: Percent,
    /// Time at which the share changed last, in milliseconds since 1970.
    pub(crate) since_ms: u64,
    /// Reason for the last change; empty at the beginning.
    pub(crate) why: String,
    /// Number of changes so far.
    pub(crate) changes: u32,
}

/// Part of a split that only the cluster writes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SplitInfo {
    /// Progress of its rollout; null without one.
    pub(crate) rollout: Option<RolloutInfo>,
}

fn requests_min() -> u32 {
    REQUESTS_MIN
}

fn false_alarms() -> Percent {
    Percent::of_permille(FALSE_ALARMS_PERMILLE)
}

#[expect(clippy::unnecessary_wraps, reason = "the field's type")]
fn failed() -> Option<Percent> {
    Some(Percent::of_permille(FAILED_PERMILLE))
}

impl From<&RolloutPlan> for RolloutRecord {
    fn from(plan: &RolloutPlan) -> Self {
        let percent = |permille: Option<u16>| permille.map(Percent::of_permille);
        let steps = plan.steps.iter().map(|step| StepRecord {
            percent: Percent::of_permille(step.candidate_permille),
            hold_s: step.hold_s,
        });
        Self {
            candidate: plan.candidate.to_string(),
            baseline: plan.baseline.to_string(),
            steps: steps.collect(),
            requests_min: plan.requests_min,
            false_alarms_percent: Percent::of_permille(plan.false_alarms_permille),
            failed_percent: percent(plan.margins.failed),
            first_token_percent: percent(plan.margins.first_token),
            token_time_percent: percent(plan.margins.token_time),
            tokens_percent: percent(plan.margins.tokens),
        }
    }
}

/// A plan that has not begun: the cluster knows how far it is.
impl From<RolloutRecord> for Rollout {
    fn from(record: RolloutRecord) -> Self {
        let permille = |percent: Option<Percent>| percent.map(Percent::permille);
        let steps = record.steps.iter().map(|step| RolloutStep {
            candidate_permille: step.percent.permille(),
            hold_s: step.hold_s,
        });
        let plan = RolloutPlan {
            baseline: record.baseline.into(),
            candidate: record.candidate.into(),
            steps: steps.collect(),
            requests_min: record.requests_min,
            margins: AgreedMargins {
                failed: permille(record.failed_percent),
                first_token: permille(record.first_token_percent),
                token_time: permille(record.token_time_percent),
                tokens: permille(record.tokens_percent),
            },
            false_alarms_permille: record.false_alarms_percent.permille(),
        };
        Self { plan, progress: RolloutProgress::default() }
    }
}

impl From<&Rollout> for RolloutInfo {
    fn from(Rollout { plan, progress }: &Rollout) -> Self {
        Self {
            phase: progress.phase.name().to_owned(),
            step: u32::from(progress.step) + 1,
            steps: u32::try_from(plan.steps.len()).unwrap_or(u32::MAX),
            candidate_percent: Percent::of_permille(plan.candidate_permille(progress)),
            since_ms: progress.since_ms,
            why: progress.why.clone(),
            changes: progress.number,
        }
    }
}
