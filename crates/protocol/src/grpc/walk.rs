//! The fields of a message that passes through in pieces.

use super::wire::{BYTES, FIXED_32, FIXED_64, VARINT, VARINT_BYTES_MAX};

/// Takes the values of a message's fields as they pass.
pub(super) trait Values {
    /// Takes the next piece of the value of a field of bytes, of which `left` bytes are to come. The
    /// last piece of each value is told with 0, also if the value is empty.
    ///
    /// # Errors
    /// If the value is not what the field holds.
    fn value(&mut self, field: u64, piece: &[u8], left: u64) -> Result<(), NoFields>;
}

/// Looks at no value.
impl Values for () {
    fn value(&mut self, _field: u64, _piece: &[u8], _left: u64) -> Result<(), NoFields> {
        Ok(())
    }
}

/// Follows the fields of one message without holding any of it.
///
/// A name is put in behind the last field. Were that field's length a lie, readers would take the
/// name for a part of its value, and another name further up would count.
#[derive(Debug, Default)]
pub(super) struct FieldWalk {
    place: Place,
    /// What is known of the number that is being read, and how many of its bytes were there.
    number: u64,
    digits: usize,
    /// The field whose value is being read if that is bytes, otherwise 0.
    field: u64,
}

#[derive(Clone, Copy, Debug, Default)]
enum Place {
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

/// The bytes are no fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoFields;

impl FieldWalk {
    /// Takes the next bytes of the message, and shows `values` what of them belongs to values.
    ///
    /// # Errors
    /// If no field looks like this; groups count as none, as in [`super::wire`]. Or if `values` says so.
    pub(super) fn push(
        &mut self,
        mut piece: &[u8],
        values: &mut impl Values,
    ) -> Result<(), NoFields> {
        while let Some((byte, rest)) = piece.split_first() {
            if let Place::Value(left) = self.place {
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
                if matches!(self.place, Place::Tag) && self.field != 0 {
                    values.value(self.field, &[], 0)?;
                }
            }
        }
        Ok(())
    }

    /// Whether all that was pushed are whole fields.
    pub(super) fn is_between_fields(&self) -> bool {
        matches!(self.place, Place::Tag) && self.digits == 0
    }

    /// Takes a byte of a number; the number once it is there.
    fn digit(&mut self, byte: u8) -> Result<Option<u64>, NoFields> {
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
            (Place::Varint, _) => self.place = Place::Tag,
            (Place::Length, _) => self.skip(number),
            (_, _) if number >> 3 == 0 || number > u64::from(u32::MAX) => return Err(NoFields),
            (_, VARINT) => self.of_no_bytes(Place::Varint),
            (_, BYTES) => (self.place, self.field) = (Place::Length, number >> 3),
            (_, FIXED_64) => self.of_no_bytes(Place::Value(8)),
            (_, FIXED_32) => self.of_no_bytes(Place::Value(4)),
            _ => return Err(NoFields),
        }
        Ok(())
    }

    fn of_no_bytes(&mut self, place: Place) {
        (self.place, self.field) = (place, 0);
    }

    fn skip(&mut self, bytes: u64) {
        self.place = if bytes == 0 { Place::Tag } else { Place::Value(bytes) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::wire::{Fields, Stop};
    use super::*;

    /// Whether the bytes are whole fields, by the reader that needs all of them.
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
