//! Fingerprints, equal on all nodes with equal states.

use std::fmt;
use std::io::Write;

use highway::{HighwayHash, HighwayHasher, Key};
use serde::{Deserialize, Serialize};
use spillway_codec::write_payload;

/// Key of the hash, equal in all clusters. A digest finds faults of programs and disks, not
/// attackers: an attacker who can write the log needs no collision.
const KEY: Key = Key([0x5350_494c_4c57_4159, 1, 2, 3]);

/// A fingerprint of 32 bytes. Equal states have equal ones under one version of the program.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest([u64; 4]);

impl Digest {
    /// Returns the fingerprint of `value`, and its length on the wire in bytes.
    pub(crate) fn of<T: Serialize>(value: &T) -> (Self, u64) {
        let mut hasher = Sink { hasher: HighwayHasher::new(KEY), buffer: Vec::with_capacity(256) };
        #[expect(clippy::expect_used, reason = "fails only for types that no record is made of")]
        let bytes = write_payload(value, &mut hasher).expect("records are of encodable types");
        hasher.hasher.append(&hasher.buffer);
        (Self(hasher.hasher.finalize256()), bytes as u64)
    }

    /// Adds the fingerprint of one row. The order of rows does not matter. Keys are part of the
    /// hashed bytes, so no row comes twice.
    pub(crate) fn add(&mut self, row: Self) {
        for (all, one) in self.0.iter_mut().zip(row.0) {
            *all = all.wrapping_add(one);
        }
    }

    /// Takes the fingerprint of one row out.
    pub(crate) fn subtract(&mut self, row: Self) {
        for (all, one) in self.0.iter_mut().zip(row.0) {
            *all = all.wrapping_sub(one);
        }
    }

    /// Returns half of the fingerprint, for uses with room for 16 bytes.
    #[must_use]
    pub fn to_u128(self) -> u128 {
        let [a, b, ..] = self.0;
        u128::from(a) << 64 | u128::from(b)
    }

    /// Returns the fingerprint as bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (part, number) in bytes.chunks_exact_mut(8).zip(self.0) {
            part.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Buffers small writes: the encoder writes byte by byte, and the hash works in blocks of 32.
struct Sink {
    hasher: HighwayHasher,
    buffer: Vec<u8>,
}

/// Most bytes in the buffer. They are hashed when it is full, so that no large copy is made.
const GATHERED_BYTES_MAX: usize = 4096;

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= GATHERED_BYTES_MAX {
            self.hasher.append(&self.buffer);
            self.buffer.clear();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use highway::PortableHash;

    use super::*;

    #[test]
    fn rows_can_be_added_in_any_order_and_taken_out_again() {
        let rows = [1, 2, 3].map(|row: u32| Digest::of(&row).0);
        let mut one = Digest::default();
        rows.into_iter().for_each(|row| one.add(row));
        let mut other = Digest::default();
        rows.into_iter().rev().for_each(|row| other.add(row));
        assert_eq!(one, other);
        rows.into_iter().for_each(|row| other.subtract(row));
        assert_eq!(other, Digest::default());
        assert_ne!(one, Digest::default());
    }

    #[test]
    fn long_values_are_hashed_as_a_whole() {
        let text = "x".repeat(3 * GATHERED_BYTES_MAX);
        let (digest, bytes) = Digest::of(&text);
        assert_eq!(bytes, 3 + text.len() as u64);
        assert_ne!(digest, Digest::of(&format!("y{}", &text[1..])).0);
        assert_ne!(digest, Digest::of(&format!("{}y", &text[1..])).0);
    }

    #[test]
    fn it_is_the_same_on_every_machine() {
        let mut portable = PortableHash::new(KEY);
        portable.append(b"\x08spillway");
        assert_eq!(Digest::of(&"spillway").0, Digest(portable.finalize256()));
    }
}
