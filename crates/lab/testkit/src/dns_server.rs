//! DNS server over UDP and TCP with records that the test changes; it can also fail or be silent.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

/// What every step of the server expects.
const WORKS: &str = "a DNS server of a test works";

/// DNS server on a port of its own. Ends when dropped.
#[derive(Debug)]
pub struct DnsServer {
    /// Address for UDP and TCP.
    pub address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    _task: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Zone {
    records: BTreeMap<(Name, RecordType), Vec<Record>>,
    mood: Mood,
    questions: Vec<(Name, RecordType)>,
}

/// Behaviour of a DNS server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// Answers.
    #[default]
    Well,
    /// Answers nothing, as a server that is down.
    Silent,
    /// Answers nothing about IPv6 addresses, as some servers do.
    SilentOnIpv6,
    /// Answers SERVFAIL.
    Failing,
    /// Answers over UDP that the reply is too large for UDP.
    Truncating,
}

impl DnsServer {
    /// Starts a server that knows no name.
    pub async fn start() -> Self {
        let (socket, listener) = bind().await;
        let address = socket.local_addr().expect(WORKS);
        let zone = Arc::new(Mutex::new(Zone::default()));
        let mut task = JoinSet::new();
        task.spawn(serve(socket, Arc::clone(&zone)));
        task.spawn(accept(listener, Arc::clone(&zone)));
        Self { address, zone, _task: task }
    }

    /// Changes the behaviour.
    pub fn mood(&self, mood: Mood) {
        self.zone().mood = mood;
    }

    /// Sets the addresses of `name`; addresses of the other family stay.
    pub fn addresses(&self, name: &str, ttl: u32, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse::<IpAddr>().expect(WORKS));
        let data: Vec<RData> = addresses
            .map(|address| match address {
                IpAddr::V4(address) => RData::A(A(address)),
                IpAddr::V6(address) => RData::AAAA(AAAA(address)),
            })
            .collect();
        let kind = data.first().map_or(RecordType::A, RData::record_type);
        self.set(name, kind, ttl, data);
    }

    /// Sets the services, each as `(weight, port, target)`.
    pub fn services(&self, name: &str, ttl: u32, services: &[(u16, u16, &str)]) {
        let data = services.iter().map(|(weight, port, target)| {
            RData::SRV(SRV::new(10, *weight, *port, Name::from_ascii(target).expect(WORKS)))
        });
        self.set(name, RecordType::SRV, ttl, data.collect());
    }

    /// Returns the number of questions so far.
    pub fn questions(&self) -> usize {
        self.zone().questions.len()
    }

    fn set(&self, name: &str, kind: RecordType, ttl: u32, data: Vec<RData>) {
        let name = Name::from_ascii(name).expect(WORKS);
        let records = data.into_iter().map(|data| Record::from_rdata(name.clone(), ttl, data));
        let records: Vec<Record> = records.collect();
        self.zone().records.insert((name, kind), records);
    }

    fn zone(&self) -> MutexGuard<'_, Zone> {
        self.zone.lock().expect(WORKS)
    }
}

/// Opens one port number for both UDP and TCP.
async fn bind() -> (UdpSocket, TcpListener) {
    loop {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect(WORKS);
        // Another process may use this port.
        if let Ok(listener) = TcpListener::bind(socket.local_addr().expect(WORKS)).await {
            return (socket, listener);
        }
    }
}

async fn accept(listener: TcpListener, zone: Arc<Mutex<Zone>>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect(WORKS);
        connections.spawn(converse(stream, Arc::clone(&zone)));
    }
}

async fn converse(mut stream: TcpStream, zone: Arc<Mutex<Zone>>) {
    while let Ok(length) = stream.read_u16().await {
        let mut question = vec![0; usize::from(length)];
        stream.read_exact(&mut question).await.expect(WORKS);
        let Some(reply) = answer(&question, &mut zone.lock().expect(WORKS)) else {
            continue;
        };
        let bytes = reply.to_vec().expect(WORKS);
        stream.write_u16(u16::try_from(bytes.len()).expect(WORKS)).await.expect(WORKS);
        stream.write_all(&bytes).await.expect(WORKS);
    }
}

async fn serve(socket: UdpSocket, zone: Arc<Mutex<Zone>>) {
    let mut buffer = [0; 4096];
    loop {
        let (length, client) = socket.recv_from(&mut buffer).await.expect(WORKS);
        let Some(mut reply) = answer(&buffer[..length], &mut zone.lock().expect(WORKS)) else {
            continue;
        };
        if zone.lock().expect(WORKS).mood == Mood::Truncating {
            reply.metadata.truncation = true;
            reply.answers.clear();
        }
        let bytes = reply.to_vec().expect(WORKS);
        let sending = socket.try_send_to(&bytes, client);
        assert_eq!(sending.expect(WORKS), bytes.len());
    }
}

fn answer(question: &[u8], zone: &mut Zone) -> Option<Message> {
    let request = Message::from_vec(question).expect(WORKS);
    let query = request.queries[0].clone();
    let mut reply = Message::response(request.metadata.id, request.metadata.op_code);
    reply.metadata.recursion_available = true;
    reply.add_query(query.clone());
    let name = Name::from_ascii(query.name().to_ascii().to_lowercase()).expect(WORKS);
    zone.questions.push((name.clone(), query.query_type()));
    match zone.mood {
        Mood::Silent => return None,
        Mood::SilentOnIpv6 if query.query_type() == RecordType::AAAA => return None,
        Mood::Failing => {
            reply.metadata.response_code = ResponseCode::ServFail;
            return Some(reply);
        }
        Mood::Well | Mood::Truncating | Mood::SilentOnIpv6 => {}
    }
    let is_known = zone.records.keys().any(|(known, _)| *known == name);
    if !is_known {
        reply.metadata.response_code = ResponseCode::NXDomain;
    }
    let records = zone.records.get(&(name, query.query_type()));
    reply.add_answers(records.into_iter().flatten().cloned());
    Some(reply)
}
