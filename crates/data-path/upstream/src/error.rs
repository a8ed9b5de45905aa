//! Errors of attempts at a replica before a reply began, and if another attempt may be made.

use std::error::Error;
use std::io;

use spillway_journey::RetrySafety;
use spillway_protocol::{ErrorKind, GatewayError};
use spillway_resolver::{ConnectError, LookupError};
use spillway_sockets::is_shortage;

use crate::http1::Http1Error;

/// Failure of a connection to a replica.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// Over HTTP/1.1.
    #[error(transparent)]
    Http1(#[from] Http1Error),
    /// Over HTTP/2.
    #[error(transparent)]
    Http2(#[from] hyper::Error),
    /// The fields of a head over HTTP/2 are longer than they may be.
    #[error("more bytes of fields than a head may have")]
    LongFields,
}

impl ConnectionError {
    /// Returns true if the head of a reply is longer than it may be.
    fn is_long_head(&self) -> bool {
        matches!(self, Self::LongFields | Self::Http1(Http1Error::LongHead))
    }
}

/// An attempt that ended without a reply's head.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    /// No connection: refused, unreachable, TLS failed.
    #[error("can't connect: {0}")]
    Connect(io::Error),
    /// The replica's name has no known address.
    #[error("can't connect: {0}")]
    Name(LookupError),
    /// No connection in time.
    #[error("can't connect in time")]
    ConnectTimeout,
    /// The node's own machine has no file descriptor, memory or port for a connection.
    #[error("this machine can't open a connection: {0}")]
    Shortage(io::Error),
    /// The replica refused the stream, and promised that it did not begin to work: it closes the
    /// connection, or has as many streams as it takes.
    #[error("stream refused: {0}")]
    Refused(ConnectionError),
    /// The request was provably not taken by the replica.
    #[error("connection closed before the request was sent: {0}")]
    Unsent(ConnectionError),
    /// The connection broke after the request may have arrived.
    #[error("connection reset before the reply: {0}")]
    Reset(ConnectionError),
    /// The replica sent something that is not an HTTP reply.
    #[error("invalid reply: {0}")]
    BadReply(ConnectionError),
    /// The replica switched to another protocol, which the request had not asked for.
    #[error("switched protocols unasked")]
    Switched,
    /// No reply came in time.
    #[error("no reply in time")]
    FirstByteTimeout,
    /// The replica went down while its reply was waited for.
    #[error("the replica is down")]
    Down,
    /// The engine reported that it is dying, or has died, with the request in it.
    #[error("the engine reported that it is dying")]
    EngineDying,
    /// The engine reported that it ends and takes no more requests.
    #[error("the engine reported that it is draining")]
    EngineDraining,
    /// The replica replied that it does not have the model of the request.
    #[error("the replica does not have the model")]
    NoModel,
    /// The replica's reply says that it aborted the request.
    #[error("the replica aborted the request")]
    Aborted,
    /// The replica's reply ended in good order, but before the answer was complete.
    #[error("the reply ended before the answer was complete")]
    Unfinished,
    /// The replica's reply broke off before any of it was passed on.
    #[error("the reply broke off")]
    Cut,
    /// The request's own deadline passed.
    #[error("deadline passed")]
    DeadlinePassed,
    /// The body was streamed to an earlier attempt and can't be sent again.
    #[error("request body was sent already")]
    BodyGone,
    /// The client's body broke off or broke a rule while it was streamed through.
    #[error("request body: {0}")]
    ClientBody(ConnectionError),
}

impl From<ConnectError> for AttemptError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Name(error) => Self::Name(error),
            ConnectError::Io(error) => Self::of_connect(error),
        }
    }
}

impl AttemptError {
    /// Sorts an error of connecting.
    pub(crate) fn of_connect(error: io::Error) -> Self {
        if is_shortage(&error) { Self::Shortage(error) } else { Self::Connect(error) }
    }

    /// Sorts an error of HTTP/1.1. `unsent`: nothing of the request was written. `has_read`: a part of
    /// a reply came, so the replica did not just close an idle connection.
    pub(crate) fn of_http1(error: Http1Error, unsent: bool, has_read: bool) -> Self {
        let sort = if error.is_of_client() {
            Self::ClientBody
        } else if unsent {
            Self::Unsent
        } else if has_read || error.is_malformed() {
            Self::BadReply
        } else {
            Self::Reset
        };
        sort(error.into())
    }

    /// Sorts an error of hyper's HTTP/2 client. `unsent`: the request was handed back untouched.
    pub(crate) fn of_http2(error: hyper::Error, unsent: bool) -> Self {
        let sort = if unsent {
            Self::Unsent
        } else if refused_by_http2(&error) {
            Self::Refused
        } else if error.is_user() {
            // hyper takes an error of the body that it sends for a fault of its user.
            Self::ClientBody
        } else if error.is_parse() || rejected_here(&error) {
            Self::BadReply
        } else {
            // Incomplete message, reset, broken pipe, GOAWAY of a started stream.
            Self::Reset
        };
        sort(error.into())
    }

