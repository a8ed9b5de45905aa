use super::*;

/// Allocates and files a path with the given hashes, as a request would.
fn file_path(pool: &mut BlockPool, hashes: &[u64]) -> Vec<BlockId> {
    let mut path = Vec::new();
    for hash in hashes {
        let block = pool.allocate().unwrap();
        path.push(pool.file(RequestId(0), block, path.last().copied(), *hash));
    }
    path
}

/// Makes a pool whose cache holds `hashes` as one path, unpinned.
fn pool_with(blocks: u32, hashes: &[u64]) -> BlockPool {
    let mut pool = BlockPool::new(blocks);
    let path = file_path(&mut pool, hashes);
    pool.release(&path);
    pool
}

impl BlockPool {
    /// Asserts that the pool's books agree with each other and with the pins that requests hold.
    pub(crate) fn check(&self, held: &[&[BlockId]]) {
        let mut pins = vec![0_u32; self.blocks.len()];
        for block in held.iter().flat_map(|blocks| blocks.iter()) {
            pins[index(*block)] += 1;
        }
        let mut children = vec![0_u32; self.blocks.len()];
        for parent in self.tree.keys().filter_map(|(parent, _)| *parent) {
            children[index(parent)] += 1;
        }
        let listed: BTreeSet<BlockId> = self.free.iter().copied().collect();
        assert_eq!(listed.len(), self.free.len(), "a block was freed twice");
        let (mut free, mut unpinned, mut leaves) = (0, 0, 0);
        for (at, block) in self.blocks.iter().enumerate() {
            let id = BlockId(u32::try_from(at).unwrap());
            match block {
                Block::Free => {
                    assert_eq!(pins[at], 0, "a pinned block is free: {id:?}");
                    assert!(listed.contains(&id), "a free block is not listed: {id:?}");
                    free += 1;
                }
                Block::Private => assert_eq!(pins[at], 1, "private: {id:?}"),
                Block::Cached(cached) => {
                    assert_eq!(cached.pins, pins[at], "{id:?}");
                    assert_eq!(cached.children, children[at], "{id:?}");
                    assert_eq!(self.tree.get(&(cached.parent, cached.hash)), Some(&id));
                    let leaf = cached.pins == 0 && cached.children == 0;
                    unpinned += u32::from(cached.pins == 0);
                    leaves += usize::from(leaf);
                    assert_eq!(self.evictable_leaves.contains(&(cached.released, id)), leaf);
                }
            }
        }
        assert_eq!(free, self.free.len());
        assert_eq!(unpinned, self.unpinned);
        assert_eq!(leaves, self.evictable_leaves.len());
    }
}

#[test]
fn a_new_pool_hands_out_every_block_once_and_then_none() {
    let mut pool = BlockPool::new(3);
    let blocks: BTreeSet<BlockId> = std::iter::from_fn(|| pool.allocate()).collect();
    assert_eq!(blocks.len(), 3);
    assert_eq!((pool.available(), pool.total()), (0, 3));
    pool.check(&[&blocks.into_iter().collect::<Vec<_>>()]);
}

#[test]
fn private_blocks_are_free_after_release_and_cached_ones_are_kept() {
    let mut pool = BlockPool::new(4);
    let mut held = file_path(&mut pool, &[1, 2]);
    held.push(pool.allocate().unwrap());
    pool.release(&held);
    assert_eq!((pool.available(), pool.unpinned()), (4, 2));
    assert_eq!(pool.longest_prefix(&[1, 2, 3], 9).len(), 2);
    pool.check(&[]);
}

#[test]
fn a_prefix_is_found_only_from_its_beginning() {
    let pool = pool_with(8, &[1, 2, 3]);
    for (hashes, blocks_max, found) in [
        (&[1, 2, 3][..], 9, 3),
        (&[1, 2, 3], 2, 2),
        (&[1, 2, 9], 9, 2),
        (&[9, 2, 3], 9, 0),
        (&[2, 3], 9, 0),
        (&[], 9, 0),
    ] {
        assert_eq!(pool.longest_prefix(hashes, blocks_max).len(), found, "{hashes:?}");
    }
}

