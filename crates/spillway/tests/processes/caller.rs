//! Plain client: one request on a connection of its own.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time limit, longer than any request here takes.
const LIMIT: Duration = Duration::from_secs(20);

/// Sends a request and reads the whole reply; `Err` describes the failure.
pub(crate) async fn call(to: SocketAddr, head: &str, body: &str) -> Result<String, String> {
    let called = async {
        let mut tcp = TcpStream::connect(to).await.map_err(|error| format!("connect: {error}"))?;
        let text = format!(
            "{head} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        tcp.write_all(text.as_bytes()).await.map_err(|error| format!("write: {error}"))?;
        let mut reply = Vec::new();
        tcp.read_to_end(&mut reply).await.map_err(|error| format!("read: {error}"))?;
        Ok(String::from_utf8_lossy(&reply).into_owned())
    };
    timeout(LIMIT, called).await.unwrap_or_else(|_| Err("it took too long".to_owned()))
}

/// Returns the status of a reply; 0 if there is none.
pub(crate) fn status(reply: &str) -> u16 {
    reply.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// Asks for tokens, as a stream or not; `Err` if the reply is incomplete.
pub(crate) async fn chat(to: SocketAddr, streams: bool, tokens: u32) -> Result<(), String> {
    let body = format!(
        "{{\"model\":\"tiny\",\"stream\":{streams},\"max_tokens\":{tokens},\
         \"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}"
    );
    let reply = call(to, "POST /v1/chat/completions", &body).await?;
    let end = if streams { "data: [DONE]" } else { "\"usage\"" };
    let is_whole = status(&reply) == 200 && reply.contains(end) && !reply.contains("\"error\"");
    if is_whole { Ok(()) } else { Err(reply) }
}

/// Connection that a client keeps for one request after the other.
pub(crate) struct Kept(TcpStream);

impl Kept {
    pub(crate) async fn connect(to: SocketAddr) -> Self {
        Self(TcpStream::connect(to).await.unwrap())
    }

    /// Asks for one token; `Err` has the reply if that is no success.
    pub(crate) async fn chat(&mut self) -> Result<(), String> {
        const BODY: &str =
            r#"{"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":"x"}]}"#;
        let text = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{BODY}",
            BODY.len()
        );
        let asked = async {
            self.0.write_all(text.as_bytes()).await.map_err(|error| format!("write: {error}"))?;
            let mut reply = Vec::new();
            while !is_whole(&reply) {
                let read = self.0.read_buf(&mut reply).await;
                if read.map_err(|error| format!("read: {error}"))? == 0 {
                    break;
                }
            }
            let reply = String::from_utf8_lossy(&reply).into_owned();
            if status(&reply) == 200 { Ok(()) } else { Err(reply) }
        };
        timeout(LIMIT, asked).await.unwrap_or_else(|_| Err("it took too long".to_owned()))
    }
}

/// Returns true if a reply with a length has come to its end.
fn is_whole(reply: &[u8]) -> bool {
    let text = String::from_utf8_lossy(reply);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.and_then(|length| length.parse().ok()).is_some_and(|length: usize| body.len() >= length)
}
