//! Configuration of a link.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use spillway_resolver::Resolver;
use spillway_tasks::TaskWatch;

use crate::delayed::Paths;
use crate::identity::Identity;

/// Configuration of a [`Link`](crate::Link). The peers are set later.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Identity of this node; its certificate must have the same one.
    pub me: Identity,
    /// UDP address to listen on and to dial from. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Paths of the certificates.
    pub certificates: CertificateFiles,
    /// Path of the lists of revoked certificates that the CA signed, PEM; the file may be missing.
    pub revoked: Option<PathBuf>,
    /// Path of the file in which the link keeps the lists that other nodes sent, for the next
    /// process. `None` forgets them at the end.
    pub revoked_heard: Option<PathBuf>,
    /// Behaviour of the connections.
    pub transport: Transport,
    /// Limits in number and time.
    pub limits: LinkLimits,
    /// Delay, loss and cuts for all that this node sends, for tests, demos and benchmarks. `None`
    /// leaves the network as it is.
    pub paths: Option<Arc<Paths>>,
    /// Looks the names of peers up.
    pub resolver: Resolver,
    /// Record of lost tasks, for the link's own.
    pub watch: TaskWatch,
}

impl LinkConfig {
    /// Makes the configuration of a link with default transport and limits.
    #[must_use]
    pub fn new(me: Identity, listen: SocketAddr, certificates: CertificateFiles) -> Self {
        let (transport, limits) = (Transport::default(), LinkLimits::default());
        Self {
            me,
            listen,
            certificates,
            revoked: None,
            revoked_heard: None,
            transport,
            limits,
            paths: None,
            resolver: Resolver::default(),
            watch: TaskWatch::default(),
        }
    }
}

/// Paths of the three certificate files, each PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// Certificates of the cluster's CA. During a rotation there are several, and all are trusted.
    pub authority: PathBuf,
    /// The node's certificate, followed by intermediate certificates up to the CA, if any.
    pub certificate: PathBuf,
    /// The node's private key.
    pub key: PathBuf,
}

/// Peer of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Identity that the peer must prove.
    pub identity: Identity,
    /// Address of the peer's link, `host:port`. A name is looked up before each dial.
    pub address: String,
    /// Round trip to the peer in milliseconds, if known. It is used until one is measured: too high
    /// a value delays the repetition of a lost first packet, too low a value repeats packets that
    /// are under way.
    pub rtt_ms: Option<u32>,
}

/// Congestion control of data connections.
///
/// The default was chosen with `examples/first_byte.rs` and `examples/congestion.rs`: requests
/// between nodes are few and small, so a window that shrinks with each loss has little chance to
/// grow again. At 93 ms and one packet in a thousand lost, 128 KiB took 1.2 round trips with BBR
/// and 2.7 with CUBIC; with one in a hundred lost, 2.2 and 8.0. The price of BBR is a queue before
/// a full bottleneck (35 ms at 100 Mbit/s), and a probe of the empty path every ten seconds, which
/// delays the long requests of that moment by two round trips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Congestion {
    /// Grows by the time since the last loss; usual on the internet.
    Cubic,
    /// Grows by one packet in each round trip: slow on long paths.
    NewReno,
    /// Follows the measured bandwidth, so loss alone does not slow it. Quinn calls its own
    /// implementation experimental.
    #[default]
    Bbr,
}

