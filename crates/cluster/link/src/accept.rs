//! Accepts the connections that peers dial.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use quinn::{ConnectionError, Incoming};
use tokio::time::timeout;

use crate::code::CloseCode;
use crate::config::ms;
use crate::hello;
use crate::join::{self, Guest};
use crate::kind::Kind;
use crate::peer::{Arrival, ConnectionOrigin};
use crate::shared::LinkShared;
use crate::tls::{HandshakeError, identity_of, peer_certificate, refused_by_peer};
use crate::transport;
use crate::window::KindSwitch;

/// TLS alerts, as QUIC numbers them.
const CERTIFICATE_REQUIRED: u64 = 0x100 + 116;
const NO_APPLICATION_PROTOCOL: u64 = 0x100 + 120;
/// TLS alerts of certificates that the verifier has counted already: bad, unsupported, revoked,
/// expired and unknown certificates, unknown CAs, denied access.
const OF_VERIFIER: [u64; 7] =
    [0x100 + 42, 0x100 + 43, 0x100 + 44, 0x100 + 45, 0x100 + 46, 0x100 + 48, 0x100 + 49];

/// Accepts connections until the endpoint is closed.
pub(crate) async fn run(shared: Arc<LinkShared>) {
    let handshakes = Arc::new(AtomicUsize::new(0));
    while let Some(incoming) = shared.endpoint.accept().await {
        let most = shared.limits.handshakes_max;
        let under_way = handshakes.load(Ordering::Relaxed);
        if under_way >= 2 * most {
            shared.refusals.count(HandshakeError::Busy);
            incoming.refuse();
        } else if under_way >= most && !incoming.remote_address_validated() {
            // A client with a forged address never sees the token, so it costs no more than this.
            drop(incoming.retry());
        } else {
            let place = HandshakePermit::take(&handshakes);
            let accepting = accept(Arc::clone(&shared), incoming, place);
            shared.tracker.spawn_on(accepting, &shared.runtime);
        }
    }
}

/// Permit of one handshake under way; it ends when the value is dropped.
struct HandshakePermit(Arc<AtomicUsize>);

impl HandshakePermit {
    fn take(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn accept(shared: Arc<LinkShared>, incoming: Incoming, place: HandshakePermit) {
    let remote = incoming.remote_address();
    let switch = KindSwitch::default();
    let mut settings = quinn::ServerConfig::clone(&shared.accepting.load());
    // Each connection has a switch of its own, and so a transport of its own.
    settings.transport_config(transport::accepted(&shared.transport, &switch));
    let handshake = async { incoming.accept_with(Arc::new(settings))?.await };
    let connection = match timeout(ms(shared.limits.handshake_ms), handshake).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            count(&shared, &error);
            tell_refused(&shared, remote, &error);
            tracing::debug!(%remote, %error, "a connection is refused");
            return;
        }
        Err(_) => {
            shared.refusals.count(HandshakeError::Handshake);
            return;
        }
    };
    let hello = timeout(ms(shared.limits.handshake_ms), welcome(&shared, &connection, &switch));
    let code = match hello.await {
        Ok(Ok(None)) => return,
        Ok(Ok(Some(guest))) => {
            // A joining node has a limit of its own from now on.
            drop(place);
            return join::serve(&shared, guest).await;
        }
        Ok(Err(code)) => code,
        // A peer without a hello in time breaks the protocol.
        Err(_) => CloseCode::Malformed,
    };
    connection.close(code.number(), b"");
    drop(place);
}

/// Logs that a node which dialled this one has refused its certificate: only that node knows why.
fn tell_refused(shared: &LinkShared, remote: SocketAddr, error: &ConnectionError) {
    let Some(reason) = refused_by_peer(error) else { return };
    // Not by the port, which each attempt may have another of.
    if shared.refusals.is_news(&format!("by {} {reason}", remote.ip()), Instant::now()) {
        let me = &shared.me;
        tracing::warn!(%remote, reason, "a node that dialled refuses this node's certificate, {me}: \
            its log says what it expected");
    }
}

/// Hands the connection to its peer once both sides have sent their hello. Returns the connection
/// if it comes from a node that asks to join.
async fn welcome(
    shared: &LinkShared,
    connection: &quinn::Connection,
    switch: &KindSwitch,
) -> Result<Option<Guest>, CloseCode> {
    let protocol = protocol_of(connection).ok_or(CloseCode::Malformed)?;
    let certificate = peer_certificate(connection).ok_or(CloseCode::NotMember)?;
    let identity = identity_of(&certificate).or(Err(CloseCode::NotMember))?;
    // The certificate may have been revoked since the handshake.
    shared.members.check_certificate(&certificate).or(Err(CloseCode::NotMember))?;
    if protocol == join::PROTOCOL {
        return Ok(Some(Guest { connection: connection.clone(), from: identity }));
    }
    let kind = Kind::of_protocol(&protocol).ok_or(CloseCode::Malformed)?;
    // A node that is no member may only ask to join; any other connection of it is refused unread.
    shared.members.admit(&identity).map_err(|refusal| {
        shared.refusals.count(refusal);
        tracing::debug!(from = %identity, reason = refusal.as_str(), "a non-member was refused");
        CloseCode::NotMember
    })?;
    // The congestion control learns the kind only now.
    if kind == Kind::Control {
        switch.is_control();
    }
    // Larger windows are granted only after the node proved to be a member.
    transport::open_to_peer(&shared.transport, connection, kind);
    let process =
        hello::exchange(connection, shared.process).await.or(Err(CloseCode::Malformed))?;
    // The members may have changed since the certificate was judged.
    shared.members.admit(&identity).or(Err(CloseCode::NotMember))?;
    let peer = shared.peer(identity.node()).ok_or(CloseCode::NotMember)?;
    let connection = connection.clone();
    let arrival = Arrival { connection, process, origin: ConnectionOrigin::Peer };
    if peer.arrive(kind, arrival) { Ok(None) } else { Err(CloseCode::TooMany) }
}

fn protocol_of(connection: &quinn::Connection) -> Option<Vec<u8>> {
    let data = connection.handshake_data()?;
    let data = data.downcast::<quinn::crypto::rustls::HandshakeData>().ok()?;
    data.protocol
}

/// Counts a refusal that the verifier has not counted.
fn count(shared: &LinkShared, error: &ConnectionError) {
    let refusal = match error {
        ConnectionError::TransportError(error) => match u64::from(error.code) {
            NO_APPLICATION_PROTOCOL => HandshakeError::NoProtocol,
            CERTIFICATE_REQUIRED => HandshakeError::NoCertificate,
            code if OF_VERIFIER.contains(&code) => return,
            _ => HandshakeError::Handshake,
        },
        // The other side closed the connection, so this node refused nothing.
        ConnectionError::ConnectionClosed(_)
        | ConnectionError::ApplicationClosed(_)
        | ConnectionError::Reset
        | ConnectionError::LocallyClosed => return,
        _ => HandshakeError::Handshake,
    };
    shared.refusals.count(refusal);
}
