//! Deadlines of requests that another region serves.

use std::time::{Duration, Instant};

use spillway_emulator::{Emulator, Fault};
use spillway_link::{ForwardAnswer, ForwardError, ForwardHead, Link, PeerRoom, RefusedReason};
use spillway_node::Node;
use spillway_tests::{
    Client, ClientBody, Cluster, Reply, Setup, Stopwatch, chat, eventually, full, knows,
    slow_emulator, spawn,
};

use crate::gate::Gate;
use crate::grpc_calls::{check_refused, connect, emulated, frame, kserve, tokens, with};
use crate::spilling::sees_running;

const RTT: Duration = Duration::from_millis(80);
const DEADLINE: Duration = Duration::from_millis(400);
/// Time that the nodes and the paths may take.
const SLACK: Duration = Duration::from_millis(100);
const TIMEOUT: &str = "x-request-timeout-ms";
/// About 15 s of work for a replica at its real speed.
const LONG: i64 = 500;

/// A region whose replicas are at their real speed, and one far away that has none.
struct World {
    edge: Node,
    core: Node,
    replicas: Emulator,
    ended: u64,
}

impl World {
    async fn start(add: impl FnOnce(Setup, &Emulator) -> Setup) -> Self {
        let replicas = slow_emulator(1, 1.0).await;
        let cluster = Cluster::new(&["edge", "core"]);
        cluster.distance(0, 1, RTT);
        let core = cluster.start(1, add(Setup::new(), &replicas)).await;
        let edge = cluster.start(0, Setup::new()).await;
        knows(&edge, "core").await;
        Self { edge, core, replicas, ended: 0 }
    }

    /// Sends a request whose deadline passes while the replica works on it. It ends in time, and
    /// the replica stops working.
    async fn miss(&mut self, client: &mut Client, request: http::Request<ClientBody>) -> Reply {
        let (started, watch) = (Instant::now(), Stopwatch::start());
        let reply = client.fetch(request).await;
        let end = (reply.status, &reply.trailers);
        check_in_time(started, &watch, &format!("{end:?}"));
        self.ended += 1;
        let stats = || self.replicas.replica(0).stats();
        let ended = || stats().aborted + stats().rejected + stats().finished;
        eventually("the replica is told", || ended() == self.ended).await;
        check_in_time(started, &watch, "the replica was told");
        assert_eq!((stats().received, stats().running), (self.ended, 0));
        eventually("its place is free", || self.core.gateway().counters.guests() == 0).await;
        reply
    }

    async fn stop(self) {
        self.edge.stop().await;
        self.core.stop().await;
    }
}

/// Checks that something happened when the deadline had passed, and soon after.
fn check_in_time(started: Instant, watch: &Stopwatch, what: &str) {
    let (took, watched) = (started.elapsed(), watch.elapsed());
    assert!(took >= DEADLINE, "after {took:?}: {what}");
    assert!(watched < DEADLINE + RTT + SLACK, "after {watched:?}: {what}");
}

fn long_chat(fields: &str) -> http::Request<ClientBody> {
    let fields = format!(",\"max_tokens\":{LONG},\"ignore_eos\":true{fields}");
    with(chat("tiny", &fields), TIMEOUT, &DEADLINE.as_millis().to_string())
}

