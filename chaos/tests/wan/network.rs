//! Real packets through real namespaces.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use spillway_chaos::wan::probe::{ProbeEcho, flood, open, round_trips};
use spillway_chaos::wan::{WanNetwork, config};

use super::support::{SOON, address, ask, is_root, start, stats, wait_until};

const THREE: &str = "wans/three.toml";
const REGIONS: [(&str, &str); 3] =
    [("us-east-1", "10.77.1.1"), ("eu-west-1", "10.77.2.1"), ("ap-northeast-1", "10.77.3.1")];

/// Pairs of regions with their round trips in milliseconds.
const PAIRS: [(usize, usize, f64); 3] = [(0, 1, 80.0), (0, 2, 220.0), (1, 2, 170.0)];

/// Most measurements of round trips: a wrong delay fails all of them.
const ATTEMPTS: u32 = 6;

/// Two regions without delay.
const NEAR: &str = r#"
    every_link = { rtt_ms = 0 }
    [[region]]
    name = "a"
    subnet = "10.77.1.0/24"
    nodes = 2
    [[region]]
    name = "b"
    subnet = "10.77.2.0/24"
    nodes = 2
    isolate = "node"
"#;

fn three() -> WanNetwork {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    WanNetwork::start(config::read(&folder.join(THREE)).unwrap()).unwrap()
}

