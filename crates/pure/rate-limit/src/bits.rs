//! Set of small numbers.

/// Set of the numbers below a bound, in which the next number is found fast.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// Creates a set of all numbers below `bound`.
    pub(crate) fn all(bound: usize) -> Self {
        let mut words = vec![u64::MAX; bound.div_ceil(64)];
        if let Some(last) = words.last_mut()
            && !bound.is_multiple_of(64)
        {
            *last = (1 << (bound % 64)) - 1;
        }
        Self { words }
    }

    /// Creates an empty set of numbers below `bound`.
    pub(crate) fn none(bound: usize) -> Self {
        Self { words: vec![0; bound.div_ceil(64)] }
    }

    /// Puts a number in or takes it out.
    pub(crate) fn set(&mut self, number: usize, is_in: bool) {
        let (word, bit) = (&mut self.words[number / 64], 1 << (number % 64));
        if is_in { *word |= bit } else { *word &= !bit }
    }

    /// Returns the first number from `from` on; None if there is none.
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        let first = self.words.get(from / 64)? & (u64::MAX << (from % 64));
        let rest = self.words.iter().enumerate().skip(from / 64 + 1);
        let mut words = std::iter::once((from / 64, &first)).chain(rest);
        let (place, word) = words.find(|(_, word)| **word != 0)?;
        Some(place * 64 + word.trailing_zeros() as usize)
    }

    /// Returns all numbers in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        std::iter::successors(self.next(0), |number| self.next(number + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_their_order() {
        for bound in [0, 1, 63, 64, 65, 200] {
            assert_eq!(Bits::all(bound).iter().collect::<Vec<_>>(), (0..bound).collect::<Vec<_>>());
        }
        let mut bits = Bits::none(200);
        for number in [0, 63, 64, 199, 130] {
            bits.set(number, true);
        }
        bits.set(130, false);
        assert_eq!(bits.iter().collect::<Vec<_>>(), [0, 63, 64, 199]);
        assert_eq!((bits.next(1), bits.next(65), bits.next(200)), (Some(63), Some(199), None));
    }
}
