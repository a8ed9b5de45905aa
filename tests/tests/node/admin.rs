//! Access to the admin listener, and limits that keep one client from locking out others.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderValue, Method, Request};
use spillway_node::Node;
use spillway_tests::{
    Client, ClientBody, Reply, Scripted, Setup, Wire, eventually, full, get, message, within,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::client::TlsStream;

use crate::certificates::Certificates;
use crate::reload::{File, reloads};

const READER: &str = "reader-0123456789abcdef0123456789";
const OPERATOR: &str = "operator-0123456789abcdef0123456789";
const ADMIN: &str = "admin-0123456789abcdef0123456789";

/// A file with tokens.
struct Tokens(TempDir);

impl Tokens {
    fn new() -> Self {
        let tokens = Self(tempfile::tempdir().expect("a folder"));
        tokens.write(&format!("eve read {READER}\nbob operate {OPERATOR}\nada admin {ADMIN}\n"));
        tokens
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("tokens")
    }

    fn write(&self, text: &str) {
        let beside = self.0.path().join("new");
        std::fs::write(&beside, text).expect("writes");
        std::fs::rename(beside, self.path()).expect("renames");
    }

    fn setup(&self) -> Setup {
        Setup::new().set(format!("admin.token_file = {:?}", self.path()))
    }
}

fn with(mut request: Request<ClientBody>, name: &'static str, value: &str) -> Request<ClientBody> {
    request.headers_mut().insert(name, HeaderValue::try_from(value).expect("a value"));
    request
}

fn signed(request: Request<ClientBody>, token: &str) -> Request<ClientBody> {
    with(request, "authorization", &format!("Bearer {token}"))
}

fn drain() -> Request<ClientBody> {
    message(Method::POST, "/replicas/a/drain", "application/json", full(""))
}

async fn ask(node: &Node, request: Request<ClientBody>) -> Reply {
    Client::once(node.admin_address().expect("one"), request).await
}

#[tokio::test]
async fn everything_but_health_needs_a_token_once_there_is_one() {
    let tokens = Tokens::new();
    let node = tokens.setup().replica("a", Scripted::refusing()).start().await;
    let paths = ["/metrics", "/replicas", "/v1/openapi.json", "/v1/status", "/nothing", "/"];
    for path in paths {
        assert_eq!(ask(&node, get(path)).await.status, 401, "{path}");
        assert_eq!(ask(&node, signed(get(path), "unknown-token")).await.status, 401, "{path}");
    }
    assert_eq!(ask(&node, drain()).await.status, 401);
    for path in ["/livez", "/readyz", "/healthz"] {
        let reply = ask(&node, get(path)).await;
        assert_eq!((reply.status, reply.text()), (200, "{}"), "{path}");
    }
    for (token, drains) in [(READER, 403), (OPERATOR, 200), (ADMIN, 200)] {
        for path in ["/metrics", "/replicas", "/v1/openapi.json"] {
            let reply = ask(&node, signed(get(path), token)).await;
            assert_eq!(reply.status, 200, "{path}");
            assert!(reply.header("content-length").is_some(), "{path}");
        }
        assert_eq!(ask(&node, signed(get("/nothing"), token)).await.status, 404);
        assert_eq!(ask(&node, signed(drain(), token)).await.status, drains, "{token}");
    }
}

#[tokio::test]
async fn a_request_that_names_another_host_is_refused_on_every_path() {
    let tokens = Tokens::new();
    let named = tokens.setup().set("admin.names = [\"node-1.internal\"]");
    for (setup, is_named, token) in
        [(Setup::new(), false, None), (named.clone(), true, None), (named, true, Some(ADMIN))]
    {
        let node = setup.replica("a", Scripted::refusing()).start().await;
        let sign = |request| match token {
            Some(token) => signed(request, token),
            None => request,
        };
        for path in ["/metrics", "/replicas", "/livez", "/readyz", "/healthz", "/v1/status", "/x"] {
            for host in ["evil.example", "evil.example:9900", "localhost.evil.example"] {
                let reply = ask(&node, sign(with(get(path), "host", host))).await;
                assert_eq!(reply.status, 403, "{path} {host}");
                assert!(!reply.text().contains("spillway_"), "{}", reply.text());
            }
        }
        let evil = sign(with(drain(), "host", "evil.example"));
        assert_eq!(ask(&node, evil).await.status, 403);
        for host in ["127.0.0.1", "[::1]:9900", "localhost:9900"] {
            let reply = ask(&node, sign(with(get("/livez"), "host", host))).await;
            assert_eq!(reply.status, 200, "{host}");
        }
        let reply = ask(&node, sign(with(get("/livez"), "host", "Node-1.internal:9900"))).await;
        assert_eq!(reply.status, if is_named { 200 } else { 403 });
    }
}

#[tokio::test]
async fn a_token_that_is_taken_out_of_its_file_ends_on_open_connections_too() {
    let tokens = Tokens::new();
    let file = File::new(&tokens.setup());
    let node = file.start().await;
    let admin = node.admin_address().expect("one");
    let mut open = Client::http1(admin).await;
    assert_eq!(open.fetch(signed(get("/metrics"), ADMIN)).await.status, 200);
    let new = ADMIN.replace("admin", "other");
    tokens.write(&format!("ada admin {new}\n"));
    eventually("it is reloaded", || reloads(&node, "applied") >= 1.0).await;
    assert_eq!(open.fetch(signed(get("/metrics"), ADMIN)).await.status, 401);
    assert_eq!(ask(&node, signed(get("/v1/openapi.json"), ADMIN)).await.status, 401);
    assert_eq!(ask(&node, signed(get("/metrics"), &new)).await.status, 200);

    let before = reloads(&node, "applied");
    tokens.write("# nobody\n");
    eventually("it is reloaded", || reloads(&node, "applied") > before).await;
    assert_eq!(open.fetch(signed(get("/metrics"), &new)).await.status, 401);
    assert_eq!(ask(&node, get("/metrics")).await.status, 401, "the last token opens nothing");

    let before = reloads(&node, "refused");
    tokens.write("ada admin short\n");
    eventually("it is refused", || reloads(&node, "refused") > before).await;
    assert_eq!(ask(&node, get("/metrics")).await.status, 401);
}

#[tokio::test]
async fn a_token_that_ends_while_a_body_arrives_orders_nothing() {
    let tokens = Tokens::new();
    let file = File::new(&tokens.setup());
    let node = file.start().await;
    let mut wire = Wire::connect(node.admin_address().expect("one")).await;
    let head = format!(
        "PUT /v1/models/m HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {ADMIN}\r\n\
         expect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    );
    wire.send(head).await;
    assert!(wire.head().await.starts_with("HTTP/1.1 100"), "its body is waited for");
    tokens.write(&format!("eve read {READER}\n"));
    eventually("it is reloaded", || reloads(&node, "applied") >= 1.0).await;
    wire.send("{}").await;
    assert_eq!(wire.message().await.status(), 401);
}

#[tokio::test]
async fn a_listener_that_others_reach_wants_a_token_whatever_is_reloaded() {
    let tokens = Tokens::new();
    let open = Setup::new();
    let file = File::new(&tokens.setup());
    let text = tokens.setup().text();
    file.replace(&text.replace("admin.address = \"127.0.0.1:0\"", "admin.address = \"0.0.0.0:0\""));
    let node = file.start().await;
    let mut address = node.admin_address().expect("one");
    address.set_ip([127, 0, 0, 1].into());
    let ask = async |request| Client::once(address, request).await.status;
    assert_eq!(ask(get("/metrics")).await, 401);
    // The config is valid by itself, because its address is loopback. The listener that is open has
    // another address.
    file.replace(&open.text());
    eventually("it is reloaded", || reloads(&node, "applied") >= 1.0).await;
    assert_eq!(ask(get("/metrics")).await, 401);
    assert_eq!(ask(signed(get("/metrics"), READER)).await, 401);
}

#[tokio::test]
async fn idle_connections_keep_no_operator_out() {
    let tokens = Tokens::new();
    let node = tokens.setup().start().await;
    let admin = node.admin_address().expect("one");
    let mut operator = Client::http1(admin).await;
    assert_eq!(operator.fetch(signed(get("/metrics"), READER)).await.status, 200);
    let mut idle = Vec::new();
    for number in 0..600 {
        let mut wire = Wire::connect(admin).await;
        if number % 3 == 0 {
            // An error means that the node closed the connection already.
            drop(wire.try_send(b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ").await);
        }
        idle.push(wire);
    }
    assert_eq!(operator.fetch(signed(get("/metrics"), READER)).await.status, 200, "a known one");
    for _ in 0..20 {
        assert_eq!(ask(&node, signed(get("/metrics"), READER)).await.status, 200, "a new one");
        assert_eq!(ask(&node, get("/livez")).await.status, 200);
    }
    assert_eq!(operator.fetch(signed(get("/replicas"), READER)).await.status, 200);
}

#[tokio::test]
async fn the_admin_listener_speaks_tls_and_takes_a_renewed_certificate() {
    let mut certificates = Certificates::for_name("localhost");
    let tokens = Tokens::new();
    let (certificate, key) = (certificates.certificate_file(), certificates.key_file());
    let setup = tokens.setup().set(format!("admin.tls.certificate = {certificate:?}"));
    let file = File::new(&setup.set(format!("admin.tls.key = {key:?}")));
    let node = file.start().await;
    let admin = node.admin_address().expect("one");
    let before = connected(&certificates, admin).await.expect("a handshake");
    assert_eq!(metrics(before).await, "HTTP/1.1 200");
    let mut clear = Wire::connect(admin).await;
    clear.send("GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    within("an end", clear.end()).await;

    let reloaded = reloads(&node, "applied");
    certificates.renew("localhost");
    eventually("it is reloaded", || reloads(&node, "applied") > reloaded).await;
    let mut stream = connected(&certificates, admin).await;
    // The files are written one after the other: a reload in between is refused.
    for _ in 0..200 {
        if stream.is_ok() {
            break;
        }
        // wait: between two looks
        sleep(Duration::from_millis(50)).await;
        stream = connected(&certificates, admin).await;
    }
    assert_eq!(metrics(stream.expect("a handshake")).await, "HTTP/1.1 200");
}

async fn connected(
    certificates: &Certificates,
    admin: SocketAddr,
) -> std::io::Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(admin).await?;
    certificates.connect(tcp, "localhost", &["h2", "http/1.1"]).await
}

/// Returns the answer to a request for metrics over TLS.
async fn metrics(mut stream: TlsStream<TcpStream>) -> String {
    let request = format!(
        "GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {READER}\r\n\
         connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("writes");
    let mut text = Vec::new();
    within("an answer", stream.read_to_end(&mut text)).await.expect("reads");
    String::from_utf8_lossy(&text[..12]).into_owned()
}