#[test]
fn equal_blocks_under_different_parents_are_different() {
    let mut pool = BlockPool::new(8);
    let one = file_path(&mut pool, &[1, 7]);
    let other = file_path(&mut pool, &[2, 7]);
    assert_ne!(one[1], other[1]);
    assert_eq!(pool.longest_prefix(&[2, 7], 9), other);
    pool.check(&[&one, &other]);
}

#[test]
fn the_same_content_computed_twice_is_held_once() {
    let mut pool = BlockPool::new(8);
    let one = file_path(&mut pool, &[1, 2]);
    let other = file_path(&mut pool, &[1, 2]);
    assert_eq!(one, other);
    assert_eq!(pool.available(), 6);
    pool.check(&[&one, &other]);
    pool.release(&one);
    assert_eq!(pool.available(), 6, "the other request still pins both");
    pool.release(&other);
    assert_eq!(pool.available(), 8);
    pool.check(&[]);
}

#[test]
fn the_least_recently_used_leaf_goes_first_and_parents_only_after_their_children() {
    let mut pool = BlockPool::new(4);
    let old = file_path(&mut pool, &[1, 2]);
    pool.release(&old);
    let young = file_path(&mut pool, &[1, 3, 4]);
    pool.release(&young);
    // The tree is 1 -> {2, 3 -> 4}; 2 was used first, then 4, 3, 1.
    let remaining =
        |pool: &BlockPool| [&[1, 2][..], &[1, 3, 4]].map(|path| pool.longest_prefix(path, 9).len());
    assert_eq!(remaining(&pool), [2, 3]);
    let mut held = vec![pool.allocate().unwrap()];
    assert_eq!(remaining(&pool), [1, 3]);
    held.push(pool.allocate().unwrap());
    assert_eq!(remaining(&pool), [1, 2]);
    held.push(pool.allocate().unwrap());
    assert_eq!(remaining(&pool), [1, 1]);
    held.push(pool.allocate().unwrap());
    assert_eq!(remaining(&pool), [0, 0]);
    assert_eq!(pool.allocate(), None);
    pool.check(&[&held]);
}

#[test]
fn using_a_prefix_again_makes_it_young() {
    let mut pool = BlockPool::new(2);
    for hash in [1, 2] {
        let path = file_path(&mut pool, &[hash]);
        pool.release(&path);
    }
    let path = pool.longest_prefix(&[1], 9);
    pool.pin_path(&path);
    pool.release(&path);
    let held = [pool.allocate().unwrap()];
    assert_eq!(pool.longest_prefix(&[1], 9).len(), 1);
    assert_eq!(pool.longest_prefix(&[2], 9).len(), 0);
    pool.check(&[&held]);
}

#[test]
fn pinned_blocks_are_never_evicted() {
    let mut pool = pool_with(3, &[1, 2, 3]);
    let path = pool.longest_prefix(&[1, 2], 9);
    assert_eq!(pool.unpinned_in(&path), 2);
    pool.pin_path(&path);
    assert_eq!(pool.unpinned_in(&path), 0);
    assert_eq!(pool.available(), 1);
    let held = [pool.allocate().unwrap()];
    assert_eq!(pool.allocate(), None);
    assert_eq!(pool.longest_prefix(&[1, 2, 3], 9), path);
    pool.check(&[&path, &held]);
}

#[test]
fn a_flush_drops_what_nobody_pins() {
    let mut pool = pool_with(6, &[1, 2, 3]);
    let path = pool.longest_prefix(&[1], 9);
    pool.pin_path(&path);
    assert_eq!(pool.flush(), 2);
    assert_eq!(pool.longest_prefix(&[1, 2, 3], 9), path);
    assert_eq!(pool.available(), 5);
    pool.check(&[&path]);
}
