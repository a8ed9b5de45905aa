//! Link of one node to all its peers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use http_body::Body;
use quinn::SendDatagramError;
use rustls::pki_types::CertificateDer;
use spillway_codec::Wire;
use spillway_types::{NodeName, RegionName};
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accept;
use crate::certs::RevocationError;
use crate::code::CloseCode;
use crate::config::{LinkConfig, PeerConfig, ms};
use crate::counters::{LinkCounters, Totals, add};
use crate::endpoint::{self, LinkStartError};
use crate::forward::{
    BoxError, ForwardAnswer, ForwardCall, ForwardError, ForwardHead, Handler, PeerRoom,
};
use crate::identity::Identity;
use crate::join::{self, JoinError, JoinHandler, JoinPermits};
use crate::kind::Kind;
use crate::peer::{self, OpenStream, PeerStatus};
use crate::revoked::RevokedCertificates;
use crate::rpc::{self, OpenError, StreamHandler, StreamReceiver, StreamSender};
use crate::shared::LinkShared;
use crate::tls::{
    CredentialError, HandshakeError, Members, Refusals, Sessions, TlsSetupError, UsedCertificates,
};

/// Time limit for informing the peers that this node ends.
const FAREWELL: Duration = Duration::from_millis(500);

/// Link of one node to all its peers: one UDP port, and two warm connections for each peer.
///
/// The tasks of the link run in the runtime where it was started; its methods can be called from
/// any runtime. A drop ends everything at once; [`Self::shutdown`] lets requests finish.
#[derive(Debug)]
pub struct Link {
    shared: Arc<LinkShared>,
    /// Lock for changes of the peers, one at a time.
    changes: Mutex<()>,
}

/// Reason for which a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DatagramError {
    /// The peer is unknown, or there is no connection to it now.
    #[error("not connected")]
    NotConnected,
    /// The datagram is longer than the path to the peer carries.
    #[error("the datagram is longer than the path carries")]
    TooLong,
}

/// Reason for which changed certificates can't be used; the old ones stay.
#[derive(Debug, Error)]
pub enum ReloadError {
    /// The files can't be read or do not fit this node.
    #[error(transparent)]
    Certificates(#[from] CredentialError),
    /// TLS can't work with the certificates.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
    /// The link ends.
    #[error("the link ends")]
    Ends,
}

/// Status of a link without its peers.
#[derive(Clone, Debug)]
pub struct LinkStatus {
    /// Address on which the link listens; `None` if the system does not know it any more.
    pub address: Option<SocketAddr>,
    /// Counters of the link.
    pub totals: Totals,
    /// Number of refused connections for each reason.
    pub refusals: [(HandshakeError, u64); HandshakeError::ALL.len()],
    /// Requests that are open now, in both directions.
    pub streams: usize,
    /// Time from which on peers will refuse this node's certificate.
    pub certificate_expires_at: Option<SystemTime>,
    /// Number of CAs that this node trusts: two during a rotation.
    pub authorities: usize,
}

impl Link {
    /// Reads the certificates, opens the UDP port and begins to accept. There are no connections
    /// before [`Self::set_peers`]. Needs a tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the certificates can't be used or the port can't be opened.
    pub fn start(config: LinkConfig, handler: Arc<dyn Handler>) -> Result<Self, LinkStartError> {
        let members = Arc::new(Members::new(config.me.cluster()));
        let refusals = Arc::new(Refusals::default());
        let sessions = Sessions::open(
            config.me.clone(),
            config.certificates.clone(),
            Arc::clone(&members),
            Arc::clone(&refusals),
        )?;
        let tracker = TaskTracker::new();
        let (endpoint, accepting) = endpoint::open(&config, &sessions, &tracker)?;
        let shared = Arc::new(LinkShared {
            me: config.me,
            process: getrandom::u64()
                .map_err(|error| LinkStartError::NoRandomness(error.to_string()))?,
            endpoint,
            resolver: config.resolver,
            accepting: ArcSwap::from_pointee(accepting),
            sessions,
            members,
            refusals,
            revoked: RevokedCertificates::new(config.revoked, config.revoked_heard),
            revocations: watch::Sender::new(0),
            peers: ArcSwap::default(),
            handler,
            streams: ArcSwapOption::empty(),
            join_handler: ArcSwapOption::empty(),
            strangers: JoinPermits::default(),
            transport: config.transport,
            limits: config.limits,
            counters: Arc::new(LinkCounters::default()),
            open: Arc::default(),
            tracker,
            watch: config.watch.clone(),
            runtime: tokio::runtime::Handle::current(),
            stop: CancellationToken::new(),
        });
        shared.revoked.load_kept(&shared.sessions.used().authorities);
        shared.revoked.reload(&shared.sessions.used().authorities);
        shared.apply_revoked();
        let (accepting, watching) =
            (accept::run(Arc::clone(&shared)), watch_certificates(Arc::clone(&shared)));
        shared.tracker.spawn(config.watch.clone().vital("link", accepting));
        shared.tracker.spawn(config.watch.vital("certificates of the link", watching));
        Ok(Self { shared, changes: Mutex::new(()) })
    }

