//! UDP relay between two nodes, like an address translator: it can change the address that the far
//! side sees, and it remembers the packets.

use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// Relay of packets between any sender and one server.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    front: UdpSocket,
    server: SocketAddr,
    back: Mutex<Arc<UdpSocket>>,
    changed: tokio::sync::Notify,
    passed: Mutex<Vec<Vec<u8>>>,
}

fn socket() -> Arc<UdpSocket> {
    let socket = StdSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    Arc::new(UdpSocket::from_std(socket).unwrap())
}

impl Relay {
    pub(super) async fn start(server: SocketAddr) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = front.local_addr().unwrap();
        let state = Arc::new(State {
            front,
            server,
            back: Mutex::new(socket()),
            changed: tokio::sync::Notify::new(),
            passed: Mutex::new(Vec::new()),
        });
        #[expect(clippy::disallowed_methods, reason = "ended with the relay")]
        let task = tokio::spawn(pass(Arc::clone(&state)));
        Self { address, state, task }
    }

    /// Shows the server another address from now on.
    pub(super) fn rebind(&self) {
        *self.state.back.lock().unwrap() = socket();
        self.state.changed.notify_one();
    }

    /// Returns all bytes that went to the server so far.
    pub(super) fn passed(&self) -> Vec<Vec<u8>> {
        self.state.passed.lock().unwrap().clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(state: Arc<State>) {
    let (mut there, mut back_again) = (vec![0; 65_536], vec![0; 65_536]);
    let mut client = None;
    loop {
        let back = Arc::clone(&state.back.lock().unwrap());
        tokio::select! {
            got = state.front.recv_from(&mut there) => {
                let (bytes, from) = got.unwrap();
                client = Some(from);
                state.passed.lock().unwrap().push(there[..bytes].to_vec());
                back.send_to(&there[..bytes], state.server).await.unwrap();
            }
            got = back.recv_from(&mut back_again) => {
                let (bytes, _) = got.unwrap();
                if let Some(client) = client {
                    state.front.send_to(&back_again[..bytes], client).await.unwrap();
                }
            }
            () = state.changed.notified() => {}
        }
    }
}
