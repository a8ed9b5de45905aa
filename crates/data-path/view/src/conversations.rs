//! Regions that last served each conversation, so that the next turn finds its cache again. Nodes
//! share them, since the next turn may reach any node.

use std::time::Duration;

use moka::sync::Cache;
use spillway_types::RegionName;

/// Most conversations remembered; beyond that the least used are forgotten.
const CONVERSATIONS_MAX: u64 = 65_536;
/// Time without a turn after which a conversation is forgotten: caches do not hold it any longer.
const IDLE: Duration = Duration::from_secs(3_600);
/// Blocks at a prompt's end that are looked up: a turn adds fewer, or so much that a cache has
/// little of the prompt.
const BLOCKS_MAX: usize = 128;
/// Blocks at a prompt's end that are looked up only to count a move. Every prompt costs as much, so
/// moves of conversations with longer turns are not counted.
const BLOCKS_COUNTED: usize = 16;

/// Regions by the last block of the prompt that they served.
#[derive(Debug)]
pub struct Conversations(Cache<u64, RegionName>);

/// Region that served a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedIn {
    /// Region that served the conversation last.
    pub region: RegionName,
    /// Leading blocks of the prompt that the region has served before.
    pub blocks: u32,
}

impl Conversations {
    /// Notes that a region served a prompt.
    pub fn served(&self, chain: &[u64], region: &RegionName) {
        if let Some(last) = chain.last() {
            self.0.insert(*last, region.clone());
        }
    }

    /// Notes the region that served the prompts with these last blocks, as another node reported
    /// it.
    pub fn receive(&self, blocks: &[u64], region: &RegionName) {
        blocks.iter().for_each(|block| self.0.insert(*block, region.clone()));
    }

    /// Notes that a region served a prompt of this node's client. Returns true if another region
    /// served the conversation before.
    pub fn moved_to(&self, chain: &[u64], region: &RegionName) -> bool {
        let before = self.find_within(chain, BLOCKS_COUNTED);
        self.served(chain, region);
        before.is_some_and(|before| before.region != *region)
    }

    /// Returns up to `count` last blocks of prompts, each with the region that served it.
    pub fn some(&self, count: usize) -> Vec<(u64, RegionName)> {
        self.0.iter().take(count).map(|(block, region)| (*block, region)).collect()
    }

    /// Returns the region that served the longest beginning of a prompt.
    pub fn find(&self, chain: &[u64]) -> Option<ServedIn> {
        self.find_within(chain, BLOCKS_MAX)
    }

    fn find_within(&self, chain: &[u64], blocks_max: usize) -> Option<ServedIn> {
        // From the end, since the longest beginning is looked for.
        let ends = chain.iter().enumerate().rev().take(blocks_max);
        ends.into_iter().find_map(|(index, block)| {
            let region = self.0.get(block)?;
            Some(ServedIn { region, blocks: u32::try_from(index + 1).unwrap_or(u32::MAX) })
        })
    }
}

impl Default for Conversations {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(CONVERSATIONS_MAX).time_to_idle(IDLE).build())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_turn_finds_the_region_of_the_last_one() {
        let conversations = Conversations::default();
        let (eu, us) = (RegionName::from("eu"), RegionName::from("us"));
        let served_in =
            |region: &RegionName, blocks| Some(ServedIn { region: region.clone(), blocks });
        assert_eq!(conversations.find(&[1, 2, 3]), None);
        conversations.served(&[1, 2, 3], &eu);
        assert_eq!(conversations.find(&[1, 2, 3, 4, 5]), served_in(&eu, 3));
        assert_eq!(conversations.find(&[1, 2, 6]), None, "they only begin alike");
        conversations.served(&[1, 2, 3, 4, 5], &us);
        assert_eq!(conversations.find(&[1, 2, 3, 4, 5, 6]), served_in(&us, 5), "it moved");
        conversations.served(&[], &eu);
        assert_eq!(conversations.find(&[]), None);
        conversations.receive(&[90, 91], &eu);
        assert_eq!(conversations.find(&[8, 9, 91, 92]), served_in(&eu, 3), "another node told");
        assert!(!conversations.moved_to(&[8, 9, 91, 92], &eu));
        assert!(conversations.moved_to(&[8, 9, 91, 92, 93], &us));
        assert!(!conversations.moved_to(&[8, 9, 91, 92, 93], &us), "it stays there");
        let long: Vec<u64> = (0..1_000).collect();
        conversations.served(&long[..500], &eu);
        assert_eq!(conversations.find(&long), None, "too much was added");
    }
}
