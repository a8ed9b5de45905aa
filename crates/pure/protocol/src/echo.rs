//! Text of a client in messages to it, cut if it is long.

use std::fmt::{self, Write};

/// Largest number of bytes of a client's text that are repeated. Names of models are shorter, and a
/// text of 32 MB must not be answered with one of 64 MB.
const ECHO_BYTES_MAX: usize = 256;
/// Largest size in bytes of a message that the gateway writes.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// Mark at the end of a text that was cut.
const ELLIPSIS: char = '…';

/// Client's text as it is repeated in an error or a log: at most 256 bytes, then an ellipsis.
/// `Debug` quotes and escapes it, like `str`.
#[derive(Clone, Copy)]
pub struct Echo<'t>(pub &'t str);

impl Echo<'_> {
    fn shown(&self) -> &str {
        &self.0[..self.0.floor_char_boundary(ECHO_BYTES_MAX)]
    }

    fn is_cut(&self) -> bool {
        self.0.len() > ECHO_BYTES_MAX
    }
}

impl fmt::Display for Echo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown())?;
        if self.is_cut() { f.write_char(ELLIPSIS) } else { Ok(()) }
    }
}

impl fmt::Debug for Echo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.shown(), f)?;
        if self.is_cut() { f.write_char(ELLIPSIS) } else { Ok(()) }
    }
}

/// Cuts a message that is too long, and frees the memory of the rest.
pub(crate) fn bounded(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        message.push(ELLIPSIS);
        message.shrink_to_fit();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_are_whole() {
        let long = "x".repeat(256);
        for text in ["", "tiny", "a\"b\n", &long] {
            assert_eq!(format!("{:?}", Echo(text)), format!("{text:?}"));
            assert_eq!(Echo(text).to_string(), text);
        }
    }

    #[test]
    fn long_texts_are_cut_between_two_characters() {
        let text = format!("x{}", "é".repeat(10_000_000));
        assert_eq!(Echo(&text).to_string(), format!("x{}…", "é".repeat(127)));
        let quotes = "\"".repeat(1_000);
        assert_eq!(format!("{:?}", Echo(&quotes)), format!("\"{}\"…", "\\\"".repeat(256)));
    }

    #[test]
    fn messages_have_a_limit_and_give_back_what_they_had() {
        let message = bounded("é".repeat(1_000_000));
        assert_eq!(message, format!("{}…", "é".repeat(2_048)));
        assert!(message.capacity() < 8 << 10, "{}", message.capacity());
        assert_eq!(bounded("short".to_owned()), "short");
    }
}
