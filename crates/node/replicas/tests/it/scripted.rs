//! HTTP/1.1 server whose answers the test sets.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Server that counts its connections and requests. A drop closes all of them.
pub(crate) struct Scripted {
    pub(crate) port: u16,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

struct State {
    reply: Mutex<(u16, String)>,
    connections: AtomicUsize,
    heads: Mutex<Vec<String>>,
}

impl Scripted {
    pub(crate) async fn start(status: u16, body: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            reply: Mutex::new((status, body.to_owned())),
            connections: AtomicUsize::new(0),
            heads: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&state)));
        Self { port, state, _tasks: tasks }
    }

    pub(crate) fn reply(&self, status: u16, body: &str) {
        *self.state.reply.lock().unwrap() = (status, body.to_owned());
    }

    /// Returns the number of accepted connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Returns the heads of the requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.state.heads.lock().unwrap().clone()
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        state.connections.fetch_add(1, Ordering::SeqCst);
        connections.spawn(serve(stream, Arc::clone(&state)));
    }
}

/// Serves requests without a body until the client goes.
async fn serve(mut stream: TcpStream, state: Arc<State>) {
    let mut read = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
            match stream.read_buf(&mut read).await {
                Ok(1..) => {}
                _ => return,
            }
        };
        let head: Vec<u8> = read.drain(..end).collect();
        state.heads.lock().unwrap().push(String::from_utf8(head).unwrap());
        let (status, body) = state.reply.lock().unwrap().clone();
        let length = body.len();
        let reply = format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n{body}");
        if stream.write_all(reply.as_bytes()).await.is_err() {
            return;
        }
    }
}
