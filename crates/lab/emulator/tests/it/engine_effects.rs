//! Tests of the engine's effects on clients: queues, batches, the cache.

use std::time::{Duration, Instant};

use serde_json::json;
use spillway_emulator::{Emulator, EmulatorConfig, EngineConfig, Profile};

use crate::client::{Connection, Reply, chat, chat_text, post, until};

const CHAT: &str = "/v1/chat/completions";

async fn with_engine(time_scale: f64, change: impl FnOnce(&mut EngineConfig)) -> Emulator {
    let mut engine = EngineConfig::from_profile(Profile::L4);
    change(&mut engine);
    Emulator::start(EmulatorConfig { engine, time_scale, ..EmulatorConfig::default() })
        .await
        .unwrap()
}

#[tokio::test]
async fn a_full_queue_rejects_with_503() {
    let emulator = with_engine(1.0, |engine| {
        engine.running_max = 1.try_into().unwrap();
        engine.waiting_max = 1;
    })
    .await;
    let replica = emulator.replica(0);
    let mut open = Vec::new();
    for number in 1..=2 {
        let mut connection = Connection::open(replica).await;
        let response = connection.post(CHAT, &chat("hello", 200, true)).await.unwrap();
        open.push((connection, response));
        until(replica, |stats| stats.running + stats.waiting == number).await;
        until(replica, |stats| stats.running == 1).await;
    }
    let third = post(replica, CHAT, &chat("hello", 200, true)).await;
    assert_eq!(third.status, 503);
    assert_eq!(third.json()["error"]["type"], "server_error");
    let stats = replica.stats();
    assert_eq!((stats.running, stats.waiting, stats.rejected, stats.started), (1, 1, 1, 2));
    drop(open);
    until(replica, |stats| stats.aborted == 2).await;
    emulator.shutdown().await;
}

#[tokio::test]
async fn requests_run_in_one_batch() {
    // So slow that all requests have arrived before the first is done.
    let emulator = with_engine(1.0, |_| {}).await;
    let replica = emulator.replica(0);
    let mut open = Vec::new();
    for number in 0..16 {
        let mut connection = Connection::open(replica).await;
        let body = chat(&format!("request {number}"), 40, true);
        let response = connection.post(CHAT, &body).await.unwrap();
        open.push((connection, response));
    }
    for (_connection, response) in open {
        assert_eq!(chat_text(&Reply::collect(response).await.unwrap().named_events()).len(), 160);
    }
    let stats = replica.stats();
    assert_eq!(stats.engine.generation_tokens, 16 * 40);
    assert!(stats.engine.steps < 16 * 40 / 4, "{} steps", stats.engine.steps);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_cached_prompt_has_its_first_token_sooner() {
    // 2,000 tokens take 1 s of the machine's time, here 0.2 s. When cached, they take one step of
    // 11 ms.
    let emulator = with_engine(0.2, |_| {}).await;
    let replica = emulator.replica(0);
    let mut body = chat(&"a long prompt ".repeat(571), 1, false);
    body["stream"] = json!(false);
    let mut took = Vec::new();
    for _ in 0..2 {
        let start = Instant::now();
        assert_eq!(post(replica, CHAT, &body).await.status, 200);
        took.push(start.elapsed());
    }
    assert!(took[0] >= Duration::from_millis(180), "{took:?}");
    assert!(took[1] * 2 < took[0], "{took:?}");
    emulator.shutdown().await;
}

#[tokio::test]
async fn outputs_that_outgrow_the_cache_are_preempted_and_still_complete() {
    // A request takes 0.3 s, so that all requests run together even on a busy machine.
    let emulator = with_engine(0.05, |engine| {
        engine.kv_blocks = 12.try_into().unwrap();
        engine.watermark_blocks = 0;
        engine.context_tokens_max = 192;
    })
    .await;
    let replica = emulator.replica(0);
    let mut open = Vec::new();
    for number in 0..4 {
        let mut connection = Connection::open(replica).await;
        let body = chat(&format!("request {number}"), 120, true);
        open.push((connection.post(CHAT, &body).await.unwrap(), connection));
    }
    for (response, _connection) in open {
        assert_eq!(chat_text(&Reply::collect(response).await.unwrap().named_events()).len(), 480);
    }
    let stats = replica.stats();
    assert!(stats.engine.preemptions > 0);
    assert_eq!((stats.finished, stats.engine.generation_tokens), (4, 480));
    emulator.shutdown().await;
}
