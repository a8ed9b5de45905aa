//! A replica under the control of the test, byte by byte.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use spillway_testkit::{spawn, within};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::wire::{Message, Wire};

/// A listening socket; the test answers the accepted connections.
#[derive(Debug)]
pub struct Scripted {
    listener: TcpListener,
    /// Address that it listens on.
    pub address: SocketAddr,
}

/// The requests that a replica got.
#[derive(Clone, Debug, Default)]
pub struct Recorded(Arc<Mutex<Vec<Message>>>);

/// A replica that gives every request the same reply. Ends when dropped.
#[derive(Debug)]
pub struct Serving {
    /// Address that it listens on.
    pub address: SocketAddr,
    /// Requests that it received.
    pub requests: Recorded,
    task: JoinHandle<()>,
}

impl Scripted {
    /// Listens on a free port.
    ///
    /// # Panics
    /// If there is none.
    pub async fn start() -> Self {
        Self::at(([127, 0, 0, 1], 0).into()).await
    }

    /// Listens on this address.
    ///
    /// # Panics
    /// If another socket has it.
    pub async fn at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        Self { listener, address }
    }

    /// An address that refuses connections for as long as the test runs: it stays bound, or another
    /// test could be given it.
    ///
    /// # Panics
    /// If the machine has no port left.
    pub fn refusing() -> SocketAddr {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        let address = socket.local_addr().expect("an address");
        std::mem::forget(socket);
        address
    }

    /// The next connection.
    ///
    /// # Panics
    /// If none comes.
    pub async fn accept(&self) -> Wire {
        let (stream, _) =
            within("a connection", self.listener.accept()).await.expect("a connection");
        Wire::new(stream)
    }

    /// The next connection with its first request.
    ///
    /// # Panics
    /// If none comes.
    pub async fn request(&self) -> (Wire, Message) {
        let mut wire = self.accept().await;
        let message = wire.message().await;
        (wire, message)
    }

    /// Returns true if no connection is waiting to be accepted. Call this once every request that
    /// could reach this server has been answered, so that no connection can still be in transit.
    pub async fn is_alone(&self) -> bool {
        timeout(Duration::from_millis(50), self.listener.accept()).await.is_err()
    }

    /// Answers every request on every connection with `reply` from now on.
    #[must_use]
    pub fn serve(self, reply: impl Into<Vec<u8>>) -> Serving {
        let reply: Arc<[u8]> = reply.into().into();
        let requests = Recorded::default();
        let recorded = requests.clone();
        let listener = self.listener;
        let task = spawn(async move {
            // Ends with this task, and its connections with it.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer(stream, Arc::clone(&reply), recorded.clone()));
            }
        });
        Serving { address: self.address, requests, task }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Recorded {
    /// All of them, in the order of their arrival.
    #[must_use]
    pub fn all(&self) -> Vec<Message> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of recorded requests.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The last one.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn last(&self) -> Message {
        self.all().pop().expect("a request")
    }

    fn push(&self, message: Message) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(message);
    }
}

async fn answer(stream: tokio::net::TcpStream, reply: Arc<[u8]>, recorded: Recorded) {
    let mut wire = Wire::new(stream);
    // An idle connection waits for ever: the other side decides when it has had enough of it.
    while wire.has_more().await {
        recorded.push(wire.message().await);
        if wire.try_send(&reply).await.is_err() {
            return;
        }
    }
}
