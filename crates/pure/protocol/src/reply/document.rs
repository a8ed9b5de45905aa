//! Reader of the facts in one JSON document that comes in pieces.

use std::ops::Range;

use memchr::memchr2;

use super::api::ReplyApi;
use super::found::Found;
#[cfg(test)]
use super::reply_error::ReplyError;
use super::schema::{Form, Meaning, Node, Role, Schema};
use super::usage::Usage;
use crate::window::{Escapes, WINDOW_BYTES, Window, near_quote};

/// Most nodes that are open at a time: the deepest facts are in a choice's message and in the details
/// of a response's usage.
const NODES_MAX: usize = 4;
/// Bytes of a member's name that are kept. A longer name is none that is known.
const NAME_BYTES_MAX: usize = 32;
/// Bytes that are looked at one by one before many at a time: most ends of values are near.
const NEAR_BYTES: usize = 8;
/// Bytes of `null`.
const NULL_BYTES: usize = 4;
/// True for bytes of numbers and words.
const SCALAR: [bool; 256] = {
    let mut set = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        set[byte] =
            (byte as u8).is_ascii_alphanumeric() || matches!(byte as u8, b'+' | b'-' | b'.');
        byte += 1;
    }
    set
};

/// Reader of one document. Pieces may be cut anywhere. Values without a meaning are skipped,
/// however large they are; they are not checked to be JSON. Each kind of fact has a limit on what
/// is kept.
#[derive(Debug)]
pub(super) struct DocumentReader {
    schema: Schema,
    place: JsonPosition,
    /// Open nodes, the document itself first.
    nodes: [Node; NODES_MAX],
    depth: usize,
    /// Meaning of the value that is read or comes next.
    role: Role,
    /// Objects and arrays that are open in a value that is no node.
    inner: u32,
    /// True until a value that may be content has shown if it is empty.
    is_probing: bool,
    /// Name of the current member, or the JSON of the current fact.
    kept: Vec<u8>,
    /// True if `kept` lacks bytes that were over its limit.
    is_cut: bool,
    /// Bytes of the document up to the end of the current piece.
    bytes: usize,
    /// Place of the first choice in the document; empty until it has ended.
    first_choice: Range<usize>,
    found: Found,
}

/// Position in the grammar of JSON, before the next byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonPosition {
    /// Before a value, or the end of an array.
    Value,
    /// Before a member's name, or the end of an object.
    Name,
    InName {
        is_escaped: bool,
    },
    Colon,
    InText {
        is_escaped: bool,
    },
    InScalar,
    /// Inside objects or arrays that are no nodes.
    Inner,
    InInnerText {
        is_escaped: bool,
    },
    /// Behind a value.
    Behind,
    /// Behind the document.
    Over,
    /// The document is no JSON.
    Broken,
}

impl DocumentReader {
    pub(super) fn new(schema: Schema) -> Self {
        let role = schema.of_document();
        Self::with_role(schema, role)
    }

    fn with_role(schema: Schema, role: Role) -> Self {
        Self {
            schema,
            place: JsonPosition::Value,
            nodes: [Node::Root; NODES_MAX],
            depth: 0,
            role,
            inner: 0,
            is_probing: false,
            kept: Vec::new(),
            is_cut: false,
            bytes: 0,
            first_choice: 0..0,
            found: Found::default(),
        }
    }

    /// Prepares for another document.
    pub(super) fn begin(&mut self, schema: Schema) {
        let kept = std::mem::take(&mut self.kept);
        *self = Self { kept, ..Self::new(schema) };
        self.kept.clear();
    }

