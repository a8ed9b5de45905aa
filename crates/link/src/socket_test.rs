use std::collections::BTreeMap;
use std::fs;
use std::future::poll_fn;
use std::io::IoSliceMut;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use quinn::AsyncUdpSocket;
use quinn::udp::{BATCH_SIZE, RecvMeta, Transmit};
use tokio::time::timeout;

use super::LinkSocket;

/// Bit of `epoll` for room to send.
const EPOLLOUT: u32 = 0x4;
/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn socket() -> (Arc<LinkSocket>, i32) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let number = socket.as_raw_fd();
    (Arc::new(LinkSocket::new(socket).unwrap()), number)
}

fn send(from: &LinkSocket, to: &LinkSocket, contents: &[u8]) {
    let destination = to.local_addr().unwrap();
    let packet = Transmit { destination, ecn: None, contents, segment_size: None, src_ip: None };
    from.try_send(&packet).unwrap();
}

/// Returns the bytes of the packets that arrive until there are `count`, in their order.
async fn receive(socket: &LinkSocket, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut memory = vec![[0_u8; 2_048]; BATCH_SIZE];
    while bytes.len() < count {
        let mut meta = vec![RecvMeta::default(); BATCH_SIZE];
        let mut buffers: Vec<_> = memory.iter_mut().map(|part| IoSliceMut::new(part)).collect();
        let arrives = poll_fn(|context| socket.poll_recv(context, &mut buffers, &mut meta));
        let arrived = timeout(PATIENCE, arrives).await.expect("a packet is told of").unwrap();
        for (buffer, meta) in memory.iter().zip(&meta).take(arrived) {
            // Packets of one byte each, however the system put them together.
            bytes.extend_from_slice(&buffer[..meta.len]);
        }
    }
    bytes
}

/// Returns what the system is asked to tell of this file: the bits of `epoll` by the number of the
/// file or of a duplicate.
fn asked_of(file: i32) -> BTreeMap<String, u32> {
    let target = fs::read_link(format!("/proc/self/fd/{file}")).unwrap();
    let is_it = |number: &str| {
        fs::read_link(format!("/proc/self/fd/{number}")).is_ok_and(|link| link == target)
    };
    let files = fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let asked = |line: &str| {
        let mut words = line.strip_prefix("tfd:")?.split_whitespace();
        let (number, _, events) = (words.next()?, words.next()?, words.next()?);
        let bits = u32::from_str_radix(events, 16).ok()?;
        is_it(number).then(|| (number.to_owned(), bits))
    };
    texts.flat_map(|text| text.lines().filter_map(asked).collect::<Vec<_>>()).collect()
}

#[tokio::test]
async fn room_to_send_is_asked_for_only_while_a_packet_waits_for_it() {
    let (socket, file) = socket();
    let asked = asked_of(file);
    let for_room =
        |asked: &BTreeMap<_, u32>| asked.values().filter(|bits| *bits & EPOLLOUT != 0).count();
    assert!(asked.len() == 1 && for_room(&asked) == 0, "at first: {asked:x?}");

    let mut room = Arc::clone(&socket).create_io_poller();
    poll_fn(|context| room.as_mut().poll_writable(context)).await.unwrap();
    assert_eq!(asked_of(file), asked, "there is room");

    // As after a packet that found none.
    socket.is_full.store(true, Ordering::Relaxed);
    let first = poll_fn(|context| Poll::Ready(room.as_mut().poll_writable(context))).await;
    assert!(first.is_pending(), "the system has not said yet that there is room");
    let waiting = asked_of(file);
    assert!(waiting.len() == 2 && for_room(&waiting) == 1, "while one waits: {waiting:x?}");
    let has_room = poll_fn(|context| room.as_mut().poll_writable(context));
    timeout(PATIENCE, has_room).await.expect("there is room").unwrap();
    assert!(!socket.is_full.load(Ordering::Relaxed));
    assert_eq!(asked_of(file), asked, "once there was room");
}

#[tokio::test]
async fn bursts_of_more_than_one_call_can_take_arrive_whole_and_so_does_what_follows() {
    let ((sender, _), (receiver, _)) = (socket(), socket());
    for count in [1, BATCH_SIZE - 1, BATCH_SIZE, BATCH_SIZE + 1, 3 * BATCH_SIZE, 1] {
        let sent: Vec<u8> = (0..count).map(|number| number as u8).collect();
        for byte in &sent {
            send(&sender, &receiver, std::slice::from_ref(byte));
        }
        assert_eq!(receive(&receiver, count).await, sent, "a burst of {count}");
    }
}
