//! Walks over JSON that has been found valid before. Of anything else it makes little sense, but
//! it ends, and it never looks beyond the end.

use std::ops::Range;

use smallvec::SmallVec;

use super::quotes::Quotes;

/// Shorter data URLs are text: an icon of this size has about as many tokens either way.
const BLOB_BYTES_MIN: usize = 1024;
/// The longest usual role, `assistant`, and its quote.
const ROLE_BYTES_MAX: usize = 10;
/// Messages have hardly ever more members; they cost an allocation.
const MEMBERS_USUAL: usize = 6;

/// A place in the members of an object or the elements of an array, somewhere in a body.
#[derive(Debug)]
pub(super) struct Walk<'b> {
    /// The body as far as the object or array goes.
    json: &'b [u8],
    at: usize,
    quotes: Quotes<'b>,
    /// Whether all that was passed is to be taken as it stands: no space between strings, no blob.
    is_plain: bool,
    /// Those of the last message.
    members: SmallVec<[Member; MEMBERS_USUAL]>,
}

/// An element of a list of messages.
#[derive(Debug)]
pub(super) struct Message<'w> {
    pub(super) range: Range<usize>,
    /// In the order of the body; none if it is no object.
    pub(super) members: &'w [Member],
    /// Whether it is to be taken as it stands.
    pub(super) is_plain: bool,
}

/// Where a member of an object stands.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// With quotes, as it was written.
    pub(super) key: Range<usize>,
    pub(super) value: Range<usize>,
    /// Whether the value is to be taken as it stands.
    pub(super) is_plain: bool,
    pub(super) rank: Rank,
}

/// The members of a message in the order of nearly all clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Role,
    Content,
    Other,
}

impl Rank {
    fn of(key: &[u8]) -> Self {
        match key {
            b"\"role\"" => Self::Role,
            b"\"content\"" => Self::Content,
            _ => Self::Other,
        }
    }
}

impl<'b> Walk<'b> {
    /// Before the first member or element of the JSON value at `range` of `body`; of what is
    /// neither object nor array there is none.
    pub(super) fn into(body: &'b [u8], range: &Range<usize>) -> Self {
        let json = &body[..range.end];
        let is_container = matches!(json.get(range.start), Some(b'{' | b'['));
        let at = if is_container { range.start + 1 } else { range.end };
        let members = SmallVec::new();
        Self { json, at, quotes: Quotes::new(body, at), is_plain: true, members }
    }

    /// The first byte of the next element of an array, if there is one.
    pub(super) fn peek(&mut self) -> Option<u8> {
        self.skip(b',');
        self.json.get(self.at).copied().filter(|byte| !matches!(byte, b']' | b'}'))
    }

    /// Where the next element of an array stands.
    pub(super) fn element(&mut self) -> Option<Range<usize>> {
        self.skip(b',');
        self.value()
    }

    #[inline]
    fn value(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        match self.json.get(start) {
            Some(b'"') => self.pass_string(),
            Some(b'{' | b'[') => self.pass_container(),
            _ => self.pass_scalar(),
        }
        (start < self.at).then_some(start..self.at)
    }

    /// The next element of a list of messages.
    pub(super) fn message(&mut self) -> Option<Message<'_>> {
        self.members.clear();
        let first = self.peek()?;
        if let Some(range) = self.usual_message() {
            return Some(Message { range, members: &[], is_plain: true });
        }
        if first != b'{' {
            return Some(Message { range: self.element()?, members: &[], is_plain: false });
        }
        let start = self.at;
        self.at += 1;
        self.is_plain = true;
        let mut is_in_order = true;
        while let Some(member) = self.member() {
            let last = self.members.last().map(|last| last.rank);
            is_in_order &= last < Some(member.rank) || member.rank == Rank::Other;
            self.members.push(member);
        }
        if self.json.get(self.at) == Some(&b'}') {
            self.at += 1;
        }
        let is_plain = self.is_plain && is_in_order;
        Some(Message { range: start..self.at, members: &self.members, is_plain })
    }

    /// The next message, if it is as nearly all are: a role and a text, without spaces.
    #[inline]
    fn usual_message(&mut self) -> Option<Range<usize>> {
        const ROLE: &[u8] = b"{\"role\":\"";
        const CONTENT: &[u8] = b",\"content\":\"";
        let start = self.at;
        let rest = self.json.get(start..).filter(|rest| rest.starts_with(ROLE))?;
        // The role is near. One that is not is left to the usual walk, which may not go back. An
        // escaped quote passes for the role's end, but no key can come behind it.
        let role = rest.get(ROLE.len()..ROLE.len() + ROLE_BYTES_MAX)?;
        let content = start + ROLE.len() + role.iter().position(|byte| *byte == b'"')? + 1;
        if !self.json[content..].starts_with(CONTENT) {
            return None;
        }
        let text = content + CONTENT.len() - 1;
        let mut quotes = self.quotes.clone();
        let end = quotes.next(text + 1) + 1;
        if self.json.get(end) != Some(&b'}') || is_blob(&self.json[text..end]) {
            return None;
        }
        self.quotes = quotes;
        self.at = end + 1;
        Some(start..self.at)
    }

    /// The next member of an object.
    fn member(&mut self) -> Option<Member> {
        self.skip(b',');
        if self.json.get(self.at) != Some(&b'"') {
            return None;
        }
        let start = self.at;
        self.pass_string();
        let key = start..self.at;
        self.skip(b':');
        let was_plain = self.is_plain;
        self.is_plain = true;
        let value = self.value()?;
        let is_plain = self.is_plain;
        self.is_plain &= was_plain;
        Some(Member { rank: Rank::of(&self.json[key.clone()]), key, value, is_plain })
    }

    #[inline]
    fn skip(&mut self, separator: u8) {
        while let Some(byte) = self.json.get(self.at) {
            if is_space(*byte) {
                self.is_plain = false;
            } else if *byte != separator {
                break;
            }
            self.at += 1;
        }
    }

    #[inline]
    fn pass_string(&mut self) {
        let start = self.at;
        self.at = self.json.len().min(self.quotes.next(start + 1) + 1);
        self.is_plain &= !is_blob(&self.json[start..self.at]);
    }

    fn pass_container(&mut self) {
        let mut depth = 0_usize;
        loop {
            let quote = self.json.len().min(self.quotes.next(self.at));
            while self.at < quote {
                let byte = self.json[self.at];
                self.at += 1;
                match byte {
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' if depth == 1 => return,
                    b'}' | b']' => depth -= 1,
                    _ => self.is_plain &= !is_space(byte),
                }
            }
            if self.at == self.json.len() {
                return;
            }
            self.pass_string();
        }
    }

    fn pass_scalar(&mut self) {
        let rest = self.json.get(self.at..).unwrap_or_default();
        let ends = |byte: &u8| is_space(*byte) || matches!(byte, b',' | b']' | b'}' | b':');
        self.at += rest.iter().position(ends).unwrap_or(rest.len());
    }
}

/// Whether this byte, outside of strings, means nothing. JSON has no other bytes so low there.
pub(super) fn is_space(byte: u8) -> bool {
    byte <= b' '
}

/// Whether a string, with its quotes, is an image or another file.
pub(super) fn is_blob(string: &[u8]) -> bool {
    string.len() >= BLOB_BYTES_MIN && string.starts_with(b"\"data:")
}
