//! What an operator can set about the data path, already checked and in final units.

use std::time::Duration;

use spillway_route::RetryBudgetConfig;

/// Bounds on what clients may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Client connections at a time on this node; one more is closed at once. Choose it below the
    /// process's open-file limit: each request in flight needs a second descriptor.
    pub connections_max: usize,
    /// Of these, connections of one client: an IPv4 address, or the first 64 bits of an IPv6 one. One
    /// more is closed at once. Proxies that are trusted have no such limit, those behind them do
    /// where a PROXY header names them.
    pub connections_per_client_max: usize,
    /// Memory that this process may use. From 90 % of it on new requests are refused. `None`: what
    /// the control group or the machine has.
    pub memory_bytes_max: Option<u64>,
    /// Bytes of one request head; more gets 431.
    pub header_bytes_max: usize,
    /// Header fields of one HTTP/1.1 request; more gets 431.
    pub headers_max: usize,
    /// Bytes of one request body; more gets 413.
    pub body_bytes_max: u64,
    /// Bytes of all buffered request bodies together; a body beyond it gets 503.
    pub body_bytes_total_max: u64,
    /// Bodies that need no parsing are buffered up to this many bytes, so that they can be retried;
    /// longer ones are streamed through and never retried once their first byte went out.
    pub buffered_bytes_max: u64,
    /// Concurrent requests on one HTTP/2 connection.
    pub streams_per_connection_max: u32,
    /// Requests that one connection may abandon within [`Limits::reset_window`] before it is closed:
    /// the guard against HTTP/2 rapid reset.
    pub resets_per_connection_max: u32,
    /// The window that `resets_per_connection_max` counts in.
    pub reset_window: Duration,
    /// Time for a complete request head, from its first byte; also for the TLS handshake and a
    /// PROXY header. Enforced at the latest half as much again later.
    pub head_timeout: Duration,
    /// Time for a complete buffered request body, and between two pieces of a streamed one.
    pub body_timeout: Duration,
    /// A connection without a request for this long is closed.
    pub idle_timeout: Duration,
    /// A client that takes none of the bytes waiting for it for this long is cut off: its connection, or
    /// over HTTP/2 that stream while others of the connection are taken.
    pub stall_timeout: Duration,
    /// Bytes of one reply that are read ahead of a client which is behind, so that the replica's place
    /// becomes free; 0 lets replicas wait for clients.
    pub read_ahead_bytes_max: usize,
    /// Bytes of all that is read ahead together. An eighth of the memory that may be used is another
    /// limit to it.
    pub read_ahead_bytes_total_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 16_384,
            connections_per_client_max: 4_096,
            memory_bytes_max: None,
            header_bytes_max: 64 << 10,
            headers_max: 100,
            body_bytes_max: 32 << 20,
            body_bytes_total_max: 1 << 30,
            buffered_bytes_max: 1 << 20,
            streams_per_connection_max: 256,
            resets_per_connection_max: 200,
            reset_window: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(75),
            stall_timeout: Duration::from_secs(60),
            // Some 4,000 tokens of a chat: each is an event of about 200 bytes.
            read_ahead_bytes_max: 1 << 20,
            read_ahead_bytes_total_max: 256 << 20,
        }
    }
}

/// Bounds on how long a replica may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP and TLS set-up of a new connection.
    pub connect: Duration,
    /// From the request to the reply's head. Long by default: a queued unary request may wait for
    /// its turn and for its whole generation.
    pub first_byte: Duration,
    /// Between two pieces of a reply's body.
    pub idle: Duration,
    /// The whole request, whatever it does.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            first_byte: Duration::from_secs(600),
            idle: Duration::from_secs(60),
            total: Duration::from_secs(3600),
        }
    }
}

/// When another replica is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Attempts per request, the first included.
    pub attempts_max: u32,
    /// Retries as a share of requests, in percent.
    pub share_percent: u32,
    /// Retries in hand at the start; requests earn them back by their share, however seldom they come.
    pub in_hand: u32,
    /// Retries that a second earns whose requests earn less.
    pub per_second_min: u32,
}

impl Default for Retry {
    fn default() -> Self {
        let budget = RetryBudgetConfig::default();
        Self {
            attempts_max: 3,
            share_percent: budget.share_percent,
            in_hand: budget.in_hand,
            per_second_min: budget.per_second_min,
        }
    }
}
