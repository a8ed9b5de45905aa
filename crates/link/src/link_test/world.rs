//! Nodes on loopback, and waiting for what they do.

use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::BodyExt;
use spillway_types::NodeName;
use tempfile::TempDir;
use tokio::sync::{Mutex, mpsc};

use crate::certs::{Authority, IfExists, NodeFiles, Validity};
use crate::delayed::Paths;
use crate::{
    BoxBody, BoxError, CertificateFiles, Config, Deciding, ForwardBody, ForwardHead, Handler,
    Identity, Link, PeerConfig, Refused, Serving,
};

/// How long a test waits for what has to happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

pub(super) const CLUSTER: &str = "test";

/// A CA and the folder with all its files.
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

    /// Issues a certificate for `identity`, wherever that leads.
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
        CertificateFiles {
            authority: self.path().join("ca.pem"),
            certificate: files.certificate,
            key: files.key,
        }
    }

    pub(super) fn config(&self, region: &str, node: &str) -> Config {
        let me = identity(region, node);
        let files = self.issue(&me, &self.authority);
        let mut config = Config::new(me, "127.0.0.1:0".parse().unwrap(), files);
        config.transport.rtt_default_ms = 5;
        config
    }

    pub(super) fn start(&self, region: &str, node: &str) -> TestNode {
        TestNode::start(self.config(region, node))
    }

    /// Two nodes in two regions that know each other and are connected.
    pub(super) async fn pair(&self) -> (TestNode, TestNode) {
        let (a, b) = (self.start("eu", "a"), self.start("us", "b"));
        meet(&a, &b);
        a.connected(&b).await;
        b.connected(&a).await;
        (a, b)
    }

    /// The same with ways that can be changed.
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

/// Tells both nodes of each other.
pub(super) fn meet(a: &TestNode, b: &TestNode) {
    a.link.set_peers(vec![b.as_peer()]);
    b.link.set_peers(vec![a.as_peer()]);
}

/// What a node does with requests.
pub(super) type Reaction = dyn Fn(ForwardHead, ForwardBody) -> Deciding + Send + Sync;

/// A link with a handler that can be told what to do.
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
    pub(super) fn start(config: Config) -> Self {
        let (datagrams, receiver) = mpsc::channel(10_000);
        let reaction: Arc<Reaction> = Arc::new(|head, body| accept(echo(head, body)));
        let reaction = Arc::new(std::sync::Mutex::new(reaction));
        let handler = TestHandler { datagrams, reaction: Arc::clone(&reaction) };
        let (me, paths) = (config.me.clone(), config.paths.clone());
        let link = Arc::new(Link::start(config, Arc::new(handler)).unwrap());
        Self { link, me, datagrams: Mutex::new(receiver), reaction, paths }
    }

    /// From now on requests are treated so.
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

    /// Waits until both connections to `peer` stand.
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

    pub(super) fn refusals(&self, refusal: crate::Refusal) -> u64 {
        let counts = self.link.status().refusals;
        counts.iter().find(|(reason, _)| *reason == refusal).unwrap().1
    }
}

/// Waits until `holds`, looking often.
pub(super) async fn until(what: &str, holds: impl FnMut() -> bool) {
    until_within(PATIENCE, what, holds).await;
}

pub(super) async fn until_within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let looking = async {
        while !holds() {
            // wait: what is looked at has no event of its own.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(limit, looking).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A positive decision.
pub(super) fn accept(
    reply: impl Future<Output = Result<http::Response<BoxBody>, BoxError>> + Send + 'static,
) -> Deciding {
    Box::pin(async move { Ok::<Serving, Refused>(Box::pin(reply)) })
}

pub(super) fn refuse(refused: Refused) -> Deciding {
    Box::pin(async move { Err(refused) })
}

/// A reply with the request's body and headers.
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

/// Bytes that are wrong if any of them is missing, doubled or moved.
pub(super) fn pattern(bytes: usize) -> Bytes {
    let mut random = fastrand::Rng::with_seed(bytes as u64);
    let mut pattern = vec![0; bytes];
    random.fill(&mut pattern);
    pattern.into()
}
