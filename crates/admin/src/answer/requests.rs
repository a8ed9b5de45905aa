//! The requests that ended last on the answering node.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::call::AdminCall;
use crate::error::ApiError;
use crate::reply::{Reply, json};
use crate::requests::{RequestEntry, RequestFilter, Requests};

/// Requests that ended last.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RequestsAnswer {
    /// Requests that pass the filter, newest first.
    pub(crate) requests: Vec<RequestEntry<'static>>,
}

/// Answers which requests ended last.
pub(crate) fn requests(by: Option<&dyn Requests>, call: &AdminCall) -> Result<Reply, ApiError> {
    let by = by.ok_or_else(|| ApiError::internal("nobody here remembers requests"))?;
    let query = &call.query;
    let after = query.after.as_deref().map(|text| text.parse().map_err(|_| no_number()));
    let filter = RequestFilter {
        after: after.transpose()?,
        is_failed: query.is_failed,
        fields: query.fields.clone(),
    };
    let requests = by.recent(&filter, query.limit);
    Ok(json(StatusCode::OK, &RequestsAnswer { requests }))
}

fn no_number() -> ApiError {
    let cause = "the parameter \"after\" can't have that value";
    ApiError::bad_request(cause, "use the `number` of a request")
}
