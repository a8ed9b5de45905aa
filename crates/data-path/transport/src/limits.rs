//! Limits for clients, already checked and in final units.

use std::time::Duration;

/// Limits for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most client connections at this node; further ones are closed at once. A lower limit of open
    /// files lowers it at the start: each request in flight needs a second descriptor.
    pub connections_max: usize,
    /// Most connections of one client: an IPv4 address, or the first 64 bits of an IPv6 one.
    /// Further ones are closed at once. Trusted proxies have no such limit; the clients behind them
    /// do if a PROXY header names them.
    pub connections_per_client_max: usize,
    /// Memory that this process may use, in bytes. From 90 % of it on new requests are refused.
    /// `None` means the memory of the control group or the machine.
    pub memory_bytes_max: Option<u64>,
    /// Most bytes of one request head; more gets 431.
    pub header_bytes_max: usize,
    /// Most header fields of one HTTP/1.1 request; more gets 431.
    pub headers_max: usize,
    /// Most bytes of one request body; more gets 413.
    pub body_bytes_max: u64,
    /// Most bytes of all buffered request bodies together; a body beyond it gets 503.
    pub body_bytes_total_max: u64,
    /// Most bytes of a body that is buffered though it needs no parsing, so that it can be retried;
    /// longer ones are streamed and never retried once their first byte went out.
    pub buffered_bytes_max: u64,
    /// Most concurrent requests on one HTTP/2 connection.
    pub streams_per_connection_max: u32,
    /// Most requests that one connection may abandon within [`Limits::reset_window`] before it is
    /// closed: the guard against HTTP/2 rapid reset.
    pub resets_per_connection_max: u32,
    /// Window of `resets_per_connection_max`.
    pub reset_window: Duration,
    /// Time for a complete request head, from its first byte; also for the TLS handshake and a
    /// PROXY header. Enforced after one and a half times this long at the latest.
    pub head_timeout: Duration,
    /// Longest silence within a request body. A slow body uses it up as well, see
    /// [`UploadPace`](crate::upload_pace::UploadPace).
    pub body_timeout: Duration,
    /// Time without a request after which a connection is closed.
    pub idle_timeout: Duration,
    /// Time after which a client that takes none of its waiting bytes is cut off: its connection,
    /// or over HTTP/2 the stream if others of the connection are taken.
    pub stall_timeout: Duration,
    /// Most bytes of one reply that are read ahead of a slow client, so that the replica's slot
    /// becomes free; 0 lets replicas wait for clients.
    pub read_ahead_bytes_max: usize,
    /// Most bytes of all replies read ahead. One eighth of the usable memory is another limit.
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
            // About 4,000 tokens of a chat: each is an event of about 200 bytes.
            read_ahead_bytes_max: 1 << 20,
            read_ahead_bytes_total_max: 256 << 20,
        }
    }
}
