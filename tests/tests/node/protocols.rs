//! Every endpoint of the built-in protocols, routes of one's own, and the shape of errors.

use http::{Method, Request};
use serde_json::Value;
use spillway_node::Node;
use spillway_tests::{
    Client, ClientBody, OK, Reply, Scripted, Setup, both, emulator, full, get, message, post,
};

async fn ask(client: &mut Client, request: Request<ClientBody>) -> Reply {
    let path = request.uri().to_string();
    let reply = client.fetch(request).await;
    assert_eq!(reply.status, 200, "{path}: {:?}", reply.body);
    reply
}

#[tokio::test]
async fn every_openai_endpoint_answers() {
    let emulator = emulator(2).await;
    let node = Setup::new().emulated(&emulator).start().await;
    for client in &mut both(&node).await {
        let chat = r#"{"model":"tiny","max_tokens":4,"messages":[{"role":"user","content":"hi"}]}"#;
        let reply = ask(client, post("/v1/chat/completions", chat)).await.json();
        assert_eq!(reply["choices"][0]["message"]["role"], "assistant");
        let text = r#"{"model":"tiny","max_tokens":4,"prompt":"hi"}"#;
        assert_eq!(
            ask(client, post("/v1/completions", text)).await.json()["object"],
            "text_completion"
        );
        let text = r#"{"model":"tiny","max_tokens":4,"prompt":"hi","stream":true}"#;
        let stream = ask(client, post("/v1/completions", text)).await;
        assert_eq!(stream.events().last(), Some(&"data: [DONE]\n\n"));
        let input = r#"{"model":"tiny","input":"hi","max_output_tokens":4}"#;
        assert_eq!(ask(client, post("/v1/responses", input)).await.json()["object"], "response");
        let input = r#"{"model":"tiny","input":"hi","max_output_tokens":4,"stream":true}"#;
        let stream = ask(client, post("/v1/responses", input)).await;
        assert!(stream.text().contains("event: response.incomplete\n"), "{}", stream.text());
        let input = r#"{"model":"tiny","input":["a","b"]}"#;
        let reply = ask(client, post("/v1/embeddings", input)).await.json();
        assert_eq!(reply["data"].as_array().map(Vec::len), Some(2));
        let input = r#"{"model":"tiny","query":"q","documents":["a","b"]}"#;
        for path in ["/v1/rerank", "/rerank"] {
            let reply = ask(client, post(path, input)).await.json();
            assert_eq!(reply["results"].as_array().map(Vec::len), Some(2), "{path}");
        }
        let input = r#"{"model":"tiny","input":"hi","voice":"x","response_format":"pcm"}"#;
        assert_eq!(ask(client, post("/v1/audio/speech", input)).await.body.len(), 2 * 2 * 1600);
        let input = r#"{"model":"tiny","prompt":"a cat"}"#;
        let reply = ask(client, post("/v1/images/generations", input)).await.json();
        assert!(reply["data"][0]["b64_json"].is_string());
        let reply = ask(client, upload("tiny")).await.json();
        assert!(reply["text"].is_string(), "{reply}");
    }
}

