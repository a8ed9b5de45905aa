//! Wire format of protocol buffers, as far as needed to skip fields.

/// Length of the longest varint in bytes.
pub(super) const VARINT_BYTES_MAX: usize = 10;
/// Wire types of fields that are still in use; groups are not.
pub(super) const VARINT: u64 = 0;
pub(super) const FIXED_64: u64 = 1;
pub(super) const BYTES: u64 = 2;
pub(super) const FIXED_32: u64 = 5;

/// Tag in front of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) number: u64,
    wire_type: u64,
}

/// Reason why no field was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The message has ended.
    End,
    /// More bytes are needed.
    NeedMore,
    /// The bytes are no message.
    Malformed,
}

/// Reader of the fields of a message whose first bytes are available. Call [`Fields::tag`] and
/// [`Fields::value`] in turn, until one of them stops.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'m> {
    available: &'m [u8],
    /// Number of bytes of the message behind `available`.
    missing: u64,
}

impl<'m> Fields<'m> {
    /// Creates a reader of a message of `length` bytes that begins with `available`, which may be
    /// shorter.
    pub(super) fn new(available: &'m [u8], length: u64) -> Self {
        Self { available, missing: length.saturating_sub(available.len() as u64) }
    }

    /// Returns the next field's tag.
    ///
    /// # Errors
    /// Returns the reason if there is no further tag.
    pub(super) fn tag(&mut self) -> Result<Tag, Stop> {
        if self.available.is_empty() && self.missing == 0 {
            return Err(Stop::End);
        }
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 || tag > u64::from(u32::MAX) {
            return Err(Stop::Malformed);
        }
        Ok(Tag { number, wire_type: tag & 7 })
    }

    /// Returns the value of the field with this tag; `None` for numbers.
    ///
    /// # Errors
    /// Returns the reason if the value cannot be read.
    pub(super) fn value(&mut self, tag: Tag) -> Result<Option<&'m [u8]>, Stop> {
        match tag.wire_type {
            VARINT => self.varint().map(|_| None),
            FIXED_64 => self.take(8).map(|_| None),
            FIXED_32 => self.take(4).map(|_| None),
            BYTES => {
                let length = self.varint()?;
                self.take(length).map(Some)
            }
            _ => Err(Stop::Malformed),
        }
    }

    fn varint(&mut self) -> Result<u64, Stop> {
        let mut value = 0;
        for (at, byte) in self.available.iter().enumerate().take(VARINT_BYTES_MAX) {
            // The tenth byte holds one more bit; readers ignore its other bits.
            value |= u64::from(byte & 0x7F) << (7 * at);
            if byte & 0x80 == 0 {
                self.available = &self.available[at + 1..];
                return Ok(value);
            }
        }
        let may_go_on = self.missing > 0 && self.available.len() < VARINT_BYTES_MAX;
        Err(if may_go_on { Stop::NeedMore } else { Stop::Malformed })
    }

    fn take(&mut self, length: u64) -> Result<&'m [u8], Stop> {
        let taken = usize::try_from(length).ok().and_then(|at| self.available.split_at_checked(at));
        if let Some((taken, rest)) = taken {
            self.available = rest;
            return Ok(taken);
        }
        // A value longer than the rest of its message can never become complete.
        let fits = length - self.available.len() as u64 <= self.missing;
        Err(if fits { Stop::NeedMore } else { Stop::Malformed })
    }
}

/// Appends a field of bytes.
pub(super) fn put_bytes(message: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(message, u64::from(number) << 3 | BYTES);
    put_varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

/// Appends a number. Zero is left out, since an absent field means zero.
pub(super) fn put_number(message: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        put_varint(message, u64::from(number) << 3 | VARINT);
        put_varint(message, value);
    }
}

fn put_varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    message.push(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Read = (u64, Option<Vec<u8>>);

    fn all(message: &[u8]) -> (Vec<Read>, Stop) {
        let mut fields = Fields::new(message, message.len() as u64);
        let mut seen = Vec::new();
        loop {
            let field = fields.tag().and_then(|tag| Ok((tag.number, fields.value(tag)?)));
            match field {
                Ok((number, bytes)) => seen.push((number, bytes.map(<[u8]>::to_vec))),
                Err(stop) => return (seen, stop),
            }
        }
    }

    #[test]
    fn every_wire_type_is_stepped_over() {
        let message = [
            0x08, 0x96, 0x01, 0x12, 1, b'a', 0x1D, 1, 2, 3, 4, 0x21, 1, 2, 3, 4, 5, 6, 7, 8, 0x2A,
            0,
        ];
        let expected =
            vec![(1, None), (2, Some(b"a".to_vec())), (3, None), (4, None), (5, Some(Vec::new()))];
        assert_eq!(all(&message), (expected, Stop::End));
    }

    #[test]
    fn what_no_message_holds_is_malformed() {
        for message in [
            &[0x00, 0][..],
            &[0x0B],
            &[0x0C],
            &[0x0E],
            &[0x0A, 2, b'a'],
            &[0x0D, 1, 2, 3],
            &[0x08],
            &[0x80],
            &[0xFF; 11],
            &[0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01],
        ] {
            assert_eq!(all(message).1, Stop::Malformed, "{message:?}");
        }
    }

    #[test]
    fn a_field_that_is_not_all_there_is_waited_for_unless_it_leaves_the_message() {
        let stop = |available: &[u8], length| {
            let mut fields = Fields::new(available, length);
            fields.tag().and_then(|tag| fields.value(tag).map(|_| ()))
        };
        assert_eq!(stop(&[], 3), Err(Stop::NeedMore));
        assert_eq!(stop(&[0x0A], 3), Err(Stop::NeedMore));
        assert_eq!(stop(&[0x0A, 2, b'a'], 4), Err(Stop::NeedMore));
        assert_eq!(stop(&[0x0A, 2, b'a'], 3), Err(Stop::Malformed));
        assert_eq!(stop(&[0x0A, 9, b'a'], 4), Err(Stop::Malformed));
        assert_eq!(stop(&[0xFF; 10], 20), Err(Stop::Malformed));
        assert_eq!(stop(&[0x0A, 1, b'a'], 4), Ok(()));
    }

    proptest! {
        #[test]
        fn what_is_put_is_read_again(number in 1_u32..1000, value in 1_u64.., bytes: Vec<u8>) {
            let mut message = Vec::new();
            put_number(&mut message, number, value);
            put_bytes(&mut message, number + 1, &bytes);
            let number = u64::from(number);
            prop_assert_eq!(
                all(&message),
                (vec![(number, None), (number + 1, Some(bytes))], Stop::End)
            );
            let mut fields = Fields { available: &message[1 + usize::from(number > 15)..], missing: 0 };
            prop_assert_eq!(fields.varint(), Ok(value));
        }

        #[test]
        fn no_bytes_make_it_panic(message: Vec<u8>, extra in 0_u64..20) {
            let mut fields = Fields::new(&message, message.len() as u64 + extra);
            while fields.tag().and_then(|tag| fields.value(tag)).is_ok() {}
        }
    }
}