    /// Reads the next piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.bytes += piece.len();
        let mut rest = piece;
        while let Some(byte) = rest.first() {
            rest = match self.place {
                JsonPosition::Name if *byte == b'"' => self.members(rest),
                JsonPosition::Value if !is_space(*byte) => self.value(rest, *byte),
                JsonPosition::InText { is_escaped } => self.text(rest, is_escaped),
                JsonPosition::InName { is_escaped } => self.name(rest, is_escaped),
                JsonPosition::Inner => self.inner(rest),
                JsonPosition::InInnerText { is_escaped } => self.inner_text(rest, is_escaped),
                JsonPosition::InScalar => self.scalar(rest),
                JsonPosition::Over | JsonPosition::Broken => return,
                JsonPosition::Value
                | JsonPosition::Name
                | JsonPosition::Colon
                | JsonPosition::Behind => {
                    if !is_space(*byte) {
                        self.between(*byte, rest);
                    }
                    &rest[1..]
                }
            };
        }
    }

    /// Returns true if the document is complete.
    pub(super) fn is_over(&self) -> bool {
        self.place == JsonPosition::Over
    }

    /// Returns true if the document is no JSON.
    pub(super) fn is_broken(&self) -> bool {
        self.place == JsonPosition::Broken
    }

    /// Returns the place of the first choice in the document; `None` if there is none.
    pub(super) fn first_choice(&self) -> Option<Range<usize>> {
        Some(self.first_choice.clone()).filter(|place| !place.is_empty())
    }

    #[cfg(test)]
    pub(super) fn found(&self) -> &Found {
        &self.found
    }

    pub(super) fn found_mut(&mut self) -> &mut Found {
        &mut self.found
    }

    /// Reads a byte between values, with which `rest` begins.
    fn between(&mut self, byte: u8, rest: &[u8]) {
        match (self.place, byte) {
            (JsonPosition::Name, b'}') | (JsonPosition::Behind, b']' | b'}') => {
                self.leave(byte, rest);
            }
            (JsonPosition::Colon, b':') => self.place = JsonPosition::Value,
            (JsonPosition::Behind, b',') => self.next(),
            _ => self.place = JsonPosition::Broken,
        }
    }

    /// Prepares for the next member or element.
    fn next(&mut self) {
        match self.node() {
            Some(node) if node.is_array() => {
                self.role = node.of_elements();
                self.place = JsonPosition::Value;
            }
            Some(_) => self.place = JsonPosition::Name,
            None => self.place = JsonPosition::Broken,
        }
    }

    /// Begins a value, or ends an array.
    fn value<'p>(&mut self, rest: &'p [u8], byte: u8) -> &'p [u8] {
        match byte {
            b'"' => self.begin_text(rest),
            b'{' | b'[' => {
                match self.role.node {
                    Some(node) if node.is_array() == (byte == b'[') => self.enter(node, rest),
                    _ => self.begin_inner(&rest[..1]),
                }
                &rest[1..]
            }
            b']' => {
                self.leave(byte, rest);
                &rest[1..]
            }
            // No reply is a number or a word.
            b'}' | b',' | b':' => self.give_up(),
            _ if self.depth == 0 => self.give_up(),
            _ => {
                self.keep_nothing();
                self.place = JsonPosition::InScalar;
                self.scalar(rest)
            }
        }
    }

    /// Reads a string from its quote on. Most strings are complete in their piece.
    fn begin_text<'p>(&mut self, rest: &'p [u8]) -> &'p [u8] {
        let is_content = self.role.meaning == Meaning::Content;
        if let Some(end) = end_of_whole_text(&rest[1..]) {
            self.found.has_content |= is_content && end > 0;
            self.end_with(&rest[..end + 2]);
            return &rest[end + 2..];
        }
        self.keep_nothing();
        self.keep(&rest[..1]);
        self.is_probing = is_content;
        self.place = JsonPosition::InText { is_escaped: false };
        &rest[1..]
    }

    fn begin_inner(&mut self, open: &[u8]) {
        self.keep_nothing();
        self.keep(open);
        self.is_probing = self.role.meaning == Meaning::Content;
        self.inner = 1;
        self.place = JsonPosition::Inner;
    }

    fn give_up<'p>(&mut self) -> &'p [u8] {
        self.place = JsonPosition::Broken;
        &[]
    }

    /// Enters a node with whose bracket `rest` begins.
    fn enter(&mut self, node: Node, rest: &[u8]) {
        let Some(place) = self.nodes.get_mut(self.depth) else {
            self.place = JsonPosition::Broken;
            return;
        };
        *place = node;
        self.depth += 1;
        match node {
            Node::Error => self.found.put_error(),
            Node::Response => self.found.put_response(),
            Node::Usage => self.found.begin_usage(),
            Node::Choice if self.first_choice.is_empty() => {
                self.first_choice.start = self.bytes - rest.len();
            }
            _ => {}
        }
        self.role = node.of_elements();
        self.place = if node.is_array() { JsonPosition::Value } else { JsonPosition::Name };
    }

    /// Ends the innermost node, with whose bracket `rest` begins.
    fn leave(&mut self, byte: u8, rest: &[u8]) {
        match self.node() {
            Some(node) if node.is_array() == (byte == b']') => {
                self.depth -= 1;
                match node {
                    Node::Usage => self.found.end_usage(),
                    Node::Choice if self.first_choice.is_empty() => {
                        self.first_choice.end = self.bytes - rest.len() + 1;
                    }
                    _ => {}
                }
                self.behind();
            }
            _ => self.place = JsonPosition::Broken,
        }
    }

    fn node(&self) -> Option<Node> {
        self.nodes[..self.depth].last().copied()
    }

    /// Ends a value whose JSON was kept.
    fn end_value(&mut self) {
        if let Meaning::Fact(fact) = self.role.meaning {
            self.found.put(fact, &self.kept, self.is_cut);
        }
        self.behind();
    }

    /// Ends a value that was complete in its piece.
    fn end_with(&mut self, json: &[u8]) {
        self.put(json);
        self.behind();
    }

    #[inline]
    fn put(&mut self, json: &[u8]) {
        if let Meaning::Fact(fact) = self.role.meaning {
            let kept = &json[..json.len().min(fact.bytes_max())];
            self.found.put(fact, kept, kept.len() < json.len());
        }
    }

    fn behind(&mut self) {
        self.place = if self.depth == 0 { JsonPosition::Over } else { JsonPosition::Behind };
    }

    /// Reads members of an object from the quote of a name on, as long as they are complete in their
    /// piece and have no space between their parts. All others are left to the states.
    fn members<'p>(&mut self, mut rest: &'p [u8]) -> &'p [u8] {
        loop {
            let name = &rest[1..rest.len().min(NAME_BYTES_MAX + 2)];
            let Some(length) = end_of_whole_text(name) else {
                self.keep_nothing();
                self.place = JsonPosition::InName { is_escaped: false };
                return &rest[1..];
            };
            self.role = self.role_of(&name[..length]);
            let after = &rest[length + 2..];
            let Some((b':', value)) = after.split_first() else {
                self.place = JsonPosition::Colon;
                return after;
            };
            let Some(behind) = self.whole_value(value) else {
                self.place = JsonPosition::Value;
                return value;
            };
            rest = match behind {
                [b',', b'"', ..] => &behind[1..],
                _ => {
                    self.place = JsonPosition::Behind;
                    return behind;
                }
            };
        }
    }

    /// Reads a string, a number or a word that is complete, and returns what is behind it.
    fn whole_value<'p>(&mut self, value: &'p [u8]) -> Option<&'p [u8]> {
        let length = match value.first()? {
            b'"' => {
                let end = end_of_whole_text(&value[1..])?;
                self.found.has_content |= self.role.meaning == Meaning::Content && end > 0;
                end + 2
            }
            b'n' if value.starts_with(b"null") => NULL_BYTES,
            _ => value.iter().take_while(|byte| SCALAR[usize::from(**byte)]).count(),
        };
        let behind = &value[length..];
        // No other byte ends a number or a word, which may be cut here.
        if length == 0 || !matches!(behind.first()?, b',' | b'}' | b']') {
            return None;
        }
        self.put(&value[..length]);
        Some(behind)
    }

    fn role_of(&self, name: &[u8]) -> Role {
        self.node().map_or(Role::IGNORED, |node| self.schema.role(node, name))
    }

    fn name<'p>(&mut self, rest: &'p [u8], is_escaped: bool) -> &'p [u8] {
        let (end, is_escaped) = end_of_text(rest, is_escaped);
        let length = end.unwrap_or(rest.len());
        self.keep_up_to(&rest[..length], NAME_BYTES_MAX);
        if end.is_none() {
            self.place = JsonPosition::InName { is_escaped };
            return &[];
        }
        self.role = if self.is_cut { Role::IGNORED } else { self.role_of(&self.kept) };
        self.place = JsonPosition::Colon;
        &rest[length + 1..]
    }

    fn text<'p>(&mut self, rest: &'p [u8], is_escaped: bool) -> &'p [u8] {
        let (end, is_escaped) = end_of_text(rest, is_escaped);
        self.found.has_content |= self.is_probing && end != Some(0);
        self.is_probing = false;
        let Some(end) = end else {
            self.keep(rest);
            self.place = JsonPosition::InText { is_escaped };
            return &[];
        };
        self.keep(&rest[..=end]);
        self.end_value();
        &rest[end + 1..]
    }

    /// Reads a number or a word.
    fn scalar<'p>(&mut self, rest: &'p [u8]) -> &'p [u8] {
        let length = rest.iter().take_while(|byte| SCALAR[usize::from(**byte)]).count();
        self.keep(&rest[..length]);
        match rest.get(length) {
            None => {}
            Some(b',' | b'}' | b']') => self.end_value(),
            Some(byte) if is_space(*byte) => self.end_value(),
            Some(_) => self.place = JsonPosition::Broken,
        }
        &rest[length..]
    }

    /// Skips objects and arrays that are no nodes, up to a string that is cut or to their end.
    fn inner<'p>(&mut self, rest: &'p [u8]) -> &'p [u8] {
        if self.is_probing {
            let Some(first) = rest.iter().find(|byte| !is_space(**byte)) else { return &[] };
            self.found.has_content |= !matches!(first, b'}' | b']');
            self.is_probing = false;
        }
        let mut at = 0;
        while let Some(found) = next_of_structure(&rest[at..]) {
            at += found + 1;
            match rest[at - 1] {
                b'"' => {
                    let (end, is_escaped) = end_of_text(&rest[at..], false);
                    let Some(end) = end else {
                        self.place = JsonPosition::InInnerText { is_escaped };
                        break;
                    };
                    at += end + 1;
                }
                b'{' | b'[' => self.inner = self.inner.saturating_add(1),
                _ if self.inner > 1 => self.inner -= 1,
                _ => {
                    self.keep(&rest[..at]);
                    self.end_value();
                    return &rest[at..];
                }
            }
        }
        self.keep(rest);
        &[]
    }

    fn inner_text<'p>(&mut self, rest: &'p [u8], is_escaped: bool) -> &'p [u8] {
        let (end, is_escaped) = end_of_text(rest, is_escaped);
        let Some(end) = end else {
            self.keep(rest);
            self.place = JsonPosition::InInnerText { is_escaped };
            return &[];
        };
        self.keep(&rest[..=end]);
        self.place = JsonPosition::Inner;
        &rest[end + 1..]
    }

    /// Keeps a part of the value's JSON if the value is a fact.
    fn keep(&mut self, part: &[u8]) {
        if let Meaning::Fact(fact) = self.role.meaning {
            self.keep_up_to(part, fact.bytes_max());
        }
    }

    fn keep_up_to(&mut self, part: &[u8], bytes_max: usize) {
        let room = bytes_max.saturating_sub(self.kept.len());
        self.is_cut |= part.len() > room;
        self.kept.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn keep_nothing(&mut self) {
        self.kept.clear();
        self.is_cut = false;
    }
}

