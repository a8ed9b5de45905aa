//! Client side of a join: asks another node one question.

use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, ConnectionError};
use rustls::pki_types::CertificateDer;
use spillway_codec::Wire;
use spillway_types::NodeName;
use thiserror::Error;

use super::PROTOCOL;
use crate::code::CloseCode;
use crate::config::{PeerConfig, ms};
use crate::kind::Kind;
use crate::peer::{DialError, PeerTarget, look_up};
use crate::rpc::{StreamError, StreamReceiver, StreamSender};
use crate::shared::LinkShared;
use crate::transport;

/// TLS alerts that name the problem of a certificate, as QUIC numbers them.
const EXPIRED: u64 = 0x100 + 45;
const UNKNOWN_AUTHORITY: u64 = 0x100 + 48;
const ACCESS_DENIED: u64 = 0x100 + 49;
const NO_PROTOCOL: u64 = 0x100 + 120;

/// Reason for which a node gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JoinError {
    /// The node can't be reached, or not in time. Another try may work.
    #[error("it can't be reached: {0}")]
    Unreachable(String),
    /// Either node refuses the other's certificate. Another try won't help.
    #[error("{0}")]
    Certificate(String),
    /// The node answers no questions now. Another try may work.
    #[error("it takes no questions now: {0}")]
    Closed(String),
    /// The answer can't be read.
    #[error("its answer can't be read: {0}")]
    Garbled(String),
}

/// Asks the node that `peer` names one question. That node need not know this node.
pub(crate) async fn ask_to_join<Q: Wire, A: Wire>(
    shared: &Arc<LinkShared>,
    peer: &PeerConfig,
    question: &Q,
    limit: Duration,
) -> Result<A, JoinError> {
    let asking = async {
        let connection = dial(shared, peer, PROTOCOL).await?;
        let answer = ask(&connection, question).await;
        // The other node waits for the end before it forgets the connection.
        connection.close(CloseCode::Double.number(), b"");
        answer
    };
    let late = || JoinError::Unreachable("no answer in time".to_owned());
    tokio::time::timeout(limit, asking).await.unwrap_or_else(|_| Err(late()))
}

/// Returns the certificate chain that a peer shows to a new connection. Sends no question: the
/// connection ends before either side has sent its hello.
pub(crate) async fn shown_by(
    shared: &Arc<LinkShared>,
    peer: &NodeName,
    limit: Duration,
) -> Result<Vec<CertificateDer<'static>>, JoinError> {
    let peer = shared.peer(peer).ok_or_else(|| JoinError::Closed("it is no peer".to_owned()))?;
    let target = peer.target.load();
    let (identity, address) = (peer.identity.clone(), target.address.clone());
    let config = PeerConfig { identity, address, rtt_ms: target.rtt_ms };
    let looking = async {
        let connection = dial(shared, &config, Kind::Control.protocol()).await?;
        let chain = connection.peer_identity().and_then(|shown| shown.downcast().ok());
        connection.close(CloseCode::Double.number(), b"");
        let unseen = || JoinError::Garbled("it shows no certificate".to_owned());
        chain.map(|chain| *chain).ok_or_else(unseen)
    };
    let late = || JoinError::Unreachable("no answer in time".to_owned());
    tokio::time::timeout(limit, looking).await.unwrap_or_else(|_| Err(late()))
}

async fn dial(
    shared: &Arc<LinkShared>,
    peer: &PeerConfig,
    protocol: &[u8],
) -> Result<Connection, JoinError> {
    let target = PeerTarget { address: peer.address.clone(), rtt_ms: peer.rtt_ms };
    let unreachable = |fault: &dyn std::error::Error| JoinError::Unreachable(fault.to_string());
    let address = look_up(shared, &target, 0).await.map_err(|fault| unreachable(&fault))?;
    let tls = shared.sessions.dialling(&peer.identity, address, protocol);
    let tls = tls.map_err(|fault| unreachable(&DialError::from(fault)))?;
    let mut config = quinn::ClientConfig::new(Arc::new(tls));
    let rtt = ms(peer.rtt_ms.unwrap_or(shared.transport.rtt_default_ms).max(1));
    config.transport_config(transport::dialled(&shared.transport, Kind::Control, rtt));
    let connecting = shared.endpoint.connect_with(config, address, &peer.identity.dns_name());
    connecting.map_err(|fault| unreachable(&fault))?.await.map_err(|error| reason(&error))
}

async fn ask<Q: Wire, A: Wire>(connection: &Connection, question: &Q) -> Result<A, JoinError> {
    let asking = async {
        let streams = connection.open_bi().await.or(Err(StreamError::Lost))?;
        let (mut sender, mut receiver) =
            (StreamSender::new(streams.0), StreamReceiver::new(streams.1));
        sender.message(question).await?;
        sender.finish();
        receiver.message::<A>().await
    };
    match asking.await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(JoinError::Closed("it gave no answer".to_owned())),
        // TLS lets this node send before the other node has judged its certificate.
        Err(StreamError::Lost) => match connection.close_reason() {
            Some(error) => Err(reason(&error)),
            None => Err(JoinError::Closed(StreamError::Lost.to_string())),
        },
        Err(StreamError::GivenUp(code)) => Err(JoinError::Closed(format!("{code:?}"))),
        Err(fault) => Err(JoinError::Garbled(fault.to_string())),
    }
}

/// Returns the reason for which a connection was not made, or ended.
fn reason(error: &ConnectionError) -> JoinError {
    let certificate = |text: &str| JoinError::Certificate(text.to_owned());
    match error {
        ConnectionError::TransportError(fault) if is_certificate(fault.code.into()) => {
            certificate(&format!(
                "its certificate is refused here ({}): it has to be of this cluster's CA, in time, \
                 and of the node and region that [[peer]] names",
                fault.reason,
            ))
        }
        ConnectionError::ConnectionClosed(close) => match u64::from(close.error_code) {
            UNKNOWN_AUTHORITY => certificate(
                "it does not accept this node's certificate: another CA has made it, so it is of \
                 another cluster",
            ),
            ACCESS_DENIED => certificate(
                "it does not accept this node's certificate: it names another cluster, or the \
                 other admits no new nodes",
            ),
            EXPIRED => certificate(
                "it does not accept this node's certificate: its time is over or has not begun",
            ),
            NO_PROTOCOL => JoinError::Closed("its version admits no new nodes".to_owned()),
            _ => JoinError::Unreachable(error.to_string()),
        },
        ConnectionError::ApplicationClosed(close) => {
            let code = close.error_code;
            JoinError::Closed(if code == CloseCode::TooMany.number() {
                "too many nodes ask at a time".to_owned()
            } else if code == CloseCode::NotMember.number() {
                "it admits no new nodes".to_owned()
            } else {
                error.to_string()
            })
        }
        _ => JoinError::Unreachable(error.to_string()),
    }
}

/// Returns true if a TLS fault is about a certificate.
fn is_certificate(code: u64) -> bool {
    // The alerts 42 to 49 of TLS.
    matches!(code, 0x12a..=0x131)
}
