//! Process of ExaBGP: orders on standard output, acknowledgements on standard input.

use std::io::stdin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Result;
use tokio_util::sync::CancellationToken;

use super::args::Prefix;
use crate::output;

/// ExaBGP, at the other end of standard input and output.
#[derive(Debug)]
pub(super) struct ExaBgp {
    prefixes: Vec<Prefix>,
    attributes: String,
    replies: Arc<Replies>,
}

/// Replies of ExaBGP, read by a thread without pause, since ExaBGP blocks while nothing reads them.
#[derive(Debug, Default)]
struct Replies {
    is_refused: AtomicBool,
    ended: CancellationToken,
}

/// Meaning of a line from ExaBGP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// ExaBGP carried out an order, or sent a line that needs no reaction.
    Fine,
    /// ExaBGP did not understand an order.
    Refused,
    /// ExaBGP ends.
    Ends,
}

impl ExaBgp {
    /// Starts to read replies. None of these prefixes is announced yet.
    ///
    /// # Errors
    /// Returns an error if the thread can't be started.
    pub(super) fn new(prefixes: Vec<Prefix>, attributes: String) -> Result<Self> {
        let replies = Arc::<Replies>::default();
        let heard = Arc::clone(&replies);
        // A thread, since a read of standard input can't be interrupted. It ends with the process.
        thread::Builder::new().name("exabgp".to_owned()).spawn(move || read(&heard))?;
        Ok(Self { prefixes, attributes, replies })
    }

    /// Announces or withdraws the prefixes, each by a line of its own that is flushed.
    ///
    /// # Errors
    /// Returns an error if standard output is closed.
    pub(super) fn set(&self, is_announced: bool) -> Result<()> {
        for prefix in &self.prefixes {
            output::line(&order(prefix, &self.attributes, is_announced))?;
        }
        Ok(())
    }

    /// Returns true if an order was refused since the last call.
    pub(super) fn take_refusal(&self) -> bool {
        self.replies.is_refused.swap(false, Ordering::Relaxed)
    }

    /// Returns when ExaBGP ends.
    pub(super) async fn ended(&self) {
        self.replies.ended.cancelled().await;
    }
}

fn read(replies: &Replies) {
    for line in stdin().lines().map_while(Result::ok) {
        match meaning(&line) {
            Word::Fine => {}
            Word::Refused => replies.is_refused.store(true, Ordering::Relaxed),
            Word::Ends => break,
        }
    }
    // Standard input also ends if ExaBGP was killed and could not send `shutdown`.
    replies.ended.cancel();
}

fn order(prefix: &Prefix, attributes: &str, is_announced: bool) -> String {
    let verb = if is_announced { "announce" } else { "withdraw" };
    format!("{verb} route {prefix} {attributes}")
}

/// Returns the meaning of a line. ExaBGP 4 acknowledges by `done`, `error` and `shutdown`. Lines
/// about its peers, which its config may ask for, are ignored.
fn meaning(line: &str) -> Word {
    match line.trim() {
        "error" => Word::Refused,
        "shutdown" => Word::Ends,
        _ => Word::Fine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_those_of_exabgp() {
        let prefix: Prefix = "192.0.2.1/32".parse().unwrap();
        let said = |is_announced| order(&prefix, "next-hop self med 100", is_announced);
        assert_eq!(said(true), "announce route 192.0.2.1/32 next-hop self med 100");
        assert_eq!(said(false), "withdraw route 192.0.2.1/32 next-hop self med 100");
    }

    #[test]
    fn only_errors_and_the_end_mean_something() {
        for (line, word) in [
            ("done", Word::Fine),
            ("error", Word::Refused),
            (" error \r", Word::Refused),
            ("shutdown", Word::Ends),
            ("{ \"exabgp\": \"4.0.1\", \"type\": \"state\" }", Word::Fine),
        ] {
            assert_eq!(meaning(line), word, "{line}");
        }
    }
}