/// Reads a usage object; `None` if it has no count, or is incomplete.
pub(crate) fn read_usage(value: &[u8]) -> Option<Usage> {
    let schema = Schema::new(ReplyApi::Other, Form::Whole);
    let mut document = DocumentReader::with_role(schema, Role::USAGE);
    document.push(value);
    document.found.usage
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// Returns the offset of the quote that ends a string which begins here, if the piece has it.
#[inline]
fn end_of_whole_text(piece: &[u8]) -> Option<usize> {
    near_quote(piece).or_else(|| end_of_text(piece, false).0)
}

/// Returns the offset of the quote that ends a string, if the piece has it, and whether the end of
/// the piece escapes the next byte.
fn end_of_text(piece: &[u8], is_escaped: bool) -> (Option<usize>, bool) {
    let at = usize::from(is_escaped);
    let rest = &piece[at..];
    match memchr2(b'"', b'\\', rest) {
        None => (None, false),
        Some(found) if rest[found] == b'"' => (Some(at + found), false),
        Some(found) => {
            let (end, is_escaped) = end_behind_escape(&rest[found..]);
            (end.map(|end| at + found + end), is_escaped)
        }
    }
}

/// Does the same for a piece that begins with a backslash. Where one escape is, others are near, so
/// that many bytes are looked at a time.
fn end_behind_escape(piece: &[u8]) -> (Option<usize>, bool) {
    let mut escapes = Escapes::default();
    let mut at = 0;
    while let Some(rest) = piece.get(at..).filter(|rest| !rest.is_empty()) {
        let window = Window::new(rest);
        let [quotes, backslashes] = [b'"', b'\\'].map(|byte| window.places(byte));
        let escaped = escapes.escaped(backslashes);
        let ends = quotes & !escaped;
        if ends != 0 {
            return (Some(at + ends.trailing_zeros() as usize), false);
        }
        if rest.len() < WINDOW_BYTES {
            return (None, escaped >> rest.len() & 1 == 1);
        }
        at += WINDOW_BYTES;
        if quotes | backslashes == 0 {
            // A long text without any escape follows.
            let Some(found) = memchr2(b'"', b'\\', &piece[at..]) else { return (None, false) };
            at += found;
        }
    }
    (None, escapes.are_open())
}

/// Returns the offset of the next quote, bracket or brace.
fn next_of_structure(piece: &[u8]) -> Option<usize> {
    let is_of_structure = |byte: &u8| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']');
    let (near, far) = piece.split_at(piece.len().min(NEAR_BYTES));
    if let Some(found) = near.iter().position(is_of_structure) {
        return Some(found);
    }
    for (number, bytes) in far.chunks(WINDOW_BYTES).enumerate() {
        let window = Window::new(bytes);
        if window.has_structure() {
            let found = bytes.iter().position(is_of_structure)?;
            return Some(NEAR_BYTES + number * WINDOW_BYTES + found);
        }
    }
    None
}

/// Reads the value of a member `error`; `None` if it is neither an object nor a string.
#[cfg(test)]
pub(crate) fn read_error(value: &[u8]) -> Option<ReplyError> {
    let schema = Schema::new(ReplyApi::Other, Form::Whole);
    let mut document = DocumentReader::with_role(schema, Role::ERROR);
    document.push(value);
    document.found.error.map(|error| *error)
}
