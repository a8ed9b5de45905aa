//! Relay of a stream of messages: checks each message's length, and replaces an alias of a model.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use thiserror::Error;

use super::FRAME_HEAD_BYTES;
use super::parameters::Parameters;
use super::peek::{Peek, frame_head_of, model_fields, peek_model};
use super::walk::{FieldWalk, NoFields};
use crate::engine_fields::refusal;
use crate::{EngineFields, ErrorKind, GatewayError};

/// Bytes of a message that are searched for its model. Names are short and come first.
pub const MODEL_BYTES_MAX: usize = 64 << 10;

/// Relay of the messages of one stream. It must not be used after an error.
#[derive(Debug)]
pub struct Messages {
    bytes_max: u64,
    rename: Option<Rename>,
    /// Check of parameters; `None` if they are not checked.
    parameters: Option<Parameters>,
    place: MessagePosition,
    ready: VecDeque<Bytes>,
}

/// Error of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// The message is longer than allowed.
    #[error("a message is larger than the {bytes_max} bytes allowed here")]
    TooLarge {
        /// Largest allowed size in bytes.
        bytes_max: u64,
    },
    /// The message is compressed, but has to be read.
    #[error("compressed messages are not read here: send them as they are")]
    Compressed,
    /// The bytes are no message.
    #[error(
        "malformed message: it is not framed as gRPC has it, its fields can't be read, or it names no \
         model in its first bytes"
    )]
    Malformed,
    /// The message names another model than the first message of its stream, which is not allowed.
    #[error("the key may not use a model that a later message of the stream names")]
    OtherModel,
    /// The message has a parameter of this name, which steers the model server and is not allowed.
    #[error("the parameter '{0}' steers the model server and is not allowed here")]
    Parameter(&'static str),
}

/// Replacement of one model's name by another.
#[derive(Debug)]
struct Rename {
    from: String,
    /// New name, encoded as fields.
    to: Bytes,
    others: Others,
}

/// Treatment of messages that name a model which is not renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    Pass,
    Refuse,
}

#[derive(Debug)]
enum MessagePosition {
    // Head => Message, where nothing is changed
    Head { head: [u8; FRAME_HEAD_BYTES], have: usize },
    // Naming => Message, where a name is
    Naming { held: BytesMut },
    // Message => (Head | Naming)
    Message { bytes_left: u64, tail: Bytes, walk: FieldWalk },
}

