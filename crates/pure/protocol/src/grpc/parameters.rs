//! Parameters of messages that pass in pieces.

use super::peek::{KEY, PARAMETERS};
use super::walk::{FieldWalk, NoFields, Values};
use crate::EngineFields;

/// Largest number of bytes of a key that are held. Names of [`EngineFields`] are shorter in any
/// spelling.
const KEY_BYTES_MAX: usize = 128;

/// Collector of the parameter keys that steer an engine. Holds at most a part of one key, and no
/// value.
#[derive(Debug)]
pub(super) struct Parameters {
    allowed: EngineFields,
    /// Position within one entry of the map.
    entry: FieldWalk,
    keys: Keys,
}

#[derive(Debug, Default)]
struct Keys {
    seen: EngineFields,
    held: Vec<u8>,
    is_too_long: bool,
}

impl Parameters {
    /// Creates a check that accepts the `allowed` parameters.
    pub(super) fn new(allowed: EngineFields) -> Self {
        Self { allowed, entry: FieldWalk::default(), keys: Keys::default() }
    }

    /// Returns the first parameter that is not allowed, among the keys that have passed.
    pub(super) fn refused(&self) -> Option<&'static str> {
        self.keys.seen.first_beyond(self.allowed)
    }
}

impl Values for Parameters {
    fn value(&mut self, field: u64, piece: &[u8], left: u64) -> Result<(), NoFields> {
        if field != u64::from(PARAMETERS) {
            return Ok(());
        }
        self.entry.push(piece, &mut self.keys)?;
        if left > 0 {
            return Ok(());
        }
        let entry = std::mem::take(&mut self.entry);
        entry.is_between_fields().then_some(()).ok_or(NoFields)
    }
}

impl Values for Keys {
    fn value(&mut self, field: u64, piece: &[u8], left: u64) -> Result<(), NoFields> {
        if field != u64::from(KEY) {
            return Ok(());
        }
        self.is_too_long |= self.held.len() + piece.len() > KEY_BYTES_MAX;
        if !self.is_too_long {
            self.held.extend_from_slice(piece);
        }
        if left == 0 {
            if !self.is_too_long {
                self.seen.note(&String::from_utf8_lossy(&self.held));
            }
            self.held.clear();
            self.is_too_long = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_shorter_than_what_is_held() {
        for name in EngineFields::all_names() {
            assert!(name.len() * 4 <= KEY_BYTES_MAX, "{name} in four bytes a character");
        }
    }
}
