//! Rejected clients that retry at the promised time.

use std::time::{Duration, Instant};

use spillway_node::Node;
use spillway_tests::{Reply, eventually, within};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::gate::Gate;
use crate::shedding::{CLAIMS, ask, check_shed, of_class, one_place, with};

/// Of one class and tenant, so that neither decides who comes first.
const CLASS: u8 = 2;
/// Between two requests that the replica ends: with four before it, a promise is more than a second away.
const PACE: Duration = Duration::from_millis(400);
/// For so long after its moment a promise that was not redeemed counts as a taken place.
const COUNTED: Duration = Duration::from_millis(1_500);

/// A node with one place and a full queue, which knows how fast it is served.
struct Busy {
    gate: Gate,
    node: Node,
    /// Admitted requests, kept so that none of them leaves.
    clients: Vec<JoinHandle<Reply>>,
}

impl Busy {
    /// Starts the node and its load: one request is served, and `queue_max` requests wait.
    async fn new(queue_max: usize) -> Self {
        let gate = Gate::start().await;
        let route = format!("[[route]]\nname = \"llm\"\nqueue_max = {queue_max}\n");
        // A busy machine promises times far in the future, so the requests being served must not
        // time out before.
        let setup = one_place(&gate).set("timeouts.first_byte_ms = 600000");
        // Nor does a replica that holds them count as stalled.
        let setup = setup.set("health.stall_ms = 600000");
        let node = setup.listener(CLAIMS).table(route).start().await;
        let mut busy = Self { gate, node, clients: Vec::new() };
        busy.come("others-0");
        eventually("it is served", || busy.gate.held("") == 1).await;
        for number in 0..queue_max {
            busy.enter(&format!("others-{}", number + 1)).await;
        }
        for round in 0..4 {
            // wait: the rate at which requests are served is measured over time
            sleep(PACE).await;
            busy.serve_next().await;
            busy.enter(&format!("others-{}", queue_max + round + 1)).await;
        }
        busy
    }

    /// Returns such a node, and the time at which its rejected client `kept` may retry. A busy
    /// machine has a varying pace and so promises times too far ahead to wait for. The node is then
    /// replaced and the attempt repeated.
    async fn with_promise(queue_max: usize) -> (Self, Instant) {
        let mut attempts = 0;
        loop {
            let busy = Self::new(queue_max).await;
            let due = busy.turned_away("kept").await;
            let ahead = due.saturating_duration_since(Instant::now());
            if ahead < Duration::from_secs(15) {
                return (busy, due);
            }
            attempts += 1;
            assert!(attempts < 10, "promises are far away: {ahead:?}");
        }
    }

    fn waiting(&self) -> usize {
        self.node.gateway().routing.waiting.count()
    }

    fn come(&mut self, id: &str) {
        self.clients.push(ask(&self.node, of_class(CLASS, id)));
    }

    /// Sends a request that is admitted to the queue.
    async fn enter(&mut self, id: &str) {
        let before = self.waiting();
        self.come(id);
        eventually("it waits", || self.waiting() == before + 1).await;
    }

    /// Sends a request that is rejected. Returns the time at which it may be retried.
    async fn turned_away(&self, id: &str) -> Instant {
        let reply = within("it is told at once", ask(&self.node, of_class(CLASS, id))).await;
        let seconds = check_shed(&reply.expect("a reply"), (503, "overloaded"), "queue_full");
        Instant::now() + Duration::from_secs(seconds)
    }

    /// The request at the replica ends, and the next one begins; its id.
    async fn serve_next(&self) -> String {
        let (before, waiting) = (self.gate.arrived().len(), self.waiting());
        self.gate.release("", 1);
        // The replica may have the request before the queue has counted it out.
        let is_next = || self.gate.arrived().len() > before && self.waiting() < waiting;
        eventually("the next is served", is_next).await;
        self.gate.arrived().pop().expect("it came").id
    }
}

async fn until(due: Instant) {
    // wait: for the time at which the client may retry
    tokio::time::sleep_until(due.into()).await;
}

#[tokio::test]
async fn who_comes_when_it_was_told_to_is_let_in_although_the_queue_is_full_and_not_before() {
    let (mut busy, due) = Busy::with_promise(3).await;
    let ahead = due.saturating_duration_since(Instant::now());
    assert!(ahead > Duration::from_millis(600), "{ahead:?} with four before it at that pace");
    busy.turned_away("kept").await;
    // Those that wait look again at times, and do not count while they do.
    eventually("it came too early, and is a newcomer", || busy.waiting() == 3).await;
    until(due).await;
    busy.turned_away("stranger").await;
    busy.enter("kept").await;
    assert_eq!(busy.waiting(), 4);
    busy.turned_away("stranger").await;
    while busy.waiting() > 0 {
        busy.serve_next().await;
    }
    busy.gate.release("", 1);
    let last = busy.clients.pop().expect("a client");
    assert_eq!(within("it is served", last).await.expect("a reply").status, 200);
}

/// Returns the order in which waiting requests are served if a client with a promised place comes
/// after two newcomers. `None` if a busy machine is too late for the promise to count, or takes as
/// long as a turn, so that the newcomers' turn is not later.
async fn turns_behind_newcomers() -> Option<Vec<String>> {
    let (mut busy, due) = Busy::with_promise(4).await;
    until(due).await;
    for _ in 0..3 {
        assert!(busy.serve_next().await.starts_with("others-"));
    }
    // Two places are free, and one of them is promised.
    assert_eq!(busy.waiting(), 1);
    let begin = Instant::now();
    busy.enter("newcomer-0").await;
    busy.enter("newcomer-1").await;
    if due.elapsed() > COUNTED / 2 {
        return None;
    }
    busy.turned_away("newcomer-2").await;
    busy.enter("kept").await;
    if begin.elapsed() > PACE / 4 {
        return None;
    }
    // The last of the others, the two newcomers and the one that was told to come.
    let mut turns = Vec::new();
    for _ in 0..4 {
        turns.push(busy.serve_next().await);
    }
    Some(turns)
}

#[tokio::test]
async fn who_comes_when_it_was_told_to_is_served_before_those_whose_turn_is_later() {
    let mut attempts = 0;
    let turns = loop {
        if let Some(turns) = turns_behind_newcomers().await {
            break turns;
        }
        attempts += 1;
        assert!(attempts < 40, "the machine is too busy");
    };
    let of = |id: &str| turns.iter().position(|turn| turn == id).expect("it had its turn");
    assert!(of("kept") < of("newcomer-0").min(of("newcomer-1")), "{turns:?}");
}

#[tokio::test]
async fn a_promise_is_for_the_same_request_only() {
    let (mut busy, due) = Busy::with_promise(3).await;
    until(due).await;
    busy.turned_away("another").await;
    busy.enter("kept").await;
    assert_eq!(busy.waiting(), 4);
}

#[tokio::test]
async fn who_would_wait_for_longer_than_it_says_is_told_at_once() {
    let busy = Busy::new(30).await;
    busy.serve_next().await;
    // There is room for one more after twenty-nine, of which one is served each 400 ms.
    eventually("twenty-nine are left", || busy.waiting() == 29).await;
    let request = with(of_class(CLASS, "hurried"), "x-stainless-read-timeout", "5");
    let begin = Instant::now();
    let reply = within("it is told", ask(&busy.node, request)).await.expect("a reply");
    check_shed(&reply, (503, "overloaded"), "waited");
    assert!(begin.elapsed() < Duration::from_millis(4_800), "{:?}", begin.elapsed());
}