#[tokio::test]
async fn further_paths_of_engines_go_to_a_replica_of_the_model() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().replica("a", replica.address).start().await;
    let client = &mut Client::http1(node.addresses()[0]).await;
    for path in [
        "/v1/chat/completions/batch",
        "/invocations",
        "/generative_scoring",
        "/v2/embed",
        "/v2/rerank",
        "/pooling",
        "/v1/score",
        "/score",
        "/tokenize",
        "/v1/detokenize",
    ] {
        ask(client, post(path, r#"{"model":"tiny","messages":[[],[]]}"#)).await;
        assert!(
            replica.requests.last().first_line().starts_with(&format!("POST {path} ")),
            "{path}"
        );
        // Errors have the form that engines give them there.
        let reply = client.fetch(post(path, r#"{"model":"other"}"#)).await;
        assert_eq!((reply.status, reply.code()), (404, Some("model_not_found")), "{path}");
        assert_eq!(reply.json()["error"]["type"], "invalid_request_error", "{path}");
    }
}

#[tokio::test]
async fn a_path_that_needs_a_route_is_served_with_the_route_that_its_404_names() {
    let body = r#"{"model":"tiny","messages":[]}"#;
    for path in ["/v1/messages", "/v1/messages/count_tokens", "/v2/chat", "/api/chat", "/version"] {
        let replica = Scripted::start().await.serve(OK);
        let node = Setup::new().replica("a", replica.address).start().await;
        let reply = Client::once(node.addresses()[0], post(path, body)).await;
        assert_eq!((reply.status, reply.code()), (404, Some("route_not_found")), "{path}");
        let error = reply.json();
        let is_anthropic = path.starts_with("/v1/messages");
        assert_eq!(error["type"] == "error", is_anthropic, "{error}");
        let message = error["error"]["message"].as_str().expect("a text");
        let (_, route) = message.split_once("\n\n").expect("a route");
        let node = Setup::new().replica("a", replica.address).table(route).start().await;
        let client = &mut Client::http1(node.addresses()[0]).await;
        ask(client, post(path, body)).await;
        assert!(
            replica.requests.last().first_line().starts_with(&format!("POST {path} ")),
            "{path}"
        );
        // All other requests are served as before.
        ask(client, post("/v1/chat/completions", body)).await;
    }
}

fn upload(model: &str) -> Request<ClientBody> {
    let body = format!(
        "--X\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n{}\r\n\
         --X\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n--X--\r\n",
        "RIFF".repeat(1000)
    );
    let content_type = "multipart/form-data; boundary=X";
    message(Method::POST, "/v1/audio/transcriptions", content_type, full(body))
}

#[tokio::test]
async fn models_and_aliases_are_listed() {
    let emulator = emulator(1).await;
    let setup = Setup::new().set("aliases.\"gpt-4o\" = \"tiny\"").emulated(&emulator);
    let node = setup.start().await;
    for client in &mut both(&node).await {
        let list = ask(client, get("/v1/models")).await.json();
        let ids: Vec<&str> = list["data"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|m| m["id"].as_str())
            .collect();
        assert_eq!(ids, ["tiny", "gpt-4o"]);
        assert_eq!(ask(client, get("/v1/models/gpt-4o")).await.json()["id"], "gpt-4o");
        let unknown = client.fetch(get("/v1/models/other")).await;
        assert_eq!((unknown.status, unknown.code()), (404, Some("model_not_found")));
    }
}

#[tokio::test]
async fn v2_answers_in_json_and_in_binary() {
    let emulator = emulator(2).await;
    let setup = Setup::new()
        .set("aliases.\"my alias\" = \"tiny\"")
        .set("aliases.models = \"tiny\"")
        .emulated(&emulator);
    let node = setup.start().await;
    for client in &mut both(&node).await {
        for path in ["/v2/health/live", "/v2/health/ready", "/livez", "/readyz"] {
            ask(client, get(path)).await;
        }
        assert_eq!(ask(client, get("/v2")).await.json()["name"], "spillway");
        for path in ["/v2/models/tiny", "/v2/models/my%20alias", "/v2/models/tiny/versions/1"] {
            assert_eq!(ask(client, get(path)).await.json()["name"], "tiny", "{path}");
        }
        assert_eq!(ask(client, get("/v2/models/tiny/ready")).await.json()["ready"], true);
        let json = r#"{"inputs":[{"name":"INPUT0","shape":[2],"datatype":"FP32","data":[1.5,2]}]}"#;
        for path in
            ["/v2/models/tiny/infer", "/v2/models/my%20alias/infer", "/v2/models/models/infer"]
        {
            let reply = ask(client, post(path, json)).await.json();
            assert_eq!(reply["outputs"][0]["data"], serde_json::json!([1.5, 2]), "{path}");
        }
        let head = r#"{"inputs":[{"name":"INPUT0","shape":[2],"datatype":"FP32","parameters":{"binary_data_size":8}}],"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}"#;
        let tensor = [0, 0, 0xc0, 0x3f, 0, 0, 0, 0x40];
        let body = [head.as_bytes(), &tensor].concat();
        let kind = "application/octet-stream";
        let mut request = message(Method::POST, "/v2/models/tiny/infer", kind, full(body));
        let length = head.len().to_string().parse().expect("a header");
        request.headers_mut().insert("inference-header-content-length", length);
        let reply = ask(client, request).await;
        let length: usize =
            reply.header("inference-header-content-length").expect("binary").parse().expect("n");
        assert_eq!(&reply.body[length..], tensor);
    }
}

#[tokio::test]
async fn a_route_of_one_s_own_is_served_below_its_prefix() {
    let replica = Scripted::start().await.serve(OK);
    let route = |name: &str, prefix: &str, rest: &str| {
        format!("[[route]]\nname = \"{name}\"\npath_prefix = \"{prefix}\"\n{rest}\n")
    };
    let setup = Setup::new()
        .set("aliases.\"gpt-4o\" = \"tiny\"")
        .table(route("raw", "/v1/predict", "replace_prefix = \"/serve\""))
        .table(route("json", "/json", "replace_prefix = \"\"\nprotocol = \"openai\""))
        .table(route("two", "/two", "protocol = \"v2\"\nmodel = \"tiny\""));
    let node = setup.replica("a", replica.address).start().await;
    for client in &mut both(&node).await {
        let mut check = async |method: Method, path: &str, body: &'static str, seen: &str| {
            ask(client, message(method.clone(), path, "a/b", full(body))).await;
            let last = replica.requests.last();
            assert_eq!(last.first_line(), format!("{method} {seen} HTTP/1.1"));
            last.text()
        };
        let raw =
            check(Method::PUT, "/v1/predict/a%20b?q=1", "\0 not json", "/serve/a%20b?q=1").await;
        assert_eq!(raw, "\0 not json");
        check(Method::GET, "/v1/predict", "", "/serve").await;
        let json = check(Method::POST, "/json/v1/x", r#"{"model":"gpt-4o"}"#, "/v1/x").await;
        assert_eq!(json, r#"{"model":"tiny"}"#);
        check(Method::POST, "/two/x", "anything", "/two/x").await;
    }
    let mut client = Client::http1(node.addresses()[0]).await;
    assert_eq!(client.fetch(get("/v1/predictor")).await.code(), Some("route_not_found"));
}

#[tokio::test]
async fn errors_have_the_shape_of_the_path_s_protocol() {
    let dead = Scripted::refusing();
    let raw = "[[route]]\nname = \"raw\"\npath_prefix = \"/raw\"\n";
    let two = "[[route]]\nname = \"two\"\npath_prefix = \"/two\"\nprotocol = \"v2\"\n";
    let node = Setup::new().table(raw).table(two).replica("a", dead).start().await;
    let body = r#"{"model":"tiny"}"#;
    for client in &mut both(&node).await {
        for path in ["/v1/chat/completions", "/v1/embeddings", "/v1/responses"] {
            check_openai(&client.fetch(post(path, body)).await, 502, "replica_connect");
        }
        check_openai(&client.fetch(get("/v1/nothing")).await, 404, "route_not_found");
        check_openai(&client.fetch(get("/v1/chat/completions")).await, 405, "method_not_allowed");
        let delete = message(Method::DELETE, "/v1/models", "a/b", full(""));
        check_openai(&client.fetch(delete).await, 405, "method_not_allowed");
        check_openai(&client.fetch(upload("other")).await, 404, "model_not_found");
        for path in ["/v2/models/tiny/infer", "/two"] {
            check_v2(&client.fetch(post(path, body)).await, 502, "replica_connect");
        }
        check_v2(&client.fetch(post("/v2/models/x/infer", body)).await, 404, "model_not_found");
        check_v2(&client.fetch(get("/v2/nothing")).await, 404, "route_not_found");
        let reply = client.fetch(post("/raw/x", body)).await;
        assert_eq!((reply.status, reply.code()), (502, Some("replica_connect")));
        assert_eq!(reply.json()["error"]["code"], "replica_connect");
        let reply = client.fetch(get("/nothing")).await;
        assert_eq!((reply.status, reply.code()), (404, Some("route_not_found")));
    }
}

fn check_openai(reply: &Reply, status: u16, code: &str) {
    assert_eq!((reply.status, reply.code()), (status, Some(code)), "{:?}", reply.body);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let error = &reply.json()["error"];
    assert_eq!(error["code"], code);
    assert!(error["message"].is_string() && error["type"].is_string(), "{error}");
    assert!(error.get("param").is_some(), "{error}");
}

fn check_v2(reply: &Reply, status: u16, code: &str) {
    assert_eq!((reply.status, reply.code()), (status, Some(code)), "{:?}", reply.body);
    assert!(matches!(reply.json()["error"], Value::String(_)), "{:?}", reply.body);
}

#[tokio::test]
async fn an_unknown_model_is_answered_with_those_that_exist() {
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new().set("aliases.\"gpt-4o\" = \"tiny\"").replica("a", replica.address);
    let node = setup.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let reply = client.fetch(post("/v1/completions", r#"{"model":"gpt-5"}"#)).await;
    check_openai(&reply, 404, "model_not_found");
    let error = reply.json();
    let message = error["error"]["message"].as_str().expect("a message");
    for name in ["gpt-5", "gpt-4o", "tiny"] {
        assert!(message.contains(name), "{message}");
    }
    assert_eq!(error["error"]["param"], "model");
}

#[tokio::test]
async fn a_node_without_replicas_lives_but_is_not_ready() {
    let node: Node = Setup::new().start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    assert_eq!(client.fetch(get("/livez")).await.status, 200);
    assert_eq!(client.fetch(get("/readyz")).await.status, 503);
    assert_eq!(client.fetch(get("/v2/health/ready")).await.status, 503);
    let mut admin = Client::http1(node.admin_address().expect("one")).await;
    assert_eq!(admin.fetch(get("/livez")).await.status, 200);
    assert_eq!(admin.fetch(get("/readyz")).await.status, 503);
    assert_eq!(admin.fetch(get("/other")).await.status, 404);
}
