use proptest::prelude::*;

use super::*;

/// Reference model of the cache, as simple as possible: a list of nodes, searched from end to end.
#[derive(Default)]
struct Reference {
    nodes: Vec<Node>,
    releases: u64,
}

#[derive(Clone)]
struct Node {
    path: Vec<u64>,
    pins: u32,
    released: u64,
    block: BlockId,
}

impl Reference {
    fn find(&mut self, path: &[u64]) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|node| node.path == path)
    }

    fn longest_prefix(&self, hashes: &[u64]) -> Vec<BlockId> {
        let paths = (1..=hashes.len()).map(|length| &hashes[..length]);
        let found = paths.map_while(|path| self.nodes.iter().find(|node| node.path == path));
        found.map(|node| node.block).collect()
    }

    /// Returns the unpinned node without descendants that was released first.
    fn evict(&mut self) -> Option<BlockId> {
        let is_leaf = |node: &Node| {
            let parent_of = |other: &Node| {
                other.path.len() > node.path.len() && other.path.starts_with(&node.path)
            };
            node.pins == 0 && !self.nodes.iter().any(parent_of)
        };
        let leaves = self.nodes.iter().enumerate().filter(|(_, node)| is_leaf(node));
        let (at, _) = leaves.min_by_key(|(_, node)| (node.released, node.block))?;
        Some(self.nodes.remove(at).block)
    }

    fn pin(&mut self, path: &[u64], block: BlockId) {
        match self.find(path) {
            Some(node) => node.pins += 1,
            None => self.nodes.push(Node { path: path.to_vec(), pins: 1, released: 0, block }),
        }
    }

    fn release(&mut self, hashes: &[u64]) {
        self.releases += 1;
        let releases = self.releases;
        for length in 1..=hashes.len() {
            let node = self.find(&hashes[..length]).expect("pinned nodes stay");
            node.pins -= 1;
            node.released = releases;
        }
    }
}

/// Request as the cache sees it: the blocks that it pins.
struct Holder {
    hashes: Vec<u64>,
    blocks: Vec<BlockId>,
}

#[derive(Clone, Debug)]
enum Action {
    /// Reuses the cached part of a path and computes the rest.
    Hold {
        hashes: Vec<u64>,
    },
    Release {
        nth: usize,
    },
    Flush,
}

fn action() -> impl Strategy<Value = Action> {
    // Few different hashes, so that paths meet often.
    let hashes = prop::collection::vec(0..3_u64, 1..6);
    prop_oneof![
        5 => hashes.prop_map(|hashes| Action::Hold { hashes }),
        4 => (0..4_usize).prop_map(|nth| Action::Release { nth }),
        1 => Just(Action::Flush),
    ]
}

struct Harness {
    pool: BlockPool,
    reference: Reference,
    holders: Vec<Holder>,
}

impl Harness {
    fn act(&mut self, action: Action) {
        match action {
            Action::Hold { hashes } => self.hold(hashes),
            Action::Release { nth } if nth < self.holders.len() => {
                let holder = self.holders.remove(nth);
                self.pool.release(&holder.blocks);
                self.reference.release(&holder.hashes);
            }
            Action::Release { .. } => {}
            Action::Flush => {
                let before = self.reference.nodes.len();
                while self.reference.evict().is_some() {}
                let evicted = before - self.reference.nodes.len();
                assert_eq!(self.pool.flush() as usize, evicted);
            }
        }
        let held: Vec<&[BlockId]> = self.holders.iter().map(|one| &one.blocks[..]).collect();
        self.pool.check(&held);
    }

    fn hold(&mut self, hashes: Vec<u64>) {
        let mut blocks = self.pool.longest_prefix(&hashes, usize::MAX);
        assert_eq!(blocks, self.reference.longest_prefix(&hashes), "of {hashes:?}");
        let missing = hashes.len() - blocks.len();
        let available = self.pool.available() - self.pool.unpinned_in(&blocks);
        if missing > available as usize {
            return;
        }
        self.pool.pin_path(&blocks);
        for (at, block) in blocks.iter().enumerate() {
            self.reference.pin(&hashes[..=at], *block);
        }
        for at in blocks.len()..hashes.len() {
            let must_evict = self.pool.free.is_empty();
            let block = self.pool.allocate().expect("as many as are available");
            if must_evict {
                assert_eq!(self.reference.evict(), Some(block), "another block was evicted");
            }
            let parent = at.checked_sub(1).map(|before| blocks[before]);
            blocks.push(self.pool.file(RequestId(0), block, parent, hashes[at]));
            self.reference.pin(&hashes[..=at], blocks[at]);
        }
        self.holders.push(Holder { hashes, blocks });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Checks that the cache finds, keeps and evicts exactly what the reference model does, in the
    /// same order.
    #[test]
    fn the_pool_does_what_the_simple_form_does(
        actions in prop::collection::vec(action(), 1..60),
        blocks in 6..14_u32,
    ) {
        let mut harness = Harness {
            pool: BlockPool::new(blocks),
            reference: Reference::default(),
            holders: Vec::new(),
        };
        actions.into_iter().for_each(|action| harness.act(action));
        for holder in std::mem::take(&mut harness.holders) {
            harness.pool.release(&holder.blocks);
        }
        prop_assert_eq!(harness.pool.available(), blocks);
        harness.pool.check(&[]);
    }
}
