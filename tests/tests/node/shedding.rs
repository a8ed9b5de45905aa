//! Rejected requests: which ones, why, and when to retry.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use spillway_emulator::Emulator;
use spillway_node::Node;
use spillway_rate_limit::{Holding, LimitKind, LimitTerms, RequestWindow, Scope, Units};
use spillway_tests::{
    Client, ClientBody, OK, PATIENCE, Page, RAW_ROUTE, Reply, SLOWDOWN, Scripted, Setup, chat,
    eventually, full, message, slow_emulator, spawn, within,
};
use spillway_types::ReplicaSlot;
use tokio::task::JoinHandle;

use crate::gate::Gate;
use crate::health::stands_at_last;
use crate::reload::{File, reloads};

/// Clients of this listener set their own tenant and priority.
pub(crate) const CLAIMS: &str = "auth = \"headers\"\ntrusted_proxies = [\"127.0.0.0/8\"]";

type Request = http::Request<ClientBody>;

pub(crate) fn with(mut request: Request, name: &'static str, value: &str) -> Request {
    request.headers_mut().insert(name, value.parse().expect("a value"));
    request
}

/// Of a tenant of this class, with a body of its own.
pub(crate) fn of_class(priority: u8, id: &str) -> Request {
    let request = with(chat("tiny", &format!(",\"user\":\"{id}\"")), "x-request-id", id);
    let request = with(request, "x-spillway-tenant", "acme");
    with(request, "x-spillway-priority", &priority.to_string())
}

pub(crate) fn ask(node: &Node, request: Request) -> JoinHandle<Reply> {
    spawn(Client::once(node.addresses()[0], request))
}

fn sheds(node: &Node, reason: &str) -> f64 {
    Page::of(node).sum("spillway_sheds_total", &[("reason", reason)])
}

#[track_caller]
pub(crate) fn check_shed(reply: &Reply, (status, code): (u16, &str), reason: &str) -> u64 {
    assert_eq!((reply.status, reply.code()), (status, Some(code)), "{}", reply.text());
    assert_eq!(reply.header("x-spillway-shed-reason"), Some(reason), "{}", reply.text());
    let retry_after = reply.header("retry-after").expect("a time to come again");
    let seconds = retry_after.parse().expect("whole seconds");
    assert!((1..=60).contains(&seconds), "{seconds}");
    seconds
}

pub(crate) fn one_place(gate: &Gate) -> Setup {
    // A busy machine may answer no check in time.
    Setup::new().replica_with("a", &gate.url(), "connections_max = 1\nhealth.check = \"off\"")
}

/// A node that has learned how slow its only replica is, and a prompt that it reads for a while.
async fn slow(lines: &str) -> (Node, Emulator, String) {
    let emulator = slow_emulator(1, 0.2).await;
    let route = format!("[[route]]\nname = \"llm\"\n{lines}");
    let node = Setup::new().table(route).emulated(&emulator).start().await;
    for number in 0..8 {
        let fields = format!(",\"stream\":true,\"max_tokens\":1,\"seed\":{number}");
        assert_eq!(ask(&node, chat("tiny", &fields)).await.expect("a reply").status, 200);
    }
    let trust = || node.gateway().routing.view().replica_loads().speed(ReplicaSlot(0)).trust;
    eventually("it has learned how fast the replica is", || trust() > 0.1).await;
    (node, emulator, "Once upon a time there was a gateway. ".repeat(2_500))
}

fn long(prompt: &str) -> Request {
    let body = format!(
        "{{\"model\":\"tiny\",\"max_tokens\":1,\"messages\":[{{\"role\":\"user\",\
         \"content\":\"{prompt}\"}}]}}"
    );
    message(Method::POST, "/v1/chat/completions", "application/json", full(body))
}

fn received(emulator: &Emulator) -> u64 {
    emulator.replicas().iter().map(|replica| replica.stats().received).sum()
}

#[tokio::test]
async fn a_free_replica_that_would_answer_after_the_deadline_is_not_asked() {
    let (node, emulator, prompt) = slow("").await;
    let before = received(&emulator);
    let request = with(long(&prompt), "x-request-timeout-ms", "100");
    let reply = ask(&node, request).await.expect("a reply");
    assert_eq!((reply.status, reply.code()), (504, Some("deadline_exceeded")), "{}", reply.text());
    assert_eq!(reply.header("x-spillway-shed-reason"), Some("late"));
    // A retry would be as late.
    assert_eq!(reply.header("retry-after"), None);
    assert_eq!((received(&emulator), sheds(&node, "late")), (before, 1.0));
    // With time enough it is served.
    let request = with(long(&prompt), "x-request-timeout-ms", "60000");
    assert_eq!(ask(&node, request).await.expect("a reply").status, 200);
    node.stop().await;
}

