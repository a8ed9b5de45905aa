//! Sends a body as pieces.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};

use bytes::Bytes;
use http_body::{Body, Frame};
use quinn::WriteError;

use super::handler::BoxError;
use super::piece::{self, DATA_BYTES_MAX};
use super::streams::Sender;

/// Why a body could not be sent.
#[derive(Debug)]
pub(super) enum SendFault {
    /// The peer does not want it, or is gone.
    Peer,
    /// The body itself failed.
    Body(BoxError),
}

impl From<WriteError> for SendFault {
    fn from(_: WriteError) -> Self {
        Self::Peer
    }
}

/// Sends `body` to its end and ends the stream. Never ahead of what the peer reads by more than
/// the stream's window.
pub(super) async fn send_body<B>(sender: &mut Sender, body: B) -> Result<(), SendFault>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(body);
    while let Some(frame) = next_frame(body.as_mut()).await? {
        match frame.into_data() {
            Ok(data) => send_data(sender, data).await?,
            Err(frame) => {
                // Neither data nor trailers: a kind of frame that HTTP does not have yet.
                let Ok(trailers) = frame.into_trailers() else { continue };
                let mut parts =
                    piece::trailers(&trailers).map_err(|error| SendFault::Body(error.into()))?;
                sender.write(&mut parts).await?;
            }
        }
    }
    sender.write(&mut [piece::end()]).await?;
    sender.finish();
    Ok(())
}

/// The next frame. Its error changes its type inside, so that it need not be `Send`.
fn next_frame<B>(
    mut body: Pin<&mut B>,
) -> impl Future<Output = Result<Option<Frame<Bytes>>, SendFault>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    poll_fn(move |context| {
        let frame = body.as_mut().poll_frame(context);
        frame.map(|frame| frame.transpose().map_err(|error| SendFault::Body(error.into())))
    })
}

async fn send_data(sender: &mut Sender, mut data: Bytes) -> Result<(), WriteError> {
    while !data.is_empty() {
        let part = data.split_to(data.len().min(DATA_BYTES_MAX as usize));
        sender.write(&mut [piece::data_head(part.len() as u32), part]).await?;
    }
    Ok(())
}
