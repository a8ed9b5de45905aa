//! Replies as the client's next prompt repeats them.
//!
//! An engine also caches what it generated, and the next turn of a chat sends it again. A
//! [`ReplyReader`] follows a reply, as events or in one piece, and passes on its first choice in
//! the form in which [`read_prompt`](crate::read_prompt) will see it: behind the prompt, this is
//! the beginning of the next one. A part that cannot be read or will not be repeated like this,
//! such as reasoning, gives no turn, and never an error.

mod choices;
mod likeness;
mod messages;
mod responses;
mod text;

use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::sse::event::{field, lines};
use choices::Choice;
use likeness::Likeness;
use text::write_string;

/// Most bytes of a reply that is no stream. Longer replies give no turn.
const BODY_BYTES_MAX: usize = 128 << 10;
/// Bytes at a prompt's end that show how its client escapes text.
const ESCAPES_LOOKED_AT_BYTES: usize = 16 << 10;

/// Shape in which a prompt goes on with its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyShape {
    /// A message of the assistant.
    Message {
        /// True if the content of the prompt's last message is a list of parts. Clients then send
        /// replies as such lists too, in the APIs whose replies have parts.
        has_parts: bool,
    },
    /// Text behind the prompt's text.
    Text,
}

/// Reader of one reply. Pieces of text are passed to `to`; how they are cut has no meaning.
#[derive(Debug)]
pub struct ReplyReader {
    shape: ReplyShape,
    /// True if the client escapes all characters that are not ASCII.
    is_ascii: bool,
    open: Open,
    /// Bytes of a reply in one piece, or arguments of a tool call that come in fragments.
    gathered: Vec<u8>,
    /// The last event, if it only added text.
    likeness: Likeness,
    /// Strings that the current event has added: their number, and the address and length of the last
    /// one.
    added: (u32, usize, usize),
}

/// Part of the turn that was written last and may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    // Nothing => (Text | Part | Input | Call | Items | Unfit)
    Nothing,
    /// Inside the content's text.
    // Text => (Text | Call | Items | Whole | Unfit)
    Text,
    /// Inside the text of a part of the content.
    // Part => (Part | List | Unfit)
    Part,
    /// Between parts of the content.
    // List => (Part | Input | Whole | Unfit)
    List,
    /// Inside the input of a tool's part of the content.
    // Input => (Input | List | Unfit)
    Input,
    /// Inside the arguments of the tool call of this index.
    // Call => (Call | Whole | Unfit)
    Call(u64),
    /// Behind complete items.
    // Items => (Text | Items | Whole | Unfit)
    Items,
    /// The reply has ended.
    Whole,
    /// The reply gives no turn.
    Unfit,
}

/// Destination of the text.
type To<'t> = &'t mut dyn FnMut(&[u8]);

impl ReplyReader {
    /// Creates a reader for the reply to a prompt of this shape, whose JSON value is `prompt`.
    #[must_use]
    pub fn new(shape: ReplyShape, prompt: &[u8]) -> Self {
        let is_ascii = escapes_all(prompt);
        Self {
            shape,
            is_ascii,
            open: Open::Nothing,
            gathered: Vec::new(),
            likeness: Likeness::default(),
            added: (0, 0, 0),
        }
    }

    /// Reads the next complete event of a stream.
    pub fn read_event(&mut self, event: &[u8], to: &mut dyn FnMut(&[u8])) {
        if matches!(self.open, Open::Whole | Open::Unfit) {
            return;
        }
        if let Some(text) = self.likeness.text(event)
            && (!self.is_ascii || text.is_ascii())
        {
            return to(text);
        }
        let mut data = lines(event).filter_map(|line| field(line, b"data"));
        let Some(first) = data.next() else { return };
        let before = self.open;
        self.added.0 = 0;
        // JSON that spans lines is valid, but no server sends it.
        if data.next().is_some() || self.event(first, to).is_none() {
            return self.give_up();
        }
        match self.added {
            (1, address, length) if self.open == before => {
                // The string was borrowed from the event.
                let start = address - event.as_ptr().addr();
                self.likeness.keep(event, start..start + length);
            }
            _ => self.likeness.forget(),
        }
    }

    /// Reads the next piece of a reply that is no stream. Its text is passed on at the end.
    pub fn read_piece(&mut self, piece: &[u8]) {
        if self.open == Open::Unfit {
            return;
        }
        if self.gathered.len() + piece.len() > BODY_BYTES_MAX {
            return self.give_up();
        }
        self.gathered.extend_from_slice(piece);
    }

    /// Reads a whole reply that is no stream. `first_choice` is the place of its first choice, as
    /// [`WholeReader`](crate::WholeReader) has found it.
    pub fn read_whole(
        &mut self,
        reply: &[u8],
        first_choice: Option<Range<usize>>,
        to: &mut dyn FnMut(&[u8]),
    ) {
        let choice = first_choice.and_then(|place| choices::if_first(reply.get(place)?));
        let turn = match choice {
            _ if reply.len() > BODY_BYTES_MAX => None,
            Some(choice) => self.choice(&choice, to),
            None => self.body(reply, to),
        };
        if turn.is_none() {
            self.give_up();
        }
    }

