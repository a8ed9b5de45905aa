//! Memory use under load. A separate binary, so that memory of other tests is not counted.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use http::Method;
use spillway_node::Node;
use spillway_tests::{
    Client, OK, Page, RAW_ROUTE, Scripted, Setup, Wire, both, chat, eventually, get, message,
    noise, resident_bytes, streamed, within,
};
use tokio::sync::Mutex;

/// Held while memory is measured: under `cargo test` the tests of a file share one process.
static MEASURING: Mutex<()> = Mutex::const_new(());

/// Address of the node that `hold_connections` is to connect to.
const HOLD: &str = "SPILLWAY_TEST_HOLD";
const IDLE_CONNECTIONS: usize = 4_000;

#[tokio::test]
async fn a_large_upload_passes_through_without_being_held() {
    const PIECES: usize = 50;
    let _alone = MEASURING.lock().await;
    let replica = Scripted::start().await;
    let setup = Setup::new().set("limits.body_bytes_max = 100000000").table(RAW_ROUTE);
    let node = setup.replica("a", replica.address).start().await;
    let piece = noise(1 << 20);
    let before = resident_bytes();
    let (pieces, body) = streamed();
    let mut client = Client::http1(node.addresses()[0]).await;
    let request = message(Method::POST, "/raw/upload", "a/b", body);
    let reply = spillway_tests::spawn(async move { client.fetch(request).await });
    let sent = piece.clone();
    let sender = spillway_tests::spawn(async move {
        for _ in 0..PIECES {
            pieces.send(sent.clone()).await.expect("is read");
        }
    });
    let mut wire = replica.accept().await;
    wire.head().await;
    let (mut arrived, mut held, mut resident) = (0, 0, 0);
    while let Some(chunk) = wire.chunk().await {
        let at = arrived % piece.len();
        assert!(chunk.len() > piece.len() || piece[at..].iter().zip(&chunk).all(|(a, b)| a == b));
        arrived += chunk.len();
        held = held.max(node.gateway().door.body_bytes());
        resident = resident.max(resident_bytes());
    }
    assert_eq!(arrived, PIECES << 20);
    assert!(held < 2 << 20, "{held} bytes held");
    let grown = resident.saturating_sub(before);
    assert!(grown < 24 << 20, "grew by {grown} bytes");
    wire.send(OK).await;
    sender.await.expect("sends all");
    assert_eq!(within("the reply", reply).await.expect("a reply").status, 200);
}