#[tokio::test]
async fn a_free_replica_that_would_miss_the_objective_is_not_asked() {
    let (node, emulator, prompt) = slow("slo_ms = 150").await;
    let before = received(&emulator);
    let reply = ask(&node, long(&prompt)).await.expect("a reply");
    check_shed(&reply, (503, "overloaded"), "slo");
    assert_eq!((received(&emulator), sheds(&node, "slo")), (before, 1.0));
    assert_eq!(ask(&node, chat("tiny", "")).await.expect("a reply").status, 200);
    // Now and then one is tried, or a prediction that is wrong would stay so for ever.
    let started = Instant::now();
    while ask(&node, long(&prompt)).await.expect("a reply").status != 200 {
        assert!(started.elapsed() < PATIENCE, "it is never tried");
        // wait: the pause of a client that retries.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    node.stop().await;
}

#[tokio::test]
async fn a_guess_that_nothing_was_learned_for_refuses_nobody() {
    let emulator = slow_emulator(1, 0.01).await;
    let route = "[[route]]\nname = \"llm\"\nslo_ms = 150";
    let node = Setup::new().table(route).emulated(&emulator).start().await;
    let prompt = "Once upon a time there was a gateway. ".repeat(2_500);
    let reply = ask(&node, long(&prompt)).await.expect("a reply");
    assert_eq!(reply.status, 200, "{}", reply.text());
    node.stop().await;
}

#[tokio::test]
async fn a_full_queue_turns_away_and_says_so_everywhere() {
    let gate = Gate::start().await;
    let route = "[[route]]\nname = \"llm\"\nqueue_max = 1\n";
    let node = one_place(&gate).table(route).start().await;
    let served = ask(&node, chat("tiny", ""));
    eventually("it is served", || gate.held("") == 1).await;
    let waits = ask(&node, chat("tiny", ""));
    eventually("the next waits", || node.gateway().routing.waiting.count() == 1).await;
    let reply = ask(&node, chat("tiny", "")).await.expect("a reply");
    check_shed(&reply, (503, "overloaded"), "queue_full");
    assert_eq!(reply.json()["error"]["type"], "overloaded_error");
    let labels = [("route", "llm"), ("model", "tiny"), ("reason", "queue_full"), ("priority", "0")];
    let counted = || Page::of(&node).sum("spillway_sheds_total", &labels);
    eventually("it is counted", || counted() == 1.0).await;
    gate.release("", 1);
    assert_eq!(served.await.expect("a reply").status, 200);
    eventually("the one that waited is served", || gate.held("") == 1).await;
    gate.release("", 1);
    assert_eq!(waits.await.expect("a reply").status, 200);
}

#[tokio::test]
async fn a_more_urgent_request_takes_the_place_of_one_that_waits() {
    let gate = Gate::start().await;
    let setup = one_place(&gate).listener(CLAIMS).set("spill.queue_max = 1");
    let node = setup.start().await;
    let served = ask(&node, of_class(3, "served"));
    eventually("it is served", || gate.held("served") == 1).await;
    let victim = ask(&node, of_class(3, "victim"));
    eventually("the next waits", || node.gateway().routing.waiting.count() == 1).await;
    let urgent = ask(&node, of_class(0, "urgent"));
    let reply = within("the victim is told at once", victim).await.expect("a reply");
    check_shed(&reply, (503, "overloaded"), "pushed_out");
    assert_eq!(node.gateway().routing.waiting.count(), 1);
    gate.release("served", 1);
    assert_eq!(served.await.expect("a reply").status, 200);
    eventually("the urgent one is served", || gate.held("urgent") == 1).await;
    gate.release("urgent", 1);
    assert_eq!(urgent.await.expect("a reply").status, 200);
    eventually("it is counted", || sheds(&node, "pushed_out") == 1.0).await;
}

#[tokio::test]
async fn who_has_waited_as_long_as_its_route_allows_is_sent_away() {
    let gate = Gate::start().await;
    let route = "[[route]]\nname = \"llm\"\nqueue_ms = 300\n";
    let node = one_place(&gate).table(route).start().await;
    let _served = ask(&node, chat("tiny", ""));
    eventually("it is served", || gate.held("") == 1).await;
    let started = Instant::now();
    let reply = ask(&node, chat("tiny", "")).await.expect("a reply");
    check_shed(&reply, (503, "overloaded"), "waited");
    let taken = started.elapsed();
    assert!(
        (Duration::from_millis(290)..SLOWDOWN * Duration::from_millis(900)).contains(&taken),
        "{taken:?}"
    );
}

#[tokio::test]
async fn who_can_no_longer_make_its_objective_does_not_wait_on() {
    let gate = Gate::start().await;
    let route = "[[route]]\nname = \"llm\"\nslo_ms = 400\n";
    let node = one_place(&gate).table(route).start().await;
    let _served = ask(&node, chat("tiny", ""));
    eventually("it is served", || gate.held("") == 1).await;
    let started = Instant::now();
    let reply = ask(&node, chat("tiny", "")).await.expect("a reply");
    check_shed(&reply, (503, "overloaded"), "slo");
    assert!(started.elapsed() < SLOWDOWN * Duration::from_millis(900), "{:?}", started.elapsed());
    assert_eq!(node.gateway().routing.waiting.count(), 0);
}

#[tokio::test]
async fn a_reload_changes_how_many_may_wait() {
    let gate = Gate::start().await;
    let route = |max: u32| format!("[[route]]\nname = \"llm\"\nqueue_max = {max}\n");
    let file = File::new(&one_place(&gate).table(route(1)));
    let node = file.start().await;
    let _served = ask(&node, chat("tiny", ""));
    eventually("it is served", || gate.held("") == 1).await;
    let _waits = ask(&node, chat("tiny", ""));
    eventually("one waits", || node.gateway().routing.waiting.count() == 1).await;
    let reply = ask(&node, chat("tiny", "")).await.expect("a reply");
    check_shed(&reply, (503, "overloaded"), "queue_full");
    // A place is reserved for the client that got a retry time.
    file.replace(&one_place(&gate).table(route(4)).text());
    eventually("it is applied", || reloads(&node, "applied") == 1.0).await;
    let _more = [ask(&node, chat("tiny", "")), ask(&node, chat("tiny", ""))];
    eventually("three wait", || node.gateway().routing.waiting.count() == 3).await;
}

#[tokio::test]
async fn bodies_beyond_the_memory_for_them_are_shed_before_they_are_read() {
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new().set("limits.body_bytes_total_max = 1000").table(RAW_ROUTE);
    let node = setup.replica("a", replica.address).start().await;
    let body = full(Bytes::from(vec![b'x'; 2_000]));
    let request = message(Method::POST, "/raw/x", "application/json", body);
    let reply = Client::once(node.addresses()[0], request).await;
    check_shed(&reply, (503, "overloaded"), "memory");
    assert_eq!(replica.requests.count(), 0);
    eventually("it is counted", || sheds(&node, "memory") == 1.0).await;
}

/// A quarter of the memory for bodies, beside the body in question.
#[tokio::test]
async fn one_client_can_t_fill_the_memory_for_bodies() {
    let gate = Gate::start().await;
    let setup = Setup::new().set("limits.body_bytes_total_max = 40000").table(RAW_ROUTE);
    let setup = setup.replica("a", gate.address).listener("trusted_proxies = [\"127.0.0.0/8\"]");
    let node = setup.start().await;
    let of = |client: &str, id: &str| {
        let body = full(Bytes::from(vec![b'x'; 6_000]));
        let request = message(Method::POST, "/raw/x", "application/json", body);
        let request = with(request, "x-request-id", id);
        if client.is_empty() { request } else { with(request, "x-forwarded-for", client) }
    };
    let mut served = Vec::new();
    for number in 1..=2 {
        served.push(ask(&node, of("192.0.2.1", "greedy")));
        eventually("its body is held", || gate.held("greedy") == number).await;
    }
    let reply = within("it is told at once", ask(&node, of("192.0.2.1", "more"))).await;
    check_shed(&reply.expect("a reply"), (429, "rate_limited"), "memory");
    assert_eq!(gate.held("more"), 0);
    // Another client is served. A proxy that names no client counts as many clients.
    served.push(ask(&node, of("192.0.2.2", "modest")));
    eventually("it is served", || gate.held("modest") == 1).await;
    for number in 1..=3 {
        served.push(ask(&node, of("", "unnamed")));
        eventually("it is served", || gate.held("unnamed") == number).await;
    }
    // And who has its replies has its room again.
    gate.release("greedy", 2);
    for client in served.drain(..2) {
        assert_eq!(client.await.expect("a reply").status, 200);
    }
    served.push(ask(&node, of("192.0.2.1", "again")));
    eventually("it is served", || gate.held("again") == 1).await;
}

#[tokio::test]
async fn who_has_used_up_its_limit_gets_429_and_others_are_served() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().replica("a", replica.address).listener(CLAIMS).start().await;
    let scope = Scope::Tenant("acme".into());
    let whole = LimitKind::ALL.map(|kind| (kind == LimitKind::Concurrency).then_some(1));
    let quotas = &node.gateway().clients.quotas;
    quotas.set_limits(&[LimitTerms {
        scope: scope.clone(),
        whole,
        requests: RequestWindow::Second,
    }]);
    let none = Holding { is_share: true, ..Holding::default() };
    quotas.hold(&scope, &none);
    let reply = ask(&node, of_class(2, "a")).await.expect("a reply");
    check_shed(&reply, (429, "rate_limited"), "concurrency");
    assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
    assert!(reply.text().contains("acme"), "{}", reply.text());
    assert_eq!(replica.requests.count(), 0);
    let other = with(of_class(2, "b"), "x-spillway-tenant", "rival");
    assert_eq!(ask(&node, other).await.expect("a reply").status, 200);
    // And with one place, requests of the tenant follow each other: each gives it back.
    let one = Units::each(|kind| u64::from(kind == LimitKind::Concurrency));
    quotas.hold(&scope, &Holding { floor: one, ..none });
    for _ in 0..3 {
        let is_served = |reply: &Reply| reply.status == 200;
        let mut reply = ask(&node, of_class(2, "c")).await.expect("a reply");
        // The place is freed once the last byte of the reply is being sent.
        for _ in 0..100 {
            if is_served(&reply) {
                break;
            }
            reply = ask(&node, of_class(2, "c")).await.expect("a reply");
        }
        assert!(is_served(&reply), "{}", reply.text());
    }
    let labels = [("reason", "concurrency"), ("priority", "2"), ("route", "default")];
    eventually("it is counted", || Page::of(&node).sum("spillway_sheds_total", &labels) >= 1.0)
        .await;
}

