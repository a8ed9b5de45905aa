//! Which blocks of a chain have records: all of its beginning, and fewer with each doubling of the
//! depth, so that a long prompt costs little more than a short one.
//!
//! A record represents its block and those without a record before it. So the prefix found may be
//! too short by less than a 32nd, and is never too long.

/// Depth up to which each block has a record: 16 KiB of a prompt.
const EACH_UP_TO: usize = 64;
/// Number of records for each doubling of the depth behind that.
const A_DOUBLING: usize = EACH_UP_TO / 2;
/// Largest binary logarithm of the number of blocks that one record represents: 4 bits. Prompts are
/// never so long.
const SPAN_LOG_MAX: u8 = 15;

/// Block of a chain that has a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeptBlock {
    /// Depth: 1 for the first block of a prompt.
    pub(super) depth: usize,
    /// Binary logarithm of the number of blocks that the record represents.
    pub(super) span_log: u8,
}

/// Returns the number of records of a chain of so many blocks.
pub(super) fn count(blocks: usize) -> usize {
    if blocks <= EACH_UP_TO {
        return blocks;
    }
    let doublings = doublings(blocks);
    let behind = blocks - (EACH_UP_TO << doublings);
    EACH_UP_TO + doublings * A_DOUBLING + (behind >> (doublings + 1))
}

/// Returns the block of a record, which are counted from 0 for the first block of a prompt.
pub(super) fn at(index: usize) -> KeptBlock {
    let Some(behind) = index.checked_sub(EACH_UP_TO) else {
        return KeptBlock { depth: index + 1, span_log: 0 };
    };
    let (doublings, nth) = (behind / A_DOUBLING, behind % A_DOUBLING + 1);
    let span_log = doublings + 1;
    KeptBlock {
        depth: (EACH_UP_TO << doublings) + (nth << span_log),
        span_log: (span_log as u8).min(SPAN_LOG_MAX),
    }
}

/// Returns true if the block at a depth has a record.
pub(crate) fn is_kept(depth: usize) -> bool {
    depth <= EACH_UP_TO || depth.is_multiple_of(2 << doublings(depth))
}

/// Iterates over the hashes of those blocks of `chain` behind the first `skipped` blocks that have
/// records.
pub(super) fn behind(chain: &[u64], skipped: usize) -> impl DoubleEndedIterator<Item = u64> {
    let count = count(chain.len());
    (self::count(skipped).min(count)..count).map(|index| chain[at(index).depth - 1])
}

/// Returns how often [`EACH_UP_TO`] doubles below a depth beyond it.
fn doublings(depth: usize) -> usize {
    // A power of two is the end of its doubling.
    ((depth - 1) / EACH_UP_TO).ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_stand_for_all_blocks_once_and_for_few_each() {
        let mut end = 0;
        for index in 0..540 {
            let KeptBlock { depth, span_log } = at(index);
            assert_eq!(depth - (1 << span_log), end, "{index}");
            assert!(1 << span_log <= depth.div_ceil(A_DOUBLING), "{index}: {depth}");
            assert!((end + 1..depth).all(|between| !is_kept(between) && count(between) == index));
            assert!(is_kept(depth));
            assert_eq!(count(depth), index + 1);
            end = depth;
        }
        assert_eq!((count(0), count(512), count(4_096)), (0, 160, 256));
    }
}
