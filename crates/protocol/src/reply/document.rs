//! Reader of the facts in one JSON document that comes in pieces.

use memchr::memchr2;

use super::found::Found;
use super::schema::{Meaning, Node, Role, Schema};
use crate::window::{WINDOW_BYTES, Window};

/// Most nodes that are open at a time: the deepest fact is in a choice's message.
const NODES_MAX: usize = 4;
/// Bytes of a member's name that are kept. A longer name is none that is known.
const NAME_BYTES_MAX: usize = 24;
/// Bytes that are looked at one by one before many at a time: most ends of values are near.
const NEAR_BYTES: usize = 8;

/// Reader of one document. Pieces may be cut anywhere. Values without a meaning are skipped, however
/// large they are; they are not checked to be JSON. What is kept has a limit for each kind of fact.
#[derive(Debug)]
pub(super) struct DocumentReader {
    schema: Schema,
    place: Place,
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
    found: Found,
}

/// Position in the grammar of JSON, before the next byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
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
            place: Place::Value,
            nodes: [Node::Root; NODES_MAX],
            depth: 0,
            role,
            inner: 0,
            is_probing: false,
            kept: Vec::new(),
            is_cut: false,
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
        let mut rest = piece;
        while let Some(byte) = rest.first() {
            rest = match self.place {
                Place::InText { is_escaped } => self.text(rest, is_escaped),
                Place::InName { is_escaped } => self.name(rest, is_escaped),
                Place::Inner => self.inner(rest),
                Place::InInnerText { is_escaped } => self.inner_text(rest, is_escaped),
                Place::InScalar => self.scalar(rest),
                Place::Over | Place::Broken => return,
                Place::Value | Place::Name | Place::Colon | Place::Behind => {
                    if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                        &rest[1..]
                    } else {
                        self.between(rest, *byte)
                    }
                }
            };
        }
    }

    /// Returns true if the document is complete.
    pub(super) fn is_over(&self) -> bool {
        self.place == Place::Over
    }

    /// Returns true if the document is no JSON.
    pub(super) fn is_broken(&self) -> bool {
        self.place == Place::Broken
    }

    pub(super) fn found(&self) -> &Found {
        &self.found
    }

    pub(super) fn found_mut(&mut self) -> &mut Found {
        &mut self.found
    }

    /// Reads a byte between values.
    fn between<'p>(&mut self, rest: &'p [u8], byte: u8) -> &'p [u8] {
        match (self.place, byte) {
            (Place::Value, b']') | (Place::Name, b'}') | (Place::Behind, b']' | b'}') => {
                self.leave(byte);
            }
            (Place::Value, _) => return self.value(rest, byte),
            (Place::Name, b'"') => {
                self.keep_nothing();
                self.place = Place::InName { is_escaped: false };
            }
            (Place::Colon, b':') => self.place = Place::Value,
            (Place::Behind, b',') => self.next(),
            _ => self.place = Place::Broken,
        }
        &rest[1..]
    }

    /// Prepares for the next member or element.
    fn next(&mut self) {
        match self.node() {
            Some(node) if node.is_array() => {
                self.role = node.of_elements();
                self.place = Place::Value;
            }
            Some(_) => self.place = Place::Name,
            None => self.place = Place::Broken,
        }
    }

    /// Begins a value.
    fn value<'p>(&mut self, rest: &'p [u8], byte: u8) -> &'p [u8] {
        self.keep_nothing();
        self.is_probing = false;
        match byte {
            b'"' => {
                self.keep(&rest[..1]);
                self.is_probing = self.role.meaning == Meaning::Content;
                self.place = Place::InText { is_escaped: false };
                &rest[1..]
            }
            b'{' | b'[' => {
                match self.role.node {
                    Some(node) if node.is_array() == (byte == b'[') => self.enter(node),
                    _ => {
                        self.keep(&rest[..1]);
                        self.is_probing = self.role.meaning == Meaning::Content;
                        self.inner = 1;
                        self.place = Place::Inner;
                    }
                }
                &rest[1..]
            }
            b'}' | b']' | b',' | b':' => {
                self.place = Place::Broken;
                rest
            }
            // No reply is a number or a word.
            _ if self.depth == 0 => {
                self.place = Place::Broken;
                rest
            }
            _ => {
                self.place = Place::InScalar;
                rest
            }
        }
    }

    fn enter(&mut self, node: Node) {
        let Some(place) = self.nodes.get_mut(self.depth) else {
            self.place = Place::Broken;
            return;
        };
        *place = node;
        self.depth += 1;
        match node {
            Node::Error => self.found.put_error(),
            Node::Response => self.found.put_response(),
            _ => {}
        }
        self.role = node.of_elements();
        self.place = if node.is_array() { Place::Value } else { Place::Name };
    }

    /// Ends the innermost node.
    fn leave(&mut self, byte: u8) {
        match self.node() {
            Some(node) if node.is_array() == (byte == b']') => {
                self.depth -= 1;
                self.place = if self.depth == 0 { Place::Over } else { Place::Behind };
            }
            _ => self.place = Place::Broken,
        }
    }

    fn node(&self) -> Option<Node> {
        self.nodes[..self.depth].last().copied()
    }

    fn end_value(&mut self) {
        if let Meaning::Fact(fact) = self.role.meaning {
            self.found.put(fact, &self.kept, self.is_cut);
        }
        self.place = if self.depth == 0 { Place::Over } else { Place::Behind };
    }

    fn name<'p>(&mut self, rest: &'p [u8], is_escaped: bool) -> &'p [u8] {
        let (end, is_escaped) = end_of_text(rest, is_escaped);
        let length = end.unwrap_or(rest.len());
        self.keep_up_to(&rest[..length], NAME_BYTES_MAX);
        if end.is_none() {
            self.place = Place::InName { is_escaped };
            return &[];
        }
        self.role = match self.node() {
            Some(node) if !self.is_cut => self.schema.role(node, &self.kept),
            _ => Role::IGNORED,
        };
        self.place = Place::Colon;
        &rest[length + 1..]
    }

    fn text<'p>(&mut self, rest: &'p [u8], is_escaped: bool) -> &'p [u8] {
        let (end, is_escaped) = end_of_text(rest, is_escaped);
        self.found.has_content |= self.is_probing && end != Some(0);
        self.is_probing = false;
        let Some(end) = end else {
            self.keep(rest);
            self.place = Place::InText { is_escaped };
            return &[];
        };
        self.keep(&rest[..=end]);
        self.end_value();
        &rest[end + 1..]
    }

    fn scalar<'p>(&mut self, rest: &'p [u8]) -> &'p [u8] {
        let is_of_scalar = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let length = rest.iter().take_while(|byte| is_of_scalar(byte)).count();
        self.keep(&rest[..length]);
        match rest.get(length) {
            None => {}
            Some(b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t') => self.end_value(),
            Some(_) => self.place = Place::Broken,
        }
        &rest[length..]
    }

    /// Skips objects and arrays that are no nodes, up to a string that is cut or to their end.
    fn inner<'p>(&mut self, rest: &'p [u8]) -> &'p [u8] {
        if self.is_probing {
            let is_space = |byte: &&u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
            let Some(first) = rest.iter().find(|byte| !is_space(byte)) else { return &[] };
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
                        self.place = Place::InInnerText { is_escaped };
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
            self.place = Place::InInnerText { is_escaped };
            return &[];
        };
        self.keep(&rest[..=end]);
        self.place = Place::Inner;
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

