//! A split's rollout as all nodes see it: the figures of both arms, and what the guard says.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_rollout::{Finding, Judgement, Rollout, RolloutPhase};
use spillway_types::ModelName;

use super::cluster::Cluster;
use crate::all_nodes::ArmsOfNodes;
use crate::call::AdminCall;
use crate::error::ApiError;
use crate::forms::RolloutInfo;
use crate::reply::{Reply, json};
use crate::usage::AskedNode;

/// A split's rollout: its progress, and the comparison of its arms. Argo Rollouts reads it as a web
/// metric.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RolloutAnswer {
    /// Name of the split.
    pub(crate) split: String,
    /// Arm that is rolled out.
    pub(crate) candidate: String,
    /// Arm that it is compared with.
    pub(crate) baseline: String,
    /// Progress of the rollout.
    #[serde(flatten)]
    pub(crate) progress: RolloutInfo,
    /// Result of the comparison: `good`, `doubtful` or `worse`; `over` when the arms are compared no
    /// more.
    pub(crate) judgement: String,
    /// Requests of the candidate since its share changed last.
    pub(crate) candidate_requests: u64,
    /// Requests of the baseline in that time.
    pub(crate) baseline_requests: u64,
    /// Comparison by each measure that has a margin.
    pub(crate) findings: Vec<FindingAnswer>,
    /// Nodes whose requests count, and those that did not answer.
    pub(crate) nodes: Vec<AskedNode>,
}

/// Comparison of both arms by one measure.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FindingAnswer {
    /// Measure: `failed` (share of the requests), `first_token` and `token_time` (milliseconds, 90th
    /// percentile) or `tokens` (of a reply, median).
    pub(crate) measure: String,
    /// Figure of the candidate; null without requests.
    pub(crate) candidate: Option<f64>,
    /// Figure of the baseline; null without requests.
    pub(crate) baseline: Option<f64>,
    /// Evidence that the candidate is worse than its margin allows, in percent of what a rollback
    /// needs. Below 0, the figures speak for the candidate.
    pub(crate) evidence_percent: f64,
}

/// Answer to a deployment tool whose rollout may go on.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct GateAnswer {
    /// State of the rollout.
    pub(crate) phase: String,
    /// Result of the comparison, as in the rollout.
    pub(crate) judgement: String,
    /// Reason for the last change of the rollout.
    pub(crate) why: String,
}

/// Shows a rollout.
pub(super) async fn rollout(cluster: &Cluster<'_>, call: &AdminCall) -> Result<Reply, ApiError> {
    Ok(json(StatusCode::OK, &report(cluster, call).await?))
}

/// Says if a rollout may go on, in the form of Flagger's webhooks: by the status. The body of the
/// request is not looked at.
///
/// # Errors
/// Returns 409 while the guard is in doubt or finds the candidate worse, and after a rollback.
pub(super) async fn gate(cluster: &Cluster<'_>, call: &AdminCall) -> Result<Reply, ApiError> {
    let RolloutAnswer { split, progress, judgement, .. } = report(cluster, call).await?;
    let RolloutInfo { phase, why, .. } = progress;
    let conflict = |cause: String| {
        let remedy = format!("look at `spillway splits rollout {split}`");
        ApiError::new(StatusCode::CONFLICT, "rollout_held", cause, remedy)
    };
    if phase == RolloutPhase::RolledBack.name() {
        return Err(conflict(format!("the rollout of {split} is rolled back: {why}")));
    }
    if !matches!(&*judgement, GOOD | OVER) {
        return Err(conflict(format!("the candidate of {split} is judged {judgement}")));
    }
    Ok(json(StatusCode::OK, &GateAnswer { phase, judgement, why }))
}

const GOOD: &str = "good";
const OVER: &str = "over";

async fn report(cluster: &Cluster<'_>, call: &AdminCall) -> Result<RolloutAnswer, ApiError> {
    let [name] = &*call.path else { return Err(ApiError::internal("the path has one name")) };
    let name = ModelName::from(name.as_str());
    let find = |state: &spillway_cluster_state::State| {
        state.records().splits.get(&name).and_then(|split| split.rollout.clone())
    };
    let rollout = cluster.read(call, find).await?.value.ok_or_else(|| {
        let remedy = "write the split with the steps of a rollout";
        let cause = format!("there is no rollout of a split {name}");
        ApiError::new(StatusCode::NOT_FOUND, "not_found", cause, remedy)
    })?;
    let arms = match cluster.all_nodes {
        Some(all) => all.arms(name.clone(), rollout.progress.epoch).await,
        None => ArmsOfNodes::default(),
    };
    RolloutAnswer::new(&name, &rollout, arms)
}

impl RolloutAnswer {
    fn new(name: &ModelName, rollout: &Rollout, arms: ArmsOfNodes) -> Result<Self, ApiError> {
        let Rollout { plan, progress } = rollout;
        let guard = plan.guard().map_err(|error| ApiError::internal(error.to_string()))?;
        let judgement = match guard.judge(&arms.baseline, &arms.candidate) {
            _ if !plan.is_watched(progress) => OVER,
            Judgement::Good => GOOD,
            Judgement::Doubtful(_) => "doubtful",
            Judgement::Worse(_) => "worse",
        };
        let findings = guard.findings(&arms.baseline, &arms.candidate);
        Ok(Self {
            split: name.to_string(),
            candidate: plan.candidate.to_string(),
            baseline: plan.baseline.to_string(),
            progress: RolloutInfo::from(rollout),
            judgement: judgement.to_owned(),
            candidate_requests: arms.candidate.requests,
            baseline_requests: arms.baseline.requests,
            findings: findings.into_iter().map(FindingAnswer::from).collect(),
            nodes: arms.nodes,
        })
    }
}

impl From<Finding> for FindingAnswer {
    fn from(finding: Finding) -> Self {
        Self {
            measure: finding.measure.name().to_owned(),
            candidate: finding.candidate,
            baseline: finding.baseline,
            // Evidence is infinite where the impossible has happened.
            evidence_percent: (100.0 * finding.evidence).clamp(-1e6, 1e6),
        }
    }
}
