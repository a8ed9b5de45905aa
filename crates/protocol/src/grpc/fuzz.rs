//! What fuzz targets need of gRPC messages.

use super::wire::{Fields, Stop};

/// The model that a message names for whoever reads it to its end: the last one counts, and what is
/// no string is another field to them. `None` if it names none or is no message.
pub(crate) fn last_model(message: &[u8]) -> Option<&[u8]> {
    let mut fields = Fields::new(message, message.len() as u64);
    let mut model = None;
    loop {
        let tag = match fields.tag() {
            Ok(tag) => tag,
            Err(stop) => return model.filter(|_| stop == Stop::End),
        };
        let value = fields.value(tag).ok()?;
        if tag.number == 1 && value.is_some() {
            model = value;
        }
    }
}
