//! Nodes as name servers: whom they lead where, by both transports, and what happens when a region goes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hickory_proto::op::{Edns, Message, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{Name, RecordType};
use spillway_geo::DatabaseWriter;
use spillway_node::Node;
use spillway_tests::{
    Cluster, OK, PATIENCE, Page, Scripted, Serving, Setup, eventually, knows, within,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

const ZONE: &str = "infer.test.";
/// Time to wait for a datagram before it is sent again: any may be lost.
const AGAIN: Duration = Duration::from_millis(500);

/// Configures a name server for `infer.test` that sends clients of each region's network to an
/// address of its own: 203.0.113.1 for the first region, 203.0.113.2 for the second, and so on.
pub(crate) fn leading_clients(setup: Setup, regions: &[(&str, &str)]) -> Setup {
    listening(setup, "127.0.0.1:0", regions)
}

fn listening(setup: Setup, listen: &str, regions: &[(&str, &str)]) -> Setup {
    let setup = setup
        .set(format!("dns.listen = \"{listen}\""))
        .set("dns.zone = \"infer.test\"")
        .set("dns.name_servers = [\"ns1.example.net\"]")
        .set("dns.ttl_s = 1");
    regions.iter().zip(1..).fold(setup, |setup, ((name, network), number)| {
        // Twenty degrees of longitude from each other.
        let longitude = number * 20;
        setup.table(format!(
            "[[region]]\nname = \"{name}\"\naddresses = [\"203.0.113.{number}\"]\nlatitude = 50.0\n\
             longitude = {longitude}.0\nclient_networks = [\"{network}\"]"
        ))
    })
}

const REGIONS: [(&str, &str); 3] =
    [("eu", "10.1.0.0/16"), ("us", "10.2.0.0/16"), ("ap", "10.3.0.0/16")];

/// A cluster of one node in each region, all of them name servers with a replica.
struct World {
    cluster: Cluster,
    replica: Serving,
    nodes: Vec<Node>,
}

impl World {
    async fn start() -> Self {
        let replica = Scripted::start().await.serve(OK);
        let cluster = Cluster::new(&REGIONS.map(|(name, _)| name));
        let mut nodes = Vec::new();
        for index in 0..REGIONS.len() {
            let setup = Setup::new().replica("a", replica.address);
            nodes.push(cluster.start(index, leading_clients(setup, &REGIONS)).await);
        }
        for (node, own) in nodes.iter().zip(0..) {
            for (_, (region, _)) in (0..).zip(REGIONS).filter(|(index, _)| *index != own) {
                knows(node, region).await;
            }
        }
        Self { cluster, replica, nodes }
    }

    fn server(&self, index: usize) -> SocketAddr {
        self.nodes[index].dns_address().expect("a name server")
    }
}

fn query(kind: RecordType, subnet: Option<&str>) -> Message {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(ZONE).expect("a name"), kind));
    if let Some(subnet) = subnet {
        let mut edns = Edns::new();
        edns.set_max_payload(1_232);
        edns.options_mut().insert(EdnsOption::Subnet(subnet.parse().expect("a network")));
        message.set_edns(edns);
    }
    message
}

/// Asks by datagrams until one is answered.
async fn by_udp(server: SocketAddr, message: &Message) -> Message {
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).await.expect("a socket");
    socket.connect(server).await.expect("a server");
    let bytes = message.to_vec().expect("a message");
    let asked = async {
        let mut buffer = [0; 2_048];
        loop {
            socket.send(&bytes).await.expect("sends");
            if let Ok(length) = tokio::time::timeout(AGAIN, socket.recv(&mut buffer)).await {
                let length = length.expect("a port that is open");
                return Message::from_vec(&buffer[..length]).expect("a message");
            }
        }
    };
    within("an answer", asked).await
}

/// Asks all messages over one connection.
async fn by_tcp(server: SocketAddr, messages: &[Message]) -> Vec<Message> {
    let mut stream = TcpStream::connect(server).await.expect("connects");
    let mut answers = Vec::new();
    for message in messages {
        let bytes = message.to_vec().expect("a message");
        let length = u16::try_from(bytes.len()).expect("a short one");
        stream.write_u16(length).await.expect("sends");
        stream.write_all(&bytes).await.expect("sends");
    }
    for _ in messages {
        let length = within("an answer", stream.read_u16()).await.expect("a length");
        let mut answer = vec![0; length.into()];
        stream.read_exact(&mut answer).await.expect("an answer");
        answers.push(Message::from_vec(&answer).expect("a message"));
    }
    answers
}

