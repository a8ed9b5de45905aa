//! Keep-alives of silent streams.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use spillway_tests::{Client, Reply, Scripted, Setup, chat, post, within};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
const EVENT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
const LAST: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// Reads until the client has a keep-alive of this form, and returns all that came before its end.
async fn until(body: &mut Incoming, mark: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(mark) {
        let frame = within("the next piece", body.frame()).await;
        let frame = frame.expect("the stream goes on").expect("a piece");
        text += &String::from_utf8_lossy(&frame.into_data().expect("data"));
    }
    text
}

#[tokio::test]
async fn a_silent_stream_has_comments_before_and_between_its_events() {
    let replica = Scripted::start().await;
    let setup = Setup::new().set("timeouts.keep_alive_ms = 30").replica("a", replica.address);
    let node = setup.start().await;
    for client in &mut spillway_tests::both(&node).await {
        let request = chat("tiny", ",\"stream\":true");
        let (response, mut wire) = tokio::join!(client.send(request), async {
            let (mut wire, _) = replica.request().await;
            wire.send(HEAD).await;
            wire
        });
        let mut response = response.expect("a head");
        let comment = ": keep-alive\n\n";
        let before = until(response.body_mut(), comment).await;
        assert_eq!(before.replace(comment, ""), "", "before the first event");
        // The half of an event is held back, and no comment lands in it.
        wire.send(format!("{EVENT}{}", &EVENT[..20])).await;
        let between = until(response.body_mut(), &format!("{EVENT}{comment}")).await;
        assert_eq!(between.replace(comment, ""), EVENT);
        wire.send(format!("{}{LAST}", &EVENT[20..])).await;
        wire.finish().await;
        let rest = Reply::collect(response).await.expect("a whole reply");
        assert_eq!(rest.text().replace(comment, ""), format!("{EVENT}{LAST}"));
    }
}

#[tokio::test]
async fn a_silent_stream_of_messages_has_pings_and_other_replies_have_nothing() {
    let replica = Scripted::start().await;
    let route = "[[route]]\nname = \"m\"\npath_prefix = \"/v1/messages\"\nprotocol = \"openai\"";
    let setup = Setup::new().set("timeouts.keep_alive_ms = 30").table(route);
    let node = setup.replica("a", replica.address).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let request = post("/v1/messages", "{\"model\":\"tiny\",\"stream\":true}");
    let (response, wire) = tokio::join!(client.send(request), async {
        let (mut wire, _) = replica.request().await;
        wire.send(HEAD).await;
        wire
    });
    let mut response = response.expect("a head");
    let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
    assert_eq!(until(response.body_mut(), ping).await.replace(ping, ""), "");

    let mut other = Client::http1(node.addresses()[0]).await;
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n";
    let (whole, mut whole_wire) = tokio::join!(other.send(chat("tiny", "")), async {
        let (mut wire, _) = replica.request().await;
        wire.send(chunked).await;
        wire
    });
    // The stream beside it gets several during that time.
    for _ in 0..4 {
        until(response.body_mut(), ping).await;
    }
    whole_wire.send("1\r\n \r\n0\r\n\r\n").await;
    let reply = Reply::collect(whole.expect("a head")).await.expect("a whole reply");
    assert_eq!(reply.text(), "{} ");
    drop((response, wire));
}
