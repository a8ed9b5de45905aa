//! One node: effects of the first signal, and of the second.

use std::time::{Duration, Instant};

use spillway_emulator::{Emulator, EmulatorConfig};
use spillway_testkit::PATIENCE;
use tokio::task::JoinHandle;

use crate::caller::{call, chat, status};
use crate::machines::{Machines, admin, data};

/// Starts a node and its replica, which takes about 100 ms for a token.
async fn started(lines: &str) -> (Machines, Emulator) {
    let config = EmulatorConfig { replicas: 1, time_scale: 3.0, ..EmulatorConfig::default() };
    let emulator = Emulator::start(config).await.unwrap();
    let url = emulator.addresses()[0];
    let replica = format!(
        "[[replica]]\nname = \"a\"\nurl = \"http://{url}\"\nmodels = [\"tiny\"]\n\
         [health]\nslow_start_ms = 0"
    );
    // These tests look whether the node is ready, as a balancer does, and must not wait for one.
    let notice = if lines.contains("drain_notice_ms") { "" } else { "node.drain_notice_ms = 0\n" };
    let lines = format!("{notice}{lines}");
    let mut machines = Machines::new(1, &lines, |_| replica.clone());
    machines.start(0);
    is_ready(200).await;
    (machines, emulator)
}

async fn is_ready(expected: u16) {
    let by = Instant::now() + PATIENCE;
    loop {
        let reply = call(admin(0), "GET /readyz", "").await.unwrap_or_default();
        if status(&reply) == expected {
            return;
        }
        assert!(Instant::now() < by, "it never answers {expected}: {reply}");
        // wait: between two looks
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Starts a stream of `tokens` tokens, and waits until it has begun.
async fn streaming(tokens: u32) -> JoinHandle<Result<(), String>> {
    #[expect(clippy::disallowed_methods, reason = "the test waits for it")]
    let stream = tokio::spawn(chat(data(0), true, tokens));
    let by = Instant::now() + PATIENCE;
    loop {
        let page = call(admin(0), "GET /metrics", "").await.unwrap_or_default();
        let is_there = |line: &str| {
            line.starts_with("spillway_replica_in_flight") && line.trim_end().ends_with(" 1")
        };
        if page.lines().any(is_there) {
            return stream;
        }
        assert!(Instant::now() < by, "no request is in flight");
        // wait: between two looks
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_signal_lets_what_runs_finish_and_the_exit_is_clean() {
    let (mut machines, _emulator) = started("node.drain_notice_ms = 500").await;
    let stream = streaming(10).await;
    machines.terminate(0);
    is_ready(503).await;
    // A client that does not know of the drain yet is served.
    chat(data(0), false, 1).await.unwrap();
    stream.await.unwrap().unwrap();
    assert_eq!(machines.ended(0).code(), Some(0), "{}", machines.log(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_signal_ends_at_once_and_says_what_was_lost() {
    let (mut machines, _emulator) = started("node.drain_ms = 60000").await;
    let stream = streaming(2_000).await;
    machines.terminate(0);
    is_ready(503).await;
    let since = Instant::now();
    machines.terminate(0);
    assert_eq!(machines.ended(0).code(), Some(1), "{}", machines.log(0));
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    assert!(machines.log(0).contains("1 requests did not finish"), "{}", machines.log(0));
    assert!(stream.await.unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_outlasts_the_limit_is_broken_off_and_counted() {
    let (mut machines, _emulator) = started("node.drain_ms = 300").await;
    let stream = streaming(2_000).await;
    machines.terminate(0);
    assert_eq!(machines.ended(0).code(), Some(1), "{}", machines.log(0));
    assert!(machines.log(0).contains("1 requests did not finish"), "{}", machines.log(0));
    assert!(stream.await.unwrap().is_err());
}
