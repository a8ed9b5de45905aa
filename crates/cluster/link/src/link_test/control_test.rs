//! Datagrams, and the control connection under load and during cuts.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Full};

use super::world::{PATIENCE, World, pattern, until, until_within};
use crate::delayed::Path;
use crate::{DatagramError, ForwardAnswer, ForwardHead, PeerRoom};

fn head() -> ForwardHead {
    ForwardHead::new(Method::POST, "/".parse().unwrap())
}

#[tokio::test]
async fn datagrams_arrive_with_the_name_of_their_sender() {
    let world = World::new();
    let (a, b) = world.pair().await;
    a.link.send_datagram(b.node(), Bytes::from_static(b"from a")).unwrap();
    assert_eq!(b.next_datagram().await, (a.me.clone(), Bytes::from_static(b"from a")));
    b.link.send_datagram(a.node(), pattern(1_150)).unwrap();
    assert_eq!(a.next_datagram().await, (b.me.clone(), pattern(1_150)));
    assert_eq!(a.link.status().totals.datagrams_received, 1);
    assert_eq!(a.link.status().totals.datagrams_sent, 1);
}

#[tokio::test]
async fn what_can_not_be_sent_is_said_at_once() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let too_long = a.link.send_datagram(b.node(), pattern(70_000));
    assert_eq!(too_long, Err(DatagramError::TooLong));
    let stranger = a.link.send_datagram(&"stranger".into(), Bytes::new());
    assert_eq!(stranger, Err(DatagramError::NotConnected));
    b.link.shutdown(Duration::ZERO).await;
    until("the end is noticed", || {
        a.link.send_datagram(b.node(), Bytes::new()) == Err(DatagramError::NotConnected)
    })
    .await;
    assert!(a.link.status().totals.datagrams_unsent >= 3);
}

#[tokio::test]
async fn a_packet_that_arrives_twice_is_delivered_once() {
    let world = World::new();
    let way = Path { double_permille: 1_000, ..Path::of(Duration::from_millis(2)) };
    let (a, b) = world.distant_pair(way).await;
    for number in 0..200_u32 {
        a.link.send_datagram(b.node(), Bytes::copy_from_slice(&number.to_le_bytes())).unwrap();
    }
    for number in 0..200_u32 {
        assert_eq!(b.next_datagram().await.1, number.to_le_bytes()[..]);
    }
    // A request is sent after the datagrams: doubled packets have arrived by its end.
    let body = Full::new(pattern(100_000));
    let answer = a.link.forward(b.node(), head(), body, PeerRoom::Unknown).await.unwrap();
    let ForwardAnswer::Reply(reply) = answer else { panic!("refused") };
    assert_eq!(reply.into_body().collect().await.unwrap().to_bytes(), pattern(100_000));
    assert!(b.no_more_datagrams().await);
    assert!(a.paths().counts().doubled > 20);
}

/// Load gossip goes on while a large body fills a narrow path.
#[tokio::test]
async fn control_goes_on_while_bulk_fills_the_path() {
    let world = World::new();
    let way = Path {
        bits_per_s: Some(80_000_000),
        queue_bytes: 256 << 10,
        ..Path::of(Duration::from_millis(10))
    };
    let (a, b) = world.distant_pair(way).await;
    let bulk = async {
        let body = Full::new(pattern(20 << 20));
        let answer = a.link.forward(b.node(), head(), body, PeerRoom::Likely).await;
        let ForwardAnswer::Reply(reply) = answer.unwrap() else { panic!("refused") };
        reply.into_body().collect().await.unwrap().to_bytes().len()
    };
    let start = Instant::now();
    let talk = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        loop {
            ticks.tick().await;
            let sent_us = start.elapsed().as_micros() as u64;
            let datagram = Bytes::copy_from_slice(&sent_us.to_le_bytes());
            a.link.send_datagram(b.node(), datagram).unwrap();
        }
    };
    let mut delays_ms = Vec::new();
    let listen = async {
        loop {
            let (_, datagram) = b.next_datagram().await;
            let sent_us = u64::from_le_bytes(datagram[..].try_into().unwrap());
            delays_ms.push((start.elapsed().as_micros() as u64 - sent_us) / 1_000);
        }
    };
    let bytes = tokio::select! {
        bytes = bulk => bytes,
        () = talk => 0,
        () = listen => 0,
    };
    assert_eq!(bytes, 20 << 20);
    assert!(a.link.peers()[0].is_connected() && b.link.peers()[0].is_connected());
    let sent = a.link.status().totals.datagrams_sent;
    delays_ms.sort_unstable();
    let arrived = delays_ms.len() as u64;
    // Datagrams share the bottleneck with the bulk, so some are lost in its queue.
    assert!(sent > 20 && arrived * 100 >= sent * 70, "{arrived} of {sent} arrived");
    let p90 = delays_ms[delays_ms.len() * 9 / 10];
    assert!(p90 < 200, "{delays_ms:?} ms");
}

