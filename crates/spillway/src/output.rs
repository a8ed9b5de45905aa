//! Standard output and error of commands, for people and scripts.

use std::borrow::Cow;
use std::io::{Error, ErrorKind, Write, stderr, stdout};

/// Returns true if a letter controls the terminal or the layout of the text: a control character, a
/// mark that turns the direction of writing, or a separator of lines or paragraphs.
pub(crate) fn is_order(letter: char) -> bool {
    let turns = matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    letter.is_control() || turns || matches!(letter, '\u{2028}' | '\u{2029}')
}

/// Returns a text in which control characters are shown instead of carried out, apart from those of
/// lines and columns. Much of the output of commands comes from a node. A JSON text keeps its
/// meaning, since the shown form is JSON's own.
fn plain(text: &str) -> Cow<'_, str> {
    shown(text, |letter| is_order(letter) && !matches!(letter, '\n' | '\t'))
}

/// Returns a text as a cell of a table shows it: in one line, without orders. Otherwise a node could
/// make up rows, or shift columns. Call this before the width of the cell is measured.
pub(crate) fn cell(text: &str) -> Cow<'_, str> {
    shown(text, is_order)
}

fn shown(text: &str, is_shown: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_shown) {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match is_shown(letter) {
            // All orders are in the basic plane, where JSON has the same form.
            true => plain.push_str(&format!("\\u{:04x}", u32::from(letter))),
            false => plain.push(letter),
        }
    }
    plain.into()
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

/// Error of a command that has reported everything on standard output.
#[derive(Debug, thiserror::Error)]
#[error("see the output")]
pub(crate) struct Silent;

/// Error of a command line that breaks a rule beyond its definitions.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct WrongUsage(pub(crate) String);

/// Returns true if the command ended because its output has no reader any more.
pub(crate) fn is_unread(error: &anyhow::Error) -> bool {
    let source = error.downcast_ref::<Error>().and_then(Error::get_ref);
    source.is_some_and(|source| source.is::<ReaderGone>())
}

/// Writes a line to standard error that is no part of a command's output.
pub(crate) fn note(text: &str) {
    // If even this can't be written, there is nowhere left to report it.
    drop(writeln!(stderr().lock(), "{}", plain(text)));
}

/// Writes an error and its causes to standard error.
pub(crate) fn error(error: &anyhow::Error) {
    if error.is::<Silent>() {
        return;
    }
    // If even this can't be written, there is nowhere left to report it.
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

    const ORDERS: [&str; 14] = [
        "\u{1b}]0;title\u{7}",
        "\u{9b}2J",
        "\r",
        "\u{8}",
        "\u{7f}",
        "\u{0}",
        "\u{85}",
        "\u{202e}",
        "\u{202a}",
        "\u{2066}",
        "\u{200f}",
        "\u{61c}",
        "\u{2028}",
        "\u{2029}",
    ];

    #[test]
    fn no_text_gives_orders_to_a_terminal() {
        assert_eq!(plain("a\tb\nä €"), "a\tb\nä €");
        for order in ORDERS {
            assert!(!plain(order).contains(is_order), "{order:?}");
        }
        assert_eq!(plain("gpu\u{202e}1"), "gpu\\u202e1");
    }

    #[test]
    fn a_cell_stays_in_its_line() {
        assert_eq!(cell("ä €"), "ä €");
        assert_eq!(cell("a\nb\tc\u{2028}"), "a\\u000ab\\u0009c\\u2028");
        for order in ORDERS {
            assert!(!cell(order).contains(is_order), "{order:?}");
        }
    }

    #[test]
    fn json_means_the_same_as_before() {
        let value = serde_json::json!({ "name": ORDERS.concat() + "\n\t" });
        let text = value.to_string();
        let again: serde_json::Value = serde_json::from_str(&plain(&text)).expect("JSON");
        assert_eq!(again, value);
        assert!(!plain(&text).contains(is_order));
    }

    #[test]
    fn no_cause_is_told_twice() {
        let taken = anyhow!("in use").context("can't listen on a: in use").context("can't start");
        assert_eq!(text_of(&taken), "can't start: can't listen on a: in use");
        assert_eq!(text_of(&anyhow!("no").context("it")), "it: no");
    }
}
