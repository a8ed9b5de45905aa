//! The software and the models of replicas are found out if the config does not set them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use spillway_node::Node;
use spillway_tests::{
    Client, Page, Reply, Scripted, Setup, Wire, chat, eventually, get, slow_emulator, spawn, within,
};

use crate::health::QUICK;

const LLAMA_METRICS: &str = "# TYPE llamacpp:requests_deferred gauge\n\
    llamacpp:requests_deferred 3\nllamacpp:requests_processing 1\n";
const SGLANG_METRICS: &str = "# TYPE sglang:num_queue_reqs gauge\n\
    sglang:num_queue_reqs{tp_rank=\"0\"} 7\n";

/// Pages by path.
pub(crate) type Pages = BTreeMap<&'static str, String>;

/// A server that answers every path with its page, or with 404; without any page it answers 503.
pub(crate) struct Engine {
    address: SocketAddr,
    pages: Arc<Mutex<Pages>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Engine {
    pub(crate) async fn start(pages: Pages) -> Self {
        let server = Scripted::start().await;
        let address = server.address;
        let pages = Arc::new(Mutex::new(pages));
        let asked = Arc::default();
        let (shown, noted) = (Arc::clone(&pages), Arc::clone(&asked));
        spawn(async move {
            loop {
                let wire = server.accept().await;
                spawn(answer(wire, Arc::clone(&shown), Arc::clone(&noted)));
            }
        });
        Self { address, pages, asked }
    }

    pub(crate) fn become_another(&self, pages: Pages) {
        *lock(&self.pages) = pages;
    }

    fn was_asked(&self, path: &str) -> bool {
        lock(&self.asked).iter().any(|line| line.contains(path))
    }

    /// Returns the number of requests for a path.
    pub(crate) fn count(&self, path: &str) -> usize {
        lock(&self.asked).iter().filter(|line| line.contains(path)).count()
    }

    /// Returns the config of a replica that sets only its address.
    fn replica(&self, lines: &str) -> String {
        self.replica_named("a", lines)
    }

    pub(crate) fn replica_named(&self, name: &str, lines: &str) -> String {
        format!("[[replica]]\nname = \"{name}\"\nurl = \"http://{}\"\n{lines}", self.address)
    }
}

async fn answer(mut wire: Wire, pages: Arc<Mutex<Pages>>, asked: Arc<Mutex<Vec<String>>>) {
    while wire.has_more().await {
        let request = wire.message().await;
        let line = request.first_line().to_owned();
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        lock(&asked).push(line);
        let (status, body) = {
            let pages = lock(&pages);
            match pages.get(path.as_str()) {
                _ if pages.is_empty() => ("503 Service Unavailable", String::new()),
                Some(page) => ("200 OK", page.clone()),
                None => ("404 Not Found", String::new()),
            }
        };
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
        if wire.try_send(head + &body).await.is_err() {
            return;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn models(owner: &str, ids: &[&str]) -> String {
    let model = |id: &&str| json!({"id": id, "object": "model", "owned_by": owner, "parent": null});
    let models: Vec<Value> = ids.iter().map(model).collect();
    json!({"object": "list", "data": models}).to_string()
}

fn pages(pages: &[(&'static str, &str)]) -> Pages {
    let chat = ("/v1/chat/completions", "ok".to_owned());
    pages.iter().map(|(path, page)| (*path, (*page).to_owned())).chain([chat]).collect()
}

/// Pages of a server that lists these models and reports no load.
pub(crate) fn listing(ids: &[&str]) -> Pages {
    pages(&[("/v1/models", &models("me", ids)), ("/health", "{}")])
}

/// Pages of a vLLM with this model and this adapter of it, whose metrics name these adapters.
pub(crate) fn vllm(model: &str, adapter: &str, running: &str) -> Pages {
    let card = |id: &str, parent: Option<&str>| json!({"id": id, "object": "model", "owned_by": "vllm", "parent": parent});
    let listed = json!({"object": "list", "data": [card(model, None), card(adapter, Some(model))]});
    let metrics = format!(
        "vllm:num_requests_running 0\nvllm:lora_requests_info{{max_lora=\"1\",\
         running_lora_adapters=\"{running}\",waiting_lora_adapters=\"\"}} 1.8e+09\n"
    );
    pages(&[("/v1/models", &listed.to_string()), ("/metrics", &metrics), ("/health", "")])
}

fn llama(ids: &[&str]) -> Pages {
    let listed = models("llamacpp", ids);
    pages(&[("/v1/models", &listed), ("/metrics", LLAMA_METRICS), ("/health", "{}")])
}

fn sglang(ids: &[&str]) -> Pages {
    let listed = models("sglang", ids);
    pages(&[("/v1/models", &listed), ("/metrics", SGLANG_METRICS), ("/health", "")])
}

pub(crate) fn quick() -> Setup {
    QUICK.into_iter().fold(Setup::new(), Setup::set)
}

/// Returns the record of its replica in the admin API, once `is_told` accepts it.
async fn member(node: &Node, what: &str, is_told: impl Fn(&Value) -> bool) -> Value {
    let mut client = Client::http1(node.admin_address().expect("one")).await;
    within(what, async {
        loop {
            let members = client.fetch(get("/replicas")).await.json();
            if is_told(&members[0]) {
                return members[0].clone();
            }
            // wait: until the replica was asked.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

async fn is_recognised(node: &Node, kind: &str) {
    let what = format!("it is recognised as {kind}");
    let told = member(node, &what, |member| member["kind"] == kind).await;
    assert_eq!(told["is_kind_recognised"], true, "{told}");
}

fn load(node: &Node, signal: &str) -> Option<f64> {
    let labels = [("signal", signal)];
    let page = Page::of(node);
    let is_known = page.sum("spillway_replica_load_trust", &labels) > 0.0;
    is_known.then(|| page.sum("spillway_replica_load", &labels))
}

pub(crate) async fn ask(node: &Node, model: &str) -> Reply {
    Client::once(node.addresses()[0], chat(model, "")).await
}

async fn listed(node: &Node) -> Vec<String> {
    let list = Client::once(node.addresses()[0], get("/v1/models")).await.json();
    let ids = list["data"].as_array().into_iter().flatten();
    ids.filter_map(|card| card["id"].as_str().map(str::to_owned)).collect()
}

/// Waits until the node lists exactly these models to clients.
pub(crate) async fn lists(node: &Node, expected: &[&str]) {
    within(&format!("{expected:?} are listed"), async {
        while listed(node).await != expected {
            // wait: until the replica was asked.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_replica_without_a_kind_is_recognised_and_its_load_is_read() {
    let emulator = slow_emulator(1, 0.1).await;
    let url = format!("http://{}", emulator.addresses()[0]);
    let node = quick().table(format!("[[replica]]\nname = \"a\"\nurl = \"{url}\"")).start().await;
    is_recognised(&node, "vllm").await;
    eventually("its load is read", || load(&node, "running") == Some(0.0)).await;
    lists(&node, &["tiny"]).await;
    assert_eq!(ask(&node, "tiny").await.status, 200);
    node.stop().await;
}

#[tokio::test]
async fn a_replica_that_comes_back_as_another_server_is_recognised_anew() {
    let engine = Engine::start(llama(&["tiny"])).await;
    let node = quick().table(engine.replica("")).start().await;
    is_recognised(&node, "llamacpp").await;
    eventually("its queue is read", || load(&node, "queued") == Some(3.0)).await;
    engine.become_another(Pages::new());
    let is_failing = |member: &Value| member["checks"][0]["last_fault"] == "not_ready";
    member(&node, "its checks fail", is_failing).await;
    engine.become_another(sglang(&["tiny"]));
    is_recognised(&node, "sglang").await;
    eventually("its queue is read", || load(&node, "queued") == Some(7.0)).await;
    node.stop().await;
}

#[tokio::test]
async fn what_the_config_says_of_a_server_is_not_looked_for() {
    let engine = Engine::start(llama(&["tiny"])).await;
    let lines = "kind = \"generic\"\nmodels = [\"tiny\"]";
    let node = quick().table(engine.replica(lines)).start().await;
    let told = member(&node, "it was asked", |member| !member["models_told"].is_null()).await;
    assert_eq!((&told["kind"], &told["is_kind_recognised"]), (&json!("generic"), &json!(false)));
    assert!(!engine.was_asked("/metrics") && !engine.was_asked("/v2"));
    node.stop().await;

    let engine = Engine::start(llama(&["tiny"])).await;
    let lines = "models = [\"tiny\"]\nmetrics.scrape = false\nhealth.check = \"tcp\"";
    let node = quick().table(engine.replica(lines)).start().await;
    is_recognised(&node, "llamacpp").await;
    let checks = |member: &Value| member["checks"][0]["vote"] == "good";
    member(&node, "a check", checks).await;
    // Each page was read once, by the rule that recognised the engine.
    assert_eq!((engine.count("/metrics"), engine.count("/health")), (1, 1));
    assert_eq!(load(&node, "queued"), None);
    node.stop().await;
}

#[tokio::test]
async fn a_server_whose_health_is_behind_a_proxy_is_not_taken_for_dead() {
    let engine = Engine::start(pages(&[("/v1/models", &models("vllm", &["tiny"]))])).await;
    let node = quick().table(engine.replica("")).start().await;
    is_recognised(&node, "vllm").await;
    lists(&node, &["tiny"]).await;
    let before = lock(&engine.asked).len();
    let is_checked =
        |member: &Value| member["checks"][0]["vote"] == "good" && member["state"] == "serving";
    for _ in 0..20 {
        member(&node, "a check", is_checked).await;
        assert_eq!(ask(&node, "tiny").await.status, 200);
    }
    let later = lock(&engine.asked)[before..].to_vec();
    assert!(!later.iter().any(|line| line.contains("/health")), "{later:?}");
    node.stop().await;
}

#[tokio::test]
async fn models_that_are_left_out_are_those_that_the_replica_lists() {
    let engine = Engine::start(llama(&["base", "adapter"])).await;
    let setup = quick().set("aliases.short = \"base\"").table(engine.replica(""));
    let node = setup.start().await;
    lists(&node, &["adapter", "base", "short"]).await;
    for model in ["adapter", "base", "short"] {
        assert_eq!(ask(&node, model).await.status, 200, "{model}");
    }
    assert_eq!(ask(&node, "huge").await.code(), Some("model_not_found"));
    // The replica is down, but its list is still known.
    engine.become_another(Pages::new());
    let is_failing = |member: &Value| member["checks"][0]["last_fault"] == "not_ready";
    member(&node, "its checks fail", is_failing).await;
    assert_eq!(ask(&node, "base").await.status, 503);
    assert_eq!(ask(&node, "huge").await.code(), Some("model_not_found"));
    assert_eq!(listed(&node).await, ["adapter", "base", "short"]);
    // It comes back with another adapter.
    engine.become_another(llama(&["base", "other"]));
    lists(&node, &["base", "other", "short"]).await;
    assert_eq!(ask(&node, "adapter").await.code(), Some("model_not_found"));
    node.stop().await;
}

#[tokio::test]
async fn a_model_is_not_refused_before_its_replica_was_asked() {
    let refusing = Scripted::refusing();
    let setup = quick().table(format!("[[replica]]\nname = \"a\"\nurl = \"http://{refusing}\""));
    let node = setup.start().await;
    let reply = ask(&node, "tiny").await;
    assert_eq!((reply.status, reply.code()), (503, Some("no_replica")), "{}", reply.text());
    assert!(reply.text().contains("replica a"), "{}", reply.text());
    assert!(reply.header("retry-after").is_some());
    assert_eq!(Client::once(node.addresses()[0], get("/readyz")).await.status, 503);
    node.stop().await;

    // An engine with an empty list serves no model by name.
    let engine = Engine::start(pages(&[("/other", "")])).await;
    let node = quick().table(engine.replica("")).start().await;
    within("it was asked", async {
        while ask(&node, "tiny").await.status != 404 {
            // wait: until the replica was asked.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(Client::once(node.addresses()[0], get("/readyz")).await.status, 200);
    node.stop().await;
}

#[tokio::test]
async fn a_server_of_kserve_s_protocol_is_asked_for_its_index() {
    let index =
        json!([{"name": "iris", "state": "READY"}, {"name": "old", "state": "UNAVAILABLE"}]);
    let pages = pages(&[
        ("/v2", r#"{"name":"mlserver","version":"1.7.1","extensions":[]}"#),
        ("/v2/health/ready", ""),
        ("/v2/repository/index", &index.to_string()),
    ]);
    let engine = Engine::start(pages).await;
    let node = quick().table(engine.replica("")).start().await;
    is_recognised(&node, "mlserver").await;
    lists(&node, &["iris"]).await;
    node.stop().await;
}

#[tokio::test]
async fn replicas_that_are_found_by_name_are_asked_as_well() {
    let engine = Engine::start(llama(&["tiny"])).await;
    let source = format!(
        "[[discovery]]\nname = \"d\"\ndns = \"localhost:{}\"\n[discovery.replica]\nurl = \"http://\"",
        engine.address.port()
    );
    let node = quick().table(source).start().await;
    is_recognised(&node, "llamacpp").await;
    lists(&node, &["tiny"]).await;
    node.stop().await;
}
