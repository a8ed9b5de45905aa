//! Walk over JSON that was found valid before. On other input the results mean little, but the walk
//! ends, and it never reads beyond the end.

use std::ops::Range;

use smallvec::SmallVec;

use super::blob::is_blob;
use super::quotes::Quotes;

/// Length in bytes of the longest usual role, `assistant`, with its closing quote.
const ROLE_BYTES_MAX: usize = 10;
/// Number of members that a message hardly ever exceeds; more cost an allocation.
const MEMBERS_USUAL: usize = 6;

/// Position among the members of an object or the elements of an array, somewhere in a body.
#[derive(Debug)]
pub(super) struct Walk<'b> {
    /// Body up to the end of the object or array.
    json: &'b [u8],
    at: usize,
    quotes: Quotes<'b>,
    /// True if everything passed so far can be copied as it is: no space between strings, no blob.
    is_plain: bool,
    /// True if a string passed so far names content whose tokens are not in the body's bytes.
    has_media: bool,
    /// Members of the last message.
    members: SmallVec<[PromptMember; MEMBERS_USUAL]>,
}

/// Element of a list of messages.
#[derive(Debug)]
pub(super) struct Message<'w> {
    pub(super) range: Range<usize>,
    /// Members in the order of the body; empty if the element is no object.
    pub(super) members: &'w [PromptMember],
    /// True if the message can be copied as it is.
    pub(super) is_plain: bool,
}

impl Message<'_> {
    /// Returns true if the content is a list of parts.
    pub(super) fn has_parts(&self, body: &[u8]) -> bool {
        let content = self.members.iter().rfind(|member| member.rank == Rank::Content);
        content.is_some_and(|content| body.get(content.value.start) == Some(&b'['))
    }
}

/// Place of an object's member.
#[derive(Clone, Debug)]
pub(super) struct PromptMember {
    /// Place of the key as written, with quotes.
    pub(super) key: Range<usize>,
    pub(super) value: Range<usize>,
    /// True if the value can be copied as it is.
    pub(super) is_plain: bool,
    pub(super) rank: Rank,
}

/// Members of a message, in the order of nearly all clients.
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
    /// Starts before the first member or element of the JSON value at `range` of `body`. A value
    /// that is neither object nor array has none. The texts of some strings of the body are `known`.
    pub(super) fn into(body: &'b [u8], range: &Range<usize>, known: &'b [Range<usize>]) -> Self {
        let json = &body[..range.end];
        let is_container = matches!(json.get(range.start), Some(b'{' | b'['));
        let at = if is_container { range.start + 1 } else { range.end };
        let members = SmallVec::new();
        Self {
            json,
            at,
            quotes: Quotes::new(body, at, known),
            is_plain: true,
            has_media: false,
            members,
        }
    }

    /// Returns true if a message that was passed names an image, another file, or a stored item.
    pub(super) fn has_media(&self) -> bool {
        self.has_media
    }

    /// Returns the first byte of the next element of an array; `None` if there is none.
    pub(super) fn peek(&mut self) -> Option<u8> {
        self.skip(b',');
        self.json.get(self.at).copied().filter(|byte| !matches!(byte, b']' | b'}'))
    }

    /// Returns the place of the next element of an array; `None` if there is none.
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

    /// Returns the next element of a list of messages; `None` if there is none.
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
            // A repeated role or content is not in order, as only the last one counts.
            is_in_order &= last < Some(member.rank) || member.rank == Rank::Other;
            self.members.push(member);
        }
        if self.json.get(self.at) == Some(&b'}') {
            self.at += 1;
        }
        let is_plain = self.is_plain && is_in_order;
        Some(Message { range: start..self.at, members: &self.members, is_plain })
    }

    /// Returns the next message if it has the most frequent form: a role and a text, without
    /// spaces.
    #[inline]
    fn usual_message(&mut self) -> Option<Range<usize>> {
        const ROLE: &[u8] = b"{\"role\":\"";
        const CONTENT: &[u8] = b",\"content\":\"";
        let start = self.at;
        let rest = self.json.get(start..).filter(|rest| rest.starts_with(ROLE))?;
        // The role must be near: a far one is left to the usual walk, since this one may not go
        // back. An escaped quote can pass for the end of the role, but no key can follow it.
        let role = rest.get(ROLE.len()..ROLE.len() + ROLE_BYTES_MAX)?;
        let content = start + ROLE.len() + role.iter().position(|byte| *byte == b'"')? + 1;
        if !self.json[content..].starts_with(CONTENT) {
            return None;
        }
        let text = content + CONTENT.len() - 1;
        let mut quotes = self.quotes.clone();
        let end = quotes.next(text + 1) + 1;
        // More members follow, or the text is a file: the usual walk handles both.
        if self.json.get(end) != Some(&b'}') || is_blob(self.json, text..end) {
            return None;
        }
        self.quotes = quotes;
        self.at = end + 1;
        Some(start..self.at)
    }

    /// Returns the next member of an object; `None` if there is none.
    fn member(&mut self) -> Option<PromptMember> {
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
        Some(PromptMember { rank: Rank::of(&self.json[key.clone()]), key, value, is_plain })
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
        let string = &self.json[start..self.at];
        self.is_plain &= !is_blob(self.json, start..self.at);
        self.has_media |= is_media(string);
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

/// Returns true if this byte is white space, when outside of strings. JSON has no other bytes so
/// low there.
pub(super) fn is_space(byte: u8) -> bool {
    byte <= b' '
}

/// Types of parts of a message whose tokens don't follow from the bytes of the body: a file may be
/// elsewhere, and even one in the body may have far more tokens than bytes, e.g. a large image of
/// one colour. With quotes, as in the body.
const MEDIA: [&[u8]; 16] = [
    b"\"audio\"",
    b"\"audio_url\"",
    b"\"document\"",
    b"\"file\"",
    b"\"file_id\"",
    b"\"image\"",
    b"\"image_embeds\"",
    b"\"image_pil\"",
    b"\"image_url\"",
    b"\"input_audio\"",
    b"\"input_file\"",
    b"\"input_image\"",
    b"\"input_video\"",
    b"\"item_reference\"",
    b"\"video\"",
    b"\"video_url\"",
];
/// Length of the longest of [`MEDIA`].
const MEDIA_BYTES_MAX: usize = 16;

/// Returns true if a string, with its quotes, is the type of such a part. A text of just that word
/// passes for one too, which does no harm: it only affects a bound for the figures that replicas
/// report.
fn is_media(string: &[u8]) -> bool {
    string.len() <= MEDIA_BYTES_MAX && MEDIA.contains(&string)
}
