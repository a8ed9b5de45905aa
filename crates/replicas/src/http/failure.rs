//! Why a server could not be asked.

use std::fmt;

/// What went wrong, in as much detail as is worth counting. Logs have the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// Its name has no address.
    Name,
    /// No connection: refused or unreachable.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// It took too long.
    TimedOut,
    /// The connection broke before the whole reply, or what came was not HTTP.
    Broken,
    /// The reply was longer than what is read.
    TooLarge,
    /// The reply has this HTTP status.
    Status(u16),
    /// The reply has this gRPC status.
    GrpcStatus(u32),
    /// It answered, but not what it should have.
    WrongAnswer,
    /// The request can't be built, as when its path is no path: a fault of the config.
    BadRequest,
}

impl Failure {
    /// Name as it may stand in metrics: without the numbers.
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

impl fmt::Display for Failure {
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

impl std::error::Error for Failure {}
