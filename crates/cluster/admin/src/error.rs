//! Answers to requests that failed.

use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reply::{Reply, json};
use crate::resource::Resource;

/// Answer to a request that failed.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    body: Box<ErrorBody>,
}

/// Description of a failure: cause and remedy.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorBody {
    /// Code for programs.
    pub(crate) code: String,
    /// Cause of the failure.
    pub(crate) cause: String,
    /// Advice to the client.
    pub(crate) remedy: String,
    /// With `conflict`: the record that is not as expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) conflict: Option<Conflict>,
    /// With `no_quorum` and `not_leader`: the node that may be the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) leader: Option<LeaderHint>,
    /// Milliseconds after which to try again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_ms: Option<u64>,
}

/// A record that is not as expected.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Conflict {
    /// Kind of the record, as in paths.
    pub(crate) resource: String,
    /// Name of the record, as in paths.
    pub(crate) key: String,
    /// Version of the record; null if it does not exist.
    pub(crate) current_version: Option<u64>,
}

/// The node that may be the leader, as far as this node knows.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LeaderHint {
    /// Name of the node.
    pub(crate) node: String,
    /// Region of the node.
    pub(crate) region: String,
}

/// The body of every answer that is not a success.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorAnswer {
    /// Description of the failure.
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

    /// Makes the answer to a malformed request.
    pub(crate) fn bad_request(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", cause, remedy)
    }

    pub(crate) fn internal(cause: impl Into<String>) -> Self {
        let remedy = "look into the node's log";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", cause, remedy)
    }

    /// Returns true if another write came between.
    pub(crate) fn is_conflict(&self) -> bool {
        self.body.code == "conflict"
    }

    /// Returns true if there is nothing of the name that the request has in its path.
    pub(crate) fn is_missing(&self) -> bool {
        self.status == StatusCode::NOT_FOUND && self.body.code == "not_found"
    }

    /// Lists the known names in `remedy`, in place of a hint where they are listed.
    pub(crate) fn with_names(mut self, remedy: String) -> Self {
        if self.body.remedy.starts_with("list what") {
            self.body.remedy = remedy;
        }
        self
    }

    /// Describes the same failure in words that fit the request better.
    pub(crate) fn in_words(mut self, cause: String, remedy: &str) -> Self {
        self.body.cause = cause;
        remedy.clone_into(&mut self.body.remedy);
        self
    }

    /// Adds the most likely intended name, unless the remedy has it already.
    pub(crate) fn with_meant(mut self, meant: &str) -> Self {
        if !self.body.remedy.contains("is meant") {
            self.body.remedy = format!("write {meant:?} if that is meant, or {}", self.body.remedy);
        }
        self
    }

    /// Returns the refusal of a name that is most likely a slip of another, in one kind of records.
    pub(crate) fn slip(resource: Resource, name: &str, meant: Option<&str>) -> Self {
        let cause = format!("there is no {name:?} in {}", resource.name());
        let meant = meant.map(|meant| format!("write {meant:?} if that is meant, or "));
        let meant = meant.unwrap_or_default();
        let remedy = format!("{meant}create it with ?create=true (`spillway`: --create)");
        Self::new(StatusCode::NOT_FOUND, "not_found", cause, remedy)
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn cause(&self) -> &str {
        &self.body.cause
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
            // Not 0 for a part of a millisecond, which would mean at once.
            Some(u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(1));
        self
    }

    pub(crate) fn into_reply(self) -> Reply {
        let Self { status, body } = self;
        // Rounded up, so that no client comes back too early.
        let retry_after_s = body.retry_after_ms.map(|after_ms| after_ms.div_ceil(1_000));
        let mut reply = json(status, &ErrorAnswer { error: *body });
        if let Some(seconds) = retry_after_s {
            reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        // HTTP asks for the scheme in every 401.
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            reply.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        reply
    }
}
