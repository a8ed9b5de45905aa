//! State machine of prompt sharing.

use bytes::Bytes;
use spillway_codec::{DecodeError, decode};
use spillway_types::NodeName;

use super::chains::Chains;
use super::counters::SharingCounters;
use super::frame::{Block, Frame, PromptEntry, SharedChain};
use super::queue::Queue;
use crate::NameId;

/// Limits of what is shared. They need not be the same on all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharingConfig {
    /// Length of a datagram, with its frame: what QUIC carries on any path.
    pub datagram_bytes_max: usize,
    /// Datagrams of one [`Sharing::flush`]: half of what a connection takes at once, so that a
    /// burst of long prompts does not push out the gossip on that connection.
    pub flush_max: usize,
    /// Bytes that wait to be sent. An entry that finds no room is not shared; a node that lacks it
    /// asks.
    pub waiting_bytes_max: usize,
    /// Blocks whose place is known, at some 40 bytes each. More of them make datagrams shorter
    /// where many conversations are under way.
    pub blocks_max: usize,
    /// Blocks of one prompt, as many as are hashed; longer ones are cut.
    pub chain_blocks_max: usize,
    /// Questions of one node that wait for their answer. A node that has just started lacks
    /// everything, and learns it soon enough without asking.
    pub questions_max: usize,
}

impl Default for SharingConfig {
    fn default() -> Self {
        Self {
            datagram_bytes_max: 1_150,
            flush_max: 24,
            waiting_bytes_max: 1 << 20,
            blocks_max: 1 << 18,
            chain_blocks_max: 4_096,
            questions_max: 64,
        }
    }
}

/// Receivers of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// All other nodes of the region.
    All,
    /// A single node.
    Node(NodeName),
}