    /// Notes that a part of the reply cannot be read, so that it gives no turn.
    pub fn give_up(&mut self) {
        self.open = Open::Unfit;
        self.gathered = Vec::new();
    }

    /// Notes the end of the reply. Returns true if all that was passed on is a whole turn.
    pub fn finish(&mut self, to: &mut dyn FnMut(&[u8])) -> bool {
        if self.open == Open::Nothing && !self.gathered.is_empty() {
            let body = std::mem::take(&mut self.gathered);
            if self.body(&body, to).is_none() {
                self.give_up();
            }
        }
        self.open == Open::Whole
    }

    fn event(&mut self, data: &[u8], to: To<'_>) -> Option<()> {
        if data.trim_ascii_end() == b"[DONE]" {
            return Some(());
        }
        let event: ReplyEvent<'_> = from_json(data)?;
        if event.error.is_some() {
            return None;
        }
        if let Some(choice) = choices::first(&event.choices) {
            return self.choice(choice, to);
        }
        match event.kind.map(RawValue::get) {
            Some(kind) if kind.starts_with("\"response.") => self.response_event(kind, &event, to),
            Some(kind) => self.message_event(kind, &event, to),
            // An event of usage alone, or of other choices.
            None => Some(()),
        }
    }

    fn body(&mut self, body: &[u8], to: To<'_>) -> Option<()> {
        let body: WholeReply<'_> = from_json(body)?;
        if let Some(choice) = choices::first(&body.choices) {
            return self.choice(choice, to);
        }
        if let Some(items) = &body.output {
            return self.items(items, to);
        }
        self.blocks(body.content.as_deref()?, to)
    }

    /// Writes a JSON string's text, without quotes, as the client writes it.
    fn text(&mut self, string: &RawValue, to: To<'_>) -> Option<()> {
        let text = string.get().get(1..string.get().len().checked_sub(1)?)?;
        self.added = (self.added.0 + 1, text.as_ptr().addr(), text.len());
        write_string(string, self.is_ascii, to)
    }

    /// Writes text of the reply's only content.
    fn content(&mut self, string: &RawValue, to: To<'_>) -> Option<()> {
        if is_empty(string) {
            return Some(());
        }
        match (self.shape, self.open) {
            (_, Open::Text) => {}
            (ReplyShape::Text, Open::Nothing) => self.open = Open::Text,
            (ReplyShape::Message { .. }, Open::Nothing | Open::Items) => {
                to(b"{\"role\":\"assistant\",\"content\":\"");
                self.open = Open::Text;
            }
            _ => return None,
        }
        self.text(string, to)
    }

    /// Ends the turn; `None` if nothing was written.
    fn end(&mut self, to: To<'_>) -> Option<()> {
        let end: &[u8] = match (self.shape, self.open) {
            (ReplyShape::Text, Open::Text) | (_, Open::Items) => b"",
            (_, Open::Text) => b"\"},",
            (_, Open::List) => b"]},",
            (_, Open::Call(_)) => b"\"}}]},",
            (_, Open::Nothing | Open::Part | Open::Input | Open::Whole | Open::Unfit) => {
                return None;
            }
        };
        to(end);
        self.open = Open::Whole;
        Some(())
    }
}

/// Fields of an event about the turn, in any API. Null counts as absent.
#[derive(Debug, Deserialize)]
struct ReplyEvent<'e> {
    #[serde(borrow, default)]
    choices: Vec<Choice<'e>>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'e RawValue>,
    #[serde(borrow)]
    delta: Option<&'e RawValue>,
    #[serde(borrow)]
    content_block: Option<&'e RawValue>,
    #[serde(borrow)]
    item: Option<&'e RawValue>,
    #[serde(borrow)]
    error: Option<&'e RawValue>,
}

/// Fields of a reply in one piece about the turn, in any API.
#[derive(Debug, Deserialize)]
struct WholeReply<'b> {
    #[serde(borrow, default)]
    choices: Vec<Choice<'b>>,
    #[serde(borrow)]
    output: Option<Vec<&'b RawValue>>,
    #[serde(borrow)]
    content: Option<Vec<&'b RawValue>>,
}

/// Reads JSON. It is checked to be UTF-8 as a whole, which is faster than string by string.
fn from_json<'j, T: Deserialize<'j>>(json: &'j [u8]) -> Option<T> {
    serde_json::from_str(std::str::from_utf8(json).ok()?).ok()
}

/// Returns true for an empty string; also for null, which some servers send in its place.
fn is_empty(string: &RawValue) -> bool {
    matches!(string.get(), "\"\"" | "null")
}

/// Returns true if the JSON shows that its writer escapes characters that are not ASCII. Many
/// clients in Python do.
fn escapes_all(json: &[u8]) -> bool {
    let end = &json[json.len().saturating_sub(ESCAPES_LOOKED_AT_BYTES)..];
    memchr::memmem::find_iter(end, b"\\u").any(|at| {
        let digits = end.get(at + 2..at + 6).and_then(|digits| std::str::from_utf8(digits).ok());
        digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()).is_some_and(|it| it >= 0x80)
    })
}

#[cfg(test)]
mod reply_text_test;
