//! Control socket: one JSON object a line, one answer a line.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::control::{ControlAnswer, ControlCommand};
use super::network::Handle;

/// Largest line in bytes; a command has a few hundred.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Most connections at once; more wait.
const CONNECTIONS_MAX: usize = 64;

/// Time after which an idle connection is closed.
const IDLE: Duration = Duration::from_secs(3600);

/// Answer to one line.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ControlReply {
    /// False if nothing was changed.
    pub ok: bool,
    /// Answer, if `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<ControlAnswer>,
    /// Reason, if not `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ControlReply {
    /// Returns the answer.
    ///
    /// # Errors
    ///
    /// Returns the reason as text if the command failed.
    pub fn into_result(self) -> Result<ControlAnswer, String> {
        match (self.answer, self.error) {
            (Some(answer), _) if self.ok => Ok(answer),
            (_, error) => Err(error.unwrap_or_else(|| "an answer of unknown form".to_owned())),
        }
    }
}

/// Listens at `path`, for this user only. Replaces the file of a network that has ended.
///
/// # Errors
///
/// Returns an error if another network listens there, or the system refuses.
pub async fn listen(path: &Path) -> io::Result<UnixListener> {
    if UnixStream::connect(path).await.is_ok() {
        let text = format!("another network listens at {}", path.display());
        return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
    }
    // The file of a network that was killed is still there, and `bind` would fail on it.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // The file is open to others for a moment, which is harmless: only root can enter namespaces.
    let listener = UnixListener::bind(path)?;
    let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(path, owner_only)?;
    Ok(listener)
}

/// Serves connections until the network has ended or a client asks to stop. The caller then drops
/// the network: packets flow until the processes inside have ended.
pub async fn serve(listener: UnixListener, handle: Handle) {
    let mut connections = JoinSet::new();
    let stop = Arc::new(Notify::new());
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => {
                // A connection that failed before it began matters only to its client.
                if let Ok((stream, _)) = accepted {
                    connections.spawn(converse(stream, handle.clone(), stop.clone()));
                }
            }
            _ = connections.join_next(), if !connections.is_empty() => {}
            () = handle.ended() => break,
            () = stop.notified() => break,
        }
    }
    // The answer to the stop command may still be in transit.
    let _: Result<(), _> = tokio::time::timeout(Duration::from_millis(100), async {
        while connections.join_next().await.is_some() {}
    })
    .await;
}

async fn converse(stream: UnixStream, handle: Handle, stop: Arc<Notify>) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut reader).take(LINE_BYTES_MAX);
        let read = tokio::time::timeout(IDLE, limited.read_until(b'\n', &mut line)).await;
        if !matches!(read, Ok(Ok(length)) if length > 0) {
            return;
        }
        let mut reply =
            serde_json::to_vec(&respond(&line, &handle, &stop).await).unwrap_or_default();
        reply.push(b'\n');
        // A line that is too long leaves its rest in the stream, so the connection ends.
        if writer.write_all(&reply).await.is_err() || line.last() != Some(&b'\n') {
            return;
        }
    }
}

async fn respond(line: &[u8], handle: &Handle, stop: &Notify) -> ControlReply {
    let answer = match serde_json::from_slice::<ControlCommand>(line) {
        // The caller of `serve` ends the network.
        Ok(ControlCommand::Stop {}) => {
            stop.notify_one();
            Ok(ControlAnswer::Done)
        }
        Ok(command) => handle.ask_async(command).await.map_err(|error| error.to_string()),
        Err(error) => Err(format!("no command: {error}")),
    };
    match answer {
        Ok(answer) => ControlReply { ok: true, answer: Some(answer), error: None },
        Err(error) => ControlReply { ok: false, answer: None, error: Some(error) },
    }
}
