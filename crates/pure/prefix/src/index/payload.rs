//! Content of a slot of the table, in one word.

/// Holders of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holding {
    /// No replica: the slot is empty.
    Nobody,
    /// A single replica, and the number of the writer's record.
    One { holder: u16, pair: u32 },
    /// Several replicas.
    HolderSet(HolderSet),
}

/// Location of a set of replicas in the [`HolderSetWords`](super::holder_set_words::HolderSetWords).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HolderSet {
    pub(super) form: PayloadForm,
    /// Index of the first word, at most 28 bits.
    pub(super) start: u32,
    /// Binary logarithm of the number of words, at most 10.
    pub(super) class: u8,
    /// Number of members.
    pub(super) count: u16,
}

/// Storage form of a set of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadForm {
    /// Four numbers to a word, unordered.
    List,
    /// A bit for each number.
    Bits,
}

/// [`Holding`] with the version of its slot, packed. The version counts the contents of the slot,
/// so that a reader knows if two reads belong together.
///
/// Bits from the lowest: 2 for the kind, 14 for the version, then 48 of data: 16 for a holder and
/// 32 for its record, or 28 for the start, 4 for the class and 16 for the count of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Payload(pub(super) u64);

const VERSION_MASK: u64 = (1 << 14) - 1;
/// Bits of the version.
const VERSION_BITS: u64 = VERSION_MASK << 2;
const START_MASK: u64 = (1 << 28) - 1;

impl Payload {
    pub(super) fn new(holding: Holding, version: u64) -> Self {
        let (kind, data) = match holding {
            Holding::Nobody => (0, 0),
            Holding::One { holder, pair } => (1, u64::from(holder) | u64::from(pair) << 16),
            Holding::HolderSet(HolderSet { form, start, class, count }) => (
                if form == PayloadForm::List { 2 } else { 3 },
                u64::from(start) & START_MASK | u64::from(class) << 28 | u64::from(count) << 32,
            ),
        };
        Self(kind | (version & VERSION_MASK) << 2 | data << 16)
    }

    /// Returns an empty content with the same version.
    pub(super) fn emptied(self) -> Self {
        Self(self.0 & VERSION_BITS)
    }

    /// Returns the same holders with the version that follows that of `before`.
    pub(super) fn after(self, before: Self) -> Self {
        Self(self.0 & !VERSION_BITS | before.0.wrapping_add(1 << 2) & VERSION_BITS)
    }

    pub(super) fn holding(self) -> Holding {
        let data = self.0 >> 16;
        let form = match self.0 & 3 {
            0 => return Holding::Nobody,
            1 => return Holding::One { holder: data as u16, pair: (data >> 16) as u32 },
            2 => PayloadForm::List,
            _ => PayloadForm::Bits,
        };
        Holding::HolderSet(HolderSet {
            form,
            start: (data & START_MASK) as u32,
            class: (data >> 28 & 15) as u8,
            count: (data >> 32) as u16,
        })
    }

    pub(super) fn is_nobody(self) -> bool {
        self.0 & 3 == 0
    }

    pub(super) fn version(self) -> u64 {
        self.0 >> 2 & VERSION_MASK
    }

    /// Returns the number of holders.
    pub(super) fn count(self) -> u16 {
        match self.0 & 3 {
            0 => 0,
            1 => 1,
            _ => (self.0 >> 48) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        let holder_set =
            |form, start, class, count| Holding::HolderSet(HolderSet { form, start, class, count });
        let all = [
            (Holding::Nobody, 0),
            (Holding::One { holder: 65_534, pair: u32::MAX }, 1),
            (Holding::One { holder: 0, pair: 0 }, 1),
            (holder_set(PayloadForm::List, (1 << 28) - 1, 10, 65_535), 65_535),
            (holder_set(PayloadForm::Bits, 0, 0, 2), 2),
        ];
        for (holding, count) in all {
            for version in [0, 1, VERSION_MASK] {
                let payload = Payload::new(holding, version);
                assert_eq!((payload.holding(), payload.version()), (holding, version));
                assert_eq!(payload.count(), count);
                assert_eq!(payload.is_nobody(), holding == Holding::Nobody);
                let next = Payload::new(holding, version + 1);
                assert_eq!(Payload::new(holding, 77).after(payload.emptied()), next);
                assert_eq!(payload.emptied(), Payload::new(Holding::Nobody, version));
            }
        }
        assert_eq!(Payload::new(Holding::Nobody, VERSION_MASK + 1).version(), 0);
    }
}
