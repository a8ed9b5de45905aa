//! The threads that serve requests, the thread that accepts for them, and the listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use spillway_front::client::{HandOut, Listener, accept_loop, serve_handed};
use spillway_front::front_door::FrontDoor;
use spillway_front::port_holder::narrower_or_wider;
use spillway_proxy::Worker;
use spillway_sockets::{UNACKNOWLEDGED_MAX, keep_alive};
use spillway_tasks::TaskWatch;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::liveness::Beats;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 4096;
/// Maximum number of accepted connections that wait for their worker; more wait in the kernel.
const HANDED_MAX: usize = 256;
/// Time that an accepting thread waits for a connection before it checks whether the node drains.
/// Each check costs an idle node some 50 microseconds.
const ACCEPT_LIMIT: Duration = Duration::from_millis(250);
/// Maximum number of attempts to open a socket. Of two processes that begin to listen at one moment
/// both may fail; after different random pauses one succeeds.
const TRIES_MAX: u32 = 6;
/// Unit of the random pauses, in ms: the pause after attempt n is shorter than `PAUSE_MS << n`.
const PAUSE_MS: u64 = 10;

/// A listener with its socket.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) listener: Arc<Listener>,
    pub(crate) address: SocketAddr,
    /// The address in the config; its port may be 0.
    pub(crate) configured: SocketAddr,
    socket: Option<TcpListener>,
}

impl Bound {
    /// Opens the socket of a listener. Unless it `shares` its port, the kernel lets no other
    /// process listen on it, on this address or on one that overlaps with it. The gateway itself ends
    /// connections whose client takes nothing for `stall`, so the kernel waits for longer.
    ///
    /// # Errors
    /// Returns an error if the address is taken, or is none of this machine.
    pub(crate) async fn open(
        listener: Listener,
        configured: SocketAddr,
        shares: bool,
        stall: Duration,
    ) -> io::Result<Self> {
        let socket = open_socket(configured, shares).await?;
        keep_alive(&socket, UNACKNOWLEDGED_MAX.max(2 * stall))?;
        // Port 0 has become a real one by now.
        let address = socket.local_addr()?;
        Ok(Self { listener: Arc::new(listener), address, configured, socket: Some(socket) })
    }
}

/// Opens a socket that listens. Two processes may share a port only if both set `shares`, and only
/// with equal addresses.
///
/// # Errors
/// Returns an error if the address is taken, or is none of this machine.
pub(crate) async fn open_socket(address: SocketAddr, shares: bool) -> io::Result<TcpListener> {
    for attempt in 1..TRIES_MAX {
        let socket = bound_socket(address, shares)?;
        match socket.listen(BACKLOG) {
            Ok(()) => return Ok(socket.into()),
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error),
            Err(_) => {}
        }
        drop(socket);
        // Random, so that two processes do not collide again.
        let pause_ms = getrandom::u64().unwrap_or(0) % (PAUSE_MS << attempt);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    }
    let socket = bound_socket(address, shares)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Binds a socket that does not listen yet. Connections that it will accept inherit its options.
pub(crate) fn bound_socket(address: SocketAddr, shares: bool) -> io::Result<Socket> {
    if shares && narrower_or_wider(address).is_some() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    keep_alive(&socket, UNACKNOWLEDGED_MAX)?;
    // With this option on one of them alone, the kernel refuses the second.
    socket.set_reuse_port(shares)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// The threads of a node.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    pub(crate) handles: Vec<JoinHandle<()>>,
    /// Shows which workers still work.
    pub(crate) beats: Arc<Beats>,
}

impl Threads {
    /// Adds a thread that serves no requests.
    pub(crate) fn push(&mut self, handle: JoinHandle<()>) {
        self.handles.push(handle);
    }
}

