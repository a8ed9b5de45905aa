//! What a slot of the table says about a block, in one word.

/// Who holds a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holding {
    /// Nobody: the slot is empty.
    Nobody,
    /// One replica, and the place of the writer's record of it.
    One { holder: u16, pair: u32 },
    /// Several.
    Crowd(Crowd),
}

/// Where a set of replicas lies among the words of [`CrowdWords`](super::crowd_words::CrowdWords).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crowd {
    pub(super) form: Form,
    /// Index of its first word, at most 28 bits.
    pub(super) start: u32,
    /// Binary logarithm of the number of its words, at most 10.
    pub(super) class: u8,
    /// Number of its members.
    pub(super) count: u16,
}

/// How a set of replicas is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Four numbers to a word, without order.
    List,
    /// One bit for each number.
    Bits,
}

/// A [`Holding`] with the version of its slot. The version counts what the slot has held, so that
/// a reader knows whether what it read in two steps belongs together.
///
/// Bits from the lowest: 2 of kind, 14 of version, then 48: a holder and 32 of its record, or 28
/// of start, 4 of class and 16 of count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Payload(pub(super) u64);

const VERSION_MASK: u64 = (1 << 14) - 1;
const START_MASK: u64 = (1 << 28) - 1;

impl Payload {
    pub(super) fn new(holding: Holding, version: u64) -> Self {
        let (kind, data) = match holding {
            Holding::Nobody => (0, 0),
            Holding::One { holder, pair } => (1, u64::from(holder) | u64::from(pair) << 16),
            Holding::Crowd(Crowd { form, start, class, count }) => (
                if form == Form::List { 2 } else { 3 },
                u64::from(start) & START_MASK | u64::from(class) << 28 | u64::from(count) << 32,
            ),
        };
        Self(kind | (version & VERSION_MASK) << 2 | data << 16)
    }

    pub(super) fn holding(self) -> Holding {
        let data = self.0 >> 16;
        let form = match self.0 & 3 {
            0 => return Holding::Nobody,
            1 => return Holding::One { holder: data as u16, pair: (data >> 16) as u32 },
            2 => Form::List,
            _ => Form::Bits,
        };
        Holding::Crowd(Crowd {
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

    /// Number of holders.
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
        let crowd = |form, start, class, count| Holding::Crowd(Crowd { form, start, class, count });
        let all = [
            (Holding::Nobody, 0),
            (Holding::One { holder: 65_534, pair: u32::MAX }, 1),
            (Holding::One { holder: 0, pair: 0 }, 1),
            (crowd(Form::List, (1 << 28) - 1, 10, 65_535), 65_535),
            (crowd(Form::Bits, 0, 0, 2), 2),
        ];
        for (holding, count) in all {
            for version in [0, 1, VERSION_MASK] {
                let payload = Payload::new(holding, version);
                assert_eq!((payload.holding(), payload.version()), (holding, version));
                assert_eq!(payload.count(), count);
                assert_eq!(payload.is_nobody(), holding == Holding::Nobody);
            }
        }
        assert_eq!(Payload::new(Holding::Nobody, VERSION_MASK + 1).version(), 0);
    }
}
