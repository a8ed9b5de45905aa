//! Replies that the gateway must read: they come uncompressed, and their types are recognized.

use http::{HeaderValue, Request};
use spillway_node::Node;
use spillway_tests::{
    Client, ClientBody, OK, Page, RAW_ROUTE, Scripted, Setup, chat, get, message, post,
};

const INJECT: &str = "[[route]]\nname = \"llm\"\ninject_usage = true\n";
const EVENTS: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}],\"usage\":null}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":3,\"total_tokens\":1003}}\n\n\
    data: [DONE]\n\n";

fn reply(headers: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{headers}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn accepting(coding: &'static str, mut request: Request<ClientBody>) -> Request<ClientBody> {
    request.headers_mut().insert("accept-encoding", HeaderValue::from_static(coding));
    request
}

fn tokens(node: &Node, kind: &str) -> f64 {
    Page::of(node).sum("spillway_tokens_total", &[("kind", kind)])
}

#[tokio::test]
async fn a_stream_is_recognized_however_its_type_is_written() {
    for headers in [
        "content-type: text/event-stream",
        "content-type: Text/Event-Stream; charset=utf-8",
        "content-type: TEXT/EVENT-STREAM ;charset=utf-8",
        "content-type: text/event-stream\r\ncontent-encoding: identity",
        "content-type: text/event-stream\r\ncontent-encoding: Identity, identity",
    ] {
        let replica = Scripted::start().await.serve(reply(headers, EVENTS));
        let node = Setup::new().table(INJECT).replica("a", replica.address).start().await;
        let reply = Client::once(node.addresses()[0], chat("tiny", r#","stream":true"#)).await;
        assert!(replica.requests.last().text().contains("\"include_usage\":true"));
        // The client asked for no usage.
        assert!(!reply.text().contains("prompt_tokens"), "{headers}: {}", reply.text());
        assert!(reply.text().ends_with("data: [DONE]\n\n"), "{headers}: {}", reply.text());
        let seen = (tokens(&node, "prompt"), tokens(&node, "completion"));
        assert_eq!(seen, (1000.0, 3.0), "{headers}");
    }
}

#[tokio::test]
async fn a_reply_that_is_read_is_asked_for_uncompressed_and_no_other() {
    let body = "{\"id\":\"x\",\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":3,\"total_tokens\":1003}}";
    let replica = Scripted::start().await.serve(reply("content-type: application/json", body));
    let claude = "[[route]]\nname = \"claude\"\npath_prefix = \"/claude\"\nprotocol = \"openai\"\n";
    let setup = Setup::new().table(RAW_ROUTE).table(claude);
    let node = setup.replica("a", replica.address).start().await;
    let form = "--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\ntiny\r\n--b--\r\n";
    let form = || {
        let kind = "multipart/form-data; boundary=b";
        let form = spillway_tests::full(form);
        message(http::Method::POST, "/v1/audio/transcriptions", kind, form)
    };
    let json = |path| post(path, "{\"model\":\"tiny\",\"input\":\"x\",\"messages\":[]}");
    let read = [
        chat("tiny", ""),
        chat("tiny", r#","stream":true"#),
        post("/v1/completions", "{\"model\":\"tiny\",\"prompt\":\"x\"}"),
        json("/v1/responses"),
        json("/claude/v1/messages"),
        json("/v1/embeddings"),
        post("/v1/rerank", "{\"model\":\"tiny\",\"query\":\"x\",\"documents\":[]}"),
        json("/v1/images/generations"),
        form(),
    ];
    for request in read {
        let path = request.uri().path().to_owned();
        let reply = Client::once(node.addresses()[0], accepting("gzip, br", request)).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        let asked = replica.requests.last();
        assert_eq!(asked.header("accept-encoding"), None, "{path}: {}", asked.head);
    }
    let unread =
        [get("/raw/x"), post("/raw/v1/chat/completions", "x"), post("/v2/models/tiny/infer", "{}")];
    for request in unread {
        let path = request.uri().path().to_owned();
        let reply = Client::once(node.addresses()[0], accepting("gzip, br", request)).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        let asked = replica.requests.last();
        assert_eq!(asked.header("accept-encoding"), Some("gzip, br"), "{path}: {}", asked.head);
    }
}

#[tokio::test]
async fn a_reply_that_is_compressed_all_the_same_passes_as_it_is() {
    // Not valid gzip: the gateway must not even try.
    let packed = "\x1f\x01 data: {\"usage\":{\"prompt_tokens\":5}} \n\n\x02";
    let headers = "content-type: text/event-stream\r\ncontent-encoding: gzip";
    let replica = Scripted::start().await.serve(reply(headers, packed));
    let node = Setup::new().table(INJECT).replica("a", replica.address).start().await;
    let request = accepting("gzip", chat("tiny", r#","stream":true"#));
    let reply = Client::once(node.addresses()[0], request).await;
    assert_eq!((reply.status, reply.header("content-encoding")), (200, Some("gzip")));
    assert_eq!(reply.body, packed);
}

#[tokio::test]
async fn a_request_body_of_the_coding_identity_is_read() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().replica("a", replica.address).start().await;
    for (coding, status) in
        [("identity", 200), ("Identity, identity", 200), ("gzip", 415), ("identity, gzip", 415)]
    {
        let mut request = chat("tiny", "");
        request.headers_mut().insert("content-encoding", HeaderValue::from_static(coding));
        let reply = Client::once(node.addresses()[0], request).await;
        assert_eq!(reply.status, status, "{coding}");
    }
}
