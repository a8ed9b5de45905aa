//! The little that is changed in a request, and in the stream that answers it.

use spillway_tests::{Client, OK, Page, Scripted, Setup, both, chat, emulator, eventually, post};

const INJECT: &str = "[[route]]\nname = \"llm\"\ninject_usage = true\n";

#[tokio::test]
async fn an_alias_changes_the_model_s_bytes_and_no_others() {
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new().set("aliases.\"gpt-4o\" = \"tiny\"").replica("a", replica.address);
    let node = setup.start().await;
    for client in &mut both(&node).await {
        for body in [
            "{\"model\":\"gpt-4o\"}",
            " {\n\t\"note\": \"gpt-4o \\\"model\\\": \\ud83d\\ude00\", \"model\" : \"gpt-4o\" , \"x\":1e3}\r\n",
            "{\"deep\":{\"model\":\"gpt-4o\"},\"model\":\"gpt-4o\"}",
            "{\"model\":\"gpt\\u002d4o\",\"n\":1}",
        ] {
            let sent = client.fetch(post("/v1/completions", body)).await;
            assert_eq!(sent.status, 200, "{}", sent.text());
            let at = body.rfind("\"model\"").expect("a model");
            let changed = body[at..].replace("gpt-4o", "tiny").replace("gpt\\u002d4o", "tiny");
            assert_eq!(replica.requests.last().text(), format!("{}{changed}", &body[..at]));
        }
    }
}

#[tokio::test]
async fn a_model_that_two_readers_could_read_differently_is_refused() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().replica("a", replica.address).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for body in [
        r#"{"model":"tiny","model":"other"}"#,
        r#"{"model":"tiny","mod\u0065l":"other"}"#,
        r#"{"mod\u0065l":"tiny","model":"other"}"#,
        r#"{"model":"tiny","Model":"tiny"}"#,
        r#"{"model":7}"#,
    ] {
        let reply = client.fetch(post("/v1/chat/completions", body)).await;
        assert_eq!((reply.status, reply.code()), (400, Some("bad_request")), "{body}");
    }
    assert_eq!(replica.requests.count(), 0);
}

#[tokio::test]
async fn usage_is_asked_for_and_its_chunk_taken_out_again() {
    let emulator = emulator(1).await;
    let plain = Setup::new().emulated(&emulator).start().await;
    let injecting = Setup::new().table(INJECT).emulated(&emulator).start().await;
    let request = || chat("tiny", r#","stream":true,"max_tokens":30"#);
    let expected = Client::once(plain.addresses()[0], request()).await.events().len();
    for client in &mut both(&injecting).await {
        let reply = client.fetch(request()).await;
        let events = reply.events();
        assert_eq!(events.len(), expected);
        assert_eq!(*events.last().expect("an event"), "data: [DONE]\n\n");
        assert!(!reply.text().contains("prompt_tokens"), "{}", reply.text());
        assert!(!reply.text().contains("\"choices\":[]"), "{}", reply.text());
    }
    let tokens = |kind| {
        Page::of(&injecting).sum("spillway_tokens_total", &[("kind", kind), ("model", "tiny")])
    };
    eventually("all completion tokens are counted", || tokens("completion") == 60.0).await;
    assert!(tokens("prompt") > 0.0);
}

#[tokio::test]
async fn a_client_that_asks_for_usage_gets_it() {
    let emulator = emulator(1).await;
    let node = Setup::new().table(INJECT).emulated(&emulator).start().await;
    let fields = r#","stream":true,"max_tokens":5,"stream_options":{"include_usage":true}"#;
    for client in &mut both(&node).await {
        let reply = client.fetch(chat("tiny", fields)).await;
        assert_eq!(reply.text().matches("\"completion_tokens\":5").count(), 1, "{}", reply.text());
    }
}

#[tokio::test]
async fn stream_options_are_added_to_the_body_and_nothing_else() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().table(INJECT).replica("a", replica.address).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let body = r#"{"model":"tiny","stream":true, "x":[1]}"#;
    client.fetch(post("/v1/completions", body)).await;
    let arrived: serde_json::Value =
        serde_json::from_slice(&replica.requests.last().body).expect("JSON");
    let mut expected: serde_json::Value = serde_json::from_str(body).expect("JSON");
    expected["stream_options"] = serde_json::json!({ "include_usage": true });
    assert_eq!(arrived, expected);
    for untouched in [r#"{"model":"tiny"}"#, r#"{"model":"tiny","stream":false}"#] {
        client.fetch(post("/v1/completions", untouched)).await;
        assert_eq!(replica.requests.last().text(), untouched);
    }
}
