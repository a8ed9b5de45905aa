//! Attempt to connect to a peer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{ConnectError, ConnectionError};
use spillway_resolver::LookupError;
use thiserror::Error;

use super::live::{Arrival, ConnectionOrigin};
use super::{Peer, PeerTarget};
use crate::config::ms;
use crate::hello::{self, HelloError};
use crate::kind::Kind;
use crate::shared::LinkShared;
use crate::tls::{TlsSetupError, refused_by_peer};
use crate::transport;

/// Reason for which a dial failed.
#[derive(Debug, Error)]
pub(crate) enum DialError {
    #[error("`{0}` can't be looked up: {1}")]
    LookUp(String, LookupError),
    #[error("`{0}` has no address that this node's socket can reach")]
    NoAddress(String),
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error(transparent)]
    Hello(#[from] HelloError),
    #[error("it took too long")]
    TimedOut,
}

impl DialError {
    /// Returns the reason for which the peer refused this node's certificate; `None` if the dial
    /// failed in another way.
    pub(super) fn refused_by_peer(&self) -> Option<&'static str> {
        match self {
            Self::Connection(error) | Self::Hello(HelloError::Connection(error)) => {
                refused_by_peer(error)
            }
            _ => None,
        }
    }
}

/// Connects to `peer` and waits for its hello: only then has it accepted this node's certificate.
/// `attempt` chooses among several addresses of a name.
pub(super) async fn dial(
    shared: Arc<LinkShared>,
    peer: Arc<Peer>,
    kind: Kind,
    attempt: u32,
) -> Result<Arrival, DialError> {
    let limit = ms(shared.limits.dial_ms);
    let connecting = async {
        let target = peer.target.load_full();
        let address = look_up(&shared, &target, attempt).await?;
        let rtt = peer.rtt(kind).unwrap_or_else(|| rtt_of(&shared, &target));
        let tls = shared.sessions.dialling(&peer.identity, address, kind.protocol())?;
        let mut config = quinn::ClientConfig::new(Arc::new(tls));
        config.transport_config(transport::dialled(&shared.transport, kind, rtt));
        let name = peer.identity.dns_name();
        let connection = shared.endpoint.connect_with(config, address, &name)?.await?;
        let process = hello::exchange(&connection, shared.process).await?;
        Ok(Arrival { connection, process, origin: ConnectionOrigin::Us })
    };
    tokio::time::timeout(limit, connecting).await.unwrap_or(Err(DialError::TimedOut))
}

fn rtt_of(shared: &LinkShared, target: &PeerTarget) -> Duration {
    ms(target.rtt_ms.unwrap_or(shared.transport.rtt_default_ms).max(1))
}

/// Returns an address of `target` that this node's socket reaches; `attempt` chooses among several.
pub(crate) async fn look_up(
    shared: &LinkShared,
    target: &PeerTarget,
    attempt: u32,
) -> Result<SocketAddr, DialError> {
    let name = &target.address;
    let unusable = || DialError::NoAddress(name.clone());
    let (host, port) = name.rsplit_once(':').ok_or_else(unusable)?;
    let port = port.parse().map_err(|_| unusable())?;
    let endpoint = shared.resolver.endpoint(host.trim_matches(['[', ']']), port);
    endpoint.host().ready().await;
    if attempt > 0 {
        // For the next attempt: the addresses of the last one may be out of date.
        endpoint.host().look_up_again();
    }
    let found = endpoint.addresses();
    if let Some(error) = endpoint.host().error().filter(|_| found.is_empty()) {
        return Err(DialError::LookUp(name.clone(), error));
    }
    // A socket of IPv6 reaches IPv4 addresses too.
    let both = shared.endpoint.local_addr().is_ok_and(|local| local.is_ipv6());
    let reachable: Vec<_> = found.into_iter().filter(|it| both || it.is_ipv4()).collect();
    // Each attempt takes the next address, because one of them may be dead.
    let chosen = (attempt as usize).checked_rem(reachable.len());
    chosen.map(|at| reachable[at]).ok_or_else(|| DialError::NoAddress(name.clone()))
}
