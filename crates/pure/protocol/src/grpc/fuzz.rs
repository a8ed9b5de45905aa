//! Helpers of fuzz targets for gRPC messages.

use super::wire::{Fields, Stop};

/// Returns the model that a message names for a reader of the whole message: the last one counts,
/// and a value that is no string belongs to another field. `None` if there is no model, or if this
/// is no message.
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

/// Returns the keys of a message's parameters for a reader of the whole message; none if it is no
/// message.
pub(crate) fn parameter_keys(message: &[u8]) -> Vec<&[u8]> {
    let entries = values_of(message, 4).unwrap_or_default();
    entries.into_iter().filter_map(|entry| values_of(entry, 1)).flatten().collect()
}

/// Returns the values of a field of bytes; `None` if this is no message.
fn values_of(message: &[u8], number: u64) -> Option<Vec<&[u8]>> {
    let mut fields = Fields::new(message, message.len() as u64);
    let mut values = Vec::new();
    loop {
        match fields.tag() {
            Ok(tag) => {
                let value = fields.value(tag).ok()?;
                values.extend(value.filter(|_| tag.number == number));
            }
            Err(stop) => return (stop == Stop::End).then_some(values),
        }
    }
}
