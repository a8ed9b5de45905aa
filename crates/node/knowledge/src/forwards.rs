//! Prompts that this region forwarded to other regions, by which the next turns find their caches
//! again.
//!
//! Kept apart from the index of the own replicas: what only other regions hold must not count as
//! held here.

use std::collections::BTreeMap;

use spillway_gossip::{NameId, Sharing, SiblingNews};
use spillway_prefix::{FineIndex, IndexConfig, IndexReader};
use spillway_types::{Holder, RegionName};
use spillway_view::ForwardReplied;

/// Blocks that are remembered of a region at first: some 500,000 tokens. A region's caches are
/// larger, but its own clients fill them too, so that old forwards are mostly gone there.
const REGION_BLOCKS: u32 = 8_192;
/// Bytes of the index for all regions.
const BYTES_MAX: usize = 16 << 20;
/// Tokens that must have been expected to be cached before a region's replies are compared with
/// that. A single reply proves little: another replica of the region may have served it.
const EXPECTED_TOKENS_MIN: f64 = 16_384.0;

/// Prompts that were forwarded to each other region. The least recently used are removed first.
#[derive(Debug)]
pub(super) struct Forwards {
    index: FineIndex,
    reader: IndexReader,
    regions: BTreeMap<RegionName, KnownRegion>,
    /// Regions that were ever given a number.
    numbered: u64,
    /// True if regions came or went since the last [`set_regions`](Self::set_regions).
    is_changed: bool,
    /// Buffer for the blocks of a prompt and its reply.
    whole: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct KnownRegion {
    id: NameId,
    holder: Holder,
    /// Tokens that were expected to be cached, and those of them that were, since the last
    /// comparison.
    expected_tokens: f64,
    cached_tokens: f64,
}

impl Forwards {
    pub(super) fn new() -> Self {
        let config = IndexConfig { bytes_max: BYTES_MAX, holder_blocks_default: REGION_BLOCKS };
        let (index, reader) = FineIndex::new(config);
        Self {
            index,
            reader,
            regions: BTreeMap::new(),
            numbered: 0,
            is_changed: false,
            whole: Vec::new(),
        }
    }

    /// Returns a reader of the index.
    pub(super) fn reader(&self) -> IndexReader {
        self.reader.clone()
    }

    /// Takes over the names of all other regions. Returns their numbers in the index if any has
    /// changed.
    pub(super) fn set_regions<'r>(
        &mut self,
        names: impl Iterator<Item = &'r RegionName>,
    ) -> Option<BTreeMap<RegionName, Holder>> {
        let mut gone = std::mem::take(&mut self.regions);
        for name in names {
            if let Some((name, known)) = gone.remove_entry(name) {
                self.regions.insert(name, known);
            } else {
                self.region(name);
            }
        }
        self.is_changed |= !gone.is_empty();
        gone.values().for_each(|known| self.index.forget_holder(known.holder));
        let holders = self.regions.iter().map(|(name, known)| (name.clone(), known.holder));
        std::mem::take(&mut self.is_changed).then(|| holders.collect())
    }

    /// Notes that a region has begun to reply to a prompt of this node, and shares this with the
    /// other nodes.
    pub(super) fn began(
        &mut self,
        region: &RegionName,
        chain: &[u64],
        sharing: Option<&mut Sharing>,
    ) {
        let Some(KnownRegion { id, holder, .. }) = self.region(region).copied() else { return };
        self.index.insert(holder, chain);
        if let Some(sharing) = sharing {
            sharing.report_sent(id, chain);
        }
    }

