//! TCP keep-alive: probes on silent connections, and the end of those whose peer is gone.
//!
//! A call may be silent for an hour, and load balancers and NAT gateways forget silent connections:
//! Azure's after 240 s, AWS's (NLB, NAT gateway) after 350 s. A probe each minute keeps them. The kernel sends the
//! probes and its peer answers them, so a blocked server answers, too, and no server counts them.
//! HTTP/2 PINGs are another matter: gRPC servers close connections that send more than one in five
//! minutes.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// Silence before the first probe.
const IDLE: Duration = Duration::from_secs(60);
/// Time between two probes without an answer.
const INTERVAL: Duration = Duration::from_secs(15);
/// Probes without an answer after which the peer is gone.
const PROBES: u32 = 4;

/// Time after which a connection ends whose peer acknowledges nothing: as long as a silent peer takes
/// to be found gone. Linux applies this limit also to a peer whose window stays full, so it is far
/// above the pauses of engines that compile or load.
pub const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(120);

/// Prepares a new connection: keep-alive as by [`keep_alive`], and no delay of small writes.
///
/// # Errors
/// Returns an error if the socket is closed.
pub fn set_up(socket: &impl AsFd) -> io::Result<()> {
    // Without this, a request's last bytes could wait for the next acknowledgement.
    SockRef::from(socket).set_tcp_nodelay(true)?;
    keep_alive(socket, UNACKNOWLEDGED_MAX)
}

/// Turns keep-alive on, and ends the connection once sent bytes are unacknowledged for
/// `unacknowledged_max`. Sockets that a listening socket accepts inherit both.
///
/// # Errors
/// Returns an error if the socket is closed.
pub fn keep_alive(socket: &impl AsFd, unacknowledged_max: Duration) -> io::Result<()> {
    let socket = SockRef::from(socket);
    let probes = TcpKeepalive::new().with_time(IDLE).with_interval(INTERVAL).with_retries(PROBES);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(Some(unacknowledged_max))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn both_ends_probe_a_silent_connection_before_a_load_balancer_forgets_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        keep_alive(&listener, 2 * UNACKNOWLEDGED_MAX).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        set_up(&near).unwrap();
        let (far, _) = listener.accept().unwrap();
        for (socket, limit) in [(&near, UNACKNOWLEDGED_MAX), (&far, 2 * UNACKNOWLEDGED_MAX)] {
            let socket = SockRef::from(socket);
            assert!(socket.keepalive().unwrap());
            assert!(socket.tcp_keepalive_time().unwrap() < Duration::from_secs(240));
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(limit));
        }
    }

    #[test]
    fn a_silent_peer_is_found_gone_in_the_time_that_unacknowledged_bytes_have() {
        assert_eq!(IDLE + INTERVAL * PROBES, UNACKNOWLEDGED_MAX);
    }
}
