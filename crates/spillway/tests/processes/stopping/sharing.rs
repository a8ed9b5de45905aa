//! Two processes that want one port.

use std::net::{SocketAddr, TcpListener, UdpSocket};

use spillway_emulator::{Emulator, EmulatorConfig};
use spillway_testkit::eventually;

use super::alone::{Alone, free_port};
use crate::caller::{call, chat, status};

fn listener(address: &str, lines: &str) -> String {
    format!("node.workers = 2\n[[listener]]\naddress = \"{address}\"\nauth = \"none\"\n{lines}\n")
}

const SHARED: &str = "share_port = true";

#[test]
fn a_second_node_does_not_start_on_a_port_that_is_served_however_it_is_written() {
    for (first, second) in [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "0.0.0.0"),
        ("0.0.0.0", "127.0.0.1"),
        ("127.0.0.1", "0.0.0.0"),
        ("[::]", "127.0.0.1"),
        ("127.0.0.1", "[::]"),
    ] {
        let port = free_port();
        let (first, second) = (format!("{first}:{port}"), format!("{second}:{port}"));
        let mut serving = Alone::start(&listener(&first, ""));
        assert!(serving.serves(), "{}", serving.log());
        for lines in ["", SHARED] {
            let mut refused = Alone::start(&listener(&second, lines));
            assert!(!refused.serves(), "{second} beside {first}, {lines:?}");
            let log = refused.log();
            assert_eq!(refused.ended().code(), Some(1), "{log}");
            assert!(log.contains(&format!("can't listen on {second}")), "{log}");
            assert_eq!(log.matches("in use").count(), 1, "{log}");
            let holder = format!("served by pid {} (", serving.id());
            assert!(log.contains(&holder) && log.contains("run --config"), "{log}");
        }
    }
}

#[test]
fn a_port_is_shared_only_if_both_say_so_and_name_the_same_address() {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let mut serving = Alone::start(&listener(&address, SHARED));
    assert!(serving.serves(), "{}", serving.log());
    for (address, lines) in
        [(&address, ""), (&format!("0.0.0.0:{port}"), SHARED), (&format!("[::]:{port}"), SHARED)]
    {
        let mut refused = Alone::start(&listener(address, lines));
        assert!(!refused.serves(), "{address} {lines:?}");
        assert!(refused.log().contains("served by pid"), "{}", refused.log());
    }
    let mut second = Alone::start(&listener(&address, SHARED));
    assert!(second.serves(), "{}", second.log());
}

#[test]
fn no_socket_of_another_program_joins_a_port_that_is_not_shared() {
    let port = free_port();
    let address: SocketAddr = ([127, 0, 0, 1], port).into();
    let mut serving = Alone::start(&listener(&address.to_string(), ""));
    assert!(serving.serves(), "{}", serving.log());
    for ip in [[127, 0, 0, 1], [0, 0, 0, 0]] {
        let stranger = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let stranger = stranger.unwrap();
        stranger.set_reuse_address(true).unwrap();
        stranger.set_reuse_port(true).unwrap();
        let bound = stranger.bind(&SocketAddr::from((ip, port)).into());
        assert!(bound.and_then(|()| stranger.listen(1)).is_err(), "{ip:?}");
    }
}

#[test]
fn of_two_that_start_at_the_same_moment_one_serves() {
    for _ in 0..4 {
        let text = listener(&format!("0.0.0.0:{}", free_port()), "");
        let mut nodes = [Alone::start(&text), Alone::start(&text), Alone::start(&text)];
        let serving = nodes.iter_mut().map(|node| usize::from(node.serves())).sum::<usize>();
        let logs: Vec<String> = nodes.iter().map(Alone::log).collect();
        assert_eq!(serving, 1, "{logs:?}");
    }
}

#[test]
fn ports_of_operators_nodes_and_emulators_are_not_shared_either() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut admin =
        Alone::start(&format!("{}[admin]\naddress = \"{address}\"", listener("127.0.0.1:0", "")));
    let port = address.port().to_string();
    let listen = format!("127.0.0.1:{port}");
    let mut emulator = Alone::command("none", "", &["emulate", "--listen", &listen]);
    for node in [&mut admin, &mut emulator] {
        assert_eq!(node.ended().code(), Some(1));
        let log = node.log();
        assert!(log.contains(&format!("served by pid {} (", std::process::id())), "{log}");
        assert_eq!(log.matches("in use").count(), 1, "{log}");
    }
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    assert!(UdpSocket::bind(udp.local_addr().unwrap()).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_is_handed_over_without_losing_a_request() {
    let config = EmulatorConfig { replicas: 1, time_scale: 3.0, ..EmulatorConfig::default() };
    let emulator = Emulator::start(config).await.unwrap();
    let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let text = |name: &str| {
        format!(
            "node.name = \"{name}\"\nnode.drain_ms = 60000\n{}\n[admin]\naddress = \"127.0.0.1:0\"\n\
             [[replica]]\nname = \"a\"\nurl = \"http://{}\"\nmodels = [\"tiny\"]\n[health]\nslow_start_ms = 0",
            listener(&address.to_string(), SHARED),
            emulator.addresses()[0]
        )
    };
    let mut old = Alone::start(&text("old"));
    assert!(old.serves(), "{}", old.log());
    #[expect(clippy::disallowed_methods, reason = "the test waits for it")]
    let stream = tokio::spawn(chat(address, true, 30));
    eventually("the stream begins", || emulator.replica(0).stats().running > 0).await;
    let mut new = Alone::start(&text("new"));
    assert!(new.serves(), "{}", new.log());
    old.terminate();
    eventually("the old node drains", || old.log().contains("draining")).await;
    for _ in 0..20 {
        let reply = call(address, "GET /livez", "").await;
        assert_eq!(reply.as_deref().map(status), Ok(200), "{reply:?}");
    }
    stream.await.unwrap().unwrap();
    assert_eq!(old.ended().code(), Some(0), "{}", old.log());
    chat(address, false, 1).await.unwrap();
}
