//! Sessions: later requests of a client go where its earlier ones went.

use std::collections::BTreeSet;

use http::Request;
use spillway_emulator::{Emulator, Fault};
use spillway_node::Node;
use spillway_tests::{
    Client, ClientBody, OK, Reply, Scripted, Setup, both, chat, emulator, eventually, slow_emulator,
};

use crate::certificates::Certificates;
use crate::reload::{File, reloads};
use crate::splits::{cookies, serving, with_header};

const BY_COOKIE: &str = "{ cookie = \"home\", idle_s = 60 }";
const BY_HEADER: &str = "{ header = \"x-session-id\" }";

/// A route with sessions, and with a policy that would spread requests by itself.
fn route(session: &str) -> String {
    format!("[[route]]\nname = \"llm\"\npolicy = \"random\"\nsession = {session}\n")
}

fn setup(emulator: &Emulator, session: &str) -> Setup {
    Setup::new()
        .set("node.expose_routing = true")
        .with(|config| config.gateway.retry.budget_min_per_second = 1000)
        .table(route(session))
        .emulated(emulator)
}

fn ask() -> Request<ClientBody> {
    chat("tiny", ",\"max_tokens\":2")
}

fn with_cookie(cookie: &str) -> Request<ClientBody> {
    with_header(ask(), "cookie", &format!("a=b; {cookie}"))
}

#[track_caller]
fn place(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.header("x-spillway-replica").expect("routing").to_owned()
}

/// `name=value` of the one cookie that a reply sets.
#[track_caller]
fn cookie(reply: &Reply) -> String {
    let all = cookies(reply);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].split(';').next().unwrap_or_default().to_owned()
}

/// Until nothing is in flight: a request that is just ending would count against its replica.
async fn idle(node: &Node) {
    let is_idle = || node.gateway().routing.view().replicas().iter().all(|r| r.in_flight() == 0);
    eventually("nothing is in flight", is_idle).await;
}

/// Asks again and again with a cookie; the replicas that served, and that no cookie was set.
async fn places_of(node: &Node, client: &mut Client, cookie: &str) -> BTreeSet<String> {
    let mut places = BTreeSet::new();
    for _ in 0..16 {
        idle(node).await;
        let reply = client.fetch(with_cookie(cookie)).await;
        assert_eq!(cookies(&reply), [""; 0]);
        places.insert(place(&reply));
    }
    places
}

#[tokio::test]
async fn a_cookie_keeps_a_client_with_its_replica_on_every_node() {
    let emulator = emulator(4).await;
    let setup = setup(&emulator, BY_COOKIE);
    let (one, other) = (setup.start().await, setup.start().await);
    for client in &mut both(&one).await {
        let mut homes = BTreeSet::new();
        for _ in 0..12 {
            let first = client.fetch(ask()).await;
            let home = place(&first);
            let set = cookies(&first).remove(0);
            let attributes = "; Path=/; Max-Age=60; HttpOnly; SameSite=Lax";
            let value = set.strip_prefix("home=").and_then(|rest| rest.strip_suffix(attributes));
            let value = value.unwrap_or_else(|| panic!("{set}"));
            assert!(value.len() == 16 && value.bytes().all(|b| b.is_ascii_hexdigit()), "{set}");
            let cookie = cookie(&first);
            assert_eq!(places_of(&one, client, &cookie).await, [home.clone()].into());
            let mut elsewhere = Client::http1(other.addresses()[0]).await;
            assert_eq!(places_of(&other, &mut elsewhere, &cookie).await, [home.clone()].into());
            homes.insert(home);
        }
        // All twelve at one of four replicas in one of four million runs.
        assert!(homes.len() > 1, "{homes:?}");
    }
}

