//! Prompts of isolated tenants at engines: no tenant can learn from the cache what another has
//! asked.

use http::{HeaderValue, Method, Request};
use serde_json::{Value, json};
use spillway_node::Node;
use spillway_tests::{
    Client, ClientBody, OK, Reply, Scripted, Serving, Setup, chat, emulator, full, message, post,
};

const TENANTS: &str = "[[tenant]]\nname = \"victim\"\nisolate_prompts = true\n\
    [[tenant]]\nname = \"attacker\"\nisolate_prompts = true\n";

fn setup() -> Setup {
    let trust = "auth = \"headers\"\ntrusted_proxies = [\"127.0.0.1/32\"]";
    Setup::new().listener(trust).table(TENANTS)
}

fn secret(guess: &str, extra: &Value) -> Value {
    let content = format!("{guess} {}", "and so on for a long while ".repeat(120));
    let mut body = json!({"model": "tiny", "max_tokens": 2, "messages": [{"role": "user", "content": content}]});
    body.as_object_mut().expect("an object").extend(extra.as_object().expect("one").clone());
    body
}

async fn ask(node: &Node, tenant: &'static str, body: &Value) -> Reply {
    let mut request = post("/v1/chat/completions", body.to_string());
    request.headers_mut().insert("x-spillway-tenant", HeaderValue::from_static(tenant));
    let reply = Client::once(node.addresses()[0], request).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply
}

fn cached(reply: &Reply) -> u64 {
    reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number")
}

/// The body of the last request but those by which a node looks at a replica's load.
fn last_post(serving: &Serving) -> String {
    let mut posts = serving.requests.all();
    posts.retain(|request| request.first_line().starts_with("POST"));
    posts.pop().expect("a request").text()
}

fn of(tenant: &'static str, mut request: Request<ClientBody>) -> Request<ClientBody> {
    request.headers_mut().insert("x-spillway-tenant", HeaderValue::from_static(tenant));
    request
}

#[tokio::test]
async fn an_isolated_tenant_finds_its_own_prompts_in_the_cache_and_nobody_elses() {
    for kind in ["vllm", "sglang"] {
        let emulator = emulator(1).await;
        let url = format!("http://{}", emulator.addresses()[0]);
        let kind = format!("kind = \"{kind}\"\nmodels = [\"tiny\"]\n");
        let node = setup().replica_with("one", &url, &kind).start().await;
        let own = secret("the diagnosis is gout", &json!({}));
        assert_eq!(cached(&ask(&node, "victim", &own).await), 0);
        assert!(cached(&ask(&node, "victim", &own).await) > 500, "its own prompt is cached");
        assert_eq!(cached(&ask(&node, "attacker", &own).await), 0, "a right guess");
        let wrong = secret("the diagnosis is flu!", &json!({}));
        assert_eq!(cached(&ask(&node, "attacker", &wrong).await), 0, "a wrong guess");
        // Whatever salt an attacker names, it is not the victim's.
        for salt in [json!(null), json!(""), json!("victim"), json!(["victim"])] {
            let salted =
                secret("the diagnosis is gout", &json!({"cache_salt": salt, "extra_key": "x"}));
            assert_eq!(cached(&ask(&node, "attacker", &salted).await), 0, "{salt}");
        }
        let mine = secret("the diagnosis is gout", &json!({"cache_salt": "mine"}));
        assert_eq!(cached(&ask(&node, "victim", &mine).await), 0);
        assert!(cached(&ask(&node, "victim", &mine).await) > 500, "a salt of its own counts too");
    }
}

#[tokio::test]
async fn an_engine_without_a_salt_does_not_tell_what_it_had_cached() {
    let emulator = emulator(1).await;
    let node = setup().emulated(&emulator).start().await;
    for extra in [json!({}), json!({"stream": true, "stream_options": {"include_usage": true}})] {
        let own = secret("the diagnosis is gout", &extra);
        for tenant in ["victim", "attacker", "victim", "nobody in particular"] {
            let reply = ask(&node, tenant, &own).await;
            let cached = reply.text().split("\"cached_tokens\":").nth(1).expect("it is there");
            let number = cached.trim_start().chars().take_while(char::is_ascii_digit);
            assert_eq!(number.collect::<String>(), "0", "{tenant}: {}", reply.text());
        }
    }
}

#[tokio::test]
async fn the_salt_is_there_once_whatever_the_client_sent() {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    let node =
        setup().replica_with("one", &url, "kind = \"vllm\"\nmodels = [\"tiny\"]\n").start().await;
    let serving = replica.serve(OK);
    let mut salts = Vec::new();
    for (tenant, fields) in [
        ("victim", ""),
        ("attacker", ""),
        ("victim", ""),
        ("victim", r#","cache_salt":"s""#),
        ("victim", r#","cache_s\u0061lt":"s","extra_key":"k""#),
    ] {
        let mut request = chat("tiny", fields);
        request.headers_mut().insert("x-spillway-tenant", HeaderValue::from_static(tenant));
        assert_eq!(Client::once(node.addresses()[0], request).await.status, 200);
        let text = last_post(&serving);
        let body: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(text.replace("\\u0061", "a").matches("\"cache_salt\"").count(), 1, "{text}");
        salts.push(body["cache_salt"].as_str().expect("text").to_owned());
    }
    assert_eq!(salts[0], salts[2], "a tenant's salt stays");
    assert!(salts.iter().all(|salt| salt.len() == 64));
    salts.swap_remove(2);
    salts.sort_unstable();
    salts.dedup();
    assert_eq!(salts.len(), 4, "all others differ");
}

#[tokio::test]
async fn what_can_t_be_salted_does_not_tell_what_was_cached() {
    let usage = r#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens_details":{"cached_tokens":96}}}"#;
    let head = "content-type: application/json\r\ncontent-length: ";
    let reply = format!("HTTP/1.1 200 OK\r\n{head}{}\r\n\r\n{usage}", usage.len());
    let replica = Scripted::start().await.serve(reply);
    let url = format!("http://{}", replica.address);
    let node =
        setup().replica_with("one", &url, "kind = \"vllm\"\nmodels = [\"tiny\"]\n").start().await;
    let form = "--X\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ntiny\r\n--X--\r\n";
    let kind = "multipart/form-data; boundary=X";
    let upload = || message(Method::POST, "/v1/audio/transcriptions", kind, full(form));
    for (request, shown) in [
        (of("victim", upload()), usage.replace("96", "0 ")),
        (of("victim", chat("tiny", "")), usage.to_owned()),
        (of("somebody else", upload()), usage.to_owned()),
    ] {
        let reply = Client::once(node.addresses()[0], request).await;
        assert_eq!((reply.status, reply.text()), (200, &*shown));
    }
}

#[tokio::test]
async fn a_model_that_stands_in_gets_the_salt_too() {
    let small = Scripted::start().await.serve(OK);
    let refusing = format!("http://{}", Scripted::refusing());
    let node = setup()
        .set("fallback.big = [\"small\"]")
        .replica_with("a", &refusing, "kind = \"vllm\"\nmodels = [\"big\"]")
        .replica_with(
            "b",
            &format!("http://{}", small.address),
            "kind = \"vllm\"\nmodels = [\"small\"]",
        )
        .start()
        .await;
    let reply = Client::once(node.addresses()[0], of("victim", chat("big", ""))).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let body: Value = serde_json::from_str(&last_post(&small)).expect("JSON");
    assert_eq!(body["model"], "small");
    assert_eq!(body["cache_salt"].as_str().map(str::len), Some(64), "{body}");
}
