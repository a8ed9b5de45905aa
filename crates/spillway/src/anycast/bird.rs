//! Orders to BIRD over its control socket, as `birdc` gives them.
//!
//! Protocols are enabled and disabled. The alternative is an address that comes and goes on a dummy
//! interface. It needs rights over the network, and cuts the replies that are under way: a node
//! that drains has to keep its address.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Longest time that BIRD may take for one order.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Most bytes of a line of a reply, and most lines of a reply.
const LINE_BYTES_MAX: u64 = 4_096;
const LINES_MAX: usize = 64;

/// Client of BIRD, over a connection that is kept and opened again after BIRD was restarted.
#[derive(Debug)]
pub(super) struct Bird {
    socket: PathBuf,
    protocols: Vec<String>,
    stream: Option<BufReader<UnixStream>>,
}

impl Bird {
    pub(super) fn new(socket: PathBuf, protocols: Vec<String>) -> Self {
        Self { socket, protocols, stream: None }
    }

    /// Enables or disables the protocols. Call this again now and then: repeated orders change
    /// nothing, and a restarted BIRD begins with the states in its config.
    ///
    /// # Errors
    /// Returns an error if BIRD can't be reached or refuses an order. Protocols before that one are
    /// as ordered.
    pub(super) async fn set(&mut self, is_announced: bool) -> Result<()> {
        let verb = if is_announced { "enable" } else { "disable" };
        for protocol in self.protocols.clone() {
            let order = format!("{verb} {protocol}");
            let given = timeout(TIMEOUT, self.order(&order)).await;
            let given = given.unwrap_or_else(|_| Err(anyhow::anyhow!("no reply in time")));
            if let Err(error) = given {
                // The rest of a reply must not be read as the next one.
                self.stream = None;
                return Err(error.context(format!(
                    "BIRD did not carry out `{order}`: is there a protocol of that name?"
                )));
            }
        }
        Ok(())
    }

    async fn order(&mut self, order: &str) -> Result<()> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.open().await?,
        };
        stream.get_mut().write_all(format!("{order}\n").as_bytes()).await?;
        read_reply(&mut stream).await?;
        self.stream = Some(stream);
        Ok(())
    }

    async fn open(&self) -> Result<BufReader<UnixStream>> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .with_context(|| format!("no BIRD at {}", self.socket.display()))?;
        let mut stream = BufReader::new(stream);
        // BIRD greets with `0001 BIRD 2.0.12 ready.`
        read_reply(&mut stream).await?;
        Ok(stream)
    }
}

/// Reads one reply.
///
/// # Errors
/// Returns an error if the reply is an error, is malformed, or breaks off.
async fn read_reply(stream: &mut (impl AsyncBufReadExt + Unpin)) -> Result<()> {
    let mut fault = None;
    for _ in 0..LINES_MAX {
        let mut line = String::new();
        let count = (&mut *stream).take(LINE_BYTES_MAX).read_line(&mut line).await?;
        ensure!(count > 0, "BIRD closed its control socket");
        match parse_line(&line)? {
            Line::Done => return fault.map_or(Ok(()), |fault| bail!("{fault}")),
            Line::Fault { text, is_last: true } => bail!("{text}"),
            // The rest of the reply is still read: the next order would take it for its own reply.
            Line::Fault { text, is_last: false } => fault = fault.or(Some(text)),
            Line::More => {}
        }
    }
    bail!("a reply of more than {LINES_MAX} lines")
}

/// Line of a reply: `CODE-text` where more follow, `CODE text` for the last one, ` text` for more of
/// the same. Codes from 8000 on are errors.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Done,
    More,
    Fault { text: String, is_last: bool },
}

fn parse_line(line: &str) -> Result<Line> {
    // A line with `+` was not asked for: BIRD may send its log there.
    if line.starts_with([' ', '+']) {
        return Ok(Line::More);
    }
    let no_reply = || format!("{:?} is no reply of BIRD's", line.trim_end());
    let (code, rest) = line.split_at_checked(4).with_context(no_reply)?;
    let code: u16 = code.parse().with_context(no_reply)?;
    let is_last = match rest.chars().next() {
        Some('-') => false,
        Some(' ') => true,
        _ => bail!(no_reply()),
    };
    Ok(match code {
        8_000.. => Line::Fault { text: rest[1..].trim().to_owned(), is_last },
        _ if is_last => Line::Done,
        _ => Line::More,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(text: &str) -> Result<()> {
        read_reply(&mut BufReader::new(text.as_bytes())).await
    }

    #[tokio::test]
    async fn replies_of_bird_are_understood() {
        for good in [
            "0001 BIRD 2.0.12 ready.\n",
            "0011-anycast: enabled\n0000 \n",
            "0010-anycast: already enabled\n0000 \n",
            "0009-anycast: disabled\n 4: more\n0000 \n",
        ] {
            assert!(read(good).await.is_ok(), "{good}");
        }
        for (bad, told) in [
            ("8003 No protocols match\n", "No protocols match"),
            ("9001 syntax error, unexpected CF_SYM_UNDEFINED\n", "syntax error"),
            ("8000-one fault\n8001-another\n0000 \n", "one fault"),
            ("0011-anycast: enabled\n", "closed"),
            ("", "closed"),
            ("HTTP/1.1 400 Bad Request\n", "no reply of BIRD's"),
            ("00é0 \n", "no reply of BIRD's"),
            ("12\n", "no reply of BIRD's"),
        ] {
            let error = read(bad).await.unwrap_err().to_string();
            assert!(error.contains(told), "{bad}: {error}");
        }
        let endless = "0011-anycast: enabled\n".repeat(LINES_MAX + 1);
        assert!(read(&endless).await.is_err());
    }
}