#[tokio::test]
async fn a_stream_brings_its_cookie_with_its_head_and_a_replica_s_own_cookies_stay() {
    let emulator = emulator(2).await;
    let node = setup(&emulator, BY_COOKIE).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let stream = client.fetch(chat("tiny", ",\"max_tokens\":3,\"stream\":true")).await;
    let home = place(&stream);
    assert_eq!(places_of(&node, &mut client, &cookie(&stream)).await, [home].into());

    let reply = "HTTP/1.1 200 OK\r\nset-cookie: own=1\r\ncontent-length: 2\r\n\r\nok";
    let replica = Scripted::start().await.serve(reply);
    let node = Setup::new().table(route(BY_COOKIE)).replica("a", replica.address).start().await;
    let reply = Client::once(node.addresses()[0], ask()).await;
    let set = cookies(&reply);
    assert_eq!(set.len(), 2, "{set:?}");
    assert!(set[0] == "own=1" && set[1].starts_with("home="), "{set:?}");
}

#[tokio::test]
async fn the_cookie_is_secure_when_the_client_s_connection_is() {
    let certificates = Certificates::for_name("localhost");
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new().table(route(BY_COOKIE)).replica("a", replica.address);
    let behind = setup.clone().listener("trusted_proxies = [\"127.0.0.1\"]").start().await;
    let encrypted = setup.listener(&certificates.listener()).start().await;
    let tcp = tokio::net::TcpStream::connect(encrypted.addresses()[0]).await.expect("connects");
    let mut tls = certificates.connect(tcp, "localhost", &[]).await.expect("a handshake");
    let request = b"GET /v1/models/tiny HTTP/1.1\r\nhost: h\r\n\r\n";
    let answered = exchange(&mut tls, request).await;
    assert!(!answered.contains("set-cookie"), "the node's own answers have no replica: {answered}");
    let request = b"POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: 16\r\n\r\n{\"model\":\"tiny\"}";
    let answered = exchange(&mut tls, request).await;
    assert!(answered.contains("SameSite=Lax; Secure\r\n"), "{answered}");

    let mut client = Client::http1(behind.addresses()[0]).await;
    let proxied = client.fetch(with_header(ask(), "x-forwarded-proto", "https")).await;
    assert!(cookies(&proxied)[0].ends_with("; Secure"), "{:?}", cookies(&proxied));
    assert!(cookies(&client.fetch(ask()).await)[0].ends_with("; SameSite=Lax"));
}

/// Sends one request on a connection that is kept. Returns the head of its reply.
async fn exchange<S>(stream: &mut S, request: &[u8]) -> String
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    stream.write_all(request).await.expect("writes");
    let mut seen = Vec::new();
    while !seen.windows(4).any(|four| four == b"\r\n\r\n") {
        let byte = spillway_tests::within("a head", stream.read_u8()).await.expect("a byte");
        seen.push(byte);
    }
    let head = String::from_utf8_lossy(&seen).into_owned();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.expect("a length").parse().expect("a number");
    let mut body = vec![0; length];
    spillway_tests::within("a body", stream.read_exact(&mut body)).await.expect("a body");
    head
}

#[tokio::test]
async fn a_session_whose_replica_crashes_moves_and_stays_where_it_went() {
    for (session, is_cookie) in [(BY_COOKIE, true), (BY_HEADER, false)] {
        let emulator = emulator(3).await;
        let node = setup(&emulator, session).start().await;
        let mut client = Client::http1(node.addresses()[0]).await;
        let mut token: Option<String> = None;
        let mut ask_on = async |client: &mut Client| {
            let request = match &token {
                Some(cookie) => with_cookie(cookie),
                None => ask(),
            };
            let reply = client.fetch(with_header(request, "x-session-id", "s-1")).await;
            if is_cookie && !cookies(&reply).is_empty() {
                token = Some(cookie(&reply));
            }
            place(&reply)
        };
        let home = ask_on(&mut client).await;
        assert_eq!(ask_on(&mut client).await, home);
        let index: usize = home[1..].parse().expect("a number");
        emulator.replica(index).set_fault(Fault::Crash).await.expect("crashes");
        let refuge = ask_on(&mut client).await;
        assert_ne!(refuge, home);
        emulator.replica(index).set_fault(Fault::None).await.expect("heals");
        for _ in 0..12 {
            idle(&node).await;
            assert_eq!(ask_on(&mut client).await, refuge, "{session}");
        }
    }
}

