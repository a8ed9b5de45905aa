//! Limits for clients, already checked and in final units.

use std::time::Duration;

use spillway_types::{Millis, settings};

settings! {
    /// `[limits]`: limits on clients.
    #[derive(PartialEq, Eq)]
    pub struct Limits {
        /// Maximum number of client connections; further ones are closed at once. A lower limit of
        /// open files lowers it at the start: each request in flight needs a second descriptor.
        #[schemars(range(min = 1))]
        connections_max: usize = 16_384,
        /// Maximum number of connections of one client: an IPv4 address, or the first 64 bits of an
        /// IPv6 one. Trusted proxies have no such limit; the clients behind them do if a PROXY header
        /// names them.
        #[schemars(range(min = 1))]
        connections_per_client_max: usize = 4_096,
        /// Memory limit of this process in bytes; above 90 % of it new requests are refused. 0: the
        /// limit of the control group or the memory of the machine.
        memory_bytes_max: u64 = 0,
        /// Maximum size of one request head in bytes; larger ones get 431.
        #[schemars(range(min = 1))]
        header_bytes_max: usize = 64 << 10,
        /// Maximum number of header fields of one HTTP/1.1 request; more gets 431.
        #[serde(skip)]
        headers_max: usize = 100,
        /// Maximum size of one request body in bytes; larger ones get 413.
        #[schemars(range(min = 1))]
        body_bytes_max: u64 = 32 << 20,
        /// Maximum total size of buffered request bodies, in bytes; further bodies get 503.
        #[schemars(range(min = 1))]
        body_bytes_total_max: u64 = 1 << 30,
        /// Maximum size of a body that is buffered though it needs no parsing, so that it can be
        /// retried; longer ones are streamed, and never retried once their first byte was sent.
        #[serde(skip)]
        buffered_bytes_max: u64 = 1 << 20,
        /// Maximum number of concurrent requests on one HTTP/2 connection.
        #[serde(skip)]
        streams_per_connection_max: u32 = 256,
        /// Maximum number of requests that one connection may abandon within `reset_window` before
        /// it is closed: the guard against HTTP/2 rapid reset.
        #[serde(skip)]
        resets_per_connection_max: u32 = 200,
        /// Time window of `resets_per_connection_max`.
        #[serde(skip)]
        reset_window: Duration = Duration::from_secs(10),
        /// Time limit for receiving a complete request head, from its first byte; also for the TLS
        /// handshake and a PROXY header. Enforced after one and a half times this long at the latest.
        #[serde(skip)]
        head_timeout: Duration = Duration::from_secs(10),
        /// Time after which a connection without requests is closed.
        #[schemars(range(min = 1))]
        idle_timeout_ms: Millis = Millis(75_000),
        /// Longest pause of a client, within its request body or in reading a reply; time below 4 KiB
        /// per second of a body counts as a pause. Then the request ends: with 408 if its body is
        /// late, else its connection is closed, or over HTTP/2 the stream if the client takes others.
        #[schemars(range(min = 1))]
        stall_timeout_ms: Millis = Millis(60_000),
        /// Maximum size of reply data buffered for one slow client, in bytes, so that the replica's
        /// slot becomes free; with 0 the replica waits for the client. The default is about 5,000
        /// tokens of a chat, since each is an event of about 200 bytes; clients that lag behind by more
        /// are rare, and the limit of all of them counts first.
        #[serde(skip)]
        read_ahead_bytes_max: usize = 1 << 20,
        /// Maximum total size of reply data buffered for slow clients, in bytes; an eighth of the
        /// memory is a further limit.
        #[serde(skip)]
        read_ahead_bytes_total_max: u64 = 256 << 20,
    }
}
