//! Distance between nodes: a relay that delays UDP datagrams.
//!
//! Node `i` has an address of its own and a public one, at which the relay listens. A datagram of node `i`
//! to the public address of node `j` arrives at node `j` half a round trip later, from the public address
//! of node `i`. So nodes see public addresses alone, as behind address translation.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// UDP port of nodes and of their public addresses.
pub(crate) const LINK_PORT: u16 = 7_946;
/// Most datagrams on one path; more are lost. Enough for 100 Mbit/s over the longest path.
const DATAGRAMS_MAX: usize = 4_096;
const DATAGRAM_BYTES_MAX: usize = 65_536;

/// Datagram with the moment when it is due.
type DelayedDatagram = (Instant, Vec<u8>);

/// Returns the address at which node `index` listens, with this port.
pub(crate) fn own(index: usize, port: u16) -> SocketAddr {
    address(71, index, port)
}

/// Returns the address by which other nodes know node `index`.
pub(crate) fn public(index: usize) -> SocketAddr {
    address(72, index, LINK_PORT)
}

/// Returns an address of the loopback network, all of which Linux has without any set-up.
fn address(net: u8, index: usize, port: u16) -> SocketAddr {
    let host = u8::try_from(index + 1).expect("few nodes");
    (Ipv4Addr::new(127, 0, net, host), port).into()
}

/// Starts relays between as many nodes as the matrix of round trips has rows. They run until the
/// process ends.
///
/// # Errors
/// Returns an error if a public address is in use.
pub(crate) fn start(rtt_ms: &[Vec<f64>]) -> io::Result<()> {
    let publics: Vec<UdpSocket> =
        (0..rtt_ms.len()).map(|index| UdpSocket::bind(public(index))).collect::<Result<_, _>>()?;
    for (to, socket) in publics.iter().enumerate() {
        let mut paths = Vec::new();
        for (from, sender) in publics.iter().enumerate() {
            let (path, arriving) = sync_channel(DATAGRAMS_MAX);
            let sender = sender.try_clone()?;
            spawn(move || deliver(&arriving, &sender, own(to, LINK_PORT)));
            let way = Duration::from_secs_f64(rtt_ms[from][to] / 2e3);
            paths.push((own(from, LINK_PORT), way, path));
        }
        let socket = socket.try_clone()?;
        spawn(move || take(&socket, &paths));
    }
    Ok(())
}

/// Receives datagrams to one public address, and puts each on the path from its sender.
fn take(socket: &UdpSocket, paths: &[(SocketAddr, Duration, SyncSender<DelayedDatagram>)]) {
    let mut bytes = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        // An error is the answer to an earlier datagram: its receiver does not listen yet.
        let Ok((length, from)) = socket.recv_from(&mut bytes) else { continue };
        let Some((_, way, path)) = paths.iter().find(|(node, ..)| *node == from) else { continue };
        // A full path loses the datagram, as a full queue of a router does.
        path.try_send((Instant::now() + *way, bytes[..length].to_vec())).unwrap_or_default();
    }
}

/// Sends datagrams on once they are due. All of one path take the same time, so none overtakes another.
fn deliver(arriving: &Receiver<DelayedDatagram>, sender: &UdpSocket, to: SocketAddr) {
    for (due, datagram) in arriving {
        // wait: the rest of the delay
        sleep(due.saturating_duration_since(Instant::now()));
        // A node that does not listen yet gets its peer's next one.
        sender.send_to(&datagram, to).unwrap_or_default();
    }
}
