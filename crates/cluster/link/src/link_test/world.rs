//! Nodes on loopback, with helpers that wait for events.

use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http_body_util::BodyExt;
use spillway_types::NodeName;
use tempfile::TempDir;
use tokio::sync::{Mutex, mpsc};

pub(super) use spillway_testkit::{
    PATIENCE, eventually as until, eventually_within as until_within,
};

use crate::certs::{Authority, AuthorityFiles, IfExists, NodeFiles, Validity};
use crate::delayed::Paths;
use crate::{
    BoxBody, BoxError, CertificateFiles, Deciding, ForwardBody, ForwardHead, Handler, Identity,
    Link, LinkConfig, PeerConfig, Refused, Serving,
};

pub(super) const CLUSTER: &str = "test";

/// CA with the folder of its files.
pub(super) struct World {
    pub(super) folder: TempDir,
    pub(super) authority: Authority,
}

pub(super) fn days(days: u32) -> Validity {
    Validity::days(SystemTime::now(), days).unwrap()
}

pub(super) fn identity(region: &str, node: &str) -> Identity {
    Identity::new(CLUSTER, region, node).unwrap()
}

impl World {
    pub(super) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let authority = Authority::new(CLUSTER, days(10)).unwrap();
        std::fs::write(folder.path().join("ca.pem"), authority.certificate_pem()).unwrap();
        Self { folder, authority }
    }

    pub(super) fn path(&self) -> &FilePath {
        self.folder.path()
    }

    /// Issues a certificate for any `identity`, valid or not.
    pub(super) fn issue(&self, identity: &Identity, authority: &Authority) -> CertificateFiles {
        self.issue_valid(identity, authority, days(5))
    }

    pub(super) fn issue_valid(
        &self,
        identity: &Identity,
        authority: &Authority,
        validity: Validity,
    ) -> CertificateFiles {
        let files =
            NodeFiles::in_folder(self.path(), identity.region().as_str(), identity.node().as_str());
        files.write(authority.issue_for(identity, validity).unwrap(), IfExists::Replace).unwrap();
        files.with_authority(&AuthorityFiles::in_folder(self.path()))
    }

    pub(super) fn config(&self, region: &str, node: &str) -> LinkConfig {
        let me = identity(region, node);
        let files = self.issue(&me, &self.authority);
        let mut config = LinkConfig::new(me, "127.0.0.1:0".parse().unwrap(), files);
        config.transport.rtt_default_ms = 5;
        config
    }

    pub(super) fn start(&self, region: &str, node: &str) -> TestNode {
        TestNode::start(self.config(region, node))
    }

    /// Starts two nodes in two regions that know each other and are connected.
    pub(super) async fn pair(&self) -> (TestNode, TestNode) {
        let (a, b) = (self.start("eu", "a"), self.start("us", "b"));
        meet(&a, &b);
        a.connected(&b).await;
        b.connected(&a).await;
        (a, b)
    }

    /// Starts two such nodes with simulated paths between them.
    pub(super) async fn distant_pair(&self, way: crate::delayed::Path) -> (TestNode, TestNode) {
        self.distant_pair_with(way, crate::Congestion::default()).await
    }

    pub(super) async fn distant_pair_with(
        &self,
        way: crate::delayed::Path,
        congestion: crate::Congestion,
    ) -> (TestNode, TestNode) {
        let start = |region, node, seed| {
            let mut config = self.config(region, node);
            config.paths = Some(Paths::new(seed));
            config.transport.congestion = congestion;
            TestNode::start(config)
        };
        let (a, b) = (start("eu", "a", 1), start("us", "b", 2));
        a.paths().set(b.address(), way);
        b.paths().set(a.address(), way);
        meet(&a, &b);
        a.connected(&b).await;
        b.connected(&a).await;
        (a, b)
    }
}

/// Makes both nodes peers of each other.
pub(super) fn meet(a: &TestNode, b: &TestNode) {
    a.link.set_peers(vec![b.as_peer()]);
    b.link.set_peers(vec![a.as_peer()]);
}

/// Handler of requests, as a function.
pub(super) type Reaction = dyn Fn(ForwardHead, ForwardBody) -> Deciding + Send + Sync;

