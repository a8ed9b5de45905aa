//! Rate limit of a peer's HTTP/2 control frames. Pure: bytes and times in, a verdict out.
//!
//! The HTTP library answers or applies PING, SETTINGS, WINDOW_UPDATE and the like before the
//! gateway sees them, and they cost processor time without being part of any request. So the frame
//! headers are read as they pass. Payloads are skipped, not copied.

use std::time::{Duration, Instant};

/// Cost of a control frame. An empty DATA frame counts as one; h2 itself limits how many tiny ones
/// wait to be read.
const CONTROL: u64 = 16;
/// Cost of SETTINGS: a new window size is applied to each open stream.
const SETTINGS_COST: u64 = 160;
/// Size of the token bucket: 1,024 control frames.
const STORE_MAX: u64 = 1_024 * CONTROL;
/// Time in which a peer earns one token without any work: 100 control frames a second, or 10
/// SETTINGS.
const UNIT_TIME: Duration = Duration::from_micros(1_000_000 / (100 * CONTROL));
/// Tokens earned by a request or a piece of a reply: a PING, WINDOW_UPDATEs of stream and
/// connection, and one more frame.
pub const EARNED_BY_PIECE: u64 = 4 * CONTROL;
/// Bytes written to a peer that earn one token: two WINDOW_UPDATEs for each kilobyte.
pub const BYTES_PER_EARNED: u64 = 512 / CONTROL;

/// Length of a frame's header, in bytes.
const HEADER_BYTES: usize = 9;
/// Length of the HTTP/2 client preface, in bytes.
const PREFACE_BYTES: usize = 24;

const DATA: u8 = 0;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;

/// Senders of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameSender {
    /// A client, which sends its preface first.
    Client,
    /// A replica.
    Replica,
}

/// Token bucket of the control frames that one connection may send.
#[derive(Debug)]
pub struct FrameBudget {
    /// Bytes of the current payload that have not passed yet.
    payload: usize,
    header: [u8; HEADER_BYTES],
    header_length: usize,
    store: u64,
    /// Tokens earned by work up to the last refill.
    earned: u64,
    filled_at: Instant,
}

impl FrameBudget {
    /// Returns a full bucket, for a new connection.
    pub fn new(sender: FrameSender, now: Instant) -> Self {
        Self {
            payload: if sender == FrameSender::Client { PREFACE_BYTES } else { 0 },
            header: [0; HEADER_BYTES],
            header_length: 0,
            store: STORE_MAX,
            earned: 0,
            filled_at: now,
        }
    }

    /// Accounts for the next bytes of the connection, which has earned `earned` tokens since it
    /// began. Returns `false` if they are more frames than it may send.
    pub fn admits(
        &mut self,
        bytes: &[u8],
        earned: impl FnOnce() -> u64,
        now: impl FnOnce() -> Instant,
    ) -> bool {
        let cost = self.cost(bytes);
        // Most reads bring data alone, and cost no look at the clock.
        if cost == 0 {
            return true;
        }
        self.fill(earned(), now());
        let left = self.store.checked_sub(cost);
        self.store = left.unwrap_or(self.store);
        left.is_some()
    }

    fn fill(&mut self, earned: u64, now: Instant) {
        let passed = now.saturating_duration_since(self.filled_at).as_micros();
        let by_time = u64::try_from(passed / UNIT_TIME.as_micros()).unwrap_or(u64::MAX);
        // The remainder of the time counts for the next refill, however soon that is.
        self.filled_at = match u32::try_from(by_time) {
            Ok(units) => self.filled_at + UNIT_TIME * units,
            // After so long the bucket is full anyway.
            Err(_) => now,
        };
        let by_work = earned.saturating_sub(self.earned);
        self.earned = earned;
        self.store = self.store.saturating_add(by_time).saturating_add(by_work).min(STORE_MAX);
    }

    /// Returns the cost of the frames whose headers end in these bytes.
    fn cost(&mut self, mut bytes: &[u8]) -> u64 {
        let mut cost = 0;
        loop {
            let skipped = self.payload.min(bytes.len());
            self.payload -= skipped;
            bytes = &bytes[skipped..];
            let missing = HEADER_BYTES - self.header_length;
            let Some((more, rest)) = bytes.split_at_checked(missing) else {
                let end = self.header_length + bytes.len();
                self.header[self.header_length..end].copy_from_slice(bytes);
                self.header_length = end;
                return cost;
            };
            self.header[self.header_length..].copy_from_slice(more);
            self.header_length = 0;
            bytes = rest;
            cost += self.cost_of_frame();
        }
    }

