//! Requests that name no model, where they can mean one alone.

use spillway_node::Node;
use spillway_tests::{
    Client, Message, OK, Page, Reply, Scripted, Serving, Setup, eventually, post,
};

/// A form with a file, and with these parts before it.
fn form(parts: &str) -> http::Request<spillway_tests::ClientBody> {
    let body = format!(
        "{parts}--X\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nx\r\n--X--\r\n"
    );
    let mut request = post("/v1/audio/transcriptions", body);
    let kind = http::HeaderValue::from_static("multipart/form-data; boundary=X");
    request.headers_mut().insert("content-type", kind);
    request
}

const EMPTY_PART: &str = "--X\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n\r\n";

async fn serving(setup: Setup, models: &[&str]) -> (Setup, Serving) {
    let replica = Scripted::start().await.serve(OK);
    let url = format!("http://{}", replica.address);
    let setup = setup.replica_with(models[0], &url, &format!("models = {models:?}"));
    (setup, replica)
}

async fn ask(node: &Node, path: &str, body: &str) -> Reply {
    Client::once(node.addresses()[0], post(path, body.to_owned())).await
}

fn body(message: &Message) -> String {
    String::from_utf8(message.body.clone()).expect("text")
}

#[tokio::test]
async fn the_only_model_is_meant_by_requests_without_one() {
    let setup = Setup::new().set("aliases = { short = \"tiny\", other = \"tiny\" }");
    let (setup, replica) = serving(setup, &["tiny"]).await;
    let node = setup.start().await;
    for (path, sent, got) in [
        ("/v1/chat/completions", "{\"messages\":[]}", "{\"model\":\"tiny\",\"messages\":[]}"),
        ("/v1/chat/completions", "{\"model\":null,\"n\":1}", "{\"model\":\"tiny\",\"n\":1}"),
        ("/v1/chat/completions", "{\"model\":\"\",\"n\":1}", "{\"model\":\"tiny\",\"n\":1}"),
        ("/v1/completions", "{\"prompt\":\"x\"}", "{\"model\":\"tiny\",\"prompt\":\"x\"}"),
        ("/v1/embeddings", "{\"input\":\"x\"}", "{\"model\":\"tiny\",\"input\":\"x\"}"),
        ("/v1/responses", "{\"input\":\"x\"}", "{\"model\":\"tiny\",\"input\":\"x\"}"),
        ("/rerank", "{\"query\":\"q\"}", "{\"model\":\"tiny\",\"query\":\"q\"}"),
        ("/tokenize", "{}", "{\"model\":\"tiny\"}"),
    ] {
        let reply = ask(&node, path, sent).await;
        assert_eq!(reply.status, 200, "{path} {sent}: {}", reply.text());
        assert_eq!(body(&replica.requests.last()), got, "{path}");
    }
    for parts in ["", EMPTY_PART] {
        let sent = form(parts);
        let reply = Client::once(node.addresses()[0], sent).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(!body(&replica.requests.last()).contains("tiny"), "uploads pass unchanged");
    }
    let requests = replica.requests.count() as f64;
    let labels = [("model", "tiny"), ("status", "200")];
    eventually("they are counted for the model", || {
        Page::of(&node).sum("spillway_requests_total", &labels) == requests
    })
    .await;
    node.stop().await;
}

#[tokio::test]
async fn of_several_models_one_has_to_be_named() {
    let (setup, one) = serving(Setup::new(), &["tiny"]).await;
    let (setup, other) = serving(setup, &["huge"]).await;
    let own = "[[route]]\nname = \"own\"\npath_prefix = \"/own\"\nmodels = [\"huge\"]\n\
               protocol = \"openai\"\n[[route]]\nname = \"all\"\n";
    let node = setup.table(own).start().await;
    for (path, sent) in [
        ("/v1/chat/completions", "{\"messages\":[]}"),
        ("/v1/chat/completions", "{\"model\":\"\"}"),
        ("/rerank", "{\"query\":\"q\"}"),
    ] {
        let reply = ask(&node, path, sent).await;
        assert_eq!((reply.status, reply.code()), (400, Some("bad_request")), "{path} {sent}");
        assert!(reply.text().contains("huge, tiny"), "{}", reply.text());
    }
    assert_eq!(Client::once(node.addresses()[0], form("")).await.status, 400);
    assert_eq!((one.requests.count(), other.requests.count()), (0, 0));
    // A route to only one of them decides which one is meant.
    let reply = ask(&node, "/own/v1/chat/completions", "{\"messages\":[]}").await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(body(&other.requests.last()), "{\"model\":\"huge\",\"messages\":[]}");
    node.stop().await;
}
