//! Edits of single values in an event's bytes.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::Usage;

/// Collector of the edits of one event.
#[derive(Debug)]
pub(crate) struct Rewriter<'e> {
    event: &'e Bytes,
    edits: Vec<(Range<usize>, String)>,
}

impl<'e> Rewriter<'e> {
    pub(crate) fn new(event: &'e Bytes) -> Self {
        Self { event, edits: Vec::new() }
    }

    /// Replaces `value`, which must be a slice of this event, by `with`.
    pub(crate) fn replace(&mut self, value: &RawValue, with: impl Into<String>) {
        let with = with.into();
        // An equal value needs no edit, so that most events stay the same bytes.
        if value.get() != with {
            self.edits.push((self.span(value), with));
        }
    }

    /// Removes the member `name` that has this value.
    pub(crate) fn remove(&mut self, name: &str, value: &RawValue) {
        let Range { start, mut end } = self.span(value);
        let before = self.event[..start].trim_ascii_end();
        let before = before.strip_suffix(b":").unwrap_or(before).trim_ascii_end();
        let quoted = format!("\"{name}\"");
        // The key has escapes in it, which no engine writes. A value of `null` means the same.
        let Some(before) = before.strip_suffix(quoted.as_bytes()) else {
            return self.replace(value, "null");
        };
        let before = before.trim_ascii_end();
        let start = match before.strip_suffix(b",") {
            Some(before) => before.len(),
            // The first member has no comma before it, so the one behind it goes.
            None => {
                let after = self.event[end..].trim_ascii_start();
                if after.starts_with(b",") {
                    end = self.event.len() - after.len() + 1;
                }
                before.len()
            }
        };
        self.edits.push((start..end, String::new()));
    }

    /// Returns the event with all edits; the same bytes if there are none.
    pub(crate) fn finish(mut self) -> Bytes {
        if self.edits.is_empty() {
            return self.event.clone();
        }
        // Edits are applied from left to right.
        self.edits.sort_by_key(|(at, _)| at.start);
        let mut bytes = BytesMut::with_capacity(self.event.len() + 64);
        let mut done = 0;
        for (at, with) in self.edits {
            bytes.extend_from_slice(&self.event[done..at.start]);
            bytes.extend_from_slice(with.as_bytes());
            done = at.end;
        }
        bytes.extend_from_slice(&self.event[done..]);
        bytes.freeze()
    }

    /// Returns the place of a value in its event. A value is always a slice of its event, so the
    /// difference of their addresses is its offset.
    fn span(&self, value: &RawValue) -> Range<usize> {
        let start = value.get().as_ptr().addr().saturating_sub(self.event.as_ptr().addr());
        start..start + value.get().len()
    }
}

/// Returns a delta without its role.
pub(super) fn without_role(delta: &RawValue) -> String {
    let mut members: Map<String, Value> = serde_json::from_str(delta.get()).unwrap_or_default();
    members.remove("role");
    Value::Object(members).to_string()
}

/// Returns a usage object with these counts, and with the other members of `like`.
pub(super) fn usage_json(like: Option<&RawValue>, usage: Usage) -> String {
    let like = like.and_then(|like| serde_json::from_str(like.get()).ok());
    let mut members: Map<String, Value> = like.unwrap_or_default();
    let Usage { prompt_tokens, completion_tokens, cached_tokens } = usage;
    members.insert("prompt_tokens".to_owned(), prompt_tokens.into());
    members.insert("completion_tokens".to_owned(), completion_tokens.into());
    members.insert("total_tokens".to_owned(), (prompt_tokens + completion_tokens).into());
    if let Some(cached) = cached_tokens
        && let Some(Value::Object(details)) = members.get_mut("prompt_tokens_details")
    {
        details.insert("cached_tokens".to_owned(), cached.into());
    }
    Value::Object(members).to_string()
}
