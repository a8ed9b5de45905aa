//! Message about homes that stays below the size up to which its reader takes it.

use std::io::{self, Write};

use serde::Serialize;
use spillway_types::RegionName;
use spillway_view::HomeNews;

use super::wire::{Homes, KnownResponse, KnownSession, Side};

/// Bytes of a message without its entries.
const FRAME_BYTES: usize = 64;
/// Bytes of a block's number with its comma.
const BLOCK_BYTES: usize = 21;

/// Homes for one message, up to so many bytes of JSON.
#[derive(Debug)]
pub(super) struct BoundedHomes {
    homes: Homes,
    room: usize,
}

impl BoundedHomes {
    /// Begins a message of up to `bytes_max` bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { homes: Homes::default(), room: bytes_max.saturating_sub(FRAME_BYTES) }
    }

    /// Makes a message of the first of these news, as many as there is room for. Returns the message
    /// and the number of news that need not be sent again. A single entry that no message has room
    /// for is left out: those behind it would never arrive.
    pub(super) fn of<'n>(
        news: impl Iterator<Item = &'n HomeNews>,
        side: Side<'_>,
        bytes_max: usize,
    ) -> (Homes, u64) {
        let (mut message, mut taken) = (Self::new(bytes_max), 0);
        let room = message.room;
        for news in news {
            if !message.add(news, side) && message.room < room {
                break;
            }
            taken += 1;
        }
        (message.homes, taken)
    }

    /// Returns the message.
    pub(super) fn finish(self) -> Homes {
        self.homes
    }

    /// Adds a response. Returns false if there is no room for it.
    pub(super) fn response(&mut self, known: KnownResponse) -> bool {
        let has_room = self.take(json_bytes(&known));
        if has_room {
            self.homes.responses.push(known);
        }
        has_room
    }

    /// Adds a session. Returns false if there is no room for it.
    pub(super) fn session(&mut self, known: KnownSession) -> bool {
        let has_room = self.take(json_bytes(&known));
        if has_room {
            self.homes.sessions.push(known);
        }
        has_room
    }

    /// Adds the last block of a prompt that a region served. Returns false if there is no room for it.
    pub(super) fn conversation(&mut self, block: u64, region: &RegionName) -> bool {
        let blocks = self.homes.conversations.get(region);
        // A new region has its name and a list around the block.
        let bytes = BLOCK_BYTES + blocks.map_or_else(|| json_bytes(region) + 4, |_| 0);
        let has_room = self.take(bytes);
        if has_room {
            self.homes.conversations.entry(region.clone()).or_default().push(block);
        }
        has_room
    }

    /// Adds news of the node on this side. Returns false if there is no room for them.
    fn add(&mut self, news: &HomeNews, side: Side<'_>) -> bool {
        match news {
            HomeNews::Response { id, response } => {
                self.response(KnownResponse::of(id, response, side))
            }
            HomeNews::Session { route, key, home } => {
                let known = KnownSession::of(route, *key, *home, side);
                known.is_none_or(|known| self.session(known))
            }
            HomeNews::Conversation { block, region } => {
                self.conversation(*block, region.as_ref().unwrap_or(side.region))
            }
        }
    }

    fn take(&mut self, bytes: usize) -> bool {
        let left = self.room.checked_sub(bytes);
        self.room = left.unwrap_or(self.room);
        left.is_some()
    }
}

/// Returns the length of an entry as JSON, with its comma.
fn json_bytes(entry: &impl Serialize) -> usize {
    let mut count = ByteCount(1);
    // Neither a count nor a plain struct fails.
    drop(serde_json::to_writer(&mut count, entry));
    count.0
}

/// Writer that counts.
struct ByteCount(usize);

impl Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use spillway_types::NodeName;
    use spillway_view::{Home, SessionHome, SessionKey, StoredResponse};

    use super::*;

    /// News with the longest names that there are. Each control character has six bytes in JSON.
    fn longest() -> HomeNews {
        let response = StoredResponse {
            home: Home::Elsewhere {
                region: "r".repeat(63).into(),
                node: Some("n".repeat(63).into()),
                replica: Some("s".repeat(253).into()),
            },
            tenant: Some("t".repeat(64).into()),
            model: "\"".repeat(256).into(),
        };
        HomeNews::Response { id: "\u{1}".repeat(128).into(), response }
    }

    fn sent(news: &[HomeNews], bytes_max: usize) -> (usize, u64) {
        let (node, region) = (NodeName::from("n"), RegionName::from("us"));
        let side = Side { node: &node, region: &region, others: &BTreeMap::new() };
        let (homes, taken) = BoundedHomes::of(news.iter(), side, bytes_max);
        (serde_json::to_vec(&homes).expect("a text").len(), taken)
    }

    #[test]
    fn no_message_is_longer_than_its_reader_takes() {
        let news = vec![longest(); 1_024];
        let (bytes, taken) = sent(&news, super::super::NEWS_BYTES_MAX);
        assert!(bytes <= super::super::NEWS_BYTES_MAX, "{bytes}");
        assert!(taken < 1_024 && bytes > super::super::NEWS_BYTES_MAX / 2, "{taken}: {bytes}");
        // The rest goes with the next message.
        let (_, rest) = sent(&news[usize::try_from(taken).expect("few")..], 1 << 20);
        assert!(taken + rest == 1_024, "{taken} and {rest}");
    }

    #[test]
    fn every_kind_of_news_counts_with_all_its_bytes() {
        let key = SessionKey { session: u64::MAX, tenant: u64::MAX };
        let home = SessionHome { region: None, replica: Some(u64::MAX), version: u32::MAX };
        let session = HomeNews::Session { route: "r".repeat(64).into(), key, home };
        let region = |name: &str| Some(name.repeat(63).into());
        let turn = |name| HomeNews::Conversation { block: u64::MAX, region: region(name) };
        let news = vec![session, turn("a"), longest(), turn("b"), turn("a")];
        let news = vec![news; 40].concat();
        for bytes_max in (0..20_000).step_by(97) {
            let (bytes, _) = sent(&news, bytes_max);
            assert!(bytes <= bytes_max.max(2), "{bytes} of {bytes_max}");
        }
    }

    #[test]
    fn news_that_no_message_has_room_for_hold_nothing_up() {
        let turn = HomeNews::Conversation { block: 7, region: None };
        assert_eq!(sent(&[longest(), turn], 512).1, 2);
    }
}
