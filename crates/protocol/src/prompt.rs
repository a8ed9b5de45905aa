//! What an engine's cache goes by: the prompt of a body, in one form for all that mean the same.
//!
//! The form is the engine's own order (template, tools, instructions, messages) as JSON without
//! space. White space outside strings and the place of `role` and `content` in a message make no
//! difference, escapes inside strings do. Nothing closes the list of messages, so that the next
//! turn of a conversation goes on where this one ends. Of several prompts in one request the first
//! counts: each has a place of its own in the cache, and one chain has room for one.

mod walk;
mod writer;

use crate::body::{Facts, PromptKind};
use walk::Walk;
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
    let mut writer = Writer::new(take);
    for (name, value) in &facts.template {
        if let Some(value) = value {
            writer.text(name.as_bytes());
            writer.compact(&body[value.clone()]);
            writer.text(b";");
        }
    }
    if let Some(tools) = facts.tools.clone() {
        list(&mut writer, b"tools[", &body[tools], b"];");
    }
    if let Some(instructions) = facts.instructions.clone() {
        // Engines make them the first message.
        said_by(&mut writer, b"system", &body[instructions]);
    }
    let prompt = &body[prompt];
    match kind {
        PromptKind::Messages | PromptKind::Input => conversation(&mut writer, prompt),
        PromptKind::Prompt | PromptKind::Query => plain(&mut writer, prompt),
    }
    writer.finish();
}

/// A list whose end counts; nothing if it is empty, as if it were not there.
fn list<F: FnMut(PromptPiece<'_>)>(
    writer: &mut Writer<F>,
    before: &[u8],
    json: &[u8],
    after: &[u8],
) {
    let mut walk = Walk::into(json);
    let Some(first) = walk.element() else { return };
    writer.text(before);
    writer.compact(first);
    while let Some(element) = walk.element() {
        writer.text(b",");
        writer.compact(element);
    }
    writer.text(after);
}

/// Messages, or what stands for one.
fn conversation<F: FnMut(PromptPiece<'_>)>(writer: &mut Writer<F>, json: &[u8]) {
    if json.first() != Some(&b'[') {
        return said_by(writer, b"user", json);
    }
    let mut walk = Walk::into(json);
    let Some(first) = walk.element() else { return };
    match first.first() {
        Some(b'{') => {
            message(writer, first);
            while let Some(element) = walk.element() {
                message(writer, element);
            }
        }
        // Several prompts of an embedding.
        Some(b'"') => said_by(writer, b"user", first),
        _ => plain(writer, json),
    }
}

fn said_by<F: FnMut(PromptPiece<'_>)>(writer: &mut Writer<F>, role: &[u8], content: &[u8]) {
    writer.text(b"{\"role\":\"");
    writer.text(role);
    writer.text(b"\",\"content\":");
    writer.compact(content);
    writer.text(b"},");
}

/// A message with its role first and its content second, the order of nearly all clients.
fn message<F: FnMut(PromptPiece<'_>)>(writer: &mut Writer<F>, json: &[u8]) {
    let (mut role, mut content, mut has_more) = (None, None, false);
    let mut walk = Walk::into(json);
    while let Some((key, value)) = walk.member() {
        match key {
            b"\"role\"" => role = Some(value),
            b"\"content\"" => content = Some(value),
            _ => has_more = true,
        }
    }
    writer.text(b"{");
    let mut comma: &[u8] = b"";
    let mut put = |key: &[u8], value: &[u8]| {
        writer.text(comma);
        writer.text(key);
        writer.text(b":");
        writer.compact(value);
        comma = b",";
    };
    for (key, value) in [(b"\"role\"".as_slice(), role), (b"\"content\"", content)] {
        if let Some(value) = value {
            put(key, value);
        }
    }
    // Nearly always there is no more, and the content need not be gone through again.
    let mut walk = Walk::into(if has_more { json } else { b"" });
    while let Some((key, value)) = walk.member() {
        if !matches!(key, b"\"role\"" | b"\"content\"") {
            put(key, value);
        }
    }
    writer.text(b"},");
}

/// A prompt without roles: text, or the numbers of its tokens. It may go on, so nothing closes it.
fn plain<F: FnMut(PromptPiece<'_>)>(writer: &mut Writer<F>, json: &[u8]) {
    match json.first() {
        Some(b'"') => writer.text(json.strip_suffix(b"\"").unwrap_or(json)),
        Some(b'[') => {
            let mut walk = Walk::into(json);
            let Some(first) = walk.element() else { return };
            if matches!(first.first(), Some(b'"' | b'[')) {
                return plain_one(writer, first);
            }
            writer.text(b"[");
            tokens(writer, json);
        }
        _ => writer.compact(json),
    }
}

/// The first of several prompts.
fn plain_one<F: FnMut(PromptPiece<'_>)>(writer: &mut Writer<F>, json: &[u8]) {
    match json.first() {
        Some(b'"') => writer.text(json.strip_suffix(b"\"").unwrap_or(json)),
        _ => {
            writer.text(b"[");
            tokens(writer, json);
        }
    }
}

fn tokens<F: FnMut(PromptPiece<'_>)>(writer: &mut Writer<F>, json: &[u8]) {
    let mut walk = Walk::into(json);
    while let Some(element) = walk.element() {
        writer.compact(element);
        writer.text(b",");
    }
}

#[cfg(test)]
mod prompt_test;
