//! Fields of a message that passes in pieces.

use super::wire::{BYTES, FIXED_32, FIXED_64, VARINT, VARINT_BYTES_MAX};

/// Receiver of the values of a message's fields as they pass.
pub(super) trait Values {
    /// Takes the next piece of the value of a field of bytes; `left` bytes follow. The last piece
    /// of each value comes with 0, even if the value is empty.
    ///
    /// # Errors
    /// Returns an error if the value is not valid for the field.
    fn value(&mut self, field: u64, piece: &[u8], left: u64) -> Result<(), NoFields>;
}

/// Ignores all values.
impl Values for () {
    fn value(&mut self, _field: u64, _piece: &[u8], _left: u64) -> Result<(), NoFields> {
        Ok(())
    }
}

/// Follows the fields of one message without holding any of it.
///
/// A new name is appended behind the last field. If that field's length were wrong, readers would
/// take the name for a part of its value, and an earlier name would count.
#[derive(Debug, Default)]
pub(super) struct FieldWalk {
    place: FieldPosition,
    /// Value so far of the number that is being read, and the count of its bytes.
    number: u64,
    digits: usize,
    /// Number of the field whose value is being read, if the value is bytes; otherwise 0.
    field: u64,
}

#[derive(Clone, Copy, Debug, Default)]
enum FieldPosition {
    /// Between two fields, or within the tag of one. // => (Varint | Length | Value)
    #[default]
    Tag,
    /// Within a number. // => Tag
    Varint,
    /// Within the length of a value. // => (Value | Tag)
    Length,
    /// So many bytes of a value are to come. // => Tag
    Value(u64),
}

/// Error: the bytes are no fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoFields;

impl FieldWalk {
    /// Takes the next bytes of the message, and passes the bytes of values to `values`.
    ///
    /// # Errors
    /// Returns an error if the bytes are no fields, or if `values` returns one. Groups are refused,
    /// as in [`super::wire`].
    pub(super) fn push(
        &mut self,
        mut piece: &[u8],
        values: &mut impl Values,
    ) -> Result<(), NoFields> {
        while let Some((byte, rest)) = piece.split_first() {
            if let FieldPosition::Value(left) = self.place {
                let taken = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
                let (taken, rest) = piece.split_at(taken);
                piece = rest;
                let left = left - taken.len() as u64;
                self.skip(left);
                if self.field != 0 {
                    values.value(self.field, taken, left)?;
                }
                continue;
            }
            piece = rest;
            if let Some(number) = self.digit(*byte)? {
                self.number_read(number)?;
                if matches!(self.place, FieldPosition::Tag) && self.field != 0 {
                    values.value(self.field, &[], 0)?;
                }
            }
        }
        Ok(())
    }

    /// Returns true if the bytes so far are complete fields.
    pub(super) fn is_between_fields(&self) -> bool {
        matches!(self.place, FieldPosition::Tag) && self.digits == 0
    }

    /// Takes a byte of a number. Returns the number after its last byte.
    fn digit(&mut self, byte: u8) -> Result<Option<u64>, NoFields> {
        // No number is longer, so this is no message.
        if self.digits == VARINT_BYTES_MAX {
            return Err(NoFields);
        }
        self.number |= u64::from(byte & 0x7F) << (7 * self.digits);
        self.digits += 1;
        if byte & 0x80 != 0 {
            return Ok(None);
        }
        self.digits = 0;
        Ok(Some(std::mem::take(&mut self.number)))
    }

    fn number_read(&mut self, number: u64) -> Result<(), NoFields> {
        match (self.place, number & 7) {
            (FieldPosition::Varint, _) => self.place = FieldPosition::Tag,
            (FieldPosition::Length, _) => self.skip(number),
            // Field numbers start at 1, and a tag has 32 bits.
            (_, _) if number >> 3 == 0 || number > u64::from(u32::MAX) => return Err(NoFields),
            (_, VARINT) => self.of_no_bytes(FieldPosition::Varint),
            (_, BYTES) => (self.place, self.field) = (FieldPosition::Length, number >> 3),
            (_, FIXED_64) => self.of_no_bytes(FieldPosition::Value(8)),
            (_, FIXED_32) => self.of_no_bytes(FieldPosition::Value(4)),
            _ => return Err(NoFields),
        }
        Ok(())
    }

    fn of_no_bytes(&mut self, place: FieldPosition) {
        (self.place, self.field) = (place, 0);
    }

    fn skip(&mut self, bytes: u64) {
        self.place = if bytes == 0 { FieldPosition::Tag } else { FieldPosition::Value(bytes) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::wire::{Fields, Stop};
    use super::*;

    /// Returns true if the bytes are complete fields, by the reader that needs all of them.
    fn are_fields(message: &[u8]) -> bool {
        let mut fields = Fields::new(message, message.len() as u64);
        loop {
            match fields.tag().and_then(|tag| fields.value(tag)) {
                Ok(_) => {}
                Err(stop) => return stop == Stop::End,
            }
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_reader_of_whole_messages_however_they_are_cut(
            message in prop::collection::vec(
                prop::sample::select(vec![0_u8, 1, 2, 3, 8, 9, 0x0A, 0x0D, 0x12, 0x80, 0xFF]), 0..40,
            ),
            cut in 1_usize..10,
        ) {
            let mut walk = FieldWalk::default();
            let is_walked = message.chunks(cut).all(|piece| walk.push(piece, &mut ()).is_ok());
            prop_assert_eq!(is_walked && walk.is_between_fields(), are_fields(&message));
        }
    }
}
