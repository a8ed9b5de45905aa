//! New certificates, and finally a new CA, under load: no request is disturbed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use http_body_util::BodyExt;
use spillway_node::Node;
use spillway_tests::{
    Client, Cluster, OK, Page, Reply, Scripted, Setup, chat, eventually, is_open, knows, spawn,
    within,
};
use tokio::task::JoinHandle;

use crate::grpc_calls::with;

const REGIONS: [&str; 3] = ["one", "two", "three"];
const RTT: Duration = Duration::from_millis(20);
const DAY_S: f64 = 86_400.0;
/// Between two requests of the load, and two events of the stream.
const PERIOD: Duration = Duration::from_millis(20);
/// A control connection that receives nothing for 3 s is closed.
const CUT: Duration = Duration::from_millis(3_500);

/// Trusted CAs and certificates of the nodes at one step of the change to another CA.
struct Step<'a> {
    trusted: &'a [&'a spillway_link::certs::Authority],
    issuer: &'a spillway_link::certs::Authority,
    /// Validity in days, which distinguishes the certificates of each step.
    days: u32,
}

impl Step<'_> {
    /// Gives new files to one node after the other, and waits until all use them.
    async fn take(&self, cluster: &Cluster, nodes: &[Node]) {
        for (index, node) in nodes.iter().enumerate() {
            assert_ne!(days_left(node), self.days, "it can't be told from the one before");
            // In this order, so that a node that uses the new certificate also uses the new trust.
            cluster.trust(index, self.trusted);
            cluster.issue(index, self.issuer, self.days);
        }
        for node in nodes {
            eventually("it is in use", || days_left(node) == self.days).await;
        }
    }
}

/// Whole days after which other nodes would refuse the node's certificate, by its metrics.
fn days_left(node: &Node) -> u32 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time");
    let expires_s = Page::of(node).sum("spillway_certificate_expires_seconds", &[]);
    ((expires_s - now.as_secs_f64()) / DAY_S).round() as u32
}

fn refused(nodes: &[Node], reason: &[(&str, &str)]) -> f64 {
    let of = |node: &Node| Page::of(node).sum("spillway_link_refusals_total", reason);
    nodes.iter().map(of).sum()
}

/// Sends requests one after the other until it is stopped; each is served by another region.
struct Load {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Vec<Reply>>,
}

impl Load {
    fn start(address: SocketAddr) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let is_over = Arc::clone(&stop);
        let task = spawn(async move {
            let mut replies = Vec::new();
            while !is_over.load(Ordering::SeqCst) {
                // A request in transit when a path is cut may be sent again.
                let request = with(chat("tiny", ""), "idempotency-key", "1");
                replies.push(Client::once(address, request).await);
                // wait: the pace of the load
                tokio::time::sleep(PERIOD).await;
            }
            replies
        });
        Self { stop, task }
    }

    async fn end(self) -> Vec<Reply> {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.expect("the load")
    }
}

/// A stream that goes on until it is stopped, with counts of the events that were sent and
/// received.
struct Stream {
    stop: Arc<AtomicBool>,
    sent: JoinHandle<usize>,
    received: JoinHandle<usize>,
}

impl Stream {
    /// Starts a stream through `address` from a replica that gets no other requests during that
    /// time.
    async fn start(address: SocketAddr, replica: Scripted) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let is_over = Arc::clone(&stop);
        let sent = spawn(async move {
            let (mut wire, _) = replica.request().await;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            wire.send(head).await;
            let mut count = 0;
            while !is_over.load(Ordering::SeqCst) {
                wire.send(format!("data: {count}\n\n")).await;
                count += 1;
                // wait: the pace of the stream
                tokio::time::sleep(PERIOD).await;
            }
            wire.send("data: [DONE]\n\n").await;
            count
        });
        let mut client = Client::http1(address).await;
        let request = chat("long", ",\"stream\":true");
        let response = client.send(request).await.expect("a reply");
        assert_eq!(response.headers()["x-spillway-region"], "two");
        let received = spawn(async move {
            let (_client, mut body, mut text) = (client, response.into_body(), String::new());
            while let Some(frame) = within("an event", body.frame()).await {
                let data = frame.expect("it goes on").into_data().expect("data");
                text.push_str(std::str::from_utf8(&data).expect("text"));
            }
            let events: Vec<_> = text.split_terminator("\n\n").collect();
            let (last, events) = events.split_last().expect("events");
            assert_eq!(*last, "data: [DONE]");
            for (number, event) in events.iter().enumerate() {
                assert_eq!(*event, format!("data: {number}"));
            }
            events.len()
        });
        Self { stop, sent, received }
    }

    async fn end(self) -> [usize; 2] {
        self.stop.store(true, Ordering::SeqCst);
        [self.sent.await.expect("a stream"), self.received.await.expect("a whole stream")]
    }
}