    /// Returns true if the engine may have died of the request. A replica that fell silent, drains or
    /// aborts has not died.
    pub fn is_death(&self) -> bool {
        matches!(self, Self::Reset(_) | Self::Cut | Self::EngineDying)
    }

    /// Returns whether another attempt is safe.
    pub fn retry_safety(&self) -> RetrySafety {
        match self {
            Self::Connect(_)
            | Self::Name(_)
            | Self::ConnectTimeout
            | Self::Shortage(_)
            | Self::Refused(_)
            | Self::Unsent(_)
            | Self::EngineDraining
            | Self::NoModel => RetrySafety::Unsent,
            Self::Reset(_)
            | Self::Down
            | Self::EngineDying
            | Self::Aborted
            | Self::Unfinished
            | Self::Cut => RetrySafety::Reset,
            Self::BadReply(_)
            | Self::Switched
            | Self::FirstByteTimeout
            | Self::DeadlinePassed
            | Self::BodyGone
            | Self::ClientBody(_) => RetrySafety::Never,
        }
    }

    /// Returns the error for the client. Addresses and causes stay in the log.
    pub fn to_gateway_error(&self, replica: &str) -> GatewayError {
        let (kind, message) = match self {
            Self::Name(_) => (
                ErrorKind::ReplicaConnect,
                format!("the name of replica {replica} does not resolve"),
            ),
            Self::Connect(_) | Self::ConnectTimeout => {
                (ErrorKind::ReplicaConnect, format!("replica {replica} can't be reached"))
            }
            Self::Shortage(_) => (
                ErrorKind::NodeShortage,
                "the gateway has no file descriptor, memory or port left for a connection"
                    .to_owned(),
            ),
            Self::Refused(_) => {
                (ErrorKind::ReplicaReset, format!("replica {replica} refused the request's stream"))
            }
            Self::Unsent(_) | Self::Reset(_) | Self::BodyGone => (
                ErrorKind::ReplicaReset,
                format!("replica {replica} closed the connection before it replied"),
            ),
            Self::BadReply(error) if error.is_long_head() => (
                ErrorKind::ReplicaBadResponse,
                format!("replica {replica} sent more than 512 KiB of headers"),
            ),
            Self::BadReply(_) => (
                ErrorKind::ReplicaBadResponse,
                format!("replica {replica} sent something that is not an HTTP reply"),
            ),
            Self::Switched => (
                ErrorKind::ReplicaBadResponse,
                format!("replica {replica} switched to another protocol unasked"),
            ),
            Self::Down => {
                (ErrorKind::ReplicaDown, format!("replica {replica} went down before it replied"))
            }
            Self::EngineDying => {
                (ErrorKind::ReplicaDown, format!("the engine of replica {replica} died"))
            }
            Self::EngineDraining => (
                ErrorKind::ReplicaDown,
                format!("replica {replica} ends and takes no more requests"),
            ),
            Self::NoModel => {
                let message =
                    format!("no replica has the model now: {replica} was the last that was asked");
                return GatewayError::new(ErrorKind::ModelNotFound, message).with_param("model");
            }
            Self::Aborted => {
                (ErrorKind::ReplicaReset, format!("replica {replica} aborted the request"))
            }
            Self::Cut => {
                (ErrorKind::ReplicaReset, format!("the reply of replica {replica} broke off"))
            }
            Self::Unfinished => (
                ErrorKind::ReplicaReset,
                format!("replica {replica} ended its reply before the answer was complete"),
            ),
            Self::FirstByteTimeout => (
                ErrorKind::FirstByteTimeout,
                format!("replica {replica} did not begin its reply in time"),
            ),
            Self::DeadlinePassed => {
                (ErrorKind::DeadlineExceeded, "the request's deadline passed".to_owned())
            }
            Self::ClientBody(_) => (ErrorKind::BadRequest, "the request body broke off".to_owned()),
        };
        GatewayError::new(kind, message)
    }
}

/// Returns true for REFUSED_STREAM, or GOAWAY for a stream above the last one the peer took: both
/// promise that the request was not processed (RFC 9113, section 8.7).
fn refused_by_http2(error: &hyper::Error) -> bool {
    cause::<h2::Error>(error).is_some_and(|error| {
        let refused = error.is_remote() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        refused || (error.is_go_away() && error.is_remote())
    })
}

/// Returns true if this side ended the stream or the connection because of data that the peer sent.
fn rejected_here(error: &hyper::Error) -> bool {
    let by_library = |error: &h2::Error| error.is_library() && error.reason().is_some();
    // The kind of errors in frames.
    let by_guard = |error: &io::Error| error.kind() == io::ErrorKind::InvalidData;
    cause(error).is_some_and(by_library) || cause(error).is_some_and(by_guard)
}

/// Returns the cause of this type.
fn cause<E: Error + 'static>(error: &hyper::Error) -> Option<&E> {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref() {
            return Some(error);
        }
        source = cause.source();
    }
    None
}
