//! What one tenant has is not another's.

use http::Method;
use spillway_tests::{Client, OK, Page, Scripted, Setup, emulator, full, get, message, post};

use crate::keys::Key;

/// The id in a reply.
pub(crate) fn response_id(text: &str) -> String {
    let at = text.find("\"resp_").expect("an id") + 1;
    let end = text[at..].find('"').expect("the id's end");
    text[at..at + end].to_owned()
}

pub(crate) const STORE: &str = r#"{"model":"tiny","input":"one","max_output_tokens":3}"#;

#[tokio::test]
async fn a_stored_response_is_its_tenant_s_alone() {
    let emulator = emulator(1).await;
    let (own, same, other) =
        (Key::new("a", "acme", ""), Key::new("b", "acme", ""), Key::new("c", "rival", ""));
    let mut setup = Setup::new().emulated(&emulator);
    for key in [&own, &same, &other] {
        setup = setup.table(&*key.block);
    }
    let node = setup.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let stored = client.fetch(own.sign(post("/v1/responses", STORE))).await;
    assert_eq!(stored.status, 200, "{}", stored.text());
    let id = response_id(stored.text());
    let path = format!("/v1/responses/{id}");
    let go_on = STORE.replace("\"input\"", &format!("\"previous_response_id\":\"{id}\",\"input\""));
    let delete = || message(Method::DELETE, &path, "application/json", full(""));
    for request in [get(&path), delete(), post("/v1/responses", go_on.clone())] {
        let reply = client.fetch(other.sign(request)).await;
        assert_eq!((reply.status, reply.code()), (404, Some("response_not_found")));
    }
    assert_eq!(client.fetch(same.sign(get(&path))).await.json()["id"], id.as_str());
    assert_eq!(client.fetch(own.sign(post("/v1/responses", go_on))).await.status, 200);
    assert_eq!(client.fetch(own.sign(delete())).await.status, 200);
}

/// How many of two equal long prompts of two tenants met the same replica, by what they hash to.
async fn meet(tenants: &str) -> bool {
    const REPLICAS: usize = 8;
    let mut setup = Setup::new().table(
        "[[route]]\nname = \"llm\"\npolicy = \"consistent_hash\"\nhash_by = \"prompt_prefix\"\n",
    );
    let mut replicas = Vec::new();
    for index in 0..REPLICAS {
        let replica = Scripted::start().await.serve(OK);
        setup = setup.replica(&format!("r{index}"), replica.address);
        replicas.push(replica);
    }
    let keys: Vec<Key> = (0..6).map(|i| Key::new(&format!("k{i}"), &format!("t{i}"), "")).collect();
    for key in &keys {
        setup = setup.table(&*key.block);
    }
    let node = setup.table(tenants).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let prompt = "the same words ".repeat(200);
    for key in &keys {
        for _ in 0..2 {
            let body = format!(r#"{{"model":"tiny","prompt":"{prompt}"}}"#);
            let reply = client.fetch(key.sign(post("/v1/completions", body))).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
    }
    let counts: Vec<usize> = replicas.iter().map(|replica| replica.requests.count()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 12);
    // Each tenant's two are together in any case.
    assert!(counts.iter().all(|count| count % 2 == 0), "{counts:?}");
    assert_eq!(Page::of(&node).sum("spillway_access_total", &[("result", "ok")]), 12.0);
    counts.contains(&12)
}

#[tokio::test]
async fn equal_prompts_look_alike_unless_a_tenant_is_kept_apart() {
    assert!(meet("").await);
    let apart: String = (0..6)
        .map(|index| format!("[[tenant]]\nname = \"t{index}\"\nisolate_prompts = true\n"))
        .collect();
    assert!(!meet(&apart).await);
}