    /// Learns from the whole reply of a region: the region has cached the reply too, and the reply
    /// reports how much of the prompt was cached.
    pub(super) fn replied(&mut self, reply: &ForwardReplied, sharing: Option<&mut Sharing>) {
        let chain = reply.chain.as_slice();
        let Some(KnownRegion { id, holder, .. }) = self.region(&reply.region).copied() else {
            return;
        };
        let believed = self.index.take_belief(holder, chain);
        self.compare(reply, believed.unwrap_or(0));
        if reply.written.as_slice().is_empty() {
            return;
        }
        self.whole.clear();
        self.whole.extend(chain.iter().chain(reply.written.as_slice()));
        self.index.extend(holder, &self.whole, chain.len());
        if let Some(sharing) = sharing {
            let prompt_blocks = u32::try_from(chain.len()).unwrap_or(u32::MAX);
            sharing.report_written(id, &self.whole, prompt_blocks);
        }
    }

    /// Handles news from another node of the region. Returns false if they are about a replica.
    pub(super) fn receive(&mut self, news: &SiblingNews<'_>) -> bool {
        let (SiblingNews::Sent(id, chain)
        | SiblingNews::Cached(id, chain, _)
        | SiblingNews::Written(id, chain, _)) = *news;
        let Some(known) = self.regions.values().find(|known| known.id == id) else { return false };
        match news {
            SiblingNews::Sent(..) => self.index.insert(known.holder, chain),
            SiblingNews::Written(_, _, prompt_blocks) => {
                self.index.extend(known.holder, chain, *prompt_blocks as usize);
            }
            // Each node compares the replies to its own forwards.
            SiblingNews::Cached(..) => {}
        }
        true
    }

    /// Forgets all prompts, since the key of their hashes is no longer used.
    pub(super) fn clear(&mut self) {
        self.index.clear();
    }

    /// Lets the memory of a region shrink or grow by how much of what was believed its replies have
    /// found cached.
    fn compare(&mut self, reply: &ForwardReplied, believed_blocks: u32) {
        let Some(known) = self.regions.get_mut(&reply.region) else { return };
        let Some((prompt_tokens, cached_tokens)) = reply.prompt_tokens.zip(reply.cached_tokens)
        else {
            return;
        };
        let share = f64::from(believed_blocks) / reply.chain.as_slice().len().max(1) as f64;
        let expected = share * prompt_tokens as f64;
        known.expected_tokens += expected;
        known.cached_tokens += (cached_tokens as f64).min(expected);
        if known.expected_tokens >= EXPECTED_TOKENS_MIN {
            let (expected, cached) = (known.expected_tokens, known.cached_tokens);
            (known.expected_tokens, known.cached_tokens) = (0.0, 0.0);
            // `as` saturates.
            self.index.note_hit_ratio(known.holder, expected as u64, cached as u64);
        }
    }

    fn region(&mut self, name: &RegionName) -> Option<&KnownRegion> {
        if !self.regions.contains_key(name) {
            self.numbered += 1;
            let known = KnownRegion {
                id: NameId::of_region(name),
                holder: self.index.holder(self.numbered)?,
                expected_tokens: 0.0,
                cached_tokens: 0.0,
            };
            self.regions.insert(name.clone(), known);
            self.is_changed = true;
        }
        self.regions.get(name)
    }
}

#[cfg(test)]
mod tests {
    use spillway_gossip::SharingConfig;
    use spillway_prefix::Matches;
    use spillway_types::BlockHashes;

    use super::*;

    fn blocks(forwards: &Forwards, region: &str, chain: &[u64]) -> u32 {
        let mut matches = Matches::new();
        forwards.reader().lookup(chain, &mut matches);
        let known = forwards.regions.get(&RegionName::from(region));
        known.map_or(0, |known| matches.blocks(known.holder))
    }

    fn chain(number: u64, blocks: u64) -> Vec<u64> {
        (0..blocks)
            .map(|block| (number << 32 | block).wrapping_mul(0x9E37_79B9_7F4A_7C15))
            .collect()
    }

    fn reply(region: &str, chain: &[u64], written: &[u64], cached: Option<u64>) -> ForwardReplied {
        ForwardReplied {
            region: region.into(),
            chain: BlockHashes::new(chain.to_vec()),
            written: BlockHashes::new(written.to_vec()),
            prompt_bytes: 256 * chain.len() as u32,
            prompt_tokens: Some(64 * chain.len() as u64),
            cached_tokens: cached,
        }
    }