#[tokio::test]
async fn a_replica_that_refuses_for_its_load_is_left_alone_and_others_are_asked() {
    for status in ["503 Service Unavailable", "429 Too Many Requests"] {
        let busy = format!("HTTP/1.1 {status}\r\nretry-after: 3\r\ncontent-length: 4\r\n\r\nbusy");
        let busy = Scripted::start().await.serve(busy);
        let well = Scripted::start().await.serve(OK);
        let route = "[[route]]\nname = \"llm\"\npolicy = \"round_robin\"\n";
        let setup = Setup::new().table(route).replica("busy", busy.address);
        let node = setup.replica("well", well.address).start().await;
        let mut client = Client::http1(node.addresses()[0]).await;
        for _ in 0..20 {
            let reply = client.fetch(chat("tiny", "")).await;
            assert_eq!(reply.status, 200, "no client sees that one replica has no room");
        }
        assert_eq!(well.requests.count(), 20);
        assert_eq!(busy.requests.count(), 1, "it said so once");
        node.stop().await;
    }
}

/// A request of this tenant.
fn of(tenant: &str) -> Request {
    with(chat("tiny", ""), "x-spillway-tenant", tenant)
}

#[tokio::test]
async fn a_replica_s_429_to_one_tenant_closes_it_to_nobody_else() {
    let busy = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 51\r\ncontent-length: 4\r\n\r\nbusy";
    let replica = Scripted::start().await.serve(busy);
    let setup = Setup::new().set("spill.queue_max = 0").listener(CLAIMS);
    let node = setup.replica("a", replica.address).start().await;
    let reply = ask(&node, of("spender")).await.expect("a reply");
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("51")));
    for _ in 0..5 {
        let reply = ask(&node, of("spender")).await.expect("a reply");
        let retry_after_s = check_shed(&reply, (503, "overloaded"), "replica_busy");
        assert!((45..=51).contains(&retry_after_s), "{retry_after_s}");
        assert!(reply.text().contains("replicas are overloaded"), "{}", reply.text());
    }
    assert_eq!(replica.requests.count(), 1, "the tenant itself is kept away");
    assert_eq!(ask(&node, of("other")).await.expect("a reply").status, 429);
    assert_eq!(replica.requests.count(), 2, "another one is sent there");
    assert_eq!(ask(&node, of("third")).await.expect("a reply").status, 429);
    // It refused every tenant, so it counts as full.
    stands_at_last(&node, "a", "busy").await;
    for tenant in ["fourth", "fifth"] {
        let reply = ask(&node, of(tenant)).await.expect("a reply");
        check_shed(&reply, (503, "overloaded"), "replica_busy");
    }
    assert_eq!(replica.requests.count(), 3);
}

