//! Replicas come, warm up, step back and leave, without a request lost.

use spillway_emulator::{Emulator, Fault};
use spillway_node::Node;
use spillway_tests::{
    Client, OK, Page, Scripted, Setup, chat, emulator, eventually, get, post, slow_emulator, spawn,
    within,
};

use crate::health::{stands, stands_at_last};
use crate::reload::{File, reloads};

async fn ask(node: &Node) -> u16 {
    Client::once(node.addresses()[0], chat("tiny", ",\"max_tokens\":1")).await.status
}

/// Sends 400 requests. Returns how many of them replica `index` got.
async fn share_of(node: &Node, emulator: &Emulator, index: usize) -> u64 {
    let before = emulator.replica(index).stats().received;
    for _ in 0..400 {
        assert_eq!(ask(node).await, 200);
    }
    emulator.replica(index).stats().received - before
}

fn ramp(node: &Node, replica: &str) -> f64 {
    Page::of(node).sum("spillway_replica_ramp", &[("replica", replica)])
}

#[tokio::test]
async fn a_new_replica_comes_to_its_share_by_and_by() {
    let emulator = emulator(2).await;
    let policy = "[[route]]\nname = \"all\"\npolicy = \"random\"";
    let setup = |count: usize| {
        let setup = Setup::new().set("health.slow_start_ms = 900000").table(policy);
        (0..count).fold(setup, |setup, index| {
            setup.replica(&format!("r{index}"), emulator.addresses()[index])
        })
    };
    let file = File::new(&setup(1));
    let node = file.start().await;
    file.replace(&setup(2).text());
    eventually("the reload", || reloads(&node, "applied") == 1.0).await;
    stands_at_last(&node, "r1", "open").await;
    let cold = share_of(&node, &emulator, 1).await;
    let share = ramp(&node, "r1");
    assert!(share < 0.25, "a ramp of a quarter of an hour is at {share} already");
    // A tenth to a fifth of the weight is a share of 9 to 17 %.
    assert!((10..110).contains(&cold), "the cold one got {cold} of 400");
    // The first one was there when the node started: it owes nothing to a ramp.
    assert_eq!(ramp(&node, "r0"), 1.0);
    node.stop().await;
}

#[tokio::test]
async fn a_new_replica_waits_until_it_is_ready() {
    let emulator = emulator(2).await;
    let setup = |count: usize| {
        let setup = Setup::new().set("health.check = \"tcp\"").set("health.interval_ms = 50");
        (0..count).fold(setup, |setup, index| {
            setup.replica(&format!("r{index}"), emulator.addresses()[index])
        })
    };
    emulator.replica(1).set_fault(Fault::Refuse).await.expect("a fault");
    let file = File::new(&setup(1));
    let node = file.start().await;
    file.replace(&setup(2).text());
    eventually("the reload", || reloads(&node, "applied") == 1.0).await;
    eventually("its first checks", || {
        let labels = [("replica", "r1"), ("check", "active"), ("result", "refused")];
        Page::of(&node).sum("spillway_replica_checks_total", &labels) >= 2.0
    })
    .await;
    assert!(!stands(&node, "r1", "open"));
    for _ in 0..50 {
        assert_eq!(ask(&node).await, 200);
    }
    assert_eq!(Page::of(&node).sum("spillway_retries_total", &[]), 0.0, "nobody tried it");
    emulator.replica(1).set_fault(Fault::None).await.expect("healed");
    stands_at_last(&node, "r1", "open").await;
    node.stop().await;
}

#[tokio::test]
async fn warm_up_prompts_come_before_the_first_request() {
    let old = Scripted::start().await.serve(OK);
    let new = Scripted::start().await;
    let lines = "warm_up = [\"wake up\", \"and again\"]";
    let base = Setup::new().replica("old", old.address);
    let both = base.clone().replica_with("new", &format!("http://{}", new.address), lines);
    let file = File::new(&base);
    let node = file.start().await;
    file.replace(&both.text());
    let (mut wire, first) = new.request().await;
    assert!(first.text().contains("wake up"), "{}", first.text());
    assert!(!stands(&node, "new", "open"), "it is not warm yet");
    wire.send(OK).await;
    // Each prompt has a connection of its own, so that none is lost with an old one.
    let (mut wire, second) = new.request().await;
    assert!(second.text().contains("and again"), "{}", second.text());
    wire.send(OK).await;
    stands_at_last(&node, "new", "open").await;
    node.stop().await;
}

