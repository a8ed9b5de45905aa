//! Failures of look-ups and connections.

use std::io;

use crate::name::NameError;

/// Reason for which the addresses of a name are unknown, or may be out of date.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The first look-up has not ended yet.
    #[error("its name is being looked up")]
    Pending,
    /// The name does not exist or has no address, according to the name servers.
    #[error("its name does not resolve: {0}")]
    NotFound(String),
    /// No name server gave an answer that counts.
    #[error("its name can't be looked up: {0}")]
    NoAnswer(String),
    /// The name can't be asked for.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// Reason for which there is no connection to an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The endpoint's name has no known address.
    #[error(transparent)]
    Name(LookupError),
    /// No address could be connected to. This is the most informative error.
    #[error(transparent)]
    Io(#[from] io::Error),
}
