//! Messages of KV events, as vLLM encodes them.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, SeqAccess, Visitor};
use spillway_types::{KvEvent, StoredBlocks};

/// Most events of one batch; more make the batch invalid, as if it had been missed.
const EVENTS_MAX: usize = 1 << 14;
/// Most hashes of one batch: blocks of two million tokens.
const HASHES_MAX: usize = 1 << 17;
/// Maximum length of a session id that is kept. Longer ones are not of this project.
const SESSION_BYTES_MAX: usize = 64;

/// Reads one batch. Events that this version does not know, and those of memory other than the
/// GPU's, are left out.
///
/// # Errors
/// Returns an error if the bytes are no batch of events.
pub(crate) fn read_batch(bytes: &[u8]) -> Result<Vec<KvEvent>, rmp_serde::decode::Error> {
    let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
    // Events nest three deep; whatever is skipped may not nest without end.
    reader.set_max_depth(16);
    Batch::deserialize(&mut reader).map(|batch| batch.0)
}

/// `[time, events, rank]`; the rank may be missing.
struct Batch(Vec<KvEvent>);

impl<'de> Deserialize<'de> for Batch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(BatchVisitor)
    }
}

struct BatchVisitor;

impl<'de> Visitor<'de> for BatchVisitor {
    type Value = Batch;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a batch of KV events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut batch: A) -> Result<Batch, A::Error> {
        let _: Option<IgnoredAny> = batch.next_element()?;
        let events = batch.next_element_seed(Events)?;
        while batch.next_element::<IgnoredAny>()?.is_some() {}
        events.map(Batch).ok_or_else(|| de::Error::missing_field("events"))
    }
}

struct Events;

impl<'de> DeserializeSeed<'de> for Events {
    type Value = Vec<KvEvent>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events {
    type Value = Vec<KvEvent>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of KV events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut events = Vec::new();
        let (mut read, mut hashes) = (0, 0);
        while let Some(fields) = list.next_element::<EventFields<'_>>()? {
            read += 1;
            hashes += fields.block_hashes.0.len();
            if read > EVENTS_MAX || hashes > HASHES_MAX {
                return Err(de::Error::custom("too many events"));
            }
            events.extend(fields.event());
        }
        Ok(events)
    }
}

/// Fields of one event that are used, of whatever type it is.
#[derive(Default, Deserialize)]
#[serde(default)]
struct EventFields<'a> {
    #[serde(rename = "type", borrow)]
    kind: &'a str,
    block_hashes: Hashes,
    parent_block_hash: Option<Hash>,
    block_size: u32,
    #[serde(borrow)]
    medium: Option<&'a str>,
    group_idx: Option<u32>,
    #[serde(borrow)]
    session_id: Option<&'a str>,
}

impl EventFields<'_> {
    fn event(self) -> Option<KvEvent> {
        // Blocks that are moved to other memory count as gone for predictions: reading them back
        // takes time too.
        if self.medium.is_some_and(|medium| medium != "GPU") {
            return None;
        }
        let hashes = self.block_hashes.0;
        match self.kind {
            "BlockStored" => Some(KvEvent::Stored(StoredBlocks {
                hashes,
                parent: self.parent_block_hash.map(|hash| hash.0),
                block_tokens: self.block_size,
                session: self
                    .session_id
                    .filter(|session| session.len() <= SESSION_BYTES_MAX)
                    .map(str::to_owned),
                group: self.group_idx,
            })),
            "BlockRemoved" => Some(KvEvent::Removed { hashes, group: self.group_idx }),
            "AllBlocksCleared" => Some(KvEvent::Cleared),
            _ => None,
        }
    }
}

/// Hashes of blocks, read straight into their list.
#[derive(Default)]
struct Hashes(Vec<u64>);

impl<'de> Deserialize<'de> for Hashes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(HashesVisitor)
    }
}

struct HashesVisitor;

impl<'de> Visitor<'de> for HashesVisitor {
    type Value = Hashes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of hashes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Hashes, A::Error> {
        let mut hashes = Vec::new();
        while let Some(Hash(hash)) = list.next_element()? {
            if hashes.len() >= HASHES_MAX {
                return Err(de::Error::custom("too many hashes"));
            }
            hashes.push(hash);
        }
        Ok(Hashes(hashes))
    }
}

/// Hash of a block: 64 bits, or the last 64 of a longer one, which the engine sends as bytes.
#[derive(Clone, Copy)]
struct Hash(u64);

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HashVisitor)
    }
}

struct HashVisitor;

impl Visitor<'_> for HashVisitor {
    type Value = Hash;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a hash of a block")
    }

    fn visit_u64<E: de::Error>(self, hash: u64) -> Result<Hash, E> {
        Ok(Hash(hash))
    }

    fn visit_i64<E: de::Error>(self, hash: i64) -> Result<Hash, E> {
        Ok(Hash(hash.cast_unsigned()))
    }

    fn visit_bytes<E: de::Error>(self, hash: &[u8]) -> Result<Hash, E> {
        let last = hash.last_chunk().ok_or_else(|| E::invalid_length(hash.len(), &self))?;
        Ok(Hash(u64::from_be_bytes(*last)))
    }
}

#[cfg(test)]
#[path = "wire_test.rs"]
mod tests;
