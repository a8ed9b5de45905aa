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

/// The keys of a message's parameters for whoever reads it to its end; none if it is no message.
pub(crate) fn parameter_keys(message: &[u8]) -> Vec<&[u8]> {
    let entries = values_of(message, 4).unwrap_or_default();
    entries.into_iter().filter_map(|entry| values_of(entry, 1)).flatten().collect()
}

/// The values of a field of bytes; `None` if they stand in no message.
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