    /// Replaces the peers. The link keeps connections to them and accepts theirs; all other nodes
    /// are disconnected. A peer with only a new address keeps its connections. This node itself is
    /// left out.
    pub fn set_peers(&self, peers: Vec<PeerConfig>) {
        let _turn = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let peers = peers.into_iter().filter(|peer| peer.identity != self.shared.me);
        let wanted: BTreeMap<NodeName, PeerConfig> =
            peers.map(|peer| (peer.identity.node().clone(), peer)).collect();
        // First, so that a removed node can't come back while its connections are closed.
        self.shared.members.set(wanted.values().map(|peer| &peer.identity));
        let mut old = BTreeMap::clone(&self.shared.peers.load());
        let mut kept = BTreeMap::new();
        for (name, config) in wanted {
            match old.remove(&name) {
                Some(peer) if peer.identity == config.identity => {
                    peer.move_to(&config);
                    kept.insert(name, peer);
                }
                gone => {
                    // A node of that name in another region is another peer.
                    gone.inspect(|peer| peer.stop());
                    kept.insert(name, peer::start(&self.shared, config));
                }
            }
        }
        self.shared.revoked.keep(|node| kept.contains_key(node));
        self.shared.peers.store(Arc::new(kept));
        old.values().for_each(|peer| peer.stop());
    }

    /// Restricts these peers to the log: no request and no datagram is sent to them or taken from
    /// them. Use it for removed nodes whose acknowledgement the log still needs.
    pub fn set_leaving(&self, leaving: BTreeSet<NodeName>) {
        self.shared.members.set_leaving(leaving);
    }

    /// Refuses certificates with these serial numbers, which the cluster has recorded, from now on
    /// and closes connections with them at once. The numbers are lower-case hexadecimal digits
    /// without leading zeros. Certificates that the CA itself has revoked are refused, too.
    pub fn set_revoked(&self, serials: BTreeSet<String>) {
        self.shared.revoked.set_recorded(serials);
        self.shared.apply_revoked();
    }

    /// Handles a certificate revocation list in DER form that `from` sent. It takes effect at once
    /// if the CA has signed it, whatever its sender. Returns true if it was unknown.
    ///
    /// # Errors
    /// Returns an error if the list has no effect, or `from` has sent another one just before.
    pub fn hear_revoked(&self, from: &NodeName, list: &[u8]) -> Result<bool, RevocationError> {
        let authorities = self.shared.sessions.used().authorities;
        let is_new = self.shared.revoked.receive(from, list, &authorities, Instant::now())?;
        if is_new {
            self.shared.apply_revoked();
            // The disk may be slow, and the caller must not wait for it.
            let shared = Arc::clone(&self.shared);
            drop(self.shared.runtime.spawn_blocking(move || shared.revoked.save_kept()));
        }
        Ok(is_new)
    }

    /// Returns the revocation lists of the CA that other nodes have to know, in DER form. Lists that
    /// the cluster has recorded are left out.
    #[must_use]
    pub fn revocation_lists(&self) -> Vec<Bytes> {
        self.shared.revoked.to_send()
    }

    /// Returns the serial numbers that the CA has revoked and the cluster has not recorded.
    #[must_use]
    pub fn unrecorded_revocations(&self) -> BTreeSet<String> {
        self.shared.revoked.unrecorded()
    }

    /// Sends a datagram on the control connection; never waits. The datagram may be lost. If the
    /// path takes fewer than are sent, the oldest are dropped.
    ///
    /// # Errors
    /// Returns an error if there is no connection, or the datagram is longer than the path carries;
    /// 1,150 bytes always fit.
    pub fn send_datagram(&self, to: &NodeName, datagram: Bytes) -> Result<(), DatagramError> {
        let sent = match self.current_of_member(to, Kind::Control) {
            None => Err(DatagramError::NotConnected),
            Some(live) => live.connection.send_datagram(datagram).map_err(|error| match error {
                SendDatagramError::TooLarge => DatagramError::TooLong,
                _ => DatagramError::NotConnected,
            }),
        };
        let counters = &self.shared.counters;
        add(if sent.is_ok() { &counters.datagrams_sent } else { &counters.datagrams_unsent });
        sent
    }