/// News from another node of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiblingNews<'a> {
    /// A prompt with these blocks was sent to this replica.
    Sent(NameId, &'a [u64]),
    /// The replica's reply reported that only so many of these blocks had been in its cache.
    Cached(NameId, &'a [u64], u32),
    /// The replica has written a whole reply. Only so many of these blocks are those of its prompt.
    Written(NameId, &'a [u64], u32),
}

/// Reason for refusing a datagram.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// The datagram is no intact frame of a known version.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// A prompt in the datagram has more blocks than allowed.
    #[error("a prompt of {blocks} blocks is longer than any")]
    TooLong {
        /// Number of its blocks.
        blocks: usize,
    },
}

/// Prompts that one node has sent to other nodes and received from them.
#[derive(Debug)]
pub struct Sharing {
    config: SharingConfig,
    epoch: u32,
    /// Chains that all nodes know, as far as nothing was lost.
    chains: Chains,
    queue: Queue,
    counters: SharingCounters,
}

impl Sharing {
    /// Creates a state in which nothing was shared yet. Blocks are hashed with the key of `epoch`.
    #[must_use]
    pub fn new(config: SharingConfig, epoch: u32) -> Self {
        Self {
            epoch,
            chains: Chains::new(config.blocks_max),
            queue: Queue::new(config.waiting_bytes_max),
            counters: SharingCounters::default(),
            config,
        }
    }

    /// Changes the key that blocks are hashed with. Chains that were shared with another key are
    /// forgotten.
    pub fn set_epoch(&mut self, epoch: u32) {
        if epoch != self.epoch {
            self.epoch = epoch;
            self.chains.clear();
            self.queue.clear();
        }
    }

    /// Shares that a prompt was sent to a replica.
    pub fn report_sent(&mut self, replica: NameId, chain: &[u64]) {
        let chain = self.cut(chain);
        self.counters.told += u64::from(!chain.is_empty());
        let news = self.news(replica, chain);
        self.counters.blocks_told += news.iter().map(|told| told.blocks.len() as u64).sum::<u64>();
        self.put_all(&To::All, news, PromptEntry::Sent);
    }

    /// Shares that, according to a reply, `blocks` leading blocks of its prompt had been in the
    /// replica's cache. Worth sharing only if that is fewer than was believed.
    pub fn report_cached(&mut self, replica: NameId, chain: &[u64], blocks: u32) {
        let chain = self.cut(chain);
        let news = self.news(replica, chain);
        self.put_all(&To::All, news, |told| PromptEntry::Cached { told, blocks });
    }

    /// Shares that a replica has written a whole reply: `chain` has the blocks of its prompt, and
    /// then those of the reply.
    pub fn report_written(&mut self, replica: NameId, chain: &[u64], prompt_blocks: u32) {
        let chain = self.cut(chain);
        let news = self.news(replica, chain);
        self.put_all(&To::All, news, |told| PromptEntry::Written { told, prompt_blocks });
    }

    /// Returns the next datagrams, at most [`SharingConfig::flush_max`]. Call it some 40 times a
    /// second, as long as [`Self::is_due`].
    #[must_use]
    pub fn flush(&mut self) -> Vec<(To, Bytes)> {
        let mut datagrams = Vec::new();
        while datagrams.len() < self.config.flush_max {
            let next = self.queue.pop(self.epoch, self.config.datagram_bytes_max);
            let Some((to, datagram)) = next else { break };
            self.counters.frames += 1;
            self.counters.frame_bytes += datagram.len() as u64;
            datagrams.push((to, datagram));
        }
        datagrams
    }

    /// Returns true if there is something to send.
    #[must_use]
    pub fn is_due(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Handles a datagram of `from`, the node of the own region that a verified certificate names,
    /// and hands over its news.
    ///
    /// # Errors
    /// The entries before the fault count even if the datagram is refused.
    pub fn handle_datagram(
        &mut self,
        from: &NodeName,
        bytes: &[u8],
        mut receive: impl FnMut(SiblingNews<'_>),
    ) -> Result<(), ShareError> {
        let taken = self.take(from, bytes, &mut receive);
        self.counters.refused += u64::from(taken.is_err());
        taken
    }

    /// Returns the counts since the start.
    #[must_use]
    pub fn counters(&self) -> SharingCounters {
        self.counters
    }

    fn take(
        &mut self,
        from: &NodeName,
        bytes: &[u8],
        receive: &mut impl FnMut(SiblingNews<'_>),
    ) -> Result<(), ShareError> {
        let frame: Frame = decode(bytes)?;
        // While the key changes, some nodes still use the other one.
        if frame.epoch != self.epoch {
            self.counters.other_epochs += frame.entries.len() as u64;
            return Ok(());
        }
        for entry in frame.entries {
            match entry {
                PromptEntry::Sent(told) => {
                    if let Some(chain) = self.learn(from, &told)? {
                        self.counters.heard += 1;
                        receive(SiblingNews::Sent(told.replica, &chain));
                    }
                }
                PromptEntry::Cached { told, blocks } => {
                    if let Some(chain) = self.learn(from, &told)? {
                        receive(SiblingNews::Cached(told.replica, &chain, blocks));
                    }
                }
                PromptEntry::Written { told, prompt_blocks } => {
                    if let Some(chain) = self.learn(from, &told)? {
                        receive(SiblingNews::Written(told.replica, &chain, prompt_blocks));
                    }
                }
                PromptEntry::Part(told) => drop(self.learn(from, &told)?),
                PromptEntry::Lacking { replica, last } => self.answer(from, replica, last),
            }
        }
        Ok(())
    }

    /// Returns the whole chain of a shared prompt. If the prompt continues from blocks that are not
    /// known here, asks for them and returns `None`.
    fn learn(
        &mut self,
        from: &NodeName,
        told: &SharedChain,
    ) -> Result<Option<Vec<u64>>, ShareError> {
        let mut chain = match told.after {
            None => Vec::new(),
            Some(after) => match self.chains.chain(after.hash()) {
                Some(chain) => chain,
                None => {
                    self.ask(from, told);
                    return Ok(None);
                }
            },
        };
        chain.extend(told.blocks.iter().map(|block| block.hash()));
        if chain.len() > self.config.chain_blocks_max {
            return Err(ShareError::TooLong { blocks: chain.len() });
        }
        self.chains.note(&chain);
        Ok((!chain.is_empty()).then_some(chain))
    }

    fn ask(&mut self, from: &NodeName, told: &SharedChain) {
        self.counters.lacked += 1;
        let Some(last) = told.last() else { return };
        if self.queue.waiting_for(from) < self.config.questions_max {
            let lacking = PromptEntry::Lacking { replica: told.replica, last };
            self.put(To::Node(from.clone()), lacking);
        }
    }

    /// Sends the whole chain to `node` alone. A chain that is forgotten here as well is sent whole
    /// the next time it is used.
    fn answer(&mut self, node: &NodeName, replica: NameId, last: Block) {
        let Some(chain) = self.chains.chain(last.hash()) else { return };
        if self.queue.waiting_for(node) >= self.config.questions_max {
            self.counters.dropped += 1;
            return;
        }
        self.counters.answered += 1;
        let parts = self.parts(replica, &chain, 0);
        self.put_all(&To::Node(node.clone()), parts, PromptEntry::Sent);
    }

    /// Returns the blocks of a chain that others do not know, in parts; at least one part if the
    /// chain has a block.
    fn news(&mut self, replica: NameId, chain: &[u64]) -> Vec<SharedChain> {
        if chain.is_empty() {
            return Vec::new();
        }
        let known = self.chains.known(chain);
        self.chains.note(chain);
        self.parts(replica, chain, known)
    }

    /// Returns the blocks from `known` on, in parts that fit into a datagram each.
    fn parts(&self, replica: NameId, chain: &[u64], known: usize) -> Vec<SharedChain> {
        let told = |from: usize, blocks: &[u64]| SharedChain {
            replica,
            after: from.checked_sub(1).map(|at| Block::of(chain[at])),
            blocks: blocks.iter().map(|hash| Block::of(*hash)).collect(),
        };
        if known == chain.len() {
            return vec![told(known, &[])];
        }
        let room = self.config.datagram_bytes_max.saturating_sub(BYTES_BESIDE_BLOCKS);
        let length = (room / size_of::<u64>()).max(1);
        let parts = chain[known..].chunks(length).enumerate();
        parts.map(|(index, blocks)| told(known + index * length, blocks)).collect()
    }

    fn cut<'c>(&self, chain: &'c [u64]) -> &'c [u64] {
        &chain[..chain.len().min(self.config.chain_blocks_max)]
    }

    /// Queues the parts of a prompt, the last one as `entry` makes it.
    fn put_all(
        &mut self,
        to: &To,
        mut parts: Vec<SharedChain>,
        entry: impl FnOnce(SharedChain) -> PromptEntry,
    ) {
        let Some(last) = parts.pop() else { return };
        for part in parts {
            self.put(to.clone(), PromptEntry::Part(part));
        }
        self.put(to.clone(), entry(last));
    }

    fn put(&mut self, to: To, entry: PromptEntry) {
        self.counters.dropped += u64::from(!self.queue.push(to, entry));
    }
}

/// Bytes of a datagram with one entry beside the entry's new blocks: its envelope, and the entry's
/// kind, replica, the block before, two counts and the number of cached blocks.
const BYTES_BESIDE_BLOCKS: usize = super::frame::ENVELOPE_BYTES_MAX + 1 + 4 + 9 + 3 + 5;