impl Messages {
    /// Creates a relay of messages of at most `bytes_max` bytes each, which pass unchanged.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        let place = MessagePosition::Head { head: [0; FRAME_HEAD_BYTES], have: 0 };
        Self { bytes_max, rename: None, parameters: None, place, ready: VecDeque::new() }
    }

    /// Creates a relay that replaces the model `from` by `to`, with `version` if given. Other
    /// models pass unchanged.
    #[must_use]
    pub fn renaming(bytes_max: u64, from: &str, to: &str, version: Option<&str>) -> Self {
        let rename =
            Rename { from: from.to_owned(), to: model_fields(to, version), others: Others::Pass };
        let place = MessagePosition::Naming { held: BytesMut::new() };
        Self { bytes_max, rename: Some(rename), parameters: None, place, ready: VecDeque::new() }
    }

    /// Refuses messages that name another model than `from`. The new name is written behind all
    /// other fields of a message, so that no later name in it counts.
    #[must_use]
    pub fn or_refused(mut self) -> Self {
        if let Some(rename) = &mut self.rename {
            rename.others = Others::Refuse;
        }
        self
    }

    /// Refuses messages with a parameter that steers the model server, except the `allowed` ones,
    /// and messages that cannot be parsed to their end. Values are skipped, not held.
    #[must_use]
    pub fn refusing_parameters_but(mut self, allowed: EngineFields) -> Self {
        self.parameters = Some(Parameters::new(allowed));
        self
    }

    /// Takes a piece of the stream.
    ///
    /// # Errors
    /// Returns an error if a message in it is too long, or cannot be parsed where that is needed.
    pub fn push(&mut self, piece: Bytes) -> Result<(), MessageError> {
        if self.rename.is_some() {
            return self.rewrite(piece);
        }
        self.walk(&piece)?;
        self.emit(piece);
        Ok(())
    }

    /// Returns the next piece to pass on. Call it after each [`Messages::push`] until it returns
    /// `None`.
    pub fn pop(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    /// Returns true if [`Messages::pop`] has another piece.
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns true if the stream has ended within a message, so that the sender owes the rest.
    #[must_use]
    pub fn is_within_message(&self) -> bool {
        match &self.place {
            MessagePosition::Head { have, .. } => *have > 0,
            MessagePosition::Naming { held } => !held.is_empty(),
            MessagePosition::Message { .. } => true,
        }
    }

    fn walk(&mut self, mut piece: &[u8]) -> Result<(), MessageError> {
        while !piece.is_empty() {
            match &mut self.place {
                MessagePosition::Head { head, have } => {
                    let taken = piece.len().min(FRAME_HEAD_BYTES - *have);
                    head[*have..*have + taken].copy_from_slice(&piece[..taken]);
                    *have += taken;
                    piece = &piece[taken..];
                    // Refused as soon as the flag is known, whatever the length is.
                    if head[0] == 1 && self.parameters.is_some() {
                        return Err(MessageError::Compressed);
                    }
                    if *have == FRAME_HEAD_BYTES {
                        let bytes_left = length_of(*head, self.bytes_max)?;
                        self.begin(bytes_left, Bytes::new())?;
                    }
                }
                MessagePosition::Message { bytes_left, walk, .. } => {
                    let (taken, rest) = piece.split_at(limited(piece.len(), *bytes_left));
                    *bytes_left -= taken.len() as u64;
                    piece = rest;
                    if let Some(parameters) = &mut self.parameters {
                        look_at(parameters, walk, taken)?;
                    }
                    self.end_if_done()?;
                }
                MessagePosition::Naming { .. } => return Ok(()),
            }
        }
        Ok(())
    }

    fn rewrite(&mut self, mut piece: Bytes) -> Result<(), MessageError> {
        while !piece.is_empty() {
            match &mut self.place {
                MessagePosition::Naming { held } => {
                    let seen = std::mem::take(held);
                    let seen = if seen.is_empty() { piece } else { joined(seen, &piece) };
                    let Some(rest) = self.name(seen)? else { return Ok(()) };
                    piece = rest;
                }
                MessagePosition::Message { bytes_left, tail, walk } => {
                    let taken = limited(piece.len(), *bytes_left);
                    *bytes_left -= taken as u64;
                    let passed = piece.split_to(taken);
                    match &mut self.parameters {
                        Some(parameters) => look_at(parameters, walk, &passed)?,
                        // A new name follows, so the fields before it must be complete.
                        None if !tail.is_empty() => walk.push(&passed, &mut ())?,
                        None => {}
                    }
                    self.emit(passed);
                    self.end_if_done()?;
                }
                MessagePosition::Head { .. } => return Ok(()),
            }
        }
        Ok(())
    }

    /// Decides on a message by its first bytes, and returns the bytes behind its head; `None` if
    /// more are needed.
    fn name(&mut self, seen: Bytes) -> Result<Option<Bytes>, MessageError> {
        let Some(rename) = &self.rename else { return Ok(Some(seen)) };
        let peek = peek_model(&seen);
        // The flag in the first byte is enough, whatever the length is.
        if matches!(peek, Peek::Compressed) {
            return Err(MessageError::Compressed);
        }
        let head: Option<[u8; FRAME_HEAD_BYTES]> = seen.first_chunk().copied();
        let length = head.map(|head| length_of(head, self.bytes_max)).transpose()?;
        let (model, length) = match (peek, length) {
            (Peek::Found(found), Some(length)) => (found.model, length),
            (Peek::NeedMore, _) if seen.len() < MODEL_BYTES_MAX => {
                self.place = MessagePosition::Naming { held: BytesMut::from(seen) };
                return Ok(None);
            }
            _ => return Err(MessageError::Malformed),
        };
        let tail = match (model == rename.from, rename.others) {
            (true, _) => rename.to.clone(),
            (false, Others::Pass) => Bytes::new(),
            (false, Others::Refuse) => return Err(MessageError::OtherModel),
        };
        // The name is appended, so the frame head must announce a longer message.
        let renamed_length = length.saturating_add(tail.len() as u64);
        let too_large = MessageError::TooLarge { bytes_max: self.bytes_max };
        let framed_length = u32::try_from(renamed_length).map_err(|_| too_large)?;
        self.emit(frame_head_of(framed_length));
        self.begin(length, tail)?;
        Ok(Some(seen.slice(FRAME_HEAD_BYTES..)))
    }

    fn begin(&mut self, bytes_left: u64, tail: Bytes) -> Result<(), MessageError> {
        self.place = MessagePosition::Message { bytes_left, tail, walk: FieldWalk::default() };
        self.end_if_done()
    }

    fn end_if_done(&mut self) -> Result<(), MessageError> {
        let MessagePosition::Message { bytes_left: 0, tail, walk } = &mut self.place else {
            return Ok(());
        };
        let is_walked = !tail.is_empty() || self.parameters.is_some();
        if is_walked && !walk.is_between_fields() {
            return Err(MessageError::Malformed);
        }
        let tail = std::mem::take(tail);
        self.emit(tail);
        self.place = match self.rename {
            Some(_) => MessagePosition::Naming { held: BytesMut::new() },
            None => MessagePosition::Head { head: [0; FRAME_HEAD_BYTES], have: 0 },
        };
        Ok(())
    }

    fn emit(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.ready.push_back(piece);
        }
    }
}

/// Checks the parameters in the next bytes of a message.
fn look_at(
    parameters: &mut Parameters,
    walk: &mut FieldWalk,
    piece: &[u8],
) -> Result<(), MessageError> {
    walk.push(piece, parameters)?;
    parameters.refused().map_or(Ok(()), |name| Err(MessageError::Parameter(name)))
}

impl From<NoFields> for MessageError {
    fn from(_: NoFields) -> Self {
        Self::Malformed
    }
}

impl From<MessageError> for GatewayError {
    fn from(fault: MessageError) -> Self {
        let kind = match fault {
            MessageError::TooLarge { .. } => ErrorKind::BodyTooLarge,
            MessageError::Compressed => ErrorKind::UnsupportedMediaType,
            MessageError::Malformed => ErrorKind::BadRequest,
            MessageError::OtherModel => ErrorKind::ModelNotAllowed,
            MessageError::Parameter(name) => return refusal(name),
        };
        Self::new(kind, fault.to_string())
    }
}

fn length_of(head: [u8; FRAME_HEAD_BYTES], bytes_max: u64) -> Result<u64, MessageError> {
    let [flag, length @ ..] = head;
    // gRPC defines the flags 0 and 1 only.
    if flag > 1 {
        return Err(MessageError::Malformed);
    }
    let length = u64::from(u32::from_be_bytes(length));
    if length > bytes_max { Err(MessageError::TooLarge { bytes_max }) } else { Ok(length) }
}

fn limited(available: usize, wanted: u64) -> usize {
    usize::try_from(wanted).map_or(available, |wanted| wanted.min(available))
}

fn joined(mut first: BytesMut, second: &[u8]) -> Bytes {
    first.extend_from_slice(second);
    first.freeze()
}

#[cfg(test)]
mod messages_test;
