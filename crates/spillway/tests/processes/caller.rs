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
