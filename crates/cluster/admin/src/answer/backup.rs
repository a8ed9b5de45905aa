//! Backups: streams the state of the cluster.

use std::io;

use bytes::Bytes;
use futures_util::stream::try_unfold;
use http::{HeaderValue, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tempfile::TempDir;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::sync::OwnedSemaphorePermit;

use super::cluster::Cluster;
use crate::error::ApiError;
use crate::reply::{Reply, reply};

/// Bytes that are read and sent at a time.
const PIECE_BYTES: usize = 64 << 10;
/// Time to wait for a backup in progress, which is soon done.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_secs(5);

/// A backup that is being sent. Its file and folder are removed when it is dropped.
struct BackupSending {
    file: File,
    _folder: TempDir,
    _place: OwnedSemaphorePermit,
}

pub(super) async fn backup(cluster: &Cluster<'_>) -> Result<Reply, ApiError> {
    let place = std::sync::Arc::clone(cluster.backups).try_acquire_owned().map_err(|_| {
        let (cause, remedy) = ("another backup is under way", "try again when it is done");
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "busy", cause, remedy)
            .with_retry_after(RETRY_AFTER)
    })?;
    let no_room = |error: &dyn std::fmt::Display| {
        let remedy = "make room in the node's folder for temporary files";
        let cause = format!("the backup can't be written: {error}");
        ApiError::new(StatusCode::INSUFFICIENT_STORAGE, "no_room", cause, remedy)
    };
    let folder = TempDir::with_prefix("spillway-backup-").map_err(|error| no_room(&error))?;
    let path = folder.path().join("state.backup");
    cluster.control_plane.backup(&path).await.map_err(|fault| no_room(&fault))?;
    let file = File::open(&path).await.map_err(|error| no_room(&error))?;
    let bytes = file.metadata().await.map_err(|error| no_room(&error))?.len();
    let pieces = try_unfold(BackupSending { file, _folder: folder, _place: place }, piece);
    let body = StreamBody::new(pieces).boxed_unsync();
    let mut reply = reply(StatusCode::OK, "application/octet-stream", body);
    // With the length, every client notices a backup that breaks off.
    reply.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    Ok(reply)
}

async fn piece(mut sending: BackupSending) -> io::Result<Option<(Frame<Bytes>, BackupSending)>> {
    let mut piece = bytes::BytesMut::with_capacity(PIECE_BYTES);
    let read = sending.file.read_buf(&mut piece).await?;
    Ok((read > 0).then(|| (Frame::data(piece.freeze()), sending)))
}
