//! Behavior that clients of a bare model server expect of any server in its place.

use http::{HeaderValue, Method, Request};
use serde_json::{Value, json};
use spillway_node::Node;
use spillway_tests::{
    Client, ClientBody, OK, RAW_ROUTE, Scripted, Serving, Setup, Wire, both, chat, emulator,
    eventually, full, get, message, post, streamed, within,
};

use crate::config::check;
use crate::reload::{File, reloads};

const BODY: &str = r#"{"model":"tiny"}"#;
/// Paths below /custom are read as OpenAI's.
const CUSTOM: &str = "[[route]]\nname = \"c\"\npath_prefix = \"/custom\"\nprotocol = \"openai\"\n";

fn with(
    mut request: Request<ClientBody>,
    headers: &[(&'static str, &'static str)],
) -> Request<ClientBody> {
    for (name, value) in headers {
        request.headers_mut().append(*name, HeaderValue::from_static(value));
    }
    request
}

fn bare(method: Method, path: &str) -> Request<ClientBody> {
    message(method, path, "text/plain", full(""))
}

/// A replica that answers everything with this page of models.
async fn listing(models: Value) -> Serving {
    // The page is an answer to a chat as well.
    let choice = json!({"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"});
    let page = json!({"object": "list", "data": models, "choices": [choice]}).to_string();
    let length = page.len();
    let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{page}");
    Scripted::start().await.serve(reply)
}