/// Link with a handler that the test can change.
pub(super) struct TestNode {
    pub(super) link: Arc<Link>,
    pub(super) me: Identity,
    datagrams: Mutex<mpsc::Receiver<(Identity, Bytes)>>,
    reaction: Arc<std::sync::Mutex<Arc<Reaction>>>,
    paths: Option<Arc<Paths>>,
}

struct TestHandler {
    datagrams: mpsc::Sender<(Identity, Bytes)>,
    reaction: Arc<std::sync::Mutex<Arc<Reaction>>>,
}

impl Handler for TestHandler {
    fn datagram(&self, from: &Identity, datagram: Bytes) {
        self.datagrams.try_send((from.clone(), datagram)).unwrap();
    }

    fn forwarded(&self, from: &Identity, mut head: ForwardHead, body: ForwardBody) -> Deciding {
        head.headers.insert("x-from", from.to_string().parse().unwrap());
        let reaction = Arc::clone(&self.reaction.lock().unwrap());
        reaction(head, body)
    }
}

impl TestNode {
    pub(super) fn start(config: LinkConfig) -> Self {
        let (datagrams, receiver) = mpsc::channel(10_000);
        let reaction: Arc<Reaction> = Arc::new(|head, body| accept(echo(head, body)));
        let reaction = Arc::new(std::sync::Mutex::new(reaction));
        let handler = TestHandler { datagrams, reaction: Arc::clone(&reaction) };
        let (me, paths) = (config.me.clone(), config.paths.clone());
        let link = Arc::new(Link::start(config, Arc::new(handler)).unwrap());
        Self { link, me, datagrams: Mutex::new(receiver), reaction, paths }
    }

    /// Sets the handler of requests from now on.
    pub(super) fn react(
        &self,
        reaction: impl Fn(ForwardHead, ForwardBody) -> Deciding + Send + Sync + 'static,
    ) {
        *self.reaction.lock().unwrap() = Arc::new(reaction);
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.link.local_address().unwrap()
    }

    pub(super) fn paths(&self) -> &Paths {
        self.paths.as_ref().unwrap()
    }

    pub(super) fn node(&self) -> &NodeName {
        self.me.node()
    }

    pub(super) fn as_peer(&self) -> PeerConfig {
        PeerConfig {
            identity: self.me.clone(),
            address: self.address().to_string(),
            rtt_ms: Some(2),
        }
    }

    /// Waits for both connections to `peer`.
    pub(super) async fn connected(&self, peer: &Self) {
        until("both connections stand", || {
            self.link
                .peers()
                .iter()
                .any(|status| status.identity == peer.me && status.is_connected())
        })
        .await;
    }

    pub(super) async fn next_datagram(&self) -> (Identity, Bytes) {
        let mut datagrams = self.datagrams.lock().await;
        tokio::time::timeout(PATIENCE, datagrams.recv()).await.expect("a datagram").unwrap()
    }

    pub(super) async fn no_more_datagrams(&self) -> bool {
        self.datagrams.lock().await.try_recv().is_err()
    }

    pub(super) fn refusals(&self, refusal: crate::HandshakeError) -> u64 {
        let counts = self.link.status().refusals;
        counts.iter().find(|(reason, _)| *reason == refusal).unwrap().1
    }
}

/// Returns the decision to accept, with this work.
pub(super) fn accept(
    reply: impl Future<Output = Result<http::Response<BoxBody>, BoxError>> + Send + 'static,
) -> Deciding {
    Box::pin(async move { Ok::<Serving, Refused>(Box::pin(reply)) })
}

pub(super) fn refuse(refused: Refused) -> Deciding {
    Box::pin(async move { Err(refused) })
}

/// Makes a reply with the request's body and headers.
pub(super) fn echo(
    head: ForwardHead,
    body: ForwardBody,
) -> Ready<Result<http::Response<BoxBody>, BoxError>> {
    let mut reply = http::Response::new(boxed(body));
    *reply.headers_mut() = head.headers;
    ready(Ok(reply))
}

pub(super) fn boxed<B>(body: B) -> BoxBody
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let body: Pin<Box<_>> = Box::pin(body.map_err(Into::into));
    body
}

/// Returns bytes in which a missing, doubled or moved byte shows.
pub(super) fn pattern(bytes: usize) -> Bytes {
    let mut random = fastrand::Rng::with_seed(bytes as u64);
    let mut pattern = vec![0; bytes];
    random.fill(&mut pattern);
    pattern.into()
}
