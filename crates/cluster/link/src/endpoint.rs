//! UDP port of a link, with QUIC on it.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::{Endpoint, EndpointConfig, Runtime, ServerConfig, TokioRuntime};
use thiserror::Error;
use tokio_util::task::TaskTracker;

use crate::config::{LinkConfig, LinkLimits};
use crate::delayed;
use crate::shared::LinkShared;
use crate::tls::{CredentialError, Sessions, TlsSetupError};

/// Reason for which a link can't start.
#[derive(Debug, Error)]
pub enum LinkStartError {
    /// The certificates can't be used.
    #[error(transparent)]
    Certificates(#[from] CredentialError),
    /// TLS can't work with the certificates.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
    /// The system has no random numbers.
    #[error("no random numbers: {0}")]
    NoRandomness(String),
    /// The port can't be opened.
    #[error("UDP port {address}: {cause}")]
    Socket {
        /// Address to listen on.
        address: SocketAddr,
        /// Error of the system.
        cause: std::io::Error,
    },
}

/// Opens the UDP port. Returns the endpoint and the settings with which it accepts connections.
pub(crate) fn open(
    config: &LinkConfig,
    sessions: &Sessions,
    tracker: &TaskTracker,
) -> Result<(Endpoint, ServerConfig), LinkStartError> {
    let server = server_config(sessions, &config.limits)?;
    let address = config.listen;
    let socket_fault = |cause| LinkStartError::Socket { address, cause };
    let socket = UdpSocket::bind(address).map_err(socket_fault)?;
    let runtime = Arc::new(TokioRuntime);
    let socket = runtime.wrap_udp_socket(socket).map_err(socket_fault)?;
    let socket = match &config.paths {
        None => socket,
        Some(paths) => delayed::wrap(socket, Arc::clone(paths), tracker).map_err(socket_fault)?,
    };
    let settings = (EndpointConfig::default(), Some(server.clone()));
    let endpoint = Endpoint::new_with_abstract_socket(settings.0, settings.1, socket, runtime)
        .map_err(socket_fault)?;
    Ok((endpoint, server))
}

/// Sets the present certificates for connections that are accepted from now on.
pub(crate) fn accept_with_current(shared: &LinkShared) -> Result<(), TlsSetupError> {
    let server = server_config(&shared.sessions, &shared.limits)?;
    shared.endpoint.set_server_config(Some(server.clone()));
    shared.accepting.store(Arc::new(server));
    Ok(())
}

/// Makes the settings for accepted connections; each connection gets a transport of its own.
fn server_config(sessions: &Sessions, limits: &LinkLimits) -> Result<ServerConfig, TlsSetupError> {
    let mut config = ServerConfig::with_crypto(Arc::new(sessions.accepting()?));
    // The link refuses connections itself long before quinn would.
    config.migration(true).max_incoming(4 * limits.handshakes_max);
    Ok(config)
}
