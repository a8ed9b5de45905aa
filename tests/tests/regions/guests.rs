//! Several nodes in one region: its own clients come first, and guests get the rest.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, Method};
use spillway_link::{ForwardAnswer, ForwardHead, Link, RefusedReason};
use spillway_node::Node;
use spillway_tests::{
    Client, Cluster, OK, Page, Reply, SLOWDOWN, Scripted, Setup, chat, eventually, knows, spawn,
};
use tokio::task::JoinHandle;

use crate::deadlines::forward;
use crate::gate::Gate;
use crate::grpc_calls::with;
use crate::spilling::sees_running;

/// Capacity of the replica, and the part of it that guests don't get.
const PLACES: usize = 8;
const RESERVE: usize = 2;
/// A report, which is a look each 50 ms and a datagram each 100 ms at most, and a busy machine.
const REPORT: Duration = Duration::from_millis(150 + 150);

/// Two nodes that share a replica, in a region that is asked by another one.
struct World {
    cluster: Cluster,
    core: [Node; 2],
    gate: Gate,
    locals: Vec<JoinHandle<Reply>>,
}

impl World {
    async fn start() -> Self {
        let gate = Gate::start().await;
        let cluster = Cluster::new(&["edge", "core", "core"]).set("spill.reserve_percent = 25");
        let setup = || {
            let lines = format!("connections_max = {PLACES}");
            Setup::new().replica_with("a", &gate.url(), &lines)
        };
        let core = [cluster.start(1, setup()).await, cluster.start(2, setup()).await];
        let claim = |node: &Node| node.gateway().routing.view().replicas()[0].claim() as usize;
        eventually("both have their part", || core.iter().map(claim).sum::<usize>() == PLACES)
            .await;
        Self { cluster, core, gate, locals: Vec::new() }
    }

    /// So many requests of the region's own clients, to one of its nodes.
    fn ask(&mut self, node: usize, count: usize) {
        for _ in 0..count {
            self.locals.push(ask(self.core[node].addresses()[0], "local"));
        }
    }

    /// Waits until so many of each kind are at the replica, and both nodes know.
    async fn settles(&self, locals: usize, guests: usize) {
        let held = || (self.gate.held("local"), self.gate.held("guest"));
        let what = format!("{locals} locals and {guests} guests");
        eventually(&what, || held() == (locals, guests)).await;
        let running = (locals + guests) as f32;
        let knows = |node: &Node| own_running(node) == running;
        eventually("both nodes know", || self.core.iter().all(knows)).await;
    }