/// Starts one node after the other; the first has no replicas, the second one more than the third.
async fn start(cluster: &Cluster, [short, long]: [SocketAddr; 2]) -> Vec<Node> {
    let with_short = || Setup::new().replica("a", short);
    let url = format!("http://{long}");
    let both = with_short().replica_with("b", &url, "models = [\"long\"]");
    let mut nodes = Vec::new();
    for (index, setup) in [Setup::new(), both, with_short()].into_iter().enumerate() {
        nodes.push(cluster.start(index, setup).await);
    }
    for other in ["two", "three"] {
        knows(&nodes[0], other).await;
    }
    eventually("both models are known", || {
        let regions = nodes[0].gateway().routing.regions();
        regions.others.iter().any(|other| other.models.keys().any(|model| model.as_str() == "long"))
    })
    .await;
    nodes
}

/// Stops the third node and starts it again, so that it connects with the present content of its
/// files.
async fn restart(cluster: &Cluster, nodes: &mut Vec<Node>, replica: SocketAddr) {
    nodes.pop().expect("a third node").stop().await;
    nodes.push(cluster.start(2, Setup::new().replica("a", replica)).await);
    knows(&nodes[0], "three").await;
}

#[tokio::test]
async fn certificates_and_the_authority_change_under_load_and_nobody_notices() {
    let (short, long) = (Scripted::start().await.serve(OK), Scripted::start().await);
    let cluster = Cluster::new(&REGIONS).set("cluster.silence_ms = 900");
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        cluster.distance(one, other, RTT);
    }
    let mut nodes = start(&cluster, [short.address, long.address]).await;
    let stream = Stream::start(nodes[0].addresses()[0], long).await;
    let load = Load::start(nodes[0].addresses()[0]);

    let (old, new) = (cluster.authority(), Cluster::authority_for(30));
    let steps = [
        Step { trusted: &[old, &new], issuer: old, days: 5 },
        Step { trusted: &[old, &new], issuer: &new, days: 6 },
        Step { trusted: &[&new], issuer: &new, days: 7 },
    ];
    for step in steps {
        step.take(&cluster, &nodes).await;
        restart(&cluster, &mut nodes, short.address).await;
    }
    let [sent, received] = stream.end().await;
    assert_eq!(sent, received);
    // Nodes that were never restarted reconnect as well.
    for is_cut in [true, false] {
        cluster.cut(0, 1, is_cut);
        cluster.cut(1, 0, is_cut);
        if is_cut {
            // wait: until the old control connection is gone
            tokio::time::sleep(CUT).await;
            eventually("it is out of reach", || !is_open(&nodes[0], "two")).await;
        }
    }
    knows(&nodes[0], "two").await;
    assert_eq!(refused(&nodes, &[]), 0.0, "nobody was ever refused");
    let replies = load.end().await;
    assert!(replies.len() > 20, "{} requests", replies.len());
    for reply in &replies {
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    // A node that still uses a certificate of the old CA is admitted nowhere.
    nodes.pop().expect("a third node").stop().await;
    cluster.trust(2, &[old, &new]);
    cluster.issue(2, old, 5);
    let late = cluster.start(2, Setup::new()).await;
    let reason = [("reason", "wrong_authority")];
    eventually("it is refused", || refused(&nodes, &reason) >= 2.0).await;
    assert!(!is_open(&late, "two"));
    for node in nodes.into_iter().chain([late]) {
        node.stop().await;
    }
}
