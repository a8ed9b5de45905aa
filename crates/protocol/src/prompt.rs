//! What an engine's cache goes by: the prompt of a body, in one form for all that mean the same.
//!
//! The form is the engine's own order (template, tools, instructions, messages) as JSON without
//! space. White space outside strings and the place of `role` and `content` in a message make no
//! difference, escapes inside strings do. Nothing closes the list of messages, so that the next
//! turn of a conversation goes on where this one ends. Of several prompts in one request the first
//! counts: each has a place of its own in the cache, and one chain has room for one.

mod quotes;
mod walk;
mod writer;

use std::ops::Range;

use crate::body::{Facts, PromptKind};
use walk::{Member, Rank, Walk};
use writer::Writer;

/// A piece of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptPiece<'p> {
    /// Text that engines cut into tokens.
    Text(&'p [u8]),
    /// An image, sound or file as a data URL. It becomes far fewer tokens than its bytes would as
    /// text, so it should count as little.
    Blob(&'p [u8]),
}

/// Hands the prompt of `body`, from which `facts` were read, to `take`, piece by piece. How it is
/// cut into pieces of text means nothing.
///
/// Nothing if the body has no prompt, or continues a stored response: then its cache entries
/// depend on what this body does not show.
pub fn read_prompt(facts: &Facts<'_>, body: &[u8], take: impl FnMut(PromptPiece<'_>)) {
    let Some((kind, prompt)) = facts.prompt_kind.zip(facts.prompt.clone()) else { return };
    if facts.previous_response_id.is_some() {
        return;
    }
    let mut writer = Writer::new(body, take);
    for (name, value) in &facts.template {
        if let Some(value) = value {
            writer.text(name.as_bytes());
            writer.compact(value.clone());
            writer.mark(b';');
        }
    }
    if let Some(tools) = facts.tools.clone().filter(|tools| has_elements(body, tools)) {
        writer.text(b"tools");
        writer.compact(tools);
        writer.mark(b';');
    }
    if let Some(instructions) = facts.instructions.clone() {
        // Engines make them the first message.
        said_by(&mut writer, b"system", instructions);
    }
    match kind {
        PromptKind::Messages | PromptKind::Input => conversation(&mut writer, body, prompt),
        PromptKind::Prompt | PromptKind::Query => plain(&mut writer, body, prompt),
    }
    writer.finish();
}

/// How many elements an array has; 1 for anything else.
pub(crate) fn elements(body: &[u8], json: &Range<usize>) -> u64 {
    if body[json.clone()].first() != Some(&b'[') {
        return 1;
    }
    let mut walk = Walk::into(body, json);
    let mut count = 0;
    while walk.peek().is_some() && walk.element().is_some() {
        count += 1;
    }
    count
}

fn has_elements(body: &[u8], json: &Range<usize>) -> bool {
    Walk::into(body, json).peek().is_some()
}

/// Messages, or what stands for one.
fn conversation<F: FnMut(PromptPiece<'_>)>(
    writer: &mut Writer<'_, F>,
    body: &[u8],
    json: Range<usize>,
) {
    if body[json.clone()].first() != Some(&b'[') {
        return said_by(writer, b"user", json);
    }
    let mut walk = Walk::into(body, &json);
    match walk.peek() {
        Some(b'{') => {
            while let Some(message) = walk.message() {
                if message.is_plain {
                    writer.copy(message.range);
                } else {
                    write_message(writer, message.members);
                }
                writer.mark(b',');
            }
        }
        // Several prompts of an embedding.
        Some(b'"') => walk.element().into_iter().for_each(|first| said_by(writer, b"user", first)),
        _ => plain(writer, body, json),
    }
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

/// A message with its role first and its content second, the order of nearly all clients.
fn write_message<F: FnMut(PromptPiece<'_>)>(writer: &mut Writer<'_, F>, members: &[Member]) {
    // Of members that come twice, engines take the last.
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

/// A prompt without roles: text, or the numbers of its tokens. It may go on, so nothing closes it.
fn plain<F: FnMut(PromptPiece<'_>)>(writer: &mut Writer<'_, F>, body: &[u8], json: Range<usize>) {
    if body[json.clone()].first() != Some(&b'[') {
        return plain_one(writer, body, json);
    }
    let mut walk = Walk::into(body, &json);
    match walk.peek() {
        // The first of several prompts.
        Some(b'"' | b'[') => {
            walk.element().into_iter().for_each(|first| plain_one(writer, body, first));
        }
        Some(_) => plain_one(writer, body, json),
        None => {}
    }
}

fn plain_one<F: FnMut(PromptPiece<'_>)>(
    writer: &mut Writer<'_, F>,
    body: &[u8],
    json: Range<usize>,
) {
    let value = &body[json.clone()];
    match value.first() {
        Some(b'"') => writer.copy(json.start..json.end - usize::from(value.ends_with(b"\""))),
        Some(b'[') => {
            let end = json.end - usize::from(value.ends_with(b"]"));
            let is_empty = !has_elements(body, &json);
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
