//! Bytes as hexadecimal digits, for people and JSON.
//!
//! The ids have fixed lengths, so a crate such as `hex` would save ten lines and be one more
//! dependency of the agreed state.

use std::fmt;

/// Writes two lower-case digits for each byte.
pub(crate) fn write(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Returns the bytes of `text`; None unless `text` has exactly two digits for each byte.
pub(crate) fn read<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let digit = |digit: &u8| char::from(*digit).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let mut bytes = [0; BYTES];
    if text.len() != 2 * BYTES {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(&pair[0])? << 4 | digit(&pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_in_pairs() {
        assert_eq!(read("00ffA0"), Some([0, 255, 160]));
        for wrong in ["", "00ff", "00ffa", "00ffag", "00ffa00", "0x00ff", "00ffä"] {
            assert_eq!(read::<3>(wrong), None, "{wrong}");
        }
    }
}
