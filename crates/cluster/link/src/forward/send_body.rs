//! Sender of a body in pieces.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};

use bytes::Bytes;
use futures_util::FutureExt;
use http_body::{Body, Frame};
use quinn::WriteError;
use smallvec::SmallVec;

use super::handler::BoxError;
use super::piece::{self, DATA_BYTES_MAX};
use super::streams::Sender;

/// Reason for which a body could not be sent.
#[derive(Debug)]
pub(super) enum SendError {
    /// The peer does not want the body, or is gone.
    Peer,
    /// The body itself failed.
    Body(BoxError),
}

impl From<WriteError> for SendError {
    fn from(_: WriteError) -> Self {
        Self::Peer
    }
}

/// Parts that are written together. Each write takes the connection's lock and wakes its driver, so
/// a short message is written at once.
pub(super) type Parts = SmallVec<[Bytes; 8]>;

/// Bytes after which parts are written; more would only wait inside the connection.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// Sends `first`, then `body` to its end, and ends the stream. Backpressure: the sender is never
/// ahead of the peer's reader by more than the stream's window.
pub(super) async fn send_body<B>(
    sender: &mut Sender,
    first: Parts,
    body: B,
) -> Result<(), SendError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(body);
    let mut batch = Batch { sender, parts: first, bytes: 0 };
    loop {
        let frame = match next_frame(body.as_mut()).now_or_never() {
            Some(frame) => frame?,
            None => {
                // The body has no frame ready, so the parts gathered so far must not wait for the
                // next one.
                batch.write().await?;
                next_frame(body.as_mut()).await?
            }
        };
        let Some(frame) = frame else { break };
        match frame.into_data() {
            Ok(data) => batch.add_data(data).await?,
            Err(frame) => {
                // A frame that is neither data nor trailers does not exist in HTTP yet.
                let Ok(trailers) = frame.into_trailers() else { continue };
                let parts =
                    piece::trailers(&trailers).map_err(|error| SendError::Body(error.into()))?;
                batch.parts.extend(parts);
            }
        }
    }
    batch.parts.push(piece::end());
    batch.write().await?;
    sender.finish();
    Ok(())
}

/// Parts that will be written next.
struct Batch<'a> {
    sender: &'a mut Sender,
    parts: Parts,
    bytes: usize,
}

impl Batch<'_> {
    async fn add_data(&mut self, mut data: Bytes) -> Result<(), WriteError> {
        while !data.is_empty() {
            let part = data.split_to(data.len().min(DATA_BYTES_MAX as usize));
            self.bytes += part.len();
            self.parts.push(piece::data_head(part.len() as u32));
            self.parts.push(part);
            if self.bytes >= BATCH_BYTES_MAX {
                self.write().await?;
            }
        }
        Ok(())
    }

    async fn write(&mut self) -> Result<(), WriteError> {
        if !self.parts.is_empty() {
            self.sender.write(&mut self.parts).await?;
            self.parts.clear();
            self.bytes = 0;
        }
        Ok(())
    }
}

/// Returns the next frame. The error is converted inside, so that its type need not be `Send`.
fn next_frame<B>(
    mut body: Pin<&mut B>,
) -> impl Future<Output = Result<Option<Frame<Bytes>>, SendError>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    poll_fn(move |context| {
        let frame = body.as_mut().poll_frame(context);
        frame.map(|frame| frame.transpose().map_err(|error| SendError::Body(error.into())))
    })
}
