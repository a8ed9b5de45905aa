//! Header that names a part of a form.

/// Name of a part, as all servers read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disposition<'b> {
    pub(super) name: &'b str,
    /// True if the part has a file name.
    pub(super) is_file: bool,
}

/// Value of a parameter.
struct Value<'b> {
    raw: &'b [u8],
    /// True if servers that know no escapes, or other ones, find another end.
    is_unclear: bool,
}

impl<'b> Disposition<'b> {
    /// Reads the value of a Content-Disposition. `None` if it is none of a form, or if servers could
    /// find another name in it, whether they know quotes and escapes or not, split it at each
    /// semicolon, or search it for `name=`.
    pub(super) fn read(value: &'b [u8]) -> Option<Self> {
        let mut rest = value.strip_prefix(b"form-data")?;
        let (mut name, mut others) = (None, Vec::new());
        while let Some(parameter) = rest.strip_prefix(b";") {
            let (key, behind) = read_key(trim_spaces(parameter))?;
            let value;
            (value, rest) = Value::read(behind, key)?;
            if key == b"name" {
                let text = std::str::from_utf8(value.raw).ok().filter(|text| is_name(text))?;
                // Some servers take the first of two names, and some the last.
                if name.replace(text).is_some() || value.is_unclear {
                    return None;
                }
                continue;
            }
            // Where the value ends elsewhere for a server, it must not miss the name behind it. One
            // that searches for `name=` finds the name of the file before that of the part.
            let is_misread = name.is_none() && (value.is_unclear || is_like_model(value.raw));
            if is_misread || has_name(value.raw) || others.contains(&key) {
                return None;
            }
            others.push(key);
        }
        let is_file = others.iter().any(|key| key.starts_with(b"filename"));
        rest.is_empty().then_some(Self { name: name?, is_file })
    }
}

impl<'b> Value<'b> {
    /// Reads the value at the beginning of `text`. Returns it and the text behind it.
    fn read(text: &'b [u8], key: &[u8]) -> Option<(Self, &'b [u8])> {
        let is_bare: fn(u8) -> bool = match key {
            b"name" => |byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte),
            // Token of RFC 9110; `filename*` has no other characters.
            _ => |byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~(){}".contains(&byte),
        };
        let Some(quoted) = text.strip_prefix(b"\"") else {
            let end = text.iter().position(|byte| !is_bare(*byte)).unwrap_or(text.len());
            let value = Self { raw: &text[..end], is_unclear: false };
            return (end > 0).then_some((value, &text[end..]));
        };
        let (mut is_escaped, mut is_unclear) = (false, false);
        for (at, byte) in quoted.iter().enumerate() {
            match byte {
                _ if is_escaped => (is_escaped, is_unclear) = (false, is_unclear || *byte == b'"'),
                b'\\' => is_escaped = true,
                b'"' => {
                    let raw = &quoted[..at];
                    let is_unclear = is_unclear || raw.ends_with(b"\\");
                    return Some((Self { raw, is_unclear }, &quoted[at + 1..]));
                }
                _ => {}
            }
        }
        None
    }
}

/// Returns true if some servers take a field of this name for `model`: without regard to case, to
/// characters that they cannot decode, or to an index.
pub(super) fn is_like_model(name: &[u8]) -> bool {
    let name = name.split(|byte| *byte == b'[').next().unwrap_or_default();
    let shown = name.iter().filter(|byte| byte.is_ascii_graphic()).map(u8::to_ascii_lowercase);
    shown.eq(*b"model")
}

/// Returns the key at the beginning of `text`, and the text behind its `=`.
fn read_key(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b'=', text)?;
    let (key, behind) = (&text[..at], &text[at + 1..]);
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_known = matches!(key, b"name" | b"filename" | b"filename*");
    // Another spelling of these three would be one of them for some servers.
    let is_other = || !key.is_empty() && key.iter().all(is_token) && !has_name(&text[..=at]);
    (is_known || is_other()).then_some((key, behind))
}

/// Returns true for a name that every server takes as it stands, in whatever charset.
fn is_name(name: &str) -> bool {
    let is_usual = |char: char| !char.is_control() && !"%;'\"\\".contains(char);
    !name.is_empty() && name.trim() == name && name.chars().all(is_usual)
}

/// Returns true if a server that knows no quotes could find a parameter `name` in this text.
fn has_name(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| byte.eq_ignore_ascii_case(&b'n')) {
        let (begin, behind) = rest[at..].split_at(4.min(rest.len() - at));
        let next = trim_spaces(behind).first();
        if begin.eq_ignore_ascii_case(b"name") && matches!(next, Some(b'=' | b'*')) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

fn trim_spaces(mut text: &[u8]) -> &[u8] {
    while let Some(rest) = text.strip_prefix(b" ") {
        text = rest;
    }
    text
}
