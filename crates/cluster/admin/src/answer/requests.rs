//! The requests that ended last on the answering node.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_types::RequestEntry;

use crate::all_nodes::AllNodes;
use crate::call::AdminCall;
use crate::error::ApiError;
use crate::query::Scope;
use crate::reply::{Reply, json};
use crate::requests::{RequestFilter, Requests};
use crate::usage::AskedNode;

/// Requests that ended last.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RequestsAnswer {
    /// Requests that pass the filter, newest first.
    pub(crate) requests: Vec<RequestEntry>,
    /// Nodes that were asked, the answering one first; null if only the answering one was.
    #[serde(default)]
    pub(crate) nodes: Option<Vec<AskedNode>>,
}

/// Answers which requests ended last.
pub(crate) async fn requests(
    by: Option<&dyn Requests>,
    all: Option<&dyn AllNodes>,
    call: &AdminCall,
) -> Result<Reply, ApiError> {
    let unknown = || ApiError::internal("this process keeps no records of requests");
    let (by, query) = (by.ok_or_else(unknown)?, &call.query);
    let after = query.after.as_deref().map(|text| text.parse().map_err(|_| no_number()));
    let filter = RequestFilter {
        after: after.transpose()?,
        is_failed: query.is_failed,
        fields: query.fields.clone(),
    };
    let answer = match query.scope {
        Scope::Node => RequestsAnswer { requests: by.recent(&filter, query.limit), nodes: None },
        Scope::Region => return Err(no_region()),
        Scope::Cluster if filter.after.is_some() => return Err(no_after()),
        Scope::Cluster => {
            let found = all.ok_or_else(unknown)?.requests(filter, query.limit).await;
            RequestsAnswer { requests: found.requests, nodes: Some(found.nodes) }
        }
    };
    Ok(json(StatusCode::OK, &answer))
}

fn no_region() -> ApiError {
    let cause = "requests are those of this node or of all";
    ApiError::bad_request(cause, "use scope=cluster, with `region` for those that it served")
}

fn no_after() -> ApiError {
    let cause = "the numbers of requests are those of one node";
    ApiError::bad_request(cause, "leave out `after` or `scope`")
}

fn no_number() -> ApiError {
    let cause = "the parameter \"after\" can't have that value";
    ApiError::bad_request(cause, "use the `number` of a request")
}
