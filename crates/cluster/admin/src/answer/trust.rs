//! The order to vote with a disk from the past.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::cluster::Cluster;
use crate::call::AdminCall;
use crate::error::ApiError;
use crate::fault;
use crate::reply::{Reply, json};

/// Answer to an order to vote with a disk from the past.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TrustAnswer {
    /// Name of the node that votes again.
    pub(crate) node: String,
}

pub(super) async fn trust_disk(cluster: &Cluster<'_>, call: &AdminCall) -> Result<Reply, ApiError> {
    let node = cluster.control_plane.name().to_string();
    let conflict = |code, cause, remedy| ApiError::new(StatusCode::CONFLICT, code, cause, remedy);
    let asked = call.path.first().map(String::as_str).unwrap_or_default();
    if asked != node {
        let remedy = format!("ask {asked}: only the node itself knows what its disk lacks");
        return Err(conflict("other_node", format!("this is node {node}"), remedy));
    }
    let trusting = timeout(cluster.config.time_limit, cluster.control_plane.trust_disk());
    match trusting.await {
        Ok(Ok(true)) => Ok(json(StatusCode::OK, &TrustAnswer { node })),
        Ok(Ok(false)) => {
            let cause = format!("the disk of {node} is not from the past, as far as {node} knows");
            let remedy = "look at the troubles in /v1/status of each node".to_owned();
            Err(conflict("not_from_past", cause, remedy))
        }
        Ok(Err(fault)) => Err(fault::stopped(fault.to_string())),
        Err(_) => {
            let cause = "the disk does not answer";
            let remedy = "mend or replace it, then try again";
            Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timed_out", cause, remedy))
        }
    }
}
