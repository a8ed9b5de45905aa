//! Mutations of inputs that need no knowledge of the format.

/// Numbers at which arithmetic and limits tend to break, with bytes of lengths and varints.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xfa,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    i64::MAX as u64,
    u64::MAX,
];
/// Characters that separate the parts of most text formats.
const MARKS: &[u8] = b" \t\r\n\0\"'\\,;:=&%/.-+*(){}[]<>?#@_09azAZ\x7f\x80\xc3\xff";
/// Most changes made to one input.
const CHANGES_MAX: usize = 6;

/// Makes a new input of at most `bytes_max` bytes out of one or two of `known`.
///
/// # Panics
/// Panics if `known` is empty.
pub fn mutate(known: &[Vec<u8>], bytes_max: usize, dice: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = known[dice.usize(..known.len())].clone();
    for _ in 0..=dice.usize(..CHANGES_MAX) {
        let other = &known[dice.usize(..known.len())];
        change(&mut input, other, dice);
        input.truncate(bytes_max);
    }
    input
}

fn change(input: &mut Vec<u8>, other: &[u8], dice: &mut fastrand::Rng) {
    let at = dice.usize(..=input.len());
    let part = part(input.len(), dice);
    match dice.u8(..10) {
        0 => flip(input, dice),
        1 => set(input, dice.u8(..), dice),
        2 => set(input, MARKS[dice.usize(..MARKS.len())], dice),
        3 => input.insert(at, MARKS[dice.usize(..MARKS.len())]),
        4 => put_edge(input, at, dice),
        5 => drop(input.drain(part)),
        6 => {
            let copy = input[part].to_vec();
            drop(input.splice(at..at, copy));
        }
        7 => {
            let theirs = self::part(other.len(), dice);
            drop(input.splice(part, other[theirs].iter().copied()));
        }
        8 => input.truncate(at),
        _ => input.extend((0..dice.usize(1..32)).map(|_| dice.u8(..))),
    }
}

fn flip(input: &mut [u8], dice: &mut fastrand::Rng) {
    if !input.is_empty() {
        input[dice.usize(..input.len())] ^= 1 << dice.u8(..8);
    }
}

fn set(input: &mut [u8], byte: u8, dice: &mut fastrand::Rng) {
    if !input.is_empty() {
        input[dice.usize(..input.len())] = byte;
    }
}

/// Replaces bytes at `at` by an edge number in one of its usual encodings.
fn put_edge(input: &mut Vec<u8>, at: usize, dice: &mut fastrand::Rng) {
    let number = EDGES[dice.usize(..EDGES.len())];
    let bytes = match dice.u8(..4) {
        0 => number.to_string().into_bytes(),
        1 => number.to_be_bytes()[..].to_vec(),
        2 => number.to_le_bytes()[..dice.usize(1..=8)].to_vec(),
        // As bincode writes a number that does not fit into a byte.
        _ => [&[253][..], &number.to_le_bytes()].concat(),
    };
    let end = (at + dice.usize(..=bytes.len())).min(input.len());
    drop(input.splice(at..end, bytes));
}

/// Returns a random range within `length` bytes, more often a short one.
fn part(length: usize, dice: &mut fastrand::Rng) -> std::ops::Range<usize> {
    let start = dice.usize(..=length);
    let most = if dice.bool() { 8 } else { length };
    start..(start + dice.usize(..=most)).min(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_makes_the_same_inputs_again() {
        let known = [b"one".to_vec(), Vec::new(), b"another".to_vec()];
        let inputs = |seed| {
            let mut dice = fastrand::Rng::with_seed(seed);
            (0..500).map(|_| mutate(&known, 64, &mut dice)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
        assert!(inputs(3).iter().all(|input| input.len() <= 64));
        assert!(inputs(4).iter().any(|input| !known.contains(input)));
    }
}
