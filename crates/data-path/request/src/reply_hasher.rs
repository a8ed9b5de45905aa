//! Hashes a reply behind its prompt, as the next prompt of the conversation will be hashed.

use std::ops::Range;

use spillway_prefix::PrefixStream;
use spillway_protocol::{Facts, ReplyReader};
use spillway_route::Policy;
use spillway_types::BlockHashes;

use crate::prompt::PromptEnd;

/// Hasher of the reply to one prompt: the state at the prompt's end, some 300 bytes, and a reader of
/// the reply. It has the prompt's scope, so that replies that must not share cache entries have
/// other hashes too.
#[derive(Debug)]
pub struct ReplyHasher {
    stream: PrefixStream,
    reader: ReplyReader,
}

impl ReplyHasher {
    /// Creates the hasher of the reply that goes on from the end of the prompt of `body`. `None` if
    /// there is none, or if the route's policy does not use caches.
    pub(crate) fn of(
        end: Option<PromptEnd>,
        policy: Policy,
        facts: &Facts<'_>,
        body: &[u8],
    ) -> Option<Box<Self>> {
        let PromptEnd { stream, shape } = end.filter(|_| policy.reads_caches())?;
        let prompt = facts.prompt.clone().map_or(&[][..], |prompt| &body[prompt]);
        Some(Box::new(Self { stream, reader: ReplyReader::new(shape, prompt) }))
    }

    /// Takes the next complete event of a stream; `None` for one that was too long to be held.
    pub fn event(&mut self, event: Option<&[u8]>) {
        let Self { stream, reader } = self;
        match event {
            Some(event) => reader.read_event(event, &mut |text| stream.update(text)),
            None => reader.give_up(),
        }
    }

    /// Takes the next piece of a reply that is no stream.
    pub fn piece(&mut self, piece: &[u8]) {
        self.reader.read_piece(piece);
    }

    /// Takes a whole reply that is no stream, and the place of its first choice.
    pub fn whole(&mut self, reply: &[u8], first_choice: Option<Range<usize>>) {
        let Self { stream, reader } = self;
        reader.read_whole(reply, first_choice, &mut |text| stream.update(text));
    }

    /// Returns the full blocks behind the prompt's, once the reply is complete; empty if they are
    /// not known.
    #[must_use]
    pub fn finish(self) -> BlockHashes {
        let Self { mut stream, mut reader } = self;
        let is_whole = reader.finish(&mut |text| stream.update(text));
        if is_whole { stream.finish() } else { BlockHashes::default() }
    }
}
