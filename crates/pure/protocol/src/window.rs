//! 64 bytes of JSON at a time, as sets of places in a word.

use wide::u8x16;

/// Number of bytes in a window: one for each bit of a word.
pub(crate) const WINDOW_BYTES: usize = 64;
/// Last control character.
const LAST_CONTROL: u8 = 0x1f;
/// Mask with a bit for each even place.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// The bytes of one window. Sets of its places have the lowest bit for its first byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window([u8x16; 4]);

impl Window {
    /// Takes the first bytes of `json`, filled up with spaces behind its end.
    #[inline]
    pub(crate) fn new(json: &[u8]) -> Self {
        match json.first_chunk() {
            Some(bytes) => Self::of(bytes),
            None => {
                let mut padded = [b' '; WINDOW_BYTES];
                padded[..json.len()].copy_from_slice(json);
                Self::of(&padded)
            }
        }
    }

    #[inline]
    fn of(bytes: &[u8; WINDOW_BYTES]) -> Self {
        let (sixteen, _) = bytes.as_chunks();
        Self(std::array::from_fn(|at| u8x16::new(sixteen[at])))
    }

    /// Returns the places of a byte.
    #[inline]
    pub(crate) fn places(self, byte: u8) -> u64 {
        self.set(|bytes| bytes.simd_eq(u8x16::splat(byte)))
    }

    /// Returns the places of control characters.
    #[inline]
    pub(crate) fn controls(self) -> u64 {
        self.set(is_control)
    }

    /// Returns true if there is a quote, a bracket or a brace.
    #[inline]
    pub(crate) fn has_structure(self) -> bool {
        let is_of_structure = |bytes: &u8x16| {
            // One bit makes a brace of a bracket.
            let braces = *bytes | u8x16::splat(b'{' ^ b'[');
            let [open, close] = [b'{', b'}'].map(|byte| braces.simd_eq(u8x16::splat(byte)));
            open | close | bytes.simd_eq(u8x16::splat(b'"'))
        };
        self.0.iter().map(is_of_structure).fold(u8x16::splat(0), |any, other| any | other).any()
    }

    /// Returns true if there is no quote, no backslash and no control character.
    #[inline]
    pub(crate) fn is_plain(self) -> bool {
        let is_other = |bytes: &u8x16| {
            let [quote, backslash] = [b'"', b'\\'].map(|byte| bytes.simd_eq(u8x16::splat(byte)));
            quote | backslash | is_control(*bytes)
        };
        self.0.iter().map(is_other).fold(u8x16::splat(0), |any, other| any | other).none()
    }

    #[inline]
    fn set(self, mut holds: impl FnMut(u8x16) -> u8x16) -> u64 {
        self.0.iter().rev().fold(0, |set, bytes| set << 16 | u64::from(holds(*bytes).to_bitmask()))
    }
}

/// Returns the place of the first quote, if it is among the first sixteen bytes and no backslash is
/// before it. Most strings of JSON are that short.
#[inline]
pub(crate) fn near_quote(json: &[u8]) -> Option<usize> {
    let bytes = u8x16::new(*json.first_chunk()?);
    let [quotes, backslashes] = [b'"', b'\\'].map(|byte| bytes.simd_eq(u8x16::splat(byte)));
    let found = (quotes | backslashes).to_bitmask().trailing_zeros() as usize;
    (json.get(found) == Some(&b'"') && found < 16).then_some(found)
}

#[inline]
fn is_control(bytes: u8x16) -> u8x16 {
    bytes.min(u8x16::splat(LAST_CONTROL)).simd_eq(bytes)
}

/// Finds what backslashes escape, from window to window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Escapes {
    /// Bit that is 1 if the last byte of the window escapes the first byte behind it, otherwise 0.
    next: u64,
}

impl Escapes {
    /// Returns true if the next byte is escaped.
    #[inline]
    pub(crate) fn are_open(self) -> bool {
        self.next != 0
    }

    /// Returns the escaped places of the next window. In a run of backslashes, every other one
    /// escapes the byte behind it, beginning with the first.
    pub(crate) fn escaped(&mut self, backslashes: u64) -> u64 {
        let before = self.next;
        let backslashes = backslashes & !before;
        let first_ones = backslashes & !(backslashes << 1);
        // Adding the first bit of a run clears the whole run, so runs from even and odd places are
        // handled separately.
        let odd_runs = backslashes & backslashes.wrapping_add(first_ones & EVEN);
        let even_runs = backslashes & !odd_runs;
        let escaping = (even_runs & EVEN) | (odd_runs & !EVEN);
        self.next = escaping >> (WINDOW_BYTES - 1);
        (escaping << 1) | before
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn structure_and_near_quotes_are_found_wherever_they_are(
            json in prop::collection::vec(prop::sample::select(b"a1 \"\\{}[],:\xff;|^_".to_vec()), 0..80),
        ) {
            let first = &json[..json.len().min(WINDOW_BYTES)];
            let has_structure = first.iter().any(|byte| b"\"{}[]".contains(byte));
            prop_assert_eq!(Window::new(&json).has_structure(), has_structure);
            let near = near_quote(&json);
            let found = json.iter().position(|byte| matches!(byte, b'"' | b'\\'));
            let expected = found.filter(|at| *at < 16 && json.len() >= 16 && json[*at] == b'"');
            prop_assert_eq!(near, expected);
        }
    }
}
