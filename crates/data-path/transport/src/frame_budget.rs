//! Rate limit of a peer's HTTP/2 control frames and header fields. Pure: bytes and times in, a
//! verdict out.
//!
//! The HTTP library answers or applies PING, SETTINGS, WINDOW_UPDATE and similar frames before the
//! gateway sees them. They cost processor time without being part of any request, and so do header
//! blocks that the library refuses. So the frame headers are read as they pass. Payloads are
//! skipped, except the fields of a client's header blocks, which are counted, and a replica's
//! settings.

use std::time::{Duration, Instant};

use crate::hpack_fields::HpackFields;

/// Cost of a control frame. An empty DATA frame counts as one; h2 itself limits how many tiny ones
/// wait to be read.
const CONTROL: u64 = 16;
/// Cost of SETTINGS: a new window size is applied to each open stream.
const SETTINGS_COST: u64 = 160;
/// Fields of a header block that cost nothing beside their frame: more than any client sends, with a
/// field for each of its cookies.
const FIELDS_FREE: u64 = 128;
/// Cost of each further field: a block may have some 60,000 of them in as many bytes.
const FIELD_COST: u64 = 4;
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
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

/// Bytes of a stream's priority, ahead of its header block.
const PRIORITY_BYTES: usize = 5;
/// Setting with the most streams that the peer takes at a time.
const MAX_CONCURRENT_STREAMS: u16 = 3;

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
    sender: FrameSender,
    content: FrameContent,
    fields: HpackFields,
    facts: FrameFacts,
}

/// Content of the current payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameContent {
    /// Nothing that is read.
    Skipped,
    /// Length of the padding of a header block.
    Padding { has_priority: bool },
    /// A client's header block, behind so many bytes and before so many bytes of padding.
    Fields { ahead: usize, padding: usize },
    /// Settings, with the part of the current one that has passed.
    Settings { setting: [u8; 6], length: usize },
}

