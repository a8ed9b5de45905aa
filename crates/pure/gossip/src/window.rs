//! Receive window: datagrams of another node that came already.

/// Place of a datagram among those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The first of its incarnation.
    Reborn,
    /// Newer than all before.
    Newest,
    /// Overtaken in transit, but not seen yet.
    Late,
    /// Seen before, or too old to know.
    Old,
}

/// Datagrams of one incarnation that came.
#[derive(Debug)]
pub(crate) struct Window {
    incarnation: u64,
    newest: u64,
    /// Datagrams before the newest, bit n for the one n + 1 before it. Parts of a report overtake
    /// each other, but not by more than this.
    seen: u64,
}

impl Window {
    /// Creates a window with the first datagram of an incarnation.
    pub(crate) fn new(incarnation: u64, seq: u64) -> Self {
        Self { incarnation, newest: seq, seen: 0 }
    }

    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Enters another datagram of the incarnation.
    pub(crate) fn enter(&mut self, seq: u64) -> Arrival {
        if let Some(ahead) = seq.checked_sub(self.newest).filter(|ahead| *ahead > 0) {
            // The newest so far becomes the one `ahead` before.
            let shifted = u32::try_from(ahead).ok().and_then(|ahead| self.seen.checked_shl(ahead));
            let before = u32::try_from(ahead - 1).ok().and_then(|bit| 1_u64.checked_shl(bit));
            self.seen = shifted.unwrap_or(0) | before.unwrap_or(0);
            self.newest = seq;
            return Arrival::Newest;
        }
        // Behind the newest: one of the 64 before it, or too old to know.
        let bit = (self.newest - seq).checked_sub(1).and_then(|bit| u32::try_from(bit).ok());
        match bit.and_then(|bit| 1_u64.checked_shl(bit)) {
            Some(mark) if self.seen & mark == 0 => {
                self.seen |= mark;
                Arrival::Late
            }
            _ => Arrival::Old,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_datagram_passes_once_and_late_ones_only_if_not_too_late(
            seqs in prop::collection::vec(0_u64..200, 1..300),
        ) {
            let mut window = Window::new(1, 1_000);
            let mut passed = BTreeSet::from([1_000]);
            for seq in seqs.into_iter().map(|seq| seq + 950) {
                let newest = passed.last().copied().unwrap();
                let expected = match seq {
                    _ if passed.contains(&seq) => Arrival::Old,
                    _ if seq > newest => Arrival::Newest,
                    _ if newest - seq <= 64 => Arrival::Late,
                    _ => Arrival::Old,
                };
                prop_assert_eq!(window.enter(seq), expected);
                passed.insert(seq);
            }
        }
    }

    #[test]
    fn a_window_bears_any_number() {
        let mut window = Window::new(1, 0);
        for (seq, arrival) in [
            (u64::MAX, Arrival::Newest),
            (0, Arrival::Old),
            (u64::MAX - 1, Arrival::Late),
            (u64::MAX - 64, Arrival::Late),
            (u64::MAX - 65, Arrival::Old),
            (u64::MAX, Arrival::Old),
        ] {
            assert_eq!(window.enter(seq), arrival, "{seq}");
        }
    }
}
