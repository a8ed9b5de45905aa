//! Counts the fields of compressed header blocks (RFC 7541) without decompressing them.
//!
//! One byte can encode a field of 4 KiB, so neither the bytes on the wire nor the frames show the
//! cost of a block: each field has to be looked up, kept and dropped again.

/// Reader of the header blocks of one connection.
#[derive(Debug, Default)]
pub(crate) struct HpackFields {
    next: FieldPart,
    /// Strings of the current field that are still to come.
    strings: u8,
    /// Fields of the current block so far.
    fields: u64,
}

/// Part of a field that comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FieldPart {
    /// First byte of a field.
    // Field => (Field | Index | Length)
    #[default]
    Field,
    /// Further bytes of an index.
    // Index => (Field | Index | Length)
    Index,
    /// First byte of a string's length.
    // Length => (Field | LengthRest | Text | Length)
    Length,
    /// Further bytes of a string's length, with the value and the bits so far.
    // LengthRest => (Field | LengthRest | Text | Length)
    LengthRest(u64, u32),
    /// Bytes of a string.
    // Text => (Field | Length)
    Text(u64),
}

impl HpackFields {
    /// Begins a new block.
    pub(crate) fn begin(&mut self) {
        *self = Self::default();
    }

    /// Reads the next bytes of the block. Returns how many fields beyond the first `free` of the block
    /// begin in them.
    pub(crate) fn read(&mut self, mut bytes: &[u8], free: u64) -> u64 {
        let before = self.fields;
        while let Some((&byte, rest)) = bytes.split_first() {
            bytes = rest;
            self.next = match self.next {
                FieldPart::Field => self.field(byte),
                FieldPart::Index if byte & 0x80 != 0 => FieldPart::Index,
                FieldPart::Index => self.string(),
                FieldPart::Length => match u64::from(byte & 0x7f) {
                    0x7f => FieldPart::LengthRest(0x7f, 0),
                    length => self.text(length),
                },
                FieldPart::LengthRest(value, bits) => {
                    let more = u64::from(byte & 0x7f).checked_shl(bits).unwrap_or(u64::MAX);
                    let length = value.saturating_add(more);
                    if byte & 0x80 == 0 {
                        self.text(length)
                    } else {
                        FieldPart::LengthRest(length, bits.saturating_add(7))
                    }
                }
                // This byte is the first of the text.
                FieldPart::Text(length) => {
                    let more = usize::try_from(length - 1).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[more..];
                    match length - 1 - more as u64 {
                        0 => self.string(),
                        left => FieldPart::Text(left),
                    }
                }
            };
        }
        self.fields.max(free) - before.max(free)
    }

    /// Reads the first byte of a field: its kind, and its index or the beginning of that.
    fn field(&mut self, byte: u8) -> FieldPart {
        self.fields += 1;
        let (mask, has_value) = match byte {
            0x80.. => (0x7f, false),
            0x40..=0x7f => (0x3f, true),
            // The new size of the table.
            0x20..=0x3f => (0x1f, false),
            _ => (0x0f, true),
        };
        let index = byte & mask;
        self.strings = match (has_value, index) {
            (false, _) => 0,
            // The name is a string, too.
            (true, 0) => 2,
            (true, _) => 1,
        };
        if index == mask { FieldPart::Index } else { self.string() }
    }

    fn text(&mut self, length: u64) -> FieldPart {
        if length == 0 { self.string() } else { FieldPart::Text(length) }
    }

    /// Returns what follows a string or an index.
    fn string(&mut self) -> FieldPart {
        match self.strings.checked_sub(1) {
            Some(left) => {
                self.strings = left;
                FieldPart::Length
            }
            None => FieldPart::Field,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of RFC 7541, appendix C, and their fields.
    const BLOCKS: [(&str, u64); 7] = [
        ("400a637573746f6d2d6b65790d637573746f6d2d686561646572", 1),
        ("040c2f73616d706c652f70617468", 1),
        ("100870617373776f726406736563726574", 1),
        ("82", 1),
        ("828684410f7777772e6578616d706c652e636f6d", 4),
        ("828684be58086e6f2d6361636865", 5),
        ("828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565", 5),
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2);
        digits.map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    }

    #[test]
    fn fields_are_counted_wherever_the_block_is_cut() {
        for (block, expected) in BLOCKS {
            let block = bytes(block);
            for step in 1..=block.len() {
                let mut reader = HpackFields::default();
                let fields: u64 = block.chunks(step).map(|piece| reader.read(piece, 0)).sum();
                assert_eq!(
                    (fields, reader.next),
                    (expected, FieldPart::Field),
                    "{block:?} by {step}"
                );
            }
        }
    }

    #[test]
    fn long_indexes_and_texts_are_skipped() {
        let mut block = vec![0xff, 0x80, 0x01, 0x0f, 0x2f, 0x7f, 0x89, 0x07];
        block.extend(vec![0xff; 127 + 9 + (7 << 7)]);
        block.extend([0x3f, 0xe1, 0x1f, 0x82]);
        let mut reader = HpackFields::default();
        assert_eq!((reader.read(&block, 0), reader.next), (4, FieldPart::Field));
    }

    #[test]
    fn only_fields_beyond_the_free_ones_count_and_each_block_has_its_own() {
        let mut reader = HpackFields::default();
        assert_eq!(reader.read(&[0x82; 100], 128), 0);
        assert_eq!(reader.read(&[0x82; 100], 128), 72);
        assert_eq!(reader.read(&[0x82; 100], 128), 100);
        reader.begin();
        assert_eq!(reader.read(&[0x82; 128], 128), 0);
    }

    #[test]
    fn an_impossible_length_ends_nothing_but_the_count() {
        let mut reader = HpackFields::default();
        assert_eq!(reader.read(&[0x00, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff], 0), 1);
        assert_eq!(reader.read(&[0xff; 40], 0), 0);
        assert_eq!(reader.read(&[0x00; 40], 0), 0);
    }
}
