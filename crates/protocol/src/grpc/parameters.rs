//! The parameters of messages that pass through in pieces.

use super::peek::{KEY, PARAMETERS};
use super::walk::{FieldWalk, NoFields, Values};
use crate::EngineFields;

/// Bytes of a key that are held. No name of [`EngineFields`] is as long, however it is spelt.
const KEY_BYTES_MAX: usize = 128;

/// Notes the keys of a message's parameters that steer an engine. Holds a part of one key at most,
/// and nothing of the values.
#[derive(Debug)]
pub(super) struct Parameters {
    allowed: EngineFields,
    /// Within one entry of the map.
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
    /// Looks for those that are not among the `allowed` ones.
    pub(super) fn new(allowed: EngineFields) -> Self {
        Self { allowed, entry: FieldWalk::default(), keys: Keys::default() }
    }

    /// The first one that is not allowed, of those whose key has passed.
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
