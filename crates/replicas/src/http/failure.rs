//! Reasons for which a server gave no usable reply.

use std::fmt;

/// Reason for which a server gave no usable reply, in the detail that is worth counting. Logs have
/// the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestError {
    /// The server's name has no address.
    Name,
    /// No connection: refused or unreachable.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The time limit has passed.
    TimedOut,
    /// The connection broke before the whole reply, or what came was not HTTP.
    Broken,
    /// The reply was longer than the limit.
    TooLarge,
    /// The reply has this HTTP status.
    Status(u16),
    /// The reply has this gRPC status.
    GrpcStatus(u32),
    /// The server answered, but not with the expected answer.
    WrongAnswer,
    /// The request can't be built, e.g. because its path is not valid: a fault of the config.
    BadRequest,
}

impl RequestError {
    /// Returns the failure's name in metrics, without the numbers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::TimedOut => "timed_out",
            Self::Broken => "broken",
            Self::TooLarge => "too_large",
            Self::Status(_) => "status",
            Self::GrpcStatus(_) => "grpc_status",
            Self::WrongAnswer => "wrong_answer",
            Self::BadRequest => "bad_request",
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("its name has no address"),
            Self::Connect => f.write_str("no connection"),
            Self::Tls => f.write_str("the TLS handshake failed"),
            Self::TimedOut => f.write_str("it took too long"),
            Self::Broken => f.write_str("the connection broke"),
            Self::TooLarge => f.write_str("the reply is too large"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::GrpcStatus(status) => write!(f, "gRPC status {status}"),
            Self::WrongAnswer => f.write_str("a wrong answer"),
            Self::BadRequest => f.write_str("the request can't be built"),
        }
    }
}

impl std::error::Error for RequestError {}
