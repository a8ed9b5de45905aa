//! Items of the Responses API, whole or as they come in events.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Open, ReplyEvent, ReplyReader, ReplyShape, To};
use crate::prompt::write_item;

/// Item of a response's output.
#[derive(Debug, Deserialize)]
struct Item<'e> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'e RawValue>,
    #[serde(borrow)]
    content: Option<Vec<ItemPart<'e>>>,
}

#[derive(Debug, Deserialize)]
struct ItemPart<'e> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'e RawValue>,
    #[serde(borrow)]
    text: Option<&'e RawValue>,
}

impl ReplyReader {
    /// Reads the items of a whole response.
    pub(super) fn items(&mut self, items: &[&RawValue], to: To<'_>) -> Option<()> {
        items.iter().try_for_each(|item| self.item(item, to))?;
        self.end(to)
    }

    /// Reads an event of a response. Items count once they are complete.
    pub(super) fn response_event(
        &mut self,
        kind: &str,
        event: &ReplyEvent<'_>,
        to: To<'_>,
    ) -> Option<()> {
        match kind {
            "\"response.output_item.done\"" => self.item(event.item?, to),
            "\"response.completed\"" | "\"response.incomplete\"" => self.end(to),
            "\"response.failed\"" => None,
            _ => Some(()),
        }
    }

    fn item(&mut self, raw: &RawValue, to: To<'_>) -> Option<()> {
        let item: Item<'_> = serde_json::from_str(raw.get()).ok()?;
        match (item.kind.map(RawValue::get), self.shape) {
            (Some("\"message\""), ReplyShape::Message { has_parts: false }) => {
                let parts = item.content?;
                for part in parts {
                    if part.kind.map(RawValue::get) != Some("\"output_text\"") {
                        return None;
                    }
                    self.content(part.text?, to)?;
                }
                self.end_text(to);
            }
            (Some("\"message\"" | "\"function_call\""), ReplyShape::Message { .. }) => {
                write_item(raw.get(), to)?;
            }
            // Reasoning, and tools of the server.
            _ => return None,
        }
        self.open = Open::Items;
        Some(())
    }

    fn end_text(&self, to: To<'_>) {
        if self.open == Open::Text {
            to(b"\"},");
        }
    }
}