    /// Nothing changes although there is time for several reports.
    async fn stays(&self, locals: usize, guests: usize) {
        let since = Instant::now();
        while since.elapsed() < 2 * REPORT {
            let held = (self.gate.held("local"), self.gate.held("guest"));
            assert_eq!(held, (locals, guests), "after {:?}", since.elapsed());
            // wait: the pause between two looks
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Releases its own clients. Checks that all were served, and that no guest ever took a
    /// reserved place.
    async fn end(self) {
        self.gate.release("local", self.gate.held("local"));
        for reply in self.locals {
            let reply = reply.await.expect("a reply");
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
        for arrived in self.gate.arrived() {
            let most = if arrived.id == "guest" { PLACES - RESERVE } else { PLACES };
            assert!(arrived.busy <= most, "a {} as number {}", arrived.id, arrived.busy);
        }
        for node in self.core {
            node.stop().await;
        }
    }
}

fn ask(address: SocketAddr, kind: &'static str) -> JoinHandle<Reply> {
    spawn(Client::once(address, with(chat("tiny", ""), "x-request-id", kind)))
}

/// Requests at the replicas of its own region, as far as a node knows.
fn own_running(node: &Node) -> f32 {
    let regions = node.gateway().routing.regions();
    regions.own.values().map(|model| model.load.running).sum()
}

#[tokio::test]
async fn guests_of_a_region_with_two_nodes_get_what_its_own_clients_and_the_reserve_leave() {
    const LOCALS: usize = 3;
    const GUESTS: usize = PLACES - RESERVE - LOCALS;
    let mut world = World::start().await;
    let edge = world.cluster.start(0, Setup::new()).await;
    knows(&edge, "core").await;
    world.ask(0, 2);
    world.ask(1, 1);
    world.settles(LOCALS, 0).await;
    let mut guests = Vec::new();
    // One after the other: two that come within one report may both get the last place.
    for count in 1..=GUESTS {
        guests.push(ask(edge.addresses()[0], "guest"));
        world.settles(LOCALS, count).await;
        sees_running(&edge, "core", (LOCALS + count) as f32).await;
    }
    let waiting: Vec<_> = (0..4).map(|_| ask(edge.addresses()[0], "guest")).collect();
    eventually("the rest waits at home", || {
        edge.gateway().routing.waiting.count() == waiting.len()
    })
    .await;
    world.stays(LOCALS, GUESTS).await;
    let refused = [("result", "refused")];
    assert_eq!(Page::of(&edge).sum("spillway_spill_requests_total", &refused), 0.0);
    waiting.iter().for_each(JoinHandle::abort);
    eventually("these have left", || edge.gateway().routing.waiting.count() == 0).await;

    // Reserved places are free at once, at either node.
    let since = Instant::now();
    world.ask(0, 1);
    world.ask(1, 1);
    eventually("they are served", || world.gate.held("local") == LOCALS + RESERVE).await;
    assert!(since.elapsed() < SLOWDOWN * REPORT, "after {:?}", since.elapsed());
    assert_eq!(world.gate.held("guest"), GUESTS);
    // Its own clients leave, and guests take their places, up to the reserve.
    world.gate.release("local", LOCALS + RESERVE);
    world.settles(0, GUESTS).await;
    for count in GUESTS + 1..=PLACES - RESERVE {
        sees_running(&edge, "core", count as f32 - 1.0).await;
        guests.push(ask(edge.addresses()[0], "guest"));
        world.settles(0, count).await;
    }
    world.gate.release("guest", PLACES - RESERVE);
    for guest in guests {
        let guest = guest.await.expect("a reply");
        assert_eq!((guest.status, guest.header("x-spillway-region")), (200, Some("core")));
    }
    edge.stop().await;
    world.end().await;
}

/// Asks one node as another region does that knows nothing of its load.
async fn visit(link: &Link) -> ForwardAnswer {
    let mark = |head: &mut ForwardHead| {
        head.headers.insert("x-request-id", HeaderValue::from_static("guest"));
    };
    forward(link, mark).await.expect("an answer")
}

async fn is_refused(link: &Link) {
    match visit(link).await {
        ForwardAnswer::Refused(refused) => {
            assert_eq!(refused.reason, RefusedReason::Busy);
            assert!(refused.wait_ms.is_some_and(|wait_ms| wait_ms > 0), "{refused:?}");
        }
        ForwardAnswer::Reply(reply) => panic!("it was served: {}", reply.status()),
    }
}

/// Sends a guest's request until it is accepted, with retries at the promised times, because the
/// node may not know yet that a place has become free. The request is served once the gate opens.
fn is_taken(link: &Arc<Link>) -> JoinHandle<u16> {
    let link = Arc::clone(link);
    spawn(async move {
        loop {
            match visit(&link).await {
                ForwardAnswer::Reply(reply) => return reply.status().as_u16(),
                ForwardAnswer::Refused(refused) => {
                    let wait_ms = refused.wait_ms.expect("a time to come again");
                    // wait: the time that the node asked for
                    tokio::time::sleep(Duration::from_millis(wait_ms.into())).await;
                }
            }
        }
    })
}

#[tokio::test]
async fn when_its_own_clients_come_back_guests_are_refused_within_a_report() {
    let mut world = World::start().await;
    let link = Arc::new(world.cluster.bare_link(0, 1).await);
    let guests = [is_taken(&link), is_taken(&link)];
    world.settles(0, 2).await;
    // They come to the other node than the guests.
    world.ask(1, 4);
    eventually("they are served", || world.gate.held("local") == 4).await;
    let since = Instant::now();
    world.settles(4, 2).await;
    assert!(since.elapsed() < SLOWDOWN * REPORT, "it was known after {:?}", since.elapsed());
    is_refused(&link).await;

    // All of its own that there is room for, and two more: these come before any guest.
    world.ask(1, 1);
    world.settles(5, 2).await;
    world.ask(0, 1);
    world.settles(6, 2).await;
    world.ask(0, 2);
    eventually("two wait", || world.core[0].gateway().routing.waiting.count() == 2).await;
    is_refused(&link).await;
    world.gate.release("guest", 2);
    is_refused(&link).await;
    world.settles(8, 0).await;
    is_refused(&link).await;
    for guest in guests {
        assert_eq!(guest.await.expect("a reply"), 200);
    }
    // They leave one by one: guests are welcome again beside the reserve, not before.
    world.gate.release("local", RESERVE);
    world.settles(PLACES - RESERVE, 0).await;
    is_refused(&link).await;
    world.gate.release("local", 1);
    world.settles(PLACES - RESERVE - 1, 0).await;
    let guest = is_taken(&link);
    world.settles(PLACES - RESERVE - 1, 1).await;
    world.gate.release("guest", 1);
    assert_eq!(guest.await.expect("a reply"), 200);
    drop(link);
    world.end().await;
}

#[tokio::test]
async fn a_flood_of_guests_leaves_own_clients_their_places_and_all_nodes_have_one_capacity() {
    /// Limit of a replica of which nothing is known, and the guests that it takes before it has
    /// begun a reply.
    const GUESS: usize = 64;
    const FIRST: usize = 8;
    let gate = Gate::start().await;
    let cluster = Cluster::new(&["edge", "core"]);
    let lines = "models = [\"tiny\", \"big\"]";
    let core = cluster.start(1, Setup::new().replica_with("a", &gate.url(), lines)).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "core").await;
    let here = || core.gateway().routing.regions().own_whole.and_then(|whole| whole.capacity);
    let there =
        || edge.gateway().routing.regions().others[0].whole.and_then(|whole| whole.capacity);
    let guess = Some(GUESS as f32);
    eventually("both have one figure", || here() == guess && there() == guess).await;
    let of_model = |node: &Node| node.gateway().routing.regions().own["tiny"].load.capacity;
    assert_eq!(of_model(&core), guess, "requests are routed by it, too");

    let guests: Vec<_> = (0..2 * GUESS).map(|_| ask(edge.addresses()[0], "guest")).collect();
    eventually("the first guests came", || gate.held("guest") == FIRST).await;
    let locals: Vec<_> = (0..GUESS - FIRST).map(|_| ask(core.addresses()[0], "local")).collect();
    eventually("own clients have the rest", || gate.held("local") == GUESS - FIRST).await;
    assert_eq!(gate.held("guest"), FIRST, "no reply has begun");
    guests.iter().chain(&locals).for_each(JoinHandle::abort);
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn headers_of_a_guest_are_checked_as_if_its_client_had_come_here() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["edge", "core"]);
    let core = cluster.start(1, Setup::new().replica("a", replica.address)).await;
    let link = cluster.bare_link(0, 1).await;
    eventually("the replica is known", || core.gateway().routing.view().models().len() == 1).await;
    let ended = [
        ("connection", "x-named"),
        ("x-named", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("te", "gzip"),
        ("upgrade", "websocket"),
        ("expect", "100-continue"),
        ("trailer", "x-sum"),
        ("proxy-authorization", "Basic YQ=="),
        ("authorization", "Bearer sk-client"),
        ("x-api-key", "sw_a_1"),
        ("x-spillway-tenant", "other"),
        ("x-spillway-priority", "0"),
        ("x-tenant-id", "other"),
        ("x-original-url", "/admin"),
    ];
    let answer = forward(&link, |head| {
        head.tenant = Some("acme".into());
        head.headers.insert("x-kept", HeaderValue::from_static("1"));
        head.headers.insert("host", HeaderValue::from_static("evil.example"));
        head.headers.insert("content-length", HeaderValue::from_static("5"));
        head.headers.insert("transfer-encoding", HeaderValue::from_static("gzip, chunked"));
        for (name, value) in ended {
            head.headers.insert(name, HeaderValue::from_static(value));
        }
    });
    let ForwardAnswer::Reply(reply) = answer.await.expect("an answer") else { panic!("refused") };
    assert_eq!(reply.status(), 200);
    let seen = replica.requests.last();
    for (name, _) in ended {
        assert_eq!(seen.header(name), None, "{name}");
    }
    assert_eq!(seen.header("x-kept"), Some("1"));
    assert_eq!(seen.header("host"), Some(&*replica.address.to_string()));
    assert_ne!(seen.header("transfer-encoding"), Some("gzip, chunked"));
    assert!(seen.text().starts_with("{\"model\":\"tiny\""), "{}", seen.text());

    for (change, status) in [
        ((|head| head.method = Method::TRACE) as fn(&mut ForwardHead), 405),
        (|head| head.method = Method::CONNECT, 405),
        (
            |head| {
                for index in 0..30 {
                    let name = format!("x-{index}").parse::<HeaderName>().expect("a name");
                    let value = HeaderValue::try_from("a".repeat(4000)).expect("a value");
                    head.headers.insert(name, value);
                }
            },
            431,
        ),
    ] {
        match forward(&link, change).await {
            Ok(ForwardAnswer::Reply(reply)) => assert_eq!(reply.status().as_u16(), status),
            // The link has a limit of its own for heads.
            other => assert_eq!(status, 431, "{other:?}"),
        }
    }
    assert_eq!(replica.requests.count(), 1);
    drop(link);
    core.stop().await;
}