/// Returns the model's card, once `is_told` accepts it.
async fn card(node: &Node, id: &str, is_told: impl Fn(&Value) -> bool) -> Value {
    let mut client = Client::http1(node.addresses()[0]).await;
    within("the card", async {
        loop {
            let reply = client.fetch(get(&format!("/v1/models/{id}"))).await.json();
            if is_told(&reply) {
                return reply;
            }
            // wait: until the replica's page was read.
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await
}

/// Returns the record of a replica in the admin API, once `is_told` accepts it.
async fn member(node: &Node, name: &str, is_told: impl Fn(&Value) -> bool) -> Value {
    let mut client = Client::http1(node.admin_address().expect("one")).await;
    within("the replica", async {
        loop {
            let members = client.fetch(get("/replicas")).await.json();
            let mut all = members.as_array().into_iter().flatten();
            match all.find(|member| member["name"] == name && is_told(member)) {
                Some(member) => return member.clone(),
                // wait: until the replica's page was read.
                None => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
            }
        }
    })
    .await
}

#[tokio::test]
async fn health_is_asked_for_as_at_a_model_server_and_without_a_key() {
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new().set("auth.mode = \"keys\"");
    let node = setup.clone().replica("a", replica.address).start().await;
    let empty = setup.start().await;
    for path in ["/health", "/ping", "/health/", "/readyz", "/livez"] {
        for method in [Method::GET, Method::HEAD] {
            for client in &mut both(&node).await {
                let reply = client.fetch(bare(method.clone(), path)).await;
                assert_eq!(reply.status, 200, "{method} {path}");
            }
        }
        let reply = Client::once(empty.addresses()[0], get(path)).await;
        assert_eq!(reply.status, if path == "/livez" { 200 } else { 503 }, "{path}");
    }
    let reply = Client::once(node.addresses()[0], bare(Method::POST, "/health")).await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")));
    assert_eq!(Client::once(node.addresses()[0], get("/v1/models")).await.status, 401);
    assert_eq!(replica.requests.count(), 0);
}

#[tokio::test]
async fn an_unknown_path_is_told_the_known_one_that_is_near() {
    let node = Setup::new().replica("a", Scripted::refusing()).start().await;
    for (path, near) in [
        ("/v1/chat/completion", Some("/v1/chat/completions")),
        ("/v1/v1/chat/completions", Some("/v1/chat/completions")),
        ("/chat/completions", Some("/v1/chat/completions")),
        ("/v1/embedding", Some("/v1/embeddings")),
        ("/healthz", Some("/health")),
        ("/nothing/like/it", None),
    ] {
        let reply = Client::once(node.addresses()[0], post(path, BODY)).await;
        assert_eq!((reply.status, reply.code()), (404, Some("route_not_found")), "{path}");
        let message = format!("nothing is served at POST {path}");
        let hint = near.map(|near| format!(": did you mean {near}?")).unwrap_or_default();
        let error = &reply.json()["error"];
        assert_eq!(error["message"], format!("{message}{hint}"), "{path}");
    }
}

#[tokio::test]
async fn models_are_told_as_their_replicas_tell_them_where_they_agree() {
    let vllm = |length: u32, meta: &str| {
        json!([{"id": "tiny", "object": "model", "created": length, "owned_by": "vllm",
            "root": "/models/tiny", "parent": null, "max_model_len": length, "meta": meta,
            "permission": [{"id": format!("modelperm-{length}"), "allow_view": true}]}])
    };
    let (a, b) = (listing(vllm(4096, "a")).await, listing(vllm(2048, "b")).await);
    let setup = Setup::new()
        .set("health.check = \"tcp\"")
        .set("aliases.\"a-name\" = \"tiny\"")
        .replica("a", a.address)
        .replica_with("c", &format!("http://{}", Scripted::refusing()), "models = [\"quiet\"]")
        .replica("b", b.address);
    let node = setup.start().await;
    let is_agreed = |card: &Value| card["max_model_len"] == 2048 && card.get("meta").is_none();
    let tiny = card(&node, "tiny", is_agreed).await;
    let created = tiny["created"].clone();
    let expected = json!({"id": "tiny", "object": "model", "created": created,
        "owned_by": "spillway", "root": "/models/tiny", "parent": null, "max_model_len": 2048,
        "permission": [{"allow_view": true}]});
    assert_eq!(tiny, expected);
    let alias = card(&node, "a-name", |_| true).await;
    assert_eq!((&alias["id"], &alias["root"]), (&json!("a-name"), &json!("/models/tiny")));
    assert_eq!(alias["max_model_len"], 2048);
    let quiet = card(&node, "quiet", |_| true).await;
    assert_eq!((&quiet["root"], &quiet["parent"]), (&json!("quiet"), &Value::Null));
    let list = Client::once(node.addresses()[0], get("/v1/models")).await.json();
    let ids = list["data"].as_array().into_iter().flatten().map(|card| card["id"].clone());
    // Clients that know no model use the first of the list.
    assert_eq!(ids.collect::<Vec<_>>(), ["quiet", "tiny", "a-name"]);
    assert_eq!(list["data"][1], tiny);
}

#[tokio::test]
async fn a_replica_without_a_readable_page_of_models_is_served_as_ever() {
    for reply in [OK, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"] {
        let replica = Scripted::start().await.serve(reply);
        let setup = Setup::new().set("health.check = \"tcp\"").replica("a", replica.address);
        let node = setup.start().await;
        let asked =
            || replica.requests.all().iter().any(|it| it.first_line().contains("/v1/models"));
        eventually("the page is asked for", asked).await;
        let tiny = card(&node, "tiny", |_| true).await;
        assert_eq!((&tiny["root"], tiny.get("max_model_len")), (&json!("tiny"), None));
        let reply = Client::once(node.addresses()[0], chat("tiny", "")).await;
        assert_eq!(reply.code(), None, "{reply:?}");
    }
}

#[tokio::test]
async fn a_model_that_a_replica_does_not_have_is_told_and_asked_of_others() {
    let wrong = listing(json!([{"id": "llama-3.1-8b", "owned_by": "vllm"}])).await;
    let right = listing(json!([{"id": "tiny", "owned_by": "vllm"}])).await;
    let setup = Setup::new().set("health.check = \"tcp\"").replica("a", wrong.address);
    let both = setup.clone().replica("b", right.address).start().await;
    let is_denied = |member: &Value| member["models_denied"] == json!(["tiny"]);
    let told = member(&both, "a", is_denied).await;
    assert_eq!(told["models_told"], json!(["llama-3.1-8b"]));
    let told = member(&both, "b", |member| !member["models_told"].is_null()).await;
    assert_eq!(told["models_denied"], json!([]));
    let chats = |replica: &Serving| {
        let all = replica.requests.all();
        all.iter().filter(|request| request.first_line().starts_with("POST")).count()
    };
    let mut client = Client::http1(both.addresses()[0]).await;
    for _ in 0..20 {
        assert_eq!(client.fetch(chat("tiny", "")).await.status, 200);
    }
    assert_eq!((chats(&wrong), chats(&right)), (0, 20));
    // Where no other replica has it, the replica's own answer is more precise than the gateway's.
    let alone = setup.start().await;
    member(&alone, "a", is_denied).await;
    assert_eq!(Client::once(alone.addresses()[0], chat("tiny", "")).await.status, 200);
    assert_eq!(chats(&wrong), 1);
}

#[tokio::test]
async fn what_stands_below_responses_without_being_an_id_goes_by_the_model() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().replica("a", replica.address).start().await;
    for client in &mut both(&node).await {
        for path in ["/v1/responses/input_tokens", "/v1/responses/compact"] {
            let reply = client.fetch(post(path, r#"{"model":"tiny","input":"hi"}"#)).await;
            assert_eq!((reply.status, reply.text()), (200, "ok"), "{path}");
            let line = format!("POST {path} HTTP/1.1");
            assert_eq!(replica.requests.last().first_line(), line);
            let reply = client.fetch(post(path, r#"{"model":"huge","input":"hi"}"#)).await;
            assert_eq!(reply.code(), Some("model_not_found"), "{path}");
        }
    }
}

#[tokio::test]
async fn pages_of_allowed_origins_may_use_it_from_a_browser() {
    const PAGE: &str = "https://chat.example";
    let allowing =
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\naccess-control-allow-origin: *\r\n\r\nok";
    let replica = Scripted::start().await.serve(allowing);
    let setup = Setup::new()
        .set("auth.mode = \"keys\"")
        .listener("auth = \"keys\"\n[[listener]]\naddress = \"127.0.0.1:0\"\nauth = \"none\"")
        .table(RAW_ROUTE)
        .replica("a", replica.address);
    let node = setup.clone().set("cors.allowed_origins = [\"https://chat.example\"]").start().await;
    let (keyed, open) = (node.addresses()[0], node.addresses()[1]);
    let preflight = |path: &str, origin: &'static str| {
        let asks = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "authorization,content-type"),
        ];
        with(bare(Method::OPTIONS, path), &asks)
    };
    for path in ["/v1/chat/completions", "/v1/models", "/raw/x", "/nowhere"] {
        for mut client in [Client::http1(keyed).await, Client::http2(keyed).await] {
            let reply = client.fetch(preflight(path, PAGE)).await;
            assert_eq!(reply.status, 204, "{path}");
            assert_eq!(reply.header("access-control-allow-origin"), Some(PAGE), "{path}");
            let headers = reply.header("access-control-allow-headers");
            assert_eq!(headers, Some("authorization,content-type"));
            assert!(
                reply.header("access-control-allow-methods").is_some_and(|it| it.contains("POST"))
            );
        }
        let reply = Client::once(keyed, preflight(path, "https://evil.example")).await;
        assert_eq!((reply.status, reply.header("access-control-allow-origin")), (204, None));
    }
    assert_eq!(replica.requests.count(), 0, "preflights end at the gateway");
    let own = [("origin", PAGE)];
    for (address, request, status) in [
        (open, chat("tiny", ""), 200),
        (open, chat("huge", ""), 404),
        (open, get("/v1/models"), 200),
        (open, get("/health"), 200),
        (keyed, chat("tiny", ""), 401),
    ] {
        let path = request.uri().to_string();
        let reply = Client::once(address, with(request, &own)).await;
        assert_eq!(reply.status, status, "{path}");
        assert_eq!(reply.header("access-control-allow-origin"), Some(PAGE), "{path}");
        assert_eq!(reply.header("vary"), Some("Origin"), "{path}");
    }
    for origin in [&[("origin", "https://evil.example")][..], &[]] {
        let reply = Client::once(open, with(chat("tiny", ""), origin)).await;
        let leave = reply.header("access-control-allow-origin");
        assert_eq!((reply.status, leave, reply.header("vary")), (200, None, Some("Origin")));
    }
    let off = setup.start().await;
    let reply = Client::once(off.addresses()[0], preflight("/v1/chat/completions", PAGE)).await;
    assert_eq!(reply.status, 401, "off by default");
    let reply = Client::once(off.addresses()[1], with(chat("tiny", ""), &own)).await;
    assert_eq!(reply.header("access-control-allow-origin"), None, "no replica gives leave");
}

#[tokio::test]
async fn a_page_cannot_use_a_listener_without_keys_unless_its_origin_is_allowed() {
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new()
        .listener("auth = \"none\"\n[[listener]]\naddress = \"127.0.0.1:0\"\nauth = \"keys\"")
        .table(RAW_ROUTE)
        .replica("a", replica.address);
    let node = setup.start().await;
    let (open, keyed) = (node.addresses()[0], node.addresses()[1]);
    let body = r#"{"model":"tiny","messages":[]}"#;
    let simple = |path: &str| message(Method::POST, path, "text/plain;charset=UTF-8", full(body));
    let evil = [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")];
    for (path, form) in [
        ("/v1/chat/completions", "\"code\":\"origin_not_allowed\""),
        ("/v1/messages", "\"type\":\"permission_error\""),
        ("/raw/x", "allowed_origins"),
    ] {
        for headers in [&evil[..], &evil[..1], &evil[1..]] {
            let reply = Client::once(open, with(simple(path), headers)).await;
            assert_eq!(reply.status, 403, "{path} {headers:?}: {}", reply.text());
            assert!(reply.text().contains(form), "{path}: {}", reply.text());
            assert!(reply.text().contains("allowed_origins"), "{path}: {}", reply.text());
        }
    }
    let image = with(get("/raw/x"), &evil[1..]);
    assert_eq!(Client::once(open, image).await.status, 403, "a replica would work for it");
    assert_eq!(replica.requests.count(), 0);

    // No browser, a browser that has asked first, and a path that costs nothing.
    for (request, status) in [
        (simple("/v1/chat/completions"), 200),
        (with(chat("tiny", ""), &evil), 200),
        (with(get("/v1/models"), &evil[1..]), 200),
        (with(get("/health"), &evil[1..]), 200),
    ] {
        assert_eq!(Client::once(open, request).await.status, status);
    }
    let reply = Client::once(keyed, with(simple("/v1/chat/completions"), &evil)).await;
    assert_eq!(reply.status, 401, "a key decides there");
    let node = setup.set("cors.allowed_origins = [\"https://evil.example\"]").start().await;
    let reply = Client::once(node.addresses()[0], with(simple("/raw/x"), &evil)).await;
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn origins_follow_the_config_without_a_restart() {
    let setup = Setup::new().replica("a", Scripted::refusing());
    let file = File::new(&setup);
    let node = file.start().await;
    let preflight = || {
        let asks = [("origin", "https://a.example"), ("access-control-request-method", "POST")];
        Client::once(node.addresses()[0], with(bare(Method::OPTIONS, "/v1/models"), &asks))
    };
    assert_eq!(preflight().await.status, 405);
    file.replace(&setup.set("cors.allowed_origins = [\"*\"]").text());
    eventually("it is applied", || reloads(&node, "applied") >= 1.0).await;
    let reply = preflight().await;
    let leave = reply.header("access-control-allow-origin");
    assert_eq!((reply.status, leave, reply.header("vary")), (204, Some("*"), None));
}

#[test]
fn what_is_no_origin_is_told_with_its_place_and_a_remedy() {
    let cors = |origin: &str| format!("[cors]\nallowed_origins = [\"*\", \"{origin}\"]\n");
    for origin in ["chat.example", "https://chat.example/", "https://a/b", ""] {
        check(&cors(origin), (2, 25), "is no origin", "https://chat.example");
    }
}

#[tokio::test]
async fn a_websocket_is_refused_in_the_form_of_its_path() {
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new().table(RAW_ROUTE).replica("a", replica.address);
    let node = setup.start().await;
    for (path, pointer) in [
        ("/v1/realtime", "/error/code"),
        ("/raw/x", "/error/code"),
        ("/v2/models/tiny/infer", "/code"),
    ] {
        let upgrade = [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let reply = Client::once(node.addresses()[0], with(get(path), &upgrade)).await;
        assert_eq!((reply.status, reply.code()), (501, Some("not_implemented")), "{path}");
        assert_eq!(reply.json().pointer(pointer), Some(&json!("not_implemented")), "{path}");
    }
    assert_eq!(replica.requests.count(), 0);
}

#[tokio::test]
async fn errors_about_messages_are_told_in_anthropics_form() {
    let setup = Setup::new().table(CUSTOM).replica("a", Scripted::refusing());
    let raw = "[[route]]\nname = \"m\"\npath_prefix = \"/m/v1/messages\"\n";
    let node = setup.table(raw).start().await;
    for (path, body, status, kind) in [
        ("/v1/messages", BODY, 404, "not_found_error"),
        ("/custom/v1/messages", r#"{"model":"huge"}"#, 404, "not_found_error"),
        ("/custom/v1/messages", "{", 400, "invalid_request_error"),
        ("/custom/v1/messages/count_tokens", BODY, 502, "api_error"),
        ("/m/v1/messages", BODY, 502, "api_error"),
    ] {
        let reply = Client::once(node.addresses()[0], post(path, body)).await;
        assert_eq!(reply.status, status, "{path}");
        let error = reply.json();
        assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!(kind)));
        assert_eq!(error["error"]["code"].as_str(), reply.code(), "{path}");
    }
    let keyed = Setup::new().set("auth.mode = \"keys\"").start().await;
    let reply = Client::once(keyed.addresses()[0], post("/v1/messages", BODY)).await;
    assert_eq!(reply.json()["error"]["type"], "authentication_error");
}

#[tokio::test]
async fn a_get_where_the_model_stands_in_the_body_is_told_so() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().table(CUSTOM).replica("a", replica.address).start().await;
    for method in [Method::GET, Method::HEAD, Method::DELETE] {
        let reply = Client::once(node.addresses()[0], bare(method.clone(), "/custom/v1/x")).await;
        assert_eq!((reply.status, reply.code()), (400, Some("bad_request")), "{method}");
        if method != Method::HEAD {
            let message = reply.json()["error"]["message"].to_string();
            assert!(message.contains("send POST"), "{message}");
        }
    }
    assert_eq!(replica.requests.count(), 0);
}

#[tokio::test]
async fn a_refused_client_that_goes_on_sending_knows_what_becomes_of_its_connection() {
    let node = Setup::new().set("auth.mode = \"keys\"").start().await;
    let address = node.addresses()[0];
    let head = |length: usize| {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    // A short body that arrives soon is read, and the connection is kept.
    let mut wire = Wire::connect(address).await;
    for _ in 0..3 {
        wire.send(head(200_000)).await;
        wire.send("x".repeat(200_000)).await;
        let reply = wire.message().await;
        assert_eq!((reply.status(), reply.header("connection")), (401, None));
    }
    // Otherwise the reply announces that the connection closes.
    for (rest, lines) in [("", ""), ("x", "expect: 100-continue\r\n")] {
        let mut wire = Wire::connect(address).await;
        wire.send(head(10).replace("host: h\r\n", &format!("host: h\r\n{lines}"))).await;
        wire.send(if lines.is_empty() { rest } else { "" }).await;
        let reply = wire.message().await;
        assert_eq!((reply.status(), reply.header("connection")), (401, Some("close")), "{lines}");
        wire.end().await;
    }
    // A known path or not, with a body that never ends.
    for path in ["/v1/chat/completions", "/nowhere"] {
        let (_sender, body) = streamed();
        let request = message(Method::POST, path, "application/json", body);
        let reply = Client::once(address, request).await;
        assert_eq!((reply.status, reply.header("connection")), (401, Some("close")), "{path}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_long_ends_its_connection_in_as_many_words() {
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new().set("limits.body_bytes_max = 1000").replica("a", replica.address);
    let node = setup.start().await;
    for length in [2_000, 8 << 20] {
        let body = full(vec![b'x'; length]);
        let request = message(Method::POST, "/v1/chat/completions", "application/json", body);
        let mut client = Client::http1(node.addresses()[0]).await;
        // The connection may break while the rest is sent, but not before the answer was.
        let Ok(response) = client.send(request).await else {
            assert!(length > 1 << 20, "the answer got lost");
            continue;
        };
        assert_eq!(response.status(), 413);
        // A connection whose body was read to its end can serve another request.
        let close = response.headers().get("connection").and_then(|value| value.to_str().ok());
        assert!(length < 1 << 20 || close == Some("close"), "{close:?}");
    }
}

#[tokio::test]
async fn two_credentials_are_refused_where_none_is_asked_for_too() {
    let replica = Scripted::start().await.serve(OK);
    let route = "[[route]]\nname = \"llm\"\nforward_authorization = true\n";
    let node = Setup::new().table(route).replica("a", replica.address).start().await;
    let two = [("authorization", "Bearer one"), ("authorization", "Bearer two")];
    for client in &mut both(&node).await {
        let reply = client.fetch(with(chat("tiny", ""), &two)).await;
        assert_eq!((reply.status, reply.code()), (400, Some("bad_request")));
    }
    assert_eq!(replica.requests.count(), 0);
}

#[tokio::test]
async fn a_load_that_can_not_be_true_is_refused() {
    let emulator = emulator(1).await;
    let node = Setup::new().emulated(&emulator).start().await;
    let admin = node.admin_address().expect("one");
    for (report, status) in [
        (r#"{"pending": -1}"#, 400),
        (r#"{"queued": 1e39}"#, 400),
        (r#"{"kv_use": 85}"#, 400),
        (r#"{"pending": 0, "kv_use": 0.85}"#, 200),
    ] {
        let reply = Client::once(admin, post("/replicas/r0/load", report)).await;
        assert_eq!(reply.status, status, "{report}: {:?}", reply.body);
    }
}