#[tokio::test]
async fn a_header_keeps_a_session_together_per_model_and_through_reloads() {
    let emulator = serving(&["tiny", "other"]).await;
    let replicas = |setup: Setup| {
        (0..4).fold(setup, |setup, number| {
            let url = format!("http://{}", emulator.addresses()[0]);
            setup.replica_with(&format!("r{number}"), &url, "models = [\"tiny\", \"other\"]")
        })
    };
    let base = |more: &str| {
        Setup::new().set("node.expose_routing = true").set(more).table(route(BY_HEADER))
    };
    let file = File::new(&replicas(base("")));
    let node = file.start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let session =
        |model: &str, id: &str| with_header(chat(model, ",\"max_tokens\":2"), "x-session-id", id);
    let mut homes = Vec::new();
    for number in 0..12 {
        let model = if number % 2 == 0 { "tiny" } else { "other" };
        let id = format!("s-{}", number / 2);
        let reply = client.fetch(session(model, &id)).await;
        assert_eq!(cookies(&reply), [""; 0]);
        homes.push((model, id, place(&reply)));
    }
    assert!(homes.iter().map(|home| &home.2).collect::<BTreeSet<_>>().len() > 1, "{homes:?}");
    file.replace(&replicas(base("aliases.gpt = \"tiny\"")).text());
    eventually("it is applied", || reloads(&node, "applied") >= 1.0).await;
    for _ in 0..4 {
        for (model, id, home) in &homes {
            idle(&node).await;
            assert_eq!(place(&client.fetch(session(model, id)).await), *home, "{model} {id}");
        }
    }
}

#[tokio::test]
async fn a_session_s_replica_is_passed_over_while_it_carries_more_than_its_share() {
    let emulator = slow_emulator(2, 1.0).await;
    let by_load = route(BY_COOKIE).replace("random", "least_connections");
    let setup = Setup::new().set("node.expose_routing = true").table(by_load);
    let node = setup.emulated(&emulator).start().await;
    let address = node.addresses()[0];
    let fields = ",\"max_tokens\":2";
    let first = Client::once(address, chat("tiny", fields)).await;
    let (home, token) = (place(&first), cookie(&first));
    // Two long streams of this session: with the next request there are three, of which one replica
    // may have 1.25 times the half, rounded up.
    let long = ",\"max_tokens\":1000,\"ignore_eos\":true,\"stream\":true";
    let mut streams = Vec::new();
    for _ in 0..2 {
        let request = with_header(chat("tiny", long), "cookie", &token);
        let mut client = Client::http1(address).await;
        let response = client.send(request).await.expect("a head");
        streams.push((client, response));
    }
    let served: Vec<_> =
        streams.iter().map(|(_, r)| r.headers()["x-spillway-replica"].clone()).collect();
    assert!(served.iter().all(|replica| *replica == home), "{served:?}");
    let reply = Client::once(address, with_header(chat("tiny", fields), "cookie", &token)).await;
    assert_ne!(place(&reply), home, "its share is used up");
    let moved = cookie(&reply);
    assert_ne!(moved, token);
    drop(streams);
    idle(&node).await;
    let back = Client::once(address, with_header(chat("tiny", fields), "cookie", &moved)).await;
    assert_eq!(place(&back), place(&reply), "its new place is where it stays");
}

#[tokio::test]
async fn what_was_never_set_here_is_no_session() {
    let emulator = emulator(2).await;
    let node = setup(&emulator, BY_COOKIE).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for value in ["", "x", "ffffffffffffffff", "0.1", "../../etc", &"f".repeat(4_000)] {
        let reply = client.fetch(with_cookie(&format!("home={value}"))).await;
        assert!(cookie(&reply).starts_with("home="), "{value}: a new one is set");
        place(&reply);
    }
}

#[tokio::test]
async fn an_error_of_the_replica_s_starts_no_session() {
    let emulator = emulator(1).await;
    let node = setup(&emulator, BY_COOKIE).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    for code in [500, 503, 429] {
        let fault = Fault::Status { code, retry_after_s: None, probability: 1.0 };
        emulator.replica(0).set_fault(fault).await.expect("a fault");
        let reply = client.fetch(ask()).await;
        assert_eq!((reply.status, cookies(&reply).len()), (code, 0));
    }
}
