//! Opens the sockets of a node, and finds the process that has an address which can't be opened.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use spillway_config::{AdminListener, ListenerConfig};
use spillway_dns::NameServer;
use spillway_front::client::{Listener, ServerTls};
use spillway_front::port_holder::{PortTransport, holder_of};
use spillway_geo::dns::DnsConfig;
use spillway_link::LinkStartError;
use tokio::net::TcpListener;

use super::StartError;
use crate::admin::AdminSocket;
use crate::cluster::ClusterError;
use crate::workers::{Bound, open_socket};

/// Opens all listeners that clients connect to. The gateway itself ends connections of clients that
/// take nothing for `stall`.
///
/// # Errors
/// Returns an error if an address is taken or a certificate does not work.
pub(super) async fn open_listeners(
    configs: Vec<ListenerConfig>,
    stall: Duration,
) -> Result<Vec<Bound>, StartError> {
    let mut bound = Vec::new();
    for config in configs {
        let listener = Listener::new(config.spec)?;
        let opened = Bound::open(listener, config.address, config.shares_port, stall).await;
        bound
            .push(opened.map_err(|cause| no_listening(config.address, PortTransport::Tcp, cause))?);
    }
    Ok(bound)
}

/// Converts an error of the cluster: a taken UDP port is reported like any other.
pub(super) fn no_cluster(error: ClusterError) -> StartError {
    match error {
        ClusterError::Link(LinkStartError::Socket { address, cause })
            if cause.kind() == std::io::ErrorKind::AddrInUse =>
        {
            no_listening(address, PortTransport::Udp, cause)
        }
        error => error.into(),
    }
}

/// Opens the port of the name server, if this node is one.
///
/// # Errors
/// Returns an error if the port is taken for one of the two transports.
pub(super) fn open_dns(config: Option<&DnsConfig>) -> Result<Option<NameServer>, StartError> {
    let Some(config) = config else { return Ok(None) };
    let opened = NameServer::open(config.listen);
    opened.map(Some).map_err(|cause| no_listening(config.listen, PortTransport::Udp, cause))
}

fn no_listening(
    address: SocketAddr,
    transport: PortTransport,
    cause: std::io::Error,
) -> StartError {
    let is_taken = cause.kind() == std::io::ErrorKind::AddrInUse;
    let holder = is_taken.then(|| holder_of(address, transport)).flatten();
    StartError::Listen { address, cause, holder }
}

/// Returns the end of the error message: the process that has the address, if it is known.
pub(super) fn named_holder(holder: Option<&str>) -> String {
    holder.map(|holder| format!(": {holder}")).unwrap_or_default()
}

/// Opens the admin listener, if the config has one.
///
/// # Errors
/// Returns an error if its address is taken or its certificate does not work.
pub(super) async fn open_admin(
    config: Option<&AdminListener>,
) -> Result<Option<AdminSocket>, StartError> {
    let Some(config) = config else { return Ok(None) };
    let tls = config.tls.as_ref().map(ServerTls::new).transpose()?.map(Arc::new);
    let opened = open_socket(config.address, false).await.and_then(TcpListener::from_std);
    let socket = opened.map_err(|cause| no_listening(config.address, PortTransport::Tcp, cause))?;
    Ok(Some(AdminSocket { socket, tls }))
}

pub(super) fn warn_of_clear_tokens(config: &AdminListener) {
    let is_local = config.address.ip().to_canonical().is_loopback();
    if config.tls.is_none() && !is_local {
        let address = config.address;
        tracing::warn!(%address, "tokens of operators travel in cleartext: set tls in [admin]");
    }
}
