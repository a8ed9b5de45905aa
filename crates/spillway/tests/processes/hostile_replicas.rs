//! Replicas that send without end cost a node no more memory than it sets aside for all of them.

use std::fmt::Write;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use spillway_testkit::PATIENCE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::stopping::alone::Alone;

const REPLICAS: usize = 200;
/// Memory that all of them together may cost, in KiB: the room of reads, as much again for the
/// allocator, and what a node keeps of their answers. Without that room it would be
/// `REPLICAS * PAGE_BYTES`, eight times as much.
const MORE_MAX_KIB: u64 = 96 << 10;
/// Longest page that a node reads.
const PAGE_BYTES: usize = 4 << 20;
static PIECE: [u8; 64 << 10] = [b'x'; 64 << 10];

/// Answers of the replicas to checks, scrapes and questions for their models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// With short pages.
    Calm,
    /// With a page of a gibibyte, as fast as it is read.
    Endless,
    /// With all but the end of the longest page, and then nothing.
    Stuck,
    /// With a head that has no end.
    Heads,
    /// With a thousand models of many fields each, others at each replica.
    Lists,
}

/// Servers of all replicas: pages at one port of many addresses, KV events at another.
struct Replicas {
    mood: Mood,
    pages: AtomicUsize,
    kv_openings: AtomicUsize,
}

impl Replicas {
    async fn page(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut head).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.pages.fetch_add(1, Ordering::Relaxed);
        let address = stream.local_addr()?.ip().to_string();
        let mut begin = async |length: usize| {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
            stream.write_all(head.as_bytes()).await
        };
        match self.mood {
            Mood::Calm => {
                begin(2).await?;
                stream.write_all(b"{}").await
            }
            Mood::Endless => {
                begin(1 << 30).await?;
                for _ in 0..(1 << 30) / PIECE.len() {
                    stream.write_all(&PIECE).await?;
                }
                Ok(())
            }
            Mood::Stuck => {
                begin(PAGE_BYTES).await?;
                stuck(stream).await
            }
            Mood::Heads => {
                stream.write_all(b"HTTP/1.1 200 OK\r\n").await?;
                for number in 0.. {
                    let field = format!("x-{number}: {}\r\n", "y".repeat(60));
                    stream.write_all(field.as_bytes()).await?;
                }
                Ok(())
            }
            Mood::Lists => {
                let body = match head.starts_with(b"GET /v1/models") {
                    true => list(&address),
                    false => "vllm:num_requests_waiting 1\n".to_owned(),
                };
                begin(body.len()).await?;
                stream.write_all(body.as_bytes()).await
            }
        }
    }

    /// Begins a message of the longest kind.
    async fn kv_events(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut greeting = [0; 64];
        (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
        greeting[12..16].copy_from_slice(b"NULL");
        stream.write_all(&greeting).await?;
        stream.read_exact(&mut [0; 64]).await?;
        stream.write_all(b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB").await?;
        self.kv_openings.fetch_add(1, Ordering::Relaxed);
        if self.mood == Mood::Stuck {
            stream.write_all(&[2]).await?;
            stream.write_all(&(PAGE_BYTES as u64).to_be_bytes()).await?;
            return stuck(&mut stream).await;
        }
        stream.read(&mut [0; 64]).await.map(drop)
    }
}

/// Sends all but the end of a page, and waits until its reader gives up.
async fn stuck(stream: &mut TcpStream) -> std::io::Result<()> {
    for _ in 1..PAGE_BYTES / PIECE.len() {
        stream.write_all(&PIECE).await?;
    }
    while stream.read(&mut [0; 64]).await? > 0 {}
    Ok(())
}

fn list(address: &str) -> String {
    let fields: String = (0..30).map(|field| format!(",\"f{field}\":1")).collect();
    let model = |number| format!("{{\"id\":\"{address}-{number}\",\"object\":\"model\"{fields}}}");
    let models: Vec<String> = (0..1_024).map(model).collect();
    format!("{{\"object\":\"list\",\"data\":[{}]}}", models.join(","))
}

/// Returns the most memory in KiB that a node had before it had asked each replica some times.
async fn peak_kib(mood: Mood) -> u64 {
    let replicas = Replicas { mood, pages: AtomicUsize::new(0), kv_openings: AtomicUsize::new(0) };
    let replicas = Arc::new(replicas);
    let (pages, kv) = (
        TcpListener::bind("0.0.0.0:0").await.unwrap(),
        TcpListener::bind("0.0.0.0:0").await.unwrap(),
    );
    let ports = (pages.local_addr().unwrap().port(), kv.local_addr().unwrap().port());
    let mut serving = JoinSet::new();
    let own = Arc::clone(&replicas);
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let replicas = Arc::clone(&own);
            tokio::select! {
                Ok((mut stream, _)) = pages.accept() => {
                    connections.spawn(async move { while replicas.page(&mut stream).await.is_ok() {} });
                }
                Ok((stream, _)) = kv.accept() => {
                    connections.spawn(async move { drop(replicas.kv_events(stream).await) });
                }
            }
        }
    });
    let mut text = "[node]\nname = \"n\"\nregion = \"r\"\nworkers = 1\n\
                    [[listener]]\naddress = \"127.0.0.1:0\"\nauth = \"none\"\n"
        .to_owned();
    for number in 1..=REPLICAS {
        let (page, kv) = ports;
        writeln!(
            text,
            "[[replica]]\nname = \"r{number}\"\nurl = \"http://127.1.0.{number}:{page}\"\n\
             kv_events_port = {kv}"
        )
        .unwrap();
    }
    let mut node = Alone::start(&text);
    assert!(node.serves(), "{}", node.log());
    let by = tokio::time::Instant::now() + 4 * PATIENCE;
    let asked = || {
        let (pages, kv) = (&replicas.pages, &replicas.kv_openings);
        (pages.load(Ordering::Relaxed), kv.load(Ordering::Relaxed))
    };
    while asked().0 < 8 * REPLICAS || asked().1 < REPLICAS {
        assert!(tokio::time::Instant::now() < by, "{:?}\n{}", asked(), node.log());
        // wait: between two looks
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak = peak.trim().trim_end_matches(" kB").parse().unwrap();
    node.terminate();
    node.ended();
    peak
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_send_without_end_share_a_bounded_memory() {
    // Each replica has some connections, and many systems allow 1,024 files.
    let id = std::process::id().to_string();
    let raised = Command::new("prlimit").args(["--pid", &id, "--nofile=4096:"]).status().unwrap();
    assert!(raised.success(), "{raised}");
    let calm = peak_kib(Mood::Calm).await;
    for mood in [Mood::Endless, Mood::Stuck, Mood::Heads, Mood::Lists] {
        let more = peak_kib(mood).await.saturating_sub(calm);
        assert!(more < MORE_MAX_KIB, "{mood:?} costs {more} KiB");
    }
}
