//! Limits of requests in flight at replicas for which no operator has set one: the rest waits in
//! the node.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use spillway_emulator::{Emulator, EmulatorConfig};
use spillway_node::Node;
use spillway_tests::{Client, Page, Setup, chat, eventually, get, post, spawn};
use tokio::task::JoinHandle;

use crate::gate::Gate;
use crate::reload::{File, reloads};

/// Requests that the small engine works on at once.
const SLOTS: u32 = 4;
/// Most requests that may wait in it for long. Its KV cache has room, so as many as run are worth their
/// wait there, and the limit falls only at twice as many.
const WAITING_MAX: u32 = 2 * SLOTS;
/// Clients that always have a request: many more than there are slots.
const CLIENTS: usize = 48;

/// An engine with few slots, of some twenty requests a second.
async fn small_engine() -> Emulator {
    let mut config = EmulatorConfig { time_scale: 0.5, ..EmulatorConfig::default() };
    config.engine.running_max = NonZeroU32::new(SLOTS).expect("some");
    Emulator::start(config).await.expect("an emulator")
}

/// Clients in a closed loop until they are stopped.
struct Crowd {
    is_over: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn of(node: &Node, count: usize) -> Self {
        let (is_over, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let address = node.addresses()[0];
        let client = |_| {
            let (is_over, served) = (Arc::clone(&is_over), Arc::clone(&served));
            spawn(async move {
                let mut client = Client::http1(address).await;
                while !is_over.load(Ordering::Relaxed) {
                    let fields = ",\"max_tokens\":8,\"ignore_eos\":true,\"stream\":true";
                    let reply = client.fetch(chat("tiny", fields)).await;
                    assert_eq!(reply.status, 200, "{}", reply.text());
                    served.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let clients = (0..count).map(client).collect();
        Self { is_over, served, clients }
    }

    fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    async fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await.expect("no client failed");
        }
    }
}

fn limit(node: &Node) -> f64 {
    Page::of(node).sum("spillway_replica_concurrency_limit", &[("replica", "r0")])
}

#[tokio::test]
async fn what_a_small_engine_has_no_slot_for_waits_in_the_node_and_it_is_no_less_busy() {
    let emulator = small_engine().await;
    let url = format!("http://{}", emulator.addresses()[0]);
    let queue = "[[route]]\nname = \"llm\"\npolicy = \"least_loaded\"\n";
    let setup = |more: &str| {
        let lines = format!("kind = \"vllm\"\n{more}");
        Setup::new().replica_with("r0", &url, &lines).table(queue)
    };
    let file = File::new(&setup(""));
    let node = file.start().await;
    assert_eq!(limit(&node), 64.0);
    let crowd = Crowd::of(&node, CLIENTS);
    let replica = emulator.replica(0);
    let found = f64::from(SLOTS + WAITING_MAX);
    let is_found = || limit(&node) <= found && replica.stats().waiting <= WAITING_MAX;
    eventually("the limit falls to what the engine has slots for", is_found).await;
    // wait: the figures of some seconds are compared, and no event ends them.
    let window = Duration::from_millis(1_500);
    let before = crowd.served();
    let (mut waiting, mut looks) = (0, 0);
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < window {
        // wait: between two looks.
        tokio::time::sleep(Duration::from_millis(20)).await;
        waiting += replica.stats().waiting;
        looks += 1;
    }
    let limited = crowd.served() - before;
    let mean = f64::from(waiting) / f64::from(looks);
    assert!(mean <= f64::from(WAITING_MAX), "{mean} wait in the engine");
    assert!(
        node.gateway().routing.waiting.count() >= CLIENTS / 2,
        "{}",
        node.gateway().routing.waiting.count()
    );

    // The same node, with the same connections, from now on without.
    file.replace(&setup("concurrency = \"unlimited\"").text());
    eventually("it is applied", || reloads(&node, "applied") >= 1.0).await;
    eventually("all wait in the engine", || replica.stats().waiting >= CLIENTS as u32 / 2).await;
    assert_eq!(limit(&node), 0.0, "there is none to be shown");
    let before = crowd.served();
    // wait: as long as before.
    tokio::time::sleep(window).await;
    let free = crowd.served() - before;
    assert!(3 * limited >= free, "{limited} of {free}");

    file.replace(&setup("").text());
    eventually("it is found again", || limit(&node) > 0.0 && is_found()).await;
    crowd.end().await;
    node.stop().await;
}

#[tokio::test]
async fn the_limit_is_shown_to_operators() {
    let gate = Gate::start().await;
    let setup = Setup::new().replica("r0", gate.address);
    let node = setup.replica_with("fixed", &gate.url(), "connections_max = 7").start().await;
    let admin = node.admin_address().expect("an address");
    let reply = Client::once(admin, get("/replicas")).await;
    let shown = |name: &str| {
        let members = reply.json();
        let all = members.as_array().expect("a list");
        let member = all.iter().find(|member| member["name"] == name).expect("a replica");
        member["concurrency_limit"].clone()
    };
    assert_eq!((shown("r0"), shown("fixed")), (64.into(), serde_json::Value::Null));
    let page = Page::of(&node);
    let of = |name| page.sum("spillway_replica_concurrency_limit", &[("replica", name)]);
    assert_eq!((of("r0"), of("fixed")), (64.0, 0.0));
    node.stop().await;
}

#[tokio::test]
async fn who_can_wait_does_and_who_can_t_is_served_all_the_same() {
    let gate = Gate::start().await;
    let raw = "[[route]]\nname = \"raw\"\npath_prefix = \"/raw\"\nprotocol = \"raw\"\n\
        [[route]]\nname = \"hasty\"\npath_prefix = \"/hasty\"\nprotocol = \"openai\"\nreplace_prefix = \"\"\nqueue_max = 0\n";
    let node = Setup::new().replica("r0", gate.address).table(raw).start().await;
    let address = node.addresses()[0];
    let ask = |request| spawn(Client::once(address, request));
    let held: Vec<_> = (0..72).map(|_| ask(chat("tiny", ""))).collect();
    eventually("the limit is reached", || {
        gate.held("") == 64 && node.gateway().routing.waiting.count() == 8
    })
    .await;
    // Its silence is no reason to give it more.
    // wait: some looks have to pass.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((gate.held(""), limit(&node)), (64, 64.0));
    let raw = ask(get("/raw/x"));
    eventually("a request without a model is there", || gate.held("") == 65).await;
    let mut hasty = chat("tiny", "");
    *hasty.uri_mut() = "/hasty/v1/chat/completions".parse().expect("a path");
    let hasty = ask(hasty);
    eventually("and one of a route without a queue", || gate.held("") == 66).await;
    held.iter().chain([&raw, &hasty]).for_each(JoinHandle::abort);
    node.stop().await;
}

#[tokio::test]
async fn no_learned_limit_keeps_a_request_from_half_of_its_prompt() {
    let gate = Gate::start().await;
    let node = Setup::new().replica("r0", gate.address).start().await;
    let address = node.addresses()[0];
    let known = "The quick brown fox jumps over the lazy dog. ".repeat(40);
    let ask = |more: &str| {
        let messages = json!([{"role": "user", "content": format!("{known}{more}")}]);
        let body = json!({"model": "tiny", "messages": messages}).to_string();
        spawn(Client::once(address, post("/v1/chat/completions", body)))
    };
    let mut held = vec![ask("")];
    eventually("the prompt is there", || gate.held("") == 1).await;
    held.extend((0..72).map(|n| ask(&format!("Question {n}"))));
    eventually("all of them are", || gate.held("") == 73).await;
    assert_eq!(limit(&node), 64.0, "the limit is still a guess");
    held.iter().for_each(JoinHandle::abort);
    node.stop().await;
}

#[tokio::test]
async fn a_limit_that_is_a_guess_moves_no_hashed_key() {
    let route =
        "[[route]]\nname = \"llm\"\npolicy = \"consistent_hash\"\nhash_by = \"header:x-session\"\n";
    let gates = [Gate::start().await, Gate::start().await];
    let setup = Setup::new().replica("r0", gates[0].address).replica("r1", gates[1].address);
    let node = setup.table(route).start().await;
    let address = node.addresses()[0];
    let ask = || {
        let mut request = chat("tiny", "");
        request.headers_mut().insert("x-session", "one".parse().expect("a header's value"));
        spawn(Client::once(address, request))
    };
    let held: Vec<_> = (0..72).map(|_| ask()).collect();
    let counts = || gates.each_ref().map(|gate| gate.held(""));
    eventually("all are there", || counts().iter().sum::<usize>() == 72).await;
    assert!(counts().contains(&72), "{:?}", counts());
    held.iter().for_each(JoinHandle::abort);
    node.stop().await;
}
