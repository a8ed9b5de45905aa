//! Kinds of errors: one table of code, status, meaning and remedy, of which the page of errors is
//! made.

use http::StatusCode;
use spillway_types::reasons;

/// Declares all kinds of errors, so that none can lack a status, a code or a remedy.
macro_rules! error_kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident = $status:literal $code:literal, $remedy:literal;)+) => {
        /// Reason why the gateway itself answers a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorKind {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl ErrorKind {
            /// All kinds, for tests and documents that must not miss one.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// Returns the HTTP status, for an answer that has not begun.
            #[must_use]
            pub fn status(self) -> StatusCode {
                let code: u16 = match self {
                    $(Self::$kind => $status,)+
                };
                // Any three digits are a status.
                StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }

            /// Returns the stable machine-readable name.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self {
                    $(Self::$kind => $code,)+
                }
            }

            /// Returns the kind of that code; `None` for a code that is not known.
            #[must_use]
            pub fn of_code(code: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.code() == code)
            }

            /// Returns what the kind means, for documents.
            pub(super) fn meaning(self) -> &'static str {
                match self {
                    $(Self::$kind => concat!($($doc),+),)+
                }
            }

            /// Returns what to do about it, for documents.
            fn remedy(self) -> &'static str {
                match self {
                    $(Self::$kind => $remedy,)+
                }
            }
        }
    };
}

error_kinds! {
    /// The request cannot be parsed, or asks for something that does not exist.
    BadRequest = 400 "bad_request",
        "correct the request; the message describes the fault, and `param` names the field";
    /// The request has no key, but one is needed.
    KeyMissing = 401 "missing_api_key",
        "send `Authorization: Bearer KEY` ([auth.md](../guides/auth.md))";
    /// The key of the request is not valid.
    KeyInvalid = 401 "invalid_api_key",
        "send a known key that is neither revoked nor expired; `spillway get keys` lists them";
    /// The key is valid, but does not allow the model of the request, or the request names none.
    ModelNotAllowed = 403 "model_not_allowed",
        "request a model that the key allows, or change the key";
    /// The key is valid, but not for any region that could serve the request.
    RegionNotAllowed = 403 "region_not_allowed",
        "change the regions of the key, of its tenant or of the route";
    /// The request comes from a web page whose origin is not allowed to use a listener without
    /// keys.
    OriginNotAllowed = 403 "origin_not_allowed",
        "add the page's origin to `cors.allowed_origins`, or require keys";
    /// No route serves the model.
    ModelNotFound = 404 "model_not_found",
        "request a model of `GET /v1/models`; the message lists those that the key may use";
    /// The path is not an endpoint and matches no route.
    RouteNotFound = 404 "route_not_found",
        "correct the path, or add the `[[route]]` that the message shows ([endpoints](protocols.md))";
    /// No replica is known to hold the stored response.
    ResponseNotFound = 404 "response_not_found",
        "begin a new conversation: stored responses are lost with their replica";
    /// The path is known, but not with this method.
    MethodNotAllowed = 405 "method_not_allowed",
        "use a method of the header `Allow`";
    /// The body arrived too slowly, or stopped.
    BodyTimeout = 408 "body_timeout",
        "send the body without long pauses, or raise `limits.stall_timeout_ms`";
    /// The body is larger than the limit.
    BodyTooLarge = 413 "body_too_large",
        "send less, or raise `limits.body_bytes_max`";
    /// The endpoint does not read this content type.
    UnsupportedMediaType = 415 "unsupported_media_type",
        "send `content-type: application/json`, or another type that the endpoint accepts";
    /// The headers are larger than the limit.
    HeadersTooLarge = 431 "headers_too_large",
        "send fewer or shorter headers";
    /// The request uses a feature of HTTP that is not supported, such as an upgrade to another
    /// protocol.
    NotImplemented = 501 "not_implemented",
        "don't ask for WebSockets or transfer codings";
    /// The client disconnected before the reply was complete; only logs and metrics show this
    /// error. 499 is not a registered status, but nginx and most dashboards use it.
    ClientClosed = 499 "client_closed",
        "nothing; if it is frequent, the clients' timeouts are shorter than replies take";
    /// The gateway has a bug.
    Internal = 500 "internal", "report it with the log lines around the request's id";
    /// The gateway could not connect to the replica.
    ReplicaConnect = 502 "replica_connect",
        "check that the replica runs and that its `url` is correct; a retry may use another replica";
    /// The replica closed the connection before its reply began.
    ReplicaReset = 502 "replica_reset",
        "retry, because the reply had not begun; check the replica's log";
    /// The replica went down while the gateway waited for its reply.
    ReplicaDown = 502 "replica_down", "retry: other replicas serve the model";
    /// Two engines died while they worked on the request, which may be the cause.
    EnginesDied = 502 "engines_died",
        "don't repeat the request before you know from the engines' logs why they ended";
    /// The replica's reply is not valid HTTP.
    ReplicaBadResponse = 502 "replica_bad_response",
        "check which server listens at the replica's `url`";
    /// The replica's reply redirects to another server.
    ReplicaRedirect = 502 "replica_redirect",
        "set the replica's `url` to its final address";
    /// The replica's reply ended early.
    StreamCut = 502 "stream_cut",
        "request the rest; with `continue_streams` of a route the gateway does it for clients";
    /// The request was shed, because its reply would be too late, or would harm requests that are
    /// already being served.
    Overloaded = 503 "overloaded",
        "retry after `Retry-After`; the reason is in `x-spillway-shed-reason`";
    /// The client has used up its rate limit; other clients are still served.
    RateLimited = 429 "rate_limited",
        "retry after `Retry-After`, or raise the limit (`spillway limits set`)";
    /// The tenant has spent its budget; other tenants are still served.
    BudgetSpent = 429 "budget_spent",
        "retry after `Retry-After`, or raise the budget ([usage.md](../guides/usage.md#budgets))";
    /// The request alone exceeds the whole rate limit, so it can never be served.
    BeyondLimit = 400 "request_exceeds_limit",
        "request fewer tokens at a time, or raise the limit";
    /// No replica of the model is fit to serve.
    NoReplica = 503 "no_replica",
        "retry after `Retry-After`; `spillway replicas` shows which replicas are down and why";
    /// This node receives messages from its cluster but can't follow its log, so it does not know
    /// whether the key is still valid.
    KeyUnsure = 503 "key_unsure",
        "retry: another node may answer, or this one after it has caught up; `spillway status` shows why";
    /// The gateway's machine has no file descriptor, memory or port left for a connection to a replica.
    NodeShortage = 503 "node_shortage",
        "retry after `Retry-After`; raise the limit of open files (`ulimit -n`, `LimitNOFILE`)";
    /// The replica did not begin to reply in time.
    FirstByteTimeout = 504 "first_byte_timeout",
        "raise the route's `first_byte_ms`, or find out why the replica is silent";
    /// The replica stopped in the middle of its reply.
    StreamStalled = 504 "stream_stalled",
        "repeat the request; raise the route's `idle_ms` if such pauses are normal";
    /// The deadline of the request passed.
    DeadlineExceeded = 504 "deadline_exceeded",
        "allow more time, or a smaller `max_tokens`";
}