#[tokio::test]
async fn a_drained_replica_finishes_what_it_has_and_gets_nothing_more() {
    let emulator = slow_emulator(2, 0.05).await;
    let node = Setup::new().emulated(&emulator).start().await;
    let address = node.addresses()[0];
    let admin = node.admin_address().expect("an address");
    let streams: Vec<_> = (0..8)
        .map(|_| {
            let stream = chat("tiny", ",\"max_tokens\":200,\"ignore_eos\":true,\"stream\":true");
            spawn(async move { Client::once(address, stream).await })
        })
        .collect();
    let received = |index: usize| emulator.replica(index).stats().received;
    eventually("all are under way", || received(0) + received(1) == 8).await;
    assert!(received(0) > 0, "nobody sends eight of eight to one of two");
    let drained = Client::once(admin, post("/replicas/r0/drain", "")).await;
    assert_eq!(drained.status, 200);
    stands_at_last(&node, "r0", "draining").await;
    let before = emulator.replica(0).stats();
    assert!(before.running > 0, "they were to outlast the order");
    for _ in 0..20 {
        assert_eq!(ask(&node).await, 200);
    }
    for stream in streams {
        let reply = within("a stream", stream).await.expect("no panic");
        assert_eq!(reply.events().last(), Some(&"data: [DONE]\n\n"));
    }
    let after = emulator.replica(0).stats();
    assert_eq!((after.received, after.aborted), (before.received, 0));
    let state = || async { Client::once(admin, get("/replicas")).await.json()[0]["state"].clone() };
    let mut last = state().await;
    for _ in 0..100 {
        if last == "drained" {
            break;
        }
        tokio::task::yield_now().await;
        last = state().await;
    }
    assert_eq!(last, "drained");
    Client::once(admin, post("/replicas/r0/resume", "")).await;
    stands_at_last(&node, "r0", "open").await;
    node.stop().await;
}

#[tokio::test]
async fn a_machine_that_is_to_be_taken_away_is_drained() {
    let emulator = emulator(2).await;
    let notices = Scripted::start().await;
    let notice_url = format!("notice_url = \"http://{}/instance-action\"", notices.address);
    let node = Setup::new()
        .replica_with("spot", &format!("http://{}", emulator.addresses()[0]), &notice_url)
        .replica("firm", emulator.addresses()[1])
        .start()
        .await;
    let (mut wire, request) = notices.request().await;
    assert!(request.first_line().starts_with("GET /instance-action "), "{}", request.first_line());
    wire.send("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    assert!(stands(&node, "spot", "open"));
    let _serving = notices.serve("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
    stands_at_last(&node, "spot", "draining").await;
    for _ in 0..20 {
        assert_eq!(ask(&node).await, 200);
    }
    assert_eq!(emulator.replica(0).stats().received, 0);
    node.stop().await;
}

#[tokio::test]
async fn a_replica_in_reserve_takes_the_place_of_one_that_died() {
    let emulator = emulator(2).await;
    let node = Setup::new()
        .set("health.check = \"tcp\"")
        .set("health.interval_ms = 50")
        .with(|config| {
            let standby =
                config.world.replicas.iter_mut().filter_map(|it| it.care.standby.as_mut());
            standby.for_each(|it| it.promote_after_ms = 100);
        })
        .replica("first", emulator.addresses()[0])
        .replica_with("reserve", &format!("http://{}", emulator.addresses()[1]), "standby = true")
        .start()
        .await;
    stands_at_last(&node, "reserve", "standby").await;
    for _ in 0..20 {
        assert_eq!(ask(&node).await, 200);
    }
    assert_eq!(emulator.replica(1).stats().received, 0);
    emulator.replica(0).set_fault(Fault::Crash).await.expect("a fault");
    stands_at_last(&node, "reserve", "open").await;
    for _ in 0..20 {
        assert_eq!(ask(&node).await, 200);
    }
    node.stop().await;
}