/// Returns the offset of the quote that ends a string, if the piece has it, and whether the end of
/// the piece escapes the next byte.
fn end_of_text(piece: &[u8], is_escaped: bool) -> (Option<usize>, bool) {
    let mut at = usize::from(is_escaped);
    loop {
        let rest = piece.get(at..).unwrap_or_default();
        let Some(found) = memchr2(b'"', b'\\', rest) else { return (None, at > piece.len()) };
        at += found;
        if piece[at] == b'"' {
            return (Some(at), false);
        }
        // A character behind a backslash does not end the string.
        at += 2;
    }
}

/// Returns the offset of the next quote, bracket or brace.
fn next_of_structure(piece: &[u8]) -> Option<usize> {
    let is_of_structure = |byte: &u8| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']');
    let (near, far) = piece.split_at(piece.len().min(NEAR_BYTES));
    if let Some(found) = near.iter().position(is_of_structure) {
        return Some(found);
    }
    let windows = far.chunks(WINDOW_BYTES).enumerate();
    windows.map(|(number, bytes)| (number, Window::new(bytes).structure())).find_map(
        |(number, places)| {
            let at = NEAR_BYTES + number * WINDOW_BYTES + places.trailing_zeros() as usize;
            (places != 0).then_some(at)
        },
    )
}

/// Reads the value of a member `error`; `None` if it is neither an object nor a string.
#[cfg(test)]
pub(crate) fn read_error(value: &[u8]) -> Option<super::reply_error::ReplyError> {
    let schema = Schema::new(super::api::ReplyApi::Other, super::schema::Form::Whole);
    let mut document = DocumentReader::with_role(schema, Role::ERROR);
    document.push(value);
    document.found.error.map(|error| *error)
}
