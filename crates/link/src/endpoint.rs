//! Opens the UDP port and puts QUIC on it.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::{Endpoint, EndpointConfig, Runtime, ServerConfig, TokioRuntime};
use thiserror::Error;
use tokio_util::task::TaskTracker;

use crate::config::{Config, Limits};
use crate::delayed;
use crate::shared::Shared;
use crate::tls::{CertificateFault, Sessions, TlsFault};

/// Why a link can't start.
#[derive(Debug, Error)]
pub enum StartFault {
    /// The certificates can't be used.
    #[error(transparent)]
    Certificates(#[from] CertificateFault),
    /// TLS can't work with them.
    #[error(transparent)]
    Tls(#[from] TlsFault),
    /// The system has no random numbers.
    #[error("no random numbers: {0}")]
    NoRandomness(String),
    /// The port can't be opened.
    #[error("UDP port {address}: {cause}")]
    Socket {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        cause: std::io::Error,
    },
}

/// Opens the port. Also returns the settings with which it accepts.
pub(crate) fn open(
    config: &Config,
    sessions: &Sessions,
    tracker: &TaskTracker,
) -> Result<(Endpoint, ServerConfig), StartFault> {
    let server = server_config(sessions, &config.limits)?;
    let address = config.listen;
    let socket_fault = |cause| StartFault::Socket { address, cause };
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

/// Lets connections that come from now on see the certificates as they are now.
pub(crate) fn accept_with_current(shared: &Shared) -> Result<(), TlsFault> {
    let server = server_config(&shared.sessions, &shared.limits)?;
    shared.endpoint.set_server_config(Some(server.clone()));
    shared.accepting.store(Arc::new(server));
    Ok(())
}

/// Settings of all connections that will come; each gets a transport of its own when it does.
fn server_config(sessions: &Sessions, limits: &Limits) -> Result<ServerConfig, TlsFault> {
    let mut config = ServerConfig::with_crypto(Arc::new(sessions.accepting()?));
    config.migration(true).max_incoming(4 * limits.handshakes_max);
    Ok(config)
}
