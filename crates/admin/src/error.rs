//! What is answered when something was not done.

use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reply::{Reply, json};

/// What is answered when something was not done.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    body: Box<ErrorBody>,
}

/// What was not done, why, and what to do about it.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorBody {
    /// For programs.
    pub(crate) code: String,
    /// What is wrong.
    pub(crate) cause: String,
    /// What to do about it.
    pub(crate) remedy: String,
    /// With `conflict`: the record that is not as expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) conflict: Option<Conflict>,
    /// With `no_quorum` and `not_leader`: who may be the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) leader: Option<LeaderHint>,
    /// When to try again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_ms: Option<u64>,
}

/// A record that is not as expected.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Conflict {
    /// Its kind, as in paths.
    pub(crate) resource: String,
    /// Its name, as in paths.
    pub(crate) key: String,
    /// Its version; none if it does not exist.
    pub(crate) current_version: Option<u64>,
}

/// Who may be the leader, as far as this node knows.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LeaderHint {
    /// The node.
    pub(crate) node: String,
    /// Its region.
    pub(crate) region: String,
}

/// The body of every answer that is not a success.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorAnswer {
    /// What went wrong.
    pub(crate) error: ErrorBody,
}

impl ApiError {
    pub(crate) fn new(
        status: StatusCode,
        code: &str,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (cause, remedy) = (cause.into(), remedy.into());
        let body = ErrorBody { code: code.to_owned(), cause, remedy, ..ErrorBody::default() };
        Self { status, body: Box::new(body) }
    }

    /// The request makes no sense.
    pub(crate) fn bad_request(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", cause, remedy)
    }

    pub(crate) fn internal(cause: impl Into<String>) -> Self {
        let remedy = "look into the node's log";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", cause, remedy)
    }

    pub(crate) fn with_conflict(mut self, conflict: Conflict) -> Self {
        self.body.conflict = Some(conflict);
        self
    }

    pub(crate) fn with_leader(mut self, leader: Option<LeaderHint>) -> Self {
        self.body.leader = leader;
        self
    }

    pub(crate) fn with_retry_after(mut self, after: Duration) -> Self {
        self.body.retry_after_ms =
            Some(u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(1));
        self
    }

    pub(crate) fn into_reply(self) -> Reply {
        let Self { status, body } = self;
        let retry_after_s = body.retry_after_ms.map(|after_ms| after_ms.div_ceil(1_000));
        let mut reply = json(status, &ErrorAnswer { error: *body });
        if let Some(seconds) = retry_after_s {
            reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            reply.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        reply
    }
}
