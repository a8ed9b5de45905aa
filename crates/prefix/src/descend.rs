//! Finding where along a chain the set of holders changes.

/// Parts that a stretch is cut into. Probes of one cut wait for memory together, so that eight
/// cost hardly more than one: 64 blocks take two waits, where halving takes six.
const PARTS: usize = 8;
/// Most cuts of one stretch: of 15 blocks each is probed.
const CUTS_MAX: usize = 2 * PARTS;

/// Who holds the blocks of one chain. Sets shrink with depth: what holds a block holds its ancestors.
pub(crate) trait Probes {
    /// What is known about one block.
    type Found: Copy;

    /// Asks for the memory that a probe of this block will read, without waiting for it.
    fn warm(&self, index: usize);
    /// Asks for the memory that emitting a block will read.
    fn warm_emit(&self, _found: Self::Found) {}
    /// Looks a block up; `None` once no more probes are wanted.
    fn probe(&mut self, index: usize) -> Option<Self::Found>;
    /// Whether nobody holds the block.
    fn is_none(found: Self::Found) -> bool;
    /// Whether two blocks have equally many holders, and so the same ones.
    fn is_same(left: Self::Found, right: Self::Found) -> bool;
    /// Takes a block that has holders which its child does not have, shallower ones first.
    fn emit(&mut self, index: usize);
}

/// Tells `probes` the last block of each stretch with equal holders among the first `len` blocks.
///
/// Where it runs out of probes it leaves changes out: what it tells is then less than the truth.
pub(crate) fn descend<P: Probes>(probes: &mut P, len: usize) {
    let Some(last) = len.checked_sub(1) else { return };
    probes.warm(0);
    probes.warm(last);
    warm_cuts(probes, 0, last);
    let Some(found) = probes.probe(0).filter(|found| !P::is_none(*found)) else { return };
    let Some(found_last) = probes.probe(last) else { return probes.emit(0) };
    probes.warm_emit(found_last);
    refine(probes, (0, found), (last, found_last));
    if !P::is_none(found_last) {
        probes.emit(last);
    }
}

/// Emits the changes from `low` on and before `high`, whose cuts are warm.
fn refine<P: Probes>(probes: &mut P, low: (usize, P::Found), high: (usize, P::Found)) {
    if P::is_none(low.1) || P::is_same(low.1, high.1) {
        return;
    }
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

/// Out of probes: what is known of the cuts must do.
fn emit_all<P: Probes>(probes: &mut P, found: &[(usize, P::Found)]) {
    for (index, _) in found.iter().filter(|found| !P::is_none(found.1)) {
        probes.emit(*index);
    }
}

/// Warms all that refining a stretch begins with, so that all stretches of a cut wait together.
fn warm_between<P: Probes>(probes: &P, low: (usize, P::Found), high: (usize, P::Found)) {
    if !P::is_none(low.1) && !P::is_same(low.1, high.1) {
        probes.warm_emit(low.1);
        warm_cuts(probes, low.0, high.0);
    }
}

fn warm_cuts<P: Probes>(probes: &P, low: usize, high: usize) {
    let step = step(low, high);
    let mut index = low + step;
    // No `step_by`: it divides first, which takes as long as two probes.
    while index < high {
        probes.warm(index);
        index += step;
    }
}

/// A stretch is cut evenly, strictly between its ends, at every so many blocks.
fn step(low: usize, high: usize) -> usize {
    ((high - low) / PARTS).max(1)
}
