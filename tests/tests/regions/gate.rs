//! A replica that holds each request until the test releases it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spillway_tests::{Message, OK, Scripted, Wire, spawn};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

/// The replica. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    books: Arc<Mutex<Books>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Books {
    /// Every request that ever came.
    arrived: Vec<Arrived>,
    held: Vec<Held>,
}

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    /// Value of `x-request-id`.
    pub(crate) id: String,
    pub(crate) message: Message,
    /// Requests here, itself included.
    pub(crate) busy: usize,
}

#[derive(Debug)]
struct Held {
    number: usize,
    id: String,
    go: Option<oneshot::Sender<()>>,
}

impl Gate {
    pub(crate) async fn start() -> Self {
        let replica = Scripted::start().await;
        let (address, books) = (replica.address, Arc::<Mutex<Books>>::default());
        let task = spawn(serve(replica, Arc::clone(&books)));
        Self { address, books, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request that ever came, in order.
    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        lock(&self.books).arrived.clone()
    }

    /// Returns the number of requests held here now whose id begins with `prefix`.
    pub(crate) fn held(&self, prefix: &str) -> usize {
        let is_kept = |held: &&Held| held.go.is_some() && held.id.starts_with(prefix);
        lock(&self.books).held.iter().filter(is_kept).count()
    }

    /// Answers the `count` that have been here longest of those whose id begins with that.
    pub(crate) fn release(&self, prefix: &str, count: usize) {
        let mut books = lock(&self.books);
        let held = books.held.iter_mut().filter(|held| held.id.starts_with(prefix));
        let ways: Vec<_> = held.filter_map(|held| held.go.take()).take(count).collect();
        assert_eq!(ways.len(), count, "so many {prefix} were here");
        for go in ways {
            // A client that has just given up ignores the signal.
            let _: Result<(), ()> = go.send(());
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(replica: Scripted, books: Arc<Mutex<Books>>) {
    let mut connections = JoinSet::new();
    loop {
        // It has a deadline, after which no test here expects a connection any more.
        connections.spawn(keep(replica.accept().await, Arc::clone(&books)));
    }
}

async fn keep(mut wire: Wire, books: Arc<Mutex<Books>>) {
    while wire.has_more().await {
        let message = wire.message().await;
        let (number, go) = enter(&books, message);
        let is_answered = tokio::select! {
            _ = go => true,
            // Its client gave up.
            _ = wire.has_more() => false,
        };
        lock(&books).held.retain(|held| held.number != number);
        if !is_answered || wire.try_send(OK).await.is_err() {
            return;
        }
    }
}

fn enter(books: &Mutex<Books>, message: Message) -> (usize, oneshot::Receiver<()>) {
    let (go, gone) = oneshot::channel();
    let mut books = lock(books);
    let (number, busy) = (books.arrived.len(), books.held.len() + 1);
    // Without the suffix that the node added.
    let id = message.header("x-request-id").unwrap_or_default();
    let id = id.rsplit_once('-').map_or(id, |(chosen, _)| chosen).to_owned();
    books.held.push(Held { number, id: id.clone(), go: Some(go) });
    books.arrived.push(Arrived { id, message, busy });
    (number, gone)
}

fn lock(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}