#[tokio::test]
async fn thousands_of_idle_connections_cost_little_and_hinder_nobody() {
    let _alone = MEASURING.lock().await;
    let replica = Scripted::start().await.serve(OK);
    let limit = "limits.connections_per_client_max = 16384";
    // The connections stay silent for as long as it takes to open all of them.
    let setup = Setup::new()
        .set(limit)
        .with(|config| config.gateway.limits.head_timeout = Duration::from_millis(900000));
    let node = setup.replica("a", replica.address).start().await;
    assert_eq!(Client::once(node.addresses()[0], chat("tiny", "")).await.status, 200);
    let before = resident_bytes();
    // The other ends need as many descriptors again: more than one process may have.
    let mut holder = Command::new(std::env::current_exe().expect("this test"))
        .args(["--ignored", "--exact", "hold_connections", "--nocapture"])
        .env(HOLD, node.addresses()[0].to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut output = BufReader::new(holder.stdout.take().expect("piped"));
    let reading = tokio::task::spawn_blocking(move || {
        let held =
            output.by_ref().lines().any(|line| line.is_ok_and(|line| line.ends_with("held")));
        (held, output)
    });
    // Its output stays open, since it prints more at its end.
    let (held, output) = reading.await.expect("reads");
    assert!(held, "the connections are open");
    let open = Page::of(&node).sum("spillway_client_connections", &[]);
    assert!(open >= IDLE_CONNECTIONS as f64, "{open} connections");
    let each = resident_bytes().saturating_sub(before) / IDLE_CONNECTIONS;
    assert!(each < 32 << 10, "{each} bytes a connection");
    for client in &mut both(&node).await {
        assert_eq!(client.fetch(chat("tiny", "")).await.status, 200);
    }
    drop(holder.stdin.take());
    assert!(holder.wait().expect("ends").success());
    drop(output);
    eventually("all are gone", || Page::of(&node).sum("spillway_client_connections", &[]) < 10.0)
        .await;
}

#[tokio::test]
async fn a_node_refuses_work_before_its_memory_is_used_up_and_serves_again_later() {
    const HELD: usize = 768 << 20;
    let _alone = MEASURING.lock().await;
    let replica = Scripted::start().await.serve(OK);
    // Far more than the node itself allocates, so that memory use stays between the two limits.
    let held = vec![1_u8; HELD];
    let ceiling = (resident_bytes() + (16 << 20)) * 100 / 92;
    let setup = Setup::new().set(format!("limits.memory_bytes_max = {ceiling}"));
    let node = setup.replica("a", replica.address).start().await;
    let address = node.addresses()[0];
    eventually("memory is short", || node.gateway().door.memory().is_tight()).await;
    let (mut served, mut refused) = (0, 0);
    for _ in 0..10 {
        // A look lets a few in: more than that at once are refused.
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..20 {
            asked.spawn(Client::once(address, chat("tiny", "")));
        }
        for reply in asked.join_all().await {
            match reply.status {
                200 => served += 1,
                status => {
                    assert_eq!(
                        (status, reply.header("x-spillway-shed-reason")),
                        (503, Some("memory"))
                    );
                    assert!(reply.header("retry-after").is_some());
                    refused += 1;
                }
            }
        }
    }
    assert!(served > 0, "a trickle goes on");
    assert!(refused > 20, "{served} of 200 were served");
    assert_eq!(Client::once(address, get("/livez")).await.status, 200, "health has its own lane");
    drop(held);
    eventually("there is room again", || !node.gateway().door.memory().is_tight()).await;
    for _ in 0..30 {
        assert_eq!(Client::once(address, chat("tiny", "")).await.status, 200);
    }
}

#[tokio::test]
async fn without_any_memory_left_connections_are_refused_but_for_a_trickle() {
    let _alone = MEASURING.lock().await;
    let node = Setup::new().set("limits.memory_bytes_max = 1048576").start().await;
    let closed = |node: &Node| {
        Page::of(node).sum("spillway_client_connections_closed_total", &[("reason", "memory")])
    };
    eventually("memory is full", || is_full(&node)).await;
    let (mut refused, mut served) = (0, 0);
    while refused == 0 || served == 0 {
        // More at once than are admitted between two checks.
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..40 {
            asked.spawn(ask_whether_alive(node.addresses()[0]));
        }
        for is_served in asked.join_all().await {
            if is_served { served += 1 } else { refused += 1 }
        }
        assert!(refused < 100_000, "nobody is ever let in");
    }
    assert!(closed(&node) >= 1.0);
}

fn is_full(node: &Node) -> bool {
    format!("{:?}", node.gateway().door.memory().pressure()) == "Full"
}

/// Returns true if a connection of its own gets a reply.
async fn ask_whether_alive(address: SocketAddr) -> bool {
    let mut wire = Wire::connect(address).await;
    let request = "GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    wire.try_send(request).await.is_ok() && wire.end().await.0.starts_with(b"HTTP/1.1 200")
}

#[tokio::test]
async fn a_body_of_one_byte_chunks_takes_little_more_than_its_bytes() {
    const CHUNKS: usize = 1_000_000;
    let _alone = MEASURING.lock().await;
    let replica = Scripted::start().await.serve(OK);
    let node = Setup::new().replica("a", replica.address).start().await;
    // Memory that the first request allocates for good is not counted.
    assert_eq!(Client::once(node.addresses()[0], chat("tiny", "")).await.status, 200);
    let before = resident_bytes();
    let mut wire = Wire::connect(node.addresses()[0]).await;
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    wire.send(head).await;
    let chunks = "1\r\n \r\n".repeat(1_000);
    for _ in 0..CHUNKS / 1_000 {
        wire.send(&chunks).await;
    }
    let held = || usize::try_from(node.gateway().door.body_bytes()).expect("small");
    eventually("all of it is read", || held() >= CHUNKS).await;
    assert!(held() <= 2 * CHUNKS, "{} bytes are counted", held());
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "grew by {grown} bytes");
    drop(wire);
    eventually("it is given up", || held() == 0).await;
}