/// Facts about a connection that its frames have shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameFacts {
    /// Most streams that the peer takes at a time; `u32::MAX` if it named no limit, `None` before its
    /// first settings.
    pub streams_max: Option<u32>,
    /// True once the peer has announced that it takes no more streams.
    pub is_leaving: bool,
    /// Bytes of the current or last header block, as compressed.
    pub block_bytes: u64,
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
            sender,
            content: FrameContent::Skipped,
            fields: HpackFields::default(),
            facts: FrameFacts::default(),
        }
    }

    /// Returns what the frames so far have shown.
    pub fn facts(&self) -> FrameFacts {
        self.facts
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

    /// Returns the cost of the frames whose headers end in these bytes, and of the fields in them.
    fn cost(&mut self, mut bytes: &[u8]) -> u64 {
        let mut cost = 0;
        loop {
            let (passing, after) = bytes.split_at(self.payload.min(bytes.len()));
            self.payload -= passing.len();
            if self.content != FrameContent::Skipped {
                cost += FIELD_COST * self.read(passing);
            }
            bytes = after;
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

    /// Returns the cost of the frame whose header is complete, and notes what its payload is.
    fn cost_of_frame(&mut self) -> u64 {
        let [high, middle, low, kind, flags, ..] = self.header;
        self.payload = u32::from_be_bytes([0, high, middle, low]) as usize;
        self.content = FrameContent::Skipped;
        match kind {
            DATA if self.payload == 0 && flags & END_STREAM == 0 => return CONTROL,
            DATA => return 0,
            SETTINGS => {
                if self.sender == FrameSender::Replica && flags & ACK == 0 {
                    self.content = FrameContent::Settings { setting: [0; 6], length: 0 };
                }
                return SETTINGS_COST;
            }
            GOAWAY => self.facts.is_leaving = true,
            HEADERS => {
                self.fields.begin();
                self.facts.block_bytes = self.payload as u64;
                // A field takes a byte at least, so a short block has none to be paid for.
                let is_short = self.payload as u64 <= FIELDS_FREE && flags & END_HEADERS != 0;
                self.content = match (flags & PADDED != 0, flags & PRIORITY != 0) {
                    _ if is_short => FrameContent::Skipped,
                    (true, has_priority) => FrameContent::Padding { has_priority },
                    (false, true) => FrameContent::Fields { ahead: PRIORITY_BYTES, padding: 0 },
                    (false, false) => FrameContent::Fields { ahead: 0, padding: 0 },
                };
            }
            CONTINUATION => {
                self.facts.block_bytes += self.payload as u64;
                self.content = FrameContent::Fields { ahead: 0, padding: 0 };
            }
            _ => {}
        }
        // Replicas are trusted with their fields: the library limits each block.
        if self.sender == FrameSender::Replica {
            self.content = FrameContent::Skipped;
        }
        CONTROL
    }

    /// Reads the next bytes of a payload. Returns the fields in them that are to be paid for.
    fn read(&mut self, passing: &[u8]) -> u64 {
        match &mut self.content {
            FrameContent::Skipped => 0,
            FrameContent::Padding { has_priority } => {
                let Some((padding, rest)) = passing.split_first() else { return 0 };
                let ahead = if *has_priority { PRIORITY_BYTES } else { 0 };
                self.content = FrameContent::Fields { ahead, padding: usize::from(*padding) };
                self.read(rest)
            }
            FrameContent::Fields { ahead, padding } => {
                let (skipped, block) = passing.split_at((*ahead).min(passing.len()));
                *ahead -= skipped.len();
                // Of these bytes the last may be padding already.
                let padded = padding.saturating_sub(self.payload).min(block.len());
                self.fields.read(&block[..block.len() - padded], FIELDS_FREE)
            }
            FrameContent::Settings { setting, length } => {
                for byte in passing {
                    setting[*length] = *byte;
                    *length = (*length + 1) % setting.len();
                    if *length == 0 {
                        let [high, low, value @ ..] = *setting;
                        if u16::from_be_bytes([high, low]) == MAX_CONCURRENT_STREAMS {
                            self.facts.streams_max = Some(u32::from_be_bytes(value));
                        }
                    }
                }
                if self.payload == 0 {
                    self.facts.streams_max.get_or_insert(u32::MAX);
                }
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIORITY_UPDATE: u8 = 2;
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
            (frame(PRIORITY_UPDATE, 0, 5), 1_024),
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
        let opening =
            [frame(HEADERS, 5, 40), frame(PRIORITY_UPDATE, 0, 5), frame(WINDOW_UPDATE, 0, 4)];
        for _ in 0..100 {
            let at_once: Vec<u8> = (0..256).flat_map(|_| opening.concat()).collect();
            assert!(peer.sends(&at_once));
            peer.earned += 256 * EARNED_BY_PIECE;
        }
    }

    /// Returns a header block of `fields` indexed fields in frames of at most 16 KiB.
    fn block(fields: usize) -> Vec<u8> {
        let block = vec![0x82; fields];
        let mut frames = Vec::new();
        let parts: Vec<_> = block.chunks(16 << 10).collect();
        for (number, part) in parts.iter().enumerate() {
            let kind = if number == 0 { HEADERS } else { CONTINUATION };
            let flags = if number + 1 == parts.len() { 4 } else { 0 };
            frames.extend(&frame(kind, flags, part.len())[..HEADER_BYTES]);
            frames.extend(*part);
        }
        frames
    }

    #[test]
    fn blocks_of_many_fields_are_paid_for_and_usual_ones_are_not() {
        for (fields, expected) in [(128, 1_024), (1_128, 4), (6_000, 0), (60_000, 0)] {
            assert_eq!(Peer::client().burst(&block(fields)), expected, "{fields} fields");
        }
        let mut peer = Peer::client();
        for _ in 0..100_000 {
            peer.earned += EARNED_BY_PIECE;
            assert!(peer.sends(&block(128)), "a client with many cookies");
        }
        let mut replica = Peer::new(FrameSender::Replica);
        assert_eq!(replica.burst(&block(6_000)), 1_024);
    }

    #[test]
    fn padding_and_priority_are_no_fields() {
        let mut padded = frame(HEADERS, 4 | PADDED | PRIORITY, 1 + PRIORITY_BYTES + 100 + 255);
        padded[HEADER_BYTES] = 255;
        padded[HEADER_BYTES + 1..].fill(0x82);
        for step in [1, 100, 1_000] {
            let mut budget = FrameBudget::new(FrameSender::Client, Instant::now());
            budget.payload = 0;
            let cost: u64 = padded.chunks(step).map(|piece| budget.cost(piece)).sum();
            assert_eq!(cost, CONTROL, "reads of {step}");
        }
    }

    #[test]
    fn a_replica_s_limit_of_streams_and_its_farewell_are_noted() {
        let mut settings = frame(SETTINGS, 0, 12);
        settings[HEADER_BYTES..].copy_from_slice(&[0, 4, 0, 1, 0, 0, 0, 3, 0, 0, 0, 7]);
        for step in [1, 5, 100] {
            let mut budget = FrameBudget::new(FrameSender::Replica, Instant::now());
            assert_eq!(budget.facts(), FrameFacts::default());
            settings.chunks(step).for_each(|piece| {
                budget.cost(piece);
            });
            assert_eq!(budget.facts().streams_max, Some(7), "reads of {step}");
            budget.cost(&frame(SETTINGS, ACK, 0));
            budget.cost(&frame(SETTINGS, 0, 0));
            assert_eq!(budget.facts().streams_max, Some(7), "settings that don't name it");
            assert!(!budget.facts().is_leaving);
            budget.cost(&frame(GOAWAY, 0, 8));
            assert!(budget.facts().is_leaving);
        }
        let mut budget = FrameBudget::new(FrameSender::Replica, Instant::now());
        budget.cost(&frame(SETTINGS, 0, 0));
        assert_eq!(budget.facts().streams_max, Some(u32::MAX), "no limit");
    }
}
