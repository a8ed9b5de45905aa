use std::future::poll_fn;
use std::net::UdpSocket;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use quinn::udp::Transmit;
use quinn::{Runtime, TokioRuntime};
use tokio_util::task::TaskTracker;

use super::{Path, Paths, wrap};

/// Returns the times that packets take from a delayed socket to a plain one, in the order of
/// arrival.
async fn arrivals(paths: Arc<Paths>, path: Path, packets: u8) -> Vec<(u8, Duration)> {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_nonblocking(true).unwrap();
    let receiver = tokio::net::UdpSocket::from_std(receiver).unwrap();
    let destination = receiver.local_addr().unwrap();
    paths.set(destination, path);
    let tracker = TaskTracker::new();
    let plain = TokioRuntime.wrap_udp_socket(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    let socket = wrap(plain, paths, &tracker).unwrap();
    assert_eq!(socket.max_transmit_segments(), 1);
    let mut poller = Arc::clone(&socket).create_io_poller();
    let sent = Instant::now();
    for number in 0..packets {
        let contents = [number; 100];
        let transmit = Transmit {
            destination,
            ecn: None,
            contents: &contents,
            segment_size: None,
            src_ip: None,
        };
        poll_fn(|context| {
            ready!(poller.as_mut().poll_writable(context))?;
            Poll::Ready(socket.try_send(&transmit))
        })
        .await
        .unwrap();
    }
    let mut arrived = Vec::new();
    let mut buffer = [0; 2_000];
    // The wait is longer than any packet takes.
    while let Ok(got) =
        tokio::time::timeout(Duration::from_millis(300), receiver.recv(&mut buffer)).await
    {
        assert_eq!(got.unwrap(), 100);
        arrived.push((buffer[0], sent.elapsed()));
    }
    drop((socket, poller));
    tracker.close();
    tokio::time::timeout(Duration::from_secs(5), tracker.wait()).await.expect("its thread ends");
    arrived
}

#[tokio::test]
async fn packets_come_late_and_in_order() {
    let path = Path { jitter: Duration::from_millis(20), ..Path::of(Duration::from_millis(40)) };
    let arrived = arrivals(Paths::new(1), path, 50).await;
    let numbers: Vec<u8> = arrived.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (0..50).collect::<Vec<_>>());
    assert!(arrived[0].1 >= Duration::from_millis(40), "{arrived:?}");
}

#[tokio::test]
async fn a_perfect_way_passes_at_once_and_a_cut_one_not_at_all() {
    let arrived = arrivals(Paths::new(1), Path::default(), 20).await;
    assert_eq!(arrived.len(), 20);
    let cut = Path { cut: true, ..Path::default() };
    assert_eq!(arrivals(Paths::new(1), cut, 20).await, []);
}

#[tokio::test]
async fn the_same_seed_loses_and_doubles_the_same_packets() {
    let path = Path { loss_permille: 300, double_permille: 300, ..Path::default() };
    let numbers = async |seed| {
        let arrived = arrivals(Paths::new(seed), path, 60).await;
        arrived.into_iter().map(|(number, _)| number).collect::<Vec<_>>()
    };
    let first = numbers(5).await;
    assert_eq!(first, numbers(5).await);
    assert_ne!(first, numbers(6).await);
    let distinct: std::collections::BTreeSet<_> = first.iter().collect();
    assert!(distinct.len() < 60 && first.len() > distinct.len(), "{first:?}");
}
