//! Requests that every engine rejects: only the engine knows, and its reply shows it.

use serde_json::json;
use spillway_tests::{Client, Page, Scripted, Setup, eventually, post};

use crate::retries::TURNS;

const LIMIT: &str = "[[limit]]\nname = \"global\"\ntokens_per_min = 10000\nconcurrency = 1\n";

#[tokio::test]
async fn what_an_engine_rejects_is_no_fault_goes_nowhere_else_and_costs_nothing() {
    let chat = json!([{"role": "user", "content": "hi"}]);
    let rejected = [
        json!({"model": "tiny", "messages": "hi", "max_tokens": 9000}),
        json!({"model": "tiny", "messages": chat, "max_tokens": 9, "n": 1000}),
        json!({"model": "tiny", "messages": chat, "max_tokens": "9000", "temperature": 9}),
        json!({"model": "tiny", "messages": chat, "max_tokens": 9000, "top_p": -1, "stream": true}),
    ];
    for status in ["400 Bad Request", "413 Payload Too Large", "422 Unprocessable Entity"] {
        let error = r#"{"error":{"message":"no","type":"BadRequestError","code":400}}"#;
        let length = error.len();
        let error_reply = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{error}"
        );
        let one = Scripted::start().await.serve(error_reply.clone());
        let other = Scripted::start().await.serve(error_reply);
        let setup = Setup::new().set("health.eject_after = 2").table(TURNS).table(LIMIT);
        let setup = setup.replica("one", one.address).replica("other", other.address);
        let node = setup.start().await;
        let mut client = Client::http1(node.addresses()[0]).await;
        for (count, body) in rejected.iter().cycle().take(12).enumerate() {
            let reply = client.fetch(post("/v1/chat/completions", body.to_string())).await;
            // Each takes nine tenths of the limit: the one before has given its part back.
            assert_eq!((reply.text(), reply.code()), (error, None), "{status}: {body}");
            assert_eq!(reply.status.to_string(), status[..3]);
            assert_eq!(one.requests.count() + other.requests.count(), count + 1, "asked once");
        }
        assert_eq!((one.requests.count(), other.requests.count()), (6, 6), "none is left out");
        eventually("all are counted", || {
            Page::of(&node).sum("spillway_replica_requests_total", &[]) == 12.0
        })
        .await;
        let page = Page::of(&node);
        for name in
            ["spillway_replica_faults_total", "spillway_retries_total", "spillway_tokens_total"]
        {
            assert_eq!(page.sum(name, &[]), 0.0, "{status}: {name}");
        }
    }
}
