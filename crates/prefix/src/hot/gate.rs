//! Keeps blocks out that were seen only once.

/// Places of the gate, a power of two: the last half a million different blocks or so are known.
const PLACES: usize = 1 << 20;

/// Lets a block pass at its second sight.
///
/// Most blocks of most prompts are never seen again; without the gate they would push those out
/// whose requests are a few seconds apart. A counting sketch in its place would need many times
/// the memory before its errors were smaller than the heat of a warm block. 2 MiB; each place
/// remembers the block that came last, by 16 bits of its hash: one of 65,536 passes too early.
#[derive(Debug)]
pub(super) struct Gate {
    /// Empty until the first block comes.
    marks: Vec<u16>,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self { marks: Vec::new() }
    }

    /// Whether the block was seen before; from now on it was.
    pub(super) fn passes(&mut self, hash: u64) -> bool {
        if self.marks.is_empty() {
            self.marks = vec![0; PLACES];
        }
        let place = hash as usize & (PLACES - 1);
        // 0 stands for an empty place.
        let mark = (hash >> 48) as u16 | 1;
        std::mem::replace(&mut self.marks[place], mark) == mark
    }
}
