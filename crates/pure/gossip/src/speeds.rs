//! Speeds of regions, reported beside their load.
//!
//! Speeds change over minutes, so they need neither versions nor questions: the speaker reports all
//! of them every few seconds, in a datagram of their own kind. A node of an earlier release refuses
//! these datagrams and loses nothing else.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spillway_codec::{HEADER_BYTES, Wire, decode, encode};
use spillway_types::{ModelName, NodeName, RegionName, Speed};

use crate::name_id::NameId;
use crate::scale::{FINE, RATE, SHARE};
use crate::time::{is_forgotten, ms_since};
use crate::{GossipError, config};

/// Age from which a speed is not used any more, milliseconds: fifteen tellings are lost by then.
const AGE_MS_MAX: u32 = 30_000;
/// Models of one region that are kept: as many as lines of load.
const MODELS_MAX: usize = 4_096;
/// Longest datagram without its lines, bytes.
const ENVELOPE_BYTES_MAX: usize = HEADER_BYTES + 24;
/// Longest line, bytes: a name, and eight codes of three bytes.
const LINE_BYTES_MAX: usize = 4 + 8 * 3;

/// Speeds of regions that this node knows, and state of its own reports.
#[derive(Debug)]
pub struct Speeds {
    incarnation: u64,
    seq: u64,
    heard: BTreeMap<RegionName, RegionSpeeds>,
}

#[derive(Debug, Default)]
struct RegionSpeeds {
    /// Newest incarnation and number of each node that reported something, and when it did.
    newest: BTreeMap<NodeName, ((u64, u64), Instant)>,
    models: BTreeMap<NameId, (Speed, Instant)>,
}

impl Speeds {
    /// Creates a state in which nothing is known. `incarnation` has to be larger than at any start
    /// of this node before.
    #[must_use]
    pub fn new(incarnation: u64) -> Self {
        Self { incarnation, seq: 0, heard: BTreeMap::new() }
    }

    /// Returns the datagrams about the own region, for all nodes elsewhere. Only the region's
    /// speaker sends them, every few seconds.
    #[must_use]
    pub fn tell(&mut self, own: &BTreeMap<ModelName, Speed>) -> Vec<Bytes> {
        let lines: Vec<SpeedLine> = own
            .iter()
            .take(MODELS_MAX)
            .map(|(model, speed)| SpeedLine::new(NameId::of_model(model), speed))
            .collect();
        let room = config::GossipConfig::default().datagram_bytes_max - ENVELOPE_BYTES_MAX;
        let parts = lines.chunks(room / LINE_BYTES_MAX);
        let part = |lines: &[SpeedLine]| {
            self.seq += 1;
            let (incarnation, seq) = (self.incarnation, self.seq);
            // So many lines fit at their longest.
            encode(&SpeedsTelling { incarnation, seq, lines: lines.to_vec() }).ok()
        };
        parts.filter_map(part).collect()
    }

    /// Handles the report of `from`, the node that a verified certificate names, about its region.
    ///
    /// # Errors
    /// Returns the reason for refusing the datagram, which then changes nothing.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        from: &NodeName,
        region: &RegionName,
        bytes: &[u8],
    ) -> Result<(), GossipError> {
        let SpeedsTelling { incarnation, seq, lines } = decode(bytes)?;
        let known = self.heard.entry(region.clone()).or_default();
        let newest = known.newest.entry(from.clone()).or_insert(((0, 0), now));
        // Datagrams overtake each other: an older one contains nothing new.
        if (incarnation, seq) <= newest.0 && !is_forgotten(newest.1, now) {
            return Err(GossipError::Old(from.clone()));
        }
        *newest = ((incarnation, seq), now);
        for line in lines {
            // A full table still updates the models that it has.
            let is_room = known.models.len() < MODELS_MAX;
            if is_room || known.models.contains_key(&line.id) {
                known.models.insert(line.id, (line.speed(), now));
            }
        }
        Ok(())
    }

    /// Returns the speed of a region with a model; `None` if the region has not reported it
    /// recently.
    #[must_use]
    pub fn speed(&self, region: &RegionName, model: NameId, now: Instant) -> Option<Speed> {
        let (speed, at) = self.heard.get(region)?.models.get(&model)?;
        (ms_since(*at, now) <= AGE_MS_MAX).then_some(*speed)
    }

    /// Forgets speeds that are too old, and regions and nodes that are no members any more.
    pub fn keep(&mut self, is_member: impl Fn(&NodeName) -> bool, now: Instant) {
        for region in self.heard.values_mut() {
            region.newest.retain(|node, _| is_member(node));
            region.models.retain(|_, (_, at)| ms_since(*at, now) <= AGE_MS_MAX);
        }
        // A region goes with the last of its nodes.
        self.heard.retain(|_, region| !region.newest.is_empty());
    }
}

/// Datagram of speeds: some of a region's models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SpeedsTelling {
    /// Grows with every start of its sender.
    incarnation: u64,
    /// Grows with every datagram of an incarnation.
    seq: u64,
    lines: Vec<SpeedLine>,
}

impl Wire for SpeedsTelling {
    const KIND: u16 = 0x0102;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 2_048;
}

/// Speed of a region with one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SpeedLine {
    id: NameId,
    floor: u16,
    prefill: u16,
    prefill_per_thousand: u16,
    prefill_per_running: u16,
    decode: u16,
    ends: u16,
    bytes_per_token: u16,
    trust: u16,
}

impl SpeedLine {
    fn new(id: NameId, speed: &Speed) -> Self {
        Self {
            id,
            floor: FINE.code(speed.floor_ms),
            prefill: FINE.code(speed.prefill_ms),
            prefill_per_thousand: FINE.code(speed.prefill_ms_per_thousand),
            prefill_per_running: FINE.code(speed.prefill_per_running),
            decode: FINE.code_if_known(speed.is_decode_known.then_some(speed.decode_ms)),
            ends: RATE.code(speed.ends_per_s),
            bytes_per_token: FINE.code(speed.bytes_per_token),
            trust: SHARE.code(speed.trust),
        }
    }

    /// Returns the speed; unknown values are as in a replica of which nothing is known.
    fn speed(&self) -> Speed {
        let usual = Speed::UNKNOWN;
        Speed {
            floor_ms: FINE.value(self.floor).unwrap_or(usual.floor_ms),
            prefill_ms: FINE.value(self.prefill).unwrap_or(usual.prefill_ms),
            prefill_ms_per_thousand: FINE
                .value(self.prefill_per_thousand)
                .unwrap_or(usual.prefill_ms_per_thousand),
            prefill_per_running: FINE
                .value(self.prefill_per_running)
                .unwrap_or(usual.prefill_per_running),
            decode_ms: FINE.value(self.decode).unwrap_or(usual.decode_ms),
            // Not reported: they are about one replica's load.
            step_ms: usual.step_ms,
            step_ms_per_thousand: usual.step_ms_per_thousand,
            is_decode_known: FINE.value(self.decode).is_some(),
            ends_per_s: RATE.value(self.ends).unwrap_or(usual.ends_per_s),
            bytes_per_token: FINE
                .value(self.bytes_per_token)
                // Prompts are divided by it.
                .filter(|bytes| *bytes > 0.0)
                .unwrap_or(usual.bytes_per_token),
            trust: SHARE.value(self.trust).unwrap_or(0.0),
            // Not reported: the caches of a region are not one cache.
            ..usual
        }
    }
}

#[cfg(test)]
#[path = "speeds_test.rs"]
mod tests;
