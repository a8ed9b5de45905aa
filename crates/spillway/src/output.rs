//! Standard output and error of commands, for people and scripts.

use std::borrow::Cow;
use std::io::{Error, ErrorKind, Write, stderr, stdout};

/// Returns a text without control characters other than those of lines and columns. Much of what
/// commands show was said by a node, and an escape sequence would be an order to the terminal.
fn plain(text: &str) -> Cow<'_, str> {
    let is_order = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    match text.contains(is_order) {
        true => text.replace(is_order, "\u{fffd}").into(),
        false => text.into(),
    }
}

/// Writes one line to standard output.
///
/// # Errors
/// Returns an error if standard output is closed.
pub(crate) fn line(text: &str) -> std::io::Result<()> {
    let mut out = stdout().lock();
    let written = writeln!(out, "{}", plain(text)).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Error::new(ErrorKind::BrokenPipe, ReaderGone),
        _ => error,
    })
}

/// Error of a reader that has seen enough, such as `head`. No fault of the command.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads the output")]
pub(crate) struct ReaderGone;

/// Error of a command that has said everything on standard output.
#[derive(Debug, thiserror::Error)]
#[error("see the output")]
pub(crate) struct Silent;

/// Returns true if the command ended because nobody reads its output any more.
pub(crate) fn is_unread(error: &anyhow::Error) -> bool {
    let source = error.downcast_ref::<Error>().and_then(Error::get_ref);
    source.is_some_and(|source| source.is::<ReaderGone>())
}

/// Writes a line to standard error that is no part of a command's output.
pub(crate) fn note(text: &str) {
    // If even this can't be written there is nowhere left to say so.
    drop(writeln!(stderr().lock(), "{}", plain(text)));
}

/// Writes an error and its causes to standard error.
pub(crate) fn error(error: &anyhow::Error) {
    if error.is::<Silent>() {
        return;
    }
    // If even this can't be written there is nowhere left to say so.
    drop(writeln!(stderr().lock(), "spillway: {}", plain(&text_of(error))));
}

/// Returns the text of an error and its causes, without causes that it repeats already.
fn text_of(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        match () {
            () if text.is_empty() => text = cause,
            () if text.contains(&cause) => {}
            () => text = format!("{text}: {cause}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn no_text_gives_orders_to_a_terminal() {
        assert_eq!(plain("a\tb\nä €"), "a\tb\nä €");
        for order in ["\u{1b}]0;title\u{7}", "\u{9b}2J", "\r", "\u{8}", "\u{7f}", "\u{0}"] {
            assert!(!plain(order).contains(char::is_control), "{order:?}");
        }
    }

    #[test]
    fn no_cause_is_told_twice() {
        let taken = anyhow!("in use").context("can't listen on a: in use").context("can't start");
        assert_eq!(text_of(&taken), "can't start: can't listen on a: in use");
        assert_eq!(text_of(&anyhow!("no").context("it")), "it: no");
    }
}