fn addresses(answer: &Message) -> Vec<String> {
    answer.answers.iter().map(|record| record.data.to_string()).collect()
}

/// Waits until the name server gives clients of that network this address.
async fn leads(server: SocketAddr, subnet: &str, address: &str) {
    let start = Instant::now();
    loop {
        let answer = by_udp(server, &query(RecordType::A, Some(subnet))).await;
        if addresses(&answer) == [address] {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{subnet} is led to {:?}", addresses(&answer));
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn clients_of_each_network_are_led_to_the_region_near_them_by_both_transports() {
    let world = World::start().await;
    for index in 0..REGIONS.len() {
        let server = world.server(index);
        for (subnet, address) in [
            ("10.1.7.0/24", "203.0.113.1"),
            ("10.2.7.0/24", "203.0.113.2"),
            ("10.3.7.0/24", "203.0.113.3"),
        ] {
            leads(server, subnet, address).await;
            let asked = [query(RecordType::A, Some(subnet)), query(RecordType::SOA, None)];
            let answers = by_tcp(server, &asked).await;
            let [regions, soa] = &answers[..] else { panic!("two answers") };
            assert_eq!(addresses(regions), [address]);
            assert!(regions.answers.iter().all(|record| record.ttl == 1));
            assert_eq!(soa.answers.len(), 1);
        }
        // The location of 127.0.0.1 is unknown, so the node's own region counts as nearest.
        let answer = by_udp(server, &query(RecordType::A, None)).await;
        assert_eq!(addresses(&answer), [format!("203.0.113.{}", index + 1)]);
    }
    let page = Page::of(&world.nodes[0]);
    assert!(page.sum("spillway_dns_queries_total", &[("transport", "udp"), ("type", "A")]) >= 4.0);
    assert_eq!(
        page.sum("spillway_dns_queries_total", &[("transport", "tcp"), ("type", "SOA")]),
        3.0
    );
    assert!(page.sum("spillway_dns_region_answers_total", &[("region", "ap")]) >= 2.0);
    assert_eq!(page.sum("spillway_dns_region_offered", &[]), 3.0);
}

#[tokio::test]
async fn a_region_that_falls_silent_drains_or_is_the_last_one_is_told_as_it_is() {
    let world = World::start().await;
    let (eu, us) = (world.server(0), world.server(1));
    leads(eu, "10.3.7.0/24", "203.0.113.3").await;
    // As if it had died: no datagram reaches it or comes from it.
    for other in [0, 1] {
        world.cluster.cut(other, 2, true);
        world.cluster.cut(2, other, true);
    }
    leads(eu, "10.3.7.0/24", "203.0.113.2").await;
    leads(us, "10.3.7.0/24", "203.0.113.2").await;
    leads(eu, "10.1.7.0/24", "203.0.113.1").await;
    // A node that is about to end announces it.
    world.nodes[1].gateway().switches.announce_leaving();
    leads(eu, "10.3.7.0/24", "203.0.113.1").await;
    leads(us, "10.2.7.0/24", "203.0.113.1").await;
    eventually("the metrics say so", || {
        Page::of(&world.nodes[0]).sum("spillway_dns_region_offered", &[]) == 1.0
    })
    .await;
    // No region is offered any more. The answer then lists those that are alive rather than none.
    world.nodes[0].gateway().switches.announce_leaving();
    eventually("nobody is offered", || {
        Page::of(&world.nodes[0]).sum("spillway_dns_region_offered", &[]) == 0.0
    })
    .await;
    leads(eu, "10.3.7.0/24", "203.0.113.2").await;
    leads(eu, "10.1.7.0/24", "203.0.113.1").await;
    drop(world.replica);
}

#[tokio::test]
async fn who_asks_too_much_by_datagrams_is_told_to_come_by_tcp_and_is_answered_there() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["eu"]);
    let setup = Setup::new()
        .set("dns.answers_per_s = 1")
        .with(|config| {
            config.dns.iter_mut().for_each(|dns| dns.limiter.burst = 1);
        })
        .replica("a", replica.address);
    let node = cluster.start(0, leading_clients(setup, &REGIONS[..1])).await;
    let server = node.dns_address().expect("a name server");
    let asked = query(RecordType::A, None);
    let start = Instant::now();
    while !by_udp(server, &asked).await.truncation {
        assert!(start.elapsed() < PATIENCE, "never limited");
    }
    let answers = by_tcp(server, &vec![asked; 20]).await;
    assert!(answers.iter().all(|answer| addresses(answer) == ["203.0.113.1"]));
    let page = Page::of(&node);
    assert!(page.sum("spillway_dns_answers_total", &[("result", "limited_truncated")]) >= 1.0);
}

#[tokio::test]
async fn what_is_no_query_ends_a_connection_and_not_the_server() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["eu"]);
    let setup = Setup::new().replica("a", replica.address);
    let node = cluster.start(0, leading_clients(setup, &REGIONS[..1])).await;
    let server = node.dns_address().expect("a name server");
    for bytes in [&b"\xff\xffGET / HTTP/1.1\r\n\r\n"[..], b"\0\x03abc", b"\0\0"] {
        let mut stream = TcpStream::connect(server).await.expect("connects");
        stream.write_all(bytes).await.expect("sends");
        let mut answer = Vec::new();
        // The server closes with unread data, so the kernel may report a reset.
        drop(within("it ends", stream.read_to_end(&mut answer)).await);
        assert_eq!(answer, b"");
    }
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    for bytes in [&b""[..], b"abc", &[0xff; 4_097]] {
        socket.send_to(bytes, server).await.expect("sends");
    }
    let mut other = query(RecordType::A, None);
    other.queries[0].name = Name::from_ascii("example.org.").expect("a name");
    let answer = by_udp(server, &other).await;
    assert_eq!(answer.response_code, ResponseCode::Refused);
    leads(server, "10.1.0.0/24", "203.0.113.1").await;
}