    /// Forwards a request and waits for the head of the reply or the refusal. If the future is
    /// dropped, or the reply's body before its end, both nodes give the request up at once.
    ///
    /// # Errors
    /// Returns an error if no answer came; [`ForwardError::stage`] shows if another node may be
    /// asked.
    pub async fn forward<B>(
        &self,
        to: &NodeName,
        head: ForwardHead,
        body: B,
        room: PeerRoom,
    ) -> Result<ForwardAnswer, ForwardError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let shared = &self.shared;
        add(&shared.counters.forwarded);
        let answer = match self.current_of_member(to, Kind::Data) {
            None => Err(ForwardError::NotConnected),
            Some(live) => {
                let peer = shared.peer(to);
                let call = ForwardCall {
                    // The control connection notices a dead peer sooner than the data connection.
                    is_heard: &|| {
                        peer.as_ref().is_some_and(|peer| peer.current(Kind::Control).is_some())
                    },
                    open: OpenStream::on(&live, &shared.open),
                    live: &live,
                    limits: &shared.limits,
                    tracker: &shared.tracker,
                    runtime: &shared.runtime,
                };
                call.run(head, body, room).await
            }
        };
        match &answer {
            Ok(ForwardAnswer::Reply(_)) => {}
            Ok(ForwardAnswer::Refused(_)) => add(&shared.counters.forward_refused),
            Err(_) => add(&shared.counters.forward_failed),
        }
        answer
    }

    /// Sets the handler of streams that are not forwarded requests; with `None` they are refused.
    pub fn serve_streams(&self, handler: Option<Arc<dyn StreamHandler>>) {
        self.shared.streams.store(handler.map(Arc::new));
    }

    /// Sets the handler of questions from nodes that are not peers. With `None` their connections
    /// are refused unread.
    pub fn serve_joins(&self, join_handler: Option<Arc<dyn JoinHandler>>) {
        self.shared.members.open(join_handler.is_some());
        self.shared.join_handler.store(join_handler.map(Arc::new));
    }

    /// Asks a node one question over a join connection. Neither node needs the other as a peer.
    ///
    /// # Errors
    /// Returns [`JoinError`], which shows if another try may help.
    pub async fn ask_to_join<Q: Wire, A: Wire>(
        &self,
        to: &PeerConfig,
        question: &Q,
        limit: Duration,
    ) -> Result<A, JoinError> {
        join::ask_to_join(&self.shared, to, question, limit).await
    }

    /// Opens a stream of both directions on the control connection; never waits.
    ///
    /// # Errors
    /// Returns an error if there is no connection, or too many streams are open.
    pub fn open_control(&self, to: &NodeName) -> Result<(StreamSender, StreamReceiver), OpenError> {
        // To leaving peers as well: the log still needs them.
        let live = self.current(to, Kind::Control).ok_or(OpenError::NotConnected)?;
        rpc::open_control(&live)
    }

    /// Opens a stream of one direction for large content on the data connection; never waits.
    ///
    /// # Errors
    /// Returns an error if there is no connection, or too many streams are open.
    pub fn open_bulk(&self, to: &NodeName) -> Result<StreamSender, OpenError> {
        let live = self.current(to, Kind::Data).ok_or(OpenError::NotConnected)?;
        rpc::open_bulk(&live)
    }

