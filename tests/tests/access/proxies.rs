//! Source of a request's identity: the credential, or a proxy that the config trusts.

use http::HeaderValue;
use spillway_tests::{Client, OK, Scripted, Setup, Wire, both, chat, get};

use crate::keys::{Key, with};

const CLAIMS: [&str; 5] =
    ["x-spillway-tenant", "x-spillway-priority", "x-spillway-regions", "x-tenant-id", "x-priority"];

#[tokio::test]
async fn claims_of_clients_go_no_further() {
    let replica = Scripted::start().await.serve(OK);
    let key = Key::new("a", "acme", "");
    let open = Setup::new().replica("a", replica.address);
    for (setup, key) in [(open.clone(), None), (open.table(&*key.block), Some(key))] {
        let node = setup.start().await;
        let request =
            CLAIMS.iter().fold(chat("tiny", ""), |request, name| with(request, name, "1"));
        let request = key.iter().fold(request, |request, key| key.sign(request));
        let reply = Client::once(node.addresses()[0], request).await;
        assert_eq!(reply.status, 200);
        for name in CLAIMS {
            assert_eq!(replica.requests.last().header(name), None, "{name}");
        }
    }
}

#[tokio::test]
async fn a_trusted_proxy_is_believed_and_nobody_else() {
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new()
        .replica("a", replica.address)
        .replica_with("b", "http://127.0.0.1:1", "models = [\"huge\"]")
        .table("[[tenant]]\nname = \"gone\"\nsuspended = true\n");
    let trusted = "auth = \"headers\"\ntrusted_proxies = [\"127.0.0.0/8\"]";
    let node = setup.clone().listener(trusted).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let claimed = |tenant| with(chat("tiny", ""), "x-spillway-tenant", tenant);
    assert_eq!(client.fetch(claimed("acme")).await.status, 200);
    assert_eq!(replica.requests.last().header("x-spillway-tenant"), Some("acme"));
    assert_eq!(client.fetch(chat("tiny", "")).await.status, 401);
    assert_eq!(client.fetch(claimed("gone")).await.status, 401);
    let limited = || with(claimed("acme"), "x-spillway-models", "huge, other");
    assert_eq!(client.fetch(limited()).await.status, 404);
    let list = with(get("/v1/models"), "x-spillway-tenant", "acme");
    let list = client.fetch(with(list, "x-spillway-models", "huge")).await.json();
    assert_eq!(list["data"].as_array().expect("a list").len(), 1);
    let elsewhere = with(claimed("acme"), "x-spillway-regions", "mars");
    let reply = client.fetch(elsewhere).await;
    assert_eq!((reply.status, reply.code()), (403, Some("region_not_allowed")));
    assert_eq!(client.fetch(get("/livez")).await.status, 200);

    let other = trusted.replace("127.0.0.0/8", "10.0.0.0/8");
    let node = setup.listener(&other).start().await;
    let reply = Client::once(node.addresses()[0], claimed("acme")).await;
    assert_eq!((reply.status, reply.code()), (401, Some("missing_api_key")));
}

#[tokio::test]
async fn claims_that_leave_a_doubt_open_nothing() {
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new().replica("a", replica.address);
    let trusted = "auth = \"headers\"\ntrusted_proxies = [\"127.0.0.0/8\"]";
    let node = setup.listener(trusted).start().await;
    for (claims, status) in [
        (&[("x-spillway-models", "tiny"), ("x-spillway-models", "other")][..], 400),
        (&[("x-spillway-models", "other"), ("x-spillway-models", "tiny")], 400),
        (&[("x-spillway-tenant", "evil")], 400),
        (&[("x-spillway-models", "")], 404),
        (&[("x-spillway-models", ",")], 404),
        (&[("x-spillway-models", " , ")], 404),
        (&[("x-spillway-regions", "")], 403),
        (&[("x-spillway-countries", ",")], 403),
        (&[("x-spillway-countries", "Germany")], 400),
        (&[("x-spillway-priority", "9")], 400),
        (&[("x-spillway-priority", "0"), ("x-spillway-priority", "3")], 400),
        (&[("x-spillway-model", "other")], 400),
        (&[("x-tenant-id", "a"), ("x-tenant-id", "b")], 400),
    ] {
        let mut request = with(chat("tiny", ""), "x-spillway-tenant", "acme");
        for (name, value) in claims {
            request.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        for client in &mut both(&node).await {
            let mut again = chat("tiny", "");
            again.headers_mut().clone_from(request.headers());
            assert_eq!(client.fetch(again).await.status, status, "{claims:?}");
        }
    }
    assert_eq!(replica.requests.count(), 0);
}

/// A binary PROXY header of this command and family, with these addresses.
fn binary(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
    let length = u16::try_from(addresses.len()).expect("short").to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n".as_slice(), &[command, family], &length, addresses].concat()
}

#[tokio::test]
async fn a_proxy_is_believed_of_connections_that_it_says_are_its_own_alone() {
    let replica = Scripted::start().await.serve(OK);
    let lines = "auth = \"headers\"\nproxy_protocol = \"required\"\n\
                 trusted_proxies = [\"127.0.0.0/8\"]";
    let node = Setup::new().listener(lines).replica("a", replica.address).start().await;
    for (header, is_believed) in [
        (binary(0x20, 0x00, &[]), true),
        (b"PROXY UNKNOWN\r\n".to_vec(), false),
        (binary(0x21, 0x00, &[]), false),
        (binary(0x21, 0x31, &[b'x'; 216]), false),
        (binary(0x21, 0x11, &[203, 0, 113, 7, 10, 0, 0, 1, 1, 1, 1, 1]), false),
    ] {
        let mut wire = Wire::connect(node.addresses()[0]).await;
        wire.send(&header).await;
        wire.send(
            "POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\nx-spillway-tenant: acme\r\n\
             x-forwarded-for: 203.0.113.5\r\ncontent-length: 16\r\n\r\n{\"model\":\"tiny\"}",
        )
        .await;
        let status = wire.message().await.status();
        assert_eq!(status, if is_believed { 200 } else { 401 }, "{header:?}");
    }
    let seen = replica.requests.last();
    assert_eq!(seen.header("x-forwarded-for"), Some("203.0.113.5, 127.0.0.1"));
    assert_eq!(replica.requests.count(), 1);
}