#[tokio::test]
async fn an_answer_comes_from_the_address_that_was_asked() {
    let replica = Scripted::start().await.serve(OK);
    for (listen, asked) in [
        ("0.0.0.0:0", "127.0.0.2"),
        ("[::]:0", "127.0.0.2"),
        ("[::]:0", "::1"),
        ("127.0.0.1:0", "127.0.0.1"),
    ] {
        let cluster = Cluster::new(&["eu"]);
        let setup = Setup::new().replica("a", replica.address);
        let node = cluster.start(0, listening(setup, listen, &REGIONS[..1])).await;
        let port = node.dns_address().expect("a name server").port();
        let server = SocketAddr::new(asked.parse().expect("an address"), port);
        // A connected socket only receives from the address that was asked.
        leads(server, "10.1.0.0/24", "203.0.113.1").await;
        node.stop().await;
    }
}

#[tokio::test]
async fn a_port_that_is_taken_ends_the_start() {
    let taken = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let address = taken.local_addr().expect("an address").to_string();
    let setup = listening(Setup::new(), &address, &REGIONS[..1]);
    let error = Cluster::new(&["eu"]).try_start(0, setup).await.expect_err("it is taken");
    assert!(error.to_string().contains(&address), "{error}");
}

#[tokio::test]
async fn the_location_database_answers_and_routing_agree_on_what_is_near() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("city.mmdb");
    // A client in the first region, and one in the second.
    let database = DatabaseWriter::new("Test-City")
        .city("198.51.100.0/24", "DE", (50.0, 20.0))
        .city("203.0.112.0/24", "FR", (50.0, 40.0));
    std::fs::write(&path, database.bytes()).expect("writes");
    let replica = Scripted::start().await.serve(OK);
    let cluster =
        Cluster::new(&REGIONS.map(|(name, _)| name)).set(&format!("geo.database = {path:?}"));
    // The path to the third region is shorter than that to the second, although the second is
    // nearer.
    for (one, other, ms) in [(0, 1, 400), (0, 2, 70), (1, 2, 30)] {
        cluster.distance(one, other, Duration::from_millis(ms));
    }
    let mut nodes = Vec::new();
    for index in 0..REGIONS.len() {
        let setup = Setup::new().replica("a", replica.address);
        nodes.push(cluster.start(index, leading_clients(setup, &REGIONS)).await);
    }
    let eu = nodes[0].dns_address().expect("a name server");
    for region in ["us", "ap"] {
        knows(&nodes[0], region).await;
    }
    leads(eu, "198.51.100.0/24", "203.0.113.1").await;
    leads(eu, "203.0.112.0/24", "203.0.113.2").await;
    nodes[0].gateway().switches.announce_leaving();
    leads(eu, "198.51.100.0/24", "203.0.113.3").await;
    let regions = nodes[0].gateway().routing.regions();
    let nearest = regions.others.iter().min_by(|one, other| one.rtt_ms.total_cmp(&other.rtt_ms));
    assert_eq!(nearest.map(|region| region.name.as_str()), Some("ap"));
}
