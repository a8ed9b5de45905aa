//! Source of the client's address: forwarding headers and PROXY headers, believed only from trusted
//! proxies.

use http::HeaderValue;
use spillway_node::Node;
use spillway_tests::{
    Client, Message, OK, Page, Recorded, Scripted, Setup, Wire, chat, eventually,
};

const REQUIRED: &str = "proxy_protocol = \"required\"\ntrusted_proxies = [\"127.0.0.0/8\"]";
const REQUEST: &str = "POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: 16\r\n\r\n{\"model\":\"tiny\"}";

#[tokio::test]
async fn forwarding_headers_are_believed_from_trusted_proxies_only() {
    let replica = Scripted::start().await.serve(OK);
    for (listener, address, proto, forwarded) in [
        ("", "127.0.0.1", "http", None),
        ("trusted_proxies = [\"10.0.0.0/8\"]", "127.0.0.1", "http", None),
        (
            "trusted_proxies = [\"127.0.0.1\"]",
            "203.0.113.5, 127.0.0.1",
            "https",
            Some("for=203.0.113.5"),
        ),
    ] {
        let node = Setup::new().listener(listener).replica("a", replica.address).start().await;
        let mut request = chat("tiny", "");
        for (name, value) in [
            ("x-forwarded-for", "203.0.113.5"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=203.0.113.5"),
        ] {
            request.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        Client::once(node.addresses()[0], request).await;
        let last = replica.requests.last();
        assert_eq!(last.header("x-forwarded-for"), Some(address), "{listener}");
        assert_eq!(last.header("x-forwarded-proto"), Some(proto), "{listener}");
        assert_eq!(last.header("forwarded"), forwarded, "{listener}");
    }
}

#[tokio::test]
async fn all_lines_of_a_trusted_proxy_are_passed_on_and_of_one_word_the_last() {
    let replica = Scripted::start().await.serve(OK);
    let listener = "trusted_proxies = [\"127.0.0.1\"]";
    let node = Setup::new().listener(listener).replica("a", replica.address).start().await;
    let mut request = chat("tiny", "");
    for (name, value) in [
        ("x-forwarded-for", "6.6.6.6"),
        ("x-forwarded-for", "203.0.113.5"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-proto", "https"),
    ] {
        request.headers_mut().append(name, HeaderValue::from_static(value));
    }
    Client::once(node.addresses()[0], request).await;
    let last = replica.requests.last();
    assert_eq!(last.header("x-forwarded-for"), Some("6.6.6.6, 203.0.113.5, 127.0.0.1"));
    assert_eq!(
        (last.header("x-forwarded-proto"), last.header_count("x-forwarded-proto")),
        (Some("https"), 1)
    );
}

#[tokio::test]
async fn whom_a_proxy_does_not_name_is_not_believed() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().listener(REQUIRED).replica("a", replica.address).start().await;
    let request = REQUEST.replace("host: h", "host: h\r\nx-forwarded-for: 203.0.113.5");
    let start = b"\r\n\r\n\0\r\nQUIT\n";
    for (header, address) in [
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        ([start.as_slice(), &[0x21, 0, 0, 0]].concat(), "127.0.0.1"),
        ([start.as_slice(), &[0x20, 0, 0, 0]].concat(), "203.0.113.5, 127.0.0.1"),
    ] {
        let mut wire = Wire::connect(node.addresses()[0]).await;
        wire.send(&header).await;
        wire.send(&request).await;
        assert_eq!(wire.message().await.status(), 200);
        assert_eq!(replica.requests.last().header("x-forwarded-for"), Some(address));
    }
}

/// Returns the request as the replica receives it after `header`, the first bytes of the
/// connection.
async fn through(node: &Node, requests: &Recorded, header: &[u8]) -> Message {
    let mut wire = Wire::connect(node.addresses()[0]).await;
    // In pieces: the header need not come in one packet.
    for piece in header.chunks(5) {
        wire.send(piece).await;
        tokio::task::yield_now().await;
    }
    wire.send(REQUEST).await;
    assert_eq!(wire.message().await.status(), 200);
    requests.last()
}

#[tokio::test]
async fn proxy_headers_name_the_client() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().listener(REQUIRED).replica("a", replica.address).start().await;
    let mut binary = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    let local = [&binary[..], &[0x20, 0, 0, 0]].concat();
    binary.extend([0x21, 0x11, 0, 12, 198, 51, 100, 9, 10, 0, 0, 1, 0x12, 0x67, 0, 80]);
    for (header, address) in [
        (b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 80\r\n".as_slice(), "203.0.113.7"),
        (b"PROXY TCP6 2001:db8::1 2001:db8::2 4711 80\r\n", "2001:db8::1"),
        (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
        (&binary, "198.51.100.9"),
        (&local, "127.0.0.1"),
    ] {
        let seen = through(&node, &replica.requests, header).await;
        assert_eq!(seen.header("x-forwarded-for"), Some(address));
    }
}

#[tokio::test]
async fn a_connection_without_its_proxy_header_is_closed() {
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().listener(REQUIRED).replica("a", replica.address).start().await;
    for start in ["", "PROXY TCP4 nonsense\r\n", "PROXY TCP4 1.2.3.4 1.2.3.4 99999 80\r\n"] {
        let mut wire = Wire::connect(node.addresses()[0]).await;
        wire.send(format!("{start}{REQUEST}")).await;
        assert_eq!(wire.end().await.0, b"", "{start:?}");
    }
    check_closed(&node, 3.0).await;
    assert_eq!(replica.requests.count(), 0);
}

#[tokio::test]
async fn a_proxy_header_from_a_stranger_is_not_read() {
    let replica = Scripted::start().await.serve(OK);
    let listener = REQUIRED.replace("127.0.0.0/8", "10.0.0.0/8");
    let node = Setup::new().listener(&listener).replica("a", replica.address).start().await;
    let mut wire = Wire::connect(node.addresses()[0]).await;
    // It may be closed before it was sent all.
    drop(wire.try_send(format!("PROXY TCP4 203.0.113.7 10.0.0.1 1 80\r\n{REQUEST}")).await);
    assert_eq!(wire.end().await.0, b"");
    check_closed(&node, 1.0).await;
    assert_eq!(replica.requests.count(), 0);
}

async fn check_closed(node: &Node, count: f64) {
    let closed = || {
        Page::of(node).sum("spillway_client_connections_closed_total", &[("reason", "handshake")])
    };
    eventually("it is counted", || closed() == count).await;
}