    /// Returns the cost of the frame whose header is complete, and notes the length of its payload.
    fn cost_of_frame(&mut self) -> u64 {
        let [high, middle, low, kind, flags, ..] = self.header;
        self.payload = u32::from_be_bytes([0, high, middle, low]) as usize;
        match kind {
            DATA if self.payload == 0 && flags & END_STREAM == 0 => CONTROL,
            DATA => 0,
            SETTINGS => SETTINGS_COST,
            _ => CONTROL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: u8 = 1;
    const PRIORITY: u8 = 2;
    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;
    const UNKNOWN: u8 = 200;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let mut frame = u32::try_from(length).unwrap().to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, 1]);
        frame.extend(std::iter::repeat_n(0xA5, length));
        frame
    }

    struct Peer {
        budget: FrameBudget,
        start: Instant,
        passed: Duration,
        earned: u64,
    }

    impl Peer {
        fn new(sender: FrameSender) -> Self {
            let start = Instant::now();
            let budget = FrameBudget::new(sender, start);
            Self { budget, start, passed: Duration::ZERO, earned: 0 }
        }

        fn client() -> Self {
            let mut peer = Self::new(FrameSender::Client);
            assert!(peer.sends(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
            peer
        }

        fn sends(&mut self, bytes: &[u8]) -> bool {
            self.budget.admits(bytes, || self.earned, || self.start + self.passed)
        }

        /// Returns how many copies of a frame are admitted at once, up to a million.
        fn burst(&mut self, frame: &[u8]) -> usize {
            (0..1_000_000).take_while(|_| self.sends(frame)).count()
        }
    }

    #[test]
    fn floods_of_every_kind_are_told_after_a_burst() {
        let floods = [
            (frame(PING, 0, 8), 1_024),
            (frame(PING, 1, 8), 1_024),
            (frame(PRIORITY, 0, 5), 1_024),
            (frame(WINDOW_UPDATE, 0, 4), 1_024),
            (frame(UNKNOWN, 0, 100), 1_024),
            (frame(HEADERS, 4, 0), 1_024),
            (frame(DATA, 0, 0), 1_024),
            (frame(SETTINGS, 0, 6), 102),
            (frame(SETTINGS, 1, 0), 102),
        ];
        for (flood, expected) in floods {
            assert_eq!(Peer::client().burst(&flood), expected, "{flood:?}");
        }
    }

    #[test]
    fn frames_are_told_apart_wherever_reads_end() {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        for length in [0, 5, 70_000] {
            bytes.extend(frame(DATA, END_STREAM, length));
            bytes.extend(frame(PING, 0, 8));
        }
        for step in [1, 7, 9, 10, 4_096, bytes.len()] {
            let mut budget = FrameBudget::new(FrameSender::Client, Instant::now());
            let cost: u64 = bytes.chunks(step).map(|piece| budget.cost(piece)).sum();
            assert_eq!(cost, 3 * CONTROL, "reads of {step}");
        }
    }

    #[test]
    fn bodies_cost_nothing() {
        let mut peer = Peer::client();
        assert_eq!(peer.burst(&frame(DATA, 0, 1)), 1_000_000);
        assert_eq!(peer.burst(&frame(DATA, END_STREAM, 0)), 1_000_000);
        let mut replica = Peer::new(FrameSender::Replica);
        assert_eq!(replica.burst(&frame(DATA, 0, 1)), 1_000_000);
        assert_eq!(replica.burst(&frame(DATA, 0, 0)), 1_024);
    }

    #[test]
    fn pings_of_an_idle_hour_are_fine() {
        let mut peer = Peer::client();
        assert_eq!(peer.burst(&frame(PING, 0, 8)), 1_024);
        for _ in 0..3_600 * 50 {
            peer.passed += Duration::from_millis(20);
            assert!(peer.sends(&frame(PING, 0, 8)));
        }
        peer.passed += Duration::from_secs(1);
        assert_eq!(peer.burst(&frame(PING, 0, 8)), 1_024, "an hour stores no more");
    }

    #[test]
    fn a_second_earns_its_part_however_often_it_is_looked_at() {
        let mut peer = Peer::client();
        peer.burst(&frame(PING, 0, 8));
        let mut sent = 0;
        for _ in 0..10_000 {
            peer.passed += Duration::from_micros(100);
            sent += usize::from(peer.sends(&frame(PING, 0, 8)));
        }
        assert!((90..=101).contains(&sent), "{sent}");
    }

    #[test]
    fn a_client_that_acknowledges_each_piece_of_a_long_stream_is_never_told_off() {
        let mut peer = Peer::client();
        let acknowledged =
            [frame(WINDOW_UPDATE, 0, 4), frame(WINDOW_UPDATE, 0, 4), frame(PING, 0, 8)].concat();
        for _ in 0..1_000_000 {
            peer.earned += EARNED_BY_PIECE;
            assert!(peer.sends(&acknowledged));
        }
        // A client that takes a large reply in frames of 16 kB stays within the budget, too.
        for _ in 0..1_000_000 {
            peer.earned += (16 << 10) / BYTES_PER_EARNED;
            assert!(peer.sends(&acknowledged));
        }
    }

    #[test]
    fn answers_to_pings_earn_next_to_nothing() {
        let mut peer = Peer::client();
        let mut written = 0;
        let sent = (0..1_000_000)
            .take_while(|_| {
                written += 17;
                peer.earned = written / BYTES_PER_EARNED;
                peer.sends(&frame(PING, 0, 8))
            })
            .count();
        assert!(sent < 1_100, "{sent}");
    }

    #[test]
    fn many_streams_at_once_are_fine() {
        let mut peer = Peer::client();
        let opening = [frame(HEADERS, 5, 40), frame(PRIORITY, 0, 5), frame(WINDOW_UPDATE, 0, 4)];
        for _ in 0..100 {
            let at_once: Vec<u8> = (0..256).flat_map(|_| opening.concat()).collect();
            assert!(peer.sends(&at_once));
            peer.earned += 256 * EARNED_BY_PIECE;
        }
    }
}
