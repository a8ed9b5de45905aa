//! The threads that serve requests, and the sockets they accept on.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use socket2::{Domain, Protocol, Socket, Type};
use spillway_proxy::{Listener, Worker, accept_loop};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::config::WorkerLayout;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// A listener with one socket per accepting thread.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) listener: Arc<Listener>,
    pub(crate) address: SocketAddr,
    /// The address in the config; its port may be 0.
    pub(crate) configured: SocketAddr,
    sockets: Vec<TcpListener>,
}

impl Bound {
    /// Opens `count` sockets on one address; the kernel spreads connections over them.
    ///
    /// # Errors
    /// If the address is taken or not ours.
    pub(crate) fn open(listener: Listener, address: SocketAddr, count: usize) -> io::Result<Self> {
        let (configured, first) = (address, open_socket(address)?);
        // Port 0 has become a real one by now, which the other sockets must share.
        let address = first.local_addr()?;
        let mut sockets = vec![first];
        for _ in 1..count {
            sockets.push(open_socket(address)?);
        }
        Ok(Self { listener: Arc::new(listener), address, configured, sockets })
    }
}

fn open_socket(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// How many accepting units a layout has: each gets its own sockets, pools and queue.
pub(crate) fn unit_count(layout: WorkerLayout, threads: usize) -> usize {
    match layout {
        WorkerLayout::PerCore => threads,
        WorkerLayout::Shared => 1,
    }
}

/// Starts the threads. Each serves until `stop`, which is to be cancelled only after draining.
///
/// # Errors
/// If a thread or runtime can't be made.
pub(crate) fn start(
    workers: &[Arc<Worker>],
    bound: &mut [Bound],
    (layout, threads): (WorkerLayout, usize),
    stop: &CancellationToken,
) -> io::Result<Vec<JoinHandle<()>>> {
    let mut handles = Vec::new();
    for (index, worker) in workers.iter().enumerate() {
        let runtime = runtime(layout, threads)?;
        let sockets: Vec<_> = bound
            .iter_mut()
            .filter_map(|bound| Some((Arc::clone(&bound.listener), bound.sockets.pop()?)))
            .collect();
        let worker = Arc::clone(worker);
        let stop = stop.clone();
        let thread = Builder::new().name(format!("spillway-{index}"));
        handles.push(thread.spawn(move || runtime.block_on(serve(worker, sockets, stop)))?);
    }
    Ok(handles)
}

fn runtime(layout: WorkerLayout, threads: usize) -> io::Result<Runtime> {
    match layout {
        WorkerLayout::PerCore => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        WorkerLayout::Shared => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("spillway-shared")
            .enable_all()
            .build(),
    }
}

async fn serve(
    worker: Arc<Worker>,
    sockets: Vec<(Arc<Listener>, TcpListener)>,
    stop: CancellationToken,
) {
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(Arc::clone(&worker).sweep_loop());
    for (listener, socket) in sockets {
        match tokio::net::TcpListener::from_std(socket) {
            Ok(socket) => drop(tasks.spawn(accept_loop(Arc::clone(&worker), listener, socket))),
            Err(error) => tracing::error!(%error, "can't accept on a socket"),
        }
    }
    // The loops end when the gateway drains; connections live on until then or until `stop`.
    stop.cancelled().await;
}