fn socket(network: &WanNetwork, region: &str, node: u16, at: &str) -> UdpSocket {
    let (host, port) = at.split_once(':').unwrap();
    let address = SocketAddrV4::new(address(host), port.parse().unwrap());
    let socket = open(network.namespace(region, node).unwrap(), address).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> (Vec<u8>, String) {
    let mut buffer = [0; 2048];
    let (length, sender) = socket.recv_from(&mut buffer).unwrap();
    (buffer[..length].to_vec(), sender.to_string())
}

#[test]
fn round_trips_are_80_220_and_170_ms_within_one_millisecond() {
    if !is_root() {
        return;
    }
    let network = three();
    let echoes: Vec<ProbeEcho> = REGIONS
        .iter()
        .map(|(region, host)| {
            let at = SocketAddrV4::new(address(host), 7);
            ProbeEcho::start(network.namespace(region, 1).unwrap(), at).unwrap()
        })
        .collect();
    let measure = |(from, to, expected_ms): (usize, usize, f64)| {
        let socket = socket(&network, REGIONS[from].0, 1, &format!("{}:0", REGIONS[from].1));
        let target = SocketAddrV4::new(address(REGIONS[to].1), 7);
        let measured = round_trips(&socket, target, 100, Duration::from_millis(5)).unwrap();
        assert_eq!(measured.lost, 0);
        // The histogram is exact to a thousandth.
        assert!(measured.us.min() as f64 / 1e3 >= expected_ms * 0.999, "too early");
        measured.us.value_at_quantile(0.5) as f64 / 1e3
    };
    // Other processes delay the echo and the probe, but never for long in the same way.
    for attempt in 1..=ATTEMPTS {
        let medians = thread::scope(|scope| {
            PAIRS.map(|pair| scope.spawn(move || measure(pair))).map(|it| it.join().unwrap())
        });
        println!("attempt {attempt}: {medians:?} ms");
        if medians.iter().zip(PAIRS).all(|(median, (_, _, rtt_ms))| (median - rtt_ms).abs() < 1.0) {
            return;
        }
    }
    drop(echoes);
    panic!("no attempt was within a millisecond");
}

#[test]
fn ten_thousand_packets_a_second_all_arrive() {
    if !is_root() {
        return;
    }
    let network = start(NEAR);
    let sender = socket(&network, "a", 1, "10.77.1.1:0");
    let receiver = socket(&network, "b", 1, "10.77.2.1:9");
    let before = stats(&network).cpu_us;
    let begin = Instant::now();
    let arrived = flood(&sender, &receiver, 12_000, 1_000, 12_000).unwrap();
    let seconds = begin.elapsed().as_secs_f64();
    let after = stats(&network);
    let per_packet_us = (after.cpu_us - before) as f64 / 12_000.0;
    println!("{seconds:.2} s, {per_packet_us:.1} us of processor a packet");
    assert_eq!(arrived, 12_000);
    assert_eq!(after.link("a", "b").unwrap().delivered, 12_000);
    assert!(per_packet_us < 100.0, "{per_packet_us}");
}

#[test]
fn every_lost_packet_is_counted_and_no_other_is_lost() {
    if !is_root() {
        return;
    }
    let network = start(NEAR);
    let lossy =
        r#"{"do": "shape", "from": "a", "to": "b", "set": {"loss_percent": 10}, "one_way": true}"#;
    ask(&network, lossy);
    let _echo = ProbeEcho::start(
        network.namespace("b", 1).unwrap(),
        SocketAddrV4::new(address("10.77.2.1"), 7),
    )
    .unwrap();
    let socket = socket(&network, "a", 1, "10.77.1.1:0");
    let target = SocketAddrV4::new(address("10.77.2.1"), 7);
    let measured = round_trips(&socket, target, 2_000, Duration::from_micros(200)).unwrap();
    let stats = stats(&network);
    let (there, back) = (stats.link("a", "b").unwrap(), stats.link("b", "a").unwrap());
    assert_eq!((there.offered, there.lost), (2_000, measured.lost));
    assert_eq!((back.offered, back.delivered), (there.delivered, there.delivered));
    // Five standard deviations: 67.
    assert!(measured.lost.abs_diff(200) < 67, "{}", measured.lost);
}

#[test]
fn a_one_way_cut_stops_all_of_one_direction_and_nothing_of_the_other() {
    if !is_root() {
        return;
    }
    let network = start(NEAR);
    let here = socket(&network, "a", 1, "10.77.1.1:5");
    let there = socket(&network, "b", 1, "10.77.2.1:5");
    ask(&network, r#"{"do": "cut", "from": "a", "to": "b", "one_way": true}"#);
    for n in 0..200_u8 {
        here.send_to(&[n], "10.77.2.1:5").unwrap();
        there.send_to(&[n], "10.77.1.1:5").unwrap();
    }
    for n in 0..200_u8 {
        assert_eq!(receive(&here), (vec![n], "10.77.2.1:5".to_owned()));
    }
    wait_until("all reach the cut", || stats(&network).link("a", "b").unwrap().cut == 200);
    ask(&network, r#"{"do": "heal"}"#);
    here.send_to(b"after", "10.77.2.1:5").unwrap();
    // The first probe that arrives: all before it were lost.
    assert_eq!(receive(&there).0, b"after");
}

#[test]
fn a_blocked_node_is_alone_and_its_neighbour_is_not() {
    if !is_root() {
        return;
    }
    let network = start(NEAR);
    let here = socket(&network, "a", 2, "10.77.1.2:5");
    let blocked = socket(&network, "b", 1, "10.77.2.1:5");
    let neighbour = socket(&network, "b", 2, "10.77.2.2:5");
    ask(&network, r#"{"do": "block", "from": "10.77.2.1", "to": null}"#);
    for target in ["10.77.2.1:5", "10.77.2.2:5"] {
        here.send_to(b"x", target).unwrap();
    }
    blocked.send_to(b"x", "10.77.2.2:5").unwrap();
    assert_eq!(receive(&neighbour), (b"x".to_vec(), "10.77.1.2:5".to_owned()));
    wait_until("both are stopped", || {
        let stats = stats(&network);
        stats.link("a", "b").unwrap().blocked + stats.link("b", "b").unwrap().blocked == 2
    });
    ask(&network, r#"{"do": "heal"}"#);
    blocked.send_to(b"y", "10.77.2.2:5").unwrap();
    assert_eq!(receive(&neighbour), (b"y".to_vec(), "10.77.2.1:5".to_owned()));
}

#[test]
fn tcp_carries_a_megabyte_over_a_lossy_reordering_link() {
    if !is_root() {
        return;
    }
    let network = start(NEAR);
    let bad = r#"{"do": "shape", "from": "a", "to": "b", "set": {"rtt_ms": 4, "jitter_ms": 0.3,
        "loss_percent": 3, "duplicate_percent": 3, "reorder_percent": 3, "corrupt_percent": 2}}"#;
    ask(&network, bad);
    let listener = network
        .namespace("b", 1)
        .unwrap()
        .run(|| TcpListener::bind("10.77.2.1:80"))
        .unwrap()
        .unwrap();
    let data: Vec<u8> = (0..1_000_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    let received = thread::scope(|scope| {
        scope.spawn(|| {
            let connect = || TcpStream::connect("10.77.2.1:80");
            let mut stream = network.namespace("a", 1).unwrap().run(connect).unwrap().unwrap();
            stream.write_all(&data).unwrap();
        });
        let mut received = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
        received
    });
    assert!(received == data);
    let stats = stats(&network);
    let counts = stats.link("a", "b").unwrap();
    assert!(counts.lost > 0 && counts.duplicated > 0 && counts.reordered > 0, "{counts:?}");
    assert!(counts.corrupted > 0, "{counts:?}");
}

#[test]
fn behind_translation_the_bound_address_is_not_the_one_that_others_see() {
    if !is_root() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let network = WanNetwork::start(config::read(&folder.join("wans/nat.toml")).unwrap()).unwrap();
    ask(&network, r#"{"do": "shape", "from": "*", "to": "*", "set": {"rtt_ms": 2}}"#);
    let us = socket(&network, "us-east-1", 1, "192.168.0.1:7400");
    let eu = socket(&network, "eu-west-1", 1, "192.168.0.1:7400");
    us.send_to(b"hello", "203.0.113.2:7400").unwrap();
    assert_eq!(receive(&eu), (b"hello".to_vec(), "203.0.113.1:7400".to_owned()));
    eu.send_to(b"hello yourself", "203.0.113.1:7400").unwrap();
    assert_eq!(receive(&us), (b"hello yourself".to_vec(), "203.0.113.2:7400".to_owned()));
    // Neither forwarded nor asked for, so refused.
    let other = socket(&network, "us-east-1", 1, "192.168.0.1:9000");
    eu.send_to(b"uninvited", "203.0.113.1:9000").unwrap();
    wait_until("it is refused", || {
        stats(&network).link("eu-west-1", "us-east-1").unwrap().refused == 1
    });
    other.send_to(b"question", "203.0.113.2:7400").unwrap();
    let (_, asker) = receive(&eu);
    eu.send_to(b"answer", &asker).unwrap();
    assert_eq!(receive(&other).0, b"answer");
    // TCP, with the same port at both ends.
    let bind = || TcpListener::bind("192.168.0.1:7400");
    let listener = network.namespace("eu-west-1", 1).unwrap().run(bind).unwrap().unwrap();
    let connect = || TcpStream::connect("203.0.113.2:7400");
    let mut client = network.namespace("us-east-1", 1).unwrap().run(connect).unwrap().unwrap();
    let (mut server, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip().to_string(), "203.0.113.1");
    client.write_all(b"ping").unwrap();
    let mut word = [0; 4];
    server.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"ping");
}
