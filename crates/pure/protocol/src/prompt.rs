//! Prompt of a body, in one form for all bodies that mean the same to an engine's cache.
//!
//! The form is the engine's own order (template, tools, instructions, messages) as JSON without
//! spaces. White space outside strings and the order of `role` and `content` in a message make no
//! difference; escapes inside strings do. The list of messages is not closed, so that the next turn
//! of a conversation continues where this one ends. Of several prompts in one request only the
//! first counts: each has its own place in the cache, and a chain of hashes has room for one.

mod blob;
mod quotes;
mod walk;
mod writer;

use std::ops::Range;

use crate::body::{Facts, PromptKind};
use crate::reply_text::ReplyShape;
pub use blob::blob_tokens;
pub(crate) use blob::{embedding_tokens, weighed_bytes};
use walk::{PromptMember, Rank, Walk};
use writer::Writer;

/// Piece of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptPiece<'p> {
    /// Text that engines split into tokens.
    Text(&'p [u8]),
    /// Image, sound or file as a data URL or in base64, with its quotes. It becomes far fewer tokens
    /// than text of that length, see [`blob_tokens`].
    Blob(&'p [u8]),
}

/// Facts of a prompt, found while it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptFacts {
    /// Shape in which the prompt goes on with its reply; `None` if no later prompt will repeat it
    /// so.
    pub shape: Option<ReplyShape>,
    /// True if a message has an image, another file, or a reference to a stored item, so that the
    /// prompt may have more tokens than its body has bytes.
    pub has_media: bool,
}

/// Passes the prompt of `body`, from which `facts` were read, to `take`, piece by piece. The cuts
/// between pieces of text have no meaning.
///
/// Passes nothing if the body has no prompt, or if it continues a stored response: its cache
/// entries then depend on text that is not in this body.
pub fn read_prompt(
    facts: &Facts<'_>,
    body: &[u8],
    take: impl FnMut(PromptPiece<'_>),
) -> PromptFacts {
    let Some((kind, prompt)) = facts.prompt_kind.zip(facts.prompt.clone()) else {
        return PromptFacts::default();
    };
    // The engine puts a stored conversation before this prompt, which this node cannot see.
    if facts.previous_response_id.is_some() {
        return PromptFacts::default();
    }
    let mut writer = Writer::new(body, &facts.long_texts, take);
    for (name, value) in &facts.template {
        if let Some(value) = value {
            writer.text(name.as_bytes());
            writer.compact(value.clone());
            writer.mark(b';');
        }
    }
    if let Some(tools) = facts.tools.clone().filter(|tools| has_elements(&writer, tools)) {
        writer.text(b"tools");
        writer.compact(tools);
        writer.mark(b';');
    }
    if let Some(instructions) = facts.instructions.clone() {
        // Engines put the instructions before the messages, as a first message.
        said_by(&mut writer, b"system", instructions);
    }
    let is_text = body[prompt.clone()].first() == Some(&b'"');
    let found = match kind {
        PromptKind::Messages | PromptKind::Input => conversation(&mut writer, prompt),
        PromptKind::Prompt | PromptKind::Query => {
            plain(&mut writer, prompt);
            let shape = (is_text && kind == PromptKind::Prompt).then_some(ReplyShape::Text);
            PromptFacts { shape, has_media: false }
        }
    };
    writer.finish();
    found
}

/// Writes an item of a reply in the form that it has in a later conversation. Returns `None` if it
/// holds a file.
pub(crate) fn write_item(item: &str, to: &mut dyn FnMut(&[u8])) -> Option<()> {
    let list = ["[", item, "]"].concat();
    written(list.as_bytes(), to, |writer| {
        conversation(writer, 0..list.len());
    })
}

/// Writes a JSON value without white space outside of strings. Returns `None` if it holds a file.
pub(crate) fn write_compact(json: &[u8], to: &mut dyn FnMut(&[u8])) -> Option<()> {
    written(json, to, |writer| writer.compact(0..json.len()))
}

/// Runs `write` with a writer to `to`. Returns `None` if there was anything but text.
fn written<'b>(
    json: &'b [u8],
    to: &mut dyn FnMut(&[u8]),
    write: impl FnOnce(&mut Writer<'b, &mut dyn FnMut(PromptPiece<'_>)>),
) -> Option<()> {
    let mut is_text = true;
    let mut take = |piece: PromptPiece<'_>| match piece {
        PromptPiece::Text(text) => to(text),
        PromptPiece::Blob(_) => is_text = false,
    };
    let take: &mut dyn FnMut(PromptPiece<'_>) = &mut take;
    let mut writer = Writer::new(json, &[], take);
    write(&mut writer);
    writer.finish();
    is_text.then_some(())
}

