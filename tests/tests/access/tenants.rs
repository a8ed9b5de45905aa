//! Isolation between tenants: no tenant sees the responses of another.

use std::net::SocketAddr;

use http::Method;
use spillway_tests::{
    Client, OK, Page, Scripted, Serving, Setup, emulator, full, get, message, post,
};

use crate::keys::{Key, with};

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

/// A replica that takes the id of a response from its client, as some engines do.
async fn naming_replica(id: &str) -> Serving {
    let body = format!(r#"{{"id":"{id}","output":[{{"text":"my secret"}}]}}"#);
    let head = format!("content-type: application/json\r\ncontent-length: {}", body.len());
    Scripted::start().await.serve(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}"))
}

fn of_model(model: &str, name: &str, address: SocketAddr) -> String {
    format!("[[replica]]\nname = \"{name}\"\nurl = \"http://{address}\"\nmodels = [\"{model}\"]\n")
}

#[tokio::test]
async fn a_reply_with_the_id_of_another_tenant_s_response_takes_nothing_over() {
    let replica = naming_replica("resp_victim").await;
    let own = Key::new("a", "acme", "models = [\"m-acme\"]");
    let same = Key::new("b", "acme", "models = [\"m-other\"]");
    let evil = Key::new("c", "evil", "models = [\"m-evil\"]");
    let mut setup = Setup::new();
    for (model, name) in [("m-acme", "x"), ("m-evil", "y"), ("m-other", "z")] {
        setup = setup.table(of_model(model, name, replica.address));
    }
    for key in [&own, &same, &evil] {
        setup = setup.table(&*key.block);
    }
    let node = setup.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let ask = |model: &str| post("/v1/responses", STORE.replace("tiny", model));
    let path = "/v1/responses/resp_victim";
    assert_eq!(client.fetch(own.sign(ask("m-acme"))).await.status, 200);
    for more in ["", r#""request_id":"resp_victim","store":false,"#] {
        for (key, model) in [(&evil, "m-evil"), (&same, "m-other")] {
            let body =
                STORE.replace("tiny", model).replace("\"input\"", &format!("{more}\"input\""));
            client.fetch(key.sign(post("/v1/responses", body))).await;
        }
    }
    let before = replica.requests.count();
    let delete = || message(Method::DELETE, path, "application/json", full(""));
    let go_on = |model: &str| {
        let id = "\"previous_response_id\":\"resp_victim\",\"input\"";
        post("/v1/responses", STORE.replace("tiny", model).replace("\"input\"", id))
    };
    for request in [get(path), delete(), get(&format!("{path}/input_items")), go_on("m-evil")] {
        let reply = client.fetch(evil.sign(request)).await;
        assert_eq!((reply.status, reply.code()), (404, Some("response_not_found")));
    }
    for request in [get(path), delete(), go_on("m-other")] {
        let reply = client.fetch(same.sign(request)).await;
        assert_eq!((reply.status, reply.code()), (404, Some("response_not_found")));
    }
    assert_eq!(replica.requests.count(), before, "the replica is not asked");
    assert_eq!(client.fetch(own.sign(get(path))).await.status, 200);
    let page = Page::of(&node);
    assert!(page.sum("spillway_responses_not_kept_total", &[("reason", "id_taken")]) >= 2.0);
}

#[tokio::test]
async fn an_id_that_the_node_does_not_know_is_not_continued_where_there_are_tenants() {
    let replica = naming_replica("resp_new").await;
    let key = Key::new("a", "acme", "");
    let node = Setup::new().replica("a", replica.address).table(&*key.block).start().await;
    let body = STORE.replace("\"input\"", "\"previous_response_id\":\"resp_else\",\"input\"");
    let mut client = Client::http1(node.addresses()[0]).await;
    let reply = client.fetch(key.sign(post("/v1/responses", body))).await;
    assert_eq!((reply.status, reply.code()), (404, Some("response_not_found")));
    let long = get(&format!("/v1/responses/{}", "r".repeat(4_000)));
    let reply = client.fetch(key.sign(long)).await;
    assert_eq!((reply.status, reply.code()), (404, Some("response_not_found")));
    assert!(reply.text().len() < 400, "{}", reply.text());
    assert_eq!(replica.requests.count(), 0);
}

#[tokio::test]
async fn an_unknown_id_is_nobody_s_where_any_tenant_may_own_it() {
    let replica = naming_replica("resp_new").await;
    let key = Key::new("a", "acme", "");
    let claims = "auth = \"headers\"\ntrusted_proxies = [\"127.0.0.1/32\"]";
    let by_claims = Setup::new().listener(claims).replica("a", replica.address).start().await;
    let setup = Setup::new().listener("auth = \"none\"").replica("a", replica.address);
    let beside_keys = setup.table(&*key.block).start().await;
    let body = STORE.replace("\"input\"", "\"previous_response_id\":\"resp_else\",\"input\"");
    let ask = || post("/v1/responses", body.clone());
    for (node, request) in
        [(&by_claims, with(ask(), "x-spillway-tenant", "acme")), (&beside_keys, ask())]
    {
        let reply = Client::once(node.addresses()[0], request).await;
        assert_eq!((reply.status, reply.code()), (404, Some("response_not_found")));
    }
    assert_eq!(replica.requests.count(), 0);
}

#[tokio::test]
async fn what_is_not_to_be_stored_is_not_found_again() {
    let key = Key::new("a", "acme", "");
    let long = format!("resp_{}", "x".repeat(200_000));
    for (id, more) in [("resp_a", "\"store\":false,"), (&*long, "")] {
        let replica = naming_replica(id).await;
        let node = Setup::new().replica("a", replica.address).table(&*key.block).start().await;
        let mut client = Client::http1(node.addresses()[0]).await;
        let body = STORE.replace("\"input\"", &format!("{more}\"input\""));
        let reply = client.fetch(key.sign(post("/v1/responses", body))).await;
        assert_eq!(reply.status, 200);
        assert!(reply.text().contains(id), "the answer itself is whole");
        let found = client.fetch(key.sign(get(&format!("/v1/responses/{}", &id[..6])))).await;
        assert_eq!((found.status, found.code()), (404, Some("response_not_found")));
        assert_eq!(replica.requests.count(), 1);
    }
}

#[tokio::test]
async fn a_failed_request_stores_nothing_though_its_error_repeats_an_id() {
    let key = Key::new("a", "acme", "");
    let body = r#"{"id":"resp_victim"}"#;
    let head = format!("content-type: application/json\r\ncontent-length: {}", body.len());
    let reply = format!("HTTP/1.1 422 Unprocessable Content\r\n{head}\r\n\r\n{body}");
    let replica = Scripted::start().await.serve(reply);
    let node = Setup::new().replica("a", replica.address).table(&*key.block).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    assert_eq!(client.fetch(key.sign(post("/v1/responses", STORE))).await.status, 422);
    assert_eq!(client.fetch(key.sign(get("/v1/responses/resp_victim"))).await.status, 404);
    assert_eq!(replica.requests.count(), 1);
}

/// Sends two equal long prompts for each of six tenants. Returns true if all met at one replica,
/// chosen by the prompt's hash.
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

#[tokio::test]
async fn what_each_key_has_used_is_told_to_operators() {
    let emulator = emulator(1).await;
    let (first, second) = (Key::new("a", "acme", ""), Key::new("b", "acme", ""));
    let setup = Setup::new().emulated(&emulator).table(&*first.block).table(&*second.block);
    let node = setup.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for (key, model) in [(&first, "tiny"), (&first, "tiny"), (&second, "tiny"), (&second, "huge")] {
        let body = STORE.replace("tiny", model);
        client.fetch(key.sign(post("/v1/responses", body))).await;
    }
    let admin = node.admin_address().expect("an admin listener");
    let told = Client::once(admin, get("/usage")).await.json();
    let line = |key: &str, model: Option<&str>| {
        let lines = told["usage"].as_array().expect("lines").iter();
        let of = |line: &&serde_json::Value| line["key"] == *key && line["model"].as_str() == model;
        lines.clone().find(of).unwrap_or_else(|| panic!("{told}")).clone()
    };
    let twice = line("a", Some("tiny"));
    assert_eq!((&twice["tenant"], &twice["requests"]), (&"acme".into(), &2.into()));
    assert_eq!(twice["completion_tokens"], 6);
    assert!(twice["prompt_tokens"].as_u64() > Some(0), "{told}");
    assert_eq!(line("b", Some("tiny"))["completion_tokens"], 3);
    assert_eq!(line("b", None)["errors"], 1);
    let labels = [("tenant", "acme"), ("kind", "completion")];
    assert_eq!(Page::of(&node).sum("spillway_tenant_tokens_total", &labels), 9.0);
}
