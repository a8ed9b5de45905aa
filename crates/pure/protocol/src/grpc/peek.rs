//! Model that a message of KServe V2 names.
//!
//! All requests have the model's name in field 1 and its version in field 2. If a message has a
//! field more than once, the last one counts, as for every reader of protocol buffers.

use bytes::Bytes;

use super::FRAME_HEAD_BYTES;
use super::wire::{Fields, Stop, put_bytes};
use super::{MessageError, Messages};
use crate::{EngineFields, Segments};

/// Numbers of the fields that are read.
const MODEL: u32 = 1;
const VERSION: u32 = 2;
/// Number of the parameters in an inference request: a map, whose entries have their key in field
/// 1.
pub(super) const PARAMETERS: u32 = 4;
pub(super) const KEY: u32 = 1;

/// Model that a message names; absent fields are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelRef<'m> {
    /// Name of the model, or an alias.
    pub model: &'m str,
    /// Requested version.
    pub version: &'m str,
}

/// Result of reading the first bytes of a stream of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek<'m> {
    /// The first message names this model.
    Found(ModelRef<'m>),
    /// More bytes are needed.
    NeedMore,
    /// The first message is compressed.
    Compressed,
    /// The bytes are no message.
    Malformed,
}

/// Reads the first message of a stream only as far as needed: up to the first field behind the
/// version, since writers write fields in the order of their numbers.
#[must_use]
pub fn peek_model(stream: &[u8]) -> Peek<'_> {
    match frame_head(stream) {
        Ok(length) => {
            let message = &stream[FRAME_HEAD_BYTES..];
            let available = usize::try_from(length).unwrap_or(usize::MAX).min(message.len());
            read(Fields::new(&message[..available], length), Until::LaterField)
        }
        Err(unread) => unread,
    }
}

/// Reads a body of one complete message to its end. Never returns [`Peek::NeedMore`]: a body that
/// is cut off, or has bytes behind the message, is malformed.
#[must_use]
pub fn read_model(body: &[u8]) -> Peek<'_> {
    match frame_head(body) {
        Ok(length) if length == (body.len() - FRAME_HEAD_BYTES) as u64 => {
            read(Fields::new(&body[FRAME_HEAD_BYTES..], length), Until::End)
        }
        Ok(_) | Err(Peek::NeedMore) => Peek::Malformed,
        Err(unread) => unread,
    }
}

/// Checks that a body of one message has no parameters that steer an engine, except the `allowed`
/// ones.
///
/// # Errors
/// Returns the first other parameter as an error. Returns an error if the message or an entry of
/// its parameters cannot be parsed to its end, since servers read on where this reader stops, e.g.
/// behind groups.
pub fn check_parameters(body: &Bytes, allowed: EngineFields) -> Result<(), MessageError> {
    let bytes_max = body.len() as u64;
    Messages::new(bytes_max).refusing_parameters_but(allowed).push(body.clone())
}

/// Returns a body of one message, which [`read_model`] has accepted, with another model and, if
/// given, another version. Both are appended as second fields, which count.
#[must_use]
pub fn rewrite_model(body: &Bytes, model: &str, version: Option<&str>) -> Segments {
    let fields = model_fields(model, version);
    let message = body.slice(FRAME_HEAD_BYTES..);
    let length = u32::try_from(message.len() + fields.len()).unwrap_or(u32::MAX);
    [frame_head_of(length), message, fields].into_iter().collect()
}

/// Returns a model's name and version, encoded as fields of a message.
pub(super) fn model_fields(model: &str, version: Option<&str>) -> Bytes {
    let mut fields = Vec::with_capacity(model.len() + 8);
    put_bytes(&mut fields, MODEL, model.as_bytes());
    if let Some(version) = version {
        put_bytes(&mut fields, VERSION, version.as_bytes());
    }
    fields.into()
}

/// Returns the frame head of an uncompressed message of this length.
pub(super) fn frame_head_of(length: u32) -> Bytes {
    let mut head = [0; FRAME_HEAD_BYTES];
    head[1..].copy_from_slice(&length.to_be_bytes());
    Bytes::copy_from_slice(&head)
}

/// Returns the length of the first message.
///
/// # Errors
/// Returns a [`Peek`] without a model if the length cannot be read.
fn frame_head(stream: &[u8]) -> Result<u64, Peek<'_>> {
    match stream {
        [0, a, b, c, d, ..] => Ok(u64::from(u32::from_be_bytes([*a, *b, *c, *d]))),
        [] | [0, ..] => Err(Peek::NeedMore),
        [1, ..] => Err(Peek::Compressed),
        _ => Err(Peek::Malformed),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    LaterField,
    End,
}

fn read(mut fields: Fields<'_>, until: Until) -> Peek<'_> {
    let mut found = ModelRef::default();
    let is_later = |number: u64| until == Until::LaterField && number > u64::from(VERSION);
    loop {
        let field = match fields.tag() {
            Ok(tag) if is_later(tag.number) => return Peek::Found(found),
            Ok(tag) => fields.value(tag).map(|bytes| (tag.number, bytes)),
            Err(stop) => Err(stop),
        };
        match field {
            Ok((number, bytes)) if note(&mut found, number, bytes).is_some() => {}
            Ok(_) | Err(Stop::Malformed) => return Peek::Malformed,
            Err(Stop::NeedMore) => return Peek::NeedMore,
            Err(Stop::End) => return Peek::Found(found),
        }
    }
}

/// Notes a field. Returns `None` if a name is no text: other readers would see another message.
fn note<'m>(found: &mut ModelRef<'m>, number: u64, bytes: Option<&'m [u8]>) -> Option<()> {
    let place = match u32::try_from(number) {
        Ok(MODEL) => &mut found.model,
        Ok(VERSION) => &mut found.version,
        _ => return Some(()),
    };
    *place = std::str::from_utf8(bytes?).ok()?;
    Some(())
}

#[cfg(test)]
mod peek_test;