/// Returns the number of elements of an array; 1 for any other value.
pub(crate) fn elements(body: &[u8], json: &Range<usize>) -> u64 {
    if body[json.clone()].first() != Some(&b'[') {
        return 1;
    }
    let mut walk = Walk::into(body, json, &[]);
    let mut count = 0;
    while walk.peek().is_some() && walk.element().is_some() {
        count += 1;
    }
    count
}

/// Returns true if a tool of a request is one that the server runs itself, e.g. a search of the web:
/// an engine then reads what its tools return, and may generate several times.
#[must_use]
pub(crate) fn has_server_tools(body: &[u8], tools: &Range<usize>) -> bool {
    let mut walk = Walk::into(body, tools, &[]);
    while let Some(tool) = walk.peek().and_then(|_| walk.element()) {
        // Each API describes functions of its clients with one of these words.
        let is_of_client = [&b"\"function\""[..], b"\"custom\"", b"\"input_schema\""]
            .iter()
            .any(|word| memchr::memmem::find(&body[tool.clone()], word).is_some());
        if !is_of_client {
            return true;
        }
    }
    false
}

fn has_elements<F>(writer: &Writer<'_, F>, json: &Range<usize>) -> bool {
    Walk::into(writer.body, json, writer.known).peek().is_some()
}

/// Writes messages, or a text that counts as one message.
fn conversation<F: FnMut(PromptPiece<'_>)>(
    writer: &mut Writer<'_, F>,
    json: Range<usize>,
) -> PromptFacts {
    let body = writer.body;
    let mut has_parts = false;
    if body[json.clone()].first() != Some(&b'[') {
        said_by(writer, b"user", json);
        let shape = Some(ReplyShape::Message { has_parts });
        return PromptFacts { shape, has_media: false };
    }
    let mut walk = Walk::into(body, &json, writer.known);
    match walk.peek() {
        Some(b'{') => {
            while let Some(message) = walk.message() {
                has_parts = message.has_parts(body);
                if message.is_plain {
                    writer.copy(message.range);
                } else {
                    write_message(writer, message.members);
                }
                writer.mark(b',');
            }
            let shape = Some(ReplyShape::Message { has_parts });
            return PromptFacts { shape, has_media: walk.has_media() };
        }
        // Several inputs of an embedding: the first one counts.
        Some(b'"') => walk.element().into_iter().for_each(|first| said_by(writer, b"user", first)),
        _ => plain(writer, json),
    }
    PromptFacts::default()
}

fn said_by<F: FnMut(PromptPiece<'_>)>(
    writer: &mut Writer<'_, F>,
    role: &[u8],
    content: Range<usize>,
) {
    writer.text(b"{\"role\":\"");
    writer.text(role);
    writer.text(b"\",\"content\":");
    writer.compact(content);
    writer.text(b"},");
}

/// Writes a message with its role first and its content second, the order of nearly all clients.
fn write_message<F: FnMut(PromptPiece<'_>)>(writer: &mut Writer<'_, F>, members: &[PromptMember]) {
    // If a member occurs twice, engines take the last one.
    let last = |rank| members.iter().rfind(|member| member.rank == rank);
    let others = members.iter().filter(|member| member.rank == Rank::Other);
    writer.mark(b'{');
    for (at, member) in
        last(Rank::Role).into_iter().chain(last(Rank::Content)).chain(others).enumerate()
    {
        if at > 0 {
            writer.mark(b',');
        }
        writer.copy(member.key.clone());
        writer.mark(b':');
        if member.is_plain {
            writer.copy(member.value.clone());
        } else {
            writer.compact(member.value.clone());
        }
    }
    writer.mark(b'}');
}

/// Writes a prompt without roles: text, or token numbers. The prompt may continue, so it is not
/// closed.
fn plain<F: FnMut(PromptPiece<'_>)>(writer: &mut Writer<'_, F>, json: Range<usize>) {
    let body = writer.body;
    if body[json.clone()].first() != Some(&b'[') {
        return plain_one(writer, json);
    }
    let mut walk = Walk::into(body, &json, writer.known);
    match walk.peek() {
        // Several prompts: the first one counts.
        Some(b'"' | b'[') => {
            walk.element().into_iter().for_each(|first| plain_one(writer, first));
        }
        Some(_) => plain_one(writer, json),
        None => {}
    }
}

fn plain_one<F: FnMut(PromptPiece<'_>)>(writer: &mut Writer<'_, F>, json: Range<usize>) {
    let value = &writer.body[json.clone()];
    match value.first() {
        Some(b'"') => writer.copy(json.start..json.end - usize::from(value.ends_with(b"\""))),
        Some(b'[') => {
            let end = json.end - usize::from(value.ends_with(b"]"));
            let is_empty = !has_elements(writer, &json);
            writer.compact(json.start..end);
            if !is_empty {
                writer.mark(b',');
            }
        }
        _ => writer.compact(json),
    }
}

#[cfg(test)]
mod model_test;
#[cfg(test)]
mod prompt_test;
