//! Streams whose engine sends something before it has read the prompt.

use http_body_util::BodyExt;
use spillway_tests::{Client, Page, Reply, Scripted, Setup, post, within};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
/// Silence after which the client gets a comment. It bounds from below how late the content came.
const KEEP_ALIVE_MS: u32 = 30;
const COMMENTS: u32 = 5;

/// Returns events of these data.
fn events(data: &[&str]) -> String {
    data.iter().map(|data| format!("data: {data}\n\n")).collect()
}

#[tokio::test]
async fn the_first_token_is_the_first_content_and_not_what_comes_before_it() {
    let token =
        "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}";
    let chat = events(&[token, "[DONE]"]);
    let response = events(&[
        "{\"type\":\"response.output_text.delta\",\"delta\":\"a\"}",
        "{\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"status\":\"completed\"}}",
    ]);
    let role = events(&[
        "{\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}",
    ]);
    let created = events(&["{\"type\":\"response.created\",\"response\":{\"id\":\"r\"}}"]);
    for (path, before, content) in [
        ("/v1/chat/completions", ": hello\n\n", &chat),
        ("/v1/chat/completions", &role, &chat),
        ("/v1/responses", &created, &response),
    ] {
        let replica = Scripted::start().await;
        let keep_alive = format!("timeouts.keep_alive_ms = {KEEP_ALIVE_MS}");
        let node = Setup::new().set(&keep_alive).replica("a", replica.address).start().await;
        let mut client = Client::http1(node.addresses()[0]).await;
        let request =
            post(path, "{\"model\":\"tiny\",\"stream\":true,\"messages\":[],\"input\":\"a\"}");
        let (reply, mut wire) = tokio::join!(client.send(request), async {
            let (mut wire, _) = replica.request().await;
            wire.send(format!("{HEAD}{before}")).await;
            wire
        });
        let mut reply = reply.expect("a head");
        let mut text = String::new();
        while text.matches(": keep-alive\n\n").count() < COMMENTS as usize {
            let frame = reply.body_mut().frame().await.expect("it goes on").expect("a piece");
            text += &String::from_utf8_lossy(&frame.into_data().expect("data"));
        }
        wire.send(content.clone()).await;
        wire.finish().await;
        Reply::collect(reply).await.expect("a whole reply");
        let counted = async {
            while Page::of(&node).sum("spillway_time_to_first_token_seconds_count", &[]) < 1.0 {
                tokio::task::yield_now().await;
            }
        };
        within("it is counted", counted).await;
        let passed = Page::of(&node).sum("spillway_time_to_first_token_seconds_sum", &[]);
        assert!(passed * 1e3 >= f64::from(KEEP_ALIVE_MS * COMMENTS), "{before:?}: {passed} s");
        node.stop().await;
    }
}
