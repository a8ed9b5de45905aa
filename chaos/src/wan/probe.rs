//! Measures a network from inside, with a UDP echo of its own.

use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use super::namespace::Namespace;

/// Longest wait for an answer: three times the longest round trip on earth.
const ANSWER: Duration = Duration::from_millis(1_500);

/// Interval at which an echo checks if it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Receive buffer in bytes: 100 ms at 20,000 packets a second, while the reader is not scheduled.
const RECEIVE_BYTES: usize = 8 * 1024 * 1024;

/// UDP server that sends every packet back. Dropping this stops it.
#[derive(Debug)]
pub struct ProbeEcho {
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ProbeEcho {
    /// Starts an echo at `address` inside `namespace`.
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be bound.
    pub fn start(namespace: &Namespace, address: SocketAddrV4) -> io::Result<Self> {
        let socket = open(namespace, address)?;
        socket.set_read_timeout(Some(LOOK))?;
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stop = is_stopped.clone();
        let thread = thread::Builder::new().name("echo".to_owned()).spawn(move || {
            let mut buffer = [0; 2048];
            while !stop.load(Ordering::Relaxed) {
                if let Ok((length, sender)) = socket.recv_from(&mut buffer) {
                    // A packet that cannot be sent back counts as lost.
                    drop(socket.send_to(&buffer[..length], sender));
                }
            }
        })?;
        Ok(Self { is_stopped, thread: Some(thread) })
    }
}

impl Drop for ProbeEcho {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread has no result.
            drop(thread.join());
        }
    }
}

/// Opens a UDP socket inside `namespace`, usable from anywhere.
///
/// # Errors
///
/// Returns an error if the address cannot be bound.
pub fn open(namespace: &Namespace, address: SocketAddrV4) -> io::Result<UdpSocket> {
    let socket = namespace.run(|| UdpSocket::bind(address))??;
    // Fails without the right to exceed the system's limit; then bursts may be lost here.
    let _: Result<(), _> = set_socket_recv_buffer_size_force(&socket, RECEIVE_BYTES);
    Ok(socket)
}

/// Measured round trips between two nodes.
#[derive(Clone, Debug)]
pub struct RoundTrips {
    /// Microseconds of the probes that came back.
    pub us: Histogram<u64>,
    /// Number of probes that did not come back.
    pub lost: u64,
}

/// Sends `count` probes to the echo at `target`, one every `gap`, without waiting for answers.
///
/// # Errors
///
/// Returns an error if sending fails.
pub fn round_trips(
    socket: &UdpSocket,
    target: SocketAddrV4,
    count: u32,
    gap: Duration,
) -> io::Result<RoundTrips> {
    socket.set_read_timeout(Some(ANSWER))?;
    let start = Instant::now();
    thread::scope(|scope| {
        let sender = scope.spawn(|| -> io::Result<()> {
            for number in 0..count {
                thread::sleep((gap * number).saturating_sub(start.elapsed()));
                let sent_ns = start.elapsed().as_nanos() as u64;
                socket.send_to(&sent_ns.to_be_bytes(), target)?;
            }
            Ok(())
        });
        let measured = receive(socket, count, start);
        match sender.join() {
            Ok(sent) => sent.and(measured),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn receive(socket: &UdpSocket, count: u32, start: Instant) -> io::Result<RoundTrips> {
    // Three significant figures up to a minute.
    let mut us = Histogram::new_with_bounds(1, 60_000_000, 3).map_err(io::Error::other)?;
    let mut stamp = [0; 8];
    while us.len() < u64::from(count) {
        match socket.recv(&mut stamp) {
            Ok(8) => {
                let sent = Duration::from_nanos(u64::from_be_bytes(stamp));
                us.saturating_record(start.elapsed().saturating_sub(sent).as_micros() as u64);
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(RoundTrips { lost: u64::from(count) - us.len(), us })
}

/// Sends `count` packets of `length_bytes` one way, at most `per_second`, and returns the number
/// that arrived.
///
/// # Errors
///
/// Returns an error if a socket fails.
pub fn flood(
    sender: &UdpSocket,
    receiver: &UdpSocket,
    count: u32,
    length_bytes: usize,
    per_second: u32,
) -> io::Result<u32> {
    /// Packets sent between two looks at the clock.
    const BURST: u32 = 16;
    let target = receiver.local_addr()?;
    receiver.set_read_timeout(Some(ANSWER))?;
    let payload = vec![0; length_bytes];
    let start = Instant::now();
    thread::scope(|scope| {
        let counter = scope.spawn(|| {
            let mut buffer = [0; 2048];
            let mut arrived = 0;
            while arrived < count && receiver.recv(&mut buffer).is_ok() {
                arrived += 1;
            }
            arrived
        });
        for number in 0..count {
            if number % BURST == 0 {
                let due = Duration::from_secs(1) * number / per_second;
                thread::sleep(due.saturating_sub(start.elapsed()));
            }
            sender.send_to(&payload, target)?;
        }
        Ok(counter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
