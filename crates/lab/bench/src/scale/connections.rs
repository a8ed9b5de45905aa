//! Memory and CPU of client connections that have made a request each and stay open.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use http_body_util::BodyExt as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use spillway_harness::Connection;
use tokio::net::TcpSocket;

use crate::request::ChatBody;
use crate::scale::figures::{ScaleFigures, progress};
use crate::scale::site::{SHORT_ANSWER, ScaleNode, ScaleSite};
use crate::usage::descendants_usage;

/// Bytes of each request's body.
const BODY_BYTES: usize = 1024;

/// Connections from each address: below `limits.connections_per_client_max`, 4,096 by default.
const PER_SOURCE: u16 = 2_500;

/// Requests at a time while the connections are opened.
const AT_A_TIME: usize = 64;

/// Time over which the idle node is measured; all is over before `limits.idle_timeout_ms` (75 s).
const WINDOW: Duration = Duration::from_secs(10);

/// Time after which all connections are at rest: two checks of their watchdogs, which are 5 s apart
/// by default, and one more.
const REST: Duration = Duration::from_secs(15);

/// Files that a process has open beside its connections.
const OTHER_FILES: u64 = 500;

/// Opens `count` connections and measures the idle node before and after.
pub(super) async fn measure(spillway: &Path, count: u16) -> anyhow::Result<ScaleFigures> {
    raise_files_max(count)?;
    let site = ScaleSite::start(SHORT_ANSWER)?;
    let node = site.node(spillway, "connections", "").await?;
    // The same work with connections that end, so that the difference is due to open ones.
    drop(open(node.address(), count).await?);
    node.settle().await?;
    let columns = &[
        ("resident, MiB", 1),
        ("anonymous, MiB", 1),
        ("KiB more a connection", 2),
        ("CPU when idle, ms/s", 2),
    ];
    let mut figures = ScaleFigures::new("connections", columns);
    let cpu_ms = idle_cpu_ms(&node).await?;
    let before = node.memory()?;
    figures.push("0", &[before.resident_mib, before.anonymous_mib, f64::NAN, cpu_ms]);
    let connections = open(node.address(), count).await?;
    // wait: for connections to come to rest, which shows nowhere else than in memory
    tokio::time::sleep(REST).await;
    node.settle().await?;
    let cpu_ms = idle_cpu_ms(&node).await?;
    let memory = node.memory()?;
    let closed = connections.iter().filter(|one| !one.is_open()).count();
    anyhow::ensure!(closed == 0, "the node closed {closed} connections");
    let more_kib = (memory.resident_mib - before.resident_mib) * 1024.0 / f64::from(count);
    figures.push(count.to_string(), &[memory.resident_mib, memory.anonymous_mib, more_kib, cpu_ms]);
    Ok(figures)
}

/// Returns the CPU milliseconds a second of the node, over the window.
async fn idle_cpu_ms(node: &ScaleNode) -> anyhow::Result<f64> {
    let before = descendants_usage(node.guard())?;
    // wait: the window of the measurement
    tokio::time::sleep(WINDOW).await;
    let after = descendants_usage(node.guard())?;
    Ok(after.cpu_s_since(&before) * 1e3 / WINDOW.as_secs_f64())
}

/// Lets this process, and those that it starts, have a file for each connection.
fn raise_files_max(connections: u16) -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let needed = u64::from(connections) + OTHER_FILES;
    // `None` is without limit.
    let maximum = limit.maximum.unwrap_or(u64::MAX);
    anyhow::ensure!(maximum >= needed, "{needed} files are needed, {maximum} are allowed");
    let current = limit.current.map(|current| current.max(needed));
    Ok(setrlimit(Resource::Nofile, Rlimit { current, maximum: limit.maximum })?)
}

/// Opens connections and makes a request on each.
async fn open(target: SocketAddr, count: u16) -> anyhow::Result<Vec<Connection>> {
    let body = ChatBody::new(BODY_BYTES, false)?;
    let opening = stream::iter(0..count).map(|number| open_one(target, body.clone(), number));
    let opened: Vec<Connection> = opening.buffer_unordered(AT_A_TIME).try_collect().await?;
    progress(&format!("{} connections opened", opened.len()));
    Ok(opened)
}

async fn open_one(
    target: SocketAddr,
    mut body: ChatBody,
    number: u16,
) -> anyhow::Result<Connection> {
    let socket = TcpSocket::new_v4()?;
    let host = u8::try_from(2 + number / PER_SOURCE)?;
    socket.bind((Ipv4Addr::new(127, 0, 0, host), 0).into()).context("a port for a client")?;
    let mut connection = Connection::http1(socket.connect(target).await?).await?;
    body.stamp(number.into());
    let sent = connection.send(body.request()?).await;
    let response = sent.map_err(|error| error.into_error())?;
    anyhow::ensure!(response.status() == 200, "answered with {}", response.status());
    response.collect().await?;
    Ok(connection)
}
