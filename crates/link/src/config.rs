//! What a link is told when it starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::delayed::Paths;
use crate::identity::Identity;

/// Everything a [`Link`](crate::Link) is told when it starts. The peers come afterwards.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who this node is; its certificate has to say the same.
    pub me: Identity,
    /// The UDP address to listen on and to dial from. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where the certificates are.
    pub certificates: CertificateFiles,
    /// How the connections behave.
    pub transport: Transport,
    /// How much is allowed at a time, and for how long.
    pub limits: Limits,
    /// Delay, loss and cuts put on everything that this node sends: for tests, demos and
    /// benchmarks. `None` sends as the network does.
    pub paths: Option<Arc<Paths>>,
}

impl Config {
    /// A link with default transport and limits.
    #[must_use]
    pub fn new(me: Identity, listen: SocketAddr, certificates: CertificateFiles) -> Self {
        let (transport, limits) = (Transport::default(), Limits::default());
        Self { me, listen, certificates, transport, limits, paths: None }
    }
}

/// The three files, each PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificates of the cluster's CA. Several during a change of the CA: all are trusted.
    pub authority: PathBuf,
    /// The node's certificate, then those between it and the CA, if any.
    pub certificate: PathBuf,
    /// The node's private key.
    pub key: PathBuf,
}

/// A peer as the config has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Who it has to be.
    pub identity: Identity,
    /// `host:port` of its link. A name is looked up before each dial.
    pub address: String,
    /// The round trip to it, milliseconds, if known. Used until one is measured: too long delays
    /// the repetition of a lost first packet, too short repeats packets that are under way.
    pub rtt_ms: Option<u32>,
}

/// Which congestion control decides how much may be under way on data connections.
///
/// The default was chosen by `examples/first_byte.rs` and `examples/congestion.rs`: requests between
/// nodes are few and small, so a window that shrinks with each loss has little chance to grow
/// again. At 93 ms and one packet in a thousand lost, 128 KiB took 1.2 round trips with BBR and 2.7
/// with CUBIC; one in a hundred, 2.2 and 8.0. Its price is a queue before a full narrow place
/// (35 ms at 100 Mbit/s), and a look at the empty path every ten seconds that delays the long
/// requests of that moment by two round trips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Congestion {
    /// Grows by time since the last loss: usual on the internet.
    Cubic,
    /// Grows by one packet a round trip: slow on long paths.
    NewReno,
    /// Follows the measured bandwidth: loss alone does not slow it. Quinn calls its own
    /// implementation experimental.
    #[default]
    Bbr,
}

/// How connections behave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Congestion control of all connections.
    pub congestion: Congestion,
    /// What a path between nodes carries at least, Mbit/s: a new data connection begins with what
    /// that is in one round trip, instead of the usual ten packets. More lets the first large
    /// requests arrive in fewer round trips; too much is lost on a path that carries less.
    pub initial_mbit_per_s: u32,
    /// Round trip assumed for peers whose own is not known.
    pub rtt_default_ms: u32,
    /// A control connection without a sign of life for so long is gone.
    pub control_idle_ms: u32,
    /// How often a control connection with nothing to say asks for a sign of life.
    pub control_keep_alive_ms: u32,
    /// A data connection without a sign of life for so long is gone, with the requests on it.
    pub data_idle_ms: u32,
    /// How often a data connection with nothing to say asks for a sign of life.
    pub data_keep_alive_ms: u32,
    /// Bytes of one stream that may be under way or unread. At least bandwidth times round trip:
    /// 3 MiB fill 100 Mbit/s at 230 ms.
    pub stream_window_bytes: u32,
    /// The same for all streams of a connection together, and so the memory that one peer can
    /// take here with replies that nobody reads.
    pub connection_window_bytes: u32,
    /// Bytes per connection that are kept until the peer has acknowledged them.
    pub send_window_bytes: u32,
    /// Forwarded requests that a peer may have open here at a time, per connection.
    pub streams_max: u32,
    /// Datagrams per connection that wait to be sent, bytes. What does not fit displaces the
    /// oldest: load that is late is worthless.
    pub datagram_send_bytes: usize,
    /// Datagrams per connection that wait to be read, bytes.
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

/// How much is allowed at a time, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Shortest wait before a peer is dialled again.
    pub back_off_min_ms: u32,
    /// Longest wait before a peer is dialled again.
    pub back_off_max_ms: u32,
    /// How long one attempt to dial may take, name look-up included.
    pub dial_ms: u32,
    /// How long the setting up of an accepted connection may take.
    pub handshake_ms: u32,
    /// Connections being set up at a time. More have to prove their address first, and twice as
    /// many are turned away.
    pub handshakes_max: usize,
    /// Two connections of one kind to one peer that came to be within this time were dialled by
    /// both at once; a later one means that the peer has lost the earlier.
    pub double_ms: u32,
    /// A connection that is not used for new requests any more is closed after this time, once
    /// nothing is open on it.
    pub retire_ms: u32,
    /// How long a peer may take to send the head of a request once the stream is open.
    pub head_wait_ms: u32,
    /// How long a peer may take to accept or refuse a request.
    pub word_wait_ms: u32,
    /// How long the control connection to a peer may be gone until requests are given up that the peer
    /// has taken and not begun to answer.
    pub gone_ms: u32,
    /// Bodies of a known length up to this go with the head; longer ones wait until the peer has
    /// accepted, unless the caller says that there is room.
    pub eager_body_bytes: u64,
    /// How often the certificate files are looked at.
    pub certificates_check_ms: u32,
}

impl Default for Limits {
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

/// A duration of so many milliseconds.
pub(crate) fn ms(milliseconds: u32) -> Duration {
    Duration::from_millis(milliseconds.into())
}