#[tokio::test]
async fn a_replica_that_refuses_some_tenants_and_serves_others_goes_on_serving() {
    let replica = Scripted::start().await;
    let setup = Setup::new().listener(CLAIMS).replica("a", replica.address);
    let node = setup.set("retry.attempts_max = 1").start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let mut connection = None;
    for number in 0..12 {
        let is_refused = number % 2 == 1;
        let tenant = format!("tenant-{number}");
        let reply = client.fetch(of(if is_refused { &tenant } else { "served" }));
        let answer = async {
            let mut wire = match connection.take() {
                Some(wire) => wire,
                None => replica.accept().await,
            };
            wire.message().await;
            let busy = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";
            wire.send(if is_refused { busy } else { OK }).await;
            wire
        };
        let (reply, wire) = tokio::join!(reply, answer);
        assert_eq!(reply.status, if is_refused { 429 } else { 200 }, "{number}");
        connection = Some(wire);
    }
}

#[tokio::test]
async fn a_refusal_reaches_the_client_if_nobody_else_has_room() {
    let busy =
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nbusy";
    let replicas = [Scripted::start().await.serve(busy), Scripted::start().await.serve(busy)];
    let setup = Setup::new().set("spill.queue_max = 0").replica("a", replicas[0].address);
    let node = setup.replica("b", replicas[1].address).start().await;
    let reply = ask(&node, chat("tiny", "")).await.expect("a reply");
    assert_eq!((reply.status, reply.text(), reply.code()), (503, "busy", None));
    assert_eq!(reply.header("retry-after"), Some("7"));
    eventually("both are left alone", || {
        Page::of(&node).sum("spillway_replica_admission", &[("admission", "busy")]) == 2.0
    })
    .await;
    let sent: usize = replicas.iter().map(|replica| replica.requests.count()).sum();
    assert_eq!(sent, 2, "each was asked once");
    let reply = ask(&node, chat("tiny", "")).await.expect("a reply");
    let seconds = check_shed(&reply, (503, "overloaded"), "replica_busy");
    // They rest somewhat longer by chance, so that not all requests come back at once.
    assert!((6..=8).contains(&seconds), "{seconds}");
}