/// Starts the threads. Each serves until `stop`, which is to be cancelled only after draining.
///
/// # Errors
/// Returns an error if a thread or runtime can't be made.
pub(crate) fn start(
    workers: &[Arc<Worker>],
    door: &Arc<FrontDoor>,
    bound: &mut [Bound],
    stop: &CancellationToken,
    watch: &TaskWatch,
) -> io::Result<Threads> {
    let mut sockets: Sockets = bound
        .iter_mut()
        .filter_map(|bound| Some((Arc::clone(&bound.listener), bound.socket.take()?)))
        .collect();
    let beats = Beats::new(workers.len());
    let mut handles = Vec::new();
    let mut senders = Vec::new();
    for (index, worker) in workers.iter().enumerate() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (sender, handed) = mpsc::channel(HANDED_MAX);
        senders.push(sender);
        // A single worker accepts by itself.
        let own = if workers.len() == 1 { std::mem::take(&mut sockets) } else { Vec::new() };
        let mut loops: Vec<Loop> = vec![
            ("liveness of a worker", Box::pin(Arc::clone(&beats).beat(index))),
            ("connections of a worker", Box::pin(Arc::clone(worker).sweep_loop())),
            ("handed connections", Box::pin(serve_handed(worker.entrance(), handed))),
        ];
        loops.extend(own.into_iter().map(|(listener, socket)| -> Loop {
            ("accepting", Box::pin(accept_loop(worker.entrance(), listener, socket)))
        }));
        let (stop, watch) = (stop.clone(), watch.clone());
        let thread = Builder::new().name(format!("spillway-{index}"));
        handles.push(thread.spawn(move || runtime.block_on(run(loops, watch, stop)))?);
    }
    for (index, (listener, socket)) in sockets.into_iter().enumerate() {
        let out = HandOut::new(Arc::clone(door), senders.clone());
        handles.push(start_accepting(index, out, listener, socket)?);
    }
    Ok(Threads { handles, beats })
}

type Sockets = Vec<(Arc<Listener>, TcpListener)>;

/// Starts the thread that accepts for all workers. It is a thread of its own, since a worker that
/// is busy with its streams would keep all others waiting for connections.
fn start_accepting(
    index: usize,
    out: HandOut,
    listener: Arc<Listener>,
    socket: TcpListener,
) -> io::Result<JoinHandle<()>> {
    // It was opened for a runtime, while this thread waits in the kernel.
    socket.set_nonblocking(false)?;
    // The kernel applies this limit to accepting as well.
    SockRef::from(&socket).set_read_timeout(Some(ACCEPT_LIMIT))?;
    let thread = Builder::new().name(format!("spillway-accept-{index}"));
    thread.spawn(move || out.accept(&listener, &socket))
}

/// Loop that a worker runs beside its connections, with its name.
type Loop = (&'static str, Pin<Box<dyn Future<Output = ()> + Send>>);

/// Runs a worker's loops until `stop`. One that panics is recorded in `watch`, and the others go on: the
/// requests of this worker are finished before the node ends.
async fn run(loops: Vec<Loop>, watch: TaskWatch, stop: CancellationToken) {
    let mut tasks = tokio::task::JoinSet::new();
    for (name, task) in loops {
        tasks.spawn(watch.clone().vital(name, task));
    }
    // The loops end when the gateway drains; connections live on until then or until `stop`.
    stop.cancelled().await;
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn a_loop_of_a_worker_that_panics_is_lost_and_the_worker_runs_on() {
        let (watch, stop) = (TaskWatch::default(), CancellationToken::new());
        let loops: Vec<Loop> = vec![
            ("lasting", Box::pin(pending())),
            // Without a socket of its own a worker has nothing to accept.
            ("drained", Box::pin(ready(()))),
            ("accepting", Box::pin(async { panic!("a test") })),
        ];
        let mut tasks = tokio::task::JoinSet::new();
        let worker = tasks.spawn(run(loops, watch.clone(), stop.clone()));
        assert_eq!(watch.lost().await, "accepting");
        assert!(!worker.is_finished());
        stop.cancel();
        tasks.join_next().await.unwrap().unwrap();
    }
}