#[tokio::test]
async fn while_memory_is_full_a_client_is_read_piece_by_piece() {
    const SENT: usize = 512 << 10;
    let replica = Scripted::start().await;
    let setup = Setup::new().set("limits.memory_bytes_max = 1048576").table(RAW_ROUTE);
    let setup = setup.with(|config| config.gateway.limits.buffered_bytes_max = 1024);
    let node = setup.replica("a", replica.address).start().await;
    eventually("memory is full", || is_full(&node)).await;
    let mut wire = Wire::connect(node.addresses()[0]).await;
    let head = format!("POST /raw/x HTTP/1.1\r\nhost: x\r\ncontent-length: {SENT}\r\n\r\n");
    let begun = Instant::now();
    wire.send(head).await;
    wire.send(" ".repeat(SENT)).await;
    let (mut served, _) = replica.request().await;
    assert!(begun.elapsed() > Duration::from_millis(250), "{:?}", begun.elapsed());
    served.send(OK).await;
    assert_eq!(wire.message().await.status(), 200);
}

#[tokio::test]
async fn a_body_under_way_is_stopped_when_memory_is_full() {
    const SENT: usize = 8 << 20;
    const CEILING: usize = 256 << 20;
    let _alone = MEASURING.lock().await;
    let replica = Scripted::start().await.serve(OK);
    let setup = Setup::new().set(format!("limits.memory_bytes_max = {CEILING}"));
    let node = setup.replica("a", replica.address).start().await;
    let address = node.addresses()[0];
    let mut wire = Wire::connect(address).await;
    let length = SENT + 1_000;
    let head =
        format!("POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    wire.send(head).await;
    wire.send(" ".repeat(SENT)).await;
    let held = || node.gateway().door.body_bytes();
    eventually("most of it is there", || held() >= SENT as u64).await;
    let used = vec![1_u8; CEILING];
    eventually("memory is full", || is_full(&node)).await;
    let reply = wire.message().await;
    assert!(reply.head.starts_with("HTTP/1.1 503 "), "{}", reply.head);
    assert_eq!(reply.header("x-spillway-shed-reason"), Some("memory"));
    assert!(reply.header("retry-after").is_some(), "{}", reply.head);
    wire.end().await;
    assert_eq!(held(), 0);
    drop(used);
    eventually("there is room again", || !node.gateway().door.memory().is_tight()).await;
    assert_eq!(Client::once(address, chat("tiny", "")).await.status, 200);
}

#[tokio::test]
async fn long_names_that_nobody_serves_leave_short_errors() {
    const NAME: usize = 12 << 20;
    let _alone = MEASURING.lock().await;
    let node = Setup::new().start().await;
    let name = "\\\"".repeat(NAME / 2);
    let body = format!("{{\"model\":\"{name}\"}}");
    let mut unread = Vec::new();
    for _ in 0..4 {
        let mut wire = Wire::connect(node.addresses()[0]).await;
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        wire.send(head).await;
        wire.send(&body).await;
        unread.push(wire);
    }
    for mut wire in unread {
        let reply = wire.message().await;
        assert!(reply.head.starts_with("HTTP/1.1 404 "), "{}", reply.head);
        assert!(reply.body.len() < 2_000, "{} bytes", reply.body.len());
    }
}

/// The client's side of the test above: holds connections until its input ends.
#[test]
#[ignore = "is run by another test, in a process of its own"]
fn hold_connections() {
    let address = std::env::var(HOLD).expect("is run by another test");
    let held: Vec<_> = (0..IDLE_CONNECTIONS)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(&address).expect("connects");
            stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").expect("is taken");
            let mut start = [0; 12];
            stream.read_exact(&mut start).expect("is answered");
            assert_eq!(&start, b"HTTP/1.1 200");
            stream
        })
        .collect();
    println!("held");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("input ends");
    drop(held);
}