/// Twenty long reports a second over a path that loses a fifth of all packets: as many arrive as
/// the path lets through, and none waits for the congestion control. Both directions are tested,
/// because only one of the two sides knows the kind of the connection from the beginning.
#[tokio::test]
async fn loss_does_not_hold_control_back() {
    let world = World::new();
    let way = Path { loss_permille: 200, ..Path::of(Duration::from_millis(115)) };
    // Loss slows this congestion control down most.
    let (a, b) = world.distant_pair_with(way, crate::Congestion::NewReno).await;
    for (from, to) in [(&a, &b), (&b, &a)] {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        let start = Instant::now();
        let mut delays_ms = Vec::new();
        let talk = async {
            for _ in 0..100 {
                ticks.tick().await;
                let sent_us = start.elapsed().as_micros() as u64;
                let mut datagram = vec![0; 1_100];
                datagram[..8].copy_from_slice(&sent_us.to_le_bytes());
                let _ = from.link.send_datagram(to.node(), datagram.into());
            }
            // wait: for packets that are under way.
            tokio::time::sleep(Duration::from_millis(300)).await;
        };
        let listen = async {
            loop {
                let (_, datagram) = to.next_datagram().await;
                let sent_us = u64::from_le_bytes(datagram[..8].try_into().unwrap());
                delays_ms.push((start.elapsed().as_micros() as u64 - sent_us) / 1_000);
            }
        };
        tokio::select! {
            () = talk => {}
            () = listen => {}
        }
        delays_ms.sort_unstable();
        assert!(delays_ms.len() > 60, "{} of 100 arrived", delays_ms.len());
        assert!(delays_ms[delays_ms.len() * 9 / 10] < 200, "{delays_ms:?} ms");
    }
}

/// A cut of either direction ends the control connection on both sides.
async fn check_cut(cut_towards_b: bool) {
    let world = World::new();
    let (a, b) = world.distant_pair(Path::of(Duration::from_millis(5))).await;
    let (from, to) = if cut_towards_b { (&a, &b) } else { (&b, &a) };
    // Both sides have something to send, as in a real cluster.
    let talk = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        loop {
            ticks.tick().await;
            for (one, other) in [(&a, &b), (&b, &a)] {
                // Fails once there is no connection, and that is what the test waits for.
                let _ = one.link.send_datagram(other.node(), Bytes::from_static(b"load"));
            }
        }
    };
    let watch = async {
        from.paths().cut(to.address(), true);
        let cut = Instant::now();
        // 3 s and the next check; longer if a busy machine makes round trips of a second, because
        // QUIC waits for three of its time-outs in any case. Data connections wait for 30 s.
        until_within(Duration::from_secs(25), "both sides lose control", || {
            a.link.peers()[0].control.is_none() && b.link.peers()[0].control.is_none()
        })
        .await;
        let took = cut.elapsed();
        assert!(took > Duration::from_millis(2_500), "{took:?} is hasty");
        assert!(a.link.peers()[0].data.is_some(), "data has more patience");
        from.paths().cut(to.address(), false);
        until("control comes back", || {
            a.link.peers()[0].is_connected() && b.link.peers()[0].is_connected()
        })
        .await;
    };
    tokio::select! {
        () = talk => {}
        () = watch => {}
    }
}

#[tokio::test]
async fn a_cut_towards_the_higher_name_ends_control_on_both_sides() {
    check_cut(true).await;
}

#[tokio::test]
async fn a_cut_towards_the_lower_name_ends_control_on_both_sides() {
    check_cut(false).await;
}

#[tokio::test]
async fn a_request_in_use_survives_a_cut_of_five_seconds() {
    let world = World::new();
    let (a, b) = world.distant_pair(Path::of(Duration::from_millis(5))).await;
    let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(4);
    let body = super::pressure_test::ChannelBody(receiver);
    let answer = a.link.forward(b.node(), head(), body, PeerRoom::Likely).await.unwrap();
    let ForwardAnswer::Reply(reply) = answer else { panic!("refused") };
    let mut reply = reply.into_body();
    sender.send(Bytes::from_static(b"before")).await.unwrap();
    let before = reply.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(before, "before");
    a.paths().cut(b.address(), true);
    sender.send(Bytes::from_static(b"meanwhile")).await.unwrap();
    // wait: the length of the cut is under test.
    tokio::time::sleep(Duration::from_secs(5)).await;
    a.paths().cut(b.address(), false);
    let frame = tokio::time::timeout(PATIENCE, reply.frame()).await.expect("it goes on");
    assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "meanwhile");
    drop(sender);
    assert!(tokio::time::timeout(PATIENCE, reply.frame()).await.expect("its end").is_none());
}