#[tokio::test]
async fn a_request_whose_time_passes_far_away_ends_in_its_own_words_and_frees_the_replica() {
    let mut world = World::start(Setup::emulated).await;
    let address = world.edge.addresses()[0];
    for mut client in [Client::http1(address).await, Client::http2(address).await] {
        // A short answer, which is predicted to be in time, from a replica that hangs.
        world.replicas.replica(0).set_fault(Fault::Hang).await.expect("a fault");
        let deadline = DEADLINE.as_millis().to_string();
        let short = with(chat("tiny", ",\"max_tokens\":2"), TIMEOUT, &deadline);
        let reply = world.miss(&mut client, short).await;
        world.replicas.replica(0).set_fault(Fault::None).await.expect("healed");
        assert_eq!((reply.status, reply.code()), (504, Some("deadline_exceeded")));
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(reply.json()["error"]["code"], "deadline_exceeded");

        let before = world.replicas.replica(0).stats();
        let reply = world.miss(&mut client, long_chat(",\"stream\":true")).await;
        let stats = world.replicas.replica(0).stats();
        assert_eq!(stats.started, before.started + 1, "it was at work");
        assert_eq!(stats.aborted, before.aborted + 1, "and was cancelled there");
        assert_eq!(reply.status, 200);
        let events = reply.events();
        let (last, tokens) = events.split_last().expect("events");
        assert!(tokens.len() > 2, "it had begun to reply: {events:?}");
        let error = last.strip_prefix("data: ").expect("a data event");
        let error: serde_json::Value = serde_json::from_str(error).expect("JSON");
        assert_eq!(error["error"]["code"], "deadline_exceeded");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_call_whose_time_passes_far_away_ends_with_its_own_status_and_frees_the_replica() {
    let mut world = World::start(emulated).await;
    let (mut client, mut hung) = (connect(&world.edge).await, 0);
    for (header, value) in [("grpc-timeout", "400m"), (TIMEOUT, "400")] {
        for (method, fault) in [("ModelInfer", Fault::Hang), ("ModelStreamInfer", Fault::None)] {
            world.replicas.replica(0).set_fault(fault).await.expect("a fault");
            let call = kserve(method, full(frame(&tokens("tiny", LONG))));
            let reply = world.miss(&mut client, with(call, header, value)).await;
            check_refused(&reply, "4", "deadline_exceeded");
            assert_eq!(reply.body.is_empty(), method == "ModelInfer", "{method}");
            hung += u64::from(method == "ModelInfer");
            // A replica at work gets the remaining time, and may end the call before it is
            // cancelled.
            assert!(world.replicas.replica(0).stats().aborted >= hung, "it was cancelled");
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn time_spent_at_home_is_taken_off_before_a_replica_far_away_is_told() {
    const TIME: Duration = Duration::from_secs(10);
    const WAITED: Duration = Duration::from_millis(500);
    let (here, there) = (Gate::start().await, Gate::start().await);
    let cluster = Cluster::new(&["home", "away"]).set("spill.reserve_percent = 0");
    let one_place =
        |gate: &Gate| Setup::new().replica_with("a", &gate.url(), "connections_max = 1");
    let home = cluster.start(0, one_place(&here)).await;
    let away = cluster.start(1, one_place(&there)).await;
    knows(&home, "away").await;
    let ask = |node: &Node| {
        let request = with(chat("tiny", ""), TIMEOUT, &TIME.as_millis().to_string());
        spawn(Client::once(node.addresses()[0], request))
    };
    let first = [ask(&away), ask(&home)];
    eventually("both are busy", || here.held("") == 1 && there.held("") == 1).await;
    sees_running(&home, "away", 1.0).await;
    let started = Instant::now();
    let moved = ask(&home);
    eventually("it waits", || home.gateway().routing.waiting.count() == 1).await;
    // wait: the time that is to be taken off
    tokio::time::sleep(WAITED.saturating_sub(started.elapsed())).await;
    there.release("", 1);
    eventually("it has moved", || there.arrived().len() == 2).await;
    let passed = started.elapsed();
    let told = there.arrived()[1].message.header(TIMEOUT).expect("told").to_owned();
    let told = Duration::from_millis(told.parse().expect("milliseconds"));
    assert!(told < TIME - WAITED, "{told:?} left after {passed:?}");
    assert!(told > TIME - passed - SLACK, "{told:?} left after {passed:?}");
    here.release("", 1);
    there.release("", 1);
    for reply in first.into_iter().chain([moved]) {
        assert_eq!(reply.await.expect("a reply").status, 200);
    }
    home.stop().await;
    away.stop().await;
}

/// Forwards a request to the node `n1`, with a head that the caller can change.
pub(crate) async fn forward(
    link: &Link,
    change: impl FnOnce(&mut ForwardHead),
) -> Result<ForwardAnswer, ForwardError> {
    let (parts, body) = chat("tiny", "").into_parts();
    let mut head = ForwardHead::new(parts.method, parts.uri);
    head.headers = parts.headers;
    head.model = Some("tiny".into());
    change(&mut head);
    link.forward(&"n1".into(), head, body, PeerRoom::Unknown).await
}

fn refusal(answer: Result<ForwardAnswer, ForwardError>) -> RefusedReason {
    match answer.expect("an answer") {
        ForwardAnswer::Refused(refused) => refused.reason,
        ForwardAnswer::Reply(reply) => panic!("it was served: {}", reply.status()),
    }
}

#[tokio::test]
async fn a_node_refuses_what_was_passed_on_before_whatever_room_it_has() {
    let gate = Gate::start().await;
    let cluster = Cluster::new(&["edge", "core"]);
    let core = cluster.start(1, Setup::new().replica("a", gate.address)).await;
    let link = cluster.bare_link(0, 1).await;
    eventually("the replica is known", || core.gateway().routing.view().models().len() == 1).await;

    for hop in [2, 3, u8::MAX] {
        let far = forward(&link, |head| head.hop = hop).await;
        assert_eq!(refusal(far), RefusedReason::Hops);
    }
    assert!(gate.arrived().is_empty(), "none of these reached a replica");

    let once = forward(&link, |head| head.hop = 1);
    let (answer, ()) = tokio::join!(once, async {
        eventually("it is at the replica", || gate.held("") == 1).await;
        gate.release("", 1);
    });
    let Ok(ForwardAnswer::Reply(reply)) = answer else { panic!("it was not taken") };
    assert_eq!(reply.status(), 200);
    drop(reply);
    drop(link);
    core.stop().await;
}

#[tokio::test]
async fn a_replica_is_told_in_time_by_its_own_node_when_the_first_can_not_say_so() {
    let gate = Gate::start().await;
    let cluster = Cluster::new(&["edge", "core"]);
    cluster.distance(0, 1, RTT);
    let core = cluster.start(1, Setup::new().replica("a", gate.address)).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "core").await;
    let (started, watch) = (Instant::now(), Stopwatch::start());
    let request = with(chat("tiny", ""), TIMEOUT, &DEADLINE.as_millis().to_string());
    let reply = spawn(Client::once(edge.addresses()[0], request));
    eventually("it is at the replica", || gate.held("") == 1).await;
    cluster.cut(0, 1, true);
    let reply = reply.await.expect("a reply");
    assert_eq!((reply.status, reply.code()), (504, Some("deadline_exceeded")));
    eventually("the replica is told", || gate.held("") == 0).await;
    check_in_time(started, &watch, "the replica was told");
    // Or the farewell has to wait.
    cluster.cut(0, 1, false);
    edge.stop().await;
    core.stop().await;
}
