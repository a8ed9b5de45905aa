//! Content blocks of Anthropic's messages, whole or as they grow in events.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{BODY_BYTES_MAX, Open, ReplyEvent, ReplyReader, ReplyShape, To};
use crate::prompt::write_compact;

/// Block of a message's content, or an addition to one.
#[derive(Debug, Deserialize)]
struct ContentBlock<'e> {
    #[serde(borrow, rename = "type")]
    kind: &'e RawValue,
    #[serde(borrow)]
    text: Option<&'e RawValue>,
    #[serde(borrow)]
    id: Option<&'e RawValue>,
    #[serde(borrow)]
    name: Option<&'e RawValue>,
    #[serde(borrow)]
    input: Option<&'e RawValue>,
    #[serde(borrow)]
    partial_json: Option<&'e RawValue>,
}

impl ReplyReader {
    /// Reads the blocks of a whole message.
    pub(super) fn blocks(&mut self, blocks: &[&RawValue], to: To<'_>) -> Option<()> {
        for block in blocks {
            self.begin_block(&read_block(block)?, to)?;
            self.end_block(to)?;
        }
        self.end(to)
    }

    /// Reads an event of a message.
    pub(super) fn message_event(
        &mut self,
        kind: &str,
        event: &ReplyEvent<'_>,
        to: To<'_>,
    ) -> Option<()> {
        match kind {
            "\"content_block_start\"" => self.begin_block(&read_block(event.content_block?)?, to),
            "\"content_block_delta\"" => self.grow_block(&read_block(event.delta?)?, to),
            "\"content_block_stop\"" => self.end_block(to),
            "\"message_stop\"" => self.end(to),
            _ => Some(()),
        }
    }

    fn begin_block(&mut self, block: &ContentBlock<'_>, to: To<'_>) -> Option<()> {
        match block.kind.get() {
            "\"text\"" if self.is_one_text() => self.content(block.text?, to),
            "\"text\"" => {
                self.begin_part(to)?;
                to(b"{\"type\":\"text\",\"text\":\"");
                self.open = Open::Part;
                self.text(block.text?, to)
            }
            "\"tool_use\"" => {
                self.begin_part(to)?;
                to(b"{\"type\":\"tool_use\",\"id\":\"");
                self.text(block.id?, to)?;
                to(b"\",\"name\":\"");
                self.text(block.name?, to)?;
                to(b"\",\"input\":");
                self.open = Open::Input;
                self.gather(block.input.map_or("", RawValue::get))
            }
            // Thinking, and whatever else the next prompt may not repeat.
            _ => None,
        }
    }

    fn grow_block(&mut self, delta: &ContentBlock<'_>, to: To<'_>) -> Option<()> {
        match (delta.kind.get(), self.open) {
            ("\"text_delta\"", Open::Part) => self.text(delta.text?, to),
            ("\"text_delta\"", _) => self.content(delta.text?, to),
            ("\"input_json_delta\"", Open::Input) => {
                let fragment: String = serde_json::from_str(delta.partial_json?.get()).ok()?;
                // The input at the block's start is only a placeholder for one that comes in
                // fragments.
                if self.gathered == b"{}" && !fragment.is_empty() {
                    self.gathered.clear();
                }
                self.gather(&fragment)
            }
            // A text may have citations, which change the part.
            _ => None,
        }
    }

    fn end_block(&mut self, to: To<'_>) -> Option<()> {
        match self.open {
            Open::Part => to(b"\"}"),
            Open::Input => {
                let input = std::mem::take(&mut self.gathered);
                let input: &RawValue = serde_json::from_slice(&input).ok()?;
                write_compact(input.get().as_bytes(), to)?;
                to(b"}");
            }
            Open::Nothing | Open::Text => return Some(()),
            _ => return None,
        }
        self.open = Open::List;
        Some(())
    }

    /// Begins a part in a list of them.
    fn begin_part(&self, to: To<'_>) -> Option<()> {
        match self.open {
            Open::Nothing => to(b"{\"role\":\"assistant\",\"content\":["),
            Open::List => to(b","),
            // The content was taken for a single text.
            _ => return None,
        }
        Some(())
    }

    /// Returns true while the content is a single text that the client sends as such.
    fn is_one_text(&self) -> bool {
        self.shape == ReplyShape::Message { has_parts: false } && self.open == Open::Nothing
    }

    fn gather(&mut self, fragment: &str) -> Option<()> {
        (self.gathered.len() + fragment.len() <= BODY_BYTES_MAX)
            .then(|| self.gathered.extend_from_slice(fragment.as_bytes()))
    }
}

fn read_block(raw: &RawValue) -> Option<ContentBlock<'_>> {
    serde_json::from_str(raw.get()).ok()
}