/// Behaviour of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Congestion control of all connections.
    pub congestion: Congestion,
    /// Assumed bandwidth of a path between nodes, in Mbit/s. A new data connection starts with a
    /// window of that rate times the round trip, not the usual ten packets. A higher value lets the
    /// first large requests arrive in fewer round trips; too high a value loses packets on a slower
    /// path.
    pub initial_mbit_per_s: u32,
    /// Assumed round trip, in milliseconds, for peers with an unknown one.
    pub rtt_default_ms: u32,
    /// Time without a packet from the peer after which a control connection is lost.
    pub control_idle_ms: u32,
    /// Interval of keep-alive packets on a quiet control connection.
    pub control_keep_alive_ms: u32,
    /// Time without a packet from the peer after which a data connection is lost, with the requests
    /// on it.
    pub data_idle_ms: u32,
    /// Interval of keep-alive packets on a quiet data connection.
    pub data_keep_alive_ms: u32,
    /// Bytes of one stream that may be under way or unread. Choose at least bandwidth times round
    /// trip: 3 MiB fill 100 Mbit/s at 230 ms.
    pub stream_window_bytes: u32,
    /// Bytes of all streams of a connection together that may be under way or unread. This is also
    /// the memory that one peer can take here with replies that are not read.
    pub connection_window_bytes: u32,
    /// Bytes of a connection that are kept until the peer has acknowledged them.
    pub send_window_bytes: u32,
    /// Forwarded requests that a peer may have open here at a time, per connection.
    pub streams_max: u32,
    /// Bytes of datagrams that wait to be sent, per connection. A datagram that does not fit
    /// displaces the oldest, because load that is late is worthless.
    pub datagram_send_bytes: usize,
    /// Bytes of datagrams that wait to be read, per connection.
    pub datagram_receive_bytes: usize,
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            congestion: Congestion::default(),
            initial_mbit_per_s: 20,
            rtt_default_ms: 100,
            control_idle_ms: 3_000,
            control_keep_alive_ms: 1_000,
            data_idle_ms: 30_000,
            data_keep_alive_ms: 10_000,
            stream_window_bytes: 3 << 20,
            connection_window_bytes: 48 << 20,
            send_window_bytes: 16 << 20,
            streams_max: 1_024,
            datagram_send_bytes: 64 << 10,
            datagram_receive_bytes: 256 << 10,
        }
    }
}

/// Limits of a link in number and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// Shortest wait before a peer is dialled again.
    pub back_off_min_ms: u32,
    /// Longest wait before a peer is dialled again.
    pub back_off_max_ms: u32,
    /// Time limit of one attempt to dial, name look-up included.
    pub dial_ms: u32,
    /// Time limit for setting up an accepted connection.
    pub handshake_ms: u32,
    /// Connections that are set up at a time. Beyond this, a client must prove its address first;
    /// beyond twice this, it is refused.
    pub handshakes_max: usize,
    /// Time within which two connections of one kind to one peer count as dialled by both sides at
    /// once. A later second connection means that the peer has lost the first.
    pub double_ms: u32,
    /// Time after which a connection that gets no new requests is closed, once no request is open
    /// on it.
    pub retire_ms: u32,
    /// Time limit for the head of a request once the peer has opened the stream.
    pub head_wait_ms: u32,
    /// Time limit for a peer to accept or refuse a request.
    pub word_wait_ms: u32,
    /// Time without a control connection to a peer after which requests are given up that the peer
    /// has accepted and not begun to answer.
    pub gone_ms: u32,
    /// Longest body of a known length that is sent with the head. Longer ones wait until the peer
    /// has accepted, unless the caller knows that the peer has room.
    pub eager_body_bytes: u64,
    /// Interval of checks for changed certificate files.
    pub certificates_check_ms: u32,
}

impl Default for LinkLimits {
    fn default() -> Self {
        Self {
            back_off_min_ms: 100,
            back_off_max_ms: 5_000,
            dial_ms: 5_000,
            handshake_ms: 5_000,
            handshakes_max: 64,
            double_ms: 2_000,
            retire_ms: 2_000,
            head_wait_ms: 10_000,
            word_wait_ms: 5_000,
            gone_ms: 2_000,
            eager_body_bytes: 64 << 10,
            certificates_check_ms: 10_000,
        }
    }
}

/// Converts milliseconds into a duration.
pub(crate) fn ms(milliseconds: u32) -> Duration {
    Duration::from_millis(milliseconds.into())
}