/// Half of the replicas are gone, and more comes than the rest can do.
#[tokio::test]
async fn while_replicas_are_missing_the_urgent_are_served_and_the_others_told_at_once() {
    let gate = Gate::start().await;
    let setup = one_place(&gate).listener(CLAIMS).set("health.check = \"tcp\"");
    let setup = setup.set("health.interval_ms = 100");
    let node = setup.replica("gone", Scripted::refusing()).start().await;
    let is_down = || {
        let gone = [("replica", "gone"), ("admission", "down")];
        Page::of(&node).sum("spillway_replica_admission", &gone) == 1.0
    };
    eventually("one is gone", is_down).await;
    let _served = ask(&node, of_class(0, "first"));
    eventually("the only place is taken", || gate.held("first") == 1).await;
    let urgent = ask(&node, of_class(0, "urgent"));
    eventually("the urgent one waits", || node.gateway().routing.waiting.count() == 1).await;
    let reply = within("the last class is told at once", ask(&node, of_class(3, "last"))).await;
    check_shed(&reply.expect("a reply"), (503, "overloaded"), "degraded");
    gate.release("first", 1);
    eventually("the urgent one is served", || gate.held("urgent") == 1).await;
    gate.release("urgent", 1);
    assert_eq!(urgent.await.expect("a reply").status, 200);
}
