//! Filter of blocks that were seen only once.

/// Number of slots, a power of two: about the last half million different blocks are known.
const PLACES: usize = 1 << 20;

/// Filter that lets a block pass when it is seen for the second time.
///
/// Most blocks of most prompts are never seen again. Without the filter they would push out blocks
/// whose requests are a few seconds apart. A counting sketch would need many times the memory
/// before its errors were smaller than the heat of a warm block. The filter takes 2 MiB. Each slot
/// remembers the last block by 16 bits of its hash: one block in 65,536 passes too early.
#[derive(Debug)]
pub(super) struct Gate {
    /// Slots; empty until the first block comes.
    marks: Vec<u16>,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self { marks: Vec::new() }
    }

    /// Returns true if the block was seen before, and marks it as seen.
    pub(super) fn passes(&mut self, hash: u64) -> bool {
        if self.marks.is_empty() {
            self.marks = vec![0; PLACES];
        }
        let place = hash as usize & (PLACES - 1);
        // The lowest bit is always set, because 0 means an empty slot.
        let mark = (hash >> 48) as u16 | 1;
        std::mem::replace(&mut self.marks[place], mark) == mark
    }
}
