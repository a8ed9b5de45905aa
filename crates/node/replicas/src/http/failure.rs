//! Reasons for which a server gave no usable reply.

use std::{fmt, io};

use rustls::{AlertDescription, CertificateError, Error as TlsError};
use spillway_types::TlsFault;

/// Reason for which a server gave no usable reply, in the detail that is worth counting. Logs have
/// the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestError {
    /// The server's name does not resolve: the name servers know of no address.
    NameNotFound,
    /// No name server answered for the server's name.
    NameServer,
    /// Nothing listens at the server's port.
    Refused,
    /// No other connection could be made, e.g. for lack of a route.
    Connect,
    /// This machine has no file descriptor, memory or port for a connection: nothing is known of the
    /// server.
    Shortage,
    /// The TLS handshake failed.
    Tls(TlsFault),
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
    /// Returns the reason for which no connection was made.
    pub(crate) fn of_connect(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Connect,
        }
    }

    /// Returns the reason for which a TLS handshake failed.
    pub(crate) fn of_handshake(error: &io::Error) -> Self {
        let cause = error.get_ref().and_then(|error| error.downcast_ref::<TlsError>());
        Self::Tls(cause.map_or(TlsFault::Other, tls_fault))
    }

    /// Returns the failure's name in metrics, without the numbers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NameNotFound => "name_not_found",
            Self::NameServer => "name_server",
            Self::Refused => "refused",
            Self::Connect => "connect",
            Self::Shortage => "shortage",
            Self::Tls(_) => "tls",
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

fn tls_fault(error: &TlsError) -> TlsFault {
    match error {
        TlsError::InvalidMessage(_) => TlsFault::NotTls,
        TlsError::InvalidCertificate(error) => match error {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                TlsFault::UnknownIssuer
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                TlsFault::WrongName
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => TlsFault::Expired,
            _ => TlsFault::Other,
        },
        TlsError::PeerIncompatible(_) | TlsError::NoApplicationProtocol => {
            TlsFault::NoCommonProtocol
        }
        TlsError::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA => TlsFault::ClientCertificate,
            AlertDescription::ProtocolVersion
            | AlertDescription::HandshakeFailure
            | AlertDescription::NoApplicationProtocol => TlsFault::NoCommonProtocol,
            AlertDescription::UnrecognisedName => TlsFault::WrongName,
            _ => TlsFault::Other,
        },
        _ => TlsFault::Other,
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameNotFound => f.write_str("its name does not resolve"),
            Self::NameServer => f.write_str("no name server answers for its name"),
            Self::Refused => f.write_str("connection refused"),
            Self::Connect => f.write_str("no connection"),
            Self::Shortage => {
                f.write_str("this machine has no file descriptor, memory or port left")
            }
            Self::Tls(fault) => write!(f, "the TLS handshake failed: {fault}"),
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