reasons! {
    /// Presence of `Retry-After` in errors.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RetryAfterUse {
        /// Every error of the kind has `Retry-After`.
        Always = "always";
        /// Errors of the kind have `Retry-After` if a later attempt may succeed.
        Sometimes = "sometimes";
        /// No error of the kind has `Retry-After`.
        Never = "never";
    }
}

impl ErrorKind {
    /// Returns whether errors of this kind have `Retry-After`.
    #[must_use]
    pub fn retry_after(self) -> RetryAfterUse {
        match self.status() {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                RetryAfterUse::Always
            }
            _ if self.is_lost_replica() || self == Self::DeadlineExceeded => {
                RetryAfterUse::Sometimes
            }
            _ => RetryAfterUse::Never,
        }
    }
}

/// Page of errors above its table.
const HEAD: &str = "\
# Errors

These are the errors of the gateway itself, in the format of the client's API ([protocols.md](protocols.md#errors)). A
replica's own errors are forwarded unchanged. The code is in the header `x-spillway-code` and in the body. If the reply
has already begun, it ends with an event that has the code. `spillway reference errors` generates this page.

The column `type` has the type in OpenAI's format, and in brackets the type in Anthropic's.

| code | status | type | what it means | what to do |
|---|---|---|---|---|
";

/// Returns docs/reference/errors.md.
#[must_use]
pub fn error_reference() -> String {
    let mut page = HEAD.to_owned();
    for kind in ErrorKind::ALL {
        let meaning = kind.meaning().trim();
        // Each code is an anchor, for the links of consoles and dashboards.
        page.push_str(&format!(
            "| <a id=\"{0}\"></a>`{0}` | {1} | `{2}` (`{3}`) | {4} | {5} |\n",
            kind.code(),
            kind.status().as_u16(),
            kind.openai_type(),
            kind.anthropic_type(),
            meaning.trim_end_matches('.'),
            kind.remedy()
        ));
    }
    page
}
