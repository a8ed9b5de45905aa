//! Models that replicas load and unload while the node runs.

use std::time::Duration;

use spillway_node::Node;
use spillway_tests::{Client, Setup, eventually, get, post, spawn, within};
use tokio::time::Instant;

use crate::identity::{Engine, ask, listing, lists, quick, vllm};

async fn node_over(engines: &[&Engine]) -> Node {
    node_with(quick(), engines).await
}

/// Checks as often, and yet finds no replica down: one that was down may have an empty memory.
fn never_down() -> Setup {
    quick().set("health.fall = 1000")
}

async fn node_with(setup: Setup, engines: &[&Engine]) -> Node {
    let replicas = engines
        .iter()
        .zip(0..)
        .map(|(engine, index)| engine.replica_named(&format!("r{index}"), ""));
    let route = "[[route]]\nname = \"r\"\npolicy = \"round_robin\"\n";
    replicas.fold(setup.table(route), Setup::table).start().await
}

#[tokio::test]
async fn a_model_that_was_just_loaded_is_found_by_a_request_for_it() {
    let engine = Engine::start(listing(&["base"])).await;
    let node = node_over(&[&engine]).await;
    lists(&node, &["base"]).await;
    let mut loaded = vec!["base"];
    for name in ["lora-a", "lora-b", "lora-c"] {
        loaded.push(name);
        engine.become_another(listing(&loaded));
        // The answer that the model is unknown is at most as old as the limit of such questions.
        within(name, async {
            while ask(&node, name).await.status != 200 {
                // wait: until the replicas may be asked again.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }
    // The description of a model is looked for as well.
    engine.become_another(listing(&["base", "lora-d"]));
    within("its card", async {
        while Client::once(node.addresses()[0], get("/v1/models/lora-d")).await.status != 200 {
            // wait: until the replicas may be asked again.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    node.stop().await;
}

#[tokio::test]
async fn random_names_do_not_make_the_node_hammer_its_replicas() {
    let engine = Engine::start(listing(&["base"])).await;
    let node = node_over(&[&engine]).await;
    lists(&node, &["base"]).await;
    let address = node.addresses()[0];
    let (before, started) = (engine.count("/v1/models"), Instant::now());
    let clients = (0..8).map(|client| {
        spawn(async move {
            let mut http = Client::http2(address).await;
            for name in 0..100 {
                let body = format!("{{\"model\":\"x{client}-{name}\",\"messages\":[]}}");
                let reply = http.fetch(post("/v1/chat/completions", body)).await;
                assert_eq!(reply.code(), Some("model_not_found"));
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("all are answered");
    }
    let asked = engine.count("/v1/models") - before;
    // At most one a second by these requests after the first few, and two by the node itself.
    let most = 3 + 3 * (started.elapsed().as_secs() as usize + 1);
    assert!(asked <= most, "asked {asked} times, at most {most} expected");
    node.stop().await;
}

#[tokio::test]
async fn a_model_that_moved_to_another_replica_is_found_there() {
    let engines =
        [Engine::start(listing(&["base", "a"])).await, Engine::start(listing(&["base"])).await];
    let node = node_over(&[&engines[0], &engines[1]]).await;
    lists(&node, &["a", "base"]).await;
    assert_eq!(ask(&node, "a").await.status, 200);
    engines[0].become_another(listing(&["base"]));
    engines[1].become_another(listing(&["base", "a"]));
    within("the other serves it", async {
        while engines[1].count("/v1/chat/completions") == 0 {
            assert_eq!(ask(&node, "a").await.status, 200);
        }
    })
    .await;
    node.stop().await;
}

#[tokio::test]
async fn an_adapter_counts_at_each_replica_that_lists_it_and_only_there() {
    let engines =
        [Engine::start(listing(&["base"])).await, Engine::start(listing(&["base"])).await];
    let node = node_over(&[&engines[0], &engines[1]]).await;
    lists(&node, &["base"]).await;
    for (index, engine) in engines.iter().enumerate() {
        engine.become_another(listing(&["base", "a"]));
        within("it gets requests for the adapter", async {
            while engine.count("/v1/chat/completions") == 0 {
                // Until the first replica has listed it, no replica has it.
                let status = ask(&node, "a").await.status;
                assert!(status == 200 || (index == 0 && matches!(status, 404 | 503)), "{status}");
            }
        })
        .await;
    }
    node.stop().await;
}

/// Waits until the engine has had two more requests for a path: the answer to the first is known then.
async fn is_asked_again(engine: &Engine, path: &str) {
    let asked = engine.count(path);
    eventually("two more requests", || engine.count(path) >= asked + 2).await;
}

/// Waits until requests for the adapter go to this engine alone, and then asks for the base model.
async fn has_the_adapter_s_requests(node: &Node, engines: &[Engine; 2], chosen: usize) {
    let count = |engine: &Engine| engine.count("/v1/chat/completions");
    within("requests for the adapter go where it is loaded", async {
        loop {
            let before = count(&engines[1 - chosen]);
            for _ in 0..8 {
                assert_eq!(ask(node, "lora").await.status, 200);
            }
            if count(&engines[1 - chosen]) == before {
                return;
            }
        }
    })
    .await;
    for engine in engines {
        let before = count(engine);
        within("the base model, which is loaded at both, is asked for at both", async {
            while count(engine) == before {
                assert_eq!(ask(node, "base").await.status, 200);
            }
        })
        .await;
    }
}

#[tokio::test]
async fn replicas_that_have_an_adapter_in_memory_are_preferred() {
    let pages = |running| vllm("base", "lora", running);
    let engines = [Engine::start(pages("")).await, Engine::start(pages("lora")).await];
    let node = node_with(never_down(), &[&engines[0], &engines[1]]).await;
    lists(&node, &["base", "lora"]).await;
    // Requests go there as well while the other has not listed its models yet.
    is_asked_again(&engines[1], "/metrics").await;
    has_the_adapter_s_requests(&node, &engines, 1).await;
    // An engine names those with requests. The adapter stays in its only slot until another is used.
    engines[1].become_another(pages(""));
    is_asked_again(&engines[1], "/metrics").await;
    has_the_adapter_s_requests(&node, &engines, 1).await;
    engines[1].become_another(pages("other"));
    engines[0].become_another(pages("lora"));
    has_the_adapter_s_requests(&node, &engines, 0).await;
    node.stop().await;
}

/// A replica that is busy may miss checks; only one that was restarted has an empty memory.
#[tokio::test]
async fn checks_that_fail_for_a_moment_forget_no_adapter() {
    let pages = |running| vllm("base", "lora", running);
    let engines = [Engine::start(pages("")).await, Engine::start(pages("lora")).await];
    let node = node_with(never_down(), &[&engines[0], &engines[1]]).await;
    lists(&node, &["base", "lora"]).await;
    // Requests go there as well while the other has not listed its models yet.
    is_asked_again(&engines[1], "/metrics").await;
    has_the_adapter_s_requests(&node, &engines, 1).await;
    let mut without_health = pages("");
    without_health.remove("/health");
    engines[1].become_another(without_health);
    is_asked_again(&engines[1], "/metrics").await;
    is_asked_again(&engines[1], "/health").await;
    engines[1].become_another(pages(""));
    is_asked_again(&engines[1], "/health").await;
    // Its pages name the adapter no more, so a node that had forgotten it would not learn of it again.
    has_the_adapter_s_requests(&node, &engines, 1).await;
    node.stop().await;
}

#[tokio::test]
async fn a_replica_with_another_model_than_configured_is_not_called_healthy() {
    let engine = Engine::start(listing(&["other"])).await;
    let replica = engine.replica_named("gpu", "models = [\"tiny\"]");
    let node = quick().table(replica).start().await;
    lists(&node, &[]).await;
    let admin = node.admin_address().expect("one");
    let answer = within("its page was read", async {
        loop {
            let answer = Client::once(admin, get("/v1/node")).await.json();
            if answer["node"]["replicas"]["lacking"][0]["state"] == "wrong model" {
                break answer;
            }
        }
    })
    .await;
    let summary = answer["summary"].as_str().expect("a sentence");
    assert!(summary.contains("gpu has the wrong model"), "{summary}");
    // It is asked all the same: its page may be wrong.
    assert_eq!(ask(&node, "tiny").await.status, 200);
    // It loads the model.
    engine.become_another(listing(&["other", "tiny"]));
    lists(&node, &["tiny"]).await;
    let answer = Client::once(admin, get("/v1/node")).await.json();
    assert_eq!(answer["node"]["replicas"]["lacking"], serde_json::json!([]), "{answer}");
    node.stop().await;
}
