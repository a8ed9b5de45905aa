//! HTTP server of one replica: accepts connections and serves HTTP/1.1 and h2c on them.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api;
use crate::body::ReplyBody;
use crate::fault::Close;
use crate::life::{Life, Listening};
use crate::replica::EmulatedReplica;
use crate::socket::{Socket, SocketSwitch};

/// Largest number of concurrent requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 1024;
/// Pause after a failed accept, e.g. when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Accepts connections until closed, or until the replica stops.
pub(crate) fn listen(replica: &Arc<EmulatedReplica>, listener: TcpListener) -> Listening {
    let stop = replica.stop.child_token();
    let task = replica.tasks.spawn(accept(Arc::clone(replica), listener, stop.clone()));
    Listening { stop, task }
}

/// Executor of hyper's tasks that lets shutdown and crashes wait for them.
#[derive(Clone, Debug)]
struct Executor {
    life: Life,
    tasks: TaskTracker,
}

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.tasks.spawn(self.life.connections.track_future(future));
    }
}

async fn accept(replica: Arc<EmulatedReplica>, listener: TcpListener, stop: CancellationToken) {
    let permits = Arc::new(Semaphore::new(replica.connections_max));
    loop {
        let connection = async {
            // The semaphore is never closed, so every wait for a permit succeeds.
            let permit = Arc::clone(&permits).acquire_owned().await.ok();
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            // Stop is checked first, so that no connection is accepted after it.
            biased;
            () = stop.cancelled() => return,
            connection = connection => connection,
        };
        match accepted {
            Ok((stream, _)) => spawn_connection(&replica, stream, permit),
            Err(error) => {
                tracing::warn!(%error, replica = replica.index, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn spawn_connection(
    replica: &Arc<EmulatedReplica>,
    stream: TcpStream,
    permit: Option<OwnedSemaphorePermit>,
) {
    let life = replica.life();
    let replica = Arc::clone(replica);
    let executor = Executor { life, tasks: replica.tasks.clone() };
    hyper::rt::Executor::execute(&executor.clone(), async move {
        serve(replica, stream, executor).await;
        drop(permit);
    });
}

async fn serve(replica: Arc<EmulatedReplica>, stream: TcpStream, executor: Executor) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "the client went away at once");
        return;
    }
    let switch = SocketSwitch::default();
    let io = TokioIo::new(Socket::new(stream, switch.clone(), replica.freeze_gate.clone()));
    let service = service_fn(|request: Request<Incoming>| {
        let (replica, switch) = (Arc::clone(&replica), switch.clone());
        async move { Ok::<Response<ReplyBody>, Infallible>(api::serve(replica, switch, request).await) }
    });
    let mut builder = auto::Builder::new(executor.clone());
    builder.http2().max_concurrent_streams(STREAMS_MAX);
    // Dropped before the end of this function, so that the switch is set when the socket is
    // dropped.
    let served = async {
        let connection = pin!(builder.serve_connection(io, service));
        tokio::select! {
            result = connection => Some(result),
            () = executor.life.over() => {
                switch.close(Close::Reset);
                None
            }
        }
    };
    if let Some(Err(error)) = Box::pin(served).await {
        tracing::debug!(%error, replica = replica.index, "a connection ended early");
    }
}
