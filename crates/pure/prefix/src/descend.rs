//! Search for the places along a chain of blocks where the set of holders changes.

/// Number of parts that a stretch is cut into. The probes of one cut wait for memory together, so
/// eight cost hardly more than one: 64 blocks take two waits, while halving takes six.
const PARTS: usize = 8;
/// Largest number of cuts of one stretch: a stretch of up to 15 blocks is probed at each block.
const CUTS_MAX: usize = 2 * PARTS;

/// Holders of the blocks of one chain. Sets shrink with depth: the holder of a block also holds all
/// blocks before it.
pub(crate) trait Probes {
    /// Result of looking up one block.
    type Found: Copy;

    /// Starts to load the memory that a probe of this block reads, without waiting for it.
    fn warm(&self, index: usize);
    /// Starts to load the memory that emitting a block reads.
    fn warm_emit(&self, _found: Self::Found) {}
    /// Looks a block up; `None` if the limit of probes is reached.
    fn probe(&mut self, index: usize) -> Option<Self::Found>;
    /// Returns true if the block has no holder.
    fn is_none(found: Self::Found) -> bool;
    /// Returns true if two blocks of one chain have the same number of holders, and therefore the
    /// same holders.
    fn is_same(left: Self::Found, right: Self::Found) -> bool;
    /// Takes a block that has holders which the next block lacks. Called in the order of depth.
    fn emit(&mut self, index: usize);
}

/// Emits the last block of each stretch with equal holders among the first `len` blocks.
///
/// If the probes run out, changes are left out: the emitted depths are then too small, never too
/// large.
pub(crate) fn descend<P: Probes>(probes: &mut P, len: usize) {
    let Some(last) = len.checked_sub(1) else { return };
    probes.warm(0);
    probes.warm(last);
    warm_cuts(probes, 0, last);
    let Some(found) = probes.probe(0).filter(|found| !P::is_none(*found)) else { return };
    // Out of probes: only the first block is known.
    let Some(found_last) = probes.probe(last) else { return probes.emit(0) };
    probes.warm_emit(found_last);
    refine(probes, (0, found), (last, found_last));
    if !P::is_none(found_last) {
        probes.emit(last);
    }
}

/// Emits the changes between `low` (included) and `high` (excluded), whose cuts are already warm.
fn refine<P: Probes>(probes: &mut P, low: (usize, P::Found), high: (usize, P::Found)) {
    if P::is_none(low.1) || P::is_same(low.1, high.1) {
        return;
    }
    // Neighbours that differ: the set changes right behind `low`.
    if high.0 - low.0 == 1 {
        return probes.emit(low.0);
    }
    let mut found = [low; CUTS_MAX];
    let (step, mut len) = (step(low.0, high.0), 1);
    let mut index = low.0 + step;
    while index < high.0 {
        let Some(cut) = probes.probe(index) else { return emit_all(probes, &found[..len]) };
        found[len] = (index, cut);
        warm_between(probes, found[len - 1], found[len]);
        len += 1;
        index += step;
    }
    warm_between(probes, found[len - 1], high);
    for at in 1..len {
        refine(probes, found[at - 1], found[at]);
    }
    refine(probes, found[len - 1], high);
}

/// Emits all cuts found so far: there are no more probes to refine them.
fn emit_all<P: Probes>(probes: &mut P, found: &[(usize, P::Found)]) {
    for (index, _) in found.iter().filter(|found| !P::is_none(found.1)) {
        probes.emit(*index);
    }
}

/// Starts to load what refining a stretch reads first, so that all stretches of a cut wait
/// together.
fn warm_between<P: Probes>(probes: &P, low: (usize, P::Found), high: (usize, P::Found)) {
    if !P::is_none(low.1) && !P::is_same(low.1, high.1) {
        probes.warm_emit(low.1);
        warm_cuts(probes, low.0, high.0);
    }
}

fn warm_cuts<P: Probes>(probes: &P, low: usize, high: usize) {
    let step = step(low, high);
    let mut index = low + step;
    // `step_by` would divide first, which takes as long as two probes.
    while index < high {
        probes.warm(index);
        index += step;
    }
}

/// Returns the distance between the cuts of a stretch; cuts lie strictly between its ends.
fn step(low: usize, high: usize) -> usize {
    ((high - low) / PARTS).max(1)
}