    fn sharing() -> Sharing {
        Sharing::new(SharingConfig::default(), 0)
    }

    #[test]
    fn what_went_to_a_region_is_known_of_that_region_with_its_reply() {
        let mut forwards = Forwards::new();
        let (eu, us) = (RegionName::from("eu"), RegionName::from("us"));
        let holders = forwards.set_regions([&eu, &us].into_iter()).expect("two came");
        assert_eq!(holders.len(), 2);
        assert_eq!(forwards.set_regions([&eu, &us].into_iter()), None);
        forwards.began(&eu, &[1, 2, 3], None);
        let next = [1, 2, 3, 4, 5];
        assert_eq!((blocks(&forwards, "eu", &next), blocks(&forwards, "us", &next)), (3, 0));
        forwards.replied(&reply("eu", &[1, 2, 3], &[4], Some(0)), None);
        assert_eq!((blocks(&forwards, "eu", &next), blocks(&forwards, "us", &next)), (4, 0));
        // A region that is gone and comes back starts without knowledge.
        assert_eq!(forwards.set_regions([&us].into_iter()).map(|all| all.len()), Some(1));
        assert_eq!(forwards.set_regions([&eu, &us].into_iter()).map(|all| all.len()), Some(2));
        assert_eq!(blocks(&forwards, "eu", &next), 0);
        forwards.began(&us, &[1, 2, 3], None);
        forwards.clear();
        assert_eq!(blocks(&forwards, "us", &next), 0);
    }

    #[test]
    fn the_other_nodes_of_the_region_know_it_too() {
        let eu = RegionName::from("eu");
        let (mut one, mut other) = (Forwards::new(), Forwards::new());
        drop(other.set_regions([&eu].into_iter()));
        let (mut teller, mut listener) = (sharing(), sharing());
        one.began(&eu, &[1, 2, 3], Some(&mut teller));
        one.replied(&reply("eu", &[1, 2, 3], &[4, 5], None), Some(&mut teller));
        teller.report_sent(NameId::of_replica(&"eu".into()), &[7]);
        let mut others = 0;
        for (_, datagram) in teller.flush() {
            let heard = listener.handle_datagram(&"n".into(), &datagram, |news| {
                others += u32::from(!other.receive(&news));
            });
            heard.expect("a datagram");
        }
        assert_eq!(blocks(&other, "eu", &[1, 2, 3, 4, 5, 6]), 5);
        assert_eq!(others, 1, "what is about a replica is left to others");
        assert_eq!(blocks(&other, "eu", &[7]), 0);
    }

    #[test]
    fn the_oldest_goes_and_less_is_kept_where_replies_do_not_find_it() {
        let mut forwards = Forwards::new();
        let eu = RegionName::from("eu");
        let talks: Vec<_> = (0..200).map(|talk| chain(talk, 64)).collect();
        talks.iter().for_each(|talk| forwards.began(&eu, talk, None));
        let known = |forwards: &Forwards| {
            talks.iter().filter(|talk| blocks(forwards, "eu", talk) == 64).count()
        };
        assert_eq!(known(&forwards), 128, "8,192 blocks");
        assert_eq!(blocks(&forwards, "eu", &talks[0]), 0);
        for talk in &talks[190..] {
            forwards.began(&eu, talk, None);
            forwards.replied(&reply("eu", talk, &[], Some(64 * 64)), None);
        }
        assert_eq!(known(&forwards), 128, "all was found");
        for talk in &talks[190..] {
            forwards.began(&eu, talk, None);
            forwards.replied(&reply("eu", talk, &[], Some(0)), None);
        }
        assert!(known(&forwards) < 70, "{}", known(&forwards));
        assert!(known(&forwards) > 10, "{}", known(&forwards));
    }
}