    /// Returns the status of each peer, by name. Cheap enough for every request of metrics.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerStatus> {
        self.shared.peers.load().values().map(|peer| peer.status()).collect()
    }

    /// Returns the nodes of a region that requests can be forwarded to now.
    #[must_use]
    pub fn connected_in(&self, region: &RegionName) -> Vec<NodeName> {
        let peers = self.shared.peers.load();
        let connected = peers.iter().filter(|(_, peer)| {
            let is_leaving = self.shared.members.is_leaving(peer.identity.node());
            peer.identity.region() == region && !is_leaving && peer.current(Kind::Data).is_some()
        });
        connected.map(|(name, _)| name.clone()).collect()
    }

    /// Returns true if a control connection to the peer stands: it notices a dead peer sooner than
    /// the data connection.
    #[must_use]
    pub fn is_heard(&self, from: &NodeName) -> bool {
        self.shared.peer(from).is_some_and(|peer| peer.current(Kind::Control).is_some())
    }

    /// Returns the smoothed round trip to one peer; `None` if the peer is not connected.
    #[must_use]
    pub fn rtt(&self, to: &NodeName) -> Option<Duration> {
        self.shared.peer(to)?.rtt(Kind::Control)
    }

    /// Returns the status of the link without its peers.
    #[must_use]
    pub fn status(&self) -> LinkStatus {
        LinkStatus {
            address: self.local_address(),
            totals: self.shared.counters.totals(),
            refusals: HandshakeError::ALL
                .map(|refusal| (refusal, self.shared.refusals.of(refusal))),
            streams: self.shared.open.count(),
            certificate_expires_at: self.shared.sessions.expires_at(),
            authorities: self.shared.sessions.authorities(),
        }
    }

    /// Returns the identity of this node.
    #[must_use]
    pub fn me(&self) -> &Identity {
        &self.shared.me
    }

    /// Returns the certificates that new connections use. Existing connections may have begun with
    /// others.
    #[must_use]
    pub fn used_certificates(&self) -> UsedCertificates {
        self.shared.sessions.used()
    }

    /// Connects to a peer, returns the certificate chain that it shows, and closes the connection
    /// at once.
    ///
    /// # Errors
    /// Returns an error if the connection fails.
    pub async fn shown_by(
        &self,
        peer: &NodeName,
        limit: Duration,
    ) -> Result<Vec<CertificateDer<'static>>, JoinError> {
        join::shown_by(&self.shared, peer, limit).await
    }

    /// Returns the SHA-256 of this node's certificate, for people who compare.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        self.shared.sessions.fingerprint()
    }

    /// Returns the address on which the link listens; `None` if the system does not know it any
    /// more.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.shared.endpoint.local_addr().ok()
    }

    /// Reads the certificate files again. New connections use the new content, existing ones go on.
    /// Returns true if the files had changed.
    ///
    /// # Errors
    /// Returns an error if they can't be used; the old certificates stay.
    pub async fn reload(&self) -> Result<bool, ReloadError> {
        reload(&self.shared).await
    }

    /// Waits until no request is open in either direction. More may come as long as the handler
    /// accepts any.
    pub async fn idle(&self) {
        self.shared.open.none().await;
    }

    /// Waits until no request is open, for at most `limit`, then closes all connections, which
    /// informs the peers. The handler should refuse new requests by then.
    pub async fn shutdown(&self, limit: Duration) {
        // Requests that are open after the limit are cut off.
        let is_done = tokio::time::timeout(limit, self.shared.open.none()).await.is_ok();
        self.end(if is_done { CloseCode::Shutdown } else { CloseCode::Abandoned });
        let _ = tokio::time::timeout(FAREWELL, self.shared.endpoint.wait_idle()).await;
        let _ = tokio::time::timeout(FAREWELL, self.shared.tracker.wait()).await;
    }

    fn end(&self, code: CloseCode) {
        // The endpoint is closed first, so that no task closes a connection with another code.
        self.shared.endpoint.close(code.number(), b"");
        self.shared.stop.cancel();
        self.shared.tracker.close();
    }

    fn current(&self, to: &NodeName, kind: Kind) -> Option<Arc<peer::LiveConnection>> {
        self.shared.peers.load().get(to)?.current(kind)
    }

    fn current_of_member(&self, to: &NodeName, kind: Kind) -> Option<Arc<peer::LiveConnection>> {
        self.current(to, kind).filter(|_| !self.shared.members.is_leaving(to))
    }

    /// Dials for another data connection, as if the peer's had not come.
    #[cfg(test)]
    pub(crate) async fn dial_again_for_tests(&self, node: &NodeName, address: SocketAddr) {
        let peer = self.shared.peer(node).unwrap();
        let target = PeerConfig {
            identity: peer.identity.clone(),
            address: address.to_string(),
            rtt_ms: None,
        };
        peer.move_to(&target);
        peer.dial_for_tests(&self.shared, Kind::Data).await;
    }

    /// Returns the endpoint, for tests of the layers below.
    #[cfg(test)]
    pub(crate) fn endpoint(&self) -> &quinn::Endpoint {
        &self.shared.endpoint
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.end(CloseCode::Abandoned);
    }
}

/// Checks the certificate files for changes from time to time.
async fn watch_certificates(shared: Arc<LinkShared>) {
    let period = ms(shared.limits.certificates_check_ms);
    while shared.stop.run_until_cancelled(tokio::time::sleep(period)).await.is_some() {
        match reload(&shared).await {
            Ok(true) => tracing::info!("the changed certificates of the link are in use"),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the link keeps its old certificates"),
        }
    }
}

async fn reload(shared: &Arc<LinkShared>) -> Result<bool, ReloadError> {
    let reading = Arc::clone(shared);
    // The disk may be slow, and connections must not wait for it.
    let read = shared.runtime.spawn_blocking(move || {
        let outcome = reading.sessions.reload();
        reading.revoked.reload(&reading.sessions.used().authorities);
        reading.apply_revoked();
        reading.revoked.save_kept();
        outcome
    });
    let read = read.await;
    let outcome = match read {
        Err(_) => Err(ReloadError::Ends),
        Ok(Ok(false)) => return Ok(false),
        Ok(Ok(true)) => endpoint::accept_with_current(shared).map_err(ReloadError::from),
        Ok(Err(fault)) => Err(fault.into()),
    };
    let counters = &shared.counters;
    add(if outcome.is_ok() { &counters.reloads } else { &counters.reloads_failed });
    outcome.map(|()| true)
}
